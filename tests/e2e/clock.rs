//! The wall clock, which a real API server and its clients share.

/// The current time in the format of the Kubernetes API.
pub(crate) fn now() -> String {
    #[allow(clippy::disallowed_methods, reason = "a real control plane lives in real time")]
    let now = jiff::Timestamp::now();
    format!("{now:.0}")
}
