//! Fewer points that look the same.

/// How many columns of a plot are told apart: about as many as a wide screen has points.
const COLUMNS: f64 = 1200.0;

/// Of the points in one column the lowest and the highest, in their order. `height` says how high a point stands.
pub(super) fn columns<P: Copy>(
    points: &[P],
    length: f64,
    at: impl Fn(&P) -> f64,
    height: impl Fn(&P) -> f64,
) -> Vec<P> {
    let column = |point: &P| (at(point) / length * COLUMNS).floor();
    let mut thinned = Vec::with_capacity(points.len().min(4096));
    for chunk in points.chunk_by(|one, other| column(one) == column(other)) {
        let lowest =
            chunk.iter().enumerate().min_by(|(_, one), (_, other)| height(one).total_cmp(&height(other)));
        let highest =
            chunk.iter().enumerate().max_by(|(_, one), (_, other)| height(one).total_cmp(&height(other)));
        let (Some(lowest), Some(highest)) = (lowest, highest) else { continue };
        let (first, second) = if lowest.0 <= highest.0 { (lowest, highest) } else { (highest, lowest) };
        thinned.push(*first.1);
        if first.0 != second.0 && height(first.1) != height(second.1) {
            thinned.push(*second.1);
        }
    }
    // A curve ends where it ends.
    if let (Some(end), Some(kept)) = (points.last(), thinned.last())
        && at(end) > at(kept)
    {
        thinned.push(*end);
    }
    thinned
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
    fn a_column_keeps_its_extremes() {
        let wave: Vec<_> = (0..86_400).map(|at| (f64::from(at), f64::from(at % 7))).collect();
        let thinned = columns(&wave, 86_400.0, |point| point.0, |point| point.1);
        assert!(thinned.len() <= 2401, "{}", thinned.len());
        assert!(thinned.iter().any(|point| point.1 == 6.0) && thinned.iter().any(|point| point.1 == 0.0));
        assert!(thinned.is_sorted_by(|one, other| one.0 <= other.0));
        assert_eq!(thinned.last(), wave.last());
    }
}
