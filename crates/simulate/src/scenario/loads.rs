//! The work of a scenario's workloads, its cost, and the metrics that measure it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use autoscaling::quantity::Quantity;
use autoscaling::spec::MetricSource;
use autoscaling::status::MetricIdentifier;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::document::Node;
use super::load_format::{BusinessDayFile, CurveFile, LoadFile, MeasureFile, MetricFile, ShapedFile};
use super::manifests::{HpaPlan, read_file};
use super::workloads::{WorkloadPlan, target};
use super::{Problem, Sources};
use fake_cluster::load::{
    CpuModel, Curve, Interpolation, Load, Measure, MemoryModel, Metric, OverflowPolicy, Points, Shape, Shown,
    Work,
};
use terminal::words::suggestion;

/// The default capacity of a pod, as a multiple of the metric's target.
const MARGIN: f64 = 1.25;

/// The work of one workload.
#[derive(Debug, Clone)]
pub(crate) struct LoadPlan {
    /// The input of the embedded cluster.
    pub(crate) load: Load,
    /// The unit of the first kind of work, such as `requests/s`. Empty without work.
    pub(crate) unit: String,
}

impl LoadPlan {
    /// Returns whether excess units of the first kind of work wait in a queue.
    pub(crate) fn queues(&self) -> bool {
        self.load.work.first().is_some_and(|work| work.excess == OverflowPolicy::Waits)
    }
}

/// Builds one plan per workload, in the order of the workloads. The plan of a workload without load has no work.
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
    for (index, plan) in plans.iter_mut().enumerate() {
        expose_requested_metrics(plan, files, index, workloads, hpas);
    }
    Ok(plans)
}

/// Builds the load of an HPA's target from a CSV file, in the format of a scenario file. If the first metric is a Pods,
/// Object or External metric, the load is a demand. The capacity of a pod is then 1.25 times the metric's target.
/// Otherwise, the load is cpu.
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

/// The error about a reference to a workload.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkloadError {
    #[error("the scenario has several workloads; set workload to the name of one")]
    Unnamed,
    #[error("unknown workload {name:?}{suggestion}")]
    Unknown { name: String, suggestion: String },
    #[error("several workloads are named {0:?}; use NAMESPACE/NAME")]
    Ambiguous(String),
}

/// Returns the index of the workload named `name`, or of the only workload.
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
    let base = file.cpu.base.map_or_else(|| CpuModel::default().base, |cores| cores.0 * 1_000.0);
    let cpu = CpuModel {
        base,
        start_up: file.cpu.start_up.map_or(base, |cores| cores.0 * 1_000.0),
        limit: workload.sum("cpu", |container| &container.limits).map(|cores| cores * 1_000.0),
    };
    let memory = MemoryModel {
        base: file.memory.base.map_or_else(|| MemoryModel::default().base, |bytes| bytes.0),
        growth: file.memory.growth_per_second.map_or(0.0, |bytes| bytes.0),
    };
    let default = Load::new(&workload.namespace, "", "");
    let load = Load {
        labels: workload.labels.clone(),
        container: workload.containers.first().map(|(name, _)| name.clone()),
        cpu,
        memory,
        seed,
        skew: file.skew.map_or(default.skew, |skew| skew.0.min(0.5)),
        ..default
    };
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
        let field = format!("{field}.metrics[{index}]");
        work = work.with_metric(self::metric(metric, file.queue, &field, context.sources)?);
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

fn metric(file: &MetricFile, queue: bool, field: &str, sources: Sources<'_>) -> Result<Metric, Problem> {
    let measure = measure(file.measures, queue);
    match (&file.object, &file.external) {
        (Some(_), Some(_)) => {
            Err(sources.problem(field, "object and external are both set; use only one of them"))
        }
        (Some(object), None) => {
            Ok(Metric::for_object(&file.name, measure, &object.api_version, &object.kind, &object.name))
        }
        (None, Some(series)) => Ok(external(&file.name, measure, series.labels.clone())),
        (None, None) => Ok(Metric::for_pods(&file.name, measure)),
    }
}

fn external(name: &str, measure: Measure, labels: BTreeMap<String, String>) -> Metric {
    Metric { name: name.to_owned(), measure, shown: Shown::External { labels } }
}

/// Adds the custom and external metrics that the workload's HPAs request and no load exposes. Their values come from
/// the workload's first load without a list of metrics.
fn expose_requested_metrics(
    plan: &mut LoadPlan,
    files: &[LoadFile],
    index: usize,
    workloads: &[WorkloadPlan],
    hpas: &[HpaPlan],
) {
    let is_of_plan = |file: &&LoadFile| named(file.workload.as_deref(), workloads).ok() == Some(index);
    let Some(first) = files.iter().filter(is_of_plan).position(|file| file.metrics.is_none()) else { return };
    let exposed = files.iter().flat_map(|file| file.metrics.iter().flatten());
    let exposed: Vec<&str> = exposed.map(|metric| metric.name.as_str()).collect();
    let hpas = hpas.iter().filter(|hpa| target(hpa, workloads) == Some(index));
    let Some(work) = plan.load.work.get_mut(first) else { return };
    let measure = measure(None, work.excess == OverflowPolicy::Waits);
    for metric in hpas.flat_map(|hpa| &hpa.spec.metrics).filter_map(|source| requested(source, measure)) {
        if !exposed.contains(&metric.name.as_str()) && !work.metrics.contains(&metric) {
            work.metrics.push(metric);
        }
    }
}

/// Returns the custom or external metric that a metric source requests. `None` for any other source.
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
        MetricSource::External { metric, .. } => Some(external(&metric.name, measure, labels(metric))),
        MetricSource::Resource { .. } | MetricSource::ContainerResource { .. } | MetricSource::Invalid(_) => {
            None
        }
    }
}

/// Returns labels that satisfy the `matchLabels` of a metric's selector.
fn labels(metric: &MetricIdentifier) -> BTreeMap<String, String> {
    let selector = serde_json::to_value(metric).unwrap_or_default();
    let labels = selector.pointer("/selector/matchLabels").cloned().unwrap_or_default();
    serde_json::from_value(labels).unwrap_or_default()
}

/// The inputs of a curve other than its fields.
struct LoadContext<'a> {
    sources: Sources<'a>,
    /// The start of the scenario.
    start: Timestamp,
    /// The seed of the load.
    seed: u64,
}

/// Builds the curve of a field. `field` is the path of the field.
fn curve(file: &CurveFile, field: &str, context: &LoadContext<'_>) -> Result<Curve, Problem> {
    let file = match file {
        CurveFile::Constant(amount) => return Ok(Curve::constant(amount.0)),
        CurveFile::Shaped(file) => file,
    };
    let mut curve = shape(file, field, context)?;
    if let Some(scale) = file.scale {
        curve = curve.scaled_by(scale.0);
    }
    if let Some(offset) = file.offset {
        curve = curve.starting_at(offset.0);
    }
    if let Some(period) = file.repeat {
        curve = curve.repeating(period.0);
    }
    if let Some(noise) = file.noise {
        curve = curve.with_noise(noise.0, file.noise_seed.unwrap_or(context.seed));
    }
    Ok(curve)
}

fn shape(file: &ShapedFile, field: &str, context: &LoadContext<'_>) -> Result<Curve, Problem> {
    let wrong = |message: String| context.sources.problem(field, message);
    let mut shapes: Vec<(&str, Curve)> = Vec::new();
    let between = if file.steps { Interpolation::Step } else { Interpolation::Linear };
    if let Some(amount) = file.constant {
        shapes.push(("constant", Curve::constant(amount.0)));
    }
    if let Some(ramp) = &file.ramp {
        let end = ramp.at.0.saturating_add(ramp.over.0);
        let points = [(Duration::ZERO, ramp.from.0), (ramp.at.0, ramp.from.0), (end, ramp.to.0)];
        let points = Points::new(points, Interpolation::Linear).map_err(|error| wrong(error.to_string()))?;
        shapes.push(("ramp", points.into()));
    }
    if let Some(step) = &file.step {
        shapes.push(("step", Shape::Step { before: step.from.0, after: step.to.0, at: step.at.0 }.into()));
    }
    if let Some(sine) = &file.sine {
        let shape = Shape::Sine { mean: sine.mean.0, amplitude: sine.amplitude.0, period: sine.period.0 };
        shapes.push(("sine", shape.into()));
    }
    if let Some(day) = &file.business_day {
        shapes.push(("businessDay", business_day(day, context.start)));
    }
    if let Some(spikes) = &file.spikes {
        let (base, peak) = (spikes.base.0, spikes.peak.0);
        let shape = Shape::Spikes { base, peak, every: spikes.every.0, width: spikes.width.0 };
        shapes.push(("spikes", shape.into()));
    }
    if let Some(spikes) = &file.random_spikes {
        let (base, peak) = (spikes.base.0, spikes.peak.0);
        let (every, width) = (spikes.every.0, spikes.width.0);
        let shape = Shape::RandomSpikes { base, peak, every, width, seed: context.seed };
        shapes.push(("randomSpikes", shape.into()));
    }
    if let Some(points) = &file.points {
        let points = points.iter().map(|point| (point.at.0, point.value.0));
        let points = Points::new(points, between)
            .map_err(|error| context.sources.problem(&format!("{field}.points"), error.to_string()))?;
        shapes.push(("points", points.into()));
    }
    if let Some(name) = &file.csv {
        let field = format!("{field}.csv");
        let (path, text) = read_file(&context.sources.location(&field), &field, Some(name))?;
        let points = Points::from_csv(&text, between).map_err(|error| {
            context.sources.problem(&field, format!("{} cannot be parsed: {error}", path.display()))
        })?;
        shapes.push(("csv", points.into()));
    }
    if let Some(curves) = &file.sum {
        let curves: Vec<_> = curves
            .iter()
            .enumerate()
            .map(|(index, one)| {
                let context =
                    LoadContext { seed: context.seed.wrapping_add((index as u64 + 1) << 32), ..*context };
                curve(one, &format!("{field}.sum[{index}]"), &context)
            })
            .collect::<Result<_, _>>()?;
        shapes.push(("sum", Curve::sum(curves)));
    }
    match shapes.len() {
        0 => Err(wrong(
            "no shape is set; use a quantity or one of constant, ramp, step, sine, businessDay, spikes, \
             randomSpikes, points, csv and sum"
                .to_owned(),
        )),
        1 => Ok(shapes.remove(0).1),
        _ => {
            let names: Vec<_> = shapes.iter().map(|(name, _)| *name).collect();
            Err(wrong(format!("{} are both set; combine shapes with sum", names.join(" and "))))
        }
    }
}

/// Builds the curve of a working day. A day of 24 h follows the time of day and the day of the week. A day of any other
/// length starts with the scenario.
fn business_day(file: &BusinessDayFile, start: Timestamp) -> Curve {
    let hours = Duration::from_hours(24);
    let day = file.day.map_or(hours, |day| day.0);
    let shape = Shape::BusinessDay { night: file.night.0, peak: file.peak.0, day, weekend: file.weekend.0 };
    if day != hours {
        return shape.into();
    }
    let local = start.to_zoned(TimeZone::UTC);
    let days = u32::try_from(local.weekday().to_monday_zero_offset()).unwrap_or(0);
    let midnight = local.start_of_day().ok();
    let since = midnight.and_then(|midnight| Duration::try_from(local.duration_since(&midnight)).ok());
    Curve::from(shape).starting_at(hours * days + since.unwrap_or_default())
}
