//! Reads, creates and replaces ConfigMaps that hold bytes under one key. The checkpoint of histories uses
//! them with a separate client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::call::Call;
use super::client::Client;
use super::decode::{DecodeError, Text, meta_of};
use super::error::ApiError;

/// The ConfigMaps of one namespace.
#[derive(Debug, Clone)]
pub struct ConfigMaps {
    client: Client,
    namespace: Arc<str>,
    /// The key of `binaryData`.
    key: &'static str,
    /// Timeout of each request.
    timeout: Duration,
}

/// A ConfigMap as received.
#[derive(Debug, Clone)]
pub struct ConfigMap {
    /// `metadata` as received. The server compares its resourceVersion.
    metadata: Box<RawValue>,
    /// The bytes under the key. `None` if the key is missing.
    pub content: Option<Content>,
}

/// The decoded bytes, or the decoding error.
pub type Content = Result<Vec<u8>, DecodeError>;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: &'a RawValue,
    binary_data: BTreeMap<&'static str, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow, default)]
    binary_data: Option<BTreeMap<Text<'a>, Text<'a>>>,
}

/// The response to a write. The content is skipped because the caller has it.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl ConfigMaps {
    /// Creates a client for ConfigMaps with their bytes under `key`. `timeout` limits each request.
    pub fn new(client: Client, namespace: &str, key: &'static str, timeout: Duration) -> Self {
        Self { client, namespace: namespace.into(), key, timeout }
    }

    /// The namespace of the ConfigMaps.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Reads a ConfigMap. `None` if it does not exist.
    pub async fn get(&self, name: &str) -> Result<Option<ConfigMap>, ApiError> {
        match self.client.bytes(&self.about(Call::get(self.path(Some(name))), name)).await {
            Ok(body) => self.decode(&body).map(Some).map_err(ApiError::Decode),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a ConfigMap. The returned value has no content.
    pub async fn create(&self, name: &str, content: &[u8]) -> Result<ConfigMap, ApiError> {
        let metadata = serde_json::json!({"name": name, "namespace": &*self.namespace}).to_string();
        let metadata = RawValue::from_string(metadata).map_err(|error| unsendable(&error))?;
        self.write(Method::POST, None, name, &metadata, content).await
    }

    /// Replaces the content if the version is unchanged. The returned value has no content.
    pub async fn replace(&self, name: &str, old: &ConfigMap, content: &[u8]) -> Result<ConfigMap, ApiError> {
        self.write(Method::PUT, Some(name), name, &old.metadata, content).await
    }

    async fn write(
        &self,
        method: Method,
        object: Option<&str>,
        name: &str,
        metadata: &RawValue,
        content: &[u8],
    ) -> Result<ConfigMap, ApiError> {
        let binary_data = [(self.key, STANDARD.encode(content))].into();
        let body = Body { kind: "ConfigMap", api_version: "v1", metadata, binary_data };
        let body = serde_json::to_vec(&body).map_err(|error| unsendable(&error))?;
        let call = Call::send(method, self.path(object), "application/json", body);
        let answer = self.client.bytes(&self.about(call, object.map_or("", |_| name))).await?;
        let answer: Written<'_> =
            serde_json::from_slice(&answer).map_err(|error| ApiError::Decode(error.into()))?;
        Ok(ConfigMap { metadata: answer.metadata.to_owned(), content: None })
    }

    fn decode(&self, body: &[u8]) -> Result<ConfigMap, DecodeError> {
        let wire: Wire<'_> = serde_json::from_slice(body)?;
        meta_of(wire.metadata)?;
        let mut binary_data = wire.binary_data.unwrap_or_default();
        let content = binary_data.remove(&Text::from(self.key)).map(|text| {
            STANDARD
                .decode(text.as_bytes())
                .map_err(|error| DecodeError::new(format!("invalid base64: {error}")))
        });
        Ok(ConfigMap { metadata: wire.metadata.to_owned(), content })
    }

    fn about(&self, call: Call, name: &str) -> Call {
        call.about("configmaps", name).within(self.timeout)
    }

    fn path<'a>(&'a self, name: Option<&'a str>) -> impl Iterator<Item = &'a str> {
        ["api", "v1", "namespaces", &self.namespace, "configmaps"].into_iter().chain(name)
    }
}

fn unsendable(error: &serde_json::Error) -> ApiError {
    ApiError::Request(error.to_string())
}
