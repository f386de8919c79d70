//! kube's typed client over [`Client`], for infrequent requests, and a client for ConfigMaps that contain bytes.
//!
//! A request is subject to the token bucket, the gate, the observer and the limits of its [`Client`]. An error contains
//! the [`ApiError`] of the [`Client`], so its class and text match those of requests without kube's client.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Request, Response};
use http_body_util::{Either, Full, Limited};
use hyper::body::Incoming;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1 as wire;
use kube::api::{ObjectMeta, PostParams};
use kube::client::Body;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource};
use percent_encoding::utf8_percent_encode;
use serde::de::DeserializeOwned;

use super::api_client::Client;
use super::call::{Call, SEGMENT};
use super::decode::DecodeError;
use super::error::ApiError;

/// A body within the size limit, either buffered or streamed.
type Answer = Either<Full<Bytes>, Limited<Incoming>>;

impl Client {
    /// Creates kube's client, which spawns a task that stops when the client is dropped. A panic in the task affects
    /// only the requests of this client.
    fn typed(&self) -> kube::Client {
        let client = self.clone();
        let service = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the API of the objects in a namespace. Requires a tokio runtime.
    pub fn namespaced<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.typed(), &segment(namespace))
    }

    /// Returns the API of the objects of a cluster-scoped resource. Requires a tokio runtime.
    pub fn cluster_scoped<K>(&self) -> Api<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.typed())
    }

    /// Sends a request of kube's client. The size limit of a watch applies to its whole response.
    async fn answer(&self, request: Request<Body>) -> Result<Response<Answer>, ApiError> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.map_err(|error| ApiError::Request(error.to_string()))?;
        let is_upgrade = head.headers.contains_key(UPGRADE);
        let call = Call::from_request(head.method, &head.uri, body);
        if !is_upgrade && !call.is_watch() {
            return Ok(Response::new(Either::Left(Full::new(self.bytes(&call).await?))));
        }
        let answer =
            if is_upgrade { self.upgrade(&call, head.headers).await } else { self.open(&call).await };
        Ok(answer?.map(|body| Either::Right(Limited::new(body, call.limit))))
    }
}

/// Encodes a name as one path segment, because kube does not encode names.
pub fn segment(name: &str) -> Cow<'_, str> {
    utf8_percent_encode(name, SEGMENT).into()
}

/// Reads an object. `None` if it does not exist.
pub async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, ApiError>
where
    K: Clone + DeserializeOwned + Debug,
{
    match api.get(&segment(name)).await.map_err(ApiError::from) {
        Err(error) if error.is_not_found() => Ok(None),
        answer => answer.map(Some),
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Service(error) => match error.downcast::<Self>() {
                Ok(error) => *error,
                Err(error) => Self::from_body(error.as_ref()),
            },
            kube::Error::ReadEvents(error) => Self::from_body(&error),
            kube::Error::SerdeError(error) => Self::Decode(error.into()),
            kube::Error::FromUtf8(error) => Self::Decode(DecodeError::new(error.to_string())),
            error => Self::Request(error.to_string()),
        }
    }
}

/// The ConfigMaps of one namespace.
#[derive(Debug, Clone)]
pub struct ConfigMaps {
    client: Client,
    namespace: Arc<str>,
    /// The key of `binaryData`.
    key: &'static str,
}

/// A ConfigMap from an earlier request.
#[derive(Debug, Clone)]
pub struct ConfigMap {
    /// `metadata` as received. The server compares its resourceVersion in a replacement.
    metadata: ObjectMeta,
    /// The bytes under the key. `None` if the key is missing, or if the value comes from a write.
    pub content: Option<Vec<u8>>,
}

impl ConfigMaps {
    /// Creates a client for ConfigMaps with their bytes under `key`. `timeout` limits each request.
    pub fn new(client: &Client, namespace: &str, key: &'static str, timeout: Duration) -> Self {
        Self { client: client.within(timeout), namespace: namespace.into(), key }
    }

    /// Returns the namespace of the ConfigMaps.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Reads a ConfigMap. `None` if it does not exist.
    pub async fn get(&self, name: &str) -> Result<Option<ConfigMap>, ApiError> {
        let found = get(&self.api(), name).await?;
        Ok(found.map(|wire::ConfigMap { metadata, binary_data, .. }| {
            let content = binary_data.unwrap_or_default().remove(self.key).map(|bytes| bytes.0);
            ConfigMap { metadata, content }
        }))
    }

    /// Creates a ConfigMap. The returned value has no content.
    pub async fn create(&self, name: &str, content: &[u8]) -> Result<ConfigMap, ApiError> {
        let map = self.map(ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, content);
        let wire::ConfigMap { metadata, .. } = self.api().create(&PostParams::default(), &map).await?;
        Ok(ConfigMap { metadata, content: None })
    }

    /// Replaces the content if the resourceVersion is unchanged. The returned value has no content.
    pub async fn replace(&self, name: &str, old: &ConfigMap, content: &[u8]) -> Result<ConfigMap, ApiError> {
        let map = self.map(old.metadata.clone(), content);
        let wire::ConfigMap { metadata, .. } = self.api().replace(name, &PostParams::default(), &map).await?;
        Ok(ConfigMap { metadata, content: None })
    }

    fn map(&self, metadata: ObjectMeta, content: &[u8]) -> wire::ConfigMap {
        let binary_data = [(self.key.to_owned(), ByteString(content.to_owned()))].into();
        wire::ConfigMap { metadata, binary_data: Some(binary_data), ..wire::ConfigMap::default() }
    }

    fn api(&self) -> Api<wire::ConfigMap> {
        self.client.namespaced(&self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::ListParams;

    use super::*;
    use crate::client::{ClientOptions, Clients};
    use crate::gate::{Gate, Refusal};
    use clock::VirtualClock;
    use fake_cluster::{Cluster, FaultAction, FaultRule, Status};

    fn clients(gate: Arc<Gate>) -> (Cluster, Clients) {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let cluster = Cluster::new(Arc::new(VirtualClock::starting_at(now)));
        let options = ClientOptions { gate, ..ClientOptions::default() };
        let clients = Clients::over(cluster.connector(), &options).unwrap();
        (cluster, clients)
    }

    #[tokio::test(start_paused = true)]
    async fn errors_keep_their_class_and_text() {
        let (cluster, clients) = clients(Gate::open());
        let maps = clients.core.namespaced::<wire::ConfigMap>("shop");
        assert_eq!(get(&maps, "web").await, Ok(None));
        let fail = |action| {
            cluster.faults().clear();
            cluster.faults().add(FaultRule::new(action));
        };
        fail(FaultAction::Status(Status::new(409, "Conflict", "changed")));
        let conflict = get(&maps, "web").await.unwrap_err();
        assert!(conflict.is_conflict() && conflict.to_string() == "changed", "{conflict:?}");
        fail(FaultAction::Body("{".to_owned()));
        assert!(matches!(get(&maps, "web").await, Err(ApiError::Decode(_))));
        fail(FaultAction::Body(" ".repeat(crate::call::DEFAULT_LIMIT + 1)));
        assert!(matches!(get(&maps, "web").await, Err(ApiError::TooLarge { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn gate_refuses_typed_writes() {
        let (cluster, clients) = clients(Gate::refusing(Refusal::DryRun));
        let maps = clients.core.namespaced::<wire::ConfigMap>("shop");
        let error = maps.create(&PostParams::default(), &wire::ConfigMap::default()).await.unwrap_err();
        assert_eq!(ApiError::from(error), ApiError::Refused(Refusal::DryRun));
        assert!(cluster.requests().entries().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn paths_are_those_of_go() {
        let (cluster, clients) = clients(Gate::open());
        let pods = clients.core.namespaced::<Pod>("shop");
        pods.list(&ListParams::default()).await.unwrap();
        pods.list(&ListParams::default().labels("a=b")).await.unwrap();
        assert_eq!(get(&pods, "../a b?c").await, Ok(None));
        let paths: Vec<_> = cluster.requests().entries().into_iter().map(|sent| sent.path).collect();
        let root = "/api/v1/namespaces/shop/pods";
        assert_eq!(paths[0], root);
        assert_eq!(paths[2], format!("{root}/..%2Fa%20b%3Fc"));
    }
}
