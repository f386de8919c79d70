//! Proofs of the core's arithmetic by exhaustion: every input of bounded domains is compared with a second, naive
//! implementation in integer arithmetic. docs/internals/proofs.md lists the domains and the proven properties.
//!
//! The tests of this file prove the group of a pod, for every combination of its properties at the edges of every
//! period. They also prove the choice among several metrics: the highest proposal is chosen, and a failed metric never
//! lowers the count.
//!
//! `cargo test --release -p autoscaling --test exhaustive` covers the whole domains. A build with debug assertions
//! covers smaller domains.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "exhaustive/model.rs"]
mod model;
#[path = "exhaustive/monotonicity.rs"]
mod monotonicity;
/// A copy of the module, which is private to the crate.
#[path = "../src/number.rs"]
mod number;
#[path = "exhaustive/rates.rs"]
mod rates;
#[path = "exhaustive/saturation.rs"]
mod saturation;
#[path = "exhaustive/stabilization.rs"]
mod stabilization;
#[path = "exhaustive/workload.rs"]
mod workload;

use autoscaling::explanation::PodGroup;
use autoscaling::failure::MetricFailureClass;
use autoscaling::history::History;
use autoscaling::pod::{ConditionStatus, Phase, Pod, ReadyCondition};
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, PodUsage, QueryError};
use autoscaling::spec::ResourceTarget;
use autoscaling::{Decision, Verdict};

use workload::{
    NOW, SECOND, WHOLE, Workload, aged, asking_for, count_after, for_each_in_parallel, pod_values,
    pods_metric, resource_metric, running, sequences, usages,
};

/// The properties of one pod. Ages are in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Case {
    phase: Phase,
    terminating: bool,
    /// The status of the Ready condition, and the age of its last change.
    ready: Option<(ConditionStatus, Option<i64>)>,
    /// The age of the start time.
    started: Option<i64>,
    /// The age of the sample, and the length of its window.
    sample: Option<(Option<i64>, i64)>,
}

const INITIALIZATION: i64 = 300 * SECOND;
const READINESS_DELAY: i64 = 30 * SECOND;
const WINDOW: i64 = 30 * SECOND;

/// The expected group, by the rules of upstream.
fn group(case: Case, cpu: bool) -> PodGroup {
    if case.terminating {
        return PodGroup::IgnoredTerminating;
    }
    if case.phase == Phase::Failed {
        return PodGroup::IgnoredFailed;
    }
    if case.phase == Phase::Succeeded {
        return PodGroup::IgnoredSucceeded;
    }
    if case.phase == Phase::Pending {
        return PodGroup::UnreadyPending;
    }
    let Some((sampled, window)) = case.sample else {
        return PodGroup::Missing;
    };
    if !cpu {
        return PodGroup::Ready;
    }
    let Some((status, changed)) = case.ready else {
        return PodGroup::UnreadyNoCondition;
    };
    let Some(started) = case.started else {
        return PodGroup::UnreadyNotStarted;
    };
    let is_false = status == ConditionStatus::False;
    if started < INITIALIZATION {
        // A sample is too old if its window started before the change.
        let sample_too_old = match (sampled, changed) {
            (Some(sampled), Some(changed)) => sampled > changed - window,
            (None, Some(_)) => true,
            // An absent time is Go's zero time, which is before all other times.
            (Some(_), None) => false,
            (None, None) => window > 0,
        };
        return match (is_false, sample_too_old) {
            (true, _) => PodGroup::UnreadyInitializing,
            (false, true) => PodGroup::UnreadySampleTooOld,
            (false, false) => PodGroup::Ready,
        };
    }
    // The pod was never ready if the condition last changed before the end of the readiness delay.
    match changed {
        Some(changed) if is_false && started - READINESS_DELAY < changed => PodGroup::UnreadyNeverReady,
        None if is_false => PodGroup::UnreadyNeverReady,
        _ => PodGroup::Ready,
    }
}

fn cases() -> Vec<Case> {
    let phases = [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed, Phase::Unknown];
    let statuses = [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
    let starts = [0, INITIALIZATION - 1, INITIALIZATION, INITIALIZATION + 1, 2 * INITIALIZATION];
    // The ends of the readiness delays after two of the starts, each with one nanosecond more and less.
    let mut changes: Vec<i64> = vec![0, WINDOW, 3 * INITIALIZATION];
    for started in [INITIALIZATION, 2 * INITIALIZATION] {
        changes.extend([-1, 0, 1].map(|off| started - READINESS_DELAY + off));
    }
    // The ends of windows that start at two of the changes, each with one nanosecond more and less.
    let mut measured: Vec<i64> = vec![0, 3 * INITIALIZATION];
    for changed in [WINDOW, INITIALIZATION - READINESS_DELAY] {
        measured.extend([-1, 0, 1].map(|off| changed - WINDOW + off));
    }
    let some = |ages: &[i64]| -> Vec<Option<i64>> {
        std::iter::once(None).chain(ages.iter().copied().map(Some)).collect()
    };
    let mut conditions = vec![None];
    for status in statuses {
        conditions.extend(some(&changes).into_iter().map(|changed| Some((status, changed))));
    }
    let mut samples = vec![None];
    for window in if WHOLE { vec![0, WINDOW] } else { vec![WINDOW] } {
        samples.extend(some(&measured).into_iter().map(|sampled| Some((sampled, window))));
    }
    let mut cases = Vec::new();
    for phase in phases {
        for terminating in [false, true] {
            for &ready in &conditions {
                for started in some(&starts) {
                    for &sample in &samples {
                        cases.push(Case { phase, terminating, ready, started, sample });
                    }
                }
            }
        }
    }
    cases
}

impl Case {
    fn pod(self) -> Pod {
        Pod {
            phase: self.phase,
            terminating: self.terminating,
            ready: self.ready.map(|(status, changed)| ReadyCondition { status, since: changed.map(aged) }),
            start_time: self.started.map(aged),
            ..running("web-1", "cpu", 1000)
        }
    }

    /// The usage of this pod, and of another pod that is ready.
    fn answer(self, resource: &str) -> Answer {
        let Answer::Resource(usages) = usages(resource, [("web-0".into(), 500), ("web-1".into(), 700)])
        else {
            unreachable!("usages() returns an answer for a resource");
        };
        let mut usages: Vec<PodUsage> = usages.to_vec();
        match self.sample {
            None => usages.truncate(1),
            Some((sampled, window)) => {
                usages[1].timestamp = sampled.map(aged);
                usages[1].window_nanos = window;
            }
        }
        Answer::Resource(usages.into())
    }
}

#[test]
fn every_pod_is_in_the_group_of_its_phase_condition_times_and_sample() {
    let target = ResourceTarget::AverageValue(Quantity::from_milli(500, Format::DecimalSi));
    let cases = cases();
    let tried = for_each_in_parallel(&cases, |&case| {
        let pods = vec![running("web-0", "cpu", 1000), case.pod()];
        for resource in ["cpu", "memory"] {
            let metric = resource_metric(resource, target);
            let workload = Workload::new(metric, 1, 10, 2).with_pods(pods.clone());
            let decision = workload.decide(case.answer(resource), &History::default(), NOW);
            let reading = decision.explanation().metrics[0].reading().unwrap().clone();
            assert_eq!(reading.pods[0].group, PodGroup::Ready);
            assert_eq!(reading.pods[1].group, group(case, resource == "cpu"), "{resource} {case:?}");
        }
        // For a custom metric, readiness and the times of samples do not matter.
        let workload = Workload::new(pods_metric(500), 1, 10, 2).with_pods(pods);
        let values = [("web-0".into(), 500), ("web-1".into(), 700)];
        let given = if case.sample.is_some() { 2 } else { 1 };
        let answer = pod_values(values.into_iter().take(given));
        let decision = workload.decide(answer, &History::default(), NOW);
        let reading = decision.explanation().metrics[0].reading().unwrap().clone();
        assert_eq!(reading.pods[1].group, group(case, false), "{case:?}");
        3
    });
    println!("{tried} pods");
}

/// The outcomes of one metric: a failure (`None`), or a proposal.
const OUTCOMES: [Option<i64>; 7] = [None, Some(-1), Some(0), Some(1), Some(2), Some(3), Some(5)];

/// The chosen proposal and its index. A proposal replaces the previous choice if it is higher, or if the choice is
/// zero.
fn best(outcomes: &[Option<i64>]) -> (i64, Option<usize>) {
    let (mut best, mut index) = (0, None);
    for (at, outcome) in outcomes.iter().enumerate() {
        if let Some(proposal) = *outcome
            && (proposal > best || best == 0)
        {
            (best, index) = (proposal, Some(at));
        }
    }
    (best, index)
}

fn workload_of(current: i32, metrics: usize) -> Workload {
    let mut workload = Workload::asked_directly(1, 10, current);
    workload.spec.metrics = vec![workload.spec.metrics[0].clone(); metrics].into();
    workload
}

fn count(workload: &Workload, outcomes: &[Option<i64>]) -> (i32, Decision) {
    let answer = |outcome: &Option<i64>| {
        Some(outcome.map(asking_for).ok_or_else(|| QueryError::new(MetricFailureClass::Other, "no answer")))
    };
    let answers = outcomes.iter().map(answer).collect();
    let decision = workload.decide_all(answers, &History::default(), NOW);
    (count_after(&decision), decision)
}

#[test]
fn highest_of_several_metrics_wins_and_a_failed_one_keeps_the_count() {
    let all = sequences(OUTCOMES.len(), if WHOLE { 5 } else { 3 });
    let tried = for_each_in_parallel(&all, |indices| {
        let outcomes: Vec<Option<i64>> = indices.iter().map(|&index| OUTCOMES[index]).collect();
        let failed = outcomes.iter().filter(|outcome| outcome.is_none()).count();
        for current in [1, 2, 4] {
            let workload = workload_of(current, outcomes.len());
            let (count_now, decision) = count(&workload, &outcomes);
            let (best, winner) = best(&outcomes);
            let held = failed == outcomes.len() || (failed > 0 && best < i64::from(current));
            let case = || format!("{outcomes:?} current {current}");
            assert_eq!(matches!(decision.verdict(), Verdict::NoCount(_)), held, "{}", case());
            let explanation = decision.explanation();
            if held {
                assert_eq!((count_now, explanation.proposal), (current, None), "{}", case());
            } else {
                assert_eq!(explanation.proposal.map(i64::from), Some(best), "{}", case());
                assert_eq!(explanation.winner, winner, "{}", case());
                assert_eq!(explanation.metrics.len(), outcomes.len(), "{}", case());
            }
            if failed > 0 {
                assert!(count_now >= current, "fewer while a metric is missing: {}", case());
            }
            // A higher proposal of one metric does not lower the count.
            for (at, &index) in indices.iter().enumerate() {
                if OUTCOMES[index].is_some() && index + 1 < OUTCOMES.len() {
                    let mut more = outcomes.clone();
                    more[at] = OUTCOMES[index + 1];
                    let (count_then, _) = count(&workload, &more);
                    assert!(count_then >= count_now, "{count_then} with {more:?}: {}", case());
                }
            }
        }
        3
    });
    println!("{tried} decisions");
}
