use super::*;

/// One step of a scenario.
#[derive(Debug, Clone, Copy)]
enum Do {
    /// The watch has delivered its first list.
    Start,
    /// A sync of this HPA finds the first count while the status contains the second.
    Sync(&'static str, i32, i32),
    /// A sync like [`Do::Sync`] that also withholds a count.
    Withheld(&'static str, i32, i32),
    /// A sync of an HPA without a status finds this count.
    New(&'static str, i32),
    /// Another controller writes the status of this HPA.
    Foreign(&'static str),
    /// This HPA is deleted.
    Delete(&'static str),
    /// A status shows a write at the given server time, by Concertina (`true`) or by another controller.
    Wrote(bool, i64),
    /// This replica becomes the leader after another replica.
    HandOver,
    /// From now on, checks of HPAs fail (`true`) or succeed.
    ChecksFail(bool),
}

use Do::{ChecksFail, Delete, Foreign, HandOver, New, Start, Sync, Withheld, Wrote};

/// Runs a scenario in steps of 1 s, with a period of 15 s. Returns each change of state, with its time in seconds.
fn run(story: &[(u64, Do)], end: u64) -> Vec<(u64, State)> {
    let origin = Instant::now();
    let mut machine = Machine::new(Duration::from_secs(15));
    let (mut changes, mut checks_fail) = (Vec::new(), false);
    let mut state = machine.state();
    for second in 0..=end {
        let now = origin + Duration::from_secs(second);
        for (_, step) in story.iter().filter(|(at, _)| *at == second) {
            match *step {
                Start => machine.step(Input::Start, now),
                Sync(hpa, found, stored) => {
                    machine.step(Input::Concluded(key(hpa), turn(found, stored)), now)
                }
                Withheld(hpa, found, stored) => {
                    let observation = SyncObservation { withheld: true, ..turn(found, stored) };
                    machine.step(Input::Concluded(key(hpa), observation), now)
                }
                New(hpa, found) => {
                    let observation = SyncObservation { untouched: true, ..turn(found, 0) };
                    machine.step(Input::Concluded(key(hpa), observation), now)
                }
                Foreign(hpa) => machine.step(Input::ForeignWrite(key(hpa)), now),
                Delete(hpa) => machine.step(Input::Deleted(key(hpa)), now),
                Wrote(is_own, at) => {
                    machine.step(Input::Wrote { is_own, at: Timestamp::from_second(at).unwrap() }, now)
                }
                HandOver => machine.step(Input::HandOver, now),
                ChecksFail(fail) => {
                    checks_fail = fail;
                    None
                }
            };
            note(&mut changes, &mut state, &machine, second);
        }
        loop {
            match machine.step(Input::Tick, now) {
                None => break,
                Some(Output::Check(key)) => {
                    machine.step(Input::Checked { key, success: !checks_fail }, now);
                }
                Some(Output::Quiet | Output::Act(_)) => {}
            }
            note(&mut changes, &mut state, &machine, second);
        }
        note(&mut changes, &mut state, &machine, second);
    }
    changes
}

fn note(changes: &mut Vec<(u64, State)>, state: &mut State, machine: &Machine, second: u64) {
    if machine.state() != *state {
        *state = machine.state();
        changes.push((second, *state));
    }
}

fn key(name: &str) -> Key {
    Key::new("shop", name)
}

fn turn(found: i32, stored: i32) -> SyncObservation {
    let facts = |replicas| ObservedState { replicas, metrics: Vec::new() };
    let spec = serde_json::from_value(serde_json::json!({
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 9,
    }));
    SyncObservation {
        spec: spec.unwrap(),
        found: facts(found),
        stored: facts(stored),
        withheld: false,
        untouched: false,
    }
}

/// Returns syncs of an HPA, one period apart. `counts` contains the found and the stored count of each sync.
fn syncs(hpa: &'static str, first: u64, counts: &[(i32, i32)]) -> Vec<(u64, Do)> {
    (0..).zip(counts).map(|(turn, (found, stored))| (first + turn * 15, Sync(hpa, *found, *stored))).collect()
}

fn story(parts: &[&[(u64, Do)]]) -> Vec<(u64, Do)> {
    parts.concat()
}

const ACTING: State = State::Acting;
const HOLDING: State = State::Holding;
const OBSERVING: State = State::Observing;

#[test]
fn steady_cluster_is_observed_without_end() {
    let steady = syncs("web", 1, &[(3, 3); 100]);
    assert_eq!(run(&story(&[&[(0, Start)], &steady]), 1500), []);
}

#[test]
fn first_change_in_a_steady_cluster_waits_for_the_other_controller() {
    // The HPA is steady for ten periods. Then it changes, and the other controller responds nine seconds later.
    let before = syncs("web", 1, &[(3, 3); 10]);
    let after = syncs("web", 151, &[(4, 3), (4, 4), (4, 4), (4, 4), (4, 4)]);
    let all = story(&[&[(0, Start)], &before, &after, &[(160, Foreign("web"))]]);
    assert_eq!(run(&all, 400), [(160, HOLDING), (190, OBSERVING)]);
}

#[test]
fn acting_starts_when_a_change_stays_unanswered_for_two_periods() {
    let all = story(&[&[(0, Start)], &syncs("web", 1, &[(3, 3), (3, 3), (3, 3), (4, 3), (4, 3), (4, 3)])]);
    assert_eq!(run(&all, 200), [(46 + 30, ACTING)]);
}

#[test]
fn acting_starts_two_periods_after_the_last_write_of_a_stopped_loop() {
    // The other controller writes every period up to second 64. Concertina syncs 10 s later, each time with a higher
    // count.
    let loop_writes: Vec<_> = (0..5).map(|turn| (4 + turn * 15, Foreign("web"))).collect();
    let counts = [(2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 5), (8, 5)];
    let all = story(&[&[(0, Start)], &loop_writes, &syncs("web", 14, &counts)]);
    assert_eq!(run(&all, 120), [(4, HOLDING), (64 + 30, OBSERVING), (64 + 30, ACTING)]);
}

#[test]
fn one_changing_hpa_of_many_is_enough_to_act() {
    let steady: Vec<_> = ["a", "b", "c"].iter().flat_map(|hpa| syncs(hpa, 3, &[(3, 3); 20])).collect();
    let moving = syncs("web", 1, &[(3, 3), (5, 3), (6, 3), (7, 3)]);
    let all = story(&[&[(0, Start)], &steady, &moving]);
    assert_eq!(run(&all, 300), [(16 + 30, ACTING)]);
}

#[test]
fn change_that_flips_back_to_the_stored_status_proves_nothing() {
    let flips: Vec<_> = (0..60).map(|turn| if turn % 2 == 0 { (3, 3) } else { (4, 3) }).collect();
    let all = story(&[&[(0, Start)], &syncs("web", 1, &flips)]);
    assert_eq!(run(&all, 900), []);
}

#[test]
fn deleted_hpa_proves_nothing() {
    let all = story(&[&[(0, Start)], &syncs("web", 1, &[(3, 3), (4, 3)]), &[(20, Delete("web"))]]);
    assert_eq!(run(&all, 900), []);
}

#[test]
fn new_hpa_without_a_status_write_counts_as_a_change() {
    let all = [(0, Start), (50, New("web", 3)), (65, New("web", 3)), (80, New("web", 3))];
    assert_eq!(run(&all, 100), [(80, ACTING)]);
}

#[test]
fn status_wrong_from_the_start_is_a_proof_after_twenty_periods() {
    let all = story(&[&[(0, Start)], &syncs("web", 10, &[(4, 3); 30])]);
    assert_eq!(run(&all, 400), [(10 + 300, ACTING)]);
}

#[test]
fn withheld_count_counts_like_a_wrong_status() {
    let withheld: Vec<_> = (0..30).map(|turn| (10 + turn * 15, Withheld("web", 3, 3))).collect();
    assert_eq!(run(&story(&[&[(0, Start)], &withheld]), 400), [(310, ACTING)]);
}

#[test]
fn foreign_write_after_a_difference_proof_disables_differences() {
    let all = story(&[
        &[(0, Start)],
        &syncs("web", 10, &[(4, 3); 21]),
        &[(311, Foreign("other"))],
        &syncs("web", 320, &[(4, 3); 100]),
    ]);
    // The premature start has doubled the quiet time to 60 s.
    assert_eq!(run(&all, 1800), [(310, ACTING), (311, HOLDING), (371, OBSERVING)]);
}

#[test]
fn foreign_write_stops_acting_at_once() {
    let first = syncs("web", 1, &[(3, 3), (4, 3), (4, 3), (4, 3)]);
    let all = story(&[&[(0, Start)], &first, &[(500, Foreign("web"))]]);
    assert_eq!(run(&all, 600), [(46, ACTING), (500, HOLDING), (530, OBSERVING)]);
}

#[test]
fn quiet_time_doubles_after_each_early_start_up_to_sixteen_periods() {
    // The other controller has a period of 100 s, and the HPA changes with each sync.
    let foreign: Vec<_> = (0..20).map(|turn| (100 + turn * 100, Foreign("web"))).collect();
    let counts: Vec<_> = (0..200).map(|turn| (turn, -1)).collect();
    let all = story(&[&[(0, Start)], &foreign, &syncs("web", 7, &counts)]);
    let starts: Vec<_> = run(&all, 2000).into_iter().filter(|(_, state)| *state == ACTING).collect();
    // Quiet times of two and four periods are too short. A quiet time of eight periods is sufficient.
    assert_eq!(starts, [(52, ACTING), (160, ACTING)]);
}

#[test]
fn hpa_that_an_active_loop_ignores_proves_nothing() {
    // The other controller cannot write `broken`, which changes with each sync. It writes `web`, which then stays
    // steady.
    let counts: Vec<_> = (0..60).map(|turn| (turn, -1)).collect();
    let broken = syncs("broken", 5, &counts);
    let web: Vec<_> = (0..10).map(|turn| (10 + turn * 15, Foreign("web"))).collect();
    let all = story(&[&[(0, Start)], &broken, &web]);
    // The other controller writes `web` within the quiet time. `broken` stays unanswered for the whole quiet time.
    assert_eq!(run(&all, 800), [(10, HOLDING), (145 + 30, OBSERVING)]);
}

#[test]
fn hpa_that_an_active_loop_ignored_proves_nothing_later() {
    // A change of the metric corrects the status of `broken` once. The other controller also ignores the next change of
    // `broken`.
    let broken = syncs("broken", 5, &[(3, 3), (4, 3), (4, 3), (4, 3), (4, 3), (4, 3), (3, 3), (5, 3)]);
    let later = syncs("broken", 125, &[(5, 3); 18]);
    let web: Vec<_> = (0..6).map(|turn| (10 + turn * 15, Foreign("web"))).collect();
    let all = story(&[&[(0, Start)], &broken, &later, &web]);
    assert_eq!(run(&all, 380), [(10, HOLDING), (85 + 30, OBSERVING)]);
}

#[test]
fn foreign_write_restarts_the_time_of_a_difference() {
    let web = syncs("web", 1, &[(4, 3); 40]);
    let all = story(&[&[(0, Start)], &web, &[(200, Foreign("api"))]]);
    assert_eq!(run(&all, 600), [(200, HOLDING), (230, OBSERVING), (500, ACTING)]);
}

#[test]
fn conclusions_while_acting_are_no_part_of_a_later_change() {
    let first = syncs("web", 1, &[(3, 3), (3, 3), (3, 3), (4, 3), (4, 3), (4, 3), (5, 5)]);
    let later = syncs("web", 106, &[(4, 3); 12]);
    let all = story(&[&[(0, Start)], &first, &[(100, Foreign("web"))], &later]);
    assert_eq!(run(&all, 290), [(76, ACTING), (100, HOLDING), (160, OBSERVING)]);
}

#[test]
fn quiet_time_is_sixteen_periods_at_most() {
    let (mut machine, mut now) = (Machine::new(Duration::from_secs(15)), Instant::now());
    machine.step(Input::Start, now);
    let mut quiet = Vec::new();
    for round in 0..6 {
        for found in [0, 1] {
            machine.step(Input::Concluded(key("web"), turn(10 * round + found, -1)), now);
        }
        now += Duration::from_hours(1);
        while let Some(output) = machine.step(Input::Tick, now) {
            if let Output::Check(key) = output {
                machine.step(Input::Checked { key, success: true }, now);
            }
        }
        assert_eq!(machine.state(), ACTING, "{round}");
        machine.step(Input::ForeignWrite(key("web")), now);
        quiet.push(machine.quiet().as_secs() / 15);
    }
    assert_eq!(quiet, [4, 8, 16, 16, 16, 16]);
}

#[test]
fn changed_spec_with_a_withheld_count_is_a_change() {
    let (mut machine, start) = (Machine::new(Duration::from_secs(15)), Instant::now());
    machine.step(Input::Start, start);
    machine.step(Input::Concluded(key("web"), turn(3, 3)), start);
    let steady = turn(3, 3);
    let spec = Spec { max_replicas: 2, ..(*steady.spec).clone() };
    let changed = SyncObservation { spec: Arc::new(spec), withheld: true, ..steady };
    let at = start + Duration::from_secs(15);
    machine.step(Input::Concluded(key("web"), changed), at);
    assert_eq!(machine.next(), Some(start + Duration::from_secs(30)));
    assert_eq!(machine.step(Input::Tick, start + Duration::from_secs(30)), None);
    assert_eq!(machine.next(), Some(at + Duration::from_secs(30)));
}

#[test]
fn nothing_counts_before_the_first_list() {
    let all = story(&[&syncs("web", 1, &[(3, 3), (4, 3), (5, 3), (6, 3), (7, 3)]), &[(40, Start)]]);
    assert_eq!(run(&all, 100), [(70, ACTING)]);
}

#[test]
fn handover_continues_in_the_state_of_the_other_replica() {
    type Case<'a> = (&'a str, &'a [(u64, Do)], &'a [(u64, State)]);
    let cases: [Case<'_>; 6] = [
        ("it acted", &[(1, Wrote(false, 100)), (1, Wrote(true, 101))], &[(2, ACTING)]),
        ("it held", &[(1, Wrote(true, 100)), (1, Wrote(false, 101))], &[]),
        ("in doubt", &[(1, Wrote(true, 100)), (1, Wrote(false, 100))], &[]),
        ("there was never another", &[(1, Wrote(true, 100))], &[(2, ACTING)]),
        ("no controller ever wrote", &[], &[]),
        ("it held", &[(1, Wrote(true, 100)), (1, Foreign("web"))], &[(1, HOLDING), (31, OBSERVING)]),
    ];
    for (what, steps, expected) in cases {
        let all = story(&[&[(0, Start)], steps, &[(2, HandOver)]]);
        assert_eq!(run(&all, 60), expected, "{what}");
    }
}

#[test]
fn foreign_write_after_a_handover_keeps_the_quiet_time() {
    let steps = [(0, Start), (1, Wrote(true, 100)), (2, HandOver), (9, Foreign("web"))];
    assert_eq!(run(&steps, 60), [(2, ACTING), (9, HOLDING), (39, OBSERVING)]);
}

#[test]
fn acting_does_not_start_while_checks_fail() {
    let moving: Vec<_> = (0..30).map(|turn| (turn, -1)).collect();
    let all = story(&[
        &[(0, ChecksFail(true)), (0, Start)],
        &syncs("web", 1, &moving),
        &[(200, ChecksFail(false))],
    ]);
    let changes = run(&all, 300);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!((200..=208).contains(&changes[0].0), "{changes:?}");
}

#[test]
fn withheld_counts_are_due_when_acting_starts() {
    let origin = Instant::now();
    let at = |second| origin + Duration::from_secs(second);
    let mut machine = Machine::new(Duration::from_secs(15));
    machine.step(Input::Start, at(0));
    for (second, hpa, found) in [(1, "right", 3), (2, "wrong", 4), (16, "right", 3), (17, "wrong", 5)] {
        machine.step(Input::Concluded(key(hpa), turn(found, 3)), at(second));
    }
    assert_eq!(machine.step(Input::Tick, at(47)), Some(Output::Check(key("wrong"))));
    let output = machine.step(Input::Checked { key: key("wrong"), success: true }, at(47)).unwrap();
    assert_eq!(
        output,
        Output::Act(Activation { proof: Proof::Change(key("wrong")), due: vec![key("wrong")] })
    );
}
