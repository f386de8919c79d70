//! The configuration while flags are read, and the values that depend on several flags.

use std::collections::BTreeMap;
use std::path::PathBuf;

use autoscaling::settings::Version;
use clap::ArgMatches;
use coexist::handover::scope::Scope;
use controller::election::{Timing, TimingError};
use journal::history::checkpoint::CheckpointPlace;
use rustls::{CipherSuite, NamedGroup};

use super::{
    ACCOUNT_NAME, ACCOUNT_NAMESPACE, Config, Election, FOREIGN_LEASE, HandoverGuard, LEASE, TakeOver,
};
use crate::gates::{Gates, WithoutEffect};
use crate::serving::{CertificateFiles, FrontProxy, FrontProxyHeaders};
use crate::tls::{Supported, TlsOptions};
use crate::values::last_text;
use crate::{FlagError, Reason};

/// The configuration while flags are read. Except for `config`, each field has the value of a flag that affects the
/// configuration only in combination with other flags.
#[derive(Debug)]
pub struct Draft {
    pub(crate) config: Config,
    pub(crate) version: Version,
    pub(crate) gates: Vec<String>,
    pub(crate) shares_metrics: bool,
    pub(crate) elects: bool,
    pub(crate) lock: String,
    pub(crate) lease_namespace: Option<String>,
    pub(crate) lease_name: Option<String>,
    pub(crate) timing: Timing,
    pub(crate) checkpoints: bool,
    /// `--handover-guard`. With `None`, the scope selects the guard.
    pub(crate) guard: Option<HandoverGuard>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) private_key: Option<PathBuf>,
    pub(crate) handover_certificate: Option<PathBuf>,
    pub(crate) handover_key: Option<PathBuf>,
    pub(crate) front_proxy_ca: Option<PathBuf>,
    pub(crate) headers: FrontProxyHeaders,
    /// `--tls-min-version`: whether TLS 1.3 is the minimum, and an optional warning.
    pub(crate) minimum_tls: (bool, Option<String>),
    pub(crate) cipher_suites: Supported<CipherSuite>,
    pub(crate) curves: Supported<NamedGroup>,
    /// The given flags without effect, by reason.
    pub(crate) without_effect: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Default for Draft {
    fn default() -> Self {
        let list = |items: &[&str]| items.iter().map(ToString::to_string).collect();
        Self {
            config: Config::default(),
            version: Version::default(),
            gates: Vec::new(),
            shares_metrics: true,
            elects: true,
            lock: "leases".to_owned(),
            lease_namespace: None,
            lease_name: None,
            timing: Timing::default(),
            checkpoints: true,
            guard: None,
            certificate: None,
            private_key: None,
            handover_certificate: None,
            handover_key: None,
            front_proxy_ca: None,
            headers: FrontProxyHeaders {
                allowed_names: Vec::new(),
                user: list(&["x-remote-user"]),
                uid: Vec::new(),
                group: list(&["x-remote-group"]),
                extra_prefix: list(&["x-remote-extra-"]),
            },
            minimum_tls: (false, None),
            cipher_suites: Supported { kept: Vec::new(), left_out: Vec::new() },
            curves: Supported { kept: Vec::new(), left_out: Vec::new() },
            without_effect: BTreeMap::new(),
        }
    }
}

impl Draft {
    /// Completes and validates the configuration. Errors quote the values of flags in `matches`.
    pub(crate) fn finish(self, matches: &ArgMatches) -> Result<Config, FlagError> {
        let invalid = |name: &str, reason: Reason| FlagError::invalid(name, last_text(matches, name), reason);
        let mut config = self.config;
        for (reason, flags) in self.without_effect {
            let verb = if flags.len() == 1 { "has" } else { "have" };
            config.warnings.push(format!("--{} {verb} no effect: {reason}", flags.join(", --")));
        }

        let (gates, WithoutEffect { unknown, locked }) = Gates::resolve(self.version, &self.gates)
            .map_err(|error| invalid("feature-gates", error.into()))?;
        if !unknown.is_empty() {
            let (verb, object) = if unknown.len() == 1 { ("has", "it") } else { ("have", "them") };
            config.warnings.push(format!(
                "--feature-gates: {} {verb} no effect: the HPA controller does not have {object}",
                unknown.join(", ")
            ));
        }
        if !locked.is_empty() {
            let (has, is) = if locked.len() == 1 { ("has", "is") } else { ("have", "are") };
            config.warnings.push(format!(
                "--feature-gates: {} {has} no effect: always on in {}, and {is} removed in a later version",
                locked.join(", "),
                self.version.name()
            ));
        }
        let options = &mut config.controller;
        options.settings.version = self.version;
        gates.apply(&mut options.settings);
        options.stale_consistency = gates.stale_consistency;
        options.metric_sharing = options.metric_sharing.filter(|_| self.shares_metrics);
        options.watch_targets = self.shares_metrics;

        handover(&mut config, self.guard, &invalid)?;

        let namespace = self.lease_namespace.unwrap_or_else(|| "kube-system".to_owned());
        let is_foreign = self.lease_name.as_deref() == Some(FOREIGN_LEASE);
        let name = self.lease_name.filter(|_| !is_foreign).unwrap_or_else(|| LEASE.to_owned());
        config.history_checkpoint =
            self.checkpoints.then(|| CheckpointPlace { namespace: namespace.clone(), name: name.clone() });
        config.election = None;
        if self.elects {
            if self.lock != "leases" {
                return Err(invalid("leader-elect-resource-lock", Reason::MustBe("leases")));
            }
            self.timing.validate().map_err(|error| {
                let flag = match error {
                    TimingError::Lease | TimingError::TooShort => "leader-elect-lease-duration",
                    TimingError::RenewDeadline => "leader-elect-renew-deadline",
                    TimingError::Retry => "leader-elect-retry-period",
                };
                invalid(flag, error.into())
            })?;
            if is_foreign {
                config.warnings.push(format!(
                    "--leader-elect-resource-name={FOREIGN_LEASE} is not used: that Lease belongs to \
                     kube-controller-manager; {namespace}/{LEASE} is used instead"
                ));
            }
            config.election = Some(Election { namespace, name, timing: self.timing });
        }

        let files =
            |certificate, key, [certificate_flag, key_flag]: [&'static str; 2]| match (certificate, key) {
                (None, None) => Ok(None),
                (Some(certificate), Some(key)) => Ok(Some(CertificateFiles { certificate, key })),
                (Some(_), None) => Err(invalid(certificate_flag, Reason::Needs(key_flag))),
                (None, Some(_)) => Err(invalid(key_flag, Reason::Needs(certificate_flag))),
            };
        config.handover_webhook.certificate = files(
            self.handover_certificate,
            self.handover_key,
            ["handover-webhook-cert-file", "handover-webhook-key-file"],
        )?;
        let serving = &mut config.serving;
        serving.certificate =
            files(self.certificate, self.private_key, ["tls-cert-file", "tls-private-key-file"])?;
        let headers = self.headers;
        serving.authentication.front_proxy = self.front_proxy_ca.map(|ca| FrontProxy { ca, headers });
        let (only_tls13, warning) = self.minimum_tls;
        config.warnings.extend(warning);
        serving.tls = TlsOptions {
            only_tls13,
            suites: supported("tls-cipher-suites", self.cipher_suites, &mut config.warnings),
            groups: supported("tls-curve-preferences", self.curves, &mut config.warnings),
        };
        Ok(config)
    }
}

/// Selects the guard, and refuses contradictory flags.
fn handover(
    config: &mut Config,
    guard: Option<HandoverGuard>,
    invalid: &impl Fn(&str, Reason) -> FlagError,
) -> Result<(), FlagError> {
    let Config { controller, handover, takeover, warnings, .. } = config;
    let is_labelled = controller.scope == Scope::Labelled;
    let default = if is_labelled { HandoverGuard::Webhook } else { HandoverGuard::None };
    handover.guard = guard.unwrap_or(default);
    match handover.guard {
        HandoverGuard::Webhook | HandoverGuard::Policy if !is_labelled => {
            return Err(invalid("handover-guard", Reason::Needs("scope=labelled")));
        }
        HandoverGuard::Rbac | HandoverGuard::Flag if is_labelled => {
            return Err(invalid("handover-guard", Reason::Needs("scope=all")));
        }
        _ => {}
    }
    if controller.shadow_others && !is_labelled {
        return Err(invalid("shadow-others", Reason::Needs("scope=labelled")));
    }
    if is_labelled && *takeover != TakeOver::Wait {
        return Err(invalid("takeover", Reason::MustBe("wait with --scope=labelled")));
    }
    if handover.guard.checks_users() {
        if handover.built_in_users.is_empty() {
            let reason = "at least one user with --handover-guard=webhook and --handover-guard=policy";
            return Err(invalid("built-in-users", Reason::MustBe(reason)));
        }
        let own = format!("system:serviceaccount:{ACCOUNT_NAMESPACE}:{ACCOUNT_NAME}");
        if config.service_account_credentials && handover.built_in_users.contains(&own) {
            return Err(invalid("use-service-account-credentials", Reason::GuardRefuses(own)));
        }
    }
    if is_labelled && controller.watch_namespaces.is_some() {
        warnings.push(
            "--scope=labelled with --watch-namespaces: labels of namespaces have no effect, only labels of HPAs"
                .to_owned(),
        );
    }
    Ok(())
}

/// Returns the supported entries of a list. Adds a warning about unsupported entries.
fn supported<T>(flag: &str, list: Supported<T>, warnings: &mut Vec<String>) -> Vec<T> {
    if !list.left_out.is_empty() {
        warnings.push(format!("--{flag}: ignored {}: not supported by rustls", list.left_out.join(", ")));
    }
    list.kept
}
