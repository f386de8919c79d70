//! One Lease of coordination.k8s.io for leader election: read, create, replace and watch, with a separate
//! client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1 as wire;
use kube::Api;
use kube::api::{ObjectMeta, PostParams, WatchEvent, WatchParams};
use tokio::time::{Instant, timeout_at};

use super::Peer;
use super::record::{Lease, Record};
use cluster::client::Client;
use cluster::decode::DecodeError;
use cluster::error::ApiError;
use cluster::typed;

/// Seconds after which the server ends a watch. The client ends the watch after an additional grace period.
const WATCH: u32 = 300;
const GRACE: Duration = Duration::from_secs(15);

/// Returns the address of this replica for other replicas, if they can reach it.
pub type Advertised = Arc<dyn Fn() -> Option<Peer> + Send + Sync>;

/// One Lease, which may not exist yet.
#[derive(Clone)]
pub struct Leases {
    client: Client,
    namespace: Arc<str>,
    name: Arc<str>,
    /// The address of this replica for other replicas, published in the Lease.
    advertised: Option<Advertised>,
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("key", &self.key()).finish_non_exhaustive()
    }
}

impl Leases {
    /// Creates a client of the Lease with the given name. `timeout` limits each request, so that a request
    /// that hangs leaves time for another.
    pub fn new(client: &Client, namespace: &str, name: &str, timeout: Duration) -> Self {
        Self {
            client: client.within(timeout),
            namespace: namespace.into(),
            name: name.into(),
            advertised: None,
        }
    }

    /// Adds this process's address to the Lease whenever it writes the Lease as the holder.
    #[must_use]
    pub fn with_peer(self, advertised: Option<Advertised>) -> Self {
        Self { advertised, ..self }
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reads the Lease. `None` if it does not exist.
    pub async fn get(&self) -> Result<Option<Lease>, ApiError> {
        Ok(typed::get(&self.api(), &self.name).await?.map(Lease::from))
    }

    /// Creates the Lease.
    pub async fn create(&self, record: &Record) -> Result<Lease, ApiError> {
        let metadata = ObjectMeta { name: Some(self.name.to_string()), ..ObjectMeta::default() };
        let lease = self.object(&Lease { record: record.clone(), metadata });
        Ok(self.api().create(&PostParams::default(), &lease).await?.into())
    }

    /// Replaces the Lease if its `resourceVersion` is unchanged. Keeps all metadata except for the annotations of the
    /// serving address and its certificate.
    pub async fn replace(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let lease = self.object(lease);
        Ok(self.api().replace(&self.name, &PostParams::default(), &lease).await?.into())
    }

    fn object(&self, lease: &Lease) -> wire::Lease {
        // A released Lease has no address.
        let here =
            self.advertised.as_ref().filter(|_| lease.record.is_held()).and_then(|advertised| advertised());
        wire::Lease { metadata: lease.metadata_with(here), spec: Some(lease.record.clone().into()) }
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
    /// Returns the next state of the Lease, or `None` if it was deleted. Fails at any error and at the end of
    /// the watch. The caller then opens another watch.
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
