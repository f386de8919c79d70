//! Fewer points that look the same.

/// Into how many columns a curve of very many points is put together: a few points of a screen each.
const COLUMNS: f64 = 480.0;
/// Up to so many points per column a curve is drawn as it is.
const FEW: usize = 3;

/// A curve through the points, and for very many points the range of their values around it: what noise there is stays to be
/// seen without hiding the course.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Course {
    /// The points, or the means of columns of them.
    pub(super) line: Vec<(f64, f64)>,
    /// Lowest and highest value; the points themselves if there are few.
    pub(super) range: Vec<(f64, f64, f64)>,
    /// Whether points were put together.
    pub(super) is_thinned: bool,
}

/// A curve through points of a time axis of this length.
pub(super) fn course(points: &[(f64, f64)], length: f64) -> Course {
    let column = |at: f64| (at / length * COLUMNS).floor();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Course { line: Vec::new(), range: Vec::new(), is_thinned: false };
    };
    let columns = column(last.0) - column(first.0) + 1.0;
    if points.len() as f64 <= columns * FEW as f64 {
        let range = points.iter().map(|(at, value)| (*at, *value, *value)).collect();
        return Course { line: points.to_vec(), range, is_thinned: false };
    }
    let mut course =
        Course { line: vec![*first], range: vec![(first.0, first.1, first.1)], is_thinned: true };
    for chunk in points.chunk_by(|one, other| column(one.0) == column(other.0)) {
        let (Some(begin), Some(end)) = (chunk.first(), chunk.last()) else { continue };
        let middle = f64::midpoint(begin.0, end.0);
        let values = || chunk.iter().map(|(_, value)| *value);
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        course.line.push((middle, values().sum::<f64>() / chunk.len() as f64));
        course.range.push((middle, low, high));
    }
    course.line.push(*last);
    course.range.push((last.0, last.1, last.1));
    course
}

/// A value per instant that holds until the next, as a curve with corners, in pieces where there is none. Equal values
/// that follow each other are one.
pub(super) fn steps(values: impl IntoIterator<Item = (f64, Option<f64>)>, end: f64) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut held: Option<f64> = None;
    for (at, value) in values {
        match (held, value) {
            (Some(before), Some(now)) if before == now => {}
            (Some(before), _) => {
                if let Some(piece) = pieces.last_mut() {
                    piece.push((at, before));
                    piece.extend(value.map(|now| (at, now)));
                }
            }
            (None, Some(now)) => pieces.push(vec![(at, now)]),
            (None, None) => {}
        }
        held = value;
    }
    if let (Some(last), Some(piece)) = (held, pieces.last_mut()) {
        piece.push((end, last));
    }
    pieces
}

/// The same between two values: an area with corners.
pub(super) fn bands(
    values: impl IntoIterator<Item = (f64, Option<(f64, f64)>)>,
    end: f64,
) -> Vec<Vec<(f64, f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64, f64)>> = Vec::new();
    let mut held: Option<(f64, f64)> = None;
    for (at, value) in values {
        match (held, value) {
            (Some(before), Some(now)) if before == now => {}
            (Some((low, high)), _) => {
                if let Some(piece) = pieces.last_mut() {
                    piece.push((at, low, high));
                    piece.extend(value.map(|(low, high)| (at, low, high)));
                }
            }
            (None, Some((low, high))) => pieces.push(vec![(at, low, high)]),
            (None, None) => {}
        }
        held = value;
    }
    if let (Some((low, high)), Some(piece)) = (held, pieces.last_mut()) {
        piece.push((end, low, high));
    }
    pieces
}

/// Values that are joined by straight lines, in pieces where there are none.
pub(super) fn pieces<V: Copy>(values: impl IntoIterator<Item = (f64, Option<V>)>) -> Vec<Vec<(f64, V)>> {
    let mut pieces: Vec<Vec<(f64, V)>> = Vec::new();
    let mut is_open = false;
    for (at, value) in values {
        match (value, pieces.last_mut().filter(|_| is_open)) {
            (Some(value), Some(piece)) => piece.push((at, value)),
            (Some(value), None) => pieces.push(vec![(at, value)]),
            (None, _) => {}
        }
        is_open = value.is_some();
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_samples_are_one_step_and_gaps_part_pieces() {
        let values = [1.0, 1.0, 2.0].map(Some).into_iter().chain([None, Some(3.0), Some(3.0)]);
        let pieces = steps((0..).map(f64::from).zip(values), 6.0);
        assert_eq!(
            pieces,
            [vec![(0.0, 1.0), (2.0, 1.0), (2.0, 2.0), (3.0, 2.0)], vec![(4.0, 3.0), (6.0, 3.0)]]
        );
    }

    #[test]
    fn very_many_points_are_a_mean_and_a_range() {
        let wave: Vec<_> = (0..86_400).map(|at| (f64::from(at), f64::from(at % 7))).collect();
        let thinned = course(&wave, 86_400.0);
        assert!(thinned.is_thinned && thinned.line.len() <= 482, "{}", thinned.line.len());
        assert!(thinned.line[1..481].iter().all(|(_, mean)| (mean - 3.0).abs() < 0.1));
        assert!(thinned.range[1..481].iter().all(|(_, low, high)| (*low, *high) == (0.0, 6.0)));
        assert_eq!(thinned.line.last(), wave.last());
    }

    #[test]
    fn few_points_stay_as_they_are() {
        let points = [(0.0, 1.0), (15.0, 5.0), (30.0, 2.0)];
        assert_eq!(course(&points, 3600.0).line, points);
        assert!(course(&[], 3600.0).line.is_empty());
    }
}
