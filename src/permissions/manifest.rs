//! The manifest of roles and bindings that allow exactly what is needed.
//!
//! It makes no ServiceAccount and so deletes none: the default one belongs to the built-in controller, which needs it
//! again when it takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::{ACCOUNT_NAME, ACCOUNT_NAMESPACE, Permission, Role, Subject};

/// Whom the bindings name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The ServiceAccount of the controller: its namespace.
    pub namespace: String,
    /// And its name.
    pub name: String,
    /// The user whose credentials are given, if the controller acts as a ServiceAccount with tokens it asks for.
    pub user: String,
    /// What roles and bindings are called.
    pub roles: String,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            namespace: ACCOUNT_NAMESPACE.to_owned(),
            name: ACCOUNT_NAME.to_owned(),
            user: "system:kube-controller-manager".to_owned(),
            roles: "concertina".to_owned(),
        }
    }
}

/// The manifest, as YAML that says for each rule what it is for.
///
/// With `namespaced`, there are Roles only: what would need a ClusterRole is told in a comment.
pub fn manifest(needed: &[Permission], account: &Account, namespaced: bool) -> String {
    let mut text = format!(
        "# What concertina needs with these flags, printed by: concertina rbac\n\
         # The ServiceAccount is not made here, so that it is not deleted either:\n\
         #   kubectl -n {} create serviceaccount {}\n",
        account.namespace, account.name
    );
    let has_credentials = needed.iter().any(|permission| permission.subject == Subject::Credentials);
    if has_credentials && account.user == Account::default().user {
        text.push_str(
            "# What is bound to the user can be left out: built-in roles of Kubernetes allow it to this one.\n",
        );
    }
    let mut roles: BTreeMap<(Subject, Role, Option<&str>), Vec<&Permission>> = BTreeMap::new();
    for permission in needed {
        let Permission { subject, role, namespace, .. } = permission;
        roles.entry((*subject, *role, namespace.as_deref())).or_default().push(permission);
    }
    if namespaced {
        let left_out: BTreeSet<_> =
            roles.keys().copied().filter(|(_, _, namespace)| namespace.is_none()).collect();
        for permission in left_out.iter().filter_map(|key| roles.remove(key)).flatten() {
            let _ = write!(
                text,
                "#\n# Left out, because no Role can allow it:\n#   {} {}, {}.\n#   Without it {}.\n",
                permission.verbs.join(", "),
                permission.full_resource(),
                permission.why,
                permission.without
            );
        }
    }
    for ((subject, purpose, namespace), rules) in roles {
        if purpose == Role::History {
            config_maps(&mut text, &rules);
        }
        let name = match (subject, purpose) {
            (Subject::Credentials, _) => format!("{}-credentials", account.roles),
            (_, Role::History) => format!("{}-history", account.roles),
            (_, Role::Own) => account.roles.clone(),
        };
        role(&mut text, &name, (subject, namespace), &rules, account);
    }
    text
}

/// The ConfigMaps that these rules are about, with nothing in them: applied again, they keep what they hold.
fn config_maps(text: &mut String, rules: &[&Permission]) {
    text.push_str(
        "# To create them is not allowed to the controller: who may create one ConfigMap may create any.\n",
    );
    for rule in rules {
        for name in &rule.names {
            let _ =
                write!(text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n", scalar(name));
            if let Some(namespace) = &rule.namespace {
                let _ = writeln!(text, "  namespace: {namespace}");
            }
        }
    }
}

/// A role and its binding. Writing to a String cannot fail.
fn role(
    text: &mut String,
    name: &str,
    (subject, namespace): (Subject, Option<&str>),
    rules: &[&Permission],
    account: &Account,
) {
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let head = |text: &mut String, kind: &str| {
        let _ = write!(
            text,
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n"
        );
        if let Some(namespace) = namespace {
            let _ = writeln!(text, "  namespace: {namespace}");
        }
    };
    head(text, kind);
    text.push_str("rules:\n");
    for rule in rules {
        let resource = rule.resource_with_subresource();
        let _ = write!(
            text,
            "  # {}\n  - apiGroups: [{}]\n    resources: [{}]\n",
            rule.why,
            scalar(&rule.group),
            scalar(&resource)
        );
        if !rule.names.is_empty() {
            let names: Vec<_> = rule.names.iter().map(|name| scalar(name)).collect();
            let _ = writeln!(text, "    resourceNames: [{}]", names.join(", "));
        }
        let _ = writeln!(text, "    verbs: [{}]", rule.verbs.join(", "));
    }
    head(text, &format!("{kind}Binding"));
    let _ = write!(
        text,
        "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name}\nsubjects:\n"
    );
    let _ = match subject {
        Subject::Controller => write!(
            text,
            "  - kind: ServiceAccount\n    name: {}\n    namespace: {}\n",
            account.name, account.namespace
        ),
        Subject::Credentials => write!(
            text,
            "  - apiGroup: rbac.authorization.k8s.io\n    kind: User\n    name: {}\n",
            scalar(&account.user)
        ),
    };
}

/// A text as YAML takes it: quoted where it would be something else.
pub(super) fn scalar(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '/');
    if text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.chars().all(plain) {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}
