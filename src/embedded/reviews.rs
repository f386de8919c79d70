//! Whose bearer token it is, and what somebody may do: as tests set it. Nothing here guards the cluster itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::object;

/// Tokens and rules. A handle: clones show the same.
#[derive(Debug, Clone, Default)]
pub struct Reviews(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// User and groups, by token.
    tokens: BTreeMap<String, (String, Vec<String>)>,
    rules: Vec<Rule>,
}

/// What a user, or a group, may do.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    subject: String,
    verb: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Path(String),
    /// `resource.group`, in one namespace or in all.
    Resource(String, Option<String>),
}

impl Reviews {
    /// A token of a user in groups, from now on.
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        self.lock().tokens.insert(token.to_owned(), (user.to_owned(), groups));
    }

    /// A token that is none any more.
    pub fn remove_token(&self, token: &str) {
        self.lock().tokens.remove(token);
    }

    /// Lets a user, or a group, do something with a path.
    pub fn allow_path(&self, subject: &str, verb: &str, path: &str) {
        self.allow(subject, verb, What::Path(path.to_owned()));
    }

    /// Lets a user, or a group, do something with a resource, such as `pods` or `deployments.apps`, in a namespace or
    /// everywhere.
    pub fn allow_resource(&self, subject: &str, verb: &str, resource: &str, namespace: Option<&str>) {
        self.allow(subject, verb, What::Resource(resource.to_owned(), namespace.map(str::to_owned)));
    }

    /// Takes everything away that anybody may.
    pub fn allow_nothing(&self) {
        self.lock().rules.clear();
    }

    fn allow(&self, subject: &str, verb: &str, what: What) {
        self.lock().rules.push(Rule { subject: subject.to_owned(), verb: verb.to_owned(), what });
    }

    /// The status of a TokenReview.
    pub(super) fn token(&self, review: &Value) -> Value {
        match self.lock().tokens.get(object::text(review, &["spec", "token"])) {
            Some((user, groups)) => {
                json!({ "authenticated": true, "user": { "username": user, "groups": groups } })
            }
            None => json!({ "user": {}, "error": "invalid bearer token" }),
        }
    }

    /// The status of a SubjectAccessReview.
    pub(super) fn access(&self, review: &Value) -> Value {
        let is = |path: &[&str], text: &str| object::text(review, path) == text;
        let allowed = self.lock().rules.iter().any(|rule| {
            let known = is(&["spec", "user"], &rule.subject)
                || object::list(review, &["spec", "groups"]).iter().any(|group| *group == *rule.subject);
            known
                && match &rule.what {
                    What::Path(path) => {
                        is(&["spec", "nonResourceAttributes", "path"], path)
                            && is(&["spec", "nonResourceAttributes", "verb"], &rule.verb)
                    }
                    What::Resource(resource, namespace) => {
                        let of = |field| object::text(review, &["spec", "resourceAttributes", field]);
                        super::status::qualified(of("group"), of("resource")) == *resource
                            && of("verb") == rule.verb
                            && namespace.as_ref().is_none_or(|namespace| of("namespace") == namespace)
                    }
                }
        });
        json!({ "allowed": allowed })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_may_do_what_a_rule_says_and_nothing_else() {
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
