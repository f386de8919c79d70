//! The selected cluster and user. Command-line flags override the values of the context.

use std::path::PathBuf;

use kube::client::ConfigExt;
use kube::config::{
    AuthInfo, Cluster, Context, ExecConfig, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};

use super::files::Files;
use super::{ClusterOptions, KubeconfigError, Pod, listed, one_line, server};
use crate::connect::{ProxyError, check_proxy};

/// The supported API versions of credential plugins.
const EXEC_V1: &str = "client.authentication.k8s.io/v1";
const EXEC_V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// A setting that kubectl rejects or that is not supported, with the remedy.
#[derive(Debug, thiserror::Error)]
enum SettingsError {
    #[error("{0} and {1} are both given: keep one")]
    Both(&'static str, &'static str),
    #[error("{}", one_line(.0))]
    Proxy(#[from] ProxyError),
    #[error(
        "auth-provider {0:?} is not supported, nor by newer versions of kubectl: use a credential plugin (exec)"
    )]
    AuthProvider(String),
    #[error("the client certificate has no key: set client-key or client-key-data")]
    NoKey,
    #[error("impersonation of a group, UID or extra requires a user: set --as")]
    NoImpersonatedUser,
    #[error("the credential plugin (exec) has no command: set the program that prints credentials")]
    NoCommand,
    #[error(
        "the credential plugin {0} has no interactiveMode: {EXEC_V1} requires Never, IfAvailable or Always"
    )]
    NoMode(String),
    #[error("the credential plugin {0} uses {1:?}: only {EXEC_V1} and {EXEC_V1BETA1} are supported")]
    ApiVersion(String, String),
    #[error(
        "the credential plugin {0} has no apiVersion: set the one that it uses, {EXEC_V1} or {EXEC_V1BETA1}"
    )]
    NoApiVersion(String),
    #[error("an env entry of the credential plugin {0} has no name: set one")]
    UnnamedEnv(String),
}

/// The selected context, cluster and user.
#[derive(Debug)]
pub(super) struct Choice {
    files: Files,
    /// The name of the selected context. `None` if no context is selected.
    pub(super) context_name: Option<String>,
    context: Context,
    cluster: Cluster,
    user: AuthInfo,
    /// The source of the server's address, for errors.
    origin: String,
    contexts: Vec<String>,
}

impl Choice {
    /// Selects a context, cluster and user. `options` must not contain empty values. `server_flag` names the flag for
    /// the server in errors.
    pub(super) fn new(
        files: Files,
        mut merged: Kubeconfig,
        options: &ClusterOptions,
        server_flag: &str,
    ) -> Result<Self, KubeconfigError> {
        let contexts: Vec<String> = merged.contexts.iter().map(|context| context.name.clone()).collect();
        let wrong = |problem, advice| match files.0.as_slice() {
            [] => KubeconfigError::NoFile,
            _ => KubeconfigError::Context { files: files.clone(), problem, advice },
        };
        let choose = || format!("choose one with kubectl config use-context{}", listed(&contexts));

        let (flag, name) = match options.context.clone() {
            Some(name) => (true, Some(name)),
            None => (false, merged.current_context.clone()),
        };
        let context = match &name {
            None => Context::default(),
            Some(name) => take(&mut merged.contexts, |context| &context.name == name)
                .and_then(|named| named.context)
                .ok_or_else(|| {
                    let which = if flag { "the context" } else { "its current context" };
                    let advice =
                        if flag { format!("use another --context{}", listed(&contexts)) } else { choose() };
                    wrong(format!("{which} {name:?} does not exist"), advice)
                })?,
        };

        let of_context = |kind: &str, it: &str| match &name {
            Some(name) => format!("the {kind} {it:?} of its context {name:?} does not exist"),
            None => format!("the {kind} {it:?} does not exist"),
        };
        let cluster_name = options.cluster.clone().unwrap_or_else(|| context.cluster.clone());
        let mut cluster = match take(&mut merged.clusters, |cluster| cluster.name == cluster_name) {
            Some(named) => named.cluster.unwrap_or_default(),
            None if options.cluster.is_some() => {
                let names: Vec<String> = merged.clusters.iter().map(|cluster| cluster.name.clone()).collect();
                let advice = format!("use another --cluster{}", listed(&names));
                return Err(wrong(format!("the cluster {cluster_name:?} does not exist"), advice));
            }
            None if cluster_name.is_empty() || options.server.is_some() => Cluster::default(),
            None => return Err(wrong(of_context("cluster", &cluster_name), choose())),
        };

        let user_name = options.user.clone().or_else(|| context.user.clone()).unwrap_or_default();
        let mut user = match take(&mut merged.auth_infos, |user| user.name == user_name) {
            Some(named) => named.auth_info.unwrap_or_default(),
            None if options.user.is_some() => {
                let names: Vec<String> = merged.auth_infos.iter().map(|user| user.name.clone()).collect();
                let advice = format!("use another --user{}", listed(&names));
                return Err(wrong(format!("the user {user_name:?} does not exist"), advice));
            }
            // With credentials on the command line, the files need not contain the user.
            None if user_name.is_empty()
                || options.token.is_some()
                || options.client_certificate.is_some() =>
            {
                AuthInfo::default()
            }
            None => return Err(wrong(of_context("user", &user_name), choose())),
        };

        let origin = match options.server {
            Some(_) => server_flag.to_owned(),
            None => format!("kubeconfig {files}: cluster {cluster_name:?}"),
        };
        override_cluster(&mut cluster, options);
        override_user(&mut user, options);
        Ok(Self { files, context_name: name, context, cluster, user, origin, contexts })
    }

    /// Selects the ServiceAccount of a pod.
    pub(super) fn from_pod(pod: &Pod, options: &ClusterOptions) -> Self {
        let mut cluster = Cluster {
            server: Some(pod.server.clone()),
            certificate_authority: Some(pod.file("ca.crt")),
            ..Cluster::default()
        };
        let mut user = AuthInfo { token_file: Some(pod.file("token")), ..AuthInfo::default() };
        override_cluster(&mut cluster, options);
        override_user(&mut user, options);
        Self {
            files: Files(vec![pod.folder.clone()]),
            context_name: None,
            context: Context::default(),
            cluster,
            user,
            origin: "KUBERNETES_SERVICE_HOST".to_owned(),
            contexts: Vec::new(),
        }
    }

    /// Returns whether neither a context nor a server address is selected.
    pub(super) fn is_empty(&self) -> bool {
        self.context_name.is_none() && self.cluster.server.is_none()
    }

    /// Returns the error for a missing selection.
    pub(super) fn nothing_chosen(self) -> KubeconfigError {
        if self.files.0.is_empty() {
            return KubeconfigError::NoFile;
        }
        KubeconfigError::Context {
            files: self.files,
            problem: "it has no current context".to_owned(),
            advice: format!("choose one with kubectl config use-context{}", listed(&self.contexts)),
        }
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.context.namespace.as_deref()
    }

    /// Validates the selection and converts it to a client configuration.
    pub(super) fn config(mut self) -> Result<kube::Config, KubeconfigError> {
        let address = server(self.cluster.server.as_deref().unwrap_or_default(), &self.origin)?;
        self.cluster.server = Some(address.to_string());
        let (files, context) = (self.files.clone(), self.context_name.clone());
        let unusable = |problem: String| KubeconfigError::Credentials {
            files: files.clone(),
            context: named(context.as_deref()),
            problem,
        };
        let contradictory = |problem: SettingsError| KubeconfigError::Settings {
            files: files.clone(),
            context: named(context.as_deref()),
            problem: problem.to_string(),
        };
        check_cluster(&self.cluster).map_err(contradictory)?;
        check_user(&self.user).map_err(contradictory)?;
        if self.user.client_certificate.is_none() && self.user.client_certificate_data.is_none() {
            // kubectl also ignores a key without a certificate.
            (self.user.client_key, self.user.client_key_data) = (None, None);
        }

        let proxy_url = self.cluster.proxy_url.clone();
        // Without a proxy-url, kube would read HTTPS_PROXY here. The server's URL is a placeholder, because the
        // variable is read when the connector is created.
        self.cluster.proxy_url = self.cluster.server.clone();
        let mut config =
            kube::Config::try_from(self.selected_entries()).map_err(|error| unusable(one_line(&error)))?;
        if let Some(plugin_cluster) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
            plugin_cluster.proxy_url.clone_from(&proxy_url);
        }
        config.proxy_url = proxy_url.and_then(|url| url.parse().ok());
        config.root_cert_file = self.cluster.certificate_authority.as_ref().map(PathBuf::from);

        // The library accepts a text without a certificate as an empty list, which trusts no server.
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(unusable("its certificate authority contains no PEM certificate".to_owned()));
        }
        if config.cluster_url.scheme_str() == Some("https") {
            let mut tried = config.clone();
            // The plugin runs when a request needs its credentials, not during validation.
            tried.auth_info.exec = None;
            tried.root_cert_file = None;
            tried.rustls_client_config().map_err(|error| unusable(one_line(&error)))?;
        }
        Ok(config)
    }

    /// Returns a kubeconfig with only the selected entries, under arbitrary names.
    fn selected_entries(&self) -> Kubeconfig {
        let name = || "it".to_owned();
        let context = Context { cluster: name(), user: Some(name()), ..self.context.clone() };
        Kubeconfig {
            current_context: Some(name()),
            contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
            clusters: vec![NamedCluster {
                name: name(),
                cluster: Some(self.cluster.clone()),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: name(),
                auth_info: Some(self.user.clone()),
                ..NamedAuthInfo::default()
            }],
            ..Kubeconfig::default()
        }
    }
}

/// Returns the prefix of an error about a context.
fn named(context: Option<&str>) -> String {
    context.map_or_else(String::new, |name| format!("context {name:?}: "))
}

fn take<T>(from: &mut Vec<T>, is_it: impl Fn(&T) -> bool) -> Option<T> {
    let index = from.iter().position(is_it)?;
    Some(from.swap_remove(index))
}

/// Overrides a value with a flag, if the flag is set.
fn put(over: &mut Option<String>, flag: Option<&String>) {
    if let Some(value) = flag {
        *over = Some(value.clone());
    }
}

fn override_cluster(cluster: &mut Cluster, options: &ClusterOptions) {
    let authority = options.certificate_authority.clone();
    if options.insecure_skip_tls_verify || authority.is_some() {
        cluster.insecure_skip_tls_verify = Some(options.insecure_skip_tls_verify);
        cluster.certificate_authority = authority;
        cluster.certificate_authority_data = None;
    }
    // The tls-server-name in the files belongs to the server in the files, not to the server in the flag.
    if options.server.is_some() || options.tls_server_name.is_some() {
        cluster.tls_server_name.clone_from(&options.tls_server_name);
    }
    put(&mut cluster.server, options.server.as_ref());
}

fn override_user(user: &mut AuthInfo, options: &ClusterOptions) {
    if let Some(token) = &options.token {
        user.token = Some(token.expose().into());
        user.token_file = None;
    }
    put(&mut user.impersonate, options.impersonate.as_ref());
    put(&mut user.impersonate_uid, options.impersonate_uid.as_ref());
    if !options.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(options.impersonate_groups.clone());
    }
    if !options.impersonate_user_extra.is_empty() {
        user.impersonate_user_extra = Some(options.impersonate_user_extra.clone().into_iter().collect());
    }
    if let Some(certificate) = options.client_certificate.clone() {
        (user.client_certificate, user.client_certificate_data) = (Some(certificate), None);
    }
    if let Some(key) = options.client_key.clone() {
        (user.client_key, user.client_key_data) = (Some(key), None);
    }
}

/// Rejects cluster settings that kubectl rejects, and unsupported proxies.
fn check_cluster(cluster: &Cluster) -> Result<(), SettingsError> {
    let has_file = cluster.certificate_authority.is_some();
    let has_data = cluster.certificate_authority_data.is_some();
    if has_file && has_data {
        return Err(SettingsError::Both("certificate-authority", "certificate-authority-data"));
    }
    if (has_file || has_data) && cluster.insecure_skip_tls_verify == Some(true) {
        return Err(SettingsError::Both("a certificate authority", "insecure-skip-tls-verify"));
    }
    if let Some(url) = &cluster.proxy_url {
        check_proxy(url, "proxy-url")?;
    }
    Ok(())
}

/// Rejects user settings that kubectl rejects or that are not supported.
fn check_user(user: &AuthInfo) -> Result<(), SettingsError> {
    if let Some(provider) = &user.auth_provider {
        return Err(SettingsError::AuthProvider(provider.name.clone()));
    }
    if user.token.is_some() && (user.username.is_some() || user.password.is_some()) {
        return Err(SettingsError::Both("a token", "a user name with password"));
    }
    let has_key = user.client_key.is_some() || user.client_key_data.is_some();
    if (user.client_certificate.is_some() || user.client_certificate_data.is_some()) && !has_key {
        return Err(SettingsError::NoKey);
    }
    if user.client_certificate.is_some() && user.client_certificate_data.is_some() {
        return Err(SettingsError::Both("client-certificate", "client-certificate-data"));
    }
    if user.client_key.is_some() && user.client_key_data.is_some() {
        return Err(SettingsError::Both("client-key", "client-key-data"));
    }
    let groups = user.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty());
    let extra = user.impersonate_user_extra.as_ref().is_some_and(|extra| !extra.is_empty());
    if user.impersonate.is_none() && (user.impersonate_uid.is_some() || groups || extra) {
        return Err(SettingsError::NoImpersonatedUser);
    }
    user.exec.as_ref().map_or(Ok(()), check_exec)
}

fn check_exec(exec: &ExecConfig) -> Result<(), SettingsError> {
    let command = exec.command.clone().ok_or(SettingsError::NoCommand)?;
    match exec.api_version.as_deref() {
        Some(EXEC_V1) if exec.interactive_mode.is_none() => return Err(SettingsError::NoMode(command)),
        Some(EXEC_V1 | EXEC_V1BETA1) => {}
        Some(version) => return Err(SettingsError::ApiVersion(command, version.to_owned())),
        None => return Err(SettingsError::NoApiVersion(command)),
    }
    let unnamed =
        |env: &std::collections::HashMap<String, String>| env.get("name").is_none_or(String::is_empty);
    if exec.env.iter().flatten().any(unnamed) {
        return Err(SettingsError::UnnamedEnv(command));
    }
    Ok(())
}
