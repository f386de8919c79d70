//! The work of a scenario's workloads, its cost, and the metrics that measure it.

mod curve;

use std::collections::BTreeMap;
use std::path::Path;

use autoscaling::quantity::Quantity;
use autoscaling::spec::MetricSource;
use autoscaling::status::MetricIdentifier;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::curve::{LoadContext, curve};
use super::Sources;
use super::document::Node;
use super::format::{LoadFile, MeasureFile, MetricFile};
use super::hpas::HpaPlan;
use super::problem::Problem;
use super::reading::suggestion;
use super::workloads::{WorkloadPlan, target};
use fake_cluster::load::{CpuModel, Load, Measure, MemoryModel, Metric, OverflowPolicy, Shown, Work};

/// The default capacity of a pod, as a multiple of the metric's target.
const MARGIN: f64 = 1.25;

/// The work of one workload.
#[derive(Debug, Clone)]
pub(crate) struct LoadPlan {
    /// The input of the embedded cluster.
    pub(crate) load: Load,
    /// The unit of the first kind of work.
    pub(crate) unit: String,
}

impl LoadPlan {
    /// Whether excess units of the first kind of work wait in a queue.
    pub(crate) fn queues(&self) -> bool {
        self.load.work.first().is_some_and(|work| work.excess == OverflowPolicy::Waits)
    }
}

/// Builds a load for each workload. A workload without load has no work.
pub(super) fn read(
    files: &[LoadFile],
    workloads: &[WorkloadPlan],
    hpas: &[HpaPlan],
    start: Timestamp,
    seed: u64,
    sources: Sources<'_>,
) -> Result<Vec<LoadPlan>, Problem> {
    let mut plans: Vec<_> = workloads.iter().map(|workload| idle(workload, seed)).collect();
    for (index, file) in files.iter().enumerate() {
        let field = format!("load[{index}]");
        let target = named(file.workload.as_deref(), workloads)
            .map_err(|error| sources.problem(&format!("{field}.workload"), error.to_string()))?;
        let context = LoadContext { sources, start, seed: seed.wrapping_add(1).wrapping_add(index as u64) };
        let (Some(workload), Some(plan)) = (workloads.get(target), plans.get_mut(target)) else { continue };
        let work = work(file, &field, workload, &context)?;
        if plan.load.work.is_empty() {
            plan.unit = match (&file.unit, &file.cpu) {
                (_, Some(_)) => "millicores".to_owned(),
                (Some(unit), None) => format!("{unit}/s"),
                (None, None) => "units/s".to_owned(),
            };
        }
        plan.load.work.push(work);
    }
    for (plan, workload) in plans.iter_mut().zip(workloads) {
        expose_requested_metrics(plan, files, workload, workloads, hpas);
    }
    Ok(plans)
}

/// Builds a load from a CSV file for the target of an HPA manifest. If the first metric is a Pods, Object or
/// External metric, the load is a demand, and a pod can do a quarter more than the metric's target. Otherwise
/// the load is cpu.
pub(crate) fn load_of(manifest: &Node, csv: &Path) -> Value {
    let hpa = manifest.json();
    let workload = hpa.pointer("/spec/scaleTargetRef/name").cloned().unwrap_or_default();
    let curve = json!({ "csv": csv });
    let metric = hpa.pointer("/spec/metrics/0").cloned().unwrap_or_default();
    let target = ["pods", "object", "external"].iter().find_map(|source| {
        let target = metric.get(source)?.get("target")?;
        let amount = target.get("averageValue").or_else(|| target.get("value"))?;
        amount.as_str().map(str::to_owned).or_else(|| Some(amount.to_string()))?.parse::<Quantity>().ok()
    });
    match target {
        Some(target) => {
            json!({"workload": workload, "demand": curve, "capacityPerPod": target.as_f64() * MARGIN})
        }
        None => json!({"workload": workload, "cpu": curve}),
    }
}

/// The error of a reference to a workload.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkloadError {
    #[error("the scenario has several workloads; set workload to the name of one")]
    Unnamed,
    #[error("unknown workload {name:?}{suggestion}")]
    Unknown { name: String, suggestion: String },
    #[error("several workloads are named {0:?}; use NAMESPACE/NAME")]
    Ambiguous(String),
}

/// The index of the workload named `name`, or of the only workload.
pub(super) fn named(name: Option<&str>, workloads: &[WorkloadPlan]) -> Result<usize, WorkloadError> {
    let full = |workload: &WorkloadPlan| format!("{}/{}", workload.namespace, workload.name);
    let Some(name) = name else {
        return match workloads {
            [_] => Ok(0),
            _ => Err(WorkloadError::Unnamed),
        };
    };
    let found: Vec<_> = workloads
        .iter()
        .enumerate()
        .filter(|(_, workload)| workload.name == name || full(workload) == name)
        .map(|(index, _)| index)
        .collect();
    match found.as_slice() {
        [index] => Ok(*index),
        [] => {
            let valid: Vec<_> = workloads.iter().map(|workload| workload.name.as_str()).collect();
            Err(WorkloadError::Unknown { name: name.to_owned(), suggestion: suggestion(name, &valid) })
        }
        _ => Err(WorkloadError::Ambiguous(name.to_owned())),
    }
}

fn idle(workload: &WorkloadPlan, seed: u64) -> LoadPlan {
    let file = &workload.file;
    let default = CpuModel::default();
    let base = file.cpu.base.map_or(default.base, |cores| cores.0 * 1_000.0);
    let cpu = CpuModel {
        base,
        start_up: file.cpu.start_up.map_or(base, |cores| cores.0 * 1_000.0),
        limit: workload.sum("cpu", |container| &container.limits).map(|cores| cores * 1_000.0),
    };
    let memory = MemoryModel {
        base: file.memory.base.map_or_else(|| MemoryModel::default().base, |bytes| bytes.0),
        growth: file.memory.growth_per_second.map_or(0.0, |bytes| bytes.0),
    };
    let mut load = Load::new(&workload.namespace, "", "");
    load.labels = workload.labels.clone();
    load.container = workload.containers.first().map(|(name, _)| name.clone());
    load.cpu = cpu;
    load.memory = memory;
    load.seed = seed;
    if let Some(skew) = file.skew {
        load.skew = skew.0.min(0.5);
    }
    LoadPlan { load, unit: String::new() }
}

fn work(
    file: &LoadFile,
    field: &str,
    workload: &WorkloadPlan,
    context: &LoadContext<'_>,
) -> Result<Work, Problem> {
    let wrong = |message: &str| context.sources.problem(field, message);
    let work = match (&file.cpu, &file.demand) {
        (Some(_), Some(_)) => {
            return Err(wrong("cpu and demand are both set; use demand with cpuPerUnit, or only cpu"));
        }
        (None, None) => return Err(wrong("no curve is set; set cpu or demand")),
        (Some(_), None) if file.cpu_per_unit.is_some() => {
            return Err(wrong("cpuPerUnit is only valid with demand, because the unit of cpu is a core"));
        }
        (Some(cpu), None) => {
            let capacity = file.capacity_per_pod.map(|cores| cores.0).or_else(|| {
                workload
                    .sum("cpu", |container| &container.limits)
                    .or_else(|| workload.sum("cpu", |container| &container.requests).map(|cores| 2.0 * cores))
            });
            let capacity =
                capacity.ok_or_else(|| wrong("the cpu capacity of a pod is unknown; set capacityPerPod"))?;
            let curve = curve(cpu, &format!("{field}.cpu"), context)?.scaled_by(1_000.0);
            Work::cpu(curve, capacity * 1_000.0)
        }
        (None, Some(demand)) => {
            let capacity = file
                .capacity_per_pod
                .ok_or_else(|| wrong("demand requires the capacity of a pod; set capacityPerPod"))?;
            Work::requests(curve(demand, &format!("{field}.demand"), context)?, capacity.0)
                .with_cpu(file.cpu_per_unit.map_or(0.0, |cores| cores.0 * 1_000.0))
        }
    };
    let mut work = work.with_memory(file.memory_per_unit.map_or(0.0, |bytes| bytes.0));
    if file.queue {
        work.excess = OverflowPolicy::Waits;
    }
    for (index, metric) in file.metrics.iter().flatten().enumerate() {
        work = work.with_metric(shown(
            metric,
            file.queue,
            &format!("{field}.metrics[{index}]"),
            context.sources,
        )?);
    }
    Ok(work)
}

fn measure(file: Option<MeasureFile>, queue: bool) -> Measure {
    match file {
        None if queue => Measure::Waiting,
        None | Some(MeasureFile::Demand) => Measure::Demand,
        Some(MeasureFile::Served) => Measure::Served,
        Some(MeasureFile::Waiting) => Measure::Waiting,
        Some(MeasureFile::WaitingTime) => Measure::WaitingTime,
        Some(MeasureFile::Saturation) => Measure::Saturation,
    }
}

fn shown(file: &MetricFile, queue: bool, field: &str, sources: Sources<'_>) -> Result<Metric, Problem> {
    let measure = measure(file.measures, queue);
    match (&file.object, &file.external) {
        (Some(_), Some(_)) => {
            Err(sources.problem(field, "object and external are both set; use only one of them"))
        }
        (Some(object), None) => {
            Ok(Metric::for_object(&file.name, measure, &object.api_version, &object.kind, &object.name))
        }
        (None, Some(external)) => {
            let mut metric = Metric::external(&file.name, measure, []);
            metric.shown = Shown::External { labels: external.labels.clone() };
            Ok(metric)
        }
        (None, None) => Ok(Metric::for_pods(&file.name, measure)),
    }
}

/// Adds the custom and external metrics that the workload's HPAs request and no load exposes. The added
/// metrics measure the workload's first work without a list of metrics.
fn expose_requested_metrics(
    plan: &mut LoadPlan,
    files: &[LoadFile],
    workload: &WorkloadPlan,
    workloads: &[WorkloadPlan],
    hpas: &[HpaPlan],
) {
    let index = workloads.iter().position(|other| std::ptr::eq(other, workload));
    let loads: Vec<_> =
        files.iter().filter(|file| named(file.workload.as_deref(), workloads).ok() == index).collect();
    let Some(first) = loads.iter().position(|file| file.metrics.is_none()) else { return };
    let exposed: Vec<&str> = files
        .iter()
        .flat_map(|file| file.metrics.iter().flatten())
        .map(|metric| metric.name.as_str())
        .collect();
    let sources = hpas.iter().filter(|hpa| target(hpa, workloads) == index).flat_map(|hpa| &hpa.spec.metrics);
    let Some(work) = plan.load.work.get_mut(first) else { return };
    let measure = measure(None, work.excess == OverflowPolicy::Waits);
    for source in sources {
        let Some(metric) = requested(source, measure) else { continue };
        if !exposed.contains(&metric.name.as_str()) && !work.metrics.contains(&metric) {
            work.metrics.push(metric);
        }
    }
}

/// The metric that a metric source requests.
fn requested(source: &MetricSource, measure: Measure) -> Option<Metric> {
    match source {
        MetricSource::Pods { metric, .. } => Some(Metric::for_pods(&metric.name, measure)),
        MetricSource::Object { described, metric, .. } => Some(Metric::for_object(
            &metric.name,
            measure,
            &described.api_version,
            &described.kind,
            &described.name,
        )),
        MetricSource::External { metric, .. } => {
            let mut shown = Metric::external(&metric.name, measure, []);
            shown.shown = Shown::External { labels: labels(metric) };
            Some(shown)
        }
        MetricSource::Resource { .. } | MetricSource::ContainerResource { .. } | MetricSource::Invalid(_) => {
            None
        }
    }
}

/// Labels that satisfy the `matchLabels` of a metric's selector.
fn labels(metric: &MetricIdentifier) -> BTreeMap<String, String> {
    let selector = serde_json::to_value(metric).unwrap_or_default();
    let labels = selector.pointer("/selector/matchLabels").cloned().unwrap_or_default();
    serde_json::from_value(labels).unwrap_or_default()
}
