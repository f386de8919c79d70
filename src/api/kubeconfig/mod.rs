//! The way to the API server: kubeconfig, address, or the pod's own configuration.
//!
//! The controller goes the way of kube-controller-manager ([`load`]): only `--kubeconfig` and `--master` count, neither
//! the variable `KUBECONFIG` nor `~/.kube/config` is looked at. The commands that people run go the way of kubectl
//! ([`load_for_user`]), by the rules of client-go's `clientcmd`, but for two: where no server is named none is guessed
//! (kubectl tries `localhost:8080`), and a user that a context names must exist (kubectl goes on without credentials).
//!
//! Everything that can be wrong with the files is found here, at start, and told in one line that says which file or
//! context, and what to do. Nothing of a file's content is printed: it may be a secret. Which proxy is on the way is
//! decided where connections are made, see [`super::connect`].

mod choice;
mod files;
mod options;
mod pod;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use kube::config::InClusterError;

use self::choice::Choice;
pub use self::files::Files;
pub use self::options::{ClusterOptions, Secret};
use self::pod::Pod;
use crate::platform;

/// Why there is no way to the API server: one line, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file cannot be read.
    #[error("cannot read kubeconfig {}: {source}: check {origin} and the permissions of the file", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What names it: `--kubeconfig`, `KUBECONFIG`.
        origin: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a kubeconfig.
    #[error("kubeconfig {} is not valid{at}: correct the file, or write it anew with kubectl config", .path.display())]
    NotValid {
        /// The file.
        path: PathBuf,
        /// Where, if known: ` at line L, column C`; or `: ` and what is wrong.
        at: String,
    },
    /// There is no current context, or it names what the files do not have.
    #[error("kubeconfig {files}: {problem}: {advice}")]
    Context {
        /// The files.
        files: Files,
        /// What is wrong.
        problem: String,
        /// What to do, with what there is to choose from.
        advice: String,
    },
    /// Settings contradict each other or are not supported.
    #[error("kubeconfig {files}: {context}{problem}")]
    Settings {
        /// The files.
        files: Files,
        /// The context that uses them: `context "NAME": `, or empty.
        context: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A certificate, key or authority in or beside the files is not usable.
    #[error("kubeconfig {files}: {context}{problem}: renew the credentials of this context")]
    Credentials {
        /// The files.
        files: Files,
        /// The context that uses it: `context "NAME": `, or empty.
        context: String,
        /// What is wrong.
        problem: String,
    },
    /// The address of the API server is none.
    #[error(
        "{origin}: {server:?} is not the address of an API server: give one such as https://10.0.0.1:6443"
    )]
    Server {
        /// Where it was found.
        origin: String,
        /// The address.
        server: String,
    },
    /// Neither flag was given and this is not a pod.
    #[error("neither --kubeconfig nor --master is given and this is not a pod ({0}): give --kubeconfig")]
    NotInCluster(String),
    /// Neither flag was given and the pod's service account is not usable.
    #[error(
        "the pod's service account is not usable ({0}): give the pod one and mount its token, or give --kubeconfig"
    )]
    ServiceAccount(String),
    /// There is no kubeconfig at all, and this is not a pod.
    #[error(
        "there is no kubeconfig: give --kubeconfig, or set KUBECONFIG, or write ~/.kube/config with kubectl config"
    )]
    NoFile,
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" (there are: {})", names.join(", ")) }
}

/// Reads the configuration of the controller: the kubeconfig, with the server replaced by `master` if that is given too;
/// or the server alone, without credentials; or, without either, that of the pod.
pub fn load(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<kube::Config, KubeconfigError> {
    match (kubeconfig, master) {
        (Some(path), master) => {
            let (files, file) = files::read_one(path)?;
            let options = ClusterOptions { server: master.map(str::to_owned), ..ClusterOptions::default() };
            let choice = Choice::of(files, file, &options.without_empty(), "--master")?;
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

/// The way to the cluster that a person has chosen.
#[derive(Debug, Clone)]
pub struct UserConfig {
    /// How to connect.
    pub config: kube::Config,
    /// Of `--namespace`, else of the context, else the pod's own, else `default`.
    pub namespace: String,
    /// The context's name; none in a pod, or with `--server` alone.
    pub context: Option<String>,
    /// The server's address, to be shown.
    pub server: String,
    /// `--request-timeout`; without limit it is [`Duration::MAX`].
    pub request_timeout: Option<Duration>,
}

/// Reads the configuration as kubectl does: `--kubeconfig`, else the files of the variable `KUBECONFIG`, else
/// `~/.kube/config`, with the flags put over them; where none of it names a cluster, that of the pod.
pub fn load_for_user(options: &ClusterOptions) -> Result<UserConfig, KubeconfigError> {
    let variable = |name: &str| std::env::var(name).ok();
    Surroundings {
        kubeconfig: std::env::var_os("KUBECONFIG"),
        home: platform::home(variable),
        pod: Pod::here(variable),
    }
    .load(options)
}

/// What kubectl looks at besides its flags.
#[derive(Debug, Default)]
struct Surroundings {
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
    pod: Option<Pod>,
}

impl Surroundings {
    fn load(&self, options: &ClusterOptions) -> Result<UserConfig, KubeconfigError> {
        let options = &options.clone().without_empty();
        let (files, merged) = match options.kubeconfig.as_deref() {
            Some(path) => files::read_one(path)?,
            None => files::read_usual(self.kubeconfig.as_ref(), self.home.as_deref())?,
        };
        let mut choice = Choice::of(files, merged, options, "--server")?;
        let namespace = options
            .namespace
            .clone()
            .or_else(|| choice.namespace().map(str::to_owned))
            .or_else(|| self.pod.as_ref().and_then(Pod::namespace))
            .unwrap_or_else(|| "default".to_owned());
        if choice.is_empty() {
            choice = match &self.pod {
                Some(pod) => Choice::of_pod(pod, options),
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

/// The address of a server; without a scheme it is plain HTTP, as client-go takes it.
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

/// An error of a library in one line, without a full stop.
fn one_line(error: &(impl fmt::Display + ?Sized)) -> String {
    let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    line.trim_end_matches('.').to_owned()
}
