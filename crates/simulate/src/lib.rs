//! `concertina simulate`: runs HPAs with the whole controller against a model of their workload, in virtual time.
//!
//! `scenario` reads a scenario, `variants` derives its variants, and `runner` runs them. `observe` records the
//! controller's decisions, and `run` computes the scores that compare variants. The result is a [`run::Comparison`],
//! the input of charts, pages, tables and exports.

pub mod chart;
pub mod export;
mod figure;
mod from_cluster;
mod observe;
pub mod options;
pub mod page;
pub mod past;
pub mod run;
mod runner;
#[cfg(test)]
mod sample;
mod scenario;
#[cfg(test)]
#[path = "../../../tests/support/schemas.rs"]
mod schemas;
mod scoring;
pub mod setting;
pub mod table;
#[cfg(test)]
mod tests;
mod variants;
pub mod what_if;

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::options::{SimulateOptions, Source as SimulateSource, is_standard};
use crate::setting::Setting;
use fake_cluster::load::{Interpolation, Points};
use terminal::options::Output as SimulateOutput;
use terminal::words;

use self::chart::ChartStyle;
pub use self::from_cluster::FromClusterError;
use self::run::{Comparison, Run, periods};
use self::runner::{Progress, RunError};
pub use self::scenario::document::{Document, line};
use self::scenario::{Node, Scenario, manifests};
pub use self::scenario::{Problem, schema};
use self::variants::MOST_VARIANTS;

/// The source, in error messages, of the scenario values that `--hpa` and `--load` define.
const COMMAND_LINE: &str = "the command line";

/// The reason why `simulate` failed. The exit code is 1.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", called(.path))]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file of `--hpa` has no HPA.
    #[error("{} contains no HorizontalPodAutoscaler", called(.0))]
    NoHpa(PathBuf),
    /// The scenario is invalid.
    #[error("{0}")]
    Scenario(#[from] Problem),
    /// The cluster's objects cannot be read or turned into a scenario.
    #[error(transparent)]
    Cluster(#[from] FromClusterError),
    /// The options and the scenario's metric sources define more variants than the maximum.
    #[error(
        "--sweep and the sources of the scenario define {0} variants, more than the maximum of {MOST_VARIANTS}; remove values, sweeps or sources"
    )]
    TooMany(usize),
    /// The run could not start, or the embedded cluster refused an object.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A result file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Writing to standard output failed.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Runs the scenarios that the options select, and shows the results. With `--schema` or `--print-scenario`, prints the
/// schema or the scenario instead.
///
/// A broken pipe at standard output is not an error.
///
/// # Errors
///
/// Returns a [`SimulateError`] if an input is unreadable or invalid, a run fails, or a result cannot be written.
pub fn run(options: &SimulateOptions) -> Result<(), SimulateError> {
    match run_to_end(options) {
        Err(SimulateError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn run_to_end(options: &SimulateOptions) -> Result<(), SimulateError> {
    if options.source == SimulateSource::Schema {
        return Ok(writeln!(io::stdout(), "{}", schema())?);
    }
    let mut document = document_of(&options.source)?;
    if options.print_scenario {
        // What a run refuses is not printed.
        variants(&document, options)?;
        for setting in &options.set {
            variants::set(&mut document, setting, "--set")?;
        }
        return Ok(write!(io::stdout(), "{}", scenario::print(&document))?);
    }
    let comparison = compare(&document, options)?;
    show(&comparison, options)
}

/// Runs the scenarios that the options select, and returns the results.
///
/// # Errors
///
/// Returns a [`SimulateError`] if an input is unreadable or invalid, or if a run fails.
pub fn simulate(options: &SimulateOptions) -> Result<Comparison, SimulateError> {
    compare(&document_of(&options.source)?, options)
}

/// Reads the document of a scenario from a file, from manifests and their loads, or from a cluster. For `--schema`, the
/// document is empty.
fn document_of(source: &SimulateSource) -> Result<Node, SimulateError> {
    match source {
        SimulateSource::Schema => Ok(Node::from_json(&COMMAND_LINE.into(), &json!({}))),
        SimulateSource::File(path) => file(path),
        SimulateSource::Manifests(pairs) => from_manifests(pairs),
        SimulateSource::Cluster(options, name) => Ok(from_cluster::read(options, name)?),
    }
}

/// Reads a scenario file.
fn file(path: &Path) -> Result<Node, SimulateError> {
    Ok(scenario::open(&called(path), &read(path)?)?)
}

/// Returns the name of an input, for messages.
fn called(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Reads a file, or standard input for `-`.
fn read(path: &Path) -> Result<String, SimulateError> {
    let text =
        if is_standard(path) { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
    text.map_err(|source| SimulateError::Read { path: path.to_owned(), source })
}

/// Builds a scenario from pairs of paths: HPA manifests, each with a CSV file of its load.
fn from_manifests(pairs: &[(PathBuf, PathBuf)]) -> Result<Node, SimulateError> {
    let mut hpas = Vec::new();
    let mut loads = Vec::new();
    let mut files = Vec::new();
    let mut longest = None;
    for (hpa, load) in pairs {
        let found = manifests::read(Path::new(&called(hpa)), &read(hpa)?)?;
        if found.hpas.is_empty() {
            return Err(SimulateError::NoHpa(hpa.clone()));
        }
        loads.extend(found.hpas.iter().map(|manifest| scenario::load_of(manifest, load)));
        hpas.extend(found.hpas.iter().cloned());
        files.push(found);
        // An invalid CSV file is ignored here. The error is reported when the scenario reads the load.
        let length = Points::from_csv(&read(load)?, Interpolation::Linear).map(|points| points.length()).ok();
        longest = longest.max(length);
    }
    let source: Arc<str> = COMMAND_LINE.into();
    let mut document = Node::from_json(&source, &json!({ "load": loads }));
    document.put("hpas", Node::list(&source, hpas));
    for found in files {
        found.describe(&mut document);
    }
    if let Some(longest) = longest.filter(|longest| !longest.is_zero()) {
        let seconds = Value::from(format!("{}s", longest.as_secs().max(1)));
        document.put("duration", Node::from_json(&source, &seconds));
    }
    Ok(document)
}

/// Runs all variants of a document, and the scenarios of `--compare`.
fn compare(document: &Node, options: &SimulateOptions) -> Result<Comparison, SimulateError> {
    let scenarios = variants(document, options)?;
    let mut comparison = Comparison::default();
    for scenario in &scenarios {
        comparison.notes.extend(scenario.notes.clone());
    }
    let (mut left_out, mut merged) = (0, 1);
    let line = ProgressLine::new(scenarios.len());
    let outputs = runner::run_all(&scenarios, || RunProgress { line: &line, reported: 0.into() });
    line.finish();
    for output in outputs? {
        left_out += output.left_out;
        merged = merged.max(output.merged);
        comparison.runs.push(output.run);
    }
    if left_out > 0 {
        let text =
            format!("{left_out} decisions are omitted; use fewer HPAs or a shorter duration to keep all");
        comparison.notes.insert("decisions".to_owned(), text);
    }
    if merged > 1 {
        let text = format!(
            "charts and samples show at most one of {merged} syncs; the scores are those of all syncs. Use fewer HPAs \
             or a shorter duration to show all"
        );
        comparison.notes.insert("samples".to_owned(), text);
    }
    if periods(&comparison).len() > 1 {
        let text = "a score of metrics counts what the syncs of the HPA read; shorter periods see more peaks";
        comparison.notes.insert("periods".to_owned(), text.to_owned());
    }
    Ok(comparison)
}

/// Returns the scenarios to run.
///
/// - Without `--sweep`, the first scenario is unchanged. `--set` adds one variant with all settings.
/// - With `--sweep`, each combination of values is a variant, to which all settings of `--set` apply.
/// - The scenarios of `--compare` come last.
/// - Without `--set`, `--sweep` and `--compare`, a scenario with scaling policies runs with and without its policies.
///   This variation requires that the scenario has at most one source of metrics.
/// - With several sources of metrics, each variant runs once per source.
fn variants(document: &Node, options: &SimulateOptions) -> Result<Vec<Scenario>, SimulateError> {
    let combinations = variants::choices(&options.sweep);
    if combinations.len() > MOST_VARIANTS {
        return Err(SimulateError::TooMany(combinations.len()));
    }
    let called =
        |settings: &[Setting]| settings.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let mut documents = Vec::new();
    let without = scenario::without_policies(document);
    let alone = options.sweep.is_empty()
        && options.set.is_empty()
        && options.compare.is_empty()
        && scenario::source_names(document)?.len() == 1;
    if let Some(without) = without.filter(|_| alone) {
        documents.push(("with policy".to_owned(), document.clone()));
        documents.push(("without policy".to_owned(), without));
    } else if options.sweep.is_empty() {
        let others = !options.set.is_empty() || !options.compare.is_empty();
        let name = match &options.source {
            _ if !others => String::new(),
            SimulateSource::File(path) if !options.compare.is_empty() => stem(path),
            _ => "as it is".to_owned(),
        };
        documents.push((name, document.clone()));
    }
    if !options.sweep.is_empty() || !options.set.is_empty() {
        for choice in combinations {
            let mut varied = document.clone();
            for setting in &options.set {
                variants::set(&mut varied, setting, "--set")?;
            }
            for setting in &choice {
                variants::set(&mut varied, setting, "--sweep")?;
            }
            let named = if choice.is_empty() { called(&options.set) } else { called(&choice) };
            documents.push((named, varied));
        }
    }
    for path in &options.compare {
        documents.push((stem(path), file(path)?));
    }
    let mut variants = Vec::new();
    for (name, document) in documents {
        let sources = scenario::source_names(&document)?;
        let is_only = sources.len() == 1;
        for (index, source) in sources.into_iter().enumerate() {
            // The name of the only source would not distinguish variants.
            let named = source.as_deref().filter(|_| !is_only).into_iter();
            let parts = Some(name.as_str()).filter(|name| !name.is_empty()).into_iter().chain(named);
            let name = parts.collect::<Vec<_>>().join(", ");
            variants.push((name, source.is_some().then_some(index), document.clone()));
        }
    }
    if variants.len() > MOST_VARIANTS {
        return Err(SimulateError::TooMany(variants.len()));
    }
    let read = |(name, source, mut document): (String, Option<usize>, Node)| {
        if let Some(seed) = options.seed {
            document.put("seed", Node::from_json(&"--seed".into(), &seed.into()));
        }
        if let Some(duration) = options.duration {
            let text = words::duration(duration);
            document.put("duration", Node::from_json(&"--duration".into(), &text.into()));
        }
        Ok(Scenario::read(&document, &name, source)?)
    };
    variants.into_iter().map(read).collect()
}

/// The progress of all runs, as one line on a terminal.
#[derive(Debug)]
struct ProgressLine {
    is_shown: bool,
    runs: u64,
    /// The sum of the progress of all runs, in hundredths of a percent of one run.
    done: AtomicU64,
    /// The last printed percentage.
    shown: AtomicU64,
}

impl ProgressLine {
    fn new(runs: usize) -> Self {
        let runs = u64::try_from(runs).unwrap_or(u64::MAX).max(1);
        Self { is_shown: io::stderr().is_terminal(), runs, done: 0.into(), shown: 0.into() }
    }

    fn add(&self, part: u64) {
        let percent = (self.done.fetch_add(part, Ordering::Relaxed) + part) / 100 / self.runs;
        if self.is_shown && self.shown.fetch_max(percent, Ordering::Relaxed) < percent {
            eprint!("\rsimulating: {percent} %");
        }
    }

    fn finish(&self) {
        if self.is_shown && self.shown.load(Ordering::Relaxed) > 0 {
            eprint!("\r\x1b[K");
        }
    }
}

/// The contribution of one run to the progress line.
#[derive(Debug)]
struct RunProgress<'a> {
    line: &'a ProgressLine,
    /// The progress that was already added to `line`, in hundredths of a percent.
    reported: AtomicU64,
}

impl Progress for RunProgress<'_> {
    fn advance(&self, elapsed: Duration, duration: Duration) {
        let part = elapsed.as_millis() * 10_000 / duration.as_millis().max(1);
        let part = u64::try_from(part).unwrap_or(10_000);
        let reported = self.reported.swap(part, Ordering::Relaxed);
        self.line.add(part.saturating_sub(reported));
    }
}

fn stem(path: &Path) -> String {
    if is_standard(path) {
        return called(path);
    }
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn show(comparison: &Comparison, options: &SimulateOptions) -> Result<(), SimulateError> {
    let outputs = &options.outputs;
    let mut is_stdout_taken = false;
    let results = [
        (&outputs.report, page::render as fn(&Comparison) -> String),
        (&outputs.csv, export::csv),
        (&outputs.json, export::json),
    ];
    for (path, text) in results {
        let Some(path) = path else { continue };
        if is_standard(path) {
            is_stdout_taken = true;
            io::stdout().lock().write_all(text(comparison).as_bytes())?;
        } else {
            std::fs::write(path, text(comparison))
                .map_err(|source| SimulateError::Write { path: path.clone(), source })?;
        }
    }
    if is_stdout_taken {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    match options.output {
        SimulateOutput::Text => {}
        SimulateOutput::Json => return Ok(out.write_all(export::json(comparison).as_bytes())?),
        SimulateOutput::Yaml => return Ok(out.write_all(export::yaml(comparison).as_bytes())?),
    }
    if options.decisions {
        for run in &comparison.runs {
            decisions(run, &mut out)?;
        }
    }
    Ok(write!(out, "{}", chart::render(comparison, &ChartStyle::stdout(options.ascii, options.color)))?)
}

/// Prints a heading for each HPA, followed by one line for each recorded decision.
fn decisions(run: &Run, out: &mut impl Write) -> io::Result<()> {
    for hpa in &run.hpas {
        let variant = if run.variant.is_empty() { String::new() } else { format!(", {}", run.variant) };
        writeln!(out, "{}/{} scales {}{variant}", hpa.namespace, hpa.name, hpa.target)?;
        for decision in &hpa.decisions {
            let seconds = decision.at.as_secs();
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            writeln!(out, "  {hours:02}:{minutes:02}:{:02}  {}", seconds % 60, decision.sentence)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Formats a count with its noun: `1 pod`, `2 pods`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}
