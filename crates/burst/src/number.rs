//! Conversions of numbers. None of them panics.

/// `value` without its fraction, within the range of a replica count. NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
pub(crate) fn truncate_to_count(value: f64) -> i32 {
    value as i32
}

/// The position of `second` in a ring of `length` buckets. `length` is not 0.
pub(crate) fn ring_index(second: i64, length: usize) -> usize {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    usize::try_from(second.rem_euclid(length.max(1))).unwrap_or(0)
}

/// A number of seconds or intervals as a length.
pub(crate) fn to_length(seconds: u32) -> usize {
    usize::try_from(seconds).unwrap_or(usize::MAX)
}
