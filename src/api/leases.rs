//! One Lease of coordination.k8s.io: read, created, replaced, watched. For leader election, with a client of its own.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::body::Lines;
use super::call::Call;
use super::client::Client;
use super::decode::{DecodeError, watch_event};
use super::error::ApiError;
use crate::election::record::{Lease, Record};
use crate::history::replica::link::Link;

const RESOURCE: &str = "leases.coordination.k8s.io";
/// A Lease is small; a line of its watch too.
const MAX_LINE: usize = 1 << 20;
/// The server ends a watch after this time; the client ends it a little later.
const WATCH: Duration = Duration::from_mins(5);
const GRACE: Duration = Duration::from_secs(15);

/// One Lease, there or not.
#[derive(Debug, Clone)]
pub struct Leases {
    client: Client,
    namespace: Arc<str>,
    name: Arc<str>,
    /// How long one request may take.
    timeout: Duration,
    /// How replicas reach each other, which the Lease tells them.
    link: Option<Arc<dyn Link>>,
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

impl Leases {
    /// The Lease of this name. `timeout` bounds each request, so that a hanging one leaves time for another.
    pub fn new(client: Client, namespace: &str, name: &str, timeout: Duration) -> Self {
        Self { client, namespace: namespace.into(), name: name.into(), timeout, link: None }
    }

    /// With where this process serves, whenever it writes the Lease as its holder.
    #[must_use]
    pub fn telling(self, link: Option<Arc<dyn Link>>) -> Self {
        Self { link, ..self }
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reads the Lease; `None` if there is none.
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

    /// Replaces the Lease, if it still has the version that was seen; what others wrote into its metadata stays.
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
        // Whoever gives the Lease back tells nothing any more.
        let here = self.link.as_ref().filter(|_| lease.record.is_held()).and_then(|link| link.here());
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

    /// Follows the Lease from a version on.
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
    /// The next state of the Lease: `None` if it was deleted. An error, also at the end of the watch: open another.
    pub async fn next(&mut self) -> Result<Option<Lease>, ApiError> {
        let ended = || ApiError::Decode(DecodeError::new("the watch of the Lease ended"));
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
    let version = super::decode::meta_of(wire.metadata)?.resource_version;
    Ok(Lease { record: wire.spec, version, metadata: wire.metadata.get().into() })
}
