//! What the operator chose, resolved and validated. An error names the flag and what it may be.

mod election;
mod identity;
mod reader;
mod serving;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use autoscaling::quantity::Quantity;
use autoscaling::settings::Settings;

pub use self::election::{Election, HistoryCheckpoint, TakeOver};
pub use self::identity::{GroupResource, ScaleSource, ScaleTargets};
use self::reader::{Reader, WRONG_TYPE};
pub use self::serving::{
    Authentication, Authorization, CERTIFICATE_NAME, CertificateFiles, FrontProxy, FrontProxyHeaders,
    NamedCertificate, OpenPaths, Serving,
};
use super::flags::{FlagError, Purpose, Raw, Table};
use super::gates::{self, Gates};
use super::kcm;
use super::values::Value;
use crate::telemetry::logging::{LogFormat, LogOptions};

/// Everything that the controller can be told. It cannot be invalid.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What changes a decision: tolerance, windows, version, gates.
    pub settings: Settings,
    /// Gate StaleControllerConsistencyHPA: wait for the cache to show our own last status write.
    pub stale_consistency: bool,
    /// `--horizontal-pod-autoscaler-sync-period`, above zero.
    pub sync_period: Duration,
    /// `--concurrent-horizontal-pod-autoscaler-syncs`, at least one.
    pub concurrent_syncs: usize,
    /// `--kubeconfig`, if not empty.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`, if not empty.
    pub master: Option<String>,
    /// `--kube-api-qps`; none is unlimited, otherwise above zero.
    pub qps: Option<f64>,
    /// `--kube-api-burst`, at least one.
    pub burst: u32,
    /// `--status-qps`, above zero; none: as many as the HPAs need.
    pub status_qps: Option<f64>,
    /// `--dry-run`: decide everything, write nothing.
    pub dry_run: bool,
    /// `--takeover`: what to do about another controller that acts on the same HPAs.
    pub takeover: TakeOver,
    /// `--leader-elect*`; none: this is the only replica, as far as it knows.
    pub election: Option<Election>,
    /// `--use-service-account-credentials`: act as a ServiceAccount with tokens that these credentials can ask for.
    pub service_account_credentials: bool,
    /// `--watch-namespaces`; none is all of them.
    pub watch_namespaces: Option<BTreeSet<String>>,
    /// `--scale-targets`: what the role allows to scale; nothing else is refused because of it.
    pub scale_targets: ScaleTargets,
    /// `--scale-source`: where steady syncs get the Scales of targets from.
    pub scale_source: ScaleSource,
    /// `--field-manager`: the owner under which `spec.replicas` is written.
    pub field_manager: String,
    /// `--metrics-timeout` of one request to a metrics API, above zero.
    pub metrics_timeout: Duration,
    /// `--max-metrics-response` of one request to a metrics API, in bytes, at least one.
    pub max_metrics_response: usize,
    /// `--max-concurrent-metric-requests`, at least one.
    pub max_concurrent_metric_requests: usize,
    /// `--max-concurrent-metric-requests-per-api`, at least one.
    pub max_concurrent_metric_requests_per_api: usize,
    /// `--share-metrics` and `--metric-snapshot-age`: how long before a sync asks for metrics the answer that it shares
    /// with others may have been asked for; none: nothing is shared.
    pub metric_sharing: Option<Duration>,
    /// What is served, where, and to whom.
    pub serving: Serving,
    /// `--decisions-per-hpa`: how many decisions of each HPA are recorded; none if 0.
    pub decisions_per_hpa: usize,
    /// `--history-checkpoint`: where histories are kept over a restart of all replicas; none: nowhere.
    pub history_checkpoint: Option<HistoryCheckpoint>,
    /// `--logging-format` and `-v`.
    pub logging: LogOptions,
    /// What the operator should know about flags that were given and have no effect; to be logged once.
    pub warnings: Vec<String>,
}

/// What client-go takes for a rate and a burst of 0.
const CLIENT_GO_QPS: f64 = 5.0;
const CLIENT_GO_BURST: u32 = 10;

/// An HPA's record is read as a whole at each request.
const MOST_DECISIONS: usize = 1000;

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            stale_consistency: true,
            sync_period: Duration::from_secs(15),
            concurrent_syncs: 5,
            kubeconfig: None,
            master: None,
            qps: Some(20.0),
            burst: 30,
            status_qps: None,
            dry_run: false,
            takeover: TakeOver::Wait,
            election: Some(Election::default()),
            service_account_credentials: false,
            watch_namespaces: None,
            scale_targets: ScaleTargets::All,
            scale_source: ScaleSource::Auto,
            field_manager: "kube-controller-manager".to_owned(),
            metrics_timeout: Duration::from_secs(30),
            max_metrics_response: 64 << 20,
            max_concurrent_metric_requests: 512,
            max_concurrent_metric_requests_per_api: 256,
            metric_sharing: Some(Duration::from_secs(5)),
            serving: Serving::default(),
            decisions_per_hpa: 40,
            history_checkpoint: None,
            logging: LogOptions::default(),
            warnings: Vec::new(),
        }
    }
}

impl Config {
    /// Whether reviews that a flag leaves to this kubeconfig are made with the controller's own rights: without one, and
    /// with the controller's own, which a copied command line names three times.
    pub fn reviews_itself(&self, kubeconfig: Option<&Path>) -> bool {
        kubeconfig.is_none_or(|path| self.kubeconfig.as_deref() == Some(path) && self.master.is_none())
    }

    /// Resolves the flags of the controller.
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
            ..Settings::of(version)
        };
        gates.apply(&mut settings);

        let mut warnings = ignored_flags(raw, table);
        if !unknown_gates.is_empty() {
            warnings.push(format!(
                "--feature-gates: {} {} no effect: the HPA controller does not know {}",
                unknown_gates.join(", "),
                if unknown_gates.len() == 1 { "has" } else { "have" },
                if unknown_gates.len() == 1 { "it" } else { "them" },
            ));
        }

        Ok(Self {
            settings,
            stale_consistency: gates.stale_consistency,
            sync_period: read.duration_above_zero("horizontal-pod-autoscaler-sync-period")?,
            concurrent_syncs: read.count("concurrent-horizontal-pod-autoscaler-syncs")?,
            kubeconfig: read.text("kubeconfig").map(PathBuf::from),
            master: read.text("master"),
            qps: read.float("kube-api-qps", |qps| {
                if qps.is_nan() {
                    Err("must be a number")
                } else if qps == 0.0 {
                    Ok(Some(CLIENT_GO_QPS))
                } else {
                    Ok((qps > 0.0 && qps.is_finite()).then_some(qps))
                }
            })?,
            burst: read.checked("kube-api-burst", |value| match value {
                Value::Int(0) => Ok(CLIENT_GO_BURST),
                Value::Int(burst) => u32::try_from(*burst).map_err(|_| "must be at least 0".to_owned()),
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            status_qps: read.float("status-qps", |qps| {
                if qps >= 0.0 && qps.is_finite() {
                    Ok((qps > 0.0).then_some(qps))
                } else {
                    Err("must be a number of at least 0; 0 is as many as the HPAs need")
                }
            })?,
            dry_run: read.checked("dry-run", |value| Ok(*value == Value::Bool(true)))?,
            takeover: read.checked("takeover", |value| match value {
                Value::Text(word) => word.parse(),
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            election: Election::read(&read, &mut warnings)?,
            service_account_credentials: read
                .checked("use-service-account-credentials", |value| Ok(*value == Value::Bool(true)))?,
            watch_namespaces: identity::watch_namespaces(&read)?,
            scale_targets: identity::scale_targets(&read)?,
            scale_source: read.checked("scale-source", |value| match value {
                Value::Text(word) => word.parse(),
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            field_manager: read.checked("field-manager", |value| match value {
                // The rule of the API server.
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
            max_concurrent_metric_requests_per_api: read.count("max-concurrent-metric-requests-per-api")?,
            metric_sharing: {
                let age = read.duration("metric-snapshot-age")?;
                read.checked("share-metrics", |value| Ok((*value == Value::Bool(true)).then_some(age)))?
            },
            serving: Serving::read(&read, &mut warnings)?,
            decisions_per_hpa: read.checked("decisions-per-hpa", |value| match value {
                Value::Int(count) => usize::try_from(*count)
                    .ok()
                    .filter(|count| *count <= MOST_DECISIONS)
                    .ok_or_else(|| format!("must be 0 to {MOST_DECISIONS}")),
                _ => Err(WRONG_TYPE.to_owned()),
            })?,
            history_checkpoint: HistoryCheckpoint::read(&read)?,
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
    // Empty ones come from empty variables in scripts; kube-controller-manager lets them pass too.
    if raw.arguments.iter().all(String::is_empty) {
        Ok(())
    } else {
        Err(FlagError::Arguments(raw.arguments.clone()))
    }
}

/// One warning for each reason why flags that were given have no effect, in the order of the flags' names.
///
/// A flag that is set to its default asks for nothing, so it is not mentioned; but those that Kubernetes has removed are.
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
