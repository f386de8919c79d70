//! Saturating conversions of numbers to `i32` and `i64`. Upstream wraps in some cases, which once scaled an overloaded
//! workload to 1 replica.

/// Rounds up to a replica count. NaN becomes 0.
pub(crate) fn ceil_to_count(value: f64) -> i32 {
    saturate_to_count(value.ceil())
}

/// Rounds towards zero to a replica count. NaN becomes 0.
pub(crate) fn truncate_to_count(value: f64) -> i32 {
    saturate_to_count(value.trunc())
}

/// Rounds up to milli-units. NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
pub(crate) fn ceil_to_milli(value: f64) -> i64 {
    value.ceil() as i64
}

pub(crate) fn saturate_to_i64(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

pub(crate) fn saturate_to_i32(value: i128) -> i32 {
    i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX })
}

/// Converts the length of a list. No list in memory has more than 2^63-1 entries.
pub(crate) fn length_to_i64(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
fn saturate_to_count(value: f64) -> i32 {
    value as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_saturate_instead_of_wrapping() {
        assert_eq!(ceil_to_count(214_748_364_000.0), i32::MAX);
        assert_eq!(ceil_to_count(f64::INFINITY), i32::MAX);
        assert_eq!(ceil_to_count(-1e300), i32::MIN);
        assert_eq!(ceil_to_count(f64::NAN), 0);
        assert_eq!(ceil_to_count(100.0 * 1.1), 111);
        assert_eq!(truncate_to_count(4.999), 4);
        assert_eq!(truncate_to_count(-4.999), -4);
    }

    #[test]
    fn sums_saturate_instead_of_wrapping() {
        assert_eq!(saturate_to_i64(i128::from(i64::MAX) + 1), i64::MAX);
        assert_eq!(saturate_to_i64(i128::from(i64::MIN) - 1), i64::MIN);
        assert_eq!(saturate_to_i32(1 << 40), i32::MAX);
    }
}
