//! The scaling policies that apply to an HPA of a cluster, as manifests of a scenario.

use std::collections::BTreeMap;

use cluster::call::Call;
use cluster::client::Clients;
use cluster::decode::DecodeError;
use cluster::error::ApiError;
use cluster::list::{self, Collection};
use cluster::watch::Watched;
use controller::policy::{ANNOTATION, GROUP, Kind, VERSION};
use serde_json::{Map, Value, json};

use crate::pointer::{at, text};

/// The policy objects that apply to an HPA, and notes about unreadable policies.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Policies {
    /// The manifests, without status and without the server's `metadata` other than `creationTimestamp`.
    /// `namespaceSelector` is applied here and removed, because a scenario has no labels of namespaces.
    pub(in super::super) manifests: Vec<Value>,
    /// Sentences about policies that could not be read and are not part of the run.
    pub(in super::super) notes: Vec<String>,
}

/// Labels by name.
type LabelMap = BTreeMap<String, String>;

impl Policies {
    /// Reads the policies that apply to an HPA. A cluster without their CRDs has none.
    pub(super) async fn read(clients: &Clients, hpa: &Value) -> Self {
        let mut policies = Self::default();
        let namespace = text(hpa, "/metadata/namespace");
        let labels = labels(hpa);
        // Read only if a policy selects namespaces.
        let mut namespace_labels = None;
        for kind in Kind::ALL {
            let found = match list(clients, kind, namespace).await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => continue,
                Err(error) => {
                    let resource = kind.resource();
                    policies.notes.push(format!("the run has no {resource}, which cannot be read: {error}"));
                    continue;
                }
            };
            for object in found {
                let Ok(policy) = kind.decode(object.to_string().as_bytes()) else { continue };
                let selects_namespaces =
                    policy.namespace_selector.as_ref().is_ok_and(|selector| !selector.is_empty());
                if kind == Kind::Cluster && selects_namespaces && namespace_labels.is_none() {
                    namespace_labels = Some(policies.namespace_labels(clients, namespace).await);
                }
                if policy.selects(&labels, namespace_labels.as_ref().unwrap_or(&LabelMap::new())) {
                    policies.manifests.push(manifest(kind, &object));
                }
            }
        }
        policies
    }

    async fn namespace_labels(&mut self, clients: &Clients, namespace: &str) -> LabelMap {
        let call = Call::get(["api", "v1", "namespaces", namespace]).about("namespaces", namespace);
        match clients.core.json::<Value>(&call).await {
            Ok(namespace) => labels(&namespace),
            Err(error) => {
                self.notes.push(format!(
                    "the run has no ClusterScalingPolicy with a namespaceSelector, because the namespace cannot be \
                     read: {error}"
                ));
                LabelMap::new()
            }
        }
    }
}

/// The name, the namespace, the labels and the policy annotation of an HPA, for the `metadata` of a manifest.
pub(super) fn metadata(hpa: &Value) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), at(hpa, "/metadata/name").clone());
    metadata.insert("namespace".to_owned(), at(hpa, "/metadata/namespace").clone());
    let labels = at(hpa, "/metadata/labels");
    if !labels.is_null() {
        metadata.insert("labels".to_owned(), labels.clone());
    }
    if let Some(policy) = at(hpa, "/metadata/annotations").get(ANNOTATION) {
        metadata.insert("annotations".to_owned(), json!({ (ANNOTATION): policy }));
    }
    Value::Object(metadata)
}

async fn list(clients: &Clients, kind: Kind, namespace: &str) -> Result<Vec<Value>, ApiError> {
    let namespace = (kind == Kind::Namespaced).then_some(namespace);
    let resource = kind.resource();
    let mut objects = Vec::new();
    let collection = Collection { group: GROUP, version: VERSION, namespace, resource, fields: "" };
    list::each(&clients.core, collection, |object| -> Result<(), DecodeError> {
        objects.push(serde_json::from_slice(object)?);
        Ok(())
    })
    .await?;
    Ok(objects)
}

fn manifest(kind: Kind, object: &Value) -> Value {
    let mut spec = at(object, "/spec").clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("namespaceSelector");
    }
    let mut metadata = json!({"name": at(object, "/metadata/name")});
    // The time of creation is kept, because the older of two policies of one level takes precedence.
    for field in ["namespace", "creationTimestamp"] {
        let value = at(object, &format!("/metadata/{field}"));
        if let Some(metadata) = metadata.as_object_mut().filter(|_| !value.is_null()) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind.as_str(), "metadata": metadata, "spec": spec})
}

fn labels(object: &Value) -> LabelMap {
    let labels = at(object, "/metadata/labels").as_object();
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(text).collect()
}
