//! Credential plugins, which are programs in the kubeconfig (`exec`) that print a token or a certificate.
//!
//! As in client-go, the first request that needs credentials runs the plugin. Its output is cached until the
//! credentials expire or the server refuses them. The plugin inherits standard error. Unlike in client-go, the plugin
//! has a time limit, so a plugin that hangs leads to an error that names the plugin. The plugin runs in a separate
//! task, so a request that times out does not interrupt an interactive login.

use std::io::IsTerminal;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::error::PluginError;
use clock::SharedClock;

/// The environment variable that passes parameters to the plugin.
const INFO: &str = "KUBERNETES_EXEC_INFO";
/// Maximum output of a plugin, in bytes.
const MAX_OUTPUT: u64 = 1 << 20;

/// A problem with the output of a plugin.
#[derive(Debug, thiserror::Error)]
enum OutputError {
    #[error("the output exceeds {MAX_OUTPUT} bytes")]
    TooLarge,
    #[error("the plugin must print an ExecCredential as JSON or YAML, and no other output")]
    Syntax,
    #[error("the kubeconfig requires apiVersion {wanted}, but the plugin printed {printed:?}")]
    ApiVersion { wanted: String, printed: String },
    #[error("the ExecCredential has no status")]
    NoStatus,
    #[error("the ExecCredential has only one of certificate and key")]
    HalfIdentity,
    #[error("the ExecCredential has neither a token nor a certificate")]
    NoCredentials,
    #[error("the expirationTimestamp is not a valid time")]
    Expiration,
}

/// Time limits of a plugin.
#[derive(Debug, Clone, Copy)]
pub struct PluginLimits {
    /// The time limit of a plugin that is not interactive.
    pub alone: Duration,
    /// The time limit of an interactive plugin. The user may need time to log in.
    pub interactive: Duration,
}

impl Default for PluginLimits {
    fn default() -> Self {
        Self { alone: Duration::from_mins(1), interactive: Duration::from_mins(5) }
    }
}

/// A client certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Credentials from a plugin.
pub(crate) struct Issued {
    pub(super) token: Option<String>,
    pub(super) identity: Option<Identity>,
    expires: Option<Timestamp>,
}

/// A plugin and its last result.
pub(crate) struct Plugin {
    exec: ExecConfig,
    limits: PluginLimits,
    clock: SharedClock,
    /// The number of completed runs.
    runs: AtomicU64,
    last: Mutex<Last>,
    /// Locked during a run, because an interactive plugin must not run twice at once.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Last {
    result: Option<Result<Arc<Issued>, PluginError>>,
    is_refused: bool,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("command", &self.exec.command).finish_non_exhaustive()
    }
}

impl Plugin {
    pub(super) fn new(exec: ExecConfig, limits: PluginLimits, clock: SharedClock) -> Self {
        let (runs, last, turn) = (AtomicU64::new(0), Mutex::default(), tokio::sync::Mutex::new(()));
        Self { exec, limits, clock, runs, last, turn }
    }

    /// Returns the cached credentials if they are valid. Otherwise runs the plugin.
    pub(crate) async fn current(self: &Arc<Self>) -> Result<Arc<Issued>, PluginError> {
        let runs_before = self.runs.load(Ordering::Acquire);
        if let Some(issued) = self.valid() {
            return Ok(issued);
        }
        let this = Arc::clone(self);
        let running = tokio::spawn(async move { this.renew(runs_before).await });
        running.await.unwrap_or_else(|error| {
            Err(PluginError::NotRun { command: self.command().to_owned(), reason: error.to_string() })
        })
    }

    /// Records that the server refused the credentials. The next request runs the plugin.
    pub(super) fn refused(&self, issued: &Arc<Issued>) {
        let mut last = self.last.lock();
        let is_last = matches!(&last.result, Some(Ok(current)) if Arc::ptr_eq(current, issued));
        last.is_refused |= is_last;
    }

    fn valid(&self) -> Option<Arc<Issued>> {
        let last = self.last.lock();
        let issued = last.result.as_ref()?.as_ref().ok()?;
        let is_expired = issued.expires.is_some_and(|expires| self.clock.now() > expires);
        (!last.is_refused && !is_expired).then(|| Arc::clone(issued))
    }

    /// Runs the plugin. If another run has completed since `runs_before` was read, returns the result of that run
    /// instead, even an error.
    async fn renew(&self, runs_before: u64) -> Result<Arc<Issued>, PluginError> {
        let _turn = self.turn.lock().await;
        if self.runs.load(Ordering::Acquire) != runs_before {
            let last = self.last.lock();
            if let Some(result) = &last.result {
                return result.clone();
            }
        }
        let result = self.run().await.map(Arc::new);
        let mut last = self.last.lock();
        *last = Last { result: Some(result.clone()), is_refused: false };
        self.runs.fetch_add(1, Ordering::AcqRel);
        result
    }

    fn command(&self) -> &str {
        self.exec.command.as_deref().unwrap_or_default()
    }

    async fn run(&self) -> Result<Issued, PluginError> {
        let name = || self.command().to_owned();
        let is_interactive = self.is_interactive(std::io::stdin().is_terminal())?;
        let not_run = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => PluginError::NotFound {
                command: name(),
                hint: self.exec.install_hint.as_deref().map(printable).filter(|hint| !hint.is_empty()),
            },
            _ => PluginError::NotRun { command: name(), reason: error.to_string() },
        };

        let mut child = Command::new(self.command())
            .args(self.exec.args.iter().flatten())
            .envs(
                self.exec.env.iter().flatten().filter_map(|env| Some((env.get("name")?, env.get("value")?))),
            )
            .env(INFO, self.info(is_interactive))
            .stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(not_run)?;
        let mut output = Vec::new();
        let stdout = child.stdout.take();
        let ended = async {
            if let Some(stdout) = stdout {
                stdout.take(MAX_OUTPUT + 1).read_to_end(&mut output).await?;
            }
            // A plugin with more output may never exit, so its exit is not awaited.
            if output.len() as u64 > MAX_OUTPUT { Ok(None) } else { child.wait().await.map(Some) }
        };
        let limit = if is_interactive { self.limits.interactive } else { self.limits.alone };
        let status = tokio::time::timeout(limit, ended)
            .await
            .map_err(|_| PluginError::TimedOut { command: name(), limit })?
            .map_err(not_run)?;
        let unusable =
            |problem: OutputError| PluginError::Output { command: name(), problem: problem.to_string() };
        let status = status.ok_or_else(|| unusable(OutputError::TooLarge))?;
        if !status.success() {
            return Err(PluginError::Failed { command: name(), status: status.to_string() });
        }
        self.read(&output).map_err(unusable)
    }

    /// Returns whether the plugin may be interactive. Fails if the plugin requires a terminal and none is available.
    fn is_interactive(&self, has_terminal: bool) -> Result<bool, PluginError> {
        match self.exec.interactive_mode {
            Some(ExecInteractiveMode::Never) => Ok(false),
            Some(ExecInteractiveMode::Always) if !has_terminal => {
                Err(PluginError::NoTerminal { command: self.command().to_owned() })
            }
            _ => Ok(has_terminal),
        }
    }

    fn info(&self, is_interactive: bool) -> String {
        let mut spec = json!({"interactive": is_interactive});
        if let (Some(cluster), Some(spec)) = (&self.exec.cluster, spec.as_object_mut()) {
            spec.insert("cluster".to_owned(), json!(cluster));
        }
        json!({"kind": "ExecCredential", "apiVersion": self.exec.api_version, "spec": spec}).to_string()
    }

    /// Decodes the output of the plugin, an ExecCredential as JSON or YAML.
    fn read(&self, output: &[u8]) -> Result<Issued, OutputError> {
        let printed: ExecCredential = serde_saphyr::from_slice(output).map_err(|_| OutputError::Syntax)?;
        let wanted = self.exec.api_version.as_deref().unwrap_or_default();
        if printed.api_version != wanted {
            return Err(OutputError::ApiVersion { wanted: wanted.to_owned(), printed: printed.api_version });
        }
        let status = printed.status.ok_or(OutputError::NoStatus)?;
        let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (certificate, key) =
            (non_empty(status.client_certificate_data), non_empty(status.client_key_data));
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => return Err(OutputError::HalfIdentity),
        };
        let token = non_empty(status.token);
        if token.is_none() && identity.is_none() {
            return Err(OutputError::NoCredentials);
        }
        let expires = non_empty(status.expiration_timestamp).map(|time| time.parse::<Timestamp>());
        let expires = expires.transpose().map_err(|_| OutputError::Expiration)?;
        Ok(Issued { token, identity, expires })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Joins the text to one line and removes control characters.
fn printable(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|character| !character.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::SystemClock;

    fn plugin(mode: Option<ExecInteractiveMode>) -> Plugin {
        let exec = ExecConfig {
            command: Some("plugin".to_owned()),
            api_version: Some("client.authentication.k8s.io/v1".to_owned()),
            interactive_mode: mode,
            ..ExecConfig::default()
        };
        Plugin::new(exec, PluginLimits::default(), Arc::new(SystemClock))
    }

    #[test]
    fn plugin_is_interactive_only_on_a_terminal_and_if_permitted() {
        use ExecInteractiveMode::{Always, IfAvailable, Never};
        for (mode, on_terminal) in
            [(None, true), (Some(Never), false), (Some(IfAvailable), true), (Some(Always), true)]
        {
            assert_eq!(plugin(mode).is_interactive(true), Ok(on_terminal));
        }
        for mode in [None, Some(Never), Some(IfAvailable)] {
            assert_eq!(plugin(mode).is_interactive(false), Ok(false));
        }
        let error = plugin(Some(Always)).is_interactive(false).unwrap_err().to_string();
        assert!(error.contains("plugin needs a terminal"), "{error}");
    }

    #[test]
    fn credentials_may_be_json_or_yaml() {
        let plugin = plugin(None);
        let json =
            br#"{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "spec": {},
            "status": {"token": "t", "expirationTimestamp": "2030-01-01T00:00:00Z"}}"#;
        let issued = plugin.read(json).unwrap();
        assert_eq!(issued.token.as_deref(), Some("t"));
        assert_eq!(issued.expires, "2030-01-01T00:00:00Z".parse().ok());
        let yaml =
            b"apiVersion: client.authentication.k8s.io/v1\nkind: ExecCredential\nstatus:\n  token: t\n";
        let issued = plugin.read(yaml).unwrap();
        assert_eq!((issued.token.as_deref(), issued.expires), (Some("t"), None));
    }

    #[test]
    fn install_hint_is_one_line_without_control_characters() {
        assert_eq!(printable("get it:\n\n  brew install \u{1b}[31mit\u{7}\n"), "get it: brew install [31mit");
    }
}
