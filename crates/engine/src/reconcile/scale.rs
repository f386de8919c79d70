//! Resolves the Scale of a target: from a watch if the watch has it, otherwise from the API server. Writes a Scale by
//! PUT with the `resourceVersion` that was read, and retries on conflict. Claims the selectors of Scales, to find HPAs
//! that control the same pods.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use autoscaling::failure::ScaleFailureClass;
use autoscaling::selector::Selector;
use autoscaling::spec::Spec;
use autoscaling::status::{CrossVersionObjectReference, Status};
use autoscaling::{Hpa, Overlap, Scale, ScaleFailure, WriteOutcome, plan, target_group};

use super::{Controller, Next, WorkerPermit, view};
use crate::store::Key;
use cluster::client::RatePermit;
use cluster::error::ApiError;
use cluster::gate::WritePermit;
use cluster::mapper::{MapError, Mapping};
use cluster::scale::ScaleObject;

/// The Scale of a target, with the data for a write.
#[derive(Debug)]
pub(super) struct ResolvedScale {
    pub(super) scale: Result<Scale, ScaleFailure>,
    /// The target of a write. `None` if the Scale was not read from the API server.
    pub(super) target: Option<Target>,
    /// Whether the Scale comes from a watch, so that a write needs a read first.
    pub(super) cached: bool,
}

impl ResolvedScale {
    fn failed(class: ScaleFailureClass, message: String) -> Self {
        Self { scale: Err(ScaleFailure { class, message }), target: None, cached: false }
    }
}

impl Controller {
    /// Returns the Scale from a watch, or from the API server.
    pub(super) async fn cached_scale(
        &self,
        key: &Key,
        hpa: &Hpa<'_>,
        permit: &mut WorkerPermit,
    ) -> ResolvedScale {
        self.scale_of(key, hpa, Some(permit), true).await
    }

    /// Reads the Scale from the API server. Uses the first of the target's mappings that succeeds. If all mappings
    /// fail, returns the first error.
    pub(super) async fn fetch_scale(
        &self,
        key: &Key,
        hpa: &Hpa<'_>,
        permit: &mut WorkerPermit,
    ) -> ResolvedScale {
        self.scale_of(key, hpa, Some(permit), false).await
    }

    async fn scale_of(
        &self,
        key: &Key,
        hpa: &Hpa<'_>,
        permit: Option<&mut WorkerPermit>,
        may_be_cached: bool,
    ) -> ResolvedScale {
        if hpa.spec.is_too_large {
            self.unwatch(key);
            self.stores.overlap.release(key, &self.stores.pods);
            let ScaleFailure { class, message } = ScaleFailure::too_many_metrics();
            return ResolvedScale::failed(class, message);
        }
        let reference = &hpa.spec.target;
        let group = match target_group(reference) {
            Ok(group) => group,
            Err(error) => {
                self.unwatch(key);
                return ResolvedScale::failed(ScaleFailureClass::InvalidReference, error.to_string());
            }
        };
        let mappings = match self.clients.mapper.mappings(group, &reference.kind).await {
            Ok(mappings) => mappings,
            Err(error) => {
                if matches!(error, MapError::NoMatch { .. }) {
                    self.unwatch(key);
                }
                return ResolvedScale::failed(error.scale_class(), error.to_string());
            }
        };
        if may_be_cached
            && let (Some(targets), Some(mapping)) = (&self.stores.targets, mappings.first())
            && let Some(target) = targets.cached_scale(key, mapping, &reference.name)
            && let Ok(scale) =
                Scale::new(target.replicas, target.status_replicas, &target.selector, self.settings.version)
        {
            return ResolvedScale { scale: Ok(scale), target: None, cached: true };
        }
        let mut tokens = ScaleTokens { controller: self, key, charge: None, permit };
        let mut first_error = None;
        for (index, mapping) in mappings.iter().enumerate() {
            let error = match self.read_at(key, hpa, tokens.next().await, mapping, index == 0).await {
                Ok((target, scale)) => {
                    return ResolvedScale { scale: Ok(scale), target: Some(target), cached: false };
                }
                Err(error) => error,
            };
            first_error.get_or_insert(error);
        }
        let failure = first_error.unwrap_or_else(|| ScaleFailure {
            class: ScaleFailureClass::Other,
            message: "unrecognized resource".to_owned(),
        });
        ResolvedScale { scale: Err(failure), target: None, cached: false }
    }

    /// Reads the Scale through one mapping. `watched`: whether a watch covers this mapping.
    async fn read_at(
        &self,
        key: &Key,
        hpa: &Hpa<'_>,
        token: RatePermit,
        mapping: &Mapping,
        watched: bool,
    ) -> Result<(Target, Scale), ScaleFailure> {
        let name = &hpa.spec.target.name;
        let read = self.clients.scales.get(token, mapping, hpa.namespace, name).await;
        if let (Some(targets), true) = (&self.stores.targets, watched) {
            match &read {
                Ok(object) => targets.observe_version(key, &object.resource_version),
                Err(error) if error.is_not_found() => targets.forget(key),
                Err(_) => {}
            }
        }
        let object = read.map_err(|error: ApiError| ScaleFailure {
            class: error.scale_class(),
            message: error.to_string(),
        })?;
        let (replicas, status_replicas) = (object.spec_replicas, object.status_replicas);
        let scale = Scale::new(replicas, status_replicas, &object.selector, self.settings.version)
            .map_err(|error| ScaleFailure { class: ScaleFailureClass::Other, message: error.to_string() })?;
        let namespace = hpa.namespace.to_owned();
        Ok((Target { mapping: mapping.clone(), namespace, name: name.clone(), object }, scale))
    }

    /// Writes a count and records the `resourceVersion` of the target after the write.
    pub(super) async fn write_scale(
        &self,
        key: &Key,
        target: Target,
        to: i32,
        charge: &WritePermit,
        permit: &mut WorkerPermit,
    ) -> WriteOutcome {
        let tokens = ScaleTokens { controller: self, key, charge: Some(charge), permit: Some(permit) };
        let (outcome, version) = rescale(tokens, target, to).await;
        if let Some(targets) = &self.stores.targets {
            match (&outcome, version) {
                (WriteOutcome::Done, Some(version)) => targets.observe_version(key, &version),
                (WriteOutcome::Withheld | WriteOutcome::NotNeeded, _) => {}
                _ => targets.mark_unknown(key),
            }
        }
        outcome
    }

    pub(super) fn unwatch(&self, key: &Key) {
        if let Some(targets) = &self.stores.targets {
            targets.release(key);
        }
    }

    /// Claims the selector of an HPA's target, as a sync of the HPA would, but decides nothing. A caller that decides
    /// for single HPAs uses this to find the other HPAs that control the same pods.
    pub async fn claim(&self, key: &Key) {
        if let Some(record) = self.stores.hpas.get(key) {
            let hpa = view(&record, &record.spec);
            let ResolvedScale { scale, .. } = self.scale_of(key, &hpa, None, true).await;
            plan(&hpa, scale, |selector| self.overlap(key, selector), &self.settings);
        }
    }

    /// Claims the selector of an HPA out of scope that may share pods with HPAs in scope. For any other key without an
    /// HPA, drops the state.
    pub(super) async fn claim_outside(&self, key: &Key, permit: &mut WorkerPermit) -> Next {
        let Some(target) = self.neighbour(key) else {
            self.forget_key(key);
            return Next::Gone;
        };
        let spec = Spec {
            target,
            min_replicas: None,
            max_replicas: 1,
            metrics: Box::default(),
            behavior: None,
            is_too_large: false,
        };
        let status = Status::default();
        let hpa = Hpa {
            namespace: &key.namespace,
            name: &key.name,
            generation: None,
            spec: &spec,
            status: &status,
        };
        let resolved = self.cached_scale(key, &hpa, permit).await;
        // A target without replicas has no pods to share. The built-in controller claims nothing for it either.
        if let Some(scale) = resolved.scale.ok().filter(|scale| scale.replicas > 0) {
            self.overlap(key, &scale.selector);
        }
        if self.is_gone(key) {
            self.forget_key(key);
            return Next::Gone;
        }
        Next::Period
    }

    /// Returns the target of an HPA out of scope that may share pods with HPAs in scope.
    fn neighbour(&self, key: &Key) -> Option<CrossVersionObjectReference> {
        self.guests.scope.neighbour(key)
    }

    fn is_gone(&self, key: &Key) -> bool {
        self.stores.hpas.get(key).is_none() && self.neighbour(key).is_none()
    }

    pub(super) fn overlap(&self, key: &Key, selector: &Arc<Selector>) -> Overlap {
        let sharing = self.stores.overlap.claim(key, selector, &self.stores.pods);
        // Check after the claim, because a deletion first removes the HPA and then releases its claim.
        if self.is_gone(key) {
            self.stores.overlap.release(key, &self.stores.pods);
            return Overlap::Deleted;
        }
        if sharing.len() > 1 {
            Overlap::Shared(sharing.iter().map(ToString::to_string).collect())
        } else {
            Overlap::None
        }
    }
}

/// Acquires the tokens of the rate limit for a sync's requests to the scale subresource.
#[derive(Debug)]
struct ScaleTokens<'a> {
    controller: &'a Controller,
    key: &'a Key,
    /// The permission for writes. `None` for reads.
    charge: Option<&'a WritePermit>,
    /// The worker of the sync. `None` outside of syncs.
    permit: Option<&'a mut WorkerPermit>,
}

impl ScaleTokens<'_> {
    /// Waits for a token. A sync that must wait releases its worker, and the queue bounds the number of such syncs.
    async fn next(&mut self) -> RatePermit {
        let Self { controller, key, charge, permit } = self;
        let mut token = pin!(controller.clients.scales.turn(&key.namespace));
        let token = if let Poll::Ready(token) = futures::poll!(&mut token) {
            token
        } else if let Some(permit) = permit {
            let waiting = controller.runtime.queue.token_wait(key);
            permit.release();
            let token = token.await;
            drop(waiting);
            permit.acquire(&key.namespace).await;
            token
        } else {
            token.await
        };
        token.for_write(charge.cloned())
    }
}

/// Maximum number of attempts, as in upstream's retry on conflict.
const TRIES: u32 = 5;
/// Pause between two attempts. Upstream adds up to a tenth at random, which makes no difference here.
const WAIT: Duration = Duration::from_millis(10);

/// The target of a write, and its Scale as read.
#[derive(Debug)]
pub(super) struct Target {
    mapping: Mapping,
    namespace: String,
    name: String,
    object: ScaleObject,
}

/// Writes a count. On conflict, reads the Scale again and writes the same count again. Returns the `resourceVersion` of
/// the target after the write, if known.
///
/// A write with a lost response may have been applied. The client retries it only if the server requests a retry (429
/// or 5xx with `Retry-After`). Otherwise the Scale is read back, and its content determines the outcome. The outcome
/// stays unknown if the request may still arrive. The next sync then reconciles the history.
async fn rescale(mut tokens: ScaleTokens<'_>, target: Target, to: i32) -> (WriteOutcome, Option<String>) {
    let (key, scales) = (tokens.key, &tokens.controller.clients.scales);
    let Target { mapping, namespace, name, mut object } = target;
    let mut attempt = 1;
    loop {
        object.spec_replicas = to;
        let error = match scales.put(tokens.next().await, &mapping, &namespace, &name, &object).await {
            Ok(written) => return (WriteOutcome::Done, Some(written.resource_version)),
            Err(error) if error.is_refused() => return (WriteOutcome::Withheld, None),
            Err(error) if error.outcome_unknown() => {
                let target = Target { mapping, namespace, name, object };
                return read_back(tokens, &target, &error).await;
            }
            Err(error) => error,
        };
        if !error.is_conflict() || attempt == TRIES {
            return (failed(key, &error), None);
        }
        tokio::time::sleep(WAIT).await;
        match scales.get(tokens.next().await, &mapping, &namespace, &name).await {
            Ok(latest) => object = latest,
            // As in upstream, the next attempt sends the previous version again and reports the conflict.
            Err(error) => tracing::warn!(hpa = %key, %error, "failed to read the scale after a conflict"),
        }
        attempt += 1;
    }
}

/// Determines the outcome of a write with a lost response. If another client has written the same count, the write is
/// treated as applied.
async fn read_back(
    mut tokens: ScaleTokens<'_>,
    sent: &Target,
    lost: &ApiError,
) -> (WriteOutcome, Option<String>) {
    let (key, scales) = (tokens.key, &tokens.controller.clients.scales);
    let found = scales.read_back(tokens.next().await, &sent.mapping, &sent.namespace, &sent.name).await;
    match found {
        Ok(found) if found.uid == sent.object.uid && found.spec_replicas == sent.object.spec_replicas => {
            tracing::info!(hpa = %key, error = %lost, "scale update was applied although its response was lost");
            (WriteOutcome::Done, Some(found.resource_version))
        }
        // Another object has the name now, so the outcome on the previous object does not matter.
        Ok(found) if found.uid != sent.object.uid => (failed(key, lost), None),
        Ok(_) => (unknown(key, lost), None),
        Err(error) => {
            tracing::debug!(hpa = %key, %error, "failed to read back the scale");
            (unknown(key, lost), None)
        }
    }
}

fn unknown(key: &Key, error: &ApiError) -> WriteOutcome {
    tracing::warn!(hpa = %key, %error, "failed to confirm a scale update, which may have been applied");
    WriteOutcome::Unknown(error.to_string())
}

fn failed(key: &Key, error: &ApiError) -> WriteOutcome {
    tracing::warn!(hpa = %key, %error, "failed to update scale");
    WriteOutcome::Failed(error.to_string())
}
