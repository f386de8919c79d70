//! Token and access reviews. Reviews are POSTs that change nothing, so the write gate admits them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use serde::Serialize;

use super::client::Client;
use super::error::ApiError;

/// The decision of the API server's authorizers.
pub use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus as Verdict;

/// Timeout of a review. The client under review waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A user, as in the API server's `UserInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct User {
    /// The name: `system:serviceaccount:monitoring:prometheus`.
    pub name: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Distinguishes users with the same name over time.
    pub uid: String,
    /// Additional information from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The action under review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// A request for API objects.
    ResourceAttributes(ResourceAction),
    /// A request for a path.
    NonResourceAttributes {
        /// The path.
        path: String,
        /// The method in lower case.
        verb: String,
    },
}

/// A verb on objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceAction {
    /// `get`, `list`.
    pub verb: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The version of the API group.
    pub version: &'static str,
    /// The plural name of the resource.
    pub resource: &'static str,
    /// The namespace. Empty means all.
    pub namespace: String,
    /// The object. Empty means all.
    pub name: String,
}

/// The user of a bearer token. `None` if the token is invalid or expired, or not issued for `audience`, or if the
/// review names no user. Without `audience`, the token must be issued for the API server.
pub async fn token(client: &Client, token: &str, audience: Option<&str>) -> Result<Option<User>, ApiError> {
    let audiences = audience.map(|audience| vec![audience.to_owned()]);
    let spec = TokenReviewSpec { token: token.to_owned(), audiences };
    let review = TokenReview { spec, ..TokenReview::default() };
    let review = client.within(TIMEOUT).cluster_scoped().create(&PostParams::default(), &review).await?;
    let TokenReviewStatus { authenticated, user, error, audiences } = review.status.unwrap_or_default();
    if authenticated != Some(true) {
        if let Some(error) = error.filter(|error| !error.is_empty()) {
            tracing::debug!(%error, "bearer token is not valid");
        }
        return Ok(None);
    }
    // An authenticator without support for audiences confirms none, and its token may be for the API server.
    let confirmed = audiences.unwrap_or_default();
    if audience.is_some_and(|audience| !confirmed.iter().any(|confirmed| confirmed == audience)) {
        tracing::debug!(audience, "bearer token is not valid for the audience");
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

/// Whether the API server's authorizers permit the action.
pub async fn access(client: &Client, user: &User, action: &Action) -> Result<Verdict, ApiError> {
    let review = SubjectAccessReview { spec: access_spec(user, action), ..SubjectAccessReview::default() };
    let review = client.within(TIMEOUT).cluster_scoped().create(&PostParams::default(), &review).await?;
    Ok(review.status.unwrap_or_default())
}

fn access_spec(user: &User, action: &Action) -> SubjectAccessReviewSpec {
    let User { name, groups, uid, extra } = user.clone();
    let mut spec = SubjectAccessReviewSpec {
        user: Some(name),
        groups: Some(groups),
        uid: Some(uid),
        extra: Some(extra),
        ..SubjectAccessReviewSpec::default()
    };
    match action.clone() {
        Action::ResourceAttributes(ResourceAction { verb, group, version, resource, namespace, name }) => {
            spec.resource_attributes = Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                version: Some(version.to_owned()),
                resource: Some(resource.to_owned()),
                namespace: Some(namespace),
                name: Some(name),
                ..ResourceAttributes::default()
            });
        }
        Action::NonResourceAttributes { path, verb } => {
            spec.non_resource_attributes = Some(NonResourceAttributes { path: Some(path), verb: Some(verb) });
        }
    }
    spec
}
