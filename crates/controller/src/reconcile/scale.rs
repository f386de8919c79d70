//! Resolves the Scale of a target: from a watch if the watch has it, otherwise from the API server. Writes a Scale by
//! PUT with the `resourceVersion` that was read, and retries on conflict.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use autoscaling::failure::ScaleFailureClass;
use autoscaling::{Hpa, Scale, ScaleFailure, WriteOutcome, target_group};

use super::Controller;
use super::worker_pool::WorkerPermit;
use crate::store::Key;
use cluster::client::RatePermit;
use cluster::error::ApiError;
use cluster::gate::WritePermit;
use cluster::mapper::{MapError, Mapping};
use cluster::scale::{ScaleObject, Scales};

/// The Scale of a target and its source.
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
        self.scale_of(
            key,
            hpa,
            ScaleTokens { controller: self, key, charge: None, permit: Some(permit) },
            true,
        )
        .await
    }

    /// Returns the Scale from the API server, by the first of the target's mappings that succeeds. If all
    /// mappings fail, returns the first error.
    pub(super) async fn fetch_scale(
        &self,
        key: &Key,
        hpa: &Hpa<'_>,
        permit: Option<&mut WorkerPermit>,
    ) -> ResolvedScale {
        self.scale_of(key, hpa, ScaleTokens { controller: self, key, charge: None, permit }, false).await
    }

    async fn scale_of(
        &self,
        key: &Key,
        hpa: &Hpa<'_>,
        mut tokens: ScaleTokens<'_>,
        may_be_cached: bool,
    ) -> ResolvedScale {
        let reference = &hpa.spec.target;
        let group = match target_group(reference) {
            Ok(group) => group,
            Err(error) => {
                self.unwatch(key);
                return ResolvedScale::failed(ScaleFailureClass::InvalidReference, error.to_string());
            }
        };
        let mappings = match self.mapper.mappings(group, &reference.kind).await {
            Ok(mappings) => mappings,
            Err(error) => {
                if matches!(error, MapError::NoMatch { .. }) {
                    self.unwatch(key);
                }
                return ResolvedScale::failed(error.scale_class(), error.to_string());
            }
        };
        if may_be_cached
            && let (Some(targets), Some(mapping)) = (&self.targets, mappings.first())
            && let Some(target) = targets.cached_scale(key, mapping, &reference.name)
            && let Ok(scale) = Scale::new(target.replicas, target.status_replicas, &target.selector)
        {
            return ResolvedScale { scale: Ok(scale), target: None, cached: true };
        }
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

    /// Reads the Scale by one mapping. `watched`: whether a watch covers this mapping.
    async fn read_at(
        &self,
        key: &Key,
        hpa: &Hpa<'_>,
        token: RatePermit,
        mapping: &Mapping,
        watched: bool,
    ) -> Result<(Target, Scale), ScaleFailure> {
        let name = &hpa.spec.target.name;
        let read = self.scales.get(token, mapping, hpa.namespace, name).await;
        if let (Some(targets), true) = (&self.targets, watched) {
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
        let scale = Scale::new(object.spec_replicas, object.status_replicas, &object.selector);
        let scale = scale
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
        charge: Option<&WritePermit>,
        permit: &mut WorkerPermit,
    ) -> WriteOutcome {
        let tokens = ScaleTokens { controller: self, key, charge, permit: Some(permit) };
        let (outcome, version) = rescale(&self.scales, tokens, target, to).await;
        if let Some(targets) = &self.targets {
            match (&outcome, version) {
                (WriteOutcome::Done, Some(version)) => targets.observe_version(key, &version),
                (WriteOutcome::Withheld | WriteOutcome::NotNeeded, _) => {}
                _ => targets.mark_unknown(key),
            }
        }
        outcome
    }

    fn unwatch(&self, key: &Key) {
        if let Some(targets) = &self.targets {
            targets.release(key);
        }
    }
}

/// The tokens of a sync for requests of Scales.
#[derive(Debug)]
pub(super) struct ScaleTokens<'a> {
    controller: &'a Controller,
    pub(super) key: &'a Key,
    /// The permission of writes. `None` for reads, or if all HPAs are in scope.
    charge: Option<&'a WritePermit>,
    /// The worker of the sync, if it has one.
    permit: Option<&'a mut WorkerPermit>,
}

impl ScaleTokens<'_> {
    /// Waits for a token. A sync that must wait releases its worker, and the queue bounds the number of such syncs.
    pub(super) async fn next(&mut self) -> RatePermit {
        let Self { controller, key, charge, permit } = self;
        let mut token = pin!(controller.scales.turn(&key.namespace));
        let token = if let Poll::Ready(token) = futures::poll!(&mut token) {
            token
        } else if let Some(permit) = permit {
            let waiting = controller.queue.token_wait(key);
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

/// Maximum attempts, as in upstream's retry on conflict.
const TRIES: u32 = 5;
/// Pause between two attempts. Upstream adds a random part of up to a tenth, which has no consequences here.
const WAIT: Duration = Duration::from_millis(10);

/// The target of a write, as read.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) mapping: Mapping,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) object: ScaleObject,
}

/// Writes a count. On conflict, reads the Scale again and writes the same count again. Returns the `resourceVersion` of
/// the target after the write, if known.
///
/// A write with a lost response may have been applied. The client retries it only if the server requests a retry (429
/// or 5xx with `Retry-After`). Otherwise the Scale is read back, and its content determines the outcome. If the outcome
/// stays unknown, because the request may still arrive, the write counts as failed. The next sync then reconciles the
/// history.
pub(super) async fn rescale(
    scales: &Scales,
    mut tokens: ScaleTokens<'_>,
    target: Target,
    to: i32,
) -> (WriteOutcome, Option<String>) {
    let (key, Target { mapping, namespace, name, mut object }) = (tokens.key, target);
    let mut attempt = 1;
    loop {
        object.spec_replicas = to;
        let error = match scales.put(tokens.next().await, &mapping, &namespace, &name, &object).await {
            Ok(written) => return (WriteOutcome::Done, Some(written.resource_version)),
            Err(error) if error.is_refused() => return (WriteOutcome::Withheld, None),
            Err(error) if error.outcome_unknown() => {
                let target = Target { mapping, namespace, name, object };
                return read_back(scales, tokens, &target, &error).await;
            }
            Err(error) => error,
        };
        if !error.is_conflict() || attempt == TRIES {
            return (failed(key, &error), None);
        }
        tokio::time::sleep(WAIT).await;
        match scales.get(tokens.next().await, &mapping, &namespace, &name).await {
            Ok(latest) => object = latest,
            // As upstream, the next attempt writes the previous version and reports its conflict.
            Err(error) => tracing::warn!(hpa = %key, %error, "failed to read the scale after a conflict"),
        }
        attempt += 1;
    }
}

/// Determines the outcome of a write with a lost response. The same count from another writer is treated as an
/// applied write.
async fn read_back(
    scales: &Scales,
    mut tokens: ScaleTokens<'_>,
    sent: &Target,
    lost: &ApiError,
) -> (WriteOutcome, Option<String>) {
    let key = tokens.key;
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
