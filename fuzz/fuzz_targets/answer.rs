//! Error responses. Any body gives an error with a code and a text. The code determines the classification of the
//! error.
//!
//! The input is the code as two bytes, a byte that marks a write, a byte for the content type and `Retry-After`, and
//! the body.

#![no_main]

mod plant;

use std::time::Duration;

use cluster::error::ApiError;
use cluster::fuzzing;
use http::StatusCode;
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;

fuzz_target!(|input: &[u8]| {
    let Some(([high, low, write, kind], body)) = input.split_first_chunk() else { return };
    let number = 400 + u16::from_be_bytes([*high, *low]) % 200;
    let code = StatusCode::from_u16(number).expect("a status code of three digits");
    let content_type =
        ["application/json", "", "text/plain; charset=utf-8", "application/yaml"][usize::from(kind % 4)];
    let wait = (kind & 64 != 0).then_some(Duration::from_secs(7));
    let error = fuzzing::error(write % 2 == 1, code, content_type, wait, body);
    assert_eq!(error, fuzzing::error(write % 2 == 1, code, content_type, wait, body));
    let ApiError::Status { code: reported, message, retry_after, .. } = &error else { panic!("{error:?}") };
    let mut text = error.to_string();
    if plant::planted("answer") && error.is_namespace_terminating() {
        text.clear();
    }
    assert_eq!(&text, message);
    if wait.is_some() {
        assert_eq!(*retry_after, wait);
    }
    // Only a body with a Status can change the code.
    if content_type.starts_with("text/") || serde_json::from_slice::<IgnoredAny>(body).is_err() {
        assert_eq!(*reported, number);
        assert!(text.len() <= 20_000, "{} bytes", text.len());
    }
    assert_eq!(error.code(), Some(*reported));
    assert!(!(error.is_not_found() && error.is_conflict()) && !error.is_refused());
    assert_eq!(error.is_transient(), *reported == 429 || *reported >= 500);
    assert_eq!(error.outcome_unknown(), *reported >= 500);
    assert!(error.has_same_cause(&error));
});
