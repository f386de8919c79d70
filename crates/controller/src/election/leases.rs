//! One Lease of coordination.k8s.io for leader election: read, create, replace and watch, with a separate
//! client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::Peer;
use super::record::{Lease, Record};
use cluster::body::Lines;
use cluster::call::Call;
use cluster::client::Client;
use cluster::decode::{DecodeError, watch_event};
use cluster::error::ApiError;

const RESOURCE: &str = "leases.coordination.k8s.io";
/// Maximum size of a watch event, in bytes. A Lease is small.
const MAX_LINE: usize = 1 << 20;
/// Time after which the server ends a watch. The client ends the watch after an additional grace period.
const WATCH: Duration = Duration::from_mins(5);
const GRACE: Duration = Duration::from_secs(15);

/// Returns the address of this replica for other replicas, if they can reach it.
pub type Advertised = Arc<dyn Fn() -> Option<Peer> + Send + Sync>;

/// One Lease, which may not exist.
#[derive(Clone)]
pub struct Leases {
    client: Client,
    namespace: Arc<str>,
    name: Arc<str>,
    /// Timeout of each request.
    timeout: Duration,
    /// The address of this replica for other replicas, published in the Lease.
    advertised: Option<Advertised>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: &'a RawValue,
    spec: &'a Record,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(default)]
    spec: Record,
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("key", &self.key())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Leases {
    /// Creates a client of the Lease with the given name. `timeout` limits each request, so that a request
    /// that hangs leaves time for another.
    pub fn new(client: Client, namespace: &str, name: &str, timeout: Duration) -> Self {
        Self { client, namespace: namespace.into(), name: name.into(), timeout, advertised: None }
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
        let call = Call::get(self.path(Some(&self.name)));
        match self.client.bytes(&self.about(call)).await {
            Ok(body) => decode(&body).map(Some).map_err(ApiError::Decode),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the Lease.
    pub async fn create(&self, record: &Record) -> Result<Lease, ApiError> {
        let metadata = serde_json::json!({"name": &*self.name, "namespace": &*self.namespace}).to_string();
        let lease = Lease { record: record.clone(), version: String::new(), metadata: metadata.into() };
        self.write(Method::POST, self.path(None), &lease).await
    }

    /// Replaces the Lease if its version is unchanged. Keeps all metadata.
    pub async fn replace(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.write(Method::PUT, self.path(Some(&self.name)), lease).await
    }

    async fn write<'a>(
        &self,
        method: Method,
        path: impl Iterator<Item = &'a str>,
        lease: &Lease,
    ) -> Result<Lease, ApiError> {
        let unsendable = |error: serde_json::Error| ApiError::Request(error.to_string());
        // A released Lease has no address.
        let here =
            self.advertised.as_ref().filter(|_| lease.record.is_held()).and_then(|advertised| advertised());
        let metadata =
            RawValue::from_string(lease.metadata_with(here).map_err(unsendable)?).map_err(unsendable)?;
        let body = Body {
            kind: "Lease",
            api_version: "coordination.k8s.io/v1",
            metadata: &metadata,
            spec: &lease.record,
        };
        let body = serde_json::to_vec(&body).map_err(unsendable)?;
        let call = Call::send(method, path, "application/json", body);
        decode(&self.client.bytes(&self.about(call)).await?).map_err(ApiError::Decode)
    }

    /// Watches the Lease for changes after the given version.
    pub async fn watch(&self, version: &str) -> Result<LeaseWatch, ApiError> {
        let call = Call::get(self.path(None))
            .query("fieldSelector", &format!("metadata.name={}", self.name))
            .query("resourceVersion", version)
            .query("timeoutSeconds", &WATCH.as_secs().to_string())
            .query("watch", "true");
        let answer = self.client.open(&self.about(call)).await?;
        Ok(LeaseWatch {
            lines: Lines::new(answer.into_body(), MAX_LINE),
            until: Instant::now() + WATCH + GRACE,
        })
    }

    fn about(&self, call: Call) -> Call {
        call.about(RESOURCE, &self.name).within(self.timeout)
    }

    fn path<'a>(&'a self, name: Option<&'a str>) -> impl Iterator<Item = &'a str> {
        ["apis", "coordination.k8s.io", "v1", "namespaces", &self.namespace, "leases"].into_iter().chain(name)
    }
}

/// A watch of one Lease.
#[derive(Debug)]
pub struct LeaseWatch {
    lines: Lines,
    until: Instant,
}

impl LeaseWatch {
    /// Returns the next state of the Lease, or `None` if it was deleted. Fails at any error and at the end of
    /// the watch. The caller then opens another watch.
    pub async fn next(&mut self) -> Result<Option<Lease>, ApiError> {
        let ended = || ApiError::Decode(DecodeError::new("the Lease watch ended"));
        loop {
            let line = timeout_at(self.until, self.lines.next()).await.map_err(|_| ended())??;
            let line = line.ok_or_else(ended)?;
            let event = watch_event(&line).map_err(ApiError::Decode)?;
            match &*event.kind {
                "ADDED" | "MODIFIED" => return decode(event.object).map(Some).map_err(ApiError::Decode),
                "DELETED" => return Ok(None),
                "BOOKMARK" => {}
                _ => return Err(ended()),
            }
        }
    }
}

fn decode(body: &[u8]) -> Result<Lease, DecodeError> {
    let wire: Wire<'_> = serde_json::from_slice(body)?;
    let version = cluster::decode::meta_of(wire.metadata)?.resource_version;
    Ok(Lease { record: wire.spec, version, metadata: wire.metadata.get().into() })
}
