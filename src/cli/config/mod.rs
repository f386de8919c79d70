//! The controller's configuration, resolved from flags and validated. Each error names the flag and the reason.

pub(super) mod checks;
mod draft;
pub(super) mod handover;
pub(super) mod identity;
pub(super) mod serving;

use std::path::{Path, PathBuf};

pub use self::draft::Draft;
pub use self::handover::{HandoverGuard, HandoverOptions};
pub use self::identity::{GroupResource, ScaleTargets};
use crate::logging::LogOptions;
use crate::serve::options::{CertificateFiles, Serving};
use controller::election::Timing;
use controller::history::checkpoint::CheckpointPlace;
use controller::options::Options;

/// The default of `--history-token-file`, where the shipped manifests mount the token.
pub(super) const HISTORY_TOKEN: &str = "/var/run/secrets/concertina/history/token";

/// The controller's configuration. Every value is valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The options of the controller.
    pub controller: Options,
    /// `--kubeconfig`, if not empty.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`, if not empty.
    pub master: Option<String>,
    /// `--kube-api-burst`, at least one.
    pub burst: u32,
    /// `--takeover`: the reaction to another controller that acts on the same HPAs.
    pub takeover: TakeOver,
    /// `--handover-guard` and `--built-in-users`.
    pub handover: HandoverOptions,
    /// `--leader-elect*`. With `None`, the process assumes that no other replica runs.
    pub election: Option<Election>,
    /// `--use-service-account-credentials`: act as a ServiceAccount, with tokens requested by the configured
    /// credentials.
    pub service_account_credentials: bool,
    /// `--scale-targets`: the resources that the role allows to scale. The controller itself refuses no
    /// target.
    pub scale_targets: ScaleTargets,
    /// The HTTPS server and its access control.
    pub serving: Serving,
    /// `--console`: serve the page with all HPAs on the secure port.
    pub console: bool,
    /// The webhook of `--handover-guard=webhook`.
    pub handover_webhook: HandoverWebhook,
    /// `--history-checkpoint`: the location of histories that survive a restart of all replicas. `None`
    /// disables the checkpoint.
    pub history_checkpoint: Option<CheckpointPlace>,
    /// `--history-token-file`: the token that a standby sends to the leader to copy histories.
    pub history_token_file: Option<PathBuf>,
    /// `--metric-sources`: the file with the sources of metrics. `None` means only the metrics APIs.
    pub metric_sources: Option<PathBuf>,
    /// `--logging-format` and `-v`.
    pub logging: LogOptions,
    /// Warnings about given flags, such as flags without effect. The process logs them once at startup.
    pub warnings: Vec<String>,
}

/// The options of the webhook that refuses writes of the built-in controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverWebhook {
    /// `--handover-webhook-port`.
    pub port: u16,
    /// `--handover-namespace`: the namespace of the webhook's Service and Secret.
    pub namespace: String,
    /// `--handover-webhook-cert-file` and `--handover-webhook-key-file`. With `None`, an authority in a Secret signs
    /// the certificate.
    pub certificate: Option<CertificateFiles>,
}

impl Default for HandoverWebhook {
    fn default() -> Self {
        Self { port: 10250, namespace: "concertina-system".to_owned(), certificate: None }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            controller: Options::default(),
            kubeconfig: None,
            master: None,
            burst: 30,
            takeover: TakeOver::Wait,
            handover: HandoverOptions::default(),
            election: Some(Election::default()),
            service_account_credentials: false,
            scale_targets: ScaleTargets::All,
            serving: Serving::default(),
            console: false,
            handover_webhook: HandoverWebhook::default(),
            history_checkpoint: None,
            history_token_file: Some(HISTORY_TOKEN.into()),
            metric_sources: None,
            logging: LogOptions::default(),
            warnings: Vec::new(),
        }
    }
}

impl From<Options> for Config {
    /// Returns the default configuration with other options of the controller.
    fn from(controller: Options) -> Self {
        Self { controller, ..Self::default() }
    }
}

impl Config {
    /// Returns whether reviews with `kubeconfig` use the controller's own credentials. This holds for `None`
    /// and for the controller's own kubeconfig, which a copied command line repeats in three flags.
    pub fn reviews_itself(&self, kubeconfig: Option<&Path>) -> bool {
        kubeconfig.is_none_or(|path| self.own_kubeconfig() == Some(path))
    }

    /// Returns the kubeconfig of the controller. `None` with `--master`, which overrides the server of the kubeconfig.
    pub fn own_kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref().filter(|_| self.master.is_none())
    }
}

/// The default name of the Lease.
const LEASE: &str = "concertina";
/// The Lease of kube-controller-manager. Holding it would stop all controllers of kube-controller-manager.
const FOREIGN_LEASE: &str = "kube-controller-manager";

/// Leader election with a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// `--leader-elect-resource-name`. Never the name of kube-controller-manager's Lease.
    pub name: String,
    /// `--leader-elect-lease-duration`, `--leader-elect-renew-deadline` and `--leader-elect-retry-period`.
    pub timing: Timing,
}

impl Default for Election {
    fn default() -> Self {
        Self { namespace: "kube-system".to_owned(), name: LEASE.to_owned(), timing: Timing::default() }
    }
}

/// `--takeover`: the reaction to another controller that acts on the same HPAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TakeOver {
    /// Write nothing until the other controller has stopped.
    #[default]
    Wait,
    /// Warn, and still act.
    Warn,
    /// Do not check.
    Off,
}

#[cfg(test)]
mod tests;
