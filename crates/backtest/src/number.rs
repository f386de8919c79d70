//! Conversions of numbers.

/// Rounds up to a count that saturates. NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
pub fn ceil_to_count(value: f64) -> i32 {
    value.ceil() as i32
}

/// Rounds to an integer that saturates. NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
pub(crate) fn round(value: f64) -> i64 {
    value.round() as i64
}

/// The length of a list, or an index in it.
pub(crate) fn length(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// An index. `None` if it is negative.
pub(crate) fn index(index: i64) -> Option<usize> {
    usize::try_from(index).ok()
}
