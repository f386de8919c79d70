//! The connection flags of kubectl, for the commands that connect to a cluster, and the options for a connection to a
//! controller at a URL.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::option;
use autoscaling::duration::GoDuration;
use cluster::client::{ClientError, ClientOptions, Clients};
use cluster::gate::{Gate, Refusal};
use cluster::kubeconfig::{ClusterOptions, Secret, UserConfig};

/// The flags with a text value, each with its name, placeholder and help text.
const TEXTS: [(&str, &str, &str); 13] = [
    ("context", "name", "Kubeconfig context to use"),
    ("cluster", "name", "Kubeconfig cluster to use; overrides the context's"),
    ("user", "name", "Kubeconfig user to use; overrides the context's"),
    ("namespace", "name", "Namespace; overrides the context's"),
    ("server", "address", "Address of the API server"),
    ("token", "token", "Bearer token for the API server"),
    ("as", "user", "User to impersonate"),
    ("as-uid", "uid", "UID to impersonate; requires --as"),
    ("certificate-authority", "file", "Certificate authority file of the API server"),
    ("client-certificate", "file", "Client certificate file for the API server"),
    ("client-key", "file", "Key file of the client certificate"),
    (
        "tls-server-name",
        "name",
        "Server name in the API server's certificate, if it differs from the address",
    ),
    ("request-timeout", "duration", "Timeout of a request, such as 30s; 0 means no timeout"),
];

/// Adds the connection flags to a command.
pub fn arguments(command: Command) -> Command {
    let texts = TEXTS.into_iter().map(|(name, placeholder, help)| {
        let arg = Arg::new(name).long(name).value_name(placeholder).help(help).help_heading(HEADING);
        match name {
            "namespace" => arg.short('n'),
            "server" => arg.short('s'),
            "request-timeout" => arg.value_parser(request_timeout),
            _ => arg,
        }
    });
    command
        .arg(
            option("kubeconfig", "file", "Kubeconfig file; default: $KUBECONFIG or ~/.kube/config")
                .help_heading(HEADING),
        )
        .args(texts)
        .arg(
            option("as-group", "group", "Group to impersonate; repeatable; requires --as")
                .action(ArgAction::Append)
                .help_heading(HEADING),
        )
        .arg(
            option(
                "as-user-extra",
                "key=value",
                "Extra field of the user to impersonate; repeatable; requires --as",
            )
            .value_parser(extra)
            .action(ArgAction::Append)
            .help_heading(HEADING),
        )
        .arg(
            option(
                "insecure-skip-tls-verify",
                "bool",
                "Do not verify the server's certificate; exposes the connection to interception",
            )
            .value_parser(value_parser!(bool))
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value("false")
            .hide_default_value(true)
            .hide_possible_values(true)
            .help_heading(HEADING),
        )
}

const HEADING: &str = "Connection to the cluster, as for kubectl";

/// Parses `key=value`. The value may contain `=`.
fn extra(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value"),
    }
}

/// Returns the values of `--as-user-extra` by key, in the order of the command line.
fn extras(matches: &ArgMatches) -> BTreeMap<String, Vec<String>> {
    let mut extras = BTreeMap::<String, Vec<String>>::new();
    for (key, value) in matches.get_many::<(String, String)>("as-user-extra").into_iter().flatten() {
        extras.entry(key.clone()).or_default().push(value.clone());
    }
    extras
}

/// Reads the connection options.
pub fn options(matches: &ArgMatches) -> ClusterOptions {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    ClusterOptions {
        kubeconfig: text("kubeconfig").map(PathBuf::from),
        context: text("context"),
        cluster: text("cluster"),
        user: text("user"),
        namespace: text("namespace").map(|name| without_kind(&name).to_owned()),
        server: text("server"),
        token: text("token").map(Secret::new),
        impersonate: text("as"),
        impersonate_groups: matches.get_many::<String>("as-group").into_iter().flatten().cloned().collect(),
        impersonate_uid: text("as-uid"),
        impersonate_user_extra: extras(matches),
        client_certificate: text("client-certificate"),
        client_key: text("client-key"),
        certificate_authority: text("certificate-authority"),
        insecure_skip_tls_verify: matches.get_flag("insecure-skip-tls-verify"),
        tls_server_name: text("tls-server-name"),
        request_timeout: matches.get_one::<Duration>("request-timeout").copied(),
    }
}

/// Creates clients for a user's cluster. The user's request timeout takes precedence over that of `options`.
pub fn clients(user: &UserConfig, options: ClientOptions) -> Result<Clients, ClientError> {
    let request_timeout = user.request_timeout.unwrap_or(options.request_timeout);
    Clients::new(&user.config, &ClientOptions { request_timeout, ..options })
}

/// Returns client options with kubectl's request rate.
pub fn at_kubectl_rate(options: ClientOptions) -> ClientOptions {
    ClientOptions { qps: 50.0, burst: 300, ..options }
}

/// Returns client options that refuse every write.
pub fn reads_only() -> ClientOptions {
    ClientOptions { gate: Gate::refusing(Refusal::DryRun), ..ClientOptions::default() }
}

/// The address of a controller whose pages a command reads, with the connection options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSource {
    /// `--from`: the base URL, such as `http://127.0.0.1:10257`.
    pub url: String,
    /// `--token-file`: a file with the bearer token to send. `None` sends no credentials.
    pub token_file: Option<PathBuf>,
    /// `--certificate-authority`: a PEM file.
    pub certificate_authority: Option<PathBuf>,
    /// `--insecure-skip-tls-verify`: accept any certificate, such as the self-signed certificate of a controller.
    pub insecure_skip_tls_verify: bool,
}

/// Returns the address of a controller. The certificate authority and the verification come from the connection flags.
pub fn record_source(matches: &ArgMatches, url: &str, cluster: &ClusterOptions) -> RecordSource {
    RecordSource {
        url: url.to_owned(),
        token_file: matches.get_one::<PathBuf>("token-file").cloned(),
        certificate_authority: cluster.certificate_authority.clone().map(PathBuf::from),
        insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
    }
}

/// Removes a prefix such as `namespace/`, which `kubectl get namespaces -o name` prints.
fn without_kind(name: &str) -> &str {
    match name.split_once('/') {
        Some((kind, name))
            if ["namespaces", "namespace", "ns"].iter().any(|alias| kind.eq_ignore_ascii_case(alias)) =>
        {
            name
        }
        _ => name,
    }
}

/// Parses a Go duration, or a number of seconds. An empty text means kubectl's default, which is no timeout.
fn request_timeout(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Ok(Duration::ZERO);
    }
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let duration = text.parse::<GoDuration>().map_err(|error| error.to_string())?;
    duration.unsigned().ok_or_else(|| "must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<ClusterOptions, String> {
        let command = arguments(Command::new("test").no_binary_name(true));
        command
            .try_get_matches_from(words)
            .map(|matches| options(&matches))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn no_arguments_use_the_kubeconfig() {
        assert_eq!(read(&[]), Ok(ClusterOptions::default()));
    }

    #[test]
    fn flags_are_those_of_kubectl() {
        let words = "--kubeconfig=k --context=c --cluster cl --user=u -n shop -s https://a --token=t --as me --as-group=g \
                     --as-group=h --as-uid=1 --as-user-extra=a=1 --as-user-extra a=2=3 --client-certificate=c.crt --client-key=c.key --certificate-authority=ca.crt \
                     --insecure-skip-tls-verify --tls-server-name=name --request-timeout=5";
        let some = |text: &str| Some(text.to_owned());
        let expected = ClusterOptions {
            kubeconfig: Some(PathBuf::from("k")),
            context: some("c"),
            cluster: some("cl"),
            user: some("u"),
            namespace: some("shop"),
            server: some("https://a"),
            token: Some(Secret::new("t")),
            impersonate: some("me"),
            impersonate_groups: vec!["g".to_owned(), "h".to_owned()],
            impersonate_uid: some("1"),
            impersonate_user_extra: [("a".to_owned(), vec!["1".to_owned(), "2=3".to_owned()])].into(),
            client_certificate: some("c.crt"),
            client_key: some("c.key"),
            certificate_authority: some("ca.crt"),
            insecure_skip_tls_verify: true,
            tls_server_name: some("name"),
            request_timeout: Some(Duration::from_secs(5)),
        };
        assert_eq!(read(&words.split_whitespace().collect::<Vec<_>>()), Ok(expected));
    }

    #[test]
    fn values_are_parsed_like_kubectls() {
        assert!(!read(&["--insecure-skip-tls-verify=false"]).unwrap().insecure_skip_tls_verify);
        assert_eq!(read(&["-n", "NS/shop"]).unwrap().namespace.as_deref(), Some("shop"));
        assert_eq!(read(&["-nshop"]).unwrap().namespace.as_deref(), Some("shop"));
        assert_eq!(read(&["--request-timeout", "1m"]).unwrap().request_timeout, Some(Duration::from_mins(1)));
        assert_eq!(read(&["--request-timeout", "0"]).unwrap().request_timeout, Some(Duration::ZERO));
        // Scripts may pass the values of empty variables.
        let empty = read(&["--kubeconfig=", "--context=", "--request-timeout="]).unwrap();
        assert_eq!((empty.kubeconfig, empty.context), (Some(PathBuf::new()), Some(String::new())));
        assert_eq!(empty.request_timeout, Some(Duration::ZERO));
        assert!(read(&["--as-user-extra=a"]).is_err() && read(&["--as-user-extra==a"]).is_err());
        for wrong in ["-1s", "soon"] {
            assert!(
                read(&[&format!("--request-timeout={wrong}")]).unwrap_err().contains("--request-timeout")
            );
        }
        assert!(read(&["--password=x"]).unwrap_err().contains("--password"));
    }

    #[test]
    fn debug_output_hides_the_token() {
        let options = read(&["--token", "s3cret"]).unwrap();
        assert!(!format!("{options:?}").contains("s3cret"));
    }
}
