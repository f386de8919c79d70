//! Replays a decision for an earlier state of a target: from earlier readings, and at other instants of the same
//! period.
//!
//! Two controllers never sync at the same instant. For one of them, a stabilization window or a policy's period can end
//! up to one sync period earlier or later, and pods can start and stop in between. Such deviations are no differences
//! between the controllers.

use std::sync::Arc;

use autoscaling::history::History;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, QueryError};
use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use autoscaling::status::MetricStatus;
use autoscaling::{Answers, Hpa, Overlap, Scale, decide, plan};
use jiff::{SignedDuration, Timestamp};

use super::wire::Builtin;
use crate::store::HpaRecord;

/// Maximum number of instants immediately after the expiry of a history entry, in one replay.
const MOMENTS: usize = 24;

/// The inputs of a sync.
#[derive(Debug, Clone)]
pub(super) struct Inputs {
    pub(super) scale: Scale,
    pub(super) metrics: Vec<Option<Result<Answer, QueryError>>>,
    pub(super) pods: Vec<Arc<Pod>>,
    /// The metrics in the status that resulted from the sync.
    pub(super) shown: Vec<MetricStatus>,
}

/// Returns the time span of the history on which a decision for this spec can depend.
pub(super) fn memory(spec: &Spec, settings: &Settings) -> SignedDuration {
    windows(spec, settings).into_iter().chain(periods(spec)).max().unwrap_or_default()
}

/// Returns the stabilization windows for scale-ups and for scale-downs.
fn windows(spec: &Spec, settings: &Settings) -> [SignedDuration; 2] {
    let seconds = |seconds: i32| SignedDuration::from_secs(seconds.into());
    let flag = SignedDuration::try_from(settings.downscale_stabilization).unwrap_or(SignedDuration::MAX);
    let behavior = spec.behavior.as_ref();
    let up = behavior.and_then(|behavior| behavior.scale_up.stabilization_window_seconds);
    let down = behavior.and_then(|behavior| behavior.scale_down.stabilization_window_seconds);
    [up.map_or(SignedDuration::ZERO, seconds), down.map_or(flag, seconds)]
}

/// Returns the periods of all rate policies.
fn periods(spec: &Spec) -> impl Iterator<Item = SignedDuration> {
    let rules = spec.behavior.iter().flat_map(|behavior| [&behavior.scale_up, &behavior.scale_down]);
    let policies = rules.flat_map(|rules| &rules.policies);
    policies.map(|policy| SignedDuration::from_secs(policy.period_seconds.into()))
}

/// A target with the state for a replay of its decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replay<'a> {
    pub(super) hpa: &'a HpaRecord,
    pub(super) from: i32,
    pub(super) history: &'a History,
    pub(super) settings: &'a Settings,
    pub(super) period: SignedDuration,
    pub(super) now: Timestamp,
}

impl Replay<'_> {
    /// Returns the counts that result from the inputs, sorted and without duplicates. Decides at every instant up to
    /// one period earlier or later at which the result may differ.
    pub(super) fn counts(&self, inputs: &[(&Inputs, &Inputs)]) -> Vec<i32> {
        let moments = self.moments();
        let mut counts: Vec<i32> = inputs
            .iter()
            .flat_map(|(metrics, rest)| moments.iter().filter_map(|now| self.decide(metrics, rest, *now)))
            .collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Decides from the metrics of one sync, with the scale and the pods of another sync.
    fn decide(&self, metrics: &Inputs, rest: &Inputs, now: Timestamp) -> Option<i32> {
        let record = self.hpa;
        let hpa = Hpa {
            namespace: &record.key.namespace,
            name: &record.key.name,
            generation: record.generation,
            spec: &record.spec,
            status: &record.status,
        };
        let scale = Scale { replicas: self.from, ..rest.scale.clone() };
        let plan = plan(&hpa, Ok(scale), |_| Overlap::None, self.settings);
        let queries = plan.queries().count();
        if queries > metrics.metrics.iter().flatten().count() {
            return None;
        }
        let answers = Answers { metrics: metrics.metrics.clone(), pods: &rest.pods };
        decide(&hpa, &plan, &answers, self.history, self.settings, now).explanation().desired
    }

    /// Returns now, the instant one period ago, and the instants immediately after the expiry of history entries.
    fn moments(&self) -> Vec<Timestamp> {
        let windows = windows(&self.hpa.spec, self.settings);
        let mut spans = Vec::new();
        for recommendation in &self.history.recommendations {
            spans.extend(windows.map(|window| (recommendation.at, window)));
        }
        for period in periods(&self.hpa.spec) {
            let events = self.history.scale_ups.iter().chain(&self.history.scale_downs);
            spans.extend(events.map(|event| (event.at, period)));
        }
        let ends = spans.into_iter().filter_map(|(at, span)| {
            // An entry is used up to and including the end of its window.
            at.checked_add(span).ok()?.checked_add(SignedDuration::from_nanos(1)).ok()
        });
        let near = |moment: &Timestamp| moment.duration_since(self.now).abs() <= self.period;
        let mut moments: Vec<Timestamp> = ends.filter(near).collect();
        moments.sort_unstable_by_key(|moment| moment.duration_since(self.now).abs());
        moments.truncate(MOMENTS);
        moments.extend([Some(self.now), self.now.checked_sub(self.period).ok()].into_iter().flatten());
        moments
    }
}

/// Reverts the effects of the other controller's rescale on the pods of its target, because the watch of pods can be
/// ahead of the watch of HPAs. Removes the pods that the rescale created, and restores the pods that it terminates.
/// `previous` contains the pods of the previous sync, if that sync found the count before the rescale. Both lists are
/// sorted by name.
pub(super) fn undo(pods: Vec<Arc<Pod>>, previous: &[Arc<Pod>], builtin: Builtin) -> Vec<Arc<Pod>> {
    let before = |pod: &Pod| {
        previous
            .binary_search_by(|previous| previous.name.cmp(&pod.name))
            .ok()
            .and_then(|index| previous.get(index))
    };
    if builtin.to < builtin.from {
        // A pod that terminates because of the rescale was not terminating at the previous sync.
        let as_it_was = |pod: Arc<Pod>| match before(&pod) {
            Some(previous) if pod.terminating && !previous.terminating => Arc::clone(previous),
            _ => pod,
        };
        return pods.into_iter().map(as_it_was).collect();
    }
    let previous_count = usize::try_from(builtin.from).unwrap_or(0);
    let running = pods.iter().filter(|pod| !pod.terminating);
    if running.clone().filter(|pod| before(pod).is_some()).count() >= previous_count {
        // The running pods of the previous sync are sufficient for the previous count, so the rescale created all
        // others.
        return pods.into_iter().filter(|pod| before(pod).is_some()).collect();
    }
    // Some of the new pods are from an earlier rescale. The youngest of them are from this rescale.
    let too_many = running.clone().count().saturating_sub(previous_count);
    let is_young = |pod: &Pod| pod.start_time.is_none_or(|started| started >= builtin.at);
    let may_be_new = |pod: &&Arc<Pod>| before(pod).is_none() && is_young(pod);
    let mut new: Vec<Arc<Pod>> = running.filter(may_be_new).map(Arc::clone).collect();
    new.sort_by(|one, other| youngest_last(one).cmp(&youngest_last(other)));
    let new = new.split_off(new.len().saturating_sub(too_many));
    pods.into_iter().filter(|pod| !new.iter().any(|new| new.name == pod.name)).collect()
}

/// Returns a sort key by the start of a pod. Pods that have not started are last. Of the pods that started in the same
/// second, pods without a readiness condition are last.
fn youngest_last(pod: &Pod) -> (bool, Option<Timestamp>, bool, &str) {
    (pod.start_time.is_none(), pod.start_time, pod.ready.is_none(), &pod.name)
}

#[cfg(test)]
mod tests {
    use autoscaling::pod::Phase;

    use super::*;

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
}
