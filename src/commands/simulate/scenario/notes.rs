//! What the reader of a report should know about a scenario: what was assumed, and what has no effect.

use std::collections::BTreeMap;

use autoscaling::spec::{MetricSource, ResourceTarget};

use super::hpas::HpaPlan;
use super::loads::LoadPlan;
use super::workloads::{WorkloadPlan, target};
use crate::cli::Config;

/// The notes, by topic.
pub(super) fn of(
    config: &Config,
    hpas: &[HpaPlan],
    workloads: &[WorkloadPlan],
    loads: &[LoadPlan],
) -> BTreeMap<String, String> {
    let mut notes = BTreeMap::new();
    let mut note = |topic: &str, text: String| {
        notes.insert(topic.to_owned(), text);
    };
    if !config.warnings.is_empty() {
        note("flags", config.warnings.join("\n"));
    }
    for hpa in hpas {
        let Some(place) = target(hpa, workloads) else { continue };
        let (Some(workload), Some(plan)) = (workloads.get(place), loads.get(place)) else { continue };
        let name = &workload.name;
        if workload.file.containers.is_empty() && hpa.spec.metrics.iter().any(is_of_requests) {
            let text = format!(
                "{name} is taken to request 500m cpu and 256Mi memory; say what it requests in its containers"
            );
            note(&format!("requests of {}/{name}", workload.namespace), text);
        }
        if hpa.spec.metrics.iter().any(is_cpu) && plan.load.work.iter().all(|work| work.cpu_per_unit <= 0.0) {
            let text = format!(
                "{} is about cpu, but nothing that {name} does costs cpu; give a load of cpu, or cpuPerUnit",
                hpa.name
            );
            note(&format!("cpu of {}/{name}", workload.namespace), text);
        }
    }
    notes
}

/// Whether a metric is measured by what pods request.
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

#[cfg(test)]
mod tests {
    use crate::commands::simulate::scenario::{Node, Scenario};

    #[test]
    fn what_is_assumed_and_what_has_no_effect_is_noted() {
        let text = "
hpas:
  - metadata: {name: web}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
      maxReplicas: 3
      metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
load: [{demand: 5, capacityPerPod: 10}]
flags: {leader-elect-lease-duration: 3s}
";
        let scenario = Scenario::read(&Node::read("a.yaml", text).unwrap(), "").unwrap();
        let topics: Vec<_> = scenario.notes.keys().map(String::as_str).collect();
        assert_eq!(topics, ["cpu of default/web", "flags", "requests of default/web"]);
    }
}
