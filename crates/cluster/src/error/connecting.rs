//! The errors of credentials and proxies.

use std::path::PathBuf;
use std::time::Duration;

use super::ApiError;

/// An error in the authentication of a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CredentialError {
    /// The token is not valid in a header. The error text omits the token.
    #[error("the user's token is not valid in a header: it must be one line of visible characters")]
    Token,
    /// The token file is unreadable.
    #[error("cannot read the token file {}: {reason}", .path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The token file is empty.
    #[error("the token file {} is empty", .path.display())]
    Empty {
        /// The path of the file.
        path: PathBuf,
    },
    /// The credential plugin failed.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// No token of the ServiceAccount is available.
    #[error(transparent)]
    Account(AccountError),
}

/// An error of a credential plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The plugin requires a terminal.
    #[error(
        "the credential plugin {command} needs a terminal (interactiveMode: Always), but standard input is not a terminal: run concertina in a terminal"
    )]
    NoTerminal {
        /// `command` of the kubeconfig.
        command: String,
    },
    /// The program does not exist.
    #[error("the credential plugin {command} is not installed or not on the PATH{}", hinted(.hint.as_deref()))]
    NotFound {
        /// `command` of the kubeconfig.
        command: String,
        /// `installHint` of the kubeconfig, as one line.
        hint: Option<String>,
    },
    /// The program could not be run.
    #[error("the credential plugin {command} cannot be run: {reason}")]
    NotRun {
        /// `command` of the kubeconfig.
        command: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The plugin exceeded its time limit.
    #[error("the credential plugin {command} did not exit within {} s and was stopped: run the plugin by hand to see what it waits for", .limit.as_secs())]
    TimedOut {
        /// `command` of the kubeconfig.
        command: String,
        /// The exceeded time limit.
        limit: Duration,
    },
    /// The plugin exited with a failure.
    #[error("the credential plugin {command} failed ({status}): see its output on standard error")]
    Failed {
        /// `command` of the kubeconfig.
        command: String,
        /// The exit status, such as `exit status: 1`.
        status: String,
    },
    /// The output is unusable. The error text omits the output, which may be secret.
    #[error("the credential plugin {command} did not print usable credentials: {problem}")]
    Output {
        /// `command` of the kubeconfig.
        command: String,
        /// The problem, such as `the ExecCredential has no status`.
        problem: String,
    },
}

fn hinted(hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!(": {hint}"))
}

/// No token of a ServiceAccount could be created.
#[derive(Debug, Clone, thiserror::Error)]
#[error("failed to create a token of ServiceAccount {account} (--use-service-account-credentials): {error}")]
pub struct AccountError {
    pub(crate) account: String,
    /// Boxed because many error types contain this rare error.
    pub(crate) error: Box<ApiError>,
}

/// A failed connection through a proxy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TunnelError(pub(crate) String);
