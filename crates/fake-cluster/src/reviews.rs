//! Reviews of tokens and permissions, with results that tests configure. Access to the cluster is not restricted.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::object;

/// The tokens and permissions that determine the results of reviews. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Reviews(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    tokens: BTreeMap<String, Token>,
    rules: Vec<Rule>,
}

/// The owner of a token, which is issued for the API server.
#[derive(Debug)]
struct Token {
    user: String,
    groups: Vec<String>,
}

/// The user of every client, because the cluster does not authenticate.
const USER: &str = "system:serviceaccount:concertina-system:concertina";
/// The audience of the API server.
const API_SERVER: &str = "https://kubernetes.default.svc.cluster.local";

/// A permission of a user or a group.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    subject: String,
    verb: String,
    scope: Scope,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    Path(String),
    /// `resource.group`, and the namespace. `None` for all namespaces.
    Resource(String, Option<String>),
}

/// Returns the kind of a review by its group and resource.
pub(super) fn kind(group: &str, resource: &str) -> Option<&'static str> {
    match (group, resource) {
        ("authorization.k8s.io", "selfsubjectaccessreviews") => Some("SelfSubjectAccessReview"),
        ("authorization.k8s.io", "subjectaccessreviews") => Some("SubjectAccessReview"),
        ("authentication.k8s.io", "tokenreviews") => Some("TokenReview"),
        ("authentication.k8s.io", "selfsubjectreviews") => Some("SelfSubjectReview"),
        _ => None,
    }
}

impl Reviews {
    /// Adds a token of a user with groups, issued for the API server.
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        self.0.lock().tokens.insert(token.to_owned(), Token { user: user.to_owned(), groups });
    }

    /// Removes a token. Reviews then report it as invalid.
    pub fn remove_token(&self, token: &str) {
        self.0.lock().tokens.remove(token);
    }

    /// Allows a user or a group to use a verb on a path.
    pub fn allow_path(&self, subject: &str, verb: &str, path: &str) {
        self.allow(subject, verb, Scope::Path(path.to_owned()));
    }

    /// Allows a user or a group to use a verb on a resource, such as `pods` or `deployments.apps`, in one namespace or
    /// in all.
    pub fn allow_resource(&self, subject: &str, verb: &str, resource: &str, namespace: Option<&str>) {
        self.allow(subject, verb, Scope::Resource(resource.to_owned(), namespace.map(str::to_owned)));
    }

    /// Removes all permissions.
    pub fn allow_nothing(&self) {
        self.0.lock().rules.clear();
    }

    fn allow(&self, subject: &str, verb: &str, scope: Scope) {
        self.0.lock().rules.push(Rule { subject: subject.to_owned(), verb: verb.to_owned(), scope });
    }

    /// Returns the status of a review. A SelfSubjectAccessReview allows everything.
    pub(super) fn status(&self, kind: &str, review: &Value) -> Value {
        match kind {
            "TokenReview" => self.token(review),
            "SubjectAccessReview" => self.access(review),
            "SelfSubjectReview" => json!({ "userInfo": { "username": USER } }),
            _ => json!({ "allowed": true }),
        }
    }

    fn token(&self, review: &Value) -> Value {
        let state = self.0.lock();
        let invalid = || json!({ "user": {}, "error": "invalid bearer token" });
        let Some(Token { user, groups }) = state.tokens.get(object::text(review, &["spec", "token"])) else {
            return invalid();
        };
        let user = json!({ "username": user, "groups": groups });
        let requested = object::list(review, &["spec", "audiences"]);
        if !requested.is_empty() && requested.iter().all(|requested| *requested != API_SERVER) {
            return invalid();
        }
        json!({ "authenticated": true, "user": user, "audiences": [API_SERVER] })
    }

    fn access(&self, review: &Value) -> Value {
        let is = |path: &[&str], text: &str| object::text(review, path) == text;
        let allowed = self.0.lock().rules.iter().any(|rule| {
            let subject_matches = is(&["spec", "user"], &rule.subject)
                || object::list(review, &["spec", "groups"]).iter().any(|group| *group == *rule.subject);
            subject_matches
                && match &rule.scope {
                    Scope::Path(path) => {
                        is(&["spec", "nonResourceAttributes", "path"], path)
                            && is(&["spec", "nonResourceAttributes", "verb"], &rule.verb)
                    }
                    Scope::Resource(resource, namespace) => {
                        let attribute = |field| object::text(review, &["spec", "resourceAttributes", field]);
                        let name = super::status::qualified(attribute("group"), attribute("resource"));
                        let subresource = attribute("subresource");
                        let name =
                            if subresource.is_empty() { name } else { format!("{name}/{subresource}") };
                        name == *resource
                            && attribute("verb") == rule.verb
                            && namespace.as_ref().is_none_or(|namespace| attribute("namespace") == namespace)
                    }
                }
        });
        json!({ "allowed": allowed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_review_allows_only_what_a_rule_permits() {
        let reviews = Reviews::default();
        reviews.allow_resource("dev", "get", "horizontalpodautoscalers.autoscaling", Some("shop"));
        let ask = |group: &str, verb: &str, namespace: &str| {
            let attributes = json!({
                "group": "autoscaling", "resource": "horizontalpodautoscalers", "verb": verb, "namespace": namespace,
            });
            let review = json!({ "spec": { "groups": [group], "resourceAttributes": attributes } });
            reviews.access(&review)["allowed"] == true
        };
        assert!(ask("dev", "get", "shop"));
        assert!(!ask("ops", "get", "shop") && !ask("dev", "list", "shop") && !ask("dev", "get", ""));
    }
}
