//! The controller's configuration, which is resolved from flags and validated. Each error names the flag and the
//! reason.

pub(crate) mod checks;
mod draft;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use self::draft::Draft;
use crate::serving::{CertificateFiles, Serving};
use clock::Jitter;
use cluster::client::{ClientOptions, ServiceAccount};
use cluster::gate::{Gate, Refusal};
use coexist::handover::objects::BUILT_IN_USERS;
use controller::election::Timing;
use controller::options::Options;
use journal::history::checkpoint::CheckpointPlace;

/// The namespace of the ServiceAccount of `--use-service-account-credentials`.
pub const ACCOUNT_NAMESPACE: &str = "kube-system";
/// The name of the ServiceAccount of `--use-service-account-credentials`. kube-controller-manager uses the same name
/// for the built-in controller. The bindings of metrics adapters also contain this name.
pub const ACCOUNT_NAME: &str = "horizontal-pod-autoscaler";

/// The validated configuration of the controller.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The options of the controller.
    pub controller: Options,
    /// `--kubeconfig`. `None` for an empty value.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`. `None` for an empty value.
    pub master: Option<String>,
    /// `--kube-api-burst`, at least one.
    pub burst: u32,
    /// `--takeover`.
    pub takeover: TakeOver,
    /// `--handover-guard` and `--built-in-users`.
    pub handover: HandoverOptions,
    /// `--leader-elect` and related flags. With `None`, the process assumes that no other replica runs.
    pub election: Option<Election>,
    /// `--use-service-account-credentials`: whether the controller acts as a ServiceAccount. It requests the tokens
    /// with the configured credentials.
    pub service_account_credentials: bool,
    /// `--scale-targets`: the resources that the printed role allows the controller to scale. The controller itself
    /// accepts every target.
    pub scale_targets: ScaleTargets,
    /// The HTTPS server and its access control.
    pub serving: Serving,
    /// The webhook of `--handover-guard=webhook`.
    pub handover_webhook: HandoverWebhook,
    /// `--history-checkpoint`: the location of the histories for the next leader. `None` disables the checkpoint.
    pub history_checkpoint: Option<CheckpointPlace>,
    /// `--metric-sources`: the file with further sources of metrics. With `None`, only the metrics APIs are sources.
    pub metric_sources: Option<PathBuf>,
    /// `--logging-format` and `-v`.
    pub logging: LogOptions,
    /// Warnings about given flags, such as flags without effect. The process logs each warning once at startup.
    pub warnings: Vec<String>,
}

/// The options of the webhook that refuses writes of the built-in controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverWebhook {
    /// `--handover-webhook-port`.
    pub port: u16,
    /// `--handover-namespace`: the namespace of the webhook's Service and Secret.
    pub namespace: String,
    /// `--handover-webhook-cert-file` and `--handover-webhook-key-file`. With `None`, the authorities in a Secret sign
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
            handover_webhook: HandoverWebhook::default(),
            history_checkpoint: Some(CheckpointPlace::default()),
            metric_sources: None,
            logging: LogOptions::default(),
            warnings: Vec::new(),
        }
    }
}

impl From<Options> for Config {
    /// Returns the default configuration with the given options of the controller.
    fn from(controller: Options) -> Self {
        Self { controller, ..Self::default() }
    }
}

impl Config {
    /// Returns whether reviews with `kubeconfig` use the credentials of the controller. The result is `true` for `None`
    /// and for the controller's kubeconfig, which the command line of kubeadm repeats in three flags.
    pub fn reviews_itself(&self, kubeconfig: Option<&Path>) -> bool {
        kubeconfig.is_none_or(|path| self.own_kubeconfig() == Some(path))
    }

    /// Returns the kubeconfig of the controller. Returns `None` with `--master`, which overrides the server of the
    /// kubeconfig.
    pub fn own_kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref().filter(|_| self.master.is_none())
    }

    /// Returns the client options that the flags configure: rate limits, write gate and credentials.
    pub fn client_options(&self) -> ClientOptions {
        ClientOptions {
            qps: self.controller.qps.map_or(0.0, narrow),
            burst: self.burst,
            gate: if self.controller.dry_run { Gate::refusing(Refusal::DryRun) } else { Gate::open() },
            service_account: self.service_account_credentials.then(|| ServiceAccount {
                namespace: ACCOUNT_NAMESPACE.to_owned(),
                name: ACCOUNT_NAME.to_owned(),
                jitter: Jitter::seeded(u64::from(std::process::id())),
            }),
            ..ClientOptions::default()
        }
    }
}

/// Converts a rate for the token bucket. A rate above the range of a 32-bit float becomes infinite, which means no
/// limit.
#[expect(clippy::cast_possible_truncation, reason = "a rate needs no more digits than a 32-bit float has")]
fn narrow(rate: f64) -> f32 {
    rate as f32
}

/// Format and verbosity of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogOptions {
    /// `--logging-format`.
    pub format: LogFormat,
    /// `-v`: the level is info up to 3, debug for 4 and 5, and trace from 6.
    pub verbosity: u32,
}

/// `--logging-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Lines such as `2026-11-21T04:00:00.000000Z  INFO concertina::app: started key="value"`.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The default name of the Lease.
const LEASE: &str = "concertina";
/// The Lease of kube-controller-manager. While another process holds this Lease, no controller of
/// kube-controller-manager runs.
const FOREIGN_LEASE: &str = "kube-controller-manager";

/// Leader election with a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// `--leader-elect-resource-name`. The Lease of kube-controller-manager is never used.
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
    /// The process writes nothing until the other controller has stopped.
    #[default]
    Wait,
    /// The process logs a warning and writes.
    Warn,
    /// The process does not check for another controller.
    Off,
}

/// `--handover-guard`: the mechanism that keeps the built-in controller from writing the HPAs in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverGuard {
    /// A validating webhook that every replica serves. Only with `--scope=labelled`.
    Webhook,
    /// Validating admission policies. Only with `--scope=labelled`.
    Policy,
    /// The role binding of the built-in controller has no subjects. Only with `--scope=all`.
    Rbac,
    /// The flag `--controllers` of kube-controller-manager disables the built-in controller. Only with `--scope=all`.
    Flag,
    /// No guard is configured.
    None,
}

/// Options of the handover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverOptions {
    /// `--handover-guard`.
    pub guard: HandoverGuard,
    /// `--built-in-users`: the user names of the built-in controller. Not empty if the guard checks users.
    pub built_in_users: Vec<String>,
}

impl Default for HandoverOptions {
    fn default() -> Self {
        let built_in_users = BUILT_IN_USERS.map(str::to_owned).to_vec();
        Self { guard: HandoverGuard::None, built_in_users }
    }
}

impl HandoverGuard {
    /// Returns the value of `--handover-guard`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Policy => "policy",
            Self::Rbac => "rbac",
            Self::Flag => "flag",
            Self::None => "none",
        }
    }

    /// Returns whether the guard refuses requests by their user name.
    pub fn checks_users(self) -> bool {
        matches!(self, Self::Webhook | Self::Policy)
    }
}

/// `--scale-targets`: the resources that the printed role allows the controller to scale.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ScaleTargets {
    /// Every resource with a `scale` subresource, as in the role of the built-in controller.
    #[default]
    All,
    /// The listed resources only.
    Only(BTreeSet<GroupResource>),
}

/// A resource and its API group, such as `deployments.apps`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupResource {
    /// The API group, such as `apps`. Empty for the core group.
    pub group: String,
    /// The resource, such as `deployments`.
    pub resource: String,
}

#[cfg(test)]
mod tests;
