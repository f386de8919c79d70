//! One write of the built-in controller, as a dry run.

use std::fmt;
use std::sync::Arc;

use autoscaling::status::CrossVersionObjectReference;
use autoscaling::target_group;
use bytes::Bytes;
use http::Method;
use serde::Serialize;

use cluster::call::Call;
use cluster::client::{Client, Clients};
use cluster::error::ApiError;
use cluster::mapper::Mapper;
use cluster::permission::{self, Permission};
use controller::store::Key;

/// Maximum number of attempts at a write. Each write of another client between the read and the dry run causes a
/// conflict.
const ATTEMPTS: u32 = 5;

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub(super) enum WriteResult {
    /// Admission refused the write, although RBAC permits it.
    Refused { message: String },
    /// RBAC does not permit the write.
    Unauthorized { message: String },
    /// The write would have been stored.
    Passed,
    /// The object or its kind was not found, so the built-in controller does not write the object either.
    NoTarget { message: String },
    /// The write failed for another reason.
    Failed { message: String },
}

impl fmt::Display for WriteResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { .. } => f.write_str("refused"),
            Self::Unauthorized { message } => write!(f, "not authorized: {message}"),
            Self::Passed => f.write_str("passed"),
            Self::NoTarget { message } => write!(f, "no target: {message}"),
            Self::Failed { message } => write!(f, "failed: {message}"),
        }
    }
}

/// Sends writes as an impersonated user, and reads as the caller.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) user: String,
    own: Client,
    impersonating: Client,
    mapper: Arc<Mapper>,
}

impl Writer {
    pub(super) fn new(clients: &Clients, mapper: Arc<Mapper>, user: &str) -> Result<Self, ApiError> {
        let impersonating = clients.core.impersonating(user)?;
        Ok(Self { user: user.to_owned(), own: clients.core.clone(), impersonating, mapper })
    }

    /// Writes the unchanged Scale of a target.
    pub(super) async fn scale(&self, namespace: &str, target: &CrossVersionObjectReference) -> WriteResult {
        let failed = |message: String| WriteResult::Failed { message };
        let group = match target_group(target) {
            Ok(group) => group,
            Err(error) => return WriteResult::NoTarget { message: error.to_string() },
        };
        let mappings = match self.mapper.mappings(group, &target.kind).await {
            Ok(mappings) => mappings,
            Err(error) => return WriteResult::NoTarget { message: error.to_string() },
        };
        let Some(mapping) = mappings.iter().find(|mapping| mapping.namespaced) else {
            return failed(format!("{} is not a namespaced kind", target.kind));
        };
        let permission = Permission {
            subresource: "scale",
            namespace: Some(namespace.to_owned()),
            ..permission::row(&mapping.group, &mapping.resource, &["update"])
        };
        let path: Vec<&str> = mapping.path(namespace, &target.name).chain(["scale"]).collect();
        self.write(&path, &permission, &target.name).await
    }

    /// Writes the unchanged status of an HPA.
    pub(super) async fn status(&self, key: &Key) -> WriteResult {
        let permission = Permission {
            subresource: "status",
            namespace: Some(key.namespace.to_string()),
            ..permission::row("autoscaling", "horizontalpodautoscalers", &["update"])
        };
        let path = [
            "apis",
            "autoscaling",
            "v2",
            "namespaces",
            &key.namespace,
            "horizontalpodautoscalers",
            &key.name,
            "status",
        ];
        self.write(&path, &permission, &key.name).await
    }

    /// Reads an object and writes it unchanged.
    async fn write(&self, path: &[&str], permission: &Permission, name: &str) -> WriteResult {
        let mut attempt = 1;
        loop {
            let read = Call::get(path.iter().copied()).about(permission.full_resource(), name);
            let object = match self.own.bytes(&read).await {
                Ok(object) => object,
                Err(error) if error.is_not_found() => {
                    return WriteResult::NoTarget { message: error.to_string() };
                }
                Err(error) => return WriteResult::Failed { message: format!("cannot be read: {error}") },
            };
            match self.put(path, permission, name, object).await {
                Ok(()) => return WriteResult::Passed,
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
                Err(error) if error.is_forbidden() => return self.refused(permission, name, &error).await,
                Err(error) => return WriteResult::Failed { message: error.to_string() },
            }
        }
    }

    async fn put(
        &self,
        path: &[&str],
        permission: &Permission,
        name: &str,
        object: Bytes,
    ) -> Result<(), ApiError> {
        let call = Call::send(Method::PUT, path.iter().copied(), "application/json", object.to_vec());
        let call = call.query("dryRun", "All").about(permission.full_resource(), name);
        self.impersonating.bytes(&call).await.map(drop)
    }

    /// Distinguishes a refusal by admission from one by RBAC. Both have the same code.
    async fn refused(&self, permission: &Permission, name: &str, error: &ApiError) -> WriteResult {
        let message = error.to_string();
        match permission::allowed(&self.impersonating, permission, name, "update").await {
            Ok(true) => WriteResult::Refused { message },
            Ok(false) => WriteResult::Unauthorized { message },
            Err(error) => {
                WriteResult::Failed { message: format!("{message}; its cause is unknown: {error}") }
            }
        }
    }
}
