//! Reads the labels of namespaces.

use std::collections::BTreeMap;

use serde::Deserialize;

use cluster::call::Call;
use cluster::client::Client;
use cluster::decode::DecodeError;
use cluster::error::ApiError;
use cluster::watch::{Collection, each};
use coexist::handover::scope::LABEL;

#[derive(Deserialize)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    labels: Option<BTreeMap<String, String>>,
}

/// Reads the value of the label of one namespace or of all namespaces. Namespaces without the label have no entry.
pub async fn labels(client: &Client, namespace: Option<&str>) -> Result<BTreeMap<String, String>, ApiError> {
    read(client, namespace, |mut labels| labels.remove(LABEL)).await
}

/// Reads the labels of one namespace or of all namespaces. Namespaces for which `select` returns `None` have no entry.
pub async fn read<V>(
    client: &Client,
    namespace: Option<&str>,
    select: impl Fn(BTreeMap<String, String>) -> Option<V>,
) -> Result<BTreeMap<String, V>, ApiError> {
    let mut namespaces = BTreeMap::new();
    let mut take = |object: &[u8]| -> Result<(), DecodeError> {
        let Namespace { metadata } = serde_json::from_slice(object)?;
        if let Some(value) = select(metadata.labels.unwrap_or_default()) {
            namespaces.insert(metadata.name, value);
        }
        Ok(())
    };
    if let Some(name) = namespace {
        let call = Call::get(["api", "v1", "namespaces", name]).about("namespaces", name);
        take(&client.bytes(&call).await?).map_err(ApiError::Decode)?;
    } else {
        let all =
            Collection { group: "", version: "v1", namespace: None, resource: "namespaces", fields: "" };
        each(client, all, take).await?;
    }
    Ok(namespaces)
}
