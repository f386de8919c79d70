//! The group of a pod, for every combination of its properties at the edges of every period.

use autoscaling::explanation::PodGroup;
use autoscaling::history::History;
use autoscaling::pod::{ConditionStatus, Phase, Pod, ReadyCondition};
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, PodUsage};
use autoscaling::spec::ResourceTarget;

use crate::workload::{
    NOW, SECOND, WHOLE, Workload, aged, for_each_in_parallel, pod_values, pods_metric, resource_metric,
    running, usages,
};

/// The properties of one pod. Ages are in nanoseconds before now. The initialization period is 300 s, and the
/// readiness delay is 30 s.
#[derive(Debug, Clone, Copy)]
struct Case {
    phase: Phase,
    terminating: bool,
    /// The status of the Ready condition, and the age of its last change, if the condition has a time.
    ready: Option<(ConditionStatus, Option<i64>)>,
    started: Option<i64>,
    /// The age of the sample, if the sample has a time, and the length of its window.
    sample: Option<(Option<i64>, i64)>,
}

const INITIALIZATION: i64 = 300 * SECOND;
const READINESS_DELAY: i64 = 30 * SECOND;
const WINDOW: i64 = 30 * SECOND;

/// The group according to the description of upstream, step by step.
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
        // Ages run backwards, so a sample is too old if its age exceeds the age of the change minus the
        // window.
        let sample_too_old = match (sampled, changed) {
            (Some(sampled), Some(changed)) => sampled > changed - window,
            (None, Some(_)) => true,
            // An absent time is Go's zero time, which is before all others.
            (Some(_), None) => false,
            (None, None) => window > 0,
        };
        return match (is_false, sample_too_old) {
            (true, _) => PodGroup::UnreadyInitializing,
            (false, true) => PodGroup::UnreadySampleTooOld,
            (false, false) => PodGroup::Ready,
        };
    }
    // The pod was never ready if Ready last changed before the end of the readiness delay after the start.
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
    // For each start: the end of the readiness delay, and one nanosecond earlier and later.
    let mut changes: Vec<i64> = vec![0, WINDOW, 3 * INITIALIZATION];
    for started in [INITIALIZATION, 2 * INITIALIZATION] {
        changes.extend([-1, 0, 1].map(|off| started - READINESS_DELAY + off));
    }
    // For each change: the end of a window that starts at the change, and one nanosecond earlier and later.
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

    /// The usage of this pod, and of another pod that certainly counts.
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
        // For a custom metric, readiness and the times of samples do not count.
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
