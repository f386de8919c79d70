//! Token and access reviews. Reviews are POSTs that change nothing, so the write gate admits them.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::client::Client;
use super::error::ApiError;

/// Timeout of a review. The client under review waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A user, as in the API server's `UserInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct User {
    /// The name: `system:serviceaccount:monitoring:prometheus`.
    #[serde(rename(serialize = "user", deserialize = "username"), default)]
    pub name: String,
    /// The user's groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Distinguishes users with the same name over time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Additional information from the authenticator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The action under review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
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

/// The decision of the API server's authorizers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Whether the action is allowed.
    #[serde(default)]
    pub allowed: bool,
    /// The reason for the decision. May be empty.
    #[serde(default)]
    pub reason: String,
    /// An error during evaluation. The decision may still be valid.
    #[serde(default)]
    pub evaluation_error: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<S> {
    api_version: &'static str,
    kind: &'static str,
    spec: S,
}

#[derive(Serialize)]
struct TokenSpec<'a> {
    token: &'a str,
}

#[derive(Serialize)]
struct AccessSpec<'a> {
    #[serde(flatten)]
    user: &'a User,
    #[serde(flatten)]
    action: &'a Action,
}

#[derive(Deserialize)]
struct Answer<T> {
    status: T,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: User,
    #[serde(default)]
    error: String,
}

/// The user of a bearer token. `None` if the token is invalid or expired.
pub async fn token(client: &Client, token: &str) -> Result<Option<User>, ApiError> {
    let review =
        Review { api_version: "authentication.k8s.io/v1", kind: "TokenReview", spec: TokenSpec { token } };
    let path = ["apis", "authentication.k8s.io", "v1", "tokenreviews"];
    let TokenStatus { authenticated, user, error } =
        ask(client, &path, "tokenreviews.authentication.k8s.io", &review).await?;
    if !authenticated && !error.is_empty() {
        tracing::debug!(%error, "bearer token is not valid");
    }
    Ok((authenticated && !user.name.is_empty()).then_some(user))
}

/// Whether the API server's authorizers permit the action.
pub async fn access(client: &Client, user: &User, action: &Action) -> Result<Verdict, ApiError> {
    let review = Review {
        api_version: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        spec: AccessSpec { user, action },
    };
    let path = ["apis", "authorization.k8s.io", "v1", "subjectaccessreviews"];
    ask(client, &path, "subjectaccessreviews.authorization.k8s.io", &review).await
}

async fn ask<S: Serialize, T: serde::de::DeserializeOwned>(
    client: &Client,
    path: &[&str],
    resource: &str,
    review: &Review<S>,
) -> Result<T, ApiError> {
    let body = serde_json::to_vec(review).map_err(|error| ApiError::Request(error.to_string()))?;
    let call = Call::send(Method::POST, path.iter().copied(), "application/json", body)
        .about(resource, "")
        .within(TIMEOUT);
    client.json::<Answer<T>>(&call).await.map(|answer| answer.status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn review_has_the_form_that_the_api_server_expects() {
        let user = User { name: "jane".into(), groups: vec!["dev".into()], ..User::default() };
        let path = Action::NonResourceAttributes { path: "/metrics".into(), verb: "get".into() };
        assert_eq!(
            serde_json::to_value(AccessSpec { user: &user, action: &path }).unwrap(),
            json!({
                "user": "jane",
                "groups": ["dev"],
                "nonResourceAttributes": { "path": "/metrics", "verb": "get" },
            })
        );
        let resource = Action::ResourceAttributes(ResourceAction {
            verb: "get",
            group: "autoscaling",
            version: "v2",
            resource: "horizontalpodautoscalers",
            namespace: "shop".into(),
            name: "web".into(),
        });
        let spec = serde_json::to_value(AccessSpec { user: &user, action: &resource }).unwrap();
        assert_eq!(spec["resourceAttributes"]["namespace"], "shop");
    }

    #[test]
    fn response_may_omit_empty_fields() {
        let status: TokenStatus = serde_json::from_value(json!({ "user": {} })).unwrap();
        assert!(!status.authenticated && status.user == User::default());
        let verdict: Verdict = serde_json::from_value(json!({ "allowed": false })).unwrap();
        assert_eq!(verdict, Verdict::default());
    }
}
