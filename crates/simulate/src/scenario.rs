//! The scenario: the input of a simulation, from a file, manifests or a cluster.
//!
//! The input becomes a [`Node`] tree in which each value has its location. Variants replace values in the tree. The
//! tree is deserialized into the types of `format` and `load_format`, which document the file and define its schema.
//! From these types, [`Scenario::read`] builds the inputs of the embedded cluster and the controller. Each error is a
//! [`Problem`] with file, line and field.

pub(crate) mod document;
mod fields;
mod format;
mod load_format;
mod loads;
pub(super) mod manifests;
mod pipeline;
mod values;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::spec::{MetricSource, ResourceTarget};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

pub(super) use self::document::Node;
use self::document::{Step, printed};
use self::format::ScenarioFile;
pub(super) use self::loads::{LoadPlan, load_of};
pub(super) use self::manifests::{HpaPlan, without_policies};
pub(super) use self::pipeline::source_names;
use self::values::FlagText;
pub(super) use self::workloads::WorkloadPlan;
use super::run::TimelineEvent;
use fake_cluster::load::Pipeline;
use flags::decision::SYNC_PERIOD;
use flags::{Config, FlagError, FlagSet};
use terminal::words;

/// The source of the values that come from a cluster, in error messages.
pub(super) const CLUSTER: &str = "the scenario from the cluster";
/// The default duration of a scenario.
const DURATION: Duration = Duration::from_hours(1);

/// The location of a value: a line of a file, or a source without lines, such as a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The path of the file, or the flag with its value.
    pub(crate) source: Arc<str>,
    /// The line, counted from 1; 0 for a source without lines.
    pub(crate) line: u64,
}

/// Formats the location as the prefix of an error, such as `web.yaml:14`.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.source),
            line => write!(f, "{}:{line}", self.source),
        }
    }
}

/// An error in a scenario, with its file, line and field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    location: Location,
    /// The path of the field. Empty for an error about the whole document.
    field: String,
    message: String,
}

impl Problem {
    pub(crate) fn new(location: Location, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { location, field: field.into(), message: message.into() }
    }
}

impl std::error::Error for Problem {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// A valid scenario: the inputs of one run.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) title: String,
    /// The name of the variant. Empty for the only variant.
    pub(super) variant: String,
    pub(super) seed: u64,
    pub(super) start: Timestamp,
    pub(super) duration: Duration,
    pub(super) flags: Config,
    pub(super) hpas: Vec<HpaPlan>,
    /// ScalingPolicies and ClusterScalingPolicies.
    pub(super) policies: Vec<serde_json::Value>,
    /// The index of each HPA's workload, in the order of the HPAs.
    pub(super) targets: Vec<usize>,
    pub(super) workloads: Vec<WorkloadPlan>,
    /// One plan per workload, in the order of the workloads.
    pub(super) loads: Vec<LoadPlan>,
    pub(super) pipeline: Pipeline,
    /// Each rollout's time and the index of its workload, in order of time.
    pub(super) rollouts: Vec<(Duration, usize)>,
    pub(super) happenings: Vec<TimelineEvent>,
    /// Notes for the reader of a report, by topic.
    pub(super) notes: BTreeMap<String, String>,
}

/// The document that the fields of a scenario come from.
#[derive(Debug, Clone, Copy)]
struct Sources<'a> {
    document: &'a Node,
}

impl Sources<'_> {
    fn location(self, field: &str) -> Location {
        self.document.locate(&document::steps(field))
    }

    fn problem(self, field: &str, message: impl Into<String>) -> Problem {
        Problem::new(self.location(field), field, message)
    }
}

impl Scenario {
    /// Reads a document with inlined manifest files. `source` is the index of this variant's source of metrics.
    pub(super) fn read(document: &Node, variant: &str, source: Option<usize>) -> Result<Self, Problem> {
        let mut file: ScenarioFile = deserialize(document)?;
        let sources = Sources { document };
        let source = source.and_then(|index| Some((index, file.metrics.sources.get(index)?)));
        let source =
            source.map(|(index, source)| pipeline::read_source(source, index, sources)).transpose()?;
        if let Some(period) = source.as_ref().and_then(|source| source.sync_period) {
            file.flags.insert(SYNC_PERIOD.to_owned(), FlagText(words::duration(period)));
        }
        let flags = read_flags(&file.flags, sources)?;
        let hpas = manifests::read_hpas(document)?;
        let policies = manifests::read_policies(document)?;
        let duration = file.duration.map_or(DURATION, |duration| duration.0);
        if duration < flags.controller.sync_period {
            return Err(sources.problem("duration", "must be at least one sync period"));
        }
        let (start, seed) = (file.start.0, file.seed);
        let workloads = workloads::read(file.workloads, &hpas, sources)?;
        let loads = loads::read(&file.load, &workloads, &hpas, start, seed, sources)?;
        let pipeline = pipeline::read(&file.metrics, source.as_ref(), sources)?;
        let mut rollouts = Vec::new();
        for (index, rollout) in file.rollouts.iter().enumerate() {
            let target = loads::named(rollout.workload.as_deref(), &workloads)
                .map_err(|error| sources.problem(&format!("rollouts[{index}]"), error.to_string()))?;
            rollouts.push((rollout.at.0, target));
        }
        rollouts.sort();
        let targets = hpas.iter().filter_map(|hpa| workloads::target(hpa, &workloads)).collect();
        let happenings = pipeline::happenings(&pipeline, &workloads, &rollouts, duration);
        let notes = collect(&flags.warnings, &hpas, &workloads, &loads);
        Ok(Self {
            title: file.title,
            variant: variant.to_owned(),
            seed,
            start,
            duration,
            flags,
            hpas,
            policies,
            targets,
            workloads,
            loads,
            pipeline,
            rollouts,
            happenings,
            notes,
        })
    }
}

/// Reads a scenario file into a document and inlines the manifest files that it names.
pub(super) fn open(name: &str, text: &str) -> Result<Node, Problem> {
    let mut document = Node::read(name, text)?;
    manifests::inline_hpas(&mut document)?;
    manifests::inline_policies(&mut document)?;
    Ok(document)
}

/// Prints a document as a scenario file.
pub(super) fn print(document: &Node) -> String {
    serde_saphyr::to_string(document).unwrap_or_default()
}

/// Returns the JSON schema of scenario files.
pub fn schema() -> String {
    let schema = schemars::schema_for!(ScenarioFile);
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}

/// Resolves the flags of a scenario to the controller's options.
fn read_flags(flags: &BTreeMap<String, FlagText>, sources: Sources<'_>) -> Result<Config, Problem> {
    let all = FlagSet::controller();
    let word = |name: &str, value: &FlagText| format!("--{name}={}", value.0);
    // Each flag is first parsed separately, so that the error of a flag has its line.
    for (name, value) in flags {
        let at = |message: String| sources.problem(&format!("flags.{name}"), message);
        match all.resolve([word(name, value)]) {
            Ok(_) => {}
            Err(FlagError::Unknown { .. }) => {
                let valid: Vec<_> = all.effective().map(|flag| flag.name).collect();
                return Err(at(format!("unknown flag{}", words::suggestion(name, &valid))));
            }
            Err(error) => return Err(at(error.to_string())),
        }
    }
    let words = flags.iter().map(|(name, value)| word(name, value));
    all.resolve(words).map_err(|error| sources.problem("flags", error.to_string()))
}

/// Deserializes a document. An error contains the location and the path of the field.
fn deserialize<T: DeserializeOwned>(node: &Node) -> Result<T, Problem> {
    serde_path_to_error::deserialize(node.json()).map_err(|error| {
        let steps = steps(error.path());
        let message = in_plain_words(&error.inner().to_string());
        Problem::new(node.locate(&steps), printed(&steps), message)
    })
}

fn steps(path: &serde_path_to_error::Path) -> Vec<Step> {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(Step::Index(*index)),
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Enum { variant } => Some(Step::Key(variant.clone())),
        Segment::Unknown => None,
    };
    path.iter().filter_map(step).collect()
}

/// Rewrites an error of serde for users: without Rust type names, and with the nearest valid name instead of all names.
fn in_plain_words(message: &str) -> String {
    let names: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    if let Some((wrong, valid)) = names.split_first() {
        if message.starts_with("unknown field") {
            return format!("unknown field{}", words::suggestion(wrong, valid));
        }
        if message.starts_with("unknown variant") {
            return format!("unknown value {wrong:?}{}", words::suggestion(wrong, valid));
        }
    }
    let number = ["u16", "u32", "u64"].iter().find(|number| message.ends_with(&format!("expected {number}")));
    let message = match number {
        Some(number) => message
            .replace(&format!("expected {number}"), "expected a whole number that is not negative")
            .replace('`', ""),
        None => message.replace('`', "\""),
    };
    message.replace("integer ", "").replace("floating point ", "")
}

/// The maximum number of names in a note.
const LISTED: usize = 5;

/// Returns the notes by topic. `warnings` are those of the flags.
fn collect(
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
            let index = workloads::target(hpa, workloads)?;
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
            words::listed(&Vec::from_iter(assumed), LISTED)
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
            words::listed(&Vec::from_iter(idle), LISTED)
        );
        notes.insert("cpu".to_owned(), text);
    }
    notes
}

/// Returns whether the values of a metric are relative to the requests of the pods.
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
    use crate::scenario::{Node, Scenario};

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
        let scenario = Scenario::read(&Node::read("a.yaml", text).unwrap(), "", None).unwrap();
        let topics: Vec<_> = scenario.notes.keys().map(String::as_str).collect();
        assert_eq!(topics, ["cpu", "flags", "requests"]);
    }
}
