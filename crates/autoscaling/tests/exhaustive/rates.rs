//! Rate policies: the allowed count for every short history. A workload that follows the limits never exceeds the
//! policies.

use std::time::Duration;

use autoscaling::history::{Direction, History, ScaleEvent};
use autoscaling::spec::{Behavior, PolicyKind, ScalingPolicy, ScalingRules, SelectPolicy};
use autoscaling::status::{Limit, Status};
use autoscaling::{WriteOutcome, conclude};
use jiff::{SignedDuration, Timestamp};

use crate::model::{Policy, RescaleEntry, Select, rate_limit, rate_limit_with_unknowns, start_of};
use crate::workload::{
    NOW, SECOND, WHOLE, Workload, aged, asking_for, count_after, for_each_in_parallel, multisets, sequences,
};

/// The rules of one direction.
#[derive(Debug, Clone)]
struct Rules {
    select: Select,
    policies: Vec<Policy>,
}

impl Rules {
    fn new(select: Select, policies: &[Policy]) -> Self {
        Self { select, policies: policies.to_vec() }
    }

    /// The same rules as a type of the core, without a stabilization window.
    fn scaling(&self) -> ScalingRules {
        let policy = |policy: &Policy| match *policy {
            Policy::Pods(value, period_seconds) => {
                ScalingPolicy { kind: PolicyKind::Pods, value, period_seconds }
            }
            Policy::Percent(value, period_seconds) => {
                ScalingPolicy { kind: PolicyKind::Percent, value, period_seconds }
            }
        };
        ScalingRules {
            stabilization_window_seconds: Some(0),
            select_policy: match self.select {
                Select::Max => SelectPolicy::Max,
                Select::Min => SelectPolicy::Min,
                Select::Disabled => SelectPolicy::Disabled,
            },
            policies: self.policies.iter().map(policy).collect(),
            tolerance: None,
        }
    }
}

fn behavior(up: &Rules, down: &Rules) -> Behavior {
    Behavior { scale_up: up.scaling(), scale_down: down.scaling() }
}

/// Policies with two periods, and with percentages for which float64 is exact or inexact.
const POLICIES: [Policy; 6] = [
    Policy::Pods(1, 60),
    Policy::Pods(4, 120),
    Policy::Percent(10, 60),
    Policy::Percent(50, 120),
    Policy::Percent(100, 60),
    Policy::Percent(200, 120),
];

/// The rules with `Disabled` and one policy, and those with `Max` or `Min` and every list of one or two policies.
fn all_rules() -> Vec<Rules> {
    let most = if WHOLE { POLICIES.len() } else { 3 };
    let lists = sequences(most, 2).into_iter().filter(|indices| !indices.is_empty());
    let lists: Vec<Vec<Policy>> =
        lists.map(|indices| indices.into_iter().map(|index| POLICIES[index]).collect()).collect();
    let mut all = vec![Rules::new(Select::Disabled, &POLICIES[..1])];
    for select in [Select::Max, Select::Min] {
        all.extend(lists.iter().map(|policies| Rules::new(select, policies)));
    }
    all
}

fn history(rescaled: &[RescaleEntry]) -> History {
    let events = |direction: i64| {
        let of_direction = rescaled.iter().filter(|(_, change)| change.signum() == direction);
        of_direction
            .map(|&(age, change)| ScaleEvent::new(aged(age), i32::try_from(change.abs()).unwrap()))
            .collect()
    };
    History { scale_ups: events(1), scale_downs: events(-1), ..History::default() }
}

/// The time at which the oldest rescale of a direction within a period leaves the period.
fn frees_at(rescaled: &[RescaleEntry], up: bool, period_nanos: i64) -> Option<Timestamp> {
    let mut oldest = None;
    for &(age, change) in rescaled {
        if (change > 0) == up && age < period_nanos && oldest.is_none_or(|oldest| age > oldest) {
            oldest = Some(age);
        }
    }
    oldest.map(|age| aged(age).checked_add(SignedDuration::from_nanos(period_nanos)).unwrap())
}

#[test]
fn direction_moves_exactly_as_far_as_its_policies_allow() {
    let rules = all_rules();
    let (min, max) = (2, 12);
    let ages = [0, 60 * SECOND - 1, 60 * SECOND, 120 * SECOND - 1, 120 * SECOND];
    let changes: &[i64] = if WHOLE { &[1, 3, -1, -3] } else { &[1, -3] };
    let events: Vec<RescaleEntry> =
        ages.iter().flat_map(|&age| changes.iter().map(move |&change| (age, change))).collect();
    let histories = multisets(events.len(), if WHOLE { 4 } else { 2 });
    let cases = for_each_in_parallel(&histories, |indices| {
        let rescaled: Vec<RescaleEntry> = indices.iter().map(|&index| events[index]).collect();
        let history = history(&rescaled);
        let mut cases = 0;
        for rules in &rules {
            for current in [2, 5, 10] {
                let workload =
                    Workload::asked_directly(min, max, current).with_behavior(behavior(rules, rules));
                let mut previous = i32::MIN;
                for desired in [0, 1, current - 1, current, current + 1, current + 3, 14] {
                    cases += 1;
                    let decision = workload.decide(asking_for(desired.into()), &history, NOW);
                    let limit = decision.explanation().limit.clone().unwrap();
                    let case = || format!("{rules:?} {rescaled:?} current {current} desired {desired}");
                    assert!(
                        count_after(&decision) >= previous,
                        "fewer than for a lower proposal: {}",
                        case()
                    );
                    previous = count_after(&decision);
                    if desired == current {
                        assert_eq!((limit.after, limit.limit), (current, Limit::WithinRange), "{}", case());
                        assert_eq!((limit.direction, limit.rate_allows), (None, None), "{}", case());
                        assert_eq!((limit.select, limit.policies.len()), (None, 0), "{}", case());
                        continue;
                    }
                    let up = desired > current;
                    let direction = if up { Direction::Up } else { Direction::Down };
                    assert_eq!(limit.direction, Some(direction), "{}", case());
                    let allowed = limit.rate_allows.unwrap();
                    let start = |period| start_of(current.into(), &rescaled, period);
                    let (exact, loose) = rate_limit(current.into(), up, rules.select, &rules.policies, start);
                    // Float64 may deviate for each of the two policies, so both values are correct.
                    let allows = i64::from(allowed);
                    assert!(allows == exact || allows == loose, "{allows}, not {exact}: {}", case());

                    let (bound, at_bound, at_rate, expected) = if up {
                        let upper = allowed.min(max);
                        (max, Limit::Maximum, Limit::ScaleUpRate, desired.min(upper))
                    } else {
                        let lower = allowed.max(min);
                        (min, Limit::Minimum, Limit::ScaleDownRate, desired.max(lower))
                    };
                    assert_eq!(limit.after, expected, "{}", case());
                    assert_eq!(count_after(&decision), expected, "{}", case());
                    let which = match (expected == desired, allowed.clamp(min, max) == bound) {
                        (true, _) => Limit::WithinRange,
                        (false, true) => at_bound,
                        (false, false) => at_rate,
                    };
                    assert_eq!(limit.limit, which, "{}", case());
                    if rules.select == Select::Disabled {
                        assert!(limit.policies.is_empty(), "{}", case());
                        continue;
                    }
                    for (used, policy) in limit.policies.iter().zip(&rules.policies) {
                        let period = policy.period_nanos();
                        assert_eq!(i64::from(used.start), start(period), "{}", case());
                        assert_eq!(used.frees_at, frees_at(&rescaled, up, period), "{}", case());
                    }
                }
            }
        }
        cases
    });
    println!("{cases} decisions");
}

#[test]
fn rescale_of_unknown_size_exhausts_exactly_the_policies_that_reach_it() {
    let rules = all_rules();
    let ages = [-1, 0, 60 * SECOND - 1, 60 * SECOND, 120 * SECOND - 1, 120 * SECOND, 1800 * SECOND];
    let mut unknowns = vec![None];
    unknowns.extend(ages.map(Some));
    let events: Vec<RescaleEntry> =
        ages[..6].iter().flat_map(|&age| [(age, 3), (age, -3)]).filter(|(age, _)| *age >= 0).collect();
    let histories = multisets(events.len(), if WHOLE { 2 } else { 1 });
    let cases = for_each_in_parallel(&histories, |indices| {
        let rescaled: Vec<RescaleEntry> = indices.iter().map(|&index| events[index]).collect();
        let mut history = history(&rescaled);
        let current = 10;
        let mut cases = 0;
        for rules in &rules {
            let workload = Workload::asked_directly(1, 1000, current).with_behavior(behavior(rules, rules));
            for &unknown_up in &unknowns {
                for &unknown_down in &unknowns {
                    (history.unknown_up, history.unknown_down) =
                        (unknown_up.map(aged), unknown_down.map(aged));
                    for (desired, unknown) in [(1000, unknown_up), (1, unknown_down)] {
                        cases += 1;
                        let decision = workload.decide(asking_for(desired), &history, NOW);
                        let start = |period| {
                            let reaches = unknown.is_some_and(|age| age < period);
                            (!reaches).then(|| start_of(current.into(), &rescaled, period))
                        };
                        let (exact, loose) = rate_limit_with_unknowns(
                            current.into(),
                            desired > 10,
                            rules.select,
                            &rules.policies,
                            start,
                        );
                        let within = |limit: i64| limit.clamp(1, 1000);
                        let count = i64::from(count_after(&decision));
                        let agrees = count == within(exact) || count == within(loose);
                        assert!(agrees, "{count}, not {exact}: {rules:?} {rescaled:?} {unknown:?}");
                        let limit = decision.explanation().limit.clone().unwrap();
                        for (used, policy) in limit.policies.iter().zip(&rules.policies) {
                            let reaching = unknown.filter(|age| *age < policy.period_nanos());
                            assert_eq!(used.unknown_rescale, reaching.map(aged), "{rules:?} {unknown:?}");
                        }
                    }
                }
            }
        }
        cases
    });
    println!("{cases} decisions");
}

/// A workload that follows the decisions, with all its changes.
#[derive(Clone)]
struct ModelWorkload {
    history: History,
    nanos: i64,
    /// The counts, each with its start in nanoseconds.
    log: Vec<(i64, i64)>,
    /// Whether the history contains all changes.
    whole: bool,
    /// The last written status.
    status: Status,
}

/// The event that affects the history before a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HistoryFate {
    /// The process keeps the history.
    Nothing,
    /// Another process inherits the whole history.
    Handover,
    /// Another process rebuilds the history from the status.
    Restart,
}

impl ModelWorkload {
    fn new(count: i64) -> Self {
        Self {
            history: History::default(),
            nanos: 0,
            log: vec![(i64::MIN, count)],
            whole: true,
            status: Status::default(),
        }
    }

    fn count(&self) -> i64 {
        self.log[self.log.len() - 1].1
    }

    /// The count at a time, after a change at the same time.
    fn count_at(&self, nanos: i64) -> i64 {
        self.log.iter().rev().find(|(since, _)| *since <= nanos).unwrap().1
    }

    /// Applies the event to the history, `gap` nanoseconds after the last sync.
    fn pass_on(&mut self, before: HistoryFate, gap: i64) {
        let now = aged(-self.nanos - gap);
        match before {
            HistoryFate::Nothing => {}
            HistoryFate::Handover => {
                self.history = std::mem::take(&mut self.history).inherit(now);
            }
            HistoryFate::Restart => {
                self.history = History::rebuilt(&self.status, &[], Duration::ZERO, now);
                self.whole = false;
            }
        }
    }

    /// Runs a sync, `gap` nanoseconds after the last sync, and checks its limits. The metric proposes `wanted`
    /// replicas.
    fn sync(&mut self, up: &Rules, down: &Rules, workload: &mut Workload, gap: i64, wanted: i64) {
        self.nanos += gap;
        let before = self.count();
        workload.current = i32::try_from(before).unwrap();
        let now = aged(-self.nanos);
        workload.status.clone_from(&self.status);
        let decision = workload.decide(asking_for(wanted), &self.history, now);
        let after = i64::from(count_after(&decision));
        let settings = &workload.settings;
        let conclusion = conclude(&workload.hpa(), decision, &WriteOutcome::Done, settings, now);
        self.history.commit(&conclusion.changes);
        if let Some(status) = conclusion.status {
            self.status.clone_from(&status);
        }

        let rules = if wanted > before { up } else { down };
        let start = |period| self.count_at(self.nanos - period);
        let (exact, loose) = rate_limit(before, wanted > before, rules.select, &rules.policies, start);
        let case = || format!("{up:?} {down:?} {:?} wanted {wanted} at {}: {after}", self.log, self.nanos);
        if wanted > before {
            assert!(before <= after && after <= wanted.min(loose), "{}", case());
        } else if wanted < before {
            assert!(before >= after && after >= wanted.max(loose), "{}", case());
        }
        // With a complete history, a sync uses the full allowance of the policies. The history is complete only if both
        // directions have the same longest period, because a direction drops entries older than its own longest period.
        let longest = |rules: &Rules| rules.policies.iter().map(|policy| policy.period_nanos()).max();
        if self.whole && longest(up) == longest(down) {
            let full = |limit: i64| if wanted > before { wanted.min(limit) } else { wanted.max(limit) };
            assert!(after == full(exact) || after == full(loose), "{}", case());
        }
        if after != before {
            self.log.push((self.nanos, after));
        }
    }

    /// Checks the sum of the changes in one direction, over every period of each binding policy. A policy is binding if
    /// `selectPolicy` is `Min`, or if there is no other policy.
    fn check_sums(&self, up: bool, rules: &Rules) {
        let binding = rules.select == Select::Min || rules.policies.len() == 1;
        for &policy in rules.policies.iter().filter(|_| binding) {
            for &(ends, _) in &self.log[1..] {
                let start_of_period = ends - policy.period_nanos();
                let start = self.count_at(start_of_period);
                let sum: i64 = self
                    .log
                    .windows(2)
                    .filter(|pair| start_of_period < pair[1].0 && pair[1].0 <= ends)
                    .map(|pair| (pair[1].1 - pair[0].1).abs())
                    .sum();
                let (limit, loose) = rate_limit(start, up, Select::Max, &[policy], |_| start);
                let most = (limit - start).abs().max((loose - start).abs());
                assert!(sum <= most, "{sum} in {policy:?} ending at {ends}: {:?}", self.log);
            }
        }
    }
}

/// Pairs of rules for scale-ups and scale-downs: different periods, several policies, and one disabled direction.
fn pairs() -> Vec<(Rules, Rules)> {
    use Policy::{Percent, Pods};
    let pair = |up: Rules, down: Rules| (up, down);
    let max = |policies: &[Policy]| Rules::new(Select::Max, policies);
    let min = |policies: &[Policy]| Rules::new(Select::Min, policies);
    let mut pairs = vec![
        pair(max(&[Pods(2, 60)]), max(&[Pods(3, 60)])),
        pair(max(&[Pods(2, 120)]), max(&[Percent(50, 60)])),
        pair(max(&[Percent(10, 60)]), max(&[Percent(10, 120)])),
        pair(min(&[Pods(4, 60), Percent(50, 120)]), min(&[Pods(1, 60), Percent(50, 120)])),
    ];
    if WHOLE {
        pairs.extend([
            pair(max(&[Pods(4, 60), Percent(100, 60)]), max(&[Percent(100, 60)])),
            pair(max(&[Pods(1, 60), Pods(4, 120)]), max(&[Pods(1, 120), Percent(30, 60)])),
            pair(max(&[Percent(100, 120)]), max(&[Pods(1, 60)])),
            pair(min(&[Pods(5, 120), Percent(10, 60)]), max(&[Percent(30, 120)])),
            pair(Rules::new(Select::Disabled, &[Pods(1, 60)]), max(&[Pods(2, 60)])),
            pair(max(&[Pods(2, 60)]), Rules::new(Select::Disabled, &[Pods(1, 60)])),
        ]);
    }
    pairs
}

/// The times between syncs: parts of a period, a period, one nanosecond less and more, and two periods.
fn gaps() -> Vec<i64> {
    let mut gaps = vec![20 * SECOND, 60 * SECOND - 1, 60 * SECOND];
    if WHOLE {
        gaps.extend([40 * SECOND, 60 * SECOND + 1, 120 * SECOND]);
    }
    gaps
}

/// Runs every sequence of `left` further syncs. Returns the number of syncs.
fn follow(
    from: &ModelWorkload,
    (up, down): &(Rules, Rules),
    workload: &mut Workload,
    wants: &[i64],
    befores: &[HistoryFate],
    left: usize,
) -> u64 {
    let mut cases = 0;
    for gap in gaps() {
        for &wanted in wants {
            for &before in befores {
                let mut next = from.clone();
                next.pass_on(before, gap);
                next.sync(up, down, workload, gap, wanted);
                cases += 1;
                if wants.len() == 1 {
                    next.check_sums(wanted > from.log[0].1, if wanted > from.log[0].1 { up } else { down });
                }
                if left > 1 {
                    cases += follow(&next, &(up.clone(), down.clone()), workload, wants, befores, left - 1);
                }
            }
        }
    }
    cases
}

#[test]
fn following_the_policies_never_exceeds_them_in_any_window() {
    let steps = if WHOLE { 5 } else { 3 };
    // The proposals are 1 and 1000 in every order, or constant. If they are constant, `follow` also checks the sums of
    // the changes.
    let mut plays = Vec::new();
    for pair in pairs() {
        for wants in [vec![1, 1000], vec![1000], vec![1]] {
            plays.extend([5, 10].map(|count| (pair.clone(), wants.clone(), count)));
        }
    }
    let cases = for_each_in_parallel(&plays, |(pair, wants, count)| {
        let mut workload = Workload::asked_directly(1, 1000, 1).with_behavior(behavior(&pair.0, &pair.1));
        follow(&ModelWorkload::new(*count), pair, &mut workload, wants, &[HistoryFate::Nothing], steps)
    });
    println!("{cases} syncs");
}

#[test]
fn neither_a_handover_nor_a_restart_exceeds_the_policies() {
    let steps = if WHOLE { 4 } else { 2 };
    let mut plays = Vec::new();
    for pair in pairs() {
        for wants in [vec![1, 1000], vec![1000], vec![1]] {
            plays.push((pair.clone(), wants));
        }
    }
    let befores = [HistoryFate::Nothing, HistoryFate::Handover, HistoryFate::Restart];
    let cases = for_each_in_parallel(&plays, |(pair, wants)| {
        let mut workload = Workload::asked_directly(1, 1000, 1).with_behavior(behavior(&pair.0, &pair.1));
        follow(&ModelWorkload::new(10), pair, &mut workload, wants, &befores, steps)
    });
    println!("{cases} syncs");
}
