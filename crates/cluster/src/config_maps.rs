//! Reads, creates and replaces ConfigMaps that hold bytes under one key. The checkpoint of histories uses
//! them with a separate client.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1 as wire;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use super::client::Client;
use super::error::ApiError;
use super::typed;

/// The ConfigMaps of one namespace.
#[derive(Debug, Clone)]
pub struct ConfigMaps {
    client: Client,
    namespace: Arc<str>,
    /// The key of `binaryData`.
    key: &'static str,
}

/// A ConfigMap as received.
#[derive(Debug, Clone)]
pub struct ConfigMap {
    /// `metadata` as received. The server compares its resourceVersion.
    metadata: ObjectMeta,
    /// The bytes under the key. `None` if the key is missing.
    pub content: Option<Vec<u8>>,
}

impl ConfigMaps {
    /// Creates a client for ConfigMaps with their bytes under `key`. `timeout` limits each request.
    pub fn new(client: &Client, namespace: &str, key: &'static str, timeout: Duration) -> Self {
        Self { client: client.within(timeout), namespace: namespace.into(), key }
    }

    /// The namespace of the ConfigMaps.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Reads a ConfigMap. `None` if it does not exist.
    pub async fn get(&self, name: &str) -> Result<Option<ConfigMap>, ApiError> {
        let found = typed::get(&self.api(), name).await?;
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
