//! The decisions about the requests of the API server, from memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use crate::serve::webhook::Reviewer;
use cluster::mapper::Mapper;
use controller::election::LeaseLife;
use controller::handover::admission::{Facts, Request, Verdict, decide};
use controller::handover::charges::Charges;
use controller::telemetry::metrics::Metrics as Telemetry;

/// The interval between checks for unmapped kinds.
const NEW_KINDS: Duration = Duration::from_secs(1);
/// The interval between updates of the resources of all kinds.
const REFRESH: Duration = Duration::from_mins(10);
/// Group, kind and resource of the scalable kinds that every cluster serves.
const BUILT_IN: [(&str, &str, &str); 4] = [
    ("apps", "Deployment", "deployments"),
    ("apps", "StatefulSet", "statefulsets"),
    ("apps", "ReplicaSet", "replicasets"),
    ("", "ReplicationController", "replicationcontrollers"),
];

/// The inputs of the decisions.
#[derive(Debug)]
pub struct Review {
    /// The HPAs in scope.
    pub charges: Arc<Charges>,
    /// `--built-in-users`.
    pub built_in_users: BTreeSet<String>,
    /// Reports whether any replica is the leader. `None` without leader election, where this process acts as the
    /// leader.
    pub lease: Option<LeaseLife>,
    /// The resources of the kinds in scope.
    pub plurals: Arc<Plurals>,
    /// The metrics, which count refused writes.
    pub telemetry: Telemetry,
}

impl Review {
    /// Returns the function that decides about requests to the webhook.
    pub fn reviewer(self) -> Arc<Reviewer> {
        Arc::new(move |body| {
            let request = Request::parse(body)?;
            let has_resource =
                |group: &str, kind: &str, resource: &str| self.plurals.has_resource(group, kind, resource);
            let facts = Facts {
                built_in_users: &self.built_in_users,
                charges: &self.charges,
                leader_is_alive: self.lease.as_ref().is_none_or(LeaseLife::is_live),
                has_resource: &has_resource,
            };
            let verdict = decide(&request, &facts);
            if let Verdict::Refuse { resource, namespace, hpa } = &verdict
                && !request.is_dry_run()
            {
                self.telemetry.handover_refused(resource.as_str());
                self.charges.write_refused(namespace, hpa, Instant::now());
            }
            Ok(verdict.response(&request.uid))
        })
    }
}

/// The resources of each kind of target in scope, by group and kind. They are mapped before a request needs them.
#[derive(Debug, Default)]
pub struct Plurals(RwLock<BTreeMap<(String, String), Vec<String>>>);

impl Plurals {
    fn has_resource(&self, group: &str, kind: &str, resource: &str) -> bool {
        if BUILT_IN.contains(&(group, kind, resource)) {
            return true;
        }
        let known = self.0.read();
        let resources = known.get(&(group.to_owned(), kind.to_owned()));
        resources.is_some_and(|resources| resources.iter().any(|known| known == resource))
    }

    /// Maps the kinds of all targets in scope to resources, by discovery, until the future is dropped.
    pub async fn keep_current(&self, charges: &Charges, mapper: &Mapper) {
        let mut refresh = Instant::now();
        loop {
            let now = Instant::now();
            let is_refresh = now >= refresh;
            if is_refresh {
                refresh = now + REFRESH;
            }
            let kinds = charges.target_kinds();
            self.0.write().retain(|kind, _| kinds.contains(kind));
            for kind in kinds {
                let is_known = self.0.read().contains_key(&kind);
                if is_known && !is_refresh {
                    continue;
                }
                // After a failure, the kind keeps its previous resources. The mapper caches failures, so this loop
                // sends few requests.
                if let Ok(mappings) = mapper.mappings(&kind.0, &kind.1).await {
                    let resources = mappings.iter().map(|mapping| mapping.resource.clone()).collect();
                    self.0.write().insert(kind, resources);
                }
            }
            tokio::time::sleep(NEW_KINDS).await;
        }
    }
}
