//! Deciding again for a target as it was: with what was read shortly before, and at other moments of the same period.
//!
//! Two controllers never sync at the same instant. A window of stabilization or a period of a policy lets go up to one
//! sync period earlier or later, and pods come and go in between. None of that is a difference between the controllers.

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

/// At how many moments it is decided again, at most.
const MOMENTS: usize = 24;

/// What a sync was decided from.
#[derive(Debug, Clone)]
pub(super) struct Inputs {
    pub(super) scale: Scale,
    pub(super) metrics: Vec<Option<Result<Answer, QueryError>>>,
    pub(super) pods: Vec<Arc<Pod>>,
    /// What the status says of the metrics then.
    pub(super) shown: Vec<MetricStatus>,
}

/// How far back a decision for this spec can look.
pub(super) fn memory(spec: &Spec, settings: &Settings) -> SignedDuration {
    let flag = SignedDuration::try_from(settings.downscale_stabilization).unwrap_or(SignedDuration::MAX);
    // A high recommendation that is remembered holds a count up, and goes on raising one that grows step by step.
    let Some(behavior) = &spec.behavior else { return flag };
    let all = [
        window(&behavior.scale_up).unwrap_or_default(),
        window(&behavior.scale_down).unwrap_or(flag),
        longest_period(&behavior.scale_up),
        longest_period(&behavior.scale_down),
    ];
    all.into_iter().max().unwrap_or_default()
}

/// One target to be decided again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial<'a> {
    pub(super) hpa: &'a HpaRecord,
    pub(super) from: i32,
    pub(super) history: &'a History,
    pub(super) settings: &'a Settings,
    pub(super) period: SignedDuration,
    pub(super) now: Timestamp,
}

impl Trial<'_> {
    /// The counts that follow from what was read, at every moment of a period before and after at which they may
    /// differ; sorted, each once.
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

    /// The metrics of one sync with scale and pods of another.
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
        let asked = plan.queries().count();
        if asked > metrics.metrics.iter().flatten().count() {
            return None;
        }
        let answers = Answers { metrics: metrics.metrics.clone(), pods: &rest.pods };
        decide(&hpa, &plan, &answers, self.history, self.settings, now).explanation().desired
    }

    /// Now, a period ago, and right after every moment at which something is remembered no longer.
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
            // What counts to the end of its window is gone an instant later.
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
