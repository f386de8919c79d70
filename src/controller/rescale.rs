//! The write of a Scale: by PUT with the version that was read, again on conflict.
//!
//! A write whose answer was lost may have been applied. It is never sent again: the Scale is read back, and what it says
//! counts. If that leaves it open, for it may still arrive, the write has failed as far as anybody is told, and the next sync
//! settles what is remembered of it.

use std::time::Duration;

use autoscaling::WriteOutcome;

use crate::api::error::ApiError;
use crate::api::mapper::Mapping;
use crate::api::scale::{ScaleObject, Scales};
use crate::store::Key;

/// Tries in all, as the reference's retry on conflict.
const TRIES: u32 = 5;
/// Wait between two tries. The reference adds up to a tenth of it at random; nothing depends on that.
const WAIT: Duration = Duration::from_millis(10);

/// What is written: where it was read, and as what.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) mapping: Mapping,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) object: ScaleObject,
}

/// Writes a count. On conflict the Scale is read again and the same count written on top of it. With the version that the
/// target then has, if that is known.
pub(super) async fn rescale(
    scales: &Scales,
    key: &Key,
    target: Target,
    to: i32,
) -> (WriteOutcome, Option<String>) {
    let Target { mapping, namespace, name, mut object } = target;
    let mut attempt = 1;
    loop {
        object.spec_replicas = to;
        let error = match scales.put(&mapping, &namespace, &name, &object).await {
            Ok(written) => return (WriteOutcome::Done, Some(written.resource_version)),
            Err(error) if error.is_refused() => return (WriteOutcome::Withheld, None),
            Err(error) if error.outcome_unknown() => {
                let target = Target { mapping, namespace, name, object };
                return read_back(scales, key, &target, &error).await;
            }
            Err(error) => error,
        };
        if !error.is_conflict() || attempt == TRIES {
            return (failed(key, &error), None);
        }
        tokio::time::sleep(WAIT).await;
        object = match scales.get(&mapping, &namespace, &name).await {
            Ok(object) => object,
            Err(error) => return (failed(key, &error), None),
        };
        attempt += 1;
    }
}

/// Looks what became of a write whose answer was lost. Another writer that set the same count does as well: it stands.
async fn read_back(
    scales: &Scales,
    key: &Key,
    sent: &Target,
    lost: &ApiError,
) -> (WriteOutcome, Option<String>) {
    let found = scales.read_back(&sent.mapping, &sent.namespace, &sent.name).await;
    match found {
        Ok(found) if found.uid == sent.object.uid && found.spec_replicas == sent.object.spec_replicas => {
            tracing::info!(hpa = %key, error = %lost, "the answer to a write of the scale was lost, but it was applied");
            (WriteOutcome::Done, Some(found.resource_version))
        }
        // Whatever became of the one that was written to.
        Ok(found) if found.uid != sent.object.uid => (failed(key, lost), None),
        Ok(_) => (unknown(key, lost), None),
        Err(error) => {
            tracing::debug!(hpa = %key, %error, "what became of the write cannot be read");
            (unknown(key, lost), None)
        }
    }
}

fn unknown(key: &Key, error: &ApiError) -> WriteOutcome {
    tracing::warn!(hpa = %key, %error, "nobody knows whether the scale was written");
    WriteOutcome::Unknown(error.to_string())
}

fn failed(key: &Key, error: &ApiError) -> WriteOutcome {
    tracing::warn!(hpa = %key, %error, "the scale could not be written");
    WriteOutcome::Failed(error.to_string())
}
