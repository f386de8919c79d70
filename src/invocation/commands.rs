//! The command lines of `concertina rbac` and `concertina version`.

use autoscaling::settings::Version;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use journal::record::wire::API_VERSION;
use serde_json::json;

use super::{Invocation, readable_version, wants_help};
use flags::FlagSet;
use flags::config::Config;
use flags::permissions::Account;
use flags::{CliError, FlagError, Parsed, Program, Reason, matches};

/// The options of `rbac`.
#[derive(Debug, Clone, PartialEq)]
pub struct RbacOptions {
    /// The configuration of the controller that needs the roles.
    pub config: Config,
    /// The subjects of the bindings, and the name of roles and bindings.
    pub account: Account,
    /// The format of the manifest.
    pub output: ManifestFormat,
}

/// The formats of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestFormat {
    /// One document per object, with the purpose of each rule as a comment.
    Yaml,
    /// A `List` with the same objects, without comments.
    Json,
}

/// The heading of the flags that only `rbac` has.
const ROLES: &str = "Roles";
/// The account of the default manifests.
const OWN: &str = "concertina-system/concertina";
/// The account with `--use-service-account-credentials`.
const BUILT_IN: &str = "kube-system/horizontal-pod-autoscaler";

/// Creates the command line of `rbac`, without the flags of the controller.
pub(crate) fn own_command() -> Command {
    let arguments = [
        Arg::new("service-account")
            .value_name("namespace/name")
            .value_parser(account_name)
            .default_value(OWN)
            .default_value_if("use-service-account-credentials", "true", BUILT_IN)
            .help("ServiceAccount of the controller, as NAMESPACE/NAME."),
        Arg::new("user")
            .value_name("string")
            .default_value("system:kube-controller-manager")
            .help("User of the configured credentials, with --use-service-account-credentials."),
        Arg::new("name")
            .value_name("string")
            .value_parser(role_name)
            .default_value("concertina")
            .help("Name of the roles and bindings."),
        Arg::new("output")
            .short('o')
            .value_name("format")
            .value_parser(["yaml", "json"])
            .default_value("yaml")
            .help("Output format. JSON has no comments."),
    ];
    Command::new("concertina rbac")
        .about("Prints the roles and bindings that a controller with these flags needs, and no others.")
        .override_usage("concertina rbac [OPTIONS] | kubectl apply -f -")
        .args(arguments.map(|arg| {
            let name = arg.get_id().to_string();
            arg.long(name).allow_hyphen_values(true).help_heading(ROLES)
        }))
}

pub(super) fn parse_rbac(words: impl Iterator<Item = String>) -> Result<Parsed<Box<RbacOptions>>, CliError> {
    let flags = FlagSet::controller();
    let mut command = flags.add_to(own_command());
    let matches = flags.parse(command.clone(), words)?;
    if wants_help(&matches) {
        return Ok(Parsed::Help(command.render_help().to_string()));
    }
    let config = flags.config(&matches)?;
    let mut account = Account::default();
    if let Some((namespace, name)) = matches.get_one::<(String, String)>("service-account") {
        let given = format!("{namespace}/{name}");
        if config.service_account_credentials && given != BUILT_IN {
            let reason = Reason::MustBe(
                "kube-system/horizontal-pod-autoscaler with --use-service-account-credentials",
            );
            return Err(FlagError::invalid("service-account", given, reason).into());
        }
        (account.namespace, account.name) = (namespace.clone(), name.clone());
    }
    if let Some(user) = matches.get_one::<String>("user") {
        account.user.clone_from(user);
    }
    if let Some(name) = matches.get_one::<String>("name") {
        account.roles.clone_from(name);
    }
    let output = match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => ManifestFormat::Json,
        _ => ManifestFormat::Yaml,
    };
    Ok(Parsed::Options(Box::new(RbacOptions { config, account, output })))
}

fn account_name(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("must be NAMESPACE/NAME"),
    }
}

fn role_name(text: &str) -> Result<String, &'static str> {
    let valid = is_name(text).then(|| text.to_owned());
    valid.ok_or("must consist of lower-case letters, digits, - and .")
}

/// Returns whether a name has the characters and the length of an RFC 1123 subdomain. Such a name needs no quotes in a
/// manifest.
fn is_name(name: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(allowed)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Creates the command line of `version`.
pub(crate) fn version_command(program: Program) -> Command {
    Command::new("version")
        .no_binary_name(true)
        .bin_name(format!("{program} version"))
        .about("Prints the version of this program.")
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .value_name("how")
                .value_parser(PossibleValuesParser::new(["text", "json", "yaml"]))
                .default_value("text")
                .help("Output format"),
        )
}

pub(super) fn parse_version(program: Program, words: &[String]) -> Result<Invocation, CliError> {
    let matches = match matches(version_command(program), words)? {
        Parsed::Options(matches) => matches,
        Parsed::Help(text) => return Ok(Invocation::Help(text)),
    };
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let text = match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => {
            let value = json!({"apiVersion": API_VERSION, "kind": "Version", "version": version, "emulatedVersions": emulated(), "platform": platform});
            format!("{value:#}")
        }
        Some("yaml") => {
            let emulated = emulated().map(|version| format!("\"{version}\"")).join(", ");
            format!(
                "apiVersion: {API_VERSION}\nkind: Version\nversion: {version}\nemulatedVersions: [{emulated}]\nplatform: {platform}"
            )
        }
        _ => readable_version(),
    };
    Ok(Invocation::Version(text))
}

/// The versions that `--emulated-version` accepts.
pub(super) fn emulated() -> [&'static str; Version::ALL.len()] {
    Version::ALL.map(Version::name)
}

#[cfg(test)]
mod tests {
    use super::super::raw_version;
    use super::*;

    fn read(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        match parse_version(Program::Concertina, &words) {
            Ok(Invocation::Version(text) | Invocation::Help(text)) => text,
            Ok(other) => panic!("{other:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn version_has_the_same_data_in_every_format() {
        assert!(read(&[]).starts_with("Concertina v"), "{}", read(&[]));
        let json: serde_json::Value = serde_json::from_str(&read(&["-o", "json"])).unwrap();
        let yaml: serde_json::Value = serde_saphyr::from_str(&read(&["--output=yaml"])).unwrap();
        assert_eq!(json, yaml);
        assert_eq!((&json["apiVersion"], &json["kind"]), (&json!("concertina/v1"), &json!("Version")));
        assert!(raw_version().contains(&emulated().join(",")));
        assert!(read(&["-o", "wide"]).contains("wide"));
        assert!(read(&["--help"]).contains("Usage: concertina version"));
    }
}
