//! The guard of `--scope=labelled`, which refuses the writes of the built-in controller to HPAs in scope.
//!
//! | part | where it runs |
//! |---|---|
//! | [`Review`]: the decisions of the webhook | every replica, on a separate thread |
//! | [`certificate`]: the webhook's certificate and its authorities | every replica |
//! | [`Check`]: the check of the guard's objects | every replica |
//! | [`Check`]: the update of `caBundle` in the webhook configuration | the leader |

#![allow(
    clippy::indexing_slicing,
    reason = "indexes JSON only, where a missing field is null instead of a panic"
)]

pub mod authority;
pub mod certificate;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use kube::api::PostParams;
use kube::core::ClusterResourceScope;
use kube::{Api, Resource};
use parking_lot::RwLock;
use rustls::crypto::CryptoProvider;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use self::certificate::Certificate;
use crate::serve::webhook::Reviewer;
use clock::SharedClock;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::mapper::Mapper;
use cluster::typed;
use coexist::handover::admission::{Facts, Request, Verdict, decide};
use coexist::handover::charges::{Charges, GuardProof};
use coexist::handover::objects::{GuardObjects, WEBHOOKS};
use coexist::handover::proof::{Defect, policies, webhook};
use controller::election::LeaseLife;
use engine::telemetry::metrics::Metrics as Telemetry;

/// The interval between checks while the guard is proven.
const INTERVAL: Duration = Duration::from_secs(20);
/// The interval before the next check after a failed check.
const RETRY: Duration = Duration::from_secs(5);

/// The guard that [`Check`] verifies.
#[derive(Debug, Clone)]
pub enum CheckedGuard {
    /// The webhook, with its certificate.
    Webhook(Arc<Certificate>),
    /// The validating admission policies.
    Policy,
}

/// Reads the guard's objects, reports whether they prove the guard, and keeps `caBundle` current.
pub struct Check {
    /// The expected objects.
    pub objects: GuardObjects,
    /// The guard that `--handover-guard` selects.
    pub guard: CheckedGuard,
    /// The client for the objects.
    pub client: Client,
    /// The receiver of the results.
    pub charges: Arc<Charges>,
    /// Returns whether this replica is the leader, which writes `caBundle`.
    pub leads: Box<dyn Fn() -> bool + Send + Sync>,
    /// The source of the time of day.
    pub clock: SharedClock,
    /// The cryptography for the verification of certificates.
    pub provider: Arc<CryptoProvider>,
}

impl Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check").field("objects", &self.objects).finish_non_exhaustive()
    }
}

/// The reason why the objects could not be checked.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Defect(#[from] Defect),
    #[error(
        "cannot read {object}: {error}; grant get on it, as concertina rbac prints, or select another \
         --handover-guard"
    )]
    Forbidden { object: String, error: ApiError },
    #[error(transparent)]
    Api(ApiError),
}

impl Check {
    /// Checks the objects until the future is dropped. A failed request does not change the last result, unless the
    /// permission to read is missing.
    pub async fn run(self) {
        let mut proven_since = None;
        let mut last = None;
        loop {
            let result = self.check().await;
            let now = self.clock.now();
            let text = result.as_ref().err().map(ToString::to_string);
            let is_new = last.as_ref() != Some(&text);
            let pause = match result {
                Ok(()) => {
                    let since = *proven_since.get_or_insert(now);
                    self.charges.guard(GuardProof::Proven { since });
                    if is_new {
                        tracing::info!(guard = self.objects.name(), "the guard is in place");
                    }
                    INTERVAL
                }
                Err(CheckError::Api(error)) => {
                    if is_new {
                        tracing::debug!(%error, "failed to check the guard; retrying");
                    }
                    RETRY
                }
                Err(error) => {
                    proven_since = None;
                    self.charges.guard(GuardProof::Broken { reason: error.to_string() });
                    if is_new {
                        tracing::warn!(%error, "the guard does not refuse the writes of the built-in controller");
                    }
                    RETRY
                }
            };
            last = Some(text);
            tokio::time::sleep(pause).await;
        }
    }

    async fn check(&self) -> Result<(), CheckError> {
        match &self.guard {
            CheckedGuard::Webhook(certificate) => self.webhook(certificate).await,
            CheckedGuard::Policy => self.policies().await,
        }
    }

    async fn webhook(&self, certificate: &Certificate) -> Result<(), CheckError> {
        let name = self.objects.name();
        let api: Api<ValidatingWebhookConfiguration> = self.client.cluster_scoped();
        let mut found = self.read(&api, &name).await?;
        if let (Some(configuration), Some(bundle)) = (&mut found, certificate.bundle())
            && (self.leads)()
            && set_bundle(configuration, &bundle)
        {
            let replaced = api.replace(&name, &PostParams::default(), configuration).await;
            match replaced.map_err(ApiError::from) {
                Ok(_) => tracing::info!(configuration = name, "wrote caBundle"),
                // After a conflict, the next check reads the current object.
                Err(error) => return Err(CheckError::Api(error)),
            }
        }
        let value = found.and_then(|found| serde_json::to_value(found).ok());
        let trusts = |bundle: &str, host: &str| {
            certificate.is_trusted_by(&decoded(bundle), host, self.clock.now(), &self.provider)
        };
        Ok(webhook(&self.objects, value.as_ref(), &trusts)?)
    }

    async fn policies(&self) -> Result<(), CheckError> {
        let mut found = BTreeMap::new();
        for expected in self.objects.policies().iter().chain(&self.objects.bindings()) {
            let [kind, name] = [&expected["kind"], &expected["metadata"]["name"]]
                .map(|text| text.as_str().unwrap_or_default().to_owned());
            let value = if kind == "ValidatingAdmissionPolicy" {
                self.value::<ValidatingAdmissionPolicy>(&name).await?
            } else {
                self.value::<ValidatingAdmissionPolicyBinding>(&name).await?
            };
            found.extend(value.map(|value| ((kind, name), value)));
        }
        let object = |kind: &str, name: &str| found.get(&(kind.to_owned(), name.to_owned()));
        Ok(policies(&self.objects, &object)?)
    }

    async fn value<K>(&self, name: &str) -> Result<Option<Value>, CheckError>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Serialize
            + Debug,
    {
        let found = self.read(&self.client.cluster_scoped::<K>(), name).await?;
        Ok(found.and_then(|found| serde_json::to_value(found).ok()))
    }

    async fn read<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, CheckError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        typed::get(api, name).await.map_err(|error| {
            if error.is_forbidden() {
                CheckError::Forbidden { object: format!("{} {name}", K::kind(&())), error }
            } else {
                CheckError::Api(error)
            }
        })
    }
}

/// Sets `caBundle` of Concertina's webhooks to `bundle`, in PEM. Returns whether the configuration changed.
fn set_bundle(configuration: &mut ValidatingWebhookConfiguration, bundle: &str) -> bool {
    let mut changed = false;
    for webhook in configuration.webhooks.iter_mut().flatten() {
        if !WEBHOOKS.contains(&webhook.name.as_str()) {
            continue;
        }
        let current = webhook.client_config.ca_bundle.as_ref().map(|bytes| bytes.0.as_slice());
        if current != Some(bundle.as_bytes()) {
            webhook.client_config.ca_bundle = Some(ByteString(bundle.as_bytes().to_vec()));
            changed = true;
        }
    }
    changed
}

/// Decodes the base64 of a `caBundle` in JSON to PEM. Returns an empty text for invalid input.
fn decoded(bundle: &str) -> String {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(bundle).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

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

/// The inputs of the webhook's decisions.
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
                self.charges.write_refused(namespace, hpa);
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
