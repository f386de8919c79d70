//! Decides whether the webhook refuses a write of the built-in controller, without a clock and without I/O.
//!
//! The API server sends an AdmissionReview for each write of a built-in user to a scale, an HPA status or an event. A
//! write is refused if it is about an HPA in scope, a leader is alive, and the guard is not known to be broken.
//! Refusals start once the HPAs and namespaces are listed. In case of doubt, the write is allowed, so that the built-in
//! controller continues to scale.
//!
//! | write | refused for |
//! |---|---|
//! | update of `*/scale` | a target of an HPA in scope |
//! | update of `horizontalpodautoscalers/status` | an HPA in scope |
//! | create or update of an event | an event about an HPA in scope |
//!
//! A dry run is decided like any other request, so `kubectl --dry-run=server` with impersonation shows the guard's
//! decision. A refused dry run proves nothing, because the built-in controller makes no dry runs.

use std::collections::BTreeSet;
use std::fmt;

use autoscaling::failure::quote;
use serde::Deserialize;
use serde_json::json;

use super::charges::{Charges, GuardProof};

/// Maximum size of a request body, in bytes. The API server limits an object to 1.5 MiB in etcd, and an update
/// contains the object twice.
pub const MAX_BODY: usize = 3 << 20;

const GROUP: &str = "autoscaling";
const RESOURCE: &str = "horizontalpodautoscalers";
const KIND: &str = "HorizontalPodAutoscaler";
const EVENT_GROUPS: [&str; 2] = ["", "events.k8s.io"];
const EVENTS: &str = "events";

/// The request of an AdmissionReview, without the fields that the decision does not need.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Request {
    /// Identifies the request in the response.
    pub uid: String,
    #[serde(default)]
    operation: String,
    #[serde(default, rename = "dryRun")]
    dry_run: Option<bool>,
    #[serde(default, rename = "userInfo")]
    user: UserInfo,
    #[serde(default)]
    resource: GroupResource,
    #[serde(default, rename = "subResource")]
    subresource: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    object: Option<Object>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct GroupResource {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resource: String,
}

/// The fields of an event that identify its object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct Object {
    /// The reference in core v1.
    #[serde(default, rename = "involvedObject")]
    involved: Option<Reference>,
    /// The reference in events.k8s.io/v1.
    #[serde(default)]
    regarding: Option<Reference>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct Reference {
    #[serde(default, rename = "apiVersion")]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
struct Review {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    request: Request,
}

/// The reason why a body is not a request of the API server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The body has more than [`MAX_BODY`] bytes.
    #[error("the review has {0} bytes, more than {MAX_BODY}")]
    TooLarge(usize),
    /// The body is not JSON, or has no request.
    #[error("cannot read the review: {0}")]
    Malformed(String),
    /// The body has another version or kind.
    #[error("expected kind AdmissionReview of admission.k8s.io/v1, not {kind} of {api_version}")]
    Kind {
        /// `kind`.
        kind: String,
        /// `apiVersion`.
        api_version: String,
    },
}

impl Request {
    /// Reads the body of an AdmissionReview.
    ///
    /// # Errors
    /// Returns [`ReviewError`] for a body that the API server does not send.
    pub fn parse(body: &[u8]) -> Result<Self, ReviewError> {
        if body.len() > MAX_BODY {
            return Err(ReviewError::TooLarge(body.len()));
        }
        let review: Review =
            serde_json::from_slice(body).map_err(|error| ReviewError::Malformed(error.to_string()))?;
        if review.api_version != "admission.k8s.io/v1" || review.kind != "AdmissionReview" {
            let short = |text: String| text.chars().take(64).collect();
            return Err(ReviewError::Kind {
                kind: short(review.kind),
                api_version: short(review.api_version),
            });
        }
        Ok(review.request)
    }

    /// Returns whether the request is a dry run, which changes nothing.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    /// Returns the write of the request. `None` if the guard does not cover the write.
    fn write(&self) -> Option<Write<'_>> {
        let namespace = self.namespace.as_deref()?;
        let GroupResource { group, resource } = &self.resource;
        match (self.operation.as_str(), self.subresource.as_deref().unwrap_or_default()) {
            ("UPDATE", "scale") => {
                Some(Write::Scale { namespace, group, resource, name: self.name.as_deref()? })
            }
            ("UPDATE", "status") if group == GROUP && resource == RESOURCE => {
                Some(Write::Status { namespace, name: self.name.as_deref()? })
            }
            ("CREATE" | "UPDATE", "") if resource == EVENTS && EVENT_GROUPS.contains(&group.as_str()) => {
                let object = self.object.as_ref()?;
                let about = object.involved.as_ref().or(object.regarding.as_ref())?;
                let api_version = about.api_version.as_deref().unwrap_or_default();
                let is_hpa = about.kind.as_deref() == Some(KIND)
                    && (api_version.is_empty() || api_version.split('/').next() == Some(GROUP));
                // An empty namespace in the reference means the event's namespace.
                let namespace =
                    about.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(namespace);
                is_hpa.then_some(Write::Event { namespace, name: about.name.as_deref()? })
            }
            _ => None,
        }
    }
}

/// A write of the built-in controller.
#[derive(Debug, Clone, Copy)]
enum Write<'a> {
    Scale { namespace: &'a str, group: &'a str, resource: &'a str, name: &'a str },
    Status { namespace: &'a str, name: &'a str },
    Event { namespace: &'a str, name: &'a str },
}

/// The resource of a refused write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// `*/scale`.
    Scale,
    /// `horizontalpodautoscalers/status`.
    Status,
    /// `events`.
    Event,
}

impl Refused {
    /// Returns the value of the label `resource` in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scale => "scale",
            Self::Status => "status",
            Self::Event => "events",
        }
    }
}

/// The reason for allowing a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// The user is not one of the built-in users.
    OtherUser,
    /// The guard does not cover the write.
    OtherWrite,
    /// The HPAs or namespaces are not listed yet.
    NotSynced,
    /// The Lease has no live holder, so only the built-in controller can scale.
    NoLeader,
    /// The last check found that the guard's objects do not refuse the writes of the built-in controller. The leader
    /// then does not rely on the guard.
    GuardBroken,
    /// The write is not about an HPA in scope.
    OutOfScope,
}

/// The decision about one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The write is allowed.
    Allow(Allowed),
    /// The write is refused.
    Refuse {
        /// The resource of the write.
        resource: Refused,
        /// The namespace of the HPA.
        namespace: String,
        /// The HPA in scope.
        hpa: String,
    },
}

/// The inputs of a decision.
pub struct Facts<'a> {
    /// `--built-in-users`.
    pub built_in_users: &'a BTreeSet<String>,
    /// The HPAs in scope.
    pub charges: &'a Charges,
    /// Whether the Lease has a live holder, as this replica sees it.
    pub leader_is_alive: bool,
    /// Returns whether a kind of a group has a resource. False if discovery has not returned the kind yet.
    pub has_resource: &'a dyn Fn(&str, &str, &str) -> bool,
}

impl fmt::Debug for Facts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").field("leader_is_alive", &self.leader_is_alive).finish_non_exhaustive()
    }
}

/// Decides whether a request is refused.
pub fn decide(request: &Request, facts: &Facts<'_>) -> Verdict {
    if !facts.built_in_users.contains(&request.user.username) {
        return Verdict::Allow(Allowed::OtherUser);
    }
    let Some(write) = request.write() else { return Verdict::Allow(Allowed::OtherWrite) };
    let charges = facts.charges;
    if !charges.is_synced() {
        return Verdict::Allow(Allowed::NotSynced);
    }
    if !facts.leader_is_alive {
        return Verdict::Allow(Allowed::NoLeader);
    }
    // Each replica checks the guard. Without this rule, a broken guard could stop both controllers: a standby would
    // refuse the built-in controller, while the leader writes nothing.
    if matches!(charges.guard_proof(), GuardProof::Broken { .. }) {
        return Verdict::Allow(Allowed::GuardBroken);
    }
    let in_scope =
        |namespace: &str, name: &str| charges.is_in_scope(namespace, name).then(|| name.to_owned());
    let (resource, namespace, hpa) = match write {
        Write::Scale { namespace, group, resource, name } => {
            let targets = charges.targets(namespace, name).into_iter();
            let mut same = targets.filter(|target| {
                target.group == group && (facts.has_resource)(group, &target.kind, resource)
            });
            (Refused::Scale, namespace, same.next().map(|target| target.hpa.to_string()))
        }
        Write::Status { namespace, name } => (Refused::Status, namespace, in_scope(namespace, name)),
        Write::Event { namespace, name } => (Refused::Event, namespace, in_scope(namespace, name)),
    };
    match hpa {
        Some(hpa) => Verdict::Refuse { resource, namespace: namespace.to_owned(), hpa },
        None => Verdict::Allow(Allowed::OutOfScope),
    }
}

impl Verdict {
    /// Returns the body of the AdmissionReview that responds to a request.
    pub fn response(&self, uid: &str) -> Vec<u8> {
        let response = match self {
            Self::Allow(_) => json!({"uid": uid, "allowed": true}),
            Self::Refuse { .. } => json!({
                "uid": uid,
                "allowed": false,
                "status": {"code": 403, "reason": "Forbidden", "message": self.to_string()},
            }),
        };
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            .to_string()
            .into_bytes()
    }
}

impl fmt::Display for Verdict {
    /// Writes the message of a refusal, which the built-in controller logs, or the reason for allowing the write.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow(reason) => write!(f, "allowed: {reason:?}"),
            Self::Refuse { namespace, hpa, .. } => write!(
                f,
                "HorizontalPodAutoscaler {} is controlled by Concertina; to hand it back, remove the label {} from the \
                 HPA or its namespace",
                quote(&format!("{namespace}/{hpa}")),
                super::scope::LABEL,
            ),
        }
    }
}

#[cfg(test)]
mod tests;
