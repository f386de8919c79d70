//! The wall clock, which a real API server and its clients share.

/// The current time in the format of the Kubernetes API.
pub(crate) fn now() -> String {
    #[allow(clippy::disallowed_methods, reason = "a real control plane lives in real time")]
    let now = jiff::Timestamp::now();
    format!("{now:.0}")
}

/// The time `seconds` before now, in the same format.
pub(crate) fn before_now(seconds: i64) -> String {
    #[allow(clippy::disallowed_methods, reason = "a real control plane lives in real time")]
    let now = jiff::Timestamp::now();
    format!("{:.0}", now - jiff::SignedDuration::from_secs(seconds))
}
