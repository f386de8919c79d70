use super::*;

/// One step of a story, at its second.
#[derive(Debug, Clone, Copy)]
enum Do {
    /// The watch has shown everything.
    Begin,
    /// A sync of this HPA finds this count where the status has the other one.
    Sync(&'static str, i32, i32),
    /// The same, and another count is withheld.
    Withheld(&'static str, i32, i32),
    /// The same for an HPA without any status.
    New(&'static str, i32),
    /// Another controller writes the status of this HPA.
    Foreign(&'static str),
    /// This HPA is deleted.
    Delete(&'static str),
    /// A status write of ours, or of another, is seen at this time of the server.
    Wrote(bool, i64),
    /// Another replica hands over.
    HandOver,
    /// From now on looks at an HPA fail, or do not.
    LooksFail(bool),
}

use Do::{Begin, Delete, Foreign, HandOver, LooksFail, New, Sync, Withheld, Wrote};

/// Plays a story with a period of 15 s, moving on second by second, and gives each change of state.
fn play(story: &[(u64, Do)], end: u64) -> Vec<(u64, State)> {
    let origin = Instant::now();
    let mut machine = Machine::new(Duration::from_secs(15));
    let (mut changes, mut looks_fail) = (Vec::new(), false);
    let mut state = machine.state();
    for second in 0..=end {
        let now = origin + Duration::from_secs(second);
        for (_, step) in story.iter().filter(|(at, _)| *at == second) {
            match *step {
                Begin => machine.begin(now),
                Sync(hpa, found, stored) => machine.concluded(&key(hpa), turn(found, stored), now),
                Withheld(hpa, found, stored) => {
                    machine.concluded(&key(hpa), Turn { withheld: true, ..turn(found, stored) }, now);
                }
                New(hpa, found) => {
                    machine.concluded(&key(hpa), Turn { untouched: true, ..turn(found, 0) }, now);
                }
                Foreign(hpa) => machine.foreign_write(&key(hpa), now),
                Delete(hpa) => machine.forget(&key(hpa)),
                Wrote(is_own, at) => machine.wrote(is_own, Timestamp::from_second(at).unwrap()),
                HandOver => {
                    machine.hand_over(now);
                }
                LooksFail(fail) => looks_fail = fail,
            }
            note(&mut changes, &mut state, &machine, second);
        }
        loop {
            match machine.tick(now) {
                Step::Wait => break,
                Step::Quiet => {}
                Step::Look(key) => {
                    machine.looked(&key, !looks_fail, now);
                }
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

fn turn(found: i32, stored: i32) -> Turn {
    let facts = |replicas| Facts { replicas, metrics: Vec::new() };
    let spec = serde_json::from_value(serde_json::json!({
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 9,
    }));
    Turn {
        spec: spec.unwrap(),
        found: facts(found),
        stored: facts(stored),
        withheld: false,
        untouched: false,
    }
}

/// Syncs of an HPA, one period apart, that find and have stored these.
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
fn a_steady_cluster_is_observed_for_as_long_as_nothing_changes() {
    let steady = syncs("web", 1, &[(3, 3); 100]);
    assert_eq!(play(&story(&[&[(0, Begin)], &steady]), 1500), []);
}

#[test]
fn the_first_change_in_a_steady_cluster_is_left_to_the_other_controller() {
    // Steady for ten periods, then it moves, and the loop answers nine seconds later.
    let before = syncs("web", 1, &[(3, 3); 10]);
    let after = syncs("web", 151, &[(4, 3), (4, 4), (4, 4), (4, 4), (4, 4)]);
    let all = story(&[&[(0, Begin)], &before, &after, &[(160, Foreign("web"))]]);
    assert_eq!(play(&all, 400), [(160, HOLDING), (190, OBSERVING)]);
}

#[test]
fn a_change_in_a_steady_cluster_that_nobody_answers_for_two_periods_proves_that_nobody_is_there() {
    let all = story(&[&[(0, Begin)], &syncs("web", 1, &[(3, 3), (3, 3), (3, 3), (4, 3), (4, 3), (4, 3)])]);
    assert_eq!(play(&all, 200), [(46 + 30, ACTING)]);
}

#[test]
fn a_loop_that_is_switched_off_while_all_changes_is_followed_two_periods_after_its_last_write() {
    // It writes every period up to second 64; the syncs of this controller come 10 s later, and find more each time.
    let loop_writes: Vec<_> = (0..5).map(|turn| (4 + turn * 15, Foreign("web"))).collect();
    let counts = [(2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 5), (8, 5)];
    let all = story(&[&[(0, Begin)], &loop_writes, &syncs("web", 14, &counts)]);
    assert_eq!(play(&all, 120), [(4, HOLDING), (64 + 30, OBSERVING), (64 + 30, ACTING)]);
}

#[test]
fn of_many_hpas_one_that_changes_is_enough() {
    let steady: Vec<_> = ["a", "b", "c"].iter().flat_map(|hpa| syncs(hpa, 3, &[(3, 3); 20])).collect();
    let moving = syncs("web", 1, &[(3, 3), (5, 3), (6, 3), (7, 3)]);
    let all = story(&[&[(0, Begin)], &steady, &moving]);
    assert_eq!(play(&all, 300), [(16 + 30, ACTING)]);
}

#[test]
fn what_flips_back_to_what_is_stored_needs_no_answer() {
    let flips: Vec<_> = (0..60).map(|turn| if turn % 2 == 0 { (3, 3) } else { (4, 3) }).collect();
    let all = story(&[&[(0, Begin)], &syncs("web", 1, &flips)]);
    assert_eq!(play(&all, 900), []);
}

#[test]
fn an_hpa_that_is_deleted_proves_nothing() {
    let all = story(&[&[(0, Begin)], &syncs("web", 1, &[(3, 3), (4, 3)]), &[(20, Delete("web"))]]);
    assert_eq!(play(&all, 900), []);
}

#[test]
fn a_new_hpa_whose_status_nobody_writes_is_a_change() {
    let all = [(0, Begin), (50, New("web", 3)), (65, New("web", 3)), (80, New("web", 3))];
    assert_eq!(play(&all, 100), [(80, ACTING)]);
}

#[test]
fn a_status_that_is_wrong_from_the_start_proves_it_after_a_long_time_only() {
    let all = story(&[&[(0, Begin)], &syncs("web", 10, &[(4, 3); 30])]);
    assert_eq!(play(&all, 400), [(10 + 300, ACTING)]);
}

#[test]
fn a_count_that_is_withheld_counts_like_a_wrong_status() {
    let withheld: Vec<_> = (0..30).map(|turn| (10 + turn * 15, Withheld("web", 3, 3))).collect();
    assert_eq!(play(&story(&[&[(0, Begin)], &withheld]), 400), [(310, ACTING)]);
}

#[test]
fn an_answer_after_a_wrong_status_was_taken_for_a_proof_makes_that_no_proof_any_more() {
    let all = story(&[
        &[(0, Begin)],
        &syncs("web", 10, &[(4, 3); 21]),
        &[(311, Foreign("other"))],
        &syncs("web", 320, &[(4, 3); 100]),
    ]);
    // Twice the quiet that was asked for before.
    assert_eq!(play(&all, 1800), [(310, ACTING), (311, HOLDING), (371, OBSERVING)]);
}

#[test]
fn a_foreign_write_ends_acting_at_once() {
    let begin = syncs("web", 1, &[(3, 3), (4, 3), (4, 3), (4, 3)]);
    let all = story(&[&[(0, Begin)], &begin, &[(500, Foreign("web"))]]);
    assert_eq!(play(&all, 600), [(46, ACTING), (500, HOLDING), (530, OBSERVING)]);
}

#[test]
fn who_began_too_early_asks_for_twice_the_quiet_each_time_up_to_sixteen_periods() {
    // Another loop with a period of 100 s, and an HPA that changes all the time.
    let foreign: Vec<_> = (0..20).map(|turn| (100 + turn * 100, Foreign("web"))).collect();
    let counts: Vec<_> = (0..200).map(|turn| (turn, -1)).collect();
    let all = story(&[&[(0, Begin)], &foreign, &syncs("web", 7, &counts)]);
    let began: Vec<_> = play(&all, 2000).into_iter().filter(|(_, state)| *state == ACTING).collect();
    // Quiet of two and of four periods is too short for it, eight are enough.
    assert_eq!(began, [(52, ACTING), (160, ACTING)]);
}

#[test]
fn an_hpa_that_a_working_loop_leaves_alone_proves_nothing() {
    // The loop cannot write `broken`, which changes all the time; it writes `web`, and then that one is steady.
    let counts: Vec<_> = (0..60).map(|turn| (turn, -1)).collect();
    let broken = syncs("broken", 5, &counts);
    let web: Vec<_> = (0..10).map(|turn| (10 + turn * 15, Foreign("web"))).collect();
    let all = story(&[&[(0, Begin)], &broken, &web]);
    // Writes of `web` come within the quiet: `broken` is not answered for that long, which is noticed.
    assert_eq!(play(&all, 800), [(10, HOLDING), (145 + 30, OBSERVING)]);
}

#[test]
fn nothing_is_known_before_the_watch_has_shown_everything() {
    let all = story(&[&syncs("web", 1, &[(3, 3), (4, 3), (5, 3), (6, 3), (7, 3)]), &[(40, Begin)]]);
    assert_eq!(play(&all, 100), [(70, ACTING)]);
}

#[test]
fn a_hand_over_goes_on_where_the_other_replica_was() {
    type Case<'a> = (&'a str, &'a [(u64, Do)], &'a [(u64, State)]);
    let cases: [Case<'_>; 6] = [
        ("it acted", &[(1, Wrote(false, 100)), (1, Wrote(true, 101))], &[(2, ACTING)]),
        ("it held", &[(1, Wrote(true, 100)), (1, Wrote(false, 101))], &[]),
        ("in doubt", &[(1, Wrote(true, 100)), (1, Wrote(false, 100))], &[]),
        ("there was never another", &[(1, Wrote(true, 100))], &[(2, ACTING)]),
        ("nobody ever wrote", &[], &[]),
        ("it held", &[(1, Wrote(true, 100)), (1, Foreign("web"))], &[(1, HOLDING), (31, OBSERVING)]),
    ];
    for (what, seen, expected) in cases {
        let all = story(&[&[(0, Begin)], seen, &[(2, HandOver)]]);
        assert_eq!(play(&all, 60), expected, "{what}");
    }
}

#[test]
fn a_hand_over_that_another_controller_answers_is_no_reason_for_more_quiet() {
    let seen = [(0, Begin), (1, Wrote(true, 100)), (2, HandOver), (9, Foreign("web"))];
    assert_eq!(play(&seen, 60), [(2, ACTING), (9, HOLDING), (39, OBSERVING)]);
}

#[test]
fn without_a_look_at_the_server_nothing_begins() {
    let moving: Vec<_> = (0..30).map(|turn| (turn, -1)).collect();
    let all =
        story(&[&[(0, LooksFail(true)), (0, Begin)], &syncs("web", 1, &moving), &[(200, LooksFail(false))]]);
    let changes = play(&all, 300);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!((200..=208).contains(&changes[0].0), "{changes:?}");
}

#[test]
fn what_was_withheld_is_due_when_acting_begins() {
    let origin = Instant::now();
    let at = |second| origin + Duration::from_secs(second);
    let mut machine = Machine::new(Duration::from_secs(15));
    machine.begin(at(0));
    for (second, hpa, found) in [(1, "right", 3), (2, "wrong", 4), (16, "right", 3), (17, "wrong", 5)] {
        machine.concluded(&key(hpa), turn(found, 3), at(second));
    }
    assert_eq!(machine.tick(at(47)), Step::Look(key("wrong")));
    let begun = machine.looked(&key("wrong"), true, at(47)).unwrap();
    assert_eq!(begun, Begun { proof: Proof::Change(key("wrong")), due: vec![key("wrong")] });
}
