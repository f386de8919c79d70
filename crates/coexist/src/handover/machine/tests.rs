use std::sync::Arc;

use super::*;
use crate::takeover::ObservedState;

/// One step of a scenario.
#[derive(Debug, Clone, Copy)]
enum Do {
    /// This replica becomes the leader, after a handover (`true`) or not.
    Lead(bool),
    /// A check of the guard's objects has this result.
    Found(Guard),
    /// The guard refuses a write.
    Refused,
    /// Another controller writes the status.
    Foreign,
    /// A status shows a write at the given server time, by this instance (`true`) or by another controller.
    Wrote(bool, i64),
    /// A sync finds the first count while the status contains the second.
    Sync(i32, i32),
    /// From now on, checks of the HPA fail (`true`) or succeed.
    ChecksFail(bool),
}

use Do::{ChecksFail, Foreign, Found, Lead, Refused, Sync, Wrote};
use State::{Contested, InCharge};

/// Runs a scenario in steps of 250 ms, with a period of 15 s. `end` and the times of `story` are in seconds. Returns
/// the time of each change of state, in milliseconds, with the new state.
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
                Refused => Input::Refused,
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
        // The loop is bounded, so that an endlessly repeated output does not hang the test.
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
    // A request of the built-in controller was in flight.
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
    // With a broken guard, the refused write is the proof.
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

const PERIOD: Duration = Duration::from_secs(15);

/// Returns a machine that takes charge by the guard, one second after `origin`.
fn in_charge(origin: Instant) -> Charge {
    let mut charge = Charge::new(Key::new("shop", "web"), PERIOD, Guard::Proven);
    charge.step(Input::Lead { hand_over: false }, origin);
    let output = charge.step(Input::Tick, origin + Duration::from_secs(1));
    assert_eq!(output, Some(Output::InCharge { proof: Proof::Guard, due: false }));
    charge
}

/// Returns a machine that becomes contested 100 s after `origin`, by a foreign write.
fn contested(origin: Instant) -> Charge {
    let mut charge = in_charge(origin);
    charge.step(Input::ForeignWrite, origin + Duration::from_secs(100));
    assert_eq!(charge.state(), Contested);
    charge
}

#[test]
fn second_lead_does_not_restart_the_silence() {
    let story = [(0, Lead(false)), (5, Lead(false)), (5, Found(Guard::Proven))];
    assert_eq!(run(&story, 60), [(5000, InCharge)]);
}

#[test]
fn guard_that_stays_broken_ends_no_charge() {
    let begin = [(0, Found(Guard::Broken)), (0, Lead(false)), (0, Refused)];
    let again = [&begin[..], &[(50, Found(Guard::Broken))]].concat();
    assert_eq!(run(&again, 100), [(1000, InCharge)]);
}

#[test]
fn relapse_is_forgotten_when_the_guard_breaks() {
    let story = [
        (0, Found(Guard::Proven)),
        (0, Lead(false)),
        (100, Foreign),
        (150, Found(Guard::Broken)),
        (160, Refused),
    ];
    let expected = [(1000, InCharge), (100_000, Contested), (130_000, InCharge)];
    let expected = [&expected[..], &[(150_000, Contested), (160_000, InCharge)]].concat();
    assert_eq!(run(&story, 200), expected);
}

#[test]
fn write_refused_during_the_charge_does_not_prove_a_guard_that_broke_later() {
    let story = [(0, Found(Guard::Proven)), (0, Lead(false)), (20, Refused), (50, Found(Guard::Broken))];
    assert_eq!(run(&story, 200), [(1000, InCharge), (50_000, Contested)]);
}

#[test]
fn foreign_write_after_a_handover_is_no_relapse() {
    let story = [(0, Wrote(true, 20)), (0, Wrote(false, 10)), (1, Lead(true)), (50, Foreign), (60, Refused)];
    assert_eq!(run(&story, 70), [(1000, InCharge), (50_000, Contested), (60_000, InCharge)]);
}

#[test]
fn older_status_does_not_hide_a_newer_own_write() {
    let story = [(0, Wrote(true, 20)), (0, Wrote(true, 5)), (0, Wrote(false, 10)), (1, Lead(true))];
    assert_eq!(run(&story, 20), [(1000, InCharge)]);
}

#[test]
fn foreign_write_restarts_the_search_for_an_unanswered_change() {
    let story = [
        (0, Lead(false)),
        (10, Sync(2, 2)),
        (25, Sync(3, 2)),
        (30, Foreign),
        (40, Sync(3, 2)),
        (55, Sync(3, 2)),
    ];
    assert_eq!(run(&story, 58), []);
}

#[test]
fn refused_write_ends_a_contest_without_a_check() {
    let story = [
        (0, Found(Guard::Proven)),
        (0, Lead(false)),
        (200, ChecksFail(true)),
        (200, Foreign),
        (210, Refused),
    ];
    assert_eq!(run(&story, 220), [(1000, InCharge), (200_000, Contested), (210_000, InCharge)]);
}

#[test]
fn settling_time_is_at_most_a_quarter_of_a_period() {
    let origin = Instant::now();
    let mut charge = Charge::new(Key::new("shop", "web"), Duration::from_secs(2), Guard::Proven);
    charge.step(Input::Lead { hand_over: false }, origin);
    assert_eq!(charge.next(), Some(origin + Duration::from_millis(500)));
}

#[test]
fn nothing_is_due_while_a_check_is_in_progress() {
    let origin = Instant::now();
    let mut charge = contested(origin);
    let quiet = origin + Duration::from_secs(130);
    assert_eq!(charge.step(Input::Tick, quiet), Some(Output::Check));
    assert_eq!((charge.next(), charge.step(Input::Tick, quiet)), (None, None));
    assert_eq!(charge.step(Input::Tick, quiet + PERIOD), None);
}

#[test]
fn foreign_write_found_by_a_check_keeps_the_hpa_contested() {
    let origin = Instant::now();
    let mut charge = contested(origin);
    let quiet = origin + Duration::from_secs(130);
    assert_eq!(charge.step(Input::Tick, quiet), Some(Output::Check));
    charge.step(Input::ForeignWrite, quiet);
    assert_eq!(charge.step(Input::Checked { success: true }, quiet), None);
    assert_eq!(charge.state(), Contested);
    assert_eq!(charge.next(), Some(quiet + 2 * PERIOD));
}

#[test]
fn failed_check_is_repeated_after_half_a_period() {
    let origin = Instant::now();
    let mut charge = contested(origin);
    let quiet = origin + Duration::from_secs(130);
    assert_eq!(charge.step(Input::Tick, quiet), Some(Output::Check));
    assert_eq!(charge.step(Input::Checked { success: false }, quiet), None);
    assert_eq!(charge.step(Input::Tick, quiet + PERIOD / 4), None);
    assert_eq!(charge.step(Input::Tick, quiet + PERIOD / 2), Some(Output::Check));
}

#[test]
fn check_that_ends_after_the_contest_has_no_effect() {
    let origin = Instant::now();
    let mut charge = contested(origin);
    let quiet = origin + Duration::from_secs(130);
    assert_eq!(charge.step(Input::Tick, quiet), Some(Output::Check));
    charge.step(Input::Refused, quiet);
    let output = charge.step(Input::Tick, quiet);
    assert_eq!(output, Some(Output::InCharge { proof: Proof::Refused, due: false }));
    assert_eq!(charge.step(Input::Checked { success: true }, quiet), None);
}

#[test]
fn hpa_is_due_at_once_if_a_sync_withheld_a_count_or_found_another_status() {
    for (withheld, found, due) in [(false, 2, false), (true, 2, true), (false, 3, true)] {
        let origin = Instant::now();
        let mut charge = Charge::new(Key::new("shop", "web"), PERIOD, Guard::Proven);
        charge.step(Input::Lead { hand_over: false }, origin);
        charge.step(Input::Concluded(SyncObservation { withheld, ..observation(found, 2) }), origin);
        let at = origin + Duration::from_secs(1);
        assert_eq!(charge.step(Input::Tick, at), Some(Output::InCharge { proof: Proof::Guard, due }));
        // After the next contest the HPA is not due, because a sync in charge withholds no count.
        charge.step(Input::Concluded(observation(3, 2)), at);
        charge.step(Input::ForeignWrite, at);
        let quiet = at + 2 * PERIOD;
        assert_eq!(charge.step(Input::Tick, quiet), Some(Output::Check));
        let output = charge.step(Input::Checked { success: true }, quiet);
        assert_eq!(output, Some(Output::InCharge { proof: Proof::Guard, due: false }));
    }
}
