//! The scenario: the input of a simulation, read from a file.
//!
//! A file becomes a [`Node`] tree in which each value has its location. Variants replace values in the tree.
//! The tree is deserialized into the types of `format`, which document the file and define its schema. These
//! types become a [`Scenario`] with the inputs of the embedded cluster and the controller. Each error is a
//! [`Problem`] with file, line and field.

mod curve_format;
pub(super) mod document;
mod either;
mod failure_format;
mod flags;
mod format;
mod hpas;
mod loads;
pub(super) mod manifests;
mod notes;
mod pipeline;
mod policies;
mod problem;
mod reading;
mod sources;
mod timeline;
mod values;
mod workloads;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

pub use self::problem::Problem;
pub(crate) use self::reading::suggestion;

use self::document::Location;
pub(super) use self::document::Node;
use self::format::ScenarioFile;
pub(super) use self::hpas::HpaPlan;
pub(super) use self::loads::{LoadPlan, load_of};
pub(super) use self::policies::without_policies;
pub(super) use self::sources::names as source_names;
use self::values::FlagText;
pub(super) use self::workloads::WorkloadPlan;
use super::run::TimelineEvent;
use crate::options::decision::SYNC_PERIOD;
use crate::process::{Process, ResolvedFlags};
use crate::words;
use fake_cluster::load::Pipeline;

/// The default duration of a scenario.
const DURATION: Duration = Duration::from_hours(1);

/// A scenario that was read and checked.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) title: String,
    /// The settings that distinguish this variant. Empty for the only variant.
    pub(super) variant: String,
    pub(super) seed: u64,
    pub(super) start: Timestamp,
    pub(super) duration: Duration,
    /// The controller's flags.
    pub(super) flags: ResolvedFlags,
    pub(super) hpas: Vec<HpaPlan>,
    /// ScalingPolicies and ClusterScalingPolicies.
    pub(super) policies: Vec<serde_json::Value>,
    /// The index of the workload that each HPA scales.
    pub(super) targets: Vec<usize>,
    pub(super) workloads: Vec<WorkloadPlan>,
    /// One per workload.
    pub(super) loads: Vec<LoadPlan>,
    pub(super) pipeline: Pipeline,
    /// The time and the index of the workload, in order of time.
    pub(super) rollouts: Vec<(Duration, usize)>,
    pub(super) happenings: Vec<TimelineEvent>,
    /// Notes for the reader of a report, by topic.
    pub(super) notes: BTreeMap<String, String>,
}

/// Locates fields of the document.
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
    /// Reads a document with inlined manifest files. `source` is the index of the source of this variant.
    pub(super) fn read(
        document: &Node,
        variant: &str,
        source: Option<usize>,
        process: Process,
    ) -> Result<Self, Problem> {
        let mut file: ScenarioFile = reading::read(document)?;
        let sources = Sources { document };
        let source = source.and_then(|index| Some((index, file.metrics.sources.get(index)?)));
        let source = source.map(|(index, source)| sources::read(source, index, sources)).transpose()?;
        if let Some(period) = source.as_ref().and_then(|source| source.sync_period) {
            file.flags.insert(SYNC_PERIOD.to_owned(), FlagText(words::duration(period)));
        }
        let flags = flags::read(&file.flags, sources, process)?;
        let hpas = hpas::read(document)?;
        let policies = policies::read(document)?;
        let duration = file.duration.map_or(DURATION, |duration| duration.0);
        if duration < flags.options.sync_period {
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
        let happenings = timeline::collect(&pipeline, &workloads, &rollouts, duration);
        let notes = notes::collect(&flags.warnings, &hpas, &workloads, &loads);
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
    hpas::inline_files(&mut document)?;
    policies::inline_files(&mut document)?;
    Ok(document)
}

/// Prints a document as a scenario file.
pub(super) fn print(document: &Node) -> String {
    serde_saphyr::to_string(document).unwrap_or_default()
}

/// The JSON schema of scenario files.
pub fn schema() -> String {
    let schema = schemars::schema_for!(ScenarioFile);
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}
