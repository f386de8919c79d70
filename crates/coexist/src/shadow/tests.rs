use autoscaling::pod::{Phase, Pod};

use super::*;

const PERIOD: SignedDuration = SignedDuration::from_secs(15);
const WINDOW: SignedDuration = SignedDuration::from_mins(5);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + second).unwrap()
}

fn own(second: i64, from: i32, to: i32) -> OwnSide {
    OwnSide { at: at(second), from, to: Some(to), sentence: String::new() }
}

fn case<'a>(observed: i64, counts: (i32, i32), own: &'a OwnSide, replays: &'a [i32]) -> Comparison<'a> {
    let (from, to) = counts;
    let late = SignedDuration::ZERO;
    let memory = SignedDuration::ZERO;
    Comparison {
        from,
        to,
        observed: at(observed),
        late,
        own,
        replays,
        same_metrics: true,
        moved: true,
        memory,
    }
}

fn decided(
    machine: &mut Machine,
    own: OwnSide,
    memory: SignedDuration,
    last_sign: Option<Timestamp>,
) -> Option<Outcome> {
    machine.step(Input::Decided { own, memory, last_sign }, PERIOD)
}

/// Returns a machine whose first decision was long ago, so that it is not warming up.
fn settled() -> Machine {
    let mut machine = Machine::default();
    decided(&mut machine, own(-1000, 4, 4), WINDOW, None);
    machine
}

fn judged(machine: &mut Machine, case: Comparison<'_>) -> (Verdict, Option<InconclusiveReason>) {
    let outcome = machine.step(Input::Rescaled(case), PERIOD).unwrap();
    (outcome.verdict, outcome.doubt)
}

#[test]
fn equal_count_now_a_period_ago_or_in_a_replay_is_same() {
    let (stays, goes) = (own(100, 4, 4), own(100, 4, 6));
    assert_eq!(judged(&mut settled(), case(100, (4, 6), &goes, &[])).0, Verdict::Same);
    assert_eq!(judged(&mut settled(), case(100, (4, 6), &stays, &[5, 6])).0, Verdict::Same);
    let mut machine = settled();
    decided(&mut machine, own(88, 4, 6), WINDOW, None);
    assert_eq!(judged(&mut machine, case(100, (4, 6), &stays, &[])).0, Verdict::Same);
    let mut machine = settled();
    decided(&mut machine, own(70, 4, 6), WINDOW, None);
    assert_eq!(judged(&mut machine, case(100, (4, 6), &stays, &[])).0, Verdict::OnlyBuiltin);
}

#[test]
fn other_count_is_different_unless_metrics_were_not_observed() {
    let goes = own(100, 4, 8);
    let observed = case(100, (4, 6), &goes, &[4, 8]);
    assert_eq!(judged(&mut settled(), observed), (Verdict::Different, None));
    let unseen = |to| Comparison { same_metrics: false, to, ..case(100, (4, to), &goes, &[4, 8]) };
    assert_eq!(judged(&mut settled(), unseen(6)), (Verdict::Same, None));
    assert_eq!(judged(&mut settled(), unseen(9)), (Verdict::Unknown, Some(InconclusiveReason::MetricsMoved)));
    let still = Comparison { moved: false, ..unseen(6) };
    assert_eq!(judged(&mut settled(), still), (Verdict::Different, None));
}

#[test]
fn inconclusive_comparison_is_unknown() {
    let (goes, none) = (own(100, 4, 8), OwnSide { to: None, ..own(100, 4, 4) });
    let doubt = |machine: &mut Machine, case: Comparison<'_>| judged(machine, case).1;
    let usual = || case(100, (4, 6), &goes, &[]);
    let late = Comparison { late: SignedDuration::from_secs(31), ..usual() };
    assert_eq!(doubt(&mut settled(), late), Some(InconclusiveReason::SeenLate));
    assert_eq!(doubt(&mut settled(), case(100, (4, 6), &none, &[])), Some(InconclusiveReason::Undecided));
    let young = Comparison { memory: WINDOW, ..usual() };
    let mut machine = Machine::default();
    decided(&mut machine, own(0, 4, 4), WINDOW, None);
    assert_eq!(doubt(&mut machine, young), Some(InconclusiveReason::WarmUp));
    let mut machine = settled();
    machine.step(Input::SpecChanged(at(95)), PERIOD);
    assert_eq!(doubt(&mut machine, usual()), Some(InconclusiveReason::SpecChanged));
}

#[test]
fn new_hpa_does_not_warm_up() {
    let goes = own(100, 4, 8);
    let mut machine = Machine::default();
    machine.step(Input::New, PERIOD);
    let young = Comparison { memory: WINDOW, ..case(100, (4, 6), &goes, &[]) };
    assert_eq!(judged(&mut machine, young).0, Verdict::Different);
}

#[test]
fn pending_rescale_is_reported_once_after_two_periods() {
    let mut machine = settled();
    let mut reported = Vec::new();
    for second in (0..100).step_by(15) {
        machine.step(Input::StatusWritten(at(second)), PERIOD);
        let outcome = decided(&mut machine, own(second, 4, 6), SignedDuration::ZERO, Some(at(second)));
        reported.extend(outcome.map(|outcome| (second, outcome.verdict)));
    }
    assert_eq!(reported, [(30, Verdict::OnlyConcertina)]);
}

#[test]
fn pending_rescale_that_ends_is_not_reported() {
    let mut machine = settled();
    for second in (0..200).step_by(15) {
        machine.step(Input::StatusWritten(at(second)), PERIOD);
        let to = if second % 30 == 0 { 6 } else { 4 };
        assert_eq!(decided(&mut machine, own(second, 4, to), WINDOW, Some(at(second))), None);
    }
}

#[test]
fn pending_rescale_without_a_foreign_write_is_unknown_after_four_periods() {
    let mut machine = settled();
    let mut reported = Vec::new();
    for second in (0..100).step_by(15) {
        let outcome = decided(&mut machine, own(second, 4, 6), SignedDuration::ZERO, None);
        reported.extend(outcome.map(|outcome| (second, outcome.doubt)));
    }
    assert_eq!(reported, [(60, Some(InconclusiveReason::NoSign))]);
}

#[test]
fn metrics_gap_counts_within_the_memory_of_a_decision() {
    let (mut machine, goes) = (settled(), own(100, 4, 8));
    let gap = Comparison { same_metrics: false, memory: WINDOW, ..case(100, (4, 9), &goes, &[]) };
    assert_eq!(judged(&mut machine, gap).1, Some(InconclusiveReason::MetricsMoved));
    let later = own(300, 4, 4);
    let within = Comparison { memory: WINDOW, ..case(300, (4, 6), &later, &[]) };
    assert_eq!(judged(&mut machine, within).1, Some(InconclusiveReason::MetricsMoved));
    let after = Comparison { memory: WINDOW, ..case(500, (4, 6), &later, &[]) };
    assert_eq!(judged(&mut machine, after), (Verdict::OnlyBuiltin, None));
}

fn pod(name: &str, started: Option<&str>) -> Arc<Pod> {
    let start_time = started.map(|time| format!("2030-01-01T00:{time}Z").parse().unwrap());
    Arc::new(Pod {
        name: name.into(),
        labels: Arc::default(),
        requests: Arc::default(),
        phase: Phase::Running,
        terminating: false,
        ready: None,
        start_time,
    })
}

fn rescale(from: i32, to: i32) -> Builtin {
    Builtin { at: "2030-01-01T00:00:06Z".parse().unwrap(), from, to }
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| &*pod.name).collect()
}

#[test]
fn new_pods_belong_to_the_rescale_when_all_others_are_known() {
    let previous = [pod("a", Some("00:01"))];
    let now = vec![pod("a", Some("00:01")), pod("b", Some("00:05"))];
    assert_eq!(names(&undo(now, &previous, rescale(1, 2))), ["a"]);
}

#[test]
fn only_the_youngest_pods_belong_to_the_second_of_two_rescales() {
    let now = vec![pod("a", Some("00:01")), pod("b", None), pod("c", Some("00:05"))];
    assert_eq!(names(&undo(now.clone(), &[], rescale(2, 3))), ["a", "c"]);
    assert_eq!(names(&undo(now, &[pod("a", Some("00:01"))], rescale(2, 3))), ["a", "c"]);
    let within_a_second = vec![pod("a", Some("00:06")), pod("b", Some("00:07")), pod("c", Some("00:06"))];
    assert_eq!(names(&undo(within_a_second, &[], rescale(2, 3))), ["a", "c"]);
}

#[test]
fn pods_started_before_the_rescale_do_not_belong_to_it() {
    let rollout = vec![pod("a", Some("00:01")), pod("b", Some("00:02")), pod("c", Some("00:05"))];
    assert_eq!(undo(rollout.clone(), &[], rescale(2, 3)), rollout);
}

#[test]
fn pods_terminated_by_the_rescale_were_not_terminating_before() {
    let terminating = |pod: &Pod| Arc::new(Pod { terminating: true, ..pod.clone() });
    let previous = [pod("a", Some("00:01")), pod("b", Some("00:02"))];
    let now = vec![Arc::clone(&previous[0]), terminating(&previous[1])];
    assert_eq!(undo(now, &previous, rescale(2, 1)), previous);
}
