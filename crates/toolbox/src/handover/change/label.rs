//! Changes of the label on a namespace or an HPA.

use std::fmt;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::handover::HandoverError;
use crate::handover::census::Metadata;
use cluster::call::Call;
use cluster::client::Clients;
use cluster::error::ApiError;
use controller::handover::scope::LABEL;
use controller::store::Key;

/// Maximum number of attempts at a change. Each write of the object between the read and the patch causes a conflict.
const ATTEMPTS: u32 = 5;
/// The field manager of the label.
const MANAGER: &str = "concertina-handover";

/// An object that can have the label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    Namespace(String),
    Hpa(Key),
}

impl Object {
    fn path(&self) -> Vec<&str> {
        match self {
            Self::Namespace(name) => vec!["api", "v1", "namespaces", name],
            Self::Hpa(key) => {
                vec![
                    "apis",
                    "autoscaling",
                    "v2",
                    "namespaces",
                    &key.namespace,
                    "horizontalpodautoscalers",
                    &key.name,
                ]
            }
        }
    }

    fn about(&self, call: Call) -> Call {
        match self {
            Self::Namespace(name) => call.about("namespaces", name),
            Self::Hpa(key) => call.about("horizontalpodautoscalers.autoscaling", &key.name),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Hpa(key) => write!(f, "HPA {key}"),
        }
    }
}

/// A change of the label.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Edit {
    #[serde(serialize_with = "as_text")]
    object: Object,
    /// The value before the change.
    from: Option<String>,
    /// The value after the change. `None` removes the label.
    to: Option<String>,
}

fn as_text<S: serde::Serializer>(object: &Object, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(object)
}

impl Edit {
    pub(super) fn new(object: Object, from: Option<&str>, to: Option<&str>) -> Self {
        Self { object, from: from.map(str::to_owned), to: to.map(str::to_owned) }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            Some(value) => write!(f, "{}: label {LABEL}={value} set", self.object),
            None => write!(f, "{}: label {LABEL} removed", self.object),
        }
    }
}

/// Changes the label if it still has the value that the change expects. If another field was written concurrently, the
/// change is retried.
pub(super) async fn apply(
    clients: &Clients,
    edit: &Edit,
    dry_run: bool,
    done: usize,
) -> Result<(), HandoverError> {
    let mut attempt = 1;
    loop {
        match once(clients, edit, dry_run).await {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
            result => {
                return result.map_err(|error| HandoverError::Change {
                    object: edit.object.to_string(),
                    error: Box::new(error),
                    done,
                });
            }
        }
    }
}

async fn once(clients: &Clients, edit: &Edit, dry_run: bool) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    struct Labelled {
        metadata: Metadata,
    }
    let object = &edit.object;
    let Labelled { metadata } = clients.core.json(&object.about(Call::get(object.path()))).await?;
    let label = metadata.labels.and_then(|mut labels| labels.remove(LABEL));
    if label == edit.to {
        return Ok(());
    }
    if label != edit.from {
        let now = label.unwrap_or_else(|| "none".to_owned());
        return Err(ApiError::Request(format!("the label was changed to {now} in the meantime")));
    }
    let body = json!({"metadata": {
        "resourceVersion": metadata.resource_version,
        "labels": {LABEL: edit.to},
    }});
    let patch = "application/merge-patch+json";
    let call = Call::send(Method::PATCH, object.path(), patch, body.to_string().into_bytes());
    let call = call.query("dryRun", if dry_run { "All" } else { "" }).query("fieldManager", MANAGER);
    clients.core.bytes(&object.about(call)).await.map(drop)
}
