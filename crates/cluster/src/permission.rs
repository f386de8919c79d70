//! Permissions that requests need, and whether the API server grants them.

use std::fmt::Write;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use kube::api::PostParams;

use super::client::Client;
use super::error::ApiError;

/// A required permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The API group. Empty for the core group, `*` for all.
    pub group: String,
    /// The resource: `pods`, `*`.
    pub resource: String,
    /// The subresource, such as `scale`. Empty for none.
    pub subresource: &'static str,
    /// The verbs: `list`, `watch`.
    pub verbs: &'static [&'static str],
    /// The namespace. `None` for all namespaces, or for a cluster-scoped resource.
    pub namespace: Option<String>,
    /// The names of the objects. Empty for all objects.
    pub names: Vec<String>,
    /// The account that makes the requests.
    pub subject: Subject,
    /// The role that contains the permission.
    pub role: Role,
    /// The purpose, as an infinitive: `to list and watch HPAs`.
    pub why: &'static str,
    /// The consequence of a missing permission, as a clause without a full stop.
    pub without: &'static str,
    /// Whether the process is unready without the permission.
    pub essential: bool,
}

/// The account that makes the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The controller's account: watches, scales, metrics, status, events.
    Controller,
    /// With `--use-service-account-credentials`, the account of the configured credentials, which still
    /// handles the Lease, reviews and tokens.
    Credentials,
}

/// The role that contains a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The role that every controller needs in the namespace of the permission.
    Own,
    /// The role that `--history-checkpoint` adds.
    History,
}

/// A permission for all objects of a resource in all namespaces.
pub fn row(group: &str, resource: &str, verbs: &'static [&'static str]) -> Permission {
    Permission {
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: "",
        verbs,
        namespace: None,
        names: Vec::new(),
        subject: Subject::Controller,
        role: Role::Own,
        why: "",
        without: "",
        essential: false,
    }
}

impl Permission {
    /// The RBAC rule that grants the permission:
    /// `{apiGroups: [apps], resources: [deployments], verbs: [list, watch]}`
    pub fn rule(&self) -> String {
        let mut rule = format!(
            "{{apiGroups: [{}], resources: [{}]",
            scalar(&self.group),
            scalar(&self.resource_with_subresource())
        );
        if !self.names.is_empty() {
            let names: Vec<_> = self.names.iter().map(|name| scalar(name)).collect();
            let _ = write!(rule, ", resourceNames: [{}]", names.join(", "));
        }
        let _ = write!(rule, ", verbs: [{}]}}", self.verbs.join(", "));
        rule
    }

    /// `horizontalpodautoscalers/status`
    pub fn resource_with_subresource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// `horizontalpodautoscalers.autoscaling/status`, as the API server and kubectl print it.
    pub fn full_resource(&self) -> String {
        let group = if matches!(&*self.group, "" | "*") { String::new() } else { format!(".{}", self.group) };
        let subresource =
            if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        format!("{}{group}{subresource}", self.resource)
    }
}

/// A YAML scalar: quoted if the plain text would have another meaning or type.
pub fn scalar(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '/');
    if text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.chars().all(plain) {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}

/// Makes one SelfSubjectAccessReview, which every user may make, as the account that needs the permission.
pub async fn allowed(
    client: &Client,
    permission: &Permission,
    name: &str,
    verb: &str,
) -> Result<bool, ApiError> {
    let attributes = ResourceAttributes {
        group: Some(permission.group.clone()),
        resource: Some(permission.resource.clone()),
        subresource: Some(permission.subresource.to_owned()),
        verb: Some(verb.to_owned()),
        namespace: permission.namespace.clone(),
        name: Some(name.to_owned()),
        ..ResourceAttributes::default()
    };
    let mut review = SelfSubjectAccessReview::default();
    review.spec.resource_attributes = Some(attributes);
    let review = client.cluster_scoped().create(&PostParams::default(), &review).await?;
    Ok(review.status.is_some_and(|status| status.allowed))
}
