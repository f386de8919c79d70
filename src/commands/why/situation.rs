//! Everything that is known of one HPA at one moment, as plain data: what was read, what was decided from it, and what
//! could not be known. Findings and texts are made of it alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::WriteOutcome;
use autoscaling::event::EventKind;
use autoscaling::explanation::Explanation;
use autoscaling::history::History;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, Api, QueryError};
use autoscaling::settings::Settings;
use autoscaling::status::Condition;
use jiff::{SignedDuration, Timestamp};

use crate::record::wire::Comparison;
use crate::store::{HpaRecord, Key};

/// From this difference on, the server's clock decides and the difference is told.
pub const SKEW: SignedDuration = SignedDuration::from_secs(5);

/// One HPA at one moment.
#[derive(Debug, Clone)]
pub struct Situation {
    /// Namespace and name.
    pub key: Key,
    /// Where all this comes from.
    pub source: Source,
    /// When it was decided: by the server's clock where the local one is off by more than [`SKEW`], else by the local.
    pub at: Timestamp,
    /// The HPA as it was read; none if the source is a controller's record.
    pub hpa: Option<Arc<HpaRecord>>,
    /// Who wrote the HPA's status last: `kube-controller-manager`, `concertina`, ...
    pub status_writer: Option<FieldManager>,
    /// How the decision came about.
    pub explanation: Explanation,
    /// What became of the write. From a cluster it is never [`WriteOutcome::Done`]: nothing is written.
    pub outcome: WriteOutcome,
    /// The events that a controller would send, in order.
    pub events: Vec<Told>,
    /// The conditions that would stand then.
    pub conditions: Vec<Condition>,
    /// What each metric's API answered, in the order of the spec; `None` where it was not asked. Samples carry their
    /// times and windows. Empty if no metric was read, and in a record.
    pub metrics: Vec<Option<Result<Answer, QueryError>>>,
    /// The pods that the target's selector matches, by name. Empty if no metric was read, and in a record.
    pub pods: Vec<Arc<Pod>>,
    /// The controlling owners of those pods by the pod's name, the nearest first: `ReplicaSet/web-7d9`,
    /// `Deployment/web`. A pod without a controller has an empty list; one whose chain could not be read to its end
    /// ends early (see [`Self::refused`]).
    pub owners: BTreeMap<Arc<str>, Vec<Owner>>,
    /// What is scaled.
    pub target: Option<Target>,
    /// The other HPAs of the namespace whose pods are among these, by name.
    pub sharing: Vec<Key>,
    /// The events about this HPA that the cluster still has, oldest first.
    pub recent_events: Vec<RecentEvent>,
    /// What the decision was told of the past.
    pub past: Past,
    /// Flags and gates that the decision was made with.
    pub settings: Settings,
    /// The same one by one, with where each comes from.
    pub flags: Vec<FlagUse>,
    /// The period between two syncs that is assumed.
    pub period: Duration,
    /// The server's clock minus the local one; none if the server sends no time.
    pub skew: Option<SignedDuration>,
    /// What the user may not read, in the order in which it was tried.
    pub refused: Vec<Refused>,
    /// Metrics APIs that this HPA needs and the cluster does not have.
    pub missing_apis: Vec<Api>,
    /// The version of the API server, `v1.37.1`, if it told.
    pub server_version: Option<String>,
}

/// Where a situation comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Read from the cluster and decided here.
    Cluster {
        /// With `--watch`: since when this command keeps every recommendation itself.
        watching_since: Option<Timestamp>,
        /// What the record of the controller that leads had to do with it.
        record: Recorded,
    },
    /// The record of a Concertina controller (`--from`): its own decision, flags and history.
    Record {
        /// Where it was read.
        url: String,
        /// When it was read. [`Situation::at`] is when the controller decided.
        read_at: Timestamp,
        /// Since when the controller has come to the same decision.
        since: Timestamp,
        /// In how many syncs.
        syncs: u32,
        /// The controller's version.
        version: String,
    },
}

/// What the record of the controller that leads had to do with a decision that was made here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// It was not asked for.
    NotAsked,
    /// There is none to ask for: no Concertina controller leads here.
    NobodyLeads(String),
    /// It could not be had.
    Missing(String),
    /// It gave the flags and the past.
    Read(Recorder),
}

/// The controller that gave its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorder {
    /// Where it runs: `pod kube-system/concertina-7d9c5`.
    pub from: String,
    /// Its version.
    pub version: String,
    /// What it decided last itself; none if it has not decided yet.
    pub last: Option<LastDecision>,
    /// If it is a dry run: what it found when it compared itself with the controller beside it.
    pub comparison: Option<Comparison>,
}

/// A controller's own last decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastDecision {
    /// The decision in one sentence, without a full stop.
    pub sentence: String,
    /// When it was made.
    pub at: Timestamp,
    /// In how many syncs in a row.
    pub syncs: u32,
    /// Since when.
    pub since: Timestamp,
}

/// What is scaled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `apiVersion`, as the HPA has it.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// What the object itself says; none if it could not be read. Its Scale may be readable all the same.
    pub object: Option<TargetObject>,
}

/// The scaled object itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetObject {
    /// `metadata.uid`.
    pub uid: String,
    /// All `metadata.ownerReferences`.
    pub owners: Vec<Owner>,
    /// Who owns the field `spec.replicas`, by managedFields.
    pub replicas_owners: Vec<FieldManager>,
}

/// An entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `name`.
    pub name: String,
    /// `uid`.
    pub uid: String,
    /// Whether it is the managing controller.
    pub controller: bool,
}

/// An entry of `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldManager {
    /// `manager`.
    pub manager: String,
    /// `operation`: `Apply` or `Update`.
    pub operation: String,
    /// `subresource`: empty, `scale` or `status`.
    pub subresource: String,
    /// `time` of the last change.
    pub time: Option<Timestamp>,
}

/// An event that a controller would send or has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Normal or Warning.
    pub kind: EventKind,
    /// `SuccessfulRescale`, `FailedGetScale`, ...
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// An event that the cluster has, by the fields of core/v1 or of events.k8s.io.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentEvent {
    /// What it tells.
    pub told: Told,
    /// How often it was seen, at least 1.
    pub count: u32,
    /// When it was first seen.
    pub first: Timestamp,
    /// When it was last seen.
    pub last: Timestamp,
    /// Which component sent it.
    pub reporter: String,
}

impl RecentEvent {
    /// Of a rescale, the size in `New size: 8; reason: ...`, and whether the event is a combined one: that tells of several
    /// rescales, and only the last one's size.
    pub(super) fn new_size(&self) -> Option<(i32, bool)> {
        let message = Some(&*self.told.message).filter(|_| self.told.reason == "SuccessfulRescale")?;
        let single = message.strip_prefix("(combined from similar events): ");
        let text = single.unwrap_or(message).strip_prefix("New size: ")?;
        let size = text.split(';').next()?.trim().parse().ok()?;
        Some((size, single.is_some()))
    }
}

/// What is known of the past, and what is not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Past {
    /// What the decision was made with.
    pub history: History,
    /// What is remembered and where it comes from, oldest first: everything in [`Self::history`], and rescales of which
    /// not all is known.
    pub entries: Vec<Remembered>,
    /// Whether it is all that there is: it comes from the controller itself, or this command has decided every sync of
    /// the longest window. Else recommendations between the entries are unknown.
    pub complete: bool,
}

/// One thing that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// When it was; where that is not known exactly, the latest that it can have been.
    pub at: Timestamp,
    /// The earliest that it can have been, if its time is not known exactly.
    pub earliest: Option<Timestamp>,
    /// What it was.
    pub what: Memory,
    /// How it is known.
    pub origin: Origin,
}

impl Remembered {
    /// Whether it is a rescale by an unknown number of pods.
    pub fn lacks_amount(&self) -> bool {
        matches!(self.what, Memory::Rescale { from: None, .. })
    }
}

/// What can be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// This count was recommended, before stabilization.
    Recommendation {
        /// How many replicas.
        replicas: i32,
    },
    /// The target was scaled.
    Rescale {
        /// From how many replicas, if known.
        from: Option<i32>,
        /// To how many.
        to: i32,
    },
    /// The target was scaled, which way and how far the controller does not know: it counts as all that the policies of
    /// both directions allow.
    UnknownRescale,
}

/// How something of the past is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// `status.lastScaleTime`.
    LastScaleTime,
    /// A SuccessfulRescale event.
    Event,
    /// The conditions that the last sync left: this reason of AbleToScale.
    Condition(String),
    /// The controller's record.
    Record,
    /// This command decided it itself (`--watch`).
    Here,
}

/// One flag that changes decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagUse {
    /// Without dashes: `horizontal-pod-autoscaler-tolerance`.
    pub name: &'static str,
    /// As it would be written.
    pub value: String,
    /// Where the value comes from.
    pub origin: FlagOrigin,
}

/// Where the value of a flag comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagOrigin {
    /// The command line of this command.
    Given,
    /// Nobody told: the default is assumed.
    Assumed,
    /// Concluded from the version of the API server.
    Server,
    /// The controller's record.
    Record,
}

/// A read that the server refused with 403.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// `get` or `list`.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: String,
    /// As RBAC names it: `pods`, `deployments/scale`.
    pub resource: String,
    /// The namespace; none if the read was of the whole cluster.
    pub namespace: Option<String>,
    /// The object's name, of a `get`.
    pub name: Option<String>,
    /// What the server said.
    pub text: String,
    /// Whether the decision needed it. If so, what is explained is not what the controller decides.
    pub decides: bool,
}

impl Situation {
    /// What was refused that the decision needed: what is explained is then not what the controller decides.
    pub fn blind(&self) -> impl Iterator<Item = &Refused> {
        self.refused.iter().filter(|refused| refused.decides)
    }

    /// The record of the controller that leads, if the decision was made with it.
    pub fn recorder(&self) -> Option<&Recorder> {
        match &self.source {
            Source::Cluster { record: Recorded::Read(recorder), .. } => Some(recorder),
            _ => None,
        }
    }

    /// How exactly it is known until when a stabilization window holds the count, if one does.
    pub fn hold(&self) -> Option<Certainty> {
        let held = self.explanation.stabilization.as_ref()?.held_by?;
        let what = Memory::Recommendation { replicas: held.replicas };
        let entry = self.past.entries.iter().find(|entry| entry.at == held.at && entry.what == what)?;
        Some(match entry.origin {
            _ if entry.earliest.is_some() => Certainty::AtMost,
            // Later ones left no trace.
            Origin::Event | Origin::LastScaleTime => Certainty::AtLeast,
            Origin::Condition(_) | Origin::Record | Origin::Here => Certainty::Exact,
        })
    }

    /// The verdict in one sentence, without a full stop.
    pub fn sentence(&self) -> String {
        let sentence = self.explanation.sentence(self.at);
        let roughly = match self.hold() {
            Some(Certainty::AtMost) => "for at most another ",
            Some(Certainty::AtLeast) => "for at least another ",
            Some(Certainty::Exact) | None => return sentence,
        };
        sentence.replacen("for another ", roughly, 1)
    }
}

/// How exactly a time is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// It may come later.
    AtLeast,
    /// It is then.
    Exact,
    /// It may come earlier.
    AtMost,
}
