//! The namespaces and the scale targets of the controller.

use std::collections::BTreeSet;

use crate::cli::error::Reason;

/// The resources that the role allows to scale.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ScaleTargets {
    /// `*`: every resource with a `scale` subresource, like the role of the built-in controller.
    #[default]
    All,
    /// The listed resources only.
    Only(BTreeSet<GroupResource>),
}

/// A resource and its group, such as `deployments.apps`. The core group is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupResource {
    /// The API group, such as `apps`. Empty for the core group.
    pub group: String,
    /// The resource, such as `deployments`.
    pub resource: String,
}

/// Checks `--watch-namespaces`.
pub(in crate::cli) fn namespaces(names: Vec<String>) -> Result<Option<BTreeSet<String>>, Reason> {
    let mut namespaces = BTreeSet::new();
    for name in names {
        if !is_label(&name) {
            return Err(Reason::Namespace(name));
        }
        if !namespaces.insert(name.clone()) {
            return Err(Reason::Twice(name));
        }
    }
    // An empty variable in a script must not select the whole cluster.
    if namespaces.is_empty() { Err(Reason::NoNamespace) } else { Ok(Some(namespaces)) }
}

/// Checks the name of one namespace.
pub(in crate::cli) fn namespace(name: String) -> Result<String, Reason> {
    if is_label(&name) { Ok(name) } else { Err(Reason::Namespace(name)) }
}

/// Checks `--scale-targets`.
pub(in crate::cli) fn scale_targets(names: Vec<String>) -> Result<ScaleTargets, Reason> {
    if names == ["*"] {
        return Ok(ScaleTargets::All);
    }
    let target = |name: String| {
        if !name.split('.').all(is_label) {
            return Err(Reason::Resource(name));
        }
        let (resource, group) = name.split_once('.').unwrap_or((&name, ""));
        Ok(GroupResource { group: group.to_owned(), resource: resource.to_owned() })
    };
    let targets = names.into_iter().map(target).collect::<Result<BTreeSet<_>, _>>()?;
    if targets.is_empty() {
        return Err(Reason::MustBe("* or resources with their groups, such as deployments.apps"));
    }
    Ok(ScaleTargets::Only(targets))
}

/// Returns whether a name is an RFC 1123 label. Namespaces and resources have such names.
fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 63
        && !name.is_empty()
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use crate::cli::Config;
    use crate::invocation::Invocation;

    use super::*;

    fn config(words: &[&str]) -> Result<Config, String> {
        match Invocation::from_args(words.iter().map(Into::into)) {
            Ok(Invocation::Controller(config)) => Ok(*config),
            Ok(_) => panic!("{words:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn namespaces_accumulate_and_default_to_all() {
        assert_eq!(config(&[]).unwrap().controller.watch_namespaces, None);
        let namespaces = config(&["--watch-namespaces=shop,bank", "--watch-namespaces=a-1"]).unwrap();
        let names = ["a-1", "bank", "shop"].map(str::to_owned).into();
        assert_eq!(namespaces.controller.watch_namespaces, Some(names));
    }

    #[test]
    fn invalid_namespaces_are_refused_with_the_flag() {
        for (value, reason) in [
            ("", "must name at least one namespace"),
            ("shop,", "\"\" is not a valid namespace name"),
            ("shop,bank,shop", "shop is listed twice"),
            ("Shop", "\"Shop\" is not a valid namespace name"),
            ("*", "\"*\" is not a valid namespace name"),
            ("-a", "\"-a\" is not a valid namespace name"),
        ] {
            let error = config(&[&format!("--watch-namespaces={value}")]).unwrap_err();
            let expected = format!("invalid argument \"{value}\" for \"--watch-namespaces\" flag: {reason}");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn scale_targets_are_all_or_resources_with_groups() {
        assert_eq!(config(&["--scale-targets=*"]).unwrap().scale_targets, ScaleTargets::All);
        let narrow = config(&["--scale-targets=rollouts.argoproj.io,replicationcontrollers"]).unwrap();
        let target =
            |group: &str, resource: &str| GroupResource { group: group.into(), resource: resource.into() };
        let expected = [target("", "replicationcontrollers"), target("argoproj.io", "rollouts")];
        assert_eq!(narrow.scale_targets, ScaleTargets::Only(expected.into()));
        for wrong in ["", "apps/deployments", "deployments.", "*,deployments.apps", "Deployments.apps"] {
            let error = config(&[&format!("--scale-targets={wrong}")]).unwrap_err();
            assert!(error.contains("\"--scale-targets\" flag"), "{error}");
        }
    }
}
