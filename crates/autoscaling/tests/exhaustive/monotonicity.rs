//! A higher load never proposes fewer replicas, with two exceptions. The proofs show that no other exception exists.
//!
//! Upstream multiplies the ratio by the number of *ready* pods, but proposes the *current* count if the ratio is within
//! tolerance. The two counts differ during the surge of a rolling update, while pods are created, and with failed pods.
//! Then the proposal may fall while the load rises:
//!
//! - [`Exception::IntoStaying`]: more pods are ready than the current count. Below the tolerance, the ratio times the
//!   number of ready pods may exceed the current count. A higher load within tolerance proposes the current count. With
//!   unready pods filled in, a load slightly above the tolerance proposes it, too.
//! - [`Exception::OutOfTolerance`]: fewer pods are ready than the current count, and no pod is unready. Within
//!   tolerance, the current count is proposed. Slightly above the tolerance, the ratio times the number of ready pods
//!   is lower.
//!
//! Neither exception occurs if a pod lacks a sample, because the corrected ratio never moves the count in the opposite
//! direction.

use std::sync::Arc;

use autoscaling::explanation::ProposalReason;
use autoscaling::history::History;
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::Answer;
use autoscaling::spec::{MetricSource, ResourceTarget, ValueTarget};

use crate::model::{Band, ModelProposal, PerPod, PodState, Requests, Target, of_all, of_each};
use crate::workload::{
    NOW, WHOLE, Workload, external_metric, external_value, for_each_in_parallel, pending, pod_values,
    pods_metric, resource_metric, running, usages,
};

/// The reason why a higher load proposes fewer replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exception {
    IntoStaying,
    OutOfTolerance,
}

/// The proposal of the core, and that of the second implementation.
#[derive(Debug, Clone, Copy)]
struct ProposalPair {
    count: i32,
    asked: ModelProposal,
}

impl ProposalPair {
    /// Creates the pair after a comparison of both proposals.
    fn checked(count: i32, asked: ModelProposal, case: impl Fn() -> String) -> Self {
        let over = i128::from(count) - asked.count;
        let rounded = asked.or_one_more && over == 1;
        assert!(over == 0 || rounded, "{count}, not {}: {}", asked.count, case());
        Self { count, asked }
    }

    /// The exception whose conditions apply to this load and the next higher load.
    fn exception(self, higher: Self, current: i32, counts: PodCounts) -> Option<Exception> {
        if counts.missing == 0 && self.asked.band == Band::Below && self.count > current && higher.asked.stays
        {
            assert!(counts.ready > i128::from(current), "only with more ready pods than replicas");
            return Some(Exception::IntoStaying);
        }
        if counts.missing == 0
            && self.asked.band == Band::Within
            && higher.asked.band == Band::Above
            && higher.count < current
        {
            assert!(counts.ready < i128::from(current), "only with fewer ready pods than replicas");
            assert_eq!(counts.unready, 0, "unready pods are filled in, which never proposes fewer");
            return Some(Exception::OutOfTolerance);
        }
        None
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct PodCounts {
    ready: i128,
    missing: i128,
    unready: i128,
}

impl PodCounts {
    fn from_states(pods: &[PodState]) -> Self {
        let mut counts = Self::default();
        for pod in pods {
            match pod {
                PodState::Ready(_) => counts.ready += 1,
                PodState::Missing => counts.missing += 1,
                PodState::Unready => counts.unready += 1,
            }
        }
        counts
    }
}

/// The number of steps to a higher load, and the number of steps for each exception.
#[derive(Debug, Default)]
struct Tally {
    steps: u64,
    into_staying: u64,
    out_of_tolerance: u64,
}

impl Tally {
    /// Checks that the higher load proposes fewer replicas if and only if an exception applies.
    fn step(
        &mut self,
        lower: ProposalPair,
        higher: ProposalPair,
        current: i32,
        counts: PodCounts,
        case: impl Fn() -> String,
    ) {
        self.steps += 1;
        let exception = lower.exception(higher, current, counts);
        let fewer = higher.count < lower.count;
        assert_eq!(
            fewer,
            exception.is_some(),
            "{} to {}, {exception:?}: {}",
            lower.count,
            higher.count,
            case()
        );
        match exception {
            Some(Exception::IntoStaying) => self.into_staying += 1,
            Some(Exception::OutOfTolerance) => self.out_of_tolerance += 1,
            None => {}
        }
    }
}

/// The states of a pod: missing, unready, and ready with each sample in ascending order.
fn states(samples: &[i64]) -> Vec<PodState> {
    let ready = samples.iter().map(|&sample| PodState::Ready(sample));
    [PodState::Missing, PodState::Unready].into_iter().chain(ready).collect()
}

/// The inputs of a decision, without the states of the pods.
#[derive(Debug, Clone, Copy)]
struct Setting {
    target: Target,
    current: i32,
    tolerance: i32,
    unmatched: Option<i64>,
}

impl Setting {
    fn metric(self) -> MetricSource {
        match self.target {
            Target::Average(target) => pods_metric(target),
            Target::Percent(target, _) => {
                resource_metric("cpu", ResourceTarget::Utilization(i32::try_from(target).unwrap()))
            }
        }
    }

    /// Decides for the given states of the pods, and compares the proposals. `None` if no pod has a usable sample.
    fn ask(self, workload: &mut Workload, pods: &[PodState]) -> Option<ProposalPair> {
        let request = |index: usize| match self.target {
            Target::Average(_) => 1000,
            Target::Percent(_, requests) => requests[index],
        };
        let pod = |(index, state): (usize, &PodState)| {
            let name = format!("web-{index}");
            Arc::new(match state {
                PodState::Unready => pending(&name, "cpu", request(index)),
                PodState::Ready(_) | PodState::Missing => running(&name, "cpu", request(index)),
            })
        };
        workload.pods = pods.iter().enumerate().map(pod).collect();
        let named = workload.pods.iter().map(|pod| Arc::clone(&pod.name));
        let mut samples: Vec<(Arc<str>, i64)> = named
            .zip(pods)
            .filter_map(|(name, state)| match state {
                PodState::Ready(sample) => Some((name, *sample)),
                PodState::Missing => None,
                PodState::Unready => Some((name, 1_000_000)), // this sample is dropped
            })
            .collect();
        samples.extend(self.unmatched.map(|sample| ("unmatched".into(), sample)));
        let answer: Answer = match self.target {
            Target::Average(_) => pod_values(samples),
            Target::Percent(..) => usages("cpu", samples),
        };
        let per_pod = PerPod {
            pods,
            unmatched: self.unmatched,
            target: self.target,
            current: self.current,
            tolerance: self.tolerance.into(),
        };
        let asked = per_pod.ask();
        let decision = workload.decide(answer, &History::default(), NOW);
        let count = decision.explanation().proposal;
        assert_eq!(count.is_some(), asked.is_some(), "{per_pod:?}");
        let (count, asked) = (count?, asked?);
        let why = decision.explanation().metrics[0].reading().unwrap().why;
        let follows = matches!(why, ProposalReason::Ratio | ProposalReason::CorrectedRatio);
        assert_eq!(follows, !asked.stays, "{why:?}: {per_pod:?}");
        Some(ProposalPair::checked(count, asked, || format!("{per_pod:?}")))
    }

    /// Checks every combination of states for `pods` pods, and every step of one pod to its next higher sample.
    fn all(self, states: &[PodState], pods: u32) -> Tally {
        let mut workload = Workload::new(self.metric(), 0, 1000, self.current).scaled_to_zero();
        workload.spec.min_replicas = Some(1);
        workload.settings.tolerance = f64::from(self.tolerance) / 100.0;
        let base = states.len();
        let index_of = |combination: usize, pod: u32| combination / base.pow(pod) % base;
        let states_of = |combination: usize| -> Vec<PodState> {
            (0..pods).map(|pod| states[index_of(combination, pod)]).collect()
        };
        let answers: Vec<Option<ProposalPair>> =
            (0..base.pow(pods)).map(|combination| self.ask(&mut workload, &states_of(combination))).collect();
        let mut tally = Tally::default();
        for combination in 0..answers.len() {
            for pod in 0..pods {
                let index = index_of(combination, pod);
                if !matches!(states[index], PodState::Ready(_)) || index + 1 == base {
                    continue;
                }
                let (Some(lower), Some(higher)) =
                    (answers[combination], answers[combination + base.pow(pod)])
                else {
                    continue;
                };
                let counts = PodCounts::from_states(&states_of(combination));
                let case = || format!("{self:?} {:?}, pod {pod} rises", states_of(combination));
                tally.step(lower, higher, self.current, counts, case);
            }
        }
        tally
    }
}

fn settings(targets: &[Target], unmatched_samples: &[Option<i64>]) -> Vec<Setting> {
    let tolerances: &[i32] = if WHOLE { &[0, 10, 30] } else { &[10] };
    let mut settings = Vec::new();
    for &target in targets {
        for current in 0..=if WHOLE { 7 } else { 4 } {
            for &tolerance in tolerances {
                for &unmatched in unmatched_samples {
                    settings.push(Setting { target, current, tolerance, unmatched });
                }
            }
        }
    }
    settings
}

fn report(what: &str, tallies: Vec<Tally>) -> Tally {
    let mut sum = Tally::default();
    for tally in tallies {
        sum.steps += tally.steps;
        sum.into_staying += tally.into_staying;
        sum.out_of_tolerance += tally.out_of_tolerance;
    }
    println!(
        "{what}: {} steps, {} into staying, {} out of tolerance",
        sum.steps, sum.into_staying, sum.out_of_tolerance
    );
    // Each exception occurs, so neither is superfluous.
    assert!(sum.into_staying > 0 && sum.out_of_tolerance > 0, "{sum:?}");
    sum
}

/// Runs `work` for every item on all processors. Returns the tallies in any order.
fn tallied<T: Sync>(items: &[T], work: impl Fn(&T) -> Tally + Sync) -> Vec<Tally> {
    let tallies = std::sync::Mutex::new(Vec::new());
    for_each_in_parallel(items, |item| {
        let tally = work(item);
        let steps = tally.steps;
        tallies.lock().unwrap().push(tally);
        steps
    });
    tallies.into_inner().unwrap()
}

#[test]
fn higher_average_asks_for_fewer_only_if_ready_and_current_pods_differ() {
    let unmatched: &[Option<i64>] =
        if WHOLE { &[None, Some(0), Some(10), Some(35)] } else { &[None, Some(10)] };
    let targets: &[Target] = if WHOLE {
        &[Target::Average(1), Target::Average(7), Target::Average(10)]
    } else {
        &[Target::Average(10)]
    };
    let fine: Vec<i64> = if WHOLE { (0..=24).collect() } else { (6..=13).collect() };
    let coarse = [0, 5, 8, 9, 10, 11, 12, 15, 30];
    let mut tallies = tallied(&settings(targets, unmatched), |setting| setting.all(&states(&fine), 3));
    if WHOLE {
        tallies.extend(tallied(&settings(targets, unmatched), |setting| setting.all(&states(&coarse), 4)));
    }
    for pods in 1..=2 {
        tallies.extend(tallied(&settings(targets, unmatched), |setting| setting.all(&states(&fine), pods)));
    }
    report("averages", tallies);
}

#[test]
fn higher_utilization_asks_for_fewer_only_if_ready_and_current_differ() {
    let mut requests = Requests::default();
    requests[..4].copy_from_slice(&[10, 25, 1, 10]);
    let targets: &[Target] = if WHOLE {
        &[Target::Percent(20, requests), Target::Percent(60, requests), Target::Percent(130, requests)]
    } else {
        &[Target::Percent(60, requests)]
    };
    let fine: Vec<i64> = if WHOLE { (0..=28).collect() } else { (4..=12).collect() };
    let coarse = [0, 1, 3, 6, 9, 13, 15, 20, 40];
    let mut tallies = tallied(&settings(targets, &[None]), |setting| setting.all(&states(&fine), 3));
    if WHOLE {
        tallies.extend(tallied(&settings(targets, &[None, Some(5)]), |setting| {
            setting.all(&states(&coarse), 4)
        }));
    }
    for pods in 1..=2 {
        tallies.extend(tallied(&settings(targets, &[None]), |setting| setting.all(&states(&fine), pods)));
    }
    report("utilizations", tallies);
}

fn milli(value: i64) -> Quantity {
    Quantity::from_milli(value, Format::DecimalSi)
}

#[test]
fn higher_value_asks_for_fewer_only_if_ready_and_current_pods_differ() {
    let mut cases = Vec::new();
    for current in 0..=if WHOLE { 12 } else { 4 } {
        for ready in 0..=if WHOLE { 12 } else { 4 } {
            cases.extend([0, 10, 30].map(|tolerance| (current, ready, tolerance)));
        }
    }
    let tallies = tallied(&cases, |&(current, ready, tolerance)| {
        let mut tally = Tally::default();
        for target in [1, 7, 10, 40] {
            let mut pods: Vec<_> = (0..ready).map(|pod| running(&format!("web-{pod}"), "cpu", 1)).collect();
            pods.push(pending("web-pending", "cpu", 1));
            let metric = external_metric(ValueTarget::Value(milli(target)));
            let mut workload = Workload::new(metric, 1, 1000, current).scaled_to_zero().with_pods(pods);
            workload.settings.tolerance = f64::from(tolerance) / 100.0;
            let counts = PodCounts { ready: ready.into(), ..PodCounts::default() };
            let mut previous: Option<ProposalPair> = None;
            for value in 0..=4 * target {
                let case = || format!("{value} / {target}, {ready} ready, {current}, {tolerance} %");
                let asked = of_all(value, target, current, ready.into(), tolerance.into());
                let count = workload.proposal(external_value(value)).unwrap();
                let answered = ProposalPair::checked(count, asked, case);
                match previous {
                    // At zero replicas, tolerance does not apply, so no exception occurs.
                    Some(lower) if current == 0 => assert!(lower.count <= count, "{}", case()),
                    Some(lower) => tally.step(lower, answered, current, counts, case),
                    None => {}
                }
                previous = Some(answered);
            }
        }
        tally
    });
    report("values", tallies);
}

#[test]
fn higher_total_never_asks_for_fewer() {
    let replicas: Vec<i32> = (0..=if WHOLE { 30 } else { 5 }).collect();
    let cases = for_each_in_parallel(&replicas, |&status_replicas| {
        let mut cases = 0;
        for tolerance in [0, 10, 30] {
            for target in [1, 7, 10, 1000] {
                let metric = external_metric(ValueTarget::AverageValue(milli(target)));
                let mut workload = Workload::new(metric, 1, 1000, 3);
                workload.status_replicas = status_replicas;
                workload.settings.tolerance = f64::from(tolerance) / 100.0;
                let mut previous = i32::MIN;
                for total in 0..=if WHOLE { 4000 } else { 100 } {
                    cases += 1;
                    let case = || format!("{total} / {target}, {status_replicas} replicas, {tolerance} %");
                    let asked = of_each(total, target, status_replicas, tolerance.into());
                    let count = workload.proposal(external_value(total)).unwrap();
                    ProposalPair::checked(count, asked, case);
                    assert!(count >= previous, "{count} after {previous}: {}", case());
                    previous = count;
                }
            }
        }
        cases
    });
    println!("{cases} totals");
}
