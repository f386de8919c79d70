mod steps;

use std::sync::Arc;

use super::*;
use crate::takeover::machine::{ObservedState, SyncObservation};

/// One step of a scenario.
#[derive(Debug, Clone, Copy)]
enum Do {
    /// This replica leads, after a handover or not.
    Lead(bool),
    /// A check of the guard's objects.
    Found(Guard),
    /// The guard refuses a write.
    Refused,
    /// A standby reports that the guard refused a write at the given second.
    RefusedAt(u64),
    /// Another controller writes the status.
    Foreign,
    /// A status shows a write at the given server time, by this instance (`true`) or by another controller.
    Wrote(bool, i64),
    /// A sync finds the first count while the status contains the second.
    Sync(i32, i32),
    /// Whether checks of the HPA fail from now on.
    ChecksFail(bool),
}

use Do::{ChecksFail, Foreign, Found, Lead, Refused, RefusedAt, Sync, Wrote};
use State::{Contested, InCharge};

/// Runs a scenario in steps of 250 ms, with a period of 15 s. Returns each change of state, in milliseconds.
fn run(story: &[(u64, Do)], end: u64) -> Vec<(u64, State)> {
    let origin = Instant::now();
    let key = Key::new("shop", "web");
    let mut charge = Charge::new(key, Duration::from_secs(15), Guard::Unknown);
    let (mut changes, mut checks_fail) = (Vec::new(), false);
    let mut state = charge.state();
    for at in (0..=end * 1000).step_by(250) {
        let now = origin + Duration::from_millis(at);
        for (_, step) in story.iter().filter(|(second, _)| second * 1000 == at) {
            let input = match *step {
                Lead(hand_over) => Input::Lead { hand_over },
                Found(guard) => Input::Guard(guard),
                Refused => Input::Refused { at: now },
                RefusedAt(second) => Input::Refused { at: origin + Duration::from_secs(second) },
                Foreign => Input::ForeignWrite,
                Wrote(is_own, at) => Input::Wrote { is_own, at: Timestamp::from_second(at).unwrap() },
                Sync(found, stored) => Input::Concluded(observation(found, stored)),
                ChecksFail(fail) => {
                    checks_fail = fail;
                    continue;
                }
            };
            charge.step(input, now);
            if charge.state() != state {
                state = charge.state();
                changes.push((at, state));
            }
        }
        // Bounded, so that an endlessly repeated output does not hang the test.
        for _ in 0..4 {
            if charge.step(Input::Tick, now) == Some(Output::Check) {
                charge.step(Input::Checked { success: !checks_fail }, now);
            }
        }
        if charge.state() != state {
            state = charge.state();
            changes.push((at, state));
        }
    }
    changes
}

fn observation(found: i32, stored: i32) -> SyncObservation {
    let facts = |replicas| ObservedState { replicas, metrics: Vec::new() };
    SyncObservation {
        spec: Arc::new(serde_json::from_value(serde_json::json!({"maxReplicas": 3})).unwrap()),
        found: facts(found),
        stored: facts(stored),
        withheld: false,
        untouched: false,
    }
}

#[test]
fn proven_guard_puts_in_charge_after_the_settling_time() {
    assert_eq!(run(&[(0, Found(Guard::Proven)), (5, Lead(false))], 60), [(6000, InCharge)]);
    assert_eq!(run(&[(0, Lead(false)), (5, Found(Guard::Proven))], 60), [(5000, InCharge)]);
    // A request of the built-in controller that was in flight.
    let late = [(0, Found(Guard::Proven)), (5, Lead(false)), (5, Foreign)];
    assert_eq!(run(&late, 60), [(6000, InCharge)]);
}

#[test]
fn standby_is_never_in_charge() {
    let story = [(0, Found(Guard::Proven)), (1, Refused), (2, Foreign), (3, Sync(2, 1)), (20, Sync(3, 1))];
    assert_eq!(run(&story, 400), []);
}

#[test]
fn refused_write_proves_the_guard() {
    assert_eq!(run(&[(0, Lead(false)), (9, Refused)], 60), [(9000, InCharge)]);
    assert_eq!(run(&[(0, Found(Guard::Broken)), (0, Lead(false)), (0, Refused)], 60), [(1000, InCharge)]);
    // The write was refused before the foreign write.
    assert_eq!(run(&[(0, Lead(false)), (0, Refused), (0, Foreign)], 60), []);
}

#[test]
fn reported_refusal_proves_the_guard_unless_a_foreign_write_followed_it() {
    assert_eq!(run(&[(5, Lead(false)), (9, RefusedAt(8))], 60), [(9000, InCharge)]);
    assert_eq!(run(&[(5, Lead(false)), (8, Foreign), (9, RefusedAt(7))], 60), []);
    assert_eq!(run(&[(5, Lead(false)), (7, Foreign), (9, RefusedAt(8))], 60), [(9000, InCharge)]);
    // The write was refused before this replica led.
    assert_eq!(run(&[(9, Lead(false)), (9, RefusedAt(8))], 60), [(10_000, InCharge)]);
}

#[test]
fn without_a_guard_an_unanswered_change_is_the_proof() {
    let story = [(0, Lead(false)), (10, Sync(2, 2)), (25, Sync(3, 2)), (40, Sync(3, 2)), (55, Sync(3, 2))];
    assert_eq!(run(&story, 120), [(55_000, InCharge)]);
    let answered = [(0, Lead(false)), (10, Sync(2, 2)), (25, Sync(3, 2)), (30, Foreign), (40, Sync(3, 3))];
    assert_eq!(run(&answered, 300), []);
}

#[test]
fn handover_continues_the_charge_of_the_last_leader() {
    let wrote = |own, foreign| [(0, Wrote(true, own)), (0, Wrote(false, foreign)), (1, Lead(true))];
    assert_eq!(run(&wrote(20, 10), 60), [(1000, InCharge)]);
    assert_eq!(run(&wrote(10, 20), 60), []);
    assert_eq!(run(&wrote(10, 10), 60), []);
    assert_eq!(run(&[(0, Wrote(true, 20)), (1, Lead(false))], 60), []);
}

#[test]
fn foreign_write_stops_writes_for_two_quiet_periods_or_to_a_refusal() {
    let begin = [(0, Found(Guard::Proven)), (0, Lead(false))];
    let quiet = [&begin[..], &[(200, Foreign)]].concat();
    assert_eq!(run(&quiet, 300), [(1000, InCharge), (200_000, Contested), (230_000, InCharge)]);
    let again = [&quiet[..], &[(220, Foreign)]].concat();
    assert_eq!(run(&again, 300), [(1000, InCharge), (200_000, Contested), (250_000, InCharge)]);
    let refused = [&quiet[..], &[(210, Refused)]].concat();
    assert_eq!(run(&refused, 300), [(1000, InCharge), (200_000, Contested), (210_000, InCharge)]);
}

#[test]
fn refused_write_after_a_relapse_counts_at_the_end_of_the_quiet_time() {
    let begin = [(0, Found(Guard::Proven)), (0, Lead(false)), (100, Foreign)];
    let expected = [(1000, InCharge), (100_000, Contested), (130_000, InCharge)];
    assert_eq!(run(&begin, 300), expected);
    let refused = [&begin[..], &[(105, Refused), (120, Refused)]].concat();
    assert_eq!(run(&refused, 300), expected);
    // Without a proven guard the refused write is the proof.
    let broken = [&begin[..], &[(101, Found(Guard::Broken))]].concat();
    assert_eq!(run(&broken, 300), expected[..2]);
    let refused = [&broken[..], &[(105, Refused)]].concat();
    assert_eq!(run(&refused, 300), expected);
}

#[test]
fn broken_guard_ends_the_charge_unless_no_other_controller_answers() {
    let story = [(0, Found(Guard::Proven)), (0, Lead(false)), (50, Found(Guard::Broken))];
    assert_eq!(run(&story, 300), [(1000, InCharge), (50_000, Contested)]);
    let mended = [&story[..], &[(60, Found(Guard::Proven))]].concat();
    assert_eq!(run(&mended, 300), [(1000, InCharge), (50_000, Contested), (80_000, InCharge)]);
    let refused = [&story[..], &[(60, Refused)]].concat();
    assert_eq!(run(&refused, 300), [(1000, InCharge), (50_000, Contested), (60_000, InCharge)]);
    let unknown = [(0, Found(Guard::Proven)), (0, Lead(false)), (50, Found(Guard::Unknown))];
    assert_eq!(run(&unknown, 300), [(1000, InCharge)]);
    let unanswered = [(0, Lead(false)), (10, Sync(2, 2)), (25, Sync(3, 2)), (70, Found(Guard::Broken))];
    assert_eq!(run(&unanswered, 300), [(55_000, InCharge)]);
}

#[test]
fn failed_check_keeps_an_hpa_contested() {
    let begin = [(0, Found(Guard::Proven)), (0, Lead(false)), (200, ChecksFail(true)), (200, Foreign)];
    assert_eq!(run(&begin, 400), [(1000, InCharge), (200_000, Contested)]);
    let mended = [&begin[..], &[(260, ChecksFail(false))]].concat();
    assert_eq!(run(&mended, 400), [(1000, InCharge), (200_000, Contested), (260_000, InCharge)]);
}
