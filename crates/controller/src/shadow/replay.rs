//! Replays a decision for an earlier state of a target: from earlier readings, and at other instants of the
//! same period.
//!
//! Two controllers never sync at the same instant. A stabilization window or a policy's period may end up to
//! one sync period earlier or later for one of them, and pods start and stop in between. Neither is a
//! difference between the controllers.

use std::sync::Arc;

use autoscaling::history::History;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, QueryError};
use autoscaling::settings::Settings;
use autoscaling::spec::{ScalingRules, Spec};
use autoscaling::status::MetricStatus;
use autoscaling::{Answers, Hpa, Overlap, Scale, decide, plan};
use jiff::{SignedDuration, Timestamp};

use crate::store::HpaRecord;

/// Maximum number of instants right after the expiry of an entry, in one replay.
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
    let flag = SignedDuration::try_from(settings.downscale_stabilization).unwrap_or(SignedDuration::MAX);
    // A high recommendation in the history keeps a count up, and keeps raising a count that grows in steps.
    let Some(behavior) = &spec.behavior else { return flag };
    let all = [
        window(&behavior.scale_up).unwrap_or_default(),
        window(&behavior.scale_down).unwrap_or(flag),
        longest_period(&behavior.scale_up),
        longest_period(&behavior.scale_down),
    ];
    all.into_iter().max().unwrap_or_default()
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
    /// Returns the counts that follow from the given inputs, at every instant up to one period earlier or
    /// later at which the counts may differ. Sorted, without duplicates.
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

    /// Returns now, the instant a period ago, and the instants right after a history entry expires.
    fn moments(&self) -> Vec<Timestamp> {
        let (spec, flag) = (&self.hpa.spec, self.settings.downscale_stabilization);
        let flag = SignedDuration::try_from(flag).unwrap_or(SignedDuration::MAX);
        let behavior = spec.behavior.as_ref();
        let up = behavior.and_then(|behavior| window(&behavior.scale_up)).unwrap_or_default();
        let down = behavior.and_then(|behavior| window(&behavior.scale_down)).unwrap_or(flag);
        let mut spans = Vec::new();
        for recommendation in &self.history.recommendations {
            spans.extend([(recommendation.at, up), (recommendation.at, down)]);
        }
        let rules = behavior.into_iter().flat_map(|behavior| [&behavior.scale_up, &behavior.scale_down]);
        for policy in rules.flat_map(|rules| &rules.policies) {
            let period = SignedDuration::from_secs(policy.period_seconds.into());
            let events = self.history.scale_ups.iter().chain(&self.history.scale_downs);
            spans.extend(events.map(|event| (event.at, period)));
        }
        let ends = spans.into_iter().filter_map(|(at, span)| {
            // An entry counts up to and including the end of its window.
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

fn window(rules: &ScalingRules) -> Option<SignedDuration> {
    rules.stabilization_window_seconds.map(|seconds| SignedDuration::from_secs(seconds.into()))
}

fn longest_period(rules: &ScalingRules) -> SignedDuration {
    let longest = rules.policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0);
    SignedDuration::from_secs(longest.into())
}
