//! The permissions that requests need, and reviews by the API server. Reviews concern the permissions of this process,
//! or the tokens and the access of clients.
//!
//! A review is a POST that changes nothing, so the write gate admits it.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use serde::Serialize;

use super::client::Client;
use super::error::ApiError;

/// The decision of the API server's authorizers.
pub use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus as Verdict;

/// Timeout of a review of a client, which waits for the result.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// A permission that requests need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The API group. Empty for the core group, `*` for all.
    pub group: String,
    /// The plural name of the resource, or `*` for all.
    pub resource: String,
    /// The subresource, such as `scale`. Empty for the resource itself.
    pub subresource: &'static str,
    /// The verbs, such as `list` and `watch`.
    pub verbs: &'static [&'static str],
    /// The namespace. `None` for all namespaces, or for a cluster-scoped resource.
    pub namespace: Option<String>,
    /// The names of the objects. Empty for all objects.
    pub names: Vec<String>,
    /// The account that makes the requests.
    pub subject: Subject,
    /// The purpose as an infinitive, such as `to list and watch HPAs`.
    pub why: &'static str,
    /// The consequence of a missing permission, as a clause without a full stop.
    pub without: &'static str,
    /// Whether the process is unready without the permission.
    pub essential: bool,
}

/// The account that makes the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The account of the controller, for watches, scales, metrics, statuses and events.
    Controller,
    /// The account of the configured credentials. With `--use-service-account-credentials`, it makes only the requests
    /// for the Lease, reviews and tokens.
    Credentials,
}

/// Returns a permission for all objects of a resource in all namespaces, with empty texts.
pub fn row(group: &str, resource: &str, verbs: &'static [&'static str]) -> Permission {
    Permission {
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: "",
        verbs,
        namespace: None,
        names: Vec::new(),
        subject: Subject::Controller,
        why: "",
        without: "",
        essential: false,
    }
}

impl Permission {
    /// Returns the RBAC rule that grants the permission, such as `{apiGroups: [apps], resources: [deployments], verbs:
    /// [list, watch]}`.
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

    /// Returns the resource with its subresource, such as `horizontalpodautoscalers/status`.
    pub fn resource_with_subresource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    fn attributes(&self, name: &str, verb: &str) -> ResourceAttributes {
        ResourceAttributes {
            group: Some(self.group.clone()),
            resource: Some(self.resource.clone()),
            subresource: Some(self.subresource.to_owned()),
            verb: Some(verb.to_owned()),
            namespace: self.namespace.clone(),
            name: Some(name.to_owned()),
            ..ResourceAttributes::default()
        }
    }

    /// Returns the resource with group and subresource as kubectl prints it, such as
    /// `horizontalpodautoscalers.autoscaling/status`.
    pub fn full_resource(&self) -> String {
        let group = if matches!(&*self.group, "" | "*") { String::new() } else { format!(".{}", self.group) };
        let subresource =
            if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        format!("{}{group}{subresource}", self.resource)
    }
}

/// Returns a YAML scalar, quoted if the plain text would have another meaning or type.
pub fn scalar(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '/');
    if text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.chars().all(plain) {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}

/// A needed permission that is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The needed permission, with all of its verbs.
    pub permission: Permission,
    /// The verbs that are not granted.
    pub verbs: Vec<&'static str>,
}

impl fmt::Display for Missing {
    /// Formats a text such as `not allowed to update horizontalpodautoscalers.autoscaling/status in the whole cluster`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Permission { namespace, names, .. } = &self.permission;
        write!(f, "not allowed to {} {}", self.verbs.join(", "), self.permission.full_resource())?;
        if !names.is_empty() {
            write!(f, " {}", names.join(", "))?;
        }
        match namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => f.write_str(" in the whole cluster"),
        }
    }
}

/// Returns the verbs of the permission that the API server does not grant to a user. `None` selects the account of
/// `client`.
pub async fn missing_verbs(
    client: &Client,
    user: Option<&User>,
    permission: &Permission,
) -> Result<Vec<&'static str>, ApiError> {
    let mut missing = Vec::new();
    for verb in permission.verbs {
        let names = permission.names.iter().map(String::as_str);
        // If the permission names no objects, the review has an empty name, which covers all objects.
        let names: Vec<_> = names.chain(permission.names.is_empty().then_some("")).collect();
        let mut are_allowed = true;
        for name in names {
            are_allowed = are_allowed
                && match user {
                    None => allowed(client, permission, name, verb).await?,
                    Some(user) => allowed_to(client, user, permission, name, verb).await?,
                };
        }
        if !are_allowed {
            missing.push(*verb);
        }
    }
    Ok(missing)
}

/// Returns whether the API server grants `verb` of the permission on the object `name`. `client` must use the account
/// that needs the permission. Sends a SelfSubjectAccessReview, which every user may send.
pub async fn allowed(
    client: &Client,
    permission: &Permission,
    name: &str,
    verb: &str,
) -> Result<bool, ApiError> {
    let mut review = SelfSubjectAccessReview::default();
    review.spec.resource_attributes = Some(permission.attributes(name, verb));
    let review = client.cluster_scoped().create(&PostParams::default(), &review).await?;
    Ok(review.status.is_some_and(|status| status.allowed))
}

/// Returns whether the API server grants `verb` of the permission on the object `name` to `user`. Sends a
/// SubjectAccessReview.
async fn allowed_to(
    client: &Client,
    user: &User,
    permission: &Permission,
    name: &str,
    verb: &str,
) -> Result<bool, ApiError> {
    let User { name: user, groups, .. } = user.clone();
    let spec = SubjectAccessReviewSpec {
        user: Some(user),
        groups: Some(groups),
        resource_attributes: Some(permission.attributes(name, verb)),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let review = client.cluster_scoped().create(&PostParams::default(), &review).await?;
    Ok(review.status.is_some_and(|status| status.allowed))
}

/// A user, as in the API server's `UserInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct User {
    /// The name, such as `system:serviceaccount:monitoring:prometheus`.
    pub name: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The identifier that distinguishes users with the same name over time.
    pub uid: String,
    /// Additional attributes from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns the user of a ServiceAccount, without its UID.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = [
            "system:serviceaccounts",
            &format!("system:serviceaccounts:{namespace}"),
            "system:authenticated",
        ];
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: groups.map(str::to_owned).into(),
            ..Self::default()
        }
    }
}

/// The action under review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// A request for API objects.
    ResourceAttributes(ResourceAction),
    /// A request for a path.
    NonResourceAttributes {
        /// The path of the request.
        path: String,
        /// The HTTP method in lower case.
        verb: String,
    },
}

/// A verb, and the objects to which it applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceAction {
    /// The verb, such as `get` or `list`.
    pub verb: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The version of the API group.
    pub version: &'static str,
    /// The plural name of the resource.
    pub resource: &'static str,
    /// The subresource. Empty for the objects themselves.
    pub subresource: &'static str,
    /// The namespace. Empty for all namespaces.
    pub namespace: String,
    /// The name of the object. Empty for all objects.
    pub name: String,
}

/// Returns the user of a bearer token. `None` if the token is invalid, is not issued for the API server, or has no user.
pub async fn token(client: &Client, token: &str) -> Result<Option<User>, ApiError> {
    let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
    let review = TokenReview { spec, ..TokenReview::default() };
    let review =
        client.within(REVIEW_TIMEOUT).cluster_scoped().create(&PostParams::default(), &review).await?;
    let TokenReviewStatus { authenticated, user, error, .. } = review.status.unwrap_or_default();
    if authenticated != Some(true) {
        if let Some(error) = error.filter(|error| !error.is_empty()) {
            tracing::debug!(%error, "bearer token is not valid");
        }
        return Ok(None);
    }
    let user = user.unwrap_or_default();
    Ok(user.username.filter(|name| !name.is_empty()).map(|name| User {
        name,
        groups: user.groups.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }))
}

/// Returns the decision of the API server's authorizers about `action` of `user`.
pub async fn access(client: &Client, user: &User, action: &Action) -> Result<Verdict, ApiError> {
    let User { name, groups, uid, extra } = user.clone();
    let mut spec = SubjectAccessReviewSpec {
        user: Some(name),
        groups: Some(groups),
        uid: Some(uid),
        extra: Some(extra),
        ..SubjectAccessReviewSpec::default()
    };
    match action.clone() {
        Action::ResourceAttributes(ResourceAction {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        }) => {
            spec.resource_attributes = Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                version: Some(version.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: Some(subresource.to_owned()),
                namespace: Some(namespace),
                name: Some(name),
                ..ResourceAttributes::default()
            });
        }
        Action::NonResourceAttributes { path, verb } => {
            spec.non_resource_attributes = Some(NonResourceAttributes { path: Some(path), verb: Some(verb) });
        }
    }
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let review =
        client.within(REVIEW_TIMEOUT).cluster_scoped().create(&PostParams::default(), &review).await?;
    Ok(review.status.unwrap_or_default())
}
