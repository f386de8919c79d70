//! As whom the controller acts, and how far it reaches.

use std::collections::BTreeSet;
use std::str::FromStr;

use super::reader::{Reader, WRONG_TYPE};
use crate::cli::flags::FlagError;
use crate::cli::values::Value;

/// The resources whose `scale` the role allows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ScaleTargets {
    /// `*`: whatever has a `scale`, as the role of the built-in controller has it.
    #[default]
    All,
    /// These, with their groups; the core group is empty.
    Only(BTreeSet<GroupResource>),
}

/// A resource and its group: `deployments.apps`; the core group is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupResource {
    /// `apps`; empty for the core group.
    pub group: String,
    /// `deployments`.
    pub resource: String,
}

/// `--scale-source`: where steady syncs get the Scales of targets from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScaleSource {
    /// From a watch where the permissions are there, otherwise by a request each.
    #[default]
    Auto,
    /// The same, and permissions that are missing are a warning.
    Watch,
    /// By a request each, as the built-in controller does.
    Get,
}

impl FromStr for ScaleSource {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            "watch" => Ok(Self::Watch),
            "get" => Ok(Self::Get),
            _ => Err("must be auto, watch or get".to_owned()),
        }
    }
}

/// `--watch-namespaces`: the namespaces to act in; none is all of them.
pub(super) fn watch_namespaces(read: &Reader<'_>) -> Result<Option<BTreeSet<String>>, FlagError> {
    const FLAG: &str = "watch-namespaces";
    if read.raw.value(FLAG).is_none() {
        return Ok(None);
    }
    read.checked(FLAG, |value| {
        let Value::List(names) = value else { return Err(WRONG_TYPE.to_owned()) };
        let mut known = BTreeSet::new();
        for name in names {
            if !is_label(name) {
                return Err(format!("{name:?} is no name of a namespace"));
            }
            if !known.insert(name.clone()) {
                return Err(format!("{name} is named twice"));
            }
        }
        // An empty variable in a script must not become the whole cluster.
        if known.is_empty() { Err("must name at least one namespace".to_owned()) } else { Ok(Some(known)) }
    })
}

/// `--scale-targets`.
pub(super) fn scale_targets(read: &Reader<'_>) -> Result<ScaleTargets, FlagError> {
    read.checked("scale-targets", |value| {
        let Value::List(names) = value else { return Err(WRONG_TYPE.to_owned()) };
        if let [all] = names.as_slice()
            && all == "*"
        {
            return Ok(ScaleTargets::All);
        }
        let targets: BTreeSet<_> = names
            .iter()
            .map(|name| {
                if !name.split('.').all(is_label) {
                    return Err(format!("{name:?} is no resource with its group, such as deployments.apps"));
                }
                let (resource, group) = name.split_once('.').unwrap_or((name, ""));
                Ok(GroupResource { group: group.to_owned(), resource: resource.to_owned() })
            })
            .collect::<Result<_, String>>()?;
        if targets.is_empty() {
            return Err("must be * or resources with their groups, such as deployments.apps".to_owned());
        }
        Ok(ScaleTargets::Only(targets))
    })
}

/// RFC 1123's label, which namespaces and resources are.
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
    use crate::cli::{Config, Invocation};

    use super::*;

    fn config(words: &[&str]) -> Result<Config, String> {
        match Invocation::from_args(words.iter().map(Into::into)) {
            Ok(Invocation::Controller(config)) => Ok(*config),
            Ok(_) => panic!("{words:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn namespaces_add_up_and_none_is_all() {
        assert_eq!(config(&[]).unwrap().watch_namespaces, None);
        let namespaces = config(&["--watch-namespaces=shop,bank", "--watch-namespaces=a-1"]).unwrap();
        let names = ["a-1", "bank", "shop"].map(str::to_owned).into();
        assert_eq!(namespaces.watch_namespaces, Some(names));
    }

    #[test]
    fn empty_repeated_and_impossible_namespaces_are_refused_with_the_flag() {
        for (value, reason) in [
            ("", "must name at least one namespace"),
            ("shop,", "\"\" is no name of a namespace"),
            ("shop,bank,shop", "shop is named twice"),
            ("Shop", "\"Shop\" is no name of a namespace"),
            ("*", "\"*\" is no name of a namespace"),
            ("-a", "\"-a\" is no name of a namespace"),
        ] {
            let error = config(&[&format!("--watch-namespaces={value}")]).unwrap_err();
            let expected = format!("invalid argument \"{value}\" for \"--watch-namespaces\" flag: {reason}");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn scale_targets_are_all_or_named_with_their_groups() {
        assert_eq!(config(&["--scale-targets=*"]).unwrap().scale_targets, ScaleTargets::All);
        let narrow = config(&["--scale-targets=rollouts.argoproj.io,replicationcontrollers"]).unwrap();
        let of =
            |group: &str, resource: &str| GroupResource { group: group.into(), resource: resource.into() };
        let expected = [of("", "replicationcontrollers"), of("argoproj.io", "rollouts")];
        assert_eq!(narrow.scale_targets, ScaleTargets::Only(expected.into()));
        for wrong in ["", "apps/deployments", "deployments.", "*,deployments.apps", "Deployments.apps"] {
            let error = config(&[&format!("--scale-targets={wrong}")]).unwrap_err();
            assert!(error.contains("\"--scale-targets\" flag"), "{error}");
        }
    }
}
