use super::*;
use crate::error::ApiError;
use crate::watch;

fn machine() -> Machine {
    Machine::new(true, Duration::from_millis(7_500), Jitter::seeded(1))
}

fn watching(version: &str) -> State {
    State::Watching { resource_version: version.to_owned() }
}

fn listed(version: &str) -> Outcome {
    Outcome::Listed { resource_version: version.to_owned() }
}

fn progress(version: &str, bookmark: bool) -> Outcome {
    Outcome::Progress { resource_version: version.to_owned(), bookmark }
}

fn expired_after(seconds: u64) -> Outcome {
    Outcome::Expired { view_age: Some(Duration::from_secs(seconds)) }
}

fn silent() -> Outcome {
    Outcome::Silent { view_age: Some(Duration::from_mins(5)) }
}

fn failed() -> Outcome {
    Outcome::Failed { retry_after: None }
}

#[test]
fn waits_double_up_to_the_maximum_and_reset_after_progress() {
    let mut machine = machine();
    let mut expected = FIRST_WAIT;
    for _ in 0..40 {
        let wait = machine.step(failed());
        assert!(wait <= expected && wait >= expected / 2, "{wait:?} {expected:?}");
        expected = (expected * 2).min(Duration::from_millis(7_500));
    }
    machine.step(listed("5"));
    assert!(machine.step(failed()) > Duration::from_secs(3), "a list alone does not reset the wait");
    machine.step(progress("6", false));
    assert!(machine.step(failed()) <= FIRST_WAIT);
    assert_eq!(*machine.state(), watching("6"));
}

#[test]
fn server_without_streaming_lists_is_listed_by_pages() {
    let mut machine = machine();
    assert_eq!(*machine.state(), State::Streaming);
    assert_eq!(machine.step(Outcome::StreamingUnsupported), Duration::ZERO);
    assert_eq!(*machine.state(), State::Listing { next: String::new() });
    machine.step(Outcome::Page { next: "c".to_owned(), resource_version: "5".to_owned() });
    assert_eq!(*machine.state(), State::Listing { next: "c".to_owned() });
    machine.step(failed());
    assert_eq!(*machine.state(), State::Listing { next: "c".to_owned() }, "a failed page is requested again");
    machine.step(Outcome::Page { next: String::new(), resource_version: "5".to_owned() });
    assert_eq!(*machine.state(), watching("5"));
    machine.step(expired_after(600));
    assert_eq!(*machine.state(), State::Listing { next: String::new() }, "streaming is not tried again");
}

#[test]
fn expired_version_relists_at_once_and_waits_before_the_second_relist() {
    let mut machine = machine();
    machine.step(listed("5"));
    assert_eq!(machine.step(expired_after(0)), Duration::ZERO);
    machine.step(listed("5"));
    assert!(machine.step(expired_after(0)) > Duration::ZERO);
}

#[test]
fn watch_that_expires_after_each_event_is_relisted_with_growing_waits() {
    let mut machine = machine();
    let mut waits = Vec::new();
    for _ in 0..12 {
        machine.step(listed("5"));
        machine.step(progress("6", false));
        waits.push(machine.step(expired_after(1)));
    }
    assert_eq!(waits.first(), Some(&Duration::ZERO));
    assert!(waits.iter().skip(7).all(|wait| *wait >= LONGEST_RELIST_WAIT / 2), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= LONGEST_RELIST_WAIT), "{waits:?}");
    machine.step(listed("7"));
    assert_eq!(machine.step(expired_after(120)), Duration::ZERO, "a view that lasted resets the waits");
}

#[test]
fn expired_list_restarts_at_once_and_waits_before_the_second_restart() {
    let mut machine = machine();
    machine.step(Outcome::StreamingUnsupported);
    for retry in 0..3 {
        machine.step(Outcome::Page { next: "c".to_owned(), resource_version: "5".to_owned() });
        let wait = machine.step(Outcome::Expired { view_age: None });
        assert_eq!(wait.is_zero(), retry == 0);
        assert_eq!(*machine.state(), State::Listing { next: String::new() });
    }
}

#[test]
fn silent_watch_resumes_once_and_is_then_listed_again() {
    let mut machine = machine();
    machine.step(listed("5"));
    machine.step(progress("6", true));
    for _ in 0..3 {
        assert_eq!(machine.step(silent()), Duration::ZERO);
        assert_eq!(*machine.state(), watching("6"));
        machine.step(progress("6", false));
    }
    machine.step(silent());
    assert_eq!(machine.step(silent()), Duration::ZERO);
    assert_eq!(*machine.state(), State::Streaming);
    machine.step(listed("3"));
    assert_eq!(machine.step(silent()), Duration::ZERO);
    assert_eq!(*machine.state(), watching("3"));
}

#[test]
fn server_without_bookmarks_has_one_silent_watch() {
    let mut machine = machine();
    machine.step(listed("5"));
    assert_eq!(machine.max_silence(), Some(MAX_SILENCE));
    assert_eq!(machine.step(silent()), Duration::ZERO);
    assert_eq!(*machine.state(), State::Streaming, "the server may have lost the version");
    machine.step(listed("5"));
    assert_eq!((machine.max_silence(), machine.state()), (None, &watching("5")));
    machine.step(progress("6", false));
    assert_eq!(machine.max_silence(), None);
    machine.step(progress("7", true));
    assert_eq!(machine.max_silence(), Some(MAX_SILENCE), "a bookmark has arrived after all");
}

#[test]
fn watch_without_bookmarks_and_events_is_followed_by_a_list() {
    let mut machine = machine();
    let ended = |events| Outcome::Ended { lasted: Duration::from_mins(5), events };
    machine.step(listed("5"));
    machine.step(silent());
    machine.step(listed("5"));
    assert_eq!(machine.step(ended(1)), Duration::ZERO);
    assert_eq!(*machine.state(), watching("5"));
    assert_eq!(machine.step(ended(0)), Duration::ZERO);
    assert_eq!(*machine.state(), State::Streaming);
}

#[test]
fn watch_resumes_at_once_unless_it_was_very_short() {
    let mut machine = machine();
    machine.step(listed("5"));
    assert_eq!(machine.step(Outcome::Ended { lasted: Duration::from_mins(5), events: 0 }), Duration::ZERO);
    assert_eq!(machine.step(Outcome::Ended { lasted: Duration::ZERO, events: 1 }), Duration::ZERO);
    assert!(machine.step(Outcome::Ended { lasted: Duration::from_millis(999), events: 0 }) > Duration::ZERO);
    assert_eq!(*machine.state(), watching("5"));
}

#[test]
fn streaming_list_fails_when_it_ends_early() {
    let mut machine = machine();
    assert!(machine.step(Outcome::Ended { lasted: Duration::from_secs(9), events: 9 }) > Duration::ZERO);
    assert_eq!(*machine.state(), State::Streaming);
}

#[test]
fn retry_after_extends_the_wait_up_to_a_maximum() {
    let wait = |asked| machine().step(Outcome::Failed { retry_after: Some(Duration::from_secs(asked)) });
    assert_eq!(wait(20), Duration::from_secs(20));
    assert_eq!(wait(1_000_000), LONGEST_ASKED_WAIT);
}

#[test]
fn version_that_the_server_has_lost_is_recognized_by_cause_or_text() {
    let expired = |code, reason: &str, cause: Option<&str>, message: &str| {
        watch::expired(&ApiError::Status {
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
