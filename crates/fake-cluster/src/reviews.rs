//! Token owners and permissions for reviews, which tests configure. Access to the cluster itself is not
//! restricted.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::object;

/// Tokens and permissions. A handle: clones share the same state.
#[derive(Debug, Clone, Default)]
pub struct Reviews(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// User and groups by token.
    tokens: BTreeMap<String, (String, Vec<String>)>,
    rules: Vec<Rule>,
}

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
    /// `resource.group`, in one namespace or in all.
    Resource(String, Option<String>),
}

impl Reviews {
    /// Adds a token of a user with groups.
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        self.0.lock().tokens.insert(token.to_owned(), (user.to_owned(), groups));
    }

    /// Removes a token, which becomes invalid.
    pub fn remove_token(&self, token: &str) {
        self.0.lock().tokens.remove(token);
    }

    /// Allows a user or a group to use a verb on a path.
    pub fn allow_path(&self, subject: &str, verb: &str, path: &str) {
        self.allow(subject, verb, Scope::Path(path.to_owned()));
    }

    /// Allows a user or a group to use a verb on a resource, such as `pods` or `deployments.apps`, in one
    /// namespace or in all.
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

    /// Returns the status of a TokenReview.
    pub(super) fn token(&self, review: &Value) -> Value {
        match self.0.lock().tokens.get(object::text(review, &["spec", "token"])) {
            Some((user, groups)) => {
                json!({ "authenticated": true, "user": { "username": user, "groups": groups } })
            }
            None => json!({ "user": {}, "error": "invalid bearer token" }),
        }
    }

    /// Returns the status of a SubjectAccessReview.
    pub(super) fn access(&self, review: &Value) -> Value {
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
                        super::status::qualified(attribute("group"), attribute("resource")) == *resource
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
