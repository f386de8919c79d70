//! The guard of `--scope=labelled`, which refuses the writes of the built-in controller to HPAs in scope.
//!
//! | part | where it runs |
//! |---|---|
//! | [`review`]: the decisions of the webhook | every replica, on a separate thread |
//! | [`certificate`]: the webhook's certificate and its authorities | every replica |
//! | [`Check`]: the check of the guard's objects | every replica |
//! | [`Check`]: the update of `caBundle` in the webhook configuration | the leader |

#![allow(
    clippy::indexing_slicing,
    reason = "indexes JSON only, where a missing field is null instead of a panic"
)]

pub mod authority;
pub mod certificate;
pub mod review;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
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
use rustls::crypto::CryptoProvider;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::certificate::{Certificate, service_name};
use clock::SharedClock;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::typed;
use controller::handover::charges::{Charges, GuardProof};
use controller::handover::objects::GuardObjects;
use controller::handover::proof::{Defect, policies, webhook};

/// The interval between checks.
const INTERVAL: Duration = Duration::from_secs(20);
/// The interval between checks while the guard is not proven.
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
        let service = service_name(&self.objects.namespace, &name);
        let trusts = |bundle: &str| {
            certificate.is_trusted_by(&decoded(bundle), &service, self.clock.now(), &self.provider)
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

/// Sets `caBundle` of Concertina's webhook to `bundle`, in PEM. Returns whether the configuration changed.
fn set_bundle(configuration: &mut ValidatingWebhookConfiguration, bundle: &str) -> bool {
    let mut changed = false;
    for webhook in configuration.webhooks.iter_mut().flatten() {
        if webhook.name != controller::handover::objects::WEBHOOK {
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
