//! The controller's configuration, resolved from flags and validated. Each error names the flag and the
//! allowed values.

mod election;
mod identity;
mod reader;
mod serving;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use autoscaling::quantity::Quantity;
use autoscaling::settings::Settings;

pub use self::election::{Election, TakeOver};
pub use self::identity::{GroupResource, ScaleTargets};
use self::reader::{Reader, WRONG_TYPE};
use super::flags::{FlagError, Purpose, Raw, Table};
use super::gates::{self, Gates};
use super::values::Value;
use super::{kcm, own};
use crate::logging::{LogFormat, LogOptions};
use crate::serve::options::Serving;
use controller::history::checkpoint::CheckpointPlace;
use controller::options::{Options, ScaleSourceError};

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
    /// `--leader-elect*`. With `None`, the process assumes that it is the only replica.
    pub election: Option<Election>,
    /// `--use-service-account-credentials`: act as a ServiceAccount, with tokens requested by the configured
    /// credentials.
    pub service_account_credentials: bool,
    /// `--scale-targets`: the resources that the role allows to scale. The controller itself refuses no
    /// target.
    pub scale_targets: ScaleTargets,
    /// The HTTPS server and its access control.
    pub serving: Serving,
    /// `--history-checkpoint`: the location of histories that survive a restart of all replicas. `None`
    /// disables the checkpoint.
    pub history_checkpoint: Option<CheckpointPlace>,
    /// `--logging-format` and `-v`.
    pub logging: LogOptions,
    /// Warnings about given flags without effect. The process logs them once at startup.
    pub warnings: Vec<String>,
}

/// client-go's rate and burst for a flag value of 0.
const CLIENT_GO_QPS: f64 = 5.0;
const CLIENT_GO_BURST: u32 = 10;

/// The maximum of `--decisions-per-hpa`. The limit exists because each request reads the whole record of an
/// HPA.
const MOST_DECISIONS: usize = 1000;

impl Default for Config {
    fn default() -> Self {
        Self {
            controller: Options::default(),
            kubeconfig: None,
            master: None,
            burst: 30,
            takeover: TakeOver::Wait,
            election: Some(Election::default()),
            service_account_credentials: false,
            scale_targets: ScaleTargets::All,
            serving: Serving::default(),
            history_checkpoint: None,
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

    /// Returns the kubeconfig of the controller, unless `--master` replaces its server.
    pub fn own_kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref().filter(|_| self.master.is_none())
    }

    /// Returns the value of every flag, given or default.
    pub fn flag_values(&self) -> BTreeMap<String, String> {
        let table = Table::new(&[kcm::FLAGS, own::FLAGS]);
        let defaults = table.flags().map(|flag| (flag.name.to_owned(), flag.default.to_owned()));
        let mut flags: BTreeMap<String, String> = defaults.collect();
        flags.extend(self.serving.given.iter().cloned());
        flags
    }

    /// Resolves and validates the flags of the controller.
    ///
    /// # Errors
    /// Returns the first invalid flag, with pflag's text.
    pub fn resolve(raw: &Raw, table: &Table) -> Result<Self, FlagError> {
        refuse_arguments(raw)?;
        let read = Reader { raw, table };

        let version = read.checked("emulated-version", |value| match value {
            Value::List(items) => gates::parse_versions(items),
            _ => Err(WRONG_TYPE.to_owned()),
        })?;
        let mut unknown_gates = Vec::new();
        let gates = read.checked("feature-gates", |value| match value {
            Value::List(items) => Gates::resolve(version, items, &mut unknown_gates),
            _ => Err(WRONG_TYPE.to_owned()),
        })?;
        let mut settings = Settings {
            tolerance: read.float("horizontal-pod-autoscaler-tolerance", |tolerance| {
                if tolerance >= 0.0 { Ok(tolerance) } else { Err("must be at least 0") }
            })?,
            downscale_stabilization: read.duration("horizontal-pod-autoscaler-downscale-stabilization")?,
            cpu_initialization_period: read
                .duration("horizontal-pod-autoscaler-cpu-initialization-period")?,
            initial_readiness_delay: read.duration("horizontal-pod-autoscaler-initial-readiness-delay")?,
            ..Settings::new(version)
        };
        gates.apply(&mut settings);

        let mut warnings = ignored_flags(raw, table);
        if !unknown_gates.is_empty() {
            warnings.push(format!(
                "--feature-gates: {} {} no effect: the HPA controller does not have {}",
                unknown_gates.join(", "),
                if unknown_gates.len() == 1 { "has" } else { "have" },
                if unknown_gates.len() == 1 { "it" } else { "them" },
            ));
        }

        Ok(Self {
            controller: Options {
                settings,
                stale_consistency: gates.stale_consistency,
                sync_period: read.duration_above_zero("horizontal-pod-autoscaler-sync-period")?,
                concurrent_syncs: read.count("concurrent-horizontal-pod-autoscaler-syncs")?,
                qps: read.float("kube-api-qps", |qps| {
                    if qps.is_nan() {
                        Err("must be a number")
                    } else if qps == 0.0 {
                        Ok(Some(CLIENT_GO_QPS))
                    } else {
                        Ok((qps > 0.0 && qps.is_finite()).then_some(qps))
                    }
                })?,
                status_qps: read.float("status-qps", |qps| {
                    if qps >= 0.0 && qps.is_finite() {
                        Ok((qps > 0.0).then_some(qps))
                    } else {
                        Err("must be a number of at least 0; 0 selects a rate by the number of HPAs")
                    }
                })?,
                dry_run: read.checked("dry-run", |value| Ok(*value == Value::Bool(true)))?,
                watch_namespaces: identity::watch_namespaces(&read)?,
                scale_source: read.checked("scale-source", |value| match value {
                    Value::Text(word) => word.parse().map_err(|error: ScaleSourceError| error.to_string()),
                    _ => Err(WRONG_TYPE.to_owned()),
                })?,
                field_manager: read.checked("field-manager", |value| match value {
                    // The API server has the same rule.
                    Value::Text(name)
                        if !name.is_empty() && name.len() <= 128 && !name.chars().any(char::is_control) =>
                    {
                        Ok(name.clone())
                    }
                    _ => Err("must be 1 to 128 printable characters".to_owned()),
                })?,
                metrics_timeout: read.duration_above_zero("metrics-timeout")?,
                max_metrics_response: read.checked("max-metrics-response", |value| match value {
                    Value::Quantity(size) if *size > Quantity::ZERO => {
                        Ok(usize::try_from(size.value()).unwrap_or(usize::MAX))
                    }
                    _ => Err("must be greater than 0".to_owned()),
                })?,
                max_concurrent_metric_requests: read.count("max-concurrent-metric-requests")?,
                max_concurrent_metric_requests_per_api: read
                    .count("max-concurrent-metric-requests-per-api")?,
                metric_sharing: {
                    let age = read.duration("metric-snapshot-age")?;
                    read.checked("share-metrics", |value| Ok((*value == Value::Bool(true)).then_some(age)))?
                },
                decisions_per_hpa: read.checked("decisions-per-hpa", |value| match value {
                    Value::Int(count) => usize::try_from(*count)
                        .ok()
                        .filter(|count| *count <= MOST_DECISIONS)
                        .ok_or_else(|| format!("must be 0 to {MOST_DECISIONS}")),
                    _ => Err(WRONG_TYPE.to_owned()),
                })?,
            },
            kubeconfig: read.text("kubeconfig").map(PathBuf::from),
            master: read.text("master"),
            burst: read.checked("kube-api-burst", |value| match value {
                Value::Int(0) => Ok(CLIENT_GO_BURST),
                Value::Int(burst) => u32::try_from(*burst).map_err(|_| "must be at least 0".to_owned()),
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            takeover: read.checked("takeover", |value| match value {
                Value::Text(word) => word.parse(),
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            election: Election::read(&read, &mut warnings)?,
            service_account_credentials: read
                .checked("use-service-account-credentials", |value| Ok(*value == Value::Bool(true)))?,
            scale_targets: identity::scale_targets(&read)?,
            serving: serving::serving(&read, &mut warnings)?,
            history_checkpoint: election::history_checkpoint(&read)?,
            logging: logging(&read)?,
            warnings,
        })
    }
}

fn logging(read: &Reader<'_>) -> Result<LogOptions, FlagError> {
    Ok(LogOptions {
        format: read.checked("logging-format", |value| match value {
            Value::Text(format) if format == "text" => Ok(LogFormat::Text),
            Value::Text(format) if format == "json" => Ok(LogFormat::Json),
            _ => Err("must be text or json".to_owned()),
        })?,
        verbosity: read.checked("v", |value| match value {
            Value::Int(level) => Ok(u32::try_from(*level).unwrap_or(u32::MAX)),
            _ => Err(WRONG_TYPE.to_owned()),
        })?,
    })
}

fn refuse_arguments(raw: &Raw) -> Result<(), FlagError> {
    // Empty variables in scripts leave empty arguments, which kube-controller-manager accepts too.
    if raw.arguments.iter().all(String::is_empty) {
        Ok(())
    } else {
        Err(FlagError::Arguments(raw.arguments.clone()))
    }
}

/// Returns one warning per reason for the given flags without effect. Each warning lists its flags sorted by
/// name.
///
/// A flag that is set to its default causes no warning, unless Kubernetes has removed the flag.
fn ignored_flags(raw: &Raw, table: &Table) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for flag in raw.names().filter_map(|name| table.named(name)) {
        let Purpose::Ignored { reason } = flag.purpose else {
            continue;
        };
        let removed = kcm::REMOVED_FLAGS.iter().any(|removed| removed.name == flag.name);
        if removed || raw.value(flag.name) != flag.kind.parse_default(flag.default).as_ref() {
            by_reason.entry(reason).or_default().push(format!("--{}", flag.name));
        }
    }
    by_reason
        .into_iter()
        .map(|(reason, flags)| {
            let verb = if flags.len() == 1 { "has" } else { "have" };
            format!("{} {verb} no effect: {reason}", flags.join(", "))
        })
        .collect()
}

#[cfg(test)]
mod tests;
