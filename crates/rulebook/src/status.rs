//! Writes the status of policy objects: the number of HPAs, and fields without effect.
//!
//! The leader writes a status only if it differs from the stored status. With a CustomResourceDefinition of an older
//! release, the API server drops unknown fields, or has no status subresource. The write then has no effect. Its retry
//! is postponed, so that it does not delay other statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use autoscaling::status::ConditionUpdate;
use http::Method;
use jiff::Timestamp;
use policies::merge::Source;
use policies::spec::{Level, ProblemReason};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::objects::{GROUP, Kind, PolicyName, PolicyObject, PolicyStatus, VERSION};
use crate::store::{Policies, StoredPolicy};
use cluster::call::Call;
use cluster::client::Client;
use cluster::error::ApiError;
use engine::reconcile::Controller;

/// The interval between two comparisons of all statuses.
const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of writes per interval. Further writes are delayed to the next interval.
const MAX_WRITES: usize = 20;
/// The condition about the fields of a policy.
const ACCEPTED: &str = "Accepted";
/// The condition about fields that another policy of the same kind also sets.
const OVERLAPPING: &str = "Overlapping";
/// The condition about fields beyond a limit of a ClusterScalingPolicy.
const LIMITED: &str = "Limited";
/// Maximum length of a message, in bytes.
const MAX_MESSAGE: usize = 4096;
/// Maximum number of overlaps, and of fields beyond a limit, per policy.
const MAX_TEXTS: usize = 20;

/// A policy object with its use by HPAs.
#[derive(Debug)]
struct PolicyUse {
    policy: Arc<StoredPolicy>,
    /// The number of HPAs that the policy applies to.
    matched: usize,
    /// The fields that another policy of the same kind also sets for the same HPA, each as a sentence.
    overlaps: BTreeSet<String>,
    /// The fields beyond a limit of a ClusterScalingPolicy, each as a sentence.
    limited: BTreeSet<String>,
}

impl PolicyStatus {
    /// Returns the status of a policy. The conditions `Overlapping` and `Limited` are absent until their first reason.
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
pub(super) async fn run(controller: Weak<Controller>, policies: Arc<Policies>, client: Client) {
    let (mut attempts, mut is_logged) = (Attempts::default(), false);
    loop {
        sleep(INTERVAL).await;
        let Some(controller) = controller.upgrade() else { return std::future::pending().await };
        let now = controller.clock.now();
        let policies = uses(&policies);
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
                // The gate refuses the writes of a standby and of a dry run.
                Err(error) if error.is_refused() => break,
                // The object was deleted, which the watch will deliver, or the definition has no status subresource.
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

/// Returns how the merged policies of HPAs use each policy object.
fn uses(policies: &Policies) -> Vec<PolicyUse> {
    let (objects, applied) = policies.in_use();
    let uses = objects.into_iter().map(|policy| {
        let name = policy.object.name.clone();
        (name, PolicyUse { policy, matched: 0, overlaps: BTreeSet::new(), limited: BTreeSet::new() })
    });
    let mut uses: BTreeMap<PolicyName, PolicyUse> = uses.collect();
    let mut seen = BTreeSet::new();
    for merged in &applied {
        for name in merged.objects() {
            if let Some(policy) = uses.get_mut(name) {
                policy.matched += 1;
            }
        }
        // HPAs with the same policies share the result of the merge.
        if !seen.insert(Arc::as_ptr(merged)) {
            continue;
        }
        let policy = merged.policy();
        let mut add = |source: &Source, text: String, is_limit: bool| {
            let Some(policy) = uses.get_mut(&name_of(source)) else { return };
            let texts = if is_limit { &mut policy.limited } else { &mut policy.overlaps };
            if texts.len() < MAX_TEXTS {
                texts.insert(text);
            }
        };
        for overridden in &policy.overridden {
            let sources = policy.sources.get(overridden.source).zip(policy.sources.get(overridden.by));
            let Some((younger, older)) = sources else { continue };
            let field = overridden.field;
            add(younger, format!("{field}: {older} is older and comes first"), false);
            add(older, format!("{field}: comes before {younger}, which is younger"), false);
        }
        for (source, problem) in &policy.problems {
            if matches!(problem.reason, ProblemReason::Limited { .. })
                && let Some(source) = policy.sources.get(*source)
            {
                add(source, problem.to_string(), true);
            }
        }
    }
    uses.into_values().collect()
}

/// Returns the name of the object of a source. The name of an annotation is empty, which is the name of no object.
fn name_of(source: &Source) -> PolicyName {
    match source.name.split_once('/') {
        Some((namespace, name)) if source.level == Level::Namespaced => {
            PolicyName { namespace: Some(namespace.into()), name: name.into() }
        }
        _ => PolicyName { namespace: None, name: Arc::clone(&source.name) },
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
    // With the UID, the API server refuses the write if the object was deleted and created again.
    let patch = json!({ "metadata": { "uid": policy.object.uid }, "status": status });
    let body = patch.to_string().into_bytes();
    let call = Call::send(Method::PATCH, segments, "application/merge-patch+json", body)
        .about(format!("{}.{GROUP}", kind.resource()), name)
        .subresource("status");
    client.json::<Stored>(&call).await.map(|Stored { status }| status)
}

/// The time after which a status that the server did not keep is written again, because the definition may have
/// changed.
const KEPT_OUT: Duration = Duration::from_mins(10);
/// The time after which a failed write is retried.
const FAILED: Duration = Duration::from_mins(1);

/// The last write that failed or had no effect, by policy object.
#[derive(Debug, Default)]
struct Attempts {
    attempts: BTreeMap<PolicyName, Attempt>,
}

#[derive(Debug)]
struct Attempt {
    /// The written status, without times.
    written: PolicyStatus,
    /// The status that the server has stored, without times.
    stored: PolicyStatus,
    /// The earliest time of a retry of the same write.
    until: Instant,
}

impl Attempts {
    /// Returns whether to write `status` over the status `stored`. False while a retry of the same write is postponed.
    fn is_due(&self, name: &PolicyName, stored: &PolicyStatus, status: &PolicyStatus, now: Instant) -> bool {
        self.attempts.get(name).is_none_or(|attempt| {
            now >= attempt.until
                || attempt.written != status.without_times()
                || attempt.stored != stored.without_times()
        })
    }

    /// Postpones the retry of a write that failed or had no effect.
    fn postpone(&mut self, name: PolicyName, stored: &PolicyStatus, status: &PolicyStatus, until: Instant) {
        let (written, stored) = (status.without_times(), stored.without_times());
        self.attempts.insert(name, Attempt { written, stored, until });
    }

    /// Drops the attempts of policies that no longer exist.
    fn retain(&mut self, names: &BTreeSet<&PolicyName>) {
        self.attempts.retain(|name, _| names.contains(name));
    }
}
