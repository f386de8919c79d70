//! Curves as lists of points, with as few points as possible without a visible change.

/// The number of columns of a downsampled curve. A column is a few pixels wide on a screen.
const COLUMNS: f64 = 480.0;
/// The maximum average number of points per column of a curve that is not downsampled.
const FEW: usize = 3;

/// A curve and the range of its values. In a downsampled curve, the range keeps noise visible without hiding the mean.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Downsampled {
    /// The points as time and value. A downsampled curve has the first point, the mean of each column, and the last
    /// point.
    pub(super) line: Vec<(f64, f64)>,
    /// The time, the lowest and the highest value of each point of `line`.
    pub(super) range: Vec<(f64, f64, f64)>,
    pub(super) is_reduced: bool,
}

/// Downsamples points of time and value, if they are too many for a time axis of the given length.
pub(super) fn downsample(points: &[(f64, f64)], length: f64) -> Downsampled {
    let column = |at: f64| (at / length * COLUMNS).floor();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Downsampled { line: Vec::new(), range: Vec::new(), is_reduced: false };
    };
    let columns = column(last.0) - column(first.0) + 1.0;
    if points.len() as f64 <= columns * FEW as f64 {
        let range = points.iter().map(|(at, value)| (*at, *value, *value)).collect();
        return Downsampled { line: points.to_vec(), range, is_reduced: false };
    }
    let mut reduced =
        Downsampled { line: vec![*first], range: vec![(first.0, first.1, first.1)], is_reduced: true };
    for chunk in points.chunk_by(|one, other| column(one.0) == column(other.0)) {
        let (Some(left), Some(right)) = (chunk.first(), chunk.last()) else { continue };
        let middle = f64::midpoint(left.0, right.0);
        let values = || chunk.iter().map(|(_, value)| *value);
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        reduced.line.push((middle, values().sum::<f64>() / chunk.len() as f64));
        reduced.range.push((middle, low, high));
    }
    reduced.line.push(*last);
    reduced.range.push((last.0, last.1, last.1));
    reduced
}

/// Builds a step curve, in which each value applies until the next one. The last value applies until `end`. Gaps in the
/// values split the curve into pieces. Consecutive equal values become one step.
pub(super) fn steps<V: Copy + PartialEq>(
    values: impl IntoIterator<Item = (f64, Option<V>)>,
    end: f64,
) -> Vec<Vec<(f64, V)>> {
    let mut pieces: Vec<Vec<(f64, V)>> = Vec::new();
    let mut held: Option<V> = None;
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

/// Builds the area between two step curves, as pieces of time, lower and upper value.
pub(super) fn bands(
    values: impl IntoIterator<Item = (f64, Option<(f64, f64)>)>,
    end: f64,
) -> Vec<Vec<(f64, f64, f64)>> {
    let flat = |piece: Vec<_>| piece.into_iter().map(|(at, (low, high))| (at, low, high)).collect();
    steps(values, end).into_iter().map(flat).collect()
}

/// Splits values at gaps. Unlike in a step curve, straight lines connect the values of a piece.
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
    fn steps_merge_equal_samples_and_split_at_gaps() {
        let values = [1.0, 1.0, 2.0].map(Some).into_iter().chain([None, Some(3.0), Some(3.0)]);
        let pieces = steps((0..).map(f64::from).zip(values), 6.0);
        assert_eq!(
            pieces,
            [vec![(0.0, 1.0), (2.0, 1.0), (2.0, 2.0), (3.0, 2.0)], vec![(4.0, 3.0), (6.0, 3.0)]]
        );
    }

    #[test]
    fn downsample_keeps_mean_and_range_of_many_points() {
        let wave: Vec<_> = (0..86_400).map(|at| (f64::from(at), f64::from(at % 7))).collect();
        let reduced = downsample(&wave, 86_400.0);
        assert!(reduced.is_reduced && reduced.line.len() <= 482, "{}", reduced.line.len());
        assert!(reduced.line[1..481].iter().all(|(_, mean)| (mean - 3.0).abs() < 0.1));
        assert!(reduced.range[1..481].iter().all(|(_, low, high)| (*low, *high) == (0.0, 6.0)));
        assert_eq!(reduced.line.last(), wave.last());
    }

    #[test]
    fn downsample_keeps_all_points_when_there_are_few() {
        let points = [(0.0, 1.0), (15.0, 5.0), (30.0, 2.0)];
        assert_eq!(downsample(&points, 3600.0).line, points);
        assert!(downsample(&[], 3600.0).line.is_empty());
    }
}
