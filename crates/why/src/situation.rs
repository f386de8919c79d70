//! The state of one HPA at one time, as plain data: the objects that were read, and the decision. Findings and texts
//! are computed from this state alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::WriteOutcome;
use autoscaling::explanation::{DecisionPath, Explanation, LimitingStep};
use autoscaling::history::History;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, Api, QueryError};
use autoscaling::settings::Settings;
use autoscaling::status::{Condition, SCALED_TO_ZERO, is_true};
use findings::Facts;
use findings::facts::HpaFacts;
pub use findings::facts::{
    EventContent, FieldManager, Owner, RecentEvent, Refused, SKEW, Target, TargetObject,
};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use coexist::handover::scope::BUILT_IN;
use engine::reconcile::SourceReading;
use engine::store::{HpaRecord, Key};
use journal::record::wire::Comparison;
use policies::bounds::sync_period;
use policies::resolve::Rules;
use policies::sentence::Decided;
use policies::steps::PolicyEffect;
use terminal::flag_use::FlagUse;

/// The state of one HPA at one time.
#[derive(Debug, Clone)]
pub struct Situation {
    /// The namespace and name of the HPA.
    pub key: Key,
    /// The source of the data.
    pub source: Source,
    /// The time of the decision. A decision of this command has the local time, or the server's time if the clocks
    /// differ by more than [`SKEW`].
    pub at: Timestamp,
    /// The HPA as read. `None` if only a controller's record was read.
    pub hpa: Option<Arc<HpaRecord>>,
    /// The field manager of the last write to the HPA's status: `kube-controller-manager`, `concertina`, ...
    pub status_writer: Option<FieldManager>,
    /// The controller in charge of the HPA. `None` if the source is only a controller's record, or if neither a label
    /// nor a writer of the status is known.
    pub in_charge: Option<InCharge>,
    /// The steps of the decision.
    pub explanation: Explanation,
    /// The effect of the scaling policy. `None` without a scaling policy.
    pub policy: Option<PolicyEffect>,
    /// The readings of the sync from the sources that the policy names. Empty if the metrics APIs supplied the values.
    pub sources: Vec<SourceReading>,
    /// The rules of the scaling policy. `None` without a scaling policy, or if only a controller's record was read.
    pub rules: Option<Arc<Rules>>,
    /// The outcome of the write. Never [`WriteOutcome::Done`] for a cluster, because nothing is written.
    pub outcome: WriteOutcome,
    /// The events that a controller would send, in order. For [`Source::Record`], the events of the recorded decision,
    /// without messages.
    pub events: Vec<EventContent>,
    /// The conditions after the decision. Empty for [`Source::Record`].
    pub conditions: Vec<Condition>,
    /// The response of each metric's API, in the order of the spec. `None` for a metric that was not queried. Empty if
    /// no metric was read, and for [`Source::Record`].
    pub metrics: Vec<Option<Result<Answer, QueryError>>>,
    /// The pods that the target's selector matches, by name. Empty if no metric was read, or if only a controller's
    /// record was read.
    pub pods: Vec<Arc<Pod>>,
    /// The controlling owners by pod name, the nearest first, such as `ReplicaSet/web-7d9`, `Deployment/web`. The list
    /// of a pod without a controller is empty. A list ends early at an owner that could not be read (see
    /// [`Self::refused`]).
    pub owners: BTreeMap<Arc<str>, Vec<Owner>>,
    /// The scale target. `None` if only a controller's record was read.
    pub target: Option<Target>,
    /// The other HPAs of the namespace that select some of the same pods, by name.
    pub sharing: Vec<Key>,
    /// The events about this HPA in the cluster, oldest first.
    pub recent_events: Vec<RecentEvent>,
    /// The history that the decision used.
    pub past: Past,
    /// The settings of the decision: flags and gates.
    pub settings: Settings,
    /// The settings as flags, each with its origin.
    pub flags: Vec<FlagUse>,
    /// The controller's sync period. It is assumed if neither a flag nor a record has it.
    pub period: Duration,
    /// The server's clock minus the local clock. `None` if the server sends no time.
    pub skew: Option<SignedDuration>,
    /// The refused reads that concern the HPA, in order of occurrence.
    pub refused: Vec<Refused>,
    /// The metrics APIs that the HPA needs and the cluster does not serve.
    pub missing_apis: Vec<Api>,
    /// The version of the API server, such as `v1.37.1`, if known.
    pub server_version: Option<String>,
}

/// The source of a situation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Source {
    /// Objects of the cluster, from which this command decides.
    Cluster {
        /// With `--watch`, the time since which this command has kept every recommendation.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
        watching_since: Option<Timestamp>,
        /// The leader's record, or the reason why it is missing.
        #[serde(flatten, skip_serializing_if = "Recorded::is_not_requested")]
        record: Recorded,
    },
    /// The record of a Concertina controller: its decision, flags and history. This source is used with `--from`, or if
    /// the controller reads sources that this command cannot reach.
    Record {
        /// The URL of the controller, or its pod.
        url: String,
        /// The time of the read. [`Situation::at`] is the time of the controller's decision.
        #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
        read_at: Timestamp,
        /// The time of the first consecutive sync with the same decision.
        #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
        since: Timestamp,
        /// The number of consecutive syncs with the same decision.
        syncs: u32,
        /// The controller's version.
        version: String,
    },
}

/// The result of a read of the leader's record. The record supplies flags and history for this command's own decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Recorded {
    /// The record was not requested.
    #[cfg_attr(test, schemars(skip))]
    NotRequested,
    /// No Concertina controller is the leader, so no record exists. The text is the reason.
    #[serde(rename = "noRecord")]
    NoLeader(String),
    /// The record could not be read. The text is the reason.
    #[serde(rename = "noRecord")]
    Missing(String),
    /// The record is the source of flags and history.
    #[serde(rename = "record")]
    Read(Recorder),
}

impl Recorded {
    fn is_not_requested(&self) -> bool {
        *self == Self::NotRequested
    }
}

/// The controller that serves the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Recorder {
    /// The pod of the controller, such as `pod kube-system/concertina-7d9c5`.
    pub from: String,
    /// The controller's version.
    pub version: String,
    /// The controller's last decision. `None` if it has not decided yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<LastDecision>,
    /// The comparison of a dry run with the active controller. `None` if the controller is not a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Object>"))]
    pub comparison: Option<Comparison>,
}

/// The controller in charge of an HPA, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InCharge {
    /// The name of a Concertina instance, `built-in`, or a field manager.
    pub controller: String,
    /// The evidence for [`Self::controller`].
    pub by: ChargeBy,
}

/// The evidence for the controller in charge of an HPA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum ChargeBy {
    /// The label of the HPA.
    Hpa,
    /// The label of its namespace.
    Namespace,
    /// The last status write. The HPA does not have the label. Its namespace does not have the label either, or has the
    /// value `built-in`.
    StatusWriter,
}

impl InCharge {
    /// Determines the controller from the label of the HPA, from the label of its namespace, or else from the last
    /// writer of the status. The value `built-in` of the namespace is ignored. Returns `None` if nothing else is known.
    pub(super) fn new(
        hpa_label: Option<&str>,
        namespace_label: Option<&str>,
        status_writer: Option<&FieldManager>,
    ) -> Option<Self> {
        let of = |controller: &str, by| Some(Self { controller: controller.to_owned(), by });
        match (hpa_label, namespace_label.filter(|label| *label != BUILT_IN)) {
            (Some(label), _) => of(label, ChargeBy::Hpa),
            (None, Some(label)) => of(label, ChargeBy::Namespace),
            (None, None) => of(&status_writer?.manager, ChargeBy::StatusWriter),
        }
    }
}

/// A controller's last decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastDecision {
    /// The decision in one sentence, without a full stop.
    pub sentence: String,
    /// The time of the decision.
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    pub at: Timestamp,
    /// The number of consecutive syncs with the same decision.
    pub syncs: u32,
    /// The time of the first consecutive sync with the same decision.
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    pub since: Timestamp,
}

/// The known history of an HPA.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Past {
    /// The history that the decision used.
    pub history: History,
    /// The entries with their origin, oldest first: recommendations and rescales, including rescales that are only
    /// partly known.
    pub entries: Vec<HistoryEntry>,
    /// Whether all recommendations between the entries are known. The history of a record is complete. A rebuilt
    /// history is complete after this command has kept recommendations for the longer stabilization window.
    pub complete: bool,
}

/// One entry of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HistoryEntry {
    /// The time of the entry, or the latest possible time if the exact time is unknown.
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    pub at: Timestamp,
    /// The earliest possible time, if the exact time is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
    pub earliest: Option<Timestamp>,
    /// The recommendation or rescale.
    #[serde(flatten)]
    pub what: Memory,
    /// The source of the entry.
    #[serde(flatten)]
    pub origin: Origin,
}

impl HistoryEntry {
    /// Returns whether the entry is a rescale with a known new count and an unknown previous count.
    pub fn lacks_amount(&self) -> bool {
        matches!(self.what, Memory::Rescale { from: None, .. })
    }
}

/// The content of an entry of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Memory {
    /// A recommendation, before stabilization.
    Recommendation {
        /// The recommended count.
        replicas: i32,
    },
    /// A rescale of the target.
    Rescale {
        /// The previous count, if known.
        from: Option<i32>,
        /// The new count.
        to: i32,
    },
    /// A rescale whose size is unknown to the controller. It counts as the full allowance of each policy that it may
    /// have used.
    UnknownRescale,
}

/// The source of an entry of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "origin", content = "reason", rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Origin {
    /// `status.lastScaleTime`.
    LastScaleTime,
    /// A SuccessfulRescale event.
    Event,
    /// The conditions of the last sync. The text is the reason of AbleToScale or ScalingLimited.
    Condition(String),
    /// The controller's record.
    Record,
    /// A decision of this command (`--watch`).
    Here,
}

impl Situation {
    /// Returns the time between two syncs of the HPA: that of its scaling policy, or else [`Self::period`].
    pub fn sync_period(&self) -> Duration {
        let own = self.rules.as_ref().and_then(|rules| sync_period(&rules.policy.spec));
        own.unwrap_or(self.period)
    }

    /// Returns the known facts, for the findings.
    pub fn facts(&self) -> Facts<'_> {
        let hpa = self.hpa.as_deref().map(|hpa| HpaFacts {
            spec: &hpa.spec,
            raw: hpa.spec_raw.get(),
            last_scale: hpa.status.last_scale_time,
            is_scaled_to_zero: is_true(&hpa.status.conditions, SCALED_TO_ZERO),
        });
        Facts {
            namespace: &self.key.namespace,
            at: self.at,
            explanation: &self.explanation,
            policy: self.policy.as_ref(),
            settings: &self.settings,
            is_recorded: matches!(self.source, Source::Record { .. }),
            hpa,
            metrics: &self.metrics,
            sources: &self.sources,
            pods: &self.pods,
            owners: &self.owners,
            target: self.target.as_ref(),
            sharing: self.sharing.iter().map(|key| &*key.name).collect(),
            recent_events: &self.recent_events,
            refused: &self.refused,
            missing_apis: &self.missing_apis,
            skew: self.skew,
        }
    }

    /// Returns the refused reads that the decision needed. If there are any, the controller may decide differently.
    pub fn blind(&self) -> impl Iterator<Item = &Refused> {
        self.refused.iter().filter(|refused| refused.decides)
    }

    /// Returns the leader's record, if the decision used it.
    pub fn recorder(&self) -> Option<&Recorder> {
        match &self.source {
            Source::Cluster { record: Recorded::Read(recorder), .. } => Some(recorder),
            _ => None,
        }
    }

    /// Returns the certainty of the time until which a stabilization window keeps the count. Returns `None` if no
    /// window keeps the count.
    pub fn hold(&self) -> Option<Certainty> {
        let held = self.explanation.stabilization.as_ref()?.held_by?;
        let what = Memory::Recommendation { replicas: held.replicas };
        let entry = self.past.entries.iter().find(|entry| entry.at == held.at && entry.what == what)?;
        Some(match entry.origin {
            _ if entry.earliest.is_some() => Certainty::AtMost,
            // A later recommendation without a trace may keep the count for longer.
            Origin::Event | Origin::LastScaleTime => Certainty::AtLeast,
            Origin::Condition(_) | Origin::Record | Origin::Here => Certainty::Exact,
        })
    }

    /// Returns the time of the last rescale, or the latest possible time. `None` if no rescale is known.
    pub fn last_rescale(&self) -> Option<Timestamp> {
        let status = self.hpa.as_ref().and_then(|hpa| hpa.status.last_scale_time);
        let is_rescale =
            |entry: &&HistoryEntry| matches!(entry.what, Memory::Rescale { .. } | Memory::UnknownRescale);
        status.max(self.past.entries.iter().filter(is_rescale).map(|entry| entry.at).max())
    }

    /// Returns the decision with the effect of the scaling policy.
    pub fn decided(&self) -> Decided<'_> {
        Decided::new(&self.explanation, self.policy.as_ref())
    }

    /// Returns the current count. `None` if the Scale could not be read.
    pub fn current(&self) -> Option<i32> {
        (self.explanation.path != DecisionPath::NoScale).then_some(self.explanation.current)
    }

    /// Returns the decision in one sentence, without a full stop.
    pub fn sentence(&self) -> String {
        let sentence = self.decided().sentence(self.at);
        let is_window =
            |step: &LimitingStep| matches!(step, LimitingStep::ScaleUpWindow | LimitingStep::ScaleDownWindow);
        if !self.explanation.limits().iter().any(is_window) {
            return sentence;
        }
        // The clause of the window is the first with a time.
        let roughly = match self.hold() {
            Some(Certainty::AtMost) => "for at most another ",
            Some(Certainty::AtLeast) => "for at least another ",
            Some(Certainty::Exact) | None => return sentence,
        };
        sentence.replacen("for another ", roughly, 1)
    }
}

/// The certainty of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// The actual time may be later.
    AtLeast,
    /// The time is exact.
    Exact,
    /// The actual time may be earlier.
    AtMost,
}
