//! One Lease of coordination.k8s.io for leader election: its record, and its client, which reads, creates, replaces and
//! watches it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{self as wire, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{PostParams, WatchEvent, WatchParams};
use tokio::time::{Instant, timeout_at};

use cluster::client::Client;
use cluster::decode::DecodeError;
use cluster::error::ApiError;
use cluster::typed;

/// Seconds after which the server ends a watch. The client ends the watch after an additional grace period.
const WATCH: u32 = 300;
const GRACE: Duration = Duration::from_secs(15);

/// `spec` of a Lease of coordination.k8s.io/v1, as leader election uses it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Identity of the holder. Empty after a release.
    pub holder: String,
    /// Seconds from the last renewal to the expiry.
    pub lease_duration_seconds: i32,
    /// Time at which the holder acquired the Lease.
    pub acquire_time: Option<Timestamp>,
    /// Time of the holder's last renewal, by the holder's clock. Other candidates do not derive the expiry from it.
    pub renew_time: Option<Timestamp>,
    /// Number of changes of the holder.
    pub transitions: i32,
}

impl From<LeaseSpec> for Record {
    fn from(spec: LeaseSpec) -> Self {
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquire_time: spec.acquire_time.map(|time| time.0),
            renew_time: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }
}

impl From<Record> for LeaseSpec {
    fn from(record: Record) -> Self {
        Self {
            holder_identity: Some(record.holder),
            lease_duration_seconds: Some(record.lease_duration_seconds),
            acquire_time: record.acquire_time.map(MicroTime),
            renew_time: record.renew_time.map(MicroTime),
            lease_transitions: Some(record.transitions),
            ..Self::default()
        }
    }
}

impl Record {
    /// Returns the lease duration. Returns zero for a negative value.
    pub fn length(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }

    /// Returns whether the Lease has a holder, expired or not.
    pub fn is_held(&self) -> bool {
        !self.holder.is_empty()
    }
}

/// A record with the metadata of its object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lease {
    /// `spec`.
    pub record: Record,
    /// `metadata` as received. A write sends it back. Its `resourceVersion` names the version that the write replaces,
    /// so that only one of two concurrent writes succeeds.
    pub metadata: ObjectMeta,
}

impl From<wire::Lease> for Lease {
    fn from(lease: wire::Lease) -> Self {
        Self { record: lease.spec.unwrap_or_default().into(), metadata: lease.metadata }
    }
}

/// One Lease, which may not exist yet.
#[derive(Clone)]
pub struct Leases {
    client: Client,
    namespace: Arc<str>,
    name: Arc<str>,
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("key", &self.key()).finish_non_exhaustive()
    }
}

impl Leases {
    /// Creates a client of the Lease with the given name. `timeout` limits each request, so that there is time for a
    /// second request if the first hangs.
    pub fn new(client: &Client, namespace: &str, name: &str, timeout: Duration) -> Self {
        Self { client: client.within(timeout), namespace: namespace.into(), name: name.into() }
    }

    /// Returns `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reads the Lease. `None` if it does not exist.
    pub async fn get(&self) -> Result<Option<Lease>, ApiError> {
        Ok(typed::get(&self.api(), &self.name).await?.map(Lease::from))
    }

    /// Creates the Lease with the given record. Fails if the Lease exists.
    pub async fn create(&self, record: &Record) -> Result<Lease, ApiError> {
        let metadata = ObjectMeta { name: Some(self.name.to_string()), ..ObjectMeta::default() };
        let lease = wire::Lease { metadata, spec: Some(record.clone().into()) };
        Ok(self.api().create(&PostParams::default(), &lease).await?.into())
    }

    /// Replaces the Lease if its `resourceVersion` is unchanged. Keeps all metadata.
    pub async fn replace(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let lease = wire::Lease { metadata: lease.metadata.clone(), spec: Some(lease.record.clone().into()) };
        Ok(self.api().replace(&self.name, &PostParams::default(), &lease).await?.into())
    }

    /// Watches the Lease for changes after the given version.
    pub async fn watch(&self, version: &str) -> Result<LeaseWatch, ApiError> {
        let fields = format!("metadata.name={}", self.name);
        let params = WatchParams::default().disable_bookmarks().fields(&fields).timeout(WATCH);
        let events = self.api().watch(&params, version).await?.boxed();
        Ok(LeaseWatch { events, until: Instant::now() + Duration::from_secs(WATCH.into()) + GRACE })
    }

    fn api(&self) -> Api<wire::Lease> {
        self.client.namespaced(&self.namespace)
    }
}

/// A watch of one Lease.
pub struct LeaseWatch {
    events: BoxStream<'static, kube::Result<WatchEvent<wire::Lease>>>,
    until: Instant,
}

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseWatch").field("until", &self.until).finish_non_exhaustive()
    }
}

impl LeaseWatch {
    /// Returns the next state of the Lease, or `None` if it was deleted. Fails at any error and at the end of the
    /// watch. The caller then opens another watch.
    pub async fn next(&mut self) -> Result<Option<Lease>, ApiError> {
        let ended = || ApiError::Decode(DecodeError::new("the Lease watch ended"));
        loop {
            let event = timeout_at(self.until, self.events.next()).await.map_err(|_| ended())?;
            match event.ok_or_else(ended)?? {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => return Ok(Some(lease.into())),
                WatchEvent::Deleted(_) => return Ok(None),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => return Err(ended()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn record_is_serialized_like_client_go() {
        let record = Record {
            holder: "node-1_abc".to_owned(),
            lease_duration_seconds: 15,
            acquire_time: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            renew_time: Some("2026-01-02T03:04:05.123456789Z".parse().unwrap()),
            transitions: 2,
        };
        assert_eq!(
            serde_json::to_value(LeaseSpec::from(record)).unwrap(),
            json!({
                "holderIdentity": "node-1_abc",
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-02T03:04:05.000000Z",
                "renewTime": "2026-01-02T03:04:05.123456Z",
                "leaseTransitions": 2,
            })
        );
        let released = serde_json::to_value(LeaseSpec::from(Record::default())).unwrap();
        assert_eq!(released, json!({"holderIdentity": "", "leaseDurationSeconds": 0, "leaseTransitions": 0}));
    }

    #[test]
    fn missing_fields_equal_a_lease_without_a_holder() {
        let record = Record::from(LeaseSpec::default());
        assert!(!record.is_held());
        assert_eq!(record.length(), Duration::ZERO);
    }
}
