//! The command line of `concertina rbac`: the controller's flags, and the subjects of the manifest.

use super::wants_help;
use crate::cli::config::Config;
use crate::cli::flags::{Flag, FlagError, Group, Purpose, Raw, Table};
use crate::cli::values::{Kind, Value};
use crate::cli::{CliError, help, kcm, own};
use crate::permissions::Account;

/// The options of `rbac`.
#[derive(Debug, Clone, PartialEq)]
pub struct RbacOptions {
    /// The configuration that the controller will run with.
    pub config: Config,
    /// The subjects of the bindings, and the name of roles and bindings.
    pub account: Account,
}

/// The parsed arguments: options, or the requested help text.
pub(super) enum Parsed {
    Options(Box<RbacOptions>),
    Help(String),
}

const USAGE: &str = "\
Prints the roles and bindings that a controller with these flags needs, and no others.

Usage:
  concertina rbac [flags] | kubectl apply -f -
";

static FLAGS: &[Flag] = &[
    flag(
        "service-account",
        "kube-system/horizontal-pod-autoscaler",
        "ServiceAccount of the controller, as NAMESPACE/NAME.",
    ),
    flag(
        "user",
        "system:kube-controller-manager",
        "User of the configured credentials, with --use-service-account-credentials.",
    ),
    flag("name", "concertina", "Name of the roles and bindings."),
];

const fn flag(name: &'static str, default: &'static str, usage: &'static str) -> Flag {
    let purpose = Purpose::Here { group: Group::Rbac, usage };
    Flag { name, shorthand: None, kind: Kind::String, default, purpose }
}

pub(super) fn parse(words: impl IntoIterator<Item = String>) -> Result<Parsed, CliError> {
    let table = Table::new(&[kcm::FLAGS, kcm::REMOVED_FLAGS, own::FLAGS, FLAGS]);
    let raw = Raw::parse(words, &table)?;
    if wants_help(&raw) {
        return Ok(Parsed::Help(help::of(USAGE, &table)));
    }
    let config = Config::resolve(&raw, &table)?;
    let mut account = Account::default();
    if let Some(given) = text(&raw, "service-account") {
        let (namespace, name) = given
            .split_once('/')
            .filter(|(namespace, name)| is_name(namespace) && is_name(name))
            .ok_or_else(|| invalid(&table, "service-account", &given, "must be NAMESPACE/NAME"))?;
        let is_account = given == "kube-system/horizontal-pod-autoscaler";
        if config.service_account_credentials && !is_account {
            let reason =
                "must be kube-system/horizontal-pod-autoscaler with --use-service-account-credentials";
            return Err(invalid(&table, "service-account", &given, reason).into());
        }
        (account.namespace, account.name) = (namespace.to_owned(), name.to_owned());
    }
    if let Some(user) = text(&raw, "user") {
        account.user = user;
    }
    if let Some(name) = text(&raw, "name") {
        if !is_name(&name) {
            return Err(invalid(
                &table,
                "name",
                &name,
                "must consist of lower-case letters, digits, - and .",
            )
            .into());
        }
        account.roles = name;
    }
    Ok(Parsed::Options(Box::new(RbacOptions { config, account })))
}

fn text(raw: &Raw, name: &str) -> Option<String> {
    match raw.value(name) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

fn invalid(table: &Table, name: &str, value: &str, reason: &str) -> FlagError {
    match table.named(name) {
        Some(flag) => flag.invalid(value, reason),
        None => FlagError::Unknown(name.to_owned()),
    }
}

/// Returns whether a name is roughly an RFC 1123 subdomain, which needs no quotes in a manifest.
fn is_name(name: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(allowed)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}
