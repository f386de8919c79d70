//! Single steps, and stories in which one input must not have an effect.

use super::*;

const PERIOD: Duration = Duration::from_secs(15);

/// A machine that takes charge by the guard, one second after `origin`.
fn in_charge(origin: Instant) -> Charge {
    let mut charge = Charge::new(Key::new("shop", "web"), PERIOD, Guard::Proven);
    charge.step(Input::Lead { hand_over: false }, origin);
    let output = charge.step(Input::Tick, origin + Duration::from_secs(1));
    assert_eq!(output, Some(Output::InCharge { proof: Proof::Guard, due: false }));
    charge
}

/// A machine in charge that a foreign write contests 100 s after `origin`.
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
    charge.step(Input::Refused { at: quiet }, quiet);
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
        // The next contest does not make the HPA due again, and a sync in charge does not withhold a count.
        charge.step(Input::Concluded(observation(3, 2)), at);
        charge.step(Input::ForeignWrite, at);
        let quiet = at + 2 * PERIOD;
        assert_eq!(charge.step(Input::Tick, quiet), Some(Output::Check));
        let output = charge.step(Input::Checked { success: true }, quiet);
        assert_eq!(output, Some(Output::InCharge { proof: Proof::Guard, due: false }));
    }
}
