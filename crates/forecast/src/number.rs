//! Saturating conversions between numbers.

/// Rounds up to a count of pods. NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
pub(crate) fn ceil_to_count(value: f32) -> u16 {
    value.ceil() as u16
}

/// Rounds down to a count of pods. NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
pub(crate) fn floor_to_count(value: f64) -> u16 {
    value.floor() as u16
}

/// The nearest number in single precision.
#[expect(clippy::cast_possible_truncation, reason = "the precision of the state is single")]
pub(crate) fn narrow(value: f64) -> f32 {
    value as f32
}

/// A count of pods that saturates. A negative count becomes 0.
pub(crate) fn to_count(value: i32) -> u16 {
    u16::try_from(value.max(0)).unwrap_or(u16::MAX)
}

/// The slot of a time in a ring.
pub(crate) fn slot(time: i64, slots: usize) -> usize {
    let slots = i64::try_from(slots).unwrap_or(i64::MAX);
    usize::try_from(time.rem_euclid(slots)).unwrap_or_default()
}
