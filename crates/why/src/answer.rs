//! Decides and prints the answer: once, or repeatedly with `--watch`.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::findings::{self, Finding, Severity, State, findings};
use super::from::Records;
use super::read::Reader;
use super::situation::Situation;
use super::{WhyError, render};
use crate::options::Interval;
use crate::options::WhyOptions;
use engine::store::Key;
use terminal::ending::FOUND;
use terminal::explain::{Style, Zone};
use terminal::options::{EncodeError, Output, Size, to_yaml};
use terminal::progress::Progress;
use terminal::words::terminal;

/// The result of an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Diagnosis {
    /// No finding is a warning or an error.
    Healthy,
    /// At least one finding is a warning or an error.
    Findings,
}

impl Diagnosis {
    /// Returns the exit code, 0 or 3.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Healthy => 0,
            Self::Findings => FOUND,
        }
    }
}

/// The source of the answer.
#[derive(Debug)]
pub(super) enum Backend {
    Cluster(Box<Reader>),
    Record(Box<Records>),
}

impl Backend {
    /// Returns the message for an empty list.
    fn nothing(&self) -> String {
        let scope = match self {
            Self::Cluster(reader) => reader.scope(),
            Self::Record(records) => records.scope(),
        };
        let selected = if scope.selector.is_some() { " with these labels" } else { "" };
        match &scope.namespace {
            Some(namespace) => format!("No HPAs{selected} found in namespace {namespace}"),
            None => format!("No HPAs{selected} found"),
        }
    }

    async fn round(&mut self) -> Result<Vec<Situation>, WhyError> {
        match self {
            // Boxed, because the future of one decision is large.
            Self::Cluster(reader) => Box::pin(reader.round()).await,
            Self::Record(records) => records.round().await,
        }
    }
}

/// The format of printed answers.
#[derive(Debug, Clone)]
pub(super) struct View {
    output: Output,
    /// Whether a single HPA was requested by name. All its steps are printed, whereas HPAs in a list have one line
    /// each.
    one: bool,
    watch: Option<Interval>,
    /// The states of the HPAs to show. Empty shows all.
    states: Vec<State>,
    style: Style,
    utc: bool,
    /// Whether to print what the explanation assumes and remembers.
    details: bool,
    pub(super) progress: Progress,
}

impl View {
    /// Returns the format for a pipe, which gets whole lines.
    pub(super) fn new(options: &WhyOptions) -> Self {
        Self {
            output: options.output,
            one: options.name.is_some(),
            watch: options.watch,
            states: options.states.clone(),
            style: Style { colours: options.color.applies(false), width: None },
            utc: options.utc,
            details: options.logging.verbosity > 0,
            progress: Progress::default(),
        }
    }

    /// Returns the format for standard output.
    pub(super) fn of_process(options: &WhyOptions, is_terminal: bool) -> Self {
        let width = is_terminal.then(Size::read).flatten().map(|size| size.columns);
        Self {
            style: Style { colours: options.color.applies(is_terminal), width },
            progress: Progress::on_terminal(),
            ..Self::new(options)
        }
    }

    fn zone(&self) -> Zone {
        Zone::local(self.utc)
    }

    fn shows(&self, answer: &Explained) -> bool {
        self.states.is_empty() || self.states.contains(&answer.state())
    }
}

/// A situation with its findings.
#[derive(Debug)]
pub(super) struct Explained {
    pub(super) situation: Situation,
    pub(super) findings: Vec<Finding>,
}

impl Explained {
    fn new(situation: Situation) -> Self {
        let findings = findings(&situation);
        Self { situation, findings }
    }

    fn state(&self) -> State {
        State::of(&self.findings)
    }

    /// Returns the parts of an answer whose changes make `--watch` print the answer again. They do not include times
    /// and metric values.
    fn essence(&self) -> String {
        let explanation = &self.situation.explanation;
        let metrics =
            explanation.metrics.iter().map(|metric| metric.reading().map(|reading| reading.proposal));
        // Findings with the severity Info may change with every sample.
        let severe = self.findings.iter().filter(|finding| finding.severity <= Severity::Warning);
        let codes = severe.map(|finding| finding.code.as_str());
        format!(
            "{:?}",
            (
                explanation.path,
                (explanation.current, explanation.status_replicas, explanation.min, explanation.max),
                (self.situation.decided().count(), explanation.limiting_step(), explanation.winner),
                metrics.collect::<Vec<_>>(),
                &explanation.failure,
                codes.collect::<Vec<_>>(),
            )
        )
    }
}

/// Decides and prints the answer once, or with `--watch` repeatedly until `stop`.
pub(super) async fn answer(
    mut backend: Backend,
    view: &View,
    out: &mut dyn Write,
    stop: &CancellationToken,
) -> Result<Diagnosis, WhyError> {
    let round = Box::pin(view.progress.during("reading HPAs, their pods and metrics", backend.round()));
    let Some(first) = stop.run_until_cancelled(round).await else {
        return Err(WhyError::Interrupted);
    };
    let mut answers: Vec<Explained> = first?.into_iter().map(Explained::new).collect();
    let mut printed = Printed::default();
    let changed = printed.changes(&answers);
    write(&answers, &changed, false, view, out)?;
    if answers.is_empty() && view.output == Output::Text {
        eprintln!("{}", terminal(&backend.nothing()));
    }
    let Some(every) = view.watch else { return Ok(found(&answers, view)) };
    let every = match every {
        Interval::Of(every) => every,
        Interval::Period => answers.first().map_or(DEFAULT_PERIOD, |answer| answer.situation.period),
    };
    if view.output == Output::Text {
        let kept = match backend {
            Backend::Cluster(_) => "; recommendations are kept from now on, in addition to the known history",
            Backend::Record(_) => "",
        };
        writeln!(out, "\nFollowing changes, every {every:?}{kept}.")?;
        out.flush()?;
    }
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut last_error = None;
    loop {
        let round = async {
            ticks.tick().await;
            backend.round().await
        };
        match stop.run_until_cancelled(round).await {
            None => return Ok(found(&answers, view)),
            Some(Ok(situations)) => {
                last_error = None;
                answers = situations.into_iter().map(Explained::new).collect();
                let changed = printed.changes(&answers);
                write(&answers, &changed, true, view, out)?;
            }
            Some(Err(error @ (WhyError::NotFound { .. } | WhyError::Write(_)))) => return Err(error),
            Some(Err(error)) => {
                // The API server may be unavailable for a while, so a repeated error is printed once.
                let text = error.to_string();
                if last_error.as_ref() != Some(&text) {
                    eprintln!("{}; retrying every {every:?}", terminal(&text));
                }
                last_error = Some(text);
            }
        }
    }
}

const DEFAULT_PERIOD: Duration = Duration::from_secs(15);

/// Returns the result of the shown answers.
fn found(answers: &[Explained], view: &View) -> Diagnosis {
    let bad = answers.iter().filter(|answer| view.shows(answer)).any(|answer| answer.state() < State::Ok);
    if bad { Diagnosis::Findings } else { Diagnosis::Healthy }
}

/// The essence of the last printed answer of each HPA.
#[derive(Debug, Default)]
struct Printed(BTreeMap<Key, String>);

impl Printed {
    /// Returns the indices of the answers that have changed since they were printed.
    fn changes(&mut self, answers: &[Explained]) -> Vec<usize> {
        let mut changed = Vec::new();
        for (index, answer) in answers.iter().enumerate() {
            let essence = answer.essence();
            if self.0.get(&answer.situation.key) != Some(&essence) {
                self.0.insert(answer.situation.key.clone(), essence);
                changed.push(index);
            }
        }
        changed
    }
}

/// Writes the changed answers as text, or all answers as a document. `follows` is set for rounds of `--watch` after the
/// first round. The text of such a round starts with an empty line.
fn write(
    answers: &[Explained],
    changed: &[usize],
    follows: bool,
    view: &View,
    out: &mut dyn Write,
) -> Result<(), WhyError> {
    match view.output {
        Output::Text => {
            let changed = changed.iter().filter_map(|index| answers.get(*index));
            let changed: Vec<&Explained> = changed.filter(|answer| view.shows(answer)).collect();
            let summary = render::summary(answers.iter().map(|answer| (answer.state(), view.shows(answer))));
            let text = match changed[..] {
                [] if answers.is_empty() || follows => return Ok(()),
                [] => view.style.line(&summary, 0) + "\n",
                [one] if view.one => {
                    render::whole(&one.situation, &one.findings, view.style, &view.zone(), view.details)
                }
                [first, ..] => {
                    let rows = changed.iter().map(|answer| (&answer.situation, answer.findings.as_slice()));
                    let table = render::table(rows, view.style) + &view.style.line(&summary, 0) + "\n";
                    let at = view.zone().full(first.situation.at);
                    if follows { format!("{at}\n{table}") } else { table }
                }
            };
            let gap = if follows { "\n" } else { "" };
            write!(out, "{gap}{text}")?;
        }
        Output::Json => {
            let document = document(answers, view)?;
            let encode =
                if view.watch.is_some() { serde_json::to_string } else { serde_json::to_string_pretty };
            writeln!(out, "{}", encode(&document).map_err(EncodeError::from)?)?;
        }
        Output::Yaml => {
            let text = to_yaml(&document(answers, view)?)?;
            let divider = if view.watch.is_some() { "---\n" } else { "" };
            writeln!(out, "{divider}{}", text.trim_end())?;
        }
    }
    out.flush()?;
    Ok(())
}

fn document(answers: &[Explained], view: &View) -> Result<serde_json::Value, EncodeError> {
    let all = answers.iter().filter(|answer| view.shows(answer));
    let all = all.map(|answer| (&answer.situation, answer.findings.as_slice()));
    Ok(findings::document(all, view.one)?)
}
