//! Writes the status of policy objects: the number of HPAs, and fields without effect. The leader writes a status
//! only if it differs from the stored one. A CustomResourceDefinition of an older release drops fields that it does
//! not know, or has no status subresource. A status that stays different must not be written every few seconds
//! forever, and must not delay other statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use autoscaling::condition::ConditionUpdate;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::objects::{GROUP, Kind, PolicyName, PolicyObject, PolicyStatus, VERSION};
use super::store::{PolicyUse, StoredPolicy};
use crate::reconcile::Controller;
use cluster::call::Call;
use cluster::client::Client;
use cluster::error::ApiError;

/// Interval between two comparisons of all statuses.
const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of writes per interval. The next interval continues.
const MAX_WRITES: usize = 20;
/// The condition about the fields of a policy.
const ACCEPTED: &str = "Accepted";
/// The condition about fields that another policy of the same kind also sets.
const OVERLAPPING: &str = "Overlapping";
/// The condition about fields beyond a limit of a ClusterScalingPolicy.
const LIMITED: &str = "Limited";
/// Maximum bytes of a message.
const MAX_MESSAGE: usize = 4096;

impl PolicyStatus {
    /// The status of a policy. `Overlapping` and `Limited` appear with their first reason.
    fn new(policy_use: &PolicyUse, now: Timestamp) -> Self {
        let PolicyUse { policy, matched, overlaps, limited } = policy_use;
        let mut conditions = policy.object.status.conditions.clone();
        let problems: Vec<String> = policy.parsed.problems.iter().map(ToString::to_string).collect();
        let (reason, mut message) = if problems.is_empty() {
            (ACCEPTED, "every field is valid".to_owned())
        } else {
            ("InvalidFields", problems.join("; "))
        };
        truncate(&mut message);
        let update =
            ConditionUpdate { kind: ACCEPTED, status: problems.is_empty(), reason, message: message.into() };
        update.set(&mut conditions, now);
        for (kind, texts, reasons, none) in [
            (
                OVERLAPPING,
                overlaps,
                ["SameFields", "NoSameFields"],
                "no other policy of this kind sets the same fields",
            ),
            (LIMITED, limited, ["BeyondLimits", "WithinLimits"], "every field is within the limits"),
        ] {
            if texts.is_empty() && !conditions.iter().any(|condition| condition.kind == kind) {
                continue;
            }
            let [some_reason, no_reason] = reasons;
            let mut message = texts.iter().map(String::as_str).collect::<Vec<_>>().join("; ");
            truncate(&mut message);
            let (status, reason) =
                (!texts.is_empty(), if texts.is_empty() { no_reason } else { some_reason });
            let message = if texts.is_empty() { none.into() } else { message.into() };
            ConditionUpdate { kind, status, reason, message }.set(&mut conditions, now);
        }
        Self {
            observed_generation: policy.object.generation,
            matched: i64::try_from(*matched).unwrap_or(i64::MAX),
            conditions,
        }
    }
}

fn truncate(message: &mut String) {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
}

/// A policy object after the write of its status.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    status: PolicyStatus,
}

/// Writes statuses until the controller is dropped. The gate of `client` admits writes only on the leader.
pub(crate) async fn run(controller: Weak<Controller>, client: Client) {
    let (mut attempts, mut is_logged) = (Attempts::default(), false);
    loop {
        sleep(INTERVAL).await;
        let Some(controller) = controller.upgrade() else { return std::future::pending().await };
        let now = controller.clock.now();
        let policies = controller.policies.uses();
        drop(controller);
        attempts.retain(&policies.iter().map(|policy_use| &policy_use.policy.object.name).collect());
        let started = Instant::now();
        let changed: Vec<_> = policies
            .into_iter()
            .filter_map(|policy_use| {
                let status = PolicyStatus::new(&policy_use, now);
                let PolicyObject { name, status: stored, .. } = &policy_use.policy.object;
                let is_due = status != *stored && attempts.is_due(name, stored, &status, started);
                is_due.then_some((policy_use.policy, status))
            })
            .take(MAX_WRITES)
            .collect();
        for (policy, status) in changed {
            let PolicyObject { name, status: stored, .. } = &policy.object;
            let (stored, wait) = match write(&client, &policy, &status).await {
                Ok(stored) if stored.without_times() == status.without_times() => continue,
                Ok(stored) => (stored, KEPT_OUT),
                // A standby, or a dry run.
                Err(error) if error.is_refused() => break,
                // The object was deleted, which the watch reports, or the definition has no status subresource.
                Err(error) if error.is_not_found() => (stored.clone(), KEPT_OUT),
                Err(error) => {
                    let name = name.to_string();
                    tracing::warn!(policy = name, %error, "failed to update the status of a policy");
                    (stored.clone(), FAILED)
                }
            };
            if wait == KEPT_OUT && !is_logged {
                is_logged = true;
                tracing::warn!(
                    policy = name.to_string(),
                    "the API server does not keep the status of a policy: apply the CustomResourceDefinitions of this \
                     release, unless the policy was just deleted"
                );
            }
            attempts.postpone(name.clone(), &stored, &status, clock::after(started, wait));
        }
    }
}

/// Writes a status. Returns the status that the server has stored.
async fn write(
    client: &Client,
    policy: &Arc<StoredPolicy>,
    status: &PolicyStatus,
) -> Result<PolicyStatus, ApiError> {
    let PolicyName { namespace, name } = &policy.object.name;
    let kind = if namespace.is_some() { Kind::Namespaced } else { Kind::Cluster };
    let mut segments = vec!["apis", GROUP, VERSION];
    segments.extend(namespace.as_deref().into_iter().flat_map(|namespace| ["namespaces", namespace]));
    segments.extend([kind.resource(), name, "status"]);
    // The UID makes the write fail for a new object of the same name.
    let patch = json!({ "metadata": { "uid": policy.object.uid }, "status": status });
    let body = patch.to_string().into_bytes();
    let call = Call::send(Method::PATCH, segments, "application/merge-patch+json", body)
        .about(format!("{}.{GROUP}", kind.resource()), name)
        .subresource("status");
    client.json::<Stored>(&call).await.map(|Stored { status }| status)
}

/// Time after which a status that the server did not keep is written again, because the definition may have changed.
pub(super) const KEPT_OUT: Duration = Duration::from_mins(10);
/// Time after which a failed write is retried.
pub(super) const FAILED: Duration = Duration::from_mins(1);

/// The last write that failed or had no effect, by policy object.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    attempts: BTreeMap<PolicyName, Attempt>,
}

#[derive(Debug)]
struct Attempt {
    /// The written status, without times.
    written: PolicyStatus,
    /// The status that the server has stored, without times.
    stored: PolicyStatus,
    /// The time from which the same write is retried.
    until: Instant,
}

impl Attempts {
    /// Whether to write a status over the stored one. False while a retry of the same write is postponed.
    pub(super) fn is_due(
        &self,
        name: &PolicyName,
        stored: &PolicyStatus,
        status: &PolicyStatus,
        now: Instant,
    ) -> bool {
        self.attempts.get(name).is_none_or(|attempt| {
            now >= attempt.until
                || attempt.written != status.without_times()
                || attempt.stored != stored.without_times()
        })
    }

    /// Postpones the retry of a write that failed or had no effect.
    pub(super) fn postpone(
        &mut self,
        name: PolicyName,
        stored: &PolicyStatus,
        status: &PolicyStatus,
        until: Instant,
    ) {
        let (written, stored) = (status.without_times(), stored.without_times());
        self.attempts.insert(name, Attempt { written, stored, until });
    }

    /// Forgets policies that no longer exist.
    pub(super) fn retain(&mut self, names: &BTreeSet<&PolicyName>) {
        self.attempts.retain(|name, _| names.contains(name));
    }
}
