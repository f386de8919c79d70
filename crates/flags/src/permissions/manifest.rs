//! The manifest of roles and bindings that grant exactly the needed permissions.
//!
//! The manifest contains no ServiceAccount, so a deletion of the manifest deletes no ServiceAccount. After a rollback,
//! the built-in controller needs the ServiceAccount of `--use-service-account-credentials`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Value, json};

use crate::config::{ACCOUNT_NAME, ACCOUNT_NAMESPACE};
use cluster::permission::{Permission, Subject, scalar};

/// The subjects of the bindings, and the name of the roles and bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The namespace of the controller's ServiceAccount.
    pub namespace: String,
    /// The name of the controller's ServiceAccount.
    pub name: String,
    /// The user name of the configured credentials. Used only with `--use-service-account-credentials`.
    pub user: String,
    /// The name of roles and bindings.
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

/// Renders the manifest as YAML, with the purpose of each rule as a comment.
///
/// With `namespaced`, the manifest contains only Roles, and a comment lists the permissions that need a ClusterRole.
pub fn manifest(needed: &[Permission], account: &Account, namespaced: bool) -> String {
    let mut text = format!(
        "# The permissions that concertina needs with these flags, printed by: concertina rbac\n\
         # The ServiceAccount is not part of the manifest, so that deleting the manifest keeps it. To create it:\n\
         #   kubectl -n {} create serviceaccount {}\n",
        account.namespace, account.name
    );
    let has_credentials = needed.iter().any(|permission| permission.subject == Subject::Credentials);
    if has_credentials && account.user == Account::default().user {
        text.push_str(
            "# The bindings of the user can be omitted: the built-in roles of Kubernetes grant it these permissions.\n",
        );
    }
    let mut roles: BTreeMap<(Subject, Option<&str>), Vec<&Permission>> = BTreeMap::new();
    for permission in needed {
        let Permission { subject, namespace, .. } = permission;
        roles.entry((*subject, namespace.as_deref())).or_default().push(permission);
    }
    if namespaced {
        let left_out: BTreeSet<_> =
            roles.keys().copied().filter(|(_, namespace)| namespace.is_none()).collect();
        for permission in left_out.iter().filter_map(|key| roles.remove(key)).flatten() {
            let _ = write!(
                text,
                "#\n# Omitted, because a Role cannot grant it:\n#   {} {}, {}.\n#   Without it {}.\n",
                permission.verbs.join(", "),
                permission.full_resource(),
                permission.why,
                permission.without
            );
        }
    }
    for ((subject, namespace), rules) in roles {
        // Only the rule for the checkpoint allows writes of ConfigMaps.
        let checkpoint =
            rules.iter().filter(|rule| rule.resource == "configmaps" && rule.verbs.contains(&"update"));
        config_maps(&mut text, checkpoint);
        let name = match subject {
            Subject::Credentials => format!("{}-credentials", account.roles),
            Subject::Controller => account.roles.clone(),
        };
        role(&mut text, &name, (subject, namespace), &rules, account);
    }
    text
}

/// The error of [`manifest_as_json`].
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The manifest is not YAML.
    #[error("cannot read the manifest as YAML: {0}; print it with -o yaml")]
    Yaml(#[from] serde_saphyr::Error),
    /// The objects cannot be written as JSON.
    #[error("the manifest cannot be written as JSON: {0}; print it with -o yaml")]
    Json(#[from] serde_json::Error),
}

/// Converts the output of [`manifest`] to a `List` in JSON, with a line break at the end.
///
/// # Errors
/// Returns [`ManifestError`] if the manifest is not YAML or cannot be written as JSON.
pub fn manifest_as_json(manifest: &str) -> Result<String, ManifestError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest)?;
    let items: Vec<_> = documents.into_iter().filter(Value::is_object).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

/// Appends the ConfigMaps that the rules name. They have no data, so that a second `kubectl apply` keeps the data in
/// the cluster.
fn config_maps<'a>(text: &mut String, rules: impl Iterator<Item = &'a &'a Permission>) {
    for rule in rules {
        text.push_str(
            "# The controller may not create them: a rule for create cannot name an object, so it would allow any \
             ConfigMap.\n",
        );
        for name in &rule.names {
            let _ =
                write!(text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n", scalar(name));
            if let Some(namespace) = &rule.namespace {
                let _ = writeln!(text, "  namespace: {namespace}");
            }
        }
    }
}

/// Appends a role and its binding.
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
