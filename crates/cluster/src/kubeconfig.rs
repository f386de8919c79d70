//! The connection to the API server, from a kubeconfig, an address, or the pod's configuration.
//!
//! The controller follows kube-controller-manager ([`load`]). It uses `--kubeconfig` and `--master`, or else the
//! configuration of its pod. It ignores the variable `KUBECONFIG` and `~/.kube/config`. Interactive commands follow
//! kubectl ([`load_for_user`]) by the rules of client-go's `clientcmd`, with two exceptions. No default server exists
//! (kubectl tries `localhost:8080`). The user of a context must exist (kubectl continues without credentials).
//!
//! Problems with the files are found at startup, and reported in one line that names the file or context and the
//! remedy. Errors quote only names and addresses from a file, because other content may be secret. [`super::connect`]
//! chooses the proxy.

mod choice;
mod files;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use kube::config::InClusterError;

use self::choice::Choice;
pub use self::files::Files;
use crate::platform;

/// An error in the configuration of the connection. `Display` is one line with advice.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file is unreadable.
    #[error("cannot read kubeconfig {}: {source}: check {origin} and the permissions of the file", .path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The source of the path, such as `--kubeconfig` or `KUBECONFIG`.
        origin: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not a kubeconfig.
    #[error("kubeconfig {} is not valid{at}: correct the file, or recreate it with kubectl config", .path.display())]
    NotValid {
        /// The path of the file.
        path: PathBuf,
        /// The position (` at line L, column C`) or the problem after `: `. Empty if neither is known.
        at: String,
    },
    /// No context is selected, or the files do not contain the selected context, cluster or user.
    #[error("kubeconfig {files}: {problem}: {advice}")]
    Context {
        /// The files that were read.
        files: Files,
        /// The problem, without its remedy.
        problem: String,
        /// The remedy, with the available names.
        advice: String,
    },
    /// Settings contradict each other, or are not supported.
    #[error("kubeconfig {files}: {context}{problem}")]
    Settings {
        /// The files that were read.
        files: Files,
        /// The context of the settings, as `context "NAME": `. Empty without a context.
        context: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// A certificate, key or authority in or next to the files is unusable.
    #[error("kubeconfig {files}: {context}{problem}: renew the credentials of this context")]
    Credentials {
        /// The files that were read.
        files: Files,
        /// The context of the credentials, as `context "NAME": `. Empty without a context.
        context: String,
        /// The problem, without its remedy.
        problem: String,
    },
    /// The address of the API server is invalid.
    #[error(
        "{origin}: {server:?} is not the address of an API server: use one such as https://10.0.0.1:6443"
    )]
    Server {
        /// The source of the address, such as `--master`.
        origin: String,
        /// The invalid address.
        server: String,
    },
    /// Neither `--kubeconfig` nor `--master` is set, and this process does not run in a pod.
    #[error("neither --kubeconfig nor --master is set and this is not a pod ({0}): set --kubeconfig")]
    NotInCluster(String),
    /// Neither `--kubeconfig` nor `--master` is set, and the pod's ServiceAccount is unusable.
    #[error(
        "the pod's ServiceAccount is not usable ({0}): assign one to the pod and mount its token, or set --kubeconfig"
    )]
    ServiceAccount(String),
    /// No kubeconfig exists, and this process does not run in a pod.
    #[error(
        "no kubeconfig found: set --kubeconfig or KUBECONFIG, or create ~/.kube/config with kubectl config"
    )]
    NoFile,
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" (available: {})", names.join(", ")) }
}

/// Loads the controller's configuration. `master` replaces the server of the kubeconfig. Without a kubeconfig, `master`
/// is used without credentials. If both are `None`, the configuration of the pod is used.
pub fn load(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<kube::Config, KubeconfigError> {
    match (kubeconfig, master) {
        (Some(path), master) => {
            let (files, file) = files::read_one(path)?;
            let options = ClusterOptions { server: master.map(str::to_owned), ..ClusterOptions::default() };
            let choice = Choice::new(files, file, &options.without_empty(), "--master")?;
            if choice.is_empty() { Err(choice.nothing_chosen()) } else { choice.config() }
        }
        (None, Some(master)) => Ok(kube::Config::new(server(master, "--master")?)),
        (None, None) => kube::Config::incluster_env().map_err(|error| match error {
            InClusterError::ReadEnvironmentVariable(_) => KubeconfigError::NotInCluster(
                "KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set".to_owned(),
            ),
            error => KubeconfigError::ServiceAccount(one_line(&error)),
        }),
    }
}

/// The connection that the user of an interactive command selected.
#[derive(Debug, Clone)]
pub struct UserConfig {
    /// The configuration of the clients.
    pub config: kube::Config,
    /// The namespace from `--namespace`, the context or the pod, in this order. Otherwise `default`.
    pub namespace: String,
    /// The context's name. `None` in a pod, or with only `--server`.
    pub context: Option<String>,
    /// The server's address without a slash at its end, for display.
    pub server: String,
    /// `--request-timeout`. [`Duration::MAX`] means no limit. `None` if the flag is not set.
    pub request_timeout: Option<Duration>,
}

/// Loads the configuration like kubectl, from `--kubeconfig`, the files in `KUBECONFIG`, or `~/.kube/config`. Flags
/// override values of the files. If neither flags nor files select a cluster, the configuration of the pod is used.
pub fn load_for_user(options: &ClusterOptions) -> Result<UserConfig, KubeconfigError> {
    Environment::of_process().load(options)
}

/// Returns the namespace of [`load_for_user`], without a connection: the configuration need not select a cluster.
pub fn namespace_for_user(options: &ClusterOptions) -> Result<String, KubeconfigError> {
    let environment = Environment::of_process();
    let options = options.clone().without_empty();
    Ok(environment.namespace(&options, &environment.choice(&options)?))
}

/// The inputs of kubectl other than flags.
#[derive(Debug, Default)]
struct Environment {
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
    pod: Option<Pod>,
}

impl Environment {
    fn of_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            home: platform::home(variable),
            pod: Pod::with(Path::new(FOLDER), variable),
        }
    }

    fn choice(&self, options: &ClusterOptions) -> Result<Choice, KubeconfigError> {
        let (files, merged) = match options.kubeconfig.as_deref() {
            Some(path) => files::read_one(path)?,
            None => files::read_usual(self.kubeconfig.as_ref(), self.home.as_deref())?,
        };
        Choice::new(files, merged, options, "--server")
    }

    fn namespace(&self, options: &ClusterOptions, choice: &Choice) -> String {
        let namespace = options.namespace.clone().or_else(|| choice.namespace().map(str::to_owned));
        namespace
            .or_else(|| self.pod.as_ref().and_then(Pod::namespace))
            .unwrap_or_else(|| "default".to_owned())
    }

    fn load(&self, options: &ClusterOptions) -> Result<UserConfig, KubeconfigError> {
        let options = &options.clone().without_empty();
        let mut choice = self.choice(options)?;
        let namespace = self.namespace(options, &choice);
        if choice.is_empty() {
            choice = match &self.pod {
                Some(pod) => Choice::from_pod(pod, options),
                None => return Err(choice.nothing_chosen()),
            };
        }
        let context = choice.context_name.clone();
        let config = choice.config()?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let request_timeout =
            options.request_timeout.map(|time| if time.is_zero() { Duration::MAX } else { time });
        Ok(UserConfig { config, namespace, context, server, request_timeout })
    }
}

/// Parses a server's address. An address without a scheme means plain HTTP, as in client-go.
fn server(address: &str, origin: &str) -> Result<Uri, KubeconfigError> {
    let with_scheme = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    with_scheme
        .parse::<Uri>()
        .ok()
        .filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        })
        .ok_or_else(|| KubeconfigError::Server { origin: origin.to_owned(), server: address.to_owned() })
}

/// Returns the text of a library's error in one line, without a full stop.
fn one_line(error: &(impl fmt::Display + ?Sized)) -> String {
    let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    line.trim_end_matches('.').to_owned()
}

/// The mount point of the pod's ServiceAccount token.
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The pod that runs this process, with the address of its cluster.
#[derive(Debug, Clone)]
struct Pod {
    server: String,
    folder: PathBuf,
    namespace: Option<String>,
}

impl Pod {
    /// Returns the pod, if this process runs in a pod with a token for the API server in `folder`.
    fn with(folder: &Path, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        if !folder.join("token").is_file() {
            return None;
        }
        let server = if host.contains(':') {
            format!("https://[{host}]:{port}")
        } else {
            format!("https://{host}:{port}")
        };
        Some(Self { server, folder: folder.to_owned(), namespace: variable("POD_NAMESPACE") })
    }

    /// Returns the path of a file of the ServiceAccount.
    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// Returns the namespace of the pod.
    fn namespace(&self) -> Option<String> {
        self.namespace.clone().or_else(|| {
            let text = std::fs::read_to_string(self.folder.join("namespace")).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        })
    }
}

/// kubectl's flags for the connection to the cluster. Values of missing flags come from the kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// `--kubeconfig`: the only file to read.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`: the name of the context.
    pub context: Option<String>,
    /// `--cluster`: overrides the context's cluster.
    pub cluster: Option<String>,
    /// `--user`: overrides the context's user.
    pub user: Option<String>,
    /// `--namespace`: overrides the context's namespace.
    pub namespace: Option<String>,
    /// `--server`: the address of the API server.
    pub server: Option<String>,
    /// `--token`: the bearer token.
    pub token: Option<Secret>,
    /// `--as`: the user to impersonate.
    pub impersonate: Option<String>,
    /// `--as-group`: the groups to impersonate.
    pub impersonate_groups: Vec<String>,
    /// `--as-uid`: the UID to impersonate.
    pub impersonate_uid: Option<String>,
    /// `--as-user-extra`: the extra fields of the user to impersonate, each with its values.
    pub impersonate_user_extra: BTreeMap<String, Vec<String>>,
    /// `--client-certificate`: the path of the client certificate.
    pub client_certificate: Option<String>,
    /// `--client-key`: the path of the client key.
    pub client_key: Option<String>,
    /// `--certificate-authority`: the path of the certificate authority.
    pub certificate_authority: Option<String>,
    /// `--insecure-skip-tls-verify`: accepts any certificate of the server.
    pub insecure_skip_tls_verify: bool,
    /// `--tls-server-name`: the name in the server's certificate.
    pub tls_server_name: Option<String>,
    /// `--request-timeout`: the time limit of a request. Zero disables the limit.
    pub request_timeout: Option<Duration>,
}

impl ClusterOptions {
    /// Removes empty values, because scripts pass variables that may be empty.
    fn without_empty(mut self) -> Self {
        for text in [
            &mut self.context,
            &mut self.cluster,
            &mut self.user,
            &mut self.namespace,
            &mut self.server,
            &mut self.impersonate,
            &mut self.impersonate_uid,
            &mut self.client_certificate,
            &mut self.client_key,
            &mut self.certificate_authority,
            &mut self.tls_server_name,
        ] {
            text.take_if(|text| text.is_empty());
        }
        self.kubeconfig.take_if(|path| path.as_os_str().is_empty());
        self.token.take_if(|token| token.0.is_empty());
        self
    }
}

/// A secret text, which `Debug` omits.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
