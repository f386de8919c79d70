//! The additions of a scenario to its reports: notes about its assumptions and about settings without effect, and the
//! events that the scenario causes in the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use autoscaling::spec::{MetricSource, ResourceTarget};

use super::loads::LoadPlan;
use super::manifests::HpaPlan;
use super::workloads::{WorkloadPlan, target};
use crate::simulate::run::TimelineEvent;
use crate::words::listed;
use fake_cluster::MetricsApi;
use fake_cluster::load::{OutageKind, Pipeline};
use fake_cluster::workload::{Failure, Span};

/// The maximum number of names in a note.
const LISTED: usize = 5;

/// Returns the notes by topic. `warnings` are those of the flags.
pub(super) fn collect(
    warnings: &[String],
    hpas: &[HpaPlan],
    workloads: &[WorkloadPlan],
    loads: &[LoadPlan],
) -> BTreeMap<String, String> {
    let mut notes = BTreeMap::new();
    if !warnings.is_empty() {
        notes.insert("flags".to_owned(), warnings.join("\n"));
    }
    let targets = || {
        hpas.iter().filter_map(|hpa| {
            let index = target(hpa, workloads)?;
            Some((hpa, workloads.get(index)?, loads.get(index)?))
        })
    };
    let assumed = targets().filter(|(hpa, workload, _)| {
        workload.file.containers.is_empty() && hpa.spec.metrics.iter().any(is_of_requests)
    });
    let assumed: BTreeSet<_> = assumed.map(|(_, workload, _)| workload.name.as_str()).collect();
    if !assumed.is_empty() {
        let text = format!(
            "requests of 500m cpu and 256Mi memory are assumed for {}; set others in its containers",
            listed(&Vec::from_iter(assumed), LISTED)
        );
        notes.insert("requests".to_owned(), text);
    }
    let costs_nothing = |plan: &LoadPlan| plan.load.work.iter().all(|work| work.cpu_per_unit <= 0.0);
    let idle = targets()
        .filter(|(hpa, _, plan)| hpa.spec.metrics.iter().any(is_cpu) && costs_nothing(plan))
        .map(|(_, workload, _)| workload.name.as_str());
    let idle: BTreeSet<_> = idle.collect();
    if !idle.is_empty() {
        let text = format!(
            "cpu is a metric, but the work of {} uses none; set a load of cpu, or cpuPerUnit",
            listed(&Vec::from_iter(idle), LISTED)
        );
        notes.insert("cpu".to_owned(), text);
    }
    notes
}

/// Whether the values of a metric are relative to the requests of the pods.
fn is_of_requests(metric: &MetricSource) -> bool {
    let (MetricSource::Resource { target, .. } | MetricSource::ContainerResource { target, .. }) = metric
    else {
        return false;
    };
    matches!(target, ResourceTarget::Utilization(_))
}

fn is_cpu(metric: &MetricSource) -> bool {
    let (MetricSource::Resource { resource, .. } | MetricSource::ContainerResource { resource, .. }) = metric
    else {
        return false;
    };
    &**resource == "cpu"
}

/// Returns the outages, failures and rollouts of a scenario, by start.
pub(super) fn happenings(
    pipeline: &Pipeline,
    workloads: &[WorkloadPlan],
    rollouts: &[(Duration, usize)],
    duration: Duration,
) -> Vec<TimelineEvent> {
    let event = |span: &Span, what: String| TimelineEvent {
        from: span.from.min(duration),
        to: span.until.unwrap_or(duration).min(duration),
        what,
    };
    let mut all = Vec::new();
    for outage in &pipeline.outages {
        let api = match outage.api {
            MetricsApi::Resource => "resource metrics API",
            MetricsApi::Custom => "custom metrics API",
            MetricsApi::External => "external metrics API",
        };
        let what = match &outage.kind {
            OutageKind::Error { code, .. } => format!("{api} responds with {code}"),
            OutageKind::Timeout => format!("{api} does not respond"),
            OutageKind::Empty => format!("{api} returns empty lists"),
            OutageKind::Missing { fraction } => format!("{api} lacks {:.0} % of samples", fraction * 100.0),
            OutageKind::Stale => format!("{api} serves stale samples"),
        };
        all.push(event(&outage.during, what));
    }
    for workload in workloads {
        let name = &workload.name;
        for failure in &workload.model.failures {
            let percent = |fraction: &f64| format!("{:.0} %", fraction * 100.0);
            all.push(match failure {
                Failure::CrashLoop { during, fraction, .. } => {
                    event(during, format!("{} of {name}'s pods crash", percent(fraction)))
                }
                Failure::NeverReady { created, fraction } => {
                    event(created, format!("{} of {name}'s new pods never become ready", percent(fraction)))
                }
                Failure::Unready { during, fraction } => {
                    event(during, format!("{} of {name}'s pods are unready", percent(fraction)))
                }
                Failure::SlowPull { created, .. } => {
                    event(created, format!("{name}'s images are pulled slowly"))
                }
                Failure::Unschedulable { created, .. } => {
                    event(created, format!("no free node for {name}'s new pods"))
                }
            });
        }
    }
    for (at, index) in rollouts {
        if let Some(workload) = workloads.get(*index) {
            all.push(TimelineEvent { from: *at, to: *at, what: format!("rollout of {}", workload.name) });
        }
    }
    all.retain(|event| event.from < duration);
    all.sort_by(|one, other| (one.from, &one.what).cmp(&(other.from, &other.what)));
    all
}

#[cfg(test)]
mod tests {
    use crate::process::fake::FAKE;
    use crate::simulate::scenario::{Node, Scenario};

    #[test]
    fn notes_list_assumptions_and_settings_without_effect() {
        let text = "
hpas:
  - metadata: {name: web}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
      maxReplicas: 3
      metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
load: [{demand: 5, capacityPerPod: 10}]
flags: {concurrent-gc-syncs: 3}
";
        let scenario = Scenario::read(&Node::read("a.yaml", text).unwrap(), "", None, FAKE).unwrap();
        let topics: Vec<_> = scenario.notes.keys().map(String::as_str).collect();
        assert_eq!(topics, ["cpu", "flags", "requests"]);
    }
}
