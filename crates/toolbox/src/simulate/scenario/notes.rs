//! Notes for the reader of a report: the assumptions of a scenario, and the settings without effect.

use std::collections::{BTreeMap, BTreeSet};

use autoscaling::spec::{MetricSource, ResourceTarget};

use super::hpas::HpaPlan;
use super::loads::LoadPlan;
use super::workloads::{WorkloadPlan, target};
use crate::words::listed;

/// The maximum number of names in a note.
const LISTED: usize = 5;

/// The notes, by topic.
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

/// Whether a metric depends on the pods' requests.
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
