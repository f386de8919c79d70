//! Reads for guards of a scaling policy: the target's rollout, the owners of its pods, and the pods that cannot be
//! scheduled. A sync sends only the requests that the guards of its HPA need. All of them are lists, because the
//! controller's role permits listing targets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::pod::Phase;
use autoscaling::status::CrossVersionObjectReference;
use autoscaling::{Plan, target_group};
use policies::guards::Rollout;
use policies::spec::{PendingPods, RolloutGuard};
use policies::steps::PolicyEffect;
use serde::Deserialize;
use serde_json::Value;

use super::PolicyRules;
use crate::Resolved;
use cluster::error::ApiError;
use cluster::mapper::MapError;
use cluster::watch::{Collection, each, each_labelled};
use engine::reconcile::WorkerPermit;
use engine::store::HpaRecord;

/// The results of the reads. A guard without a result has no effect.
#[derive(Debug, Default)]
pub(super) struct GuardReads {
    /// The rollout of the target.
    pub(super) rollout: Option<Rollout>,
    /// The number of pods that the scheduler cannot place.
    pub(super) unschedulable: i32,
    /// The names of the pods that the target does not control.
    pub(super) others: Arc<BTreeSet<String>>,
    failures: Vec<GuardReadError>,
}

/// The reason why a guard has no effect.
#[derive(Debug, thiserror::Error)]
enum GuardReadError {
    #[error("guards.rollout: the rollout of a {0} is unknown; the guard has no effect")]
    Kind(String),
    #[error("guards.{guard}: failed to map the target: {source}; the guard has no effect")]
    Target { guard: &'static str, source: MapError },
    #[error("guards.{guard}: failed to list {resource}: {source}; the guard has no effect")]
    List { guard: &'static str, resource: String, source: ApiError },
}

/// The part of an object that names its owner.
#[derive(Debug, Deserialize)]
struct Owned {
    metadata: OwnedMetadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnedMetadata {
    name: String,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference {
    api_version: String,
    kind: String,
    name: String,
    #[serde(default)]
    controller: bool,
}

impl Owned {
    /// Returns the owner that controls the object.
    fn controller(self) -> Option<OwnerReference> {
        self.metadata.owner_references.into_iter().find(|owner| owner.controller)
    }
}

impl OwnerReference {
    fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    fn is(&self, group: &str, target: &CrossVersionObjectReference) -> bool {
        self.group() == group && self.kind == target.kind && self.name == target.name
    }
}

impl GuardReads {
    /// Adds the failed reads to the problems of a policy, because the affected guards have no effect.
    pub(super) fn report(&self, effect: &mut PolicyEffect) {
        for failure in &self.failures {
            if !effect.problems.is_empty() {
                effect.problems.push_str("; ");
            }
            effect.problems.push_str(&failure.to_string());
        }
    }
}

impl PolicyRules {
    /// Reads the state that the guards of a policy need, without holding a worker.
    pub(super) async fn read_for_guards(
        &self,
        record: &HpaRecord,
        policy: &Resolved,
        plan: &Plan,
        permit: &mut WorkerPermit,
    ) -> GuardReads {
        let mut reads = GuardReads::default();
        let Some(scale) = plan.scale() else { return reads };
        let guards = &policy.rules.policy.spec.guards;
        let rollout = guards.rollout.is_some_and(|guard| guard != RolloutGuard::Ignore);
        let owners = guards.owned_pods_only == Some(true);
        let unschedulable = matches!(guards.pending_pods, Some(PendingPods { unschedulable_only: true, .. }));
        if !plan.reads_metrics() || !(rollout || owners || unschedulable) {
            return reads;
        }
        permit.release();
        let (namespace, selector) = (&*record.key.namespace, &*scale.selector_text);
        let mut failures = Vec::new();
        if rollout {
            match self.read_rollout(record).await {
                Ok(rollout) => reads.rollout = rollout,
                Err(error) => failures.push(error),
            }
        }
        if owners {
            match self.read_others(record, selector).await {
                Ok(others) => reads.others = Arc::new(others),
                Err(error) => failures.push(error),
            }
        }
        let waits = || {
            let pods = self.pods.select(namespace, &scale.selector);
            pods.iter().any(|pod| pod.phase == Phase::Pending && !pod.terminating)
        };
        if unschedulable && waits() {
            match self.read_unschedulable(namespace, selector, &reads.others).await {
                Ok(count) => reads.unschedulable = count,
                Err(error) => failures.push(error),
            }
        }
        for error in &failures {
            tracing::debug!(hpa = %record.key, %error, "failed to read the state that a guard needs");
        }
        reads.failures = failures;
        permit.acquire(&record.key.namespace).await;
        reads
    }

    async fn read_rollout(&self, record: &HpaRecord) -> Result<Option<Rollout>, GuardReadError> {
        const GUARD: &str = "rollout";
        let target = &record.spec.target;
        // The Scale of the target was read, so the reference is valid.
        let group = target_group(target).unwrap_or_default();
        match (group, target.kind.as_str()) {
            ("apps", "Deployment" | "StatefulSet") | ("argoproj.io", "Rollout") => {}
            _ => return Err(GuardReadError::Kind(target.kind.clone())),
        }
        let mappings = self.mapper.mappings(group, &target.kind).await;
        let mappings = mappings.map_err(|source| GuardReadError::Target { guard: GUARD, source })?;
        let Some(mapping) = mappings.first() else { return Ok(None) };
        let fields = format!("metadata.name={}", target.name);
        let collection = Collection {
            group,
            version: &mapping.version,
            namespace: Some(&record.key.namespace),
            resource: &mapping.resource,
            fields: &fields,
        };
        let mut rollout = None;
        let listed = each(&self.guard_reads, collection, |object| {
            let object: Value = serde_json::from_slice(object)?;
            rollout = Rollout::from_object(&target.kind, &object);
            Ok(())
        });
        listed.await.map_err(|source| GuardReadError::List {
            guard: GUARD,
            resource: mapping.group_resource(),
            source,
        })?;
        Ok(rollout)
    }

    /// Returns the names of the pods that the target does not control: pods of another controller, and pods without a
    /// controller. Omits a pod whose ReplicaSet is not in the list. If the kind of the target is unknown, omits every
    /// pod with a controller, because the target may own that controller.
    async fn read_others(
        &self,
        record: &HpaRecord,
        selector: &str,
    ) -> Result<BTreeSet<String>, GuardReadError> {
        let target = &record.spec.target;
        let group = target_group(target).unwrap_or_default();
        let has_replica_sets =
            matches!((group, &*target.kind), ("apps", "Deployment") | ("argoproj.io", "Rollout"));
        let has_pods = matches!(
            (group, &*target.kind),
            ("apps", "ReplicaSet" | "StatefulSet") | ("", "ReplicationController")
        );
        let mut owners = BTreeMap::new();
        self.list_owners(record, "", "pods", selector, &mut owners).await?;
        let mut sets = BTreeMap::new();
        if has_replica_sets && owners.values().flatten().any(|owner| !owner.is(group, target)) {
            self.list_owners(record, "apps", "replicasets", selector, &mut sets).await?;
        }
        let is_other = |owner: &Option<OwnerReference>| match owner {
            None => true,
            Some(owner) if owner.is(group, target) => false,
            Some(owner) if has_replica_sets && owner.group() == "apps" && owner.kind == "ReplicaSet" => {
                // A ReplicaSet without an owner does not belong to the target.
                sets.get(&owner.name).is_some_and(|of: &Option<OwnerReference>| {
                    of.as_ref().is_none_or(|of| !of.is(group, target))
                })
            }
            Some(_) => has_replica_sets || has_pods,
        };
        Ok(owners.into_iter().filter(|(_, owner)| is_other(owner)).map(|(pod, _)| pod).collect())
    }

    async fn list_owners(
        &self,
        record: &HpaRecord,
        group: &str,
        resource: &str,
        selector: &str,
        owners: &mut BTreeMap<String, Option<OwnerReference>>,
    ) -> Result<(), GuardReadError> {
        let version = "v1";
        let namespace = Some(&*record.key.namespace);
        let collection = Collection { group, version, namespace, resource, fields: "" };
        let listed = each_labelled(&self.guard_reads, collection, selector, |object| {
            let object: Owned = serde_json::from_slice(object)?;
            owners.insert(object.metadata.name.clone(), object.controller());
            Ok(())
        });
        listed.await.map_err(|source| GuardReadError::List {
            guard: "ownedPodsOnly",
            resource: resource.to_owned(),
            source,
        })
    }

    async fn read_unschedulable(
        &self,
        namespace: &str,
        selector: &str,
        others: &BTreeSet<String>,
    ) -> Result<i32, GuardReadError> {
        let fields = "status.phase=Pending";
        let collection =
            Collection { group: "", version: "v1", namespace: Some(namespace), resource: "pods", fields };
        let mut count = 0_i32;
        let listed = each_labelled(&self.guard_reads, collection, selector, |object| {
            let object: Value = serde_json::from_slice(object)?;
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            count = count.saturating_add(i32::from(is_unschedulable(&object) && !others.contains(name)));
            Ok(())
        });
        listed.await.map_err(|source| GuardReadError::List {
            guard: "pendingPods.unschedulableOnly",
            resource: "pods".to_owned(),
            source,
        })?;
        Ok(count)
    }
}

/// Returns whether the scheduler cannot place a pod. False for a pod that is being deleted.
fn is_unschedulable(pod: &Value) -> bool {
    let terminates = pod.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let matches = |condition: &Value, field: &str, value: &str| {
        condition.get(field).and_then(Value::as_str) == Some(value)
    };
    let is_refused = |condition: &Value| {
        matches(condition, "type", "PodScheduled")
            && matches(condition, "status", "False")
            && matches(condition, "reason", "Unschedulable")
    };
    !terminates && conditions.is_some_and(|conditions| conditions.iter().any(is_refused))
}
