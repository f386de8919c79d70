//! The options of a controller, which the process resolves from flags.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::settings::Settings;
use sources::Sources;

use clock::SharedClock;
use coexist::handover::charges::Charges;
use coexist::handover::scope::{ControllerName, Scope};

/// The maximum age of a metrics response that several HPAs use. Syncs of one period share most responses, and a value is
/// at most a third of the default period older than with a request per HPA.
const SNAPSHOT_AGE: Duration = Duration::from_secs(5);

/// The options of a controller. The process guarantees the documented bounds.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "flags are set one by one")]
pub struct Options {
    /// Settings that affect decisions: tolerance, windows, emulated version, gates.
    pub settings: Settings,
    /// The feature gate StaleControllerConsistencyHPA: skip syncs until the cache contains this controller's last
    /// status write.
    pub stale_consistency: bool,
    /// `--horizontal-pod-autoscaler-sync-period`, above zero.
    pub sync_period: Duration,
    /// `--concurrent-horizontal-pod-autoscaler-syncs`, at least one.
    pub concurrent_syncs: usize,
    /// `--kube-api-qps`, above zero; `None` means unlimited.
    pub qps: Option<f64>,
    /// `--dry-run`: decide everything, write nothing.
    pub dry_run: bool,
    /// `--scope`: the HPAs to act on.
    pub scope: Scope,
    /// `--controller-name`: the name of this instance in the label of HPAs and namespaces.
    pub controller_name: ControllerName,
    /// `--shadow-others`: decide for HPAs out of scope too, without writing them.
    pub shadow_others: bool,
    /// `--watch-namespaces`; `None` means all namespaces.
    pub watch_namespaces: Option<BTreeSet<String>>,
    /// `--watch-scaling-policies`: apply ScalingPolicies and ClusterScalingPolicies, and not only annotations.
    pub watch_scaling_policies: bool,
    /// Whether targets are watched, so that a sync that does not change the replica count reads no Scale.
    /// `--share-metrics=false` turns this off.
    pub watch_targets: bool,
    /// `--metrics-timeout` per request to a metrics API, above zero.
    pub metrics_timeout: Duration,
    /// `--max-metrics-response` per request to a metrics API, in bytes, at least one.
    pub max_metrics_response: usize,
    /// `--max-concurrent-metric-requests`, at least one.
    pub max_concurrent_metric_requests: usize,
    /// `--max-concurrent-metric-requests-per-api`, at least one.
    pub max_concurrent_metric_requests_per_api: usize,
    /// `--share-metrics`: the maximum age of a metrics response that several HPAs use.
    /// `None` disables sharing.
    pub metric_sharing: Option<Duration>,
    /// `--decision-events`: write an event when the outcome of an HPA's syncs changes.
    pub decision_events: bool,
    /// `--decisions-per-hpa`: the number of decisions recorded per HPA; 0 disables the record.
    pub decisions_per_hpa: usize,
    /// `--metric-sources`: the sources of metrics that policies may name. `None` uses only the metrics APIs.
    pub metric_sources: Option<MetricSources>,
}

/// Metric sources, compared by identity.
#[derive(Debug, Clone)]
pub struct MetricSources(pub Arc<Sources>);

impl PartialEq for MetricSources {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Options {
    /// Creates the registry of the HPAs in scope. `None` if all HPAs are in scope.
    pub(crate) fn charges(&self, clock: &SharedClock) -> Option<Arc<Charges>> {
        let new = || {
            let name = self.controller_name.clone();
            Charges::new(name, self.sync_period, self.shadow_others, Arc::clone(clock))
        };
        (self.scope == Scope::Labelled).then(new)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            stale_consistency: true,
            sync_period: Duration::from_secs(15),
            concurrent_syncs: 5,
            qps: Some(20.0),
            dry_run: false,
            scope: Scope::All,
            controller_name: ControllerName::default(),
            shadow_others: false,
            watch_namespaces: None,
            watch_scaling_policies: false,
            watch_targets: true,
            metrics_timeout: Duration::from_mins(1),
            max_metrics_response: 64 << 20,
            max_concurrent_metric_requests: 512,
            max_concurrent_metric_requests_per_api: 256,
            metric_sharing: Some(SNAPSHOT_AGE),
            decision_events: false,
            decisions_per_hpa: 40,
            metric_sources: None,
        }
    }
}
