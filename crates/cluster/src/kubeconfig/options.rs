//! Command-line options for the connection to the cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// kubectl's flags for the connection to the cluster. The kubeconfig provides the values of missing flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// `--kubeconfig`: the only file to read.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`
    pub context: Option<String>,
    /// `--cluster`: overrides the context's cluster.
    pub cluster: Option<String>,
    /// `--user`: overrides the context's user.
    pub user: Option<String>,
    /// `--namespace`
    pub namespace: Option<String>,
    /// `--server`: the address.
    pub server: Option<String>,
    /// `--token`
    pub token: Option<Secret>,
    /// `--as`: the user to impersonate.
    pub impersonate: Option<String>,
    /// `--as-group`: the groups to impersonate.
    pub impersonate_groups: Vec<String>,
    /// `--as-uid`: the UID to impersonate.
    pub impersonate_uid: Option<String>,
    /// `--as-user-extra`: the extra fields of the user to impersonate, each with its values.
    pub impersonate_user_extra: BTreeMap<String, Vec<String>>,
    /// `--client-certificate`
    pub client_certificate: Option<String>,
    /// `--client-key`
    pub client_key: Option<String>,
    /// `--certificate-authority`
    pub certificate_authority: Option<String>,
    /// `--insecure-skip-tls-verify`
    pub insecure_skip_tls_verify: bool,
    /// `--tls-server-name`: the name in the server's certificate.
    pub tls_server_name: Option<String>,
    /// `--request-timeout`: the time limit of a request. Zero disables the limit.
    pub request_timeout: Option<Duration>,
}

impl ClusterOptions {
    /// Removes empty values, because scripts pass variables that may be empty.
    pub(super) fn without_empty(mut self) -> Self {
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

/// A secret text. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
