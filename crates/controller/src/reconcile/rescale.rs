//! Writes a Scale by PUT with the version that was read, and retries on conflict.
//!
//! A write with a lost response may have been applied. The client sends it again only if the server requests
//! it (429 or 5xx with `Retry-After`). Otherwise the Scale is read back, and its content counts. If the
//! outcome stays unknown, because the request may still arrive, the write counts as failed. The next sync then
//! reconciles the history.

use std::time::Duration;

use autoscaling::WriteOutcome;

use super::scale::ScaleTokens;
use crate::store::Key;
use cluster::error::ApiError;
use cluster::mapper::Mapping;
use cluster::scale::{ScaleObject, Scales};

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

/// Writes a count. On conflict, reads the Scale again and writes the same count on top. Returns the version
/// of the target after the write, if known.
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

/// Determines the outcome of a write with a lost response. The same count from another writer counts as an
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
