//! The facts from which findings are derived.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::event::EventKind;
use autoscaling::explanation::Explanation;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, Api, QueryError};
use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use jiff::{SignedDuration, Timestamp};
use policies::sentence::Decided;
use policies::steps::{PolicyEffect, SourceReading};
use serde::{Deserialize, Serialize, Serializer};

/// Maximum difference between the local clock and the server's clock at which commands still use the local clock.
pub const SKEW: SignedDuration = SignedDuration::from_secs(5);

/// The known facts about an HPA at one time. A list is empty if its entries are unknown.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The namespace of the HPA.
    pub namespace: &'a str,
    /// The time of the decision.
    pub at: Timestamp,
    /// The decision.
    pub explanation: &'a Explanation,
    /// The effect of the scaling policy. `None` without a scaling policy.
    pub policy: Option<&'a PolicyEffect>,
    /// The flags and feature gates of the decision.
    pub settings: &'a Settings,
    /// Whether a controller recorded the decision. False if a command computed the decision.
    pub is_recorded: bool,
    /// The HPA. `None` if only its decision is known.
    pub hpa: Option<HpaFacts<'a>>,
    /// The response of each metric's API, in the order of the spec. `None` for a metric that was not queried.
    pub metrics: &'a [Option<Result<Answer, QueryError>>],
    /// The readings of the sources that the scaling policy names.
    pub sources: &'a [SourceReading],
    /// The pods that the target's selector matches, sorted by name.
    pub pods: &'a [Arc<Pod>],
    /// The chain of controlling owners of each pod, keyed by pod name. The direct owner is first.
    pub owners: &'a BTreeMap<Arc<str>, Vec<Owner>>,
    /// The scale target.
    pub target: Option<&'a Target>,
    /// The names of the other HPAs that select some of the same pods.
    pub sharing: Vec<&'a str>,
    /// The events about the HPA, oldest first.
    pub recent_events: &'a [RecentEvent],
    /// The reads that the server refused.
    pub refused: &'a [Refused],
    /// The metrics APIs that the HPA needs and the cluster does not serve.
    pub missing_apis: &'a [Api],
    /// The server's clock minus the local clock.
    pub skew: Option<SignedDuration>,
}

/// The spec and status of the HPA.
#[derive(Debug, Clone, Copy)]
pub struct HpaFacts<'a> {
    /// The parsed spec.
    pub spec: &'a Spec,
    /// The spec as JSON. It also contains the invalid values that `spec` omits.
    pub raw: &'a str,
    /// `status.lastScaleTime`.
    pub last_scale: Option<Timestamp>,
    /// Whether the condition `ScaledToZero` is true.
    pub is_scaled_to_zero: bool,
}

static NO_OWNERS: BTreeMap<Arc<str>, Vec<Owner>> = BTreeMap::new();

impl<'a> Facts<'a> {
    /// Returns the facts of a recorded decision. All other facts are unknown.
    pub fn new(
        namespace: &'a str,
        at: Timestamp,
        explanation: &'a Explanation,
        settings: &'a Settings,
    ) -> Self {
        Self {
            namespace,
            at,
            explanation,
            policy: None,
            settings,
            is_recorded: true,
            hpa: None,
            metrics: &[],
            sources: &[],
            pods: &[],
            owners: &NO_OWNERS,
            target: None,
            sharing: Vec::new(),
            recent_events: &[],
            refused: &[],
            missing_apis: &[],
            skew: None,
        }
    }

    /// Returns the decision with the effect of the scaling policy.
    pub(crate) fn decided(&self) -> Decided<'a> {
        Decided::new(self.explanation, self.policy)
    }

    /// Returns the refused reads that the decision needed.
    pub(crate) fn blind(&self) -> impl Iterator<Item = &Refused> {
        self.refused.iter().filter(|refused| refused.decides)
    }
}

/// A scale target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// `apiVersion` of `spec.scaleTargetRef`.
    pub api_version: String,
    /// `kind` of `spec.scaleTargetRef`.
    pub kind: String,
    /// `name` of `spec.scaleTargetRef`.
    pub name: String,
    /// The target's object. `None` if it could not be read. The target's Scale may still be readable.
    #[serde(skip)]
    pub object: Option<TargetObject>,
    /// Workloads of other kinds with the same name, such as `StatefulSet/web`. They are read only if the target's object
    /// could not be read.
    #[serde(skip)]
    pub others: Vec<String>,
}

/// The object that the HPA scales.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetObject {
    /// `metadata.uid`.
    pub uid: String,
    /// All `metadata.ownerReferences`.
    pub owners: Vec<Owner>,
    /// The field managers of `spec.replicas`.
    pub replicas_owners: Vec<FieldManager>,
}

/// An entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// The API version of the owner, such as `apps/v1`.
    pub api_version: String,
    /// The kind of the owner, such as `ReplicaSet`.
    pub kind: String,
    /// The name of the owner.
    pub name: String,
    /// The uid of the owner.
    pub uid: String,
    /// Whether the owner is the managing controller.
    pub controller: Option<bool>,
}

/// An entry of `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldManager {
    /// The name of the manager, such as `kubectl`.
    pub manager: String,
    /// The operation: `Apply` or `Update`.
    pub operation: String,
    /// The subresource: empty, `scale` or `status`.
    pub subresource: String,
    /// The time of the last change.
    pub time: Option<Timestamp>,
}

/// The content of an event that a controller would send or has sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventContent {
    /// The type: `Normal` or `Warning`.
    #[serde(rename = "type", serialize_with = "event_kind")]
    pub kind: EventKind,
    /// The reason, such as `SuccessfulRescale` or `FailedGetScale`.
    pub reason: String,
    /// The message of the event.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn event_kind<S: Serializer>(kind: &EventKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.as_str())
}

/// An event in the cluster, read from the fields of core/v1 or of events.k8s.io.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentEvent {
    /// The content of the event.
    pub content: EventContent,
    /// The number of occurrences, at least 1.
    pub count: u32,
    /// The time of the first occurrence.
    pub first: Timestamp,
    /// The time of the last occurrence.
    pub last: Timestamp,
    /// The component that sent the event.
    pub reporter: String,
}

impl RecentEvent {
    /// Returns the size in `New size: 8; reason: ...`, and whether the event combines several rescales. A combined
    /// event contains only the size of the last rescale. Returns `None` for other events.
    pub fn new_size(&self) -> Option<(i32, bool)> {
        let message = Some(&*self.content.message).filter(|_| self.content.reason == "SuccessfulRescale")?;
        let combined = message.strip_prefix("(combined from similar events): ");
        let text = combined.unwrap_or(message).strip_prefix("New size: ")?;
        let size = text.split(';').next()?.trim().parse().ok()?;
        Some((size, combined.is_some()))
    }
}

/// A read that the server refused with status 403.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// `get` or `list`.
    pub verb: &'static str,
    /// The API group. Empty for the core group.
    pub group: String,
    /// The resource as RBAC names it, such as `pods` or `deployments/scale`.
    pub resource: String,
    /// The namespace. `None` if the read was for the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object's name, for a `get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The server's error.
    #[serde(rename = "message")]
    pub text: String,
    /// Whether the decision needed the read. If so, the explained decision may differ from the controller's.
    pub decides: bool,
}
