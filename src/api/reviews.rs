//! Reviews: whose token it is, and what somebody may do. They are POSTs that ask and change nothing, so the write gate
//! lets them pass.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::client::Client;
use super::error::ApiError;

/// How long a review may take: whoever is reviewed waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Somebody, as the API server knows users.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct User {
    /// The name: `system:serviceaccount:monitoring:prometheus`.
    #[serde(rename(serialize = "user", deserialize = "username"), default)]
    pub name: String,
    /// Groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What tells users of one name apart that lived at different times.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// What else an authenticator says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What somebody wants to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Something with objects of the API server.
    ResourceAttributes(ResourceAction),
    /// Something with a path of a server.
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
    /// Its version.
    pub version: &'static str,
    /// The plural name of the resource.
    pub resource: &'static str,
    /// The namespace; empty: all.
    pub namespace: String,
    /// The object; empty: all.
    pub name: String,
}

/// What the API server's authorizers say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Whether it is allowed.
    #[serde(default)]
    pub allowed: bool,
    /// Why, if they say so.
    #[serde(default)]
    pub reason: String,
    /// What went wrong on the way to the verdict, which may stand all the same.
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

/// Whose bearer token this is; `None` if it is nobody's, or not any more.
pub async fn token(client: &Client, token: &str) -> Result<Option<User>, ApiError> {
    let review =
        Review { api_version: "authentication.k8s.io/v1", kind: "TokenReview", spec: TokenSpec { token } };
    let path = ["apis", "authentication.k8s.io", "v1", "tokenreviews"];
    let TokenStatus { authenticated, user, error } =
        ask(client, &path, "tokenreviews.authentication.k8s.io", &review).await?;
    if !authenticated && !error.is_empty() {
        tracing::debug!(%error, "a bearer token is not valid");
    }
    Ok((authenticated && !user.name.is_empty()).then_some(user))
}

/// Whether the API server's authorizers allow this.
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
    fn a_question_has_the_form_that_the_api_server_reads() {
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
    fn an_answer_may_leave_out_what_is_empty() {
        let status: TokenStatus = serde_json::from_value(json!({ "user": {} })).unwrap();
        assert!(!status.authenticated && status.user == User::default());
        let verdict: Verdict = serde_json::from_value(json!({ "allowed": false })).unwrap();
        assert_eq!(verdict, Verdict::default());
    }
}
