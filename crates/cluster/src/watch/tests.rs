use super::*;

#[test]
fn version_that_the_server_has_lost_is_recognized_by_cause_or_text() {
    let expired = |code, reason: &str, cause: Option<&str>, message: &str| {
        super::expired(&ApiError::Status {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            retry_after: None,
            cause: cause.map(str::to_owned),
            generic: false,
        })
    };
    let too_large = "Too large resource version: 9, current: 5";
    assert!(expired(410, "Expired", None, "too old resource version: 1 (2)"));
    assert!(expired(504, "Timeout", Some("ResourceVersionTooLarge"), "Timeout: not there yet"));
    assert!(expired(504, "Timeout", None, too_large));
    assert!(!expired(504, "Timeout", Some("Other"), "Timeout: not there yet"));
}
