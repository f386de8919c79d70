//! The row of one HPA, computed from the object and the last decision.

use std::collections::BTreeMap;
use std::time::Duration;

use autoscaling::event::{FLAPPING, direction_changes};
use autoscaling::explanation::{Measure, amount};
use autoscaling::quantity::Quantity;
use autoscaling::spec::{MetricSource, ResourceTarget, ValueTarget};
use autoscaling::status::{ABLE_TO_SCALE, Condition, MetricStatus, SCALING_ACTIVE, SCALING_LIMITED};
use cluster::decode::HpaObject;
use jiff::{SignedDuration, Timestamp};
use policies::steps::{CONDITION, StepReason};
use serde::{Deserialize, Serialize};

use crate::advice::{Advice, Cell, Settings};
use crate::{Key, METRICS};

/// Maximum length of a text in a row, in characters. A longer text is cut.
const MAX_TEXT: usize = 500;
/// Maximum number of labels in a row.
const MAX_LABELS: usize = 64;
/// Maximum number of metrics in a row.
const MAX_METRICS: usize = 64;
/// The status is contested if two controllers have written it within this time.
const CONTEST: SignedDuration = SignedDuration::from_mins(2);
/// The number of sync periods without a sync after which a decision is late.
const LATE_AFTER: i32 = 3;

/// The last decisions of a record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decisions {
    /// The last decision of each HPA.
    pub by_key: BTreeMap<Key, LastDecision>,
}

/// The last decision about an HPA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastDecision {
    /// The decision in one sentence, without remaining times.
    pub sentence: String,
    /// The time of the first sync with this decision.
    pub since: Timestamp,
    /// The time of the last sync. `None` unless the next sync is late.
    pub late_since: Option<Timestamp>,
}

impl LastDecision {
    /// Creates the last decision from an entry of the record. `first` and `last` are the times of the first and the
    /// last sync with this decision. `now` is the current time of the controller's clock. `period` is the sync period.
    pub fn new(sentence: &str, first: Timestamp, last: Timestamp, now: Timestamp, period: Duration) -> Self {
        // A remaining time at the end of a sentence changes with each sync. The row shows the time since the first
        // sync.
        let sentence = sentence.split_once(", for another ").map_or(sentence, |(lasting, _)| lasting);
        let period = SignedDuration::try_from(period).unwrap_or(SignedDuration::MAX);
        let is_late = now.duration_since(last) > period.saturating_mul(LATE_AFTER);
        Self { sentence: sentence.to_owned(), since: first, late_since: is_late.then_some(last) }
    }
}

/// The state of an HPA, the most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The condition `AbleToScale` or `ScalingActive` is `False`, so the HPA does not scale.
    Unable,
    /// The metrics propose more than maxReplicas.
    Maximum,
    /// The count changes direction repeatedly.
    Flapping,
    /// The controller has made no decision for several sync periods.
    Late,
    /// Two controllers write the status.
    Contested,
    /// A scaling policy sets or limits the count.
    Policy,
    /// A stabilization window or a rate policy limits the change.
    Held,
    /// The target has 0 replicas, which disables scaling.
    Paused,
    /// No controller has decided yet.
    Undecided,
    /// No other state applies.
    Fine,
}

/// A count at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The time of the change to this count.
    pub at: Timestamp,
    /// `status.desiredReplicas`.
    pub replicas: i32,
}

/// A metric with its target.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metric {
    /// The metric, such as `cpu of container app`.
    pub name: String,
    /// The current value, such as `63 %`. `None` if the status has no value.
    pub value: Option<String>,
    /// The target value. `None` if the metric is invalid.
    pub target: Option<String>,
    /// Value divided by target. `None` if either is missing or the target is 0.
    pub ratio: Option<f64>,
}

/// The row of an HPA.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The first entries of `metadata.labels`, in order of their keys.
    pub labels: BTreeMap<String, String>,
    /// The target, such as `Deployment/web`.
    pub target: String,
    /// `spec.minReplicas`, or 1.
    pub min: i32,
    /// `spec.maxReplicas`.
    pub max: i32,
    /// `status.currentReplicas`.
    pub current: i32,
    /// `status.desiredReplicas`.
    pub desired: i32,
    /// The first metrics, in the order of the spec.
    pub metrics: Vec<Metric>,
    /// The most severe state that applies.
    pub state: State,
    /// The reason for the state, in one sentence.
    pub reason: String,
    /// The start of the state. `None` if the object does not contain it.
    pub since: Option<Timestamp>,
    /// `status.lastScaleTime`.
    pub scaled: Option<Timestamp>,
    /// The effect of the scaling policy, in one sentence. `None` without an effect.
    pub policy: Option<String>,
    /// The last decision of the controller's record, in one sentence. `None` without a record.
    pub decision: Option<String>,
    /// The time of the first sync with the last decision.
    pub decided: Option<Timestamp>,
    /// At most four field managers that write the status, the last writer first.
    pub writers: Vec<String>,
    /// The changes of the count since the start of the watch, at most in the last hour, oldest first.
    pub history: Vec<Count>,
    /// The advice of the file of `--advice`. `None` without an advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Box<Cell>>,
    /// The settings that an advice is compared with.
    #[serde(skip)]
    settings: Settings,
    /// The diagnosis from the object, kept while a late decision replaces it.
    #[serde(skip)]
    own: Option<Diagnosis>,
}

impl Row {
    /// Computes the row of an object without a decision. `history` contains its counts of the last hour, oldest first.
    pub fn new(hpa: &HpaObject, history: Vec<Count>) -> Self {
        let (spec, status) = (&hpa.spec, &hpa.status);
        let mut writers = hpa.status_writers.clone();
        writers.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let diagnosis = diagnose(&status.conditions, &writers, &history, status.last_scale_time);
        Self {
            namespace: hpa.namespace.clone(),
            name: hpa.name.clone(),
            labels: labels(hpa),
            target: cut(&format!("{}/{}", spec.target.kind, spec.target.name)),
            min: spec.min_replicas.unwrap_or(1),
            max: spec.max_replicas,
            current: status.current_replicas,
            desired: status.desired_replicas,
            metrics: spec
                .metrics
                .iter()
                .enumerate()
                .take(MAX_METRICS)
                .map(|(index, source)| metric(source, &hpa.namespace, status.current_metrics.get(index)))
                .collect(),
            state: diagnosis.state,
            reason: cut(&diagnosis.reason),
            since: diagnosis.since,
            scaled: status.last_scale_time,
            policy: policy(&status.conditions).map(|policy| cut(&policy.message)),
            decision: None,
            decided: None,
            own: None,
            writers: writers.into_iter().take(4).map(|(manager, _)| cut(&manager)).collect(),
            history,
            advice: None,
            settings: Settings::new(spec),
        }
    }

    /// Adds the last decision of the controller's record, or removes it. A late decision sets [`State::Late`], unless
    /// the current state is more severe.
    #[must_use]
    pub fn with_decision(mut self, decision: Option<&LastDecision>) -> Self {
        if let Some(Diagnosis { state, reason, since }) = self.own.take() {
            (self.state, self.reason, self.since) = (state, reason, since);
        }
        self.decision = decision.map(|decision| cut(&decision.sentence));
        self.decided = decision.map(|decision| decision.since);
        if let Some(at) = decision.and_then(|decision| decision.late_since)
            && self.state > State::Late
        {
            let reason = format!("no decision since {at:.0}, for several sync periods");
            let reason = std::mem::replace(&mut self.reason, reason);
            self.own = Some(Diagnosis { state: self.state, reason, since: self.since });
            (self.state, self.since) = (State::Late, Some(at));
        }
        self
    }

    /// Adds the advice for the HPA, or removes it.
    #[must_use]
    pub(crate) fn with_advice(mut self, advice: Option<&Advice>) -> Self {
        self.advice = advice.and_then(|advice| advice.cell(&self.target, self.settings));
        if let Some(cell) = &mut self.advice {
            cell.text = cut(&cell.text);
        }
        self
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn labels(hpa: &HpaObject) -> BTreeMap<String, String> {
    #[derive(Default, Deserialize)]
    struct Metadata {
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
    }
    let metadata = serde_json::from_str::<Metadata>(hpa.metadata.get()).unwrap_or_default();
    let labels = metadata.labels.unwrap_or_default().into_iter().take(MAX_LABELS);
    labels.map(|(key, value)| (cut(&key), cut(&value))).collect()
}

/// Returns the condition of a scaling policy that has an effect.
fn policy(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.kind == CONDITION && condition.status == "True")
}

#[derive(Debug, Clone, PartialEq)]
struct Diagnosis {
    state: State,
    reason: String,
    since: Option<Timestamp>,
}

fn diagnose(
    conditions: &[Condition],
    writers: &[(String, Timestamp)],
    history: &[Count],
    scaled: Option<Timestamp>,
) -> Diagnosis {
    let find = |kind: &str| conditions.iter().find(|condition| condition.kind == kind);
    let (able, active, limited) = (find(ABLE_TO_SCALE), find(SCALING_ACTIVE), find(SCALING_LIMITED));
    let of = |state, condition: &Condition| Diagnosis {
        state,
        reason: format!("{}: {}", condition.reason, condition.message),
        since: condition.last_transition_time,
    };
    if let Some(able) = able.filter(|able| able.status == "False") {
        return of(State::Unable, able);
    }
    if let Some(active) = active.filter(|active| active.status == "False") {
        let state = if active.reason == "ScalingDisabled" { State::Paused } else { State::Unable };
        return of(state, active);
    }
    if let Some(limited) =
        limited.filter(|limited| limited.status == "True" && limited.reason == "TooManyReplicas")
    {
        return of(State::Maximum, limited);
    }
    let changes = direction_changes(history.iter().map(|count| count.replicas));
    if changes >= FLAPPING {
        let reason = format!("the count changed direction {changes} times in the last hour");
        return Diagnosis { state: State::Flapping, reason, since: history.first().map(|count| count.at) };
    }
    if let [(last, at), (other, before), ..] = writers
        && at.duration_since(*before) <= CONTEST
    {
        let reason = format!("{last} and {other} wrote the status within two minutes");
        return Diagnosis { state: State::Contested, reason, since: Some(*before) };
    }
    let holds = |policy: &&Condition| StepReason::named(&policy.reason).is_some_and(StepReason::holds_count);
    if let Some(policy) = policy(conditions).filter(holds) {
        return of(State::Policy, policy);
    }
    let is_rate = |limited: &&Condition| {
        limited.status == "True" && matches!(&*limited.reason, "ScaleUpLimit" | "ScaleDownLimit")
    };
    if let Some(limited) = limited.filter(is_rate) {
        return of(State::Held, limited);
    }
    let is_window = |able: &&Condition| matches!(&*able.reason, "ScaleUpStabilized" | "ScaleDownStabilized");
    if let Some(able) = able.filter(is_window) {
        // The condition is also true with other reasons, so its transition time is not the start of this state.
        return Diagnosis { since: None, ..of(State::Held, able) };
    }
    match (limited, active, able) {
        (Some(limited), _, _) if limited.status == "True" => of(State::Fine, limited),
        (_, Some(active), _) => Diagnosis { since: scaled, ..of(State::Fine, active) },
        (_, None, Some(able)) => Diagnosis { since: scaled, ..of(State::Fine, able) },
        (_, None, None) => Diagnosis {
            state: State::Undecided,
            reason: "no controller has written a condition: check that an HPA controller runs".to_owned(),
            since: None,
        },
    }
}

fn metric(source: &MetricSource, namespace: &str, status: Option<&MetricStatus>) -> Metric {
    let subject = source.subject(namespace);
    let (target, value) = (target(source), value(source, status));
    let shown = |measure| cut(&amount(measure, &subject));
    Metric {
        name: cut(&subject.to_string()),
        value: value.map(shown),
        target: target.map(shown),
        ratio: value.zip(target).and_then(|(value, target)| ratio(value, target)),
    }
}

/// Returns the values of the first metrics, in percent for utilizations. `None` if the status has no value.
pub(crate) fn values(hpa: &HpaObject) -> [Option<f64>; METRICS] {
    let mut values = [None; METRICS];
    for (index, (slot, source)) in values.iter_mut().zip(hpa.spec.metrics.iter()).enumerate() {
        *slot = value(source, hpa.status.current_metrics.get(index)).map(|measure| match measure {
            Measure::Percent(percent) => f64::from(percent),
            Measure::Milli(milli) | Measure::MilliPerPod(milli) => milli as f64 / 1_000.0,
        });
    }
    values
}

fn target(source: &MetricSource) -> Option<Measure> {
    Some(match source {
        MetricSource::Resource { target, .. } | MetricSource::ContainerResource { target, .. } => {
            match target {
                ResourceTarget::Utilization(percent) => Measure::Percent(*percent),
                ResourceTarget::AverageValue(average) => Measure::MilliPerPod(average.milli_value()),
            }
        }
        MetricSource::Pods { average, .. } => Measure::MilliPerPod(average.milli_value()),
        MetricSource::Object { target, .. } | MetricSource::External { target, .. } => match target {
            ValueTarget::Value(value) => Measure::Milli(value.milli_value()),
            ValueTarget::AverageValue(average) => Measure::MilliPerPod(average.milli_value()),
        },
        MetricSource::Invalid(_) => return None,
    })
}

/// Returns the value in the status, in the form of the target. A failed metric has no value.
fn value(source: &MetricSource, status: Option<&MetricStatus>) -> Option<Measure> {
    let status = status?;
    let current = match source {
        MetricSource::Resource { .. } => &status.resource.as_ref()?.current,
        MetricSource::ContainerResource { .. } => &status.container_resource.as_ref()?.current,
        MetricSource::Pods { .. } => &status.pods.as_ref()?.current,
        MetricSource::Object { .. } => &status.object.as_ref()?.current,
        MetricSource::External { .. } => &status.external.as_ref()?.current,
        MetricSource::Invalid(_) => return None,
    };
    match target(source)? {
        Measure::Percent(_) => current.average_utilization.map(Measure::Percent),
        Measure::Milli(_) => current.value.map(Quantity::milli_value).map(Measure::Milli),
        Measure::MilliPerPod(_) => current.average_value.map(Quantity::milli_value).map(Measure::MilliPerPod),
    }
}

fn ratio(value: Measure, target: Measure) -> Option<f64> {
    let number = |measure| match measure {
        Measure::Percent(percent) => f64::from(percent),
        Measure::Milli(milli) | Measure::MilliPerPod(milli) => milli as f64,
    };
    let target = number(target);
    (target != 0.0).then(|| number(value) / target)
}

#[cfg(test)]
mod tests;
