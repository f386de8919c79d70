//! Asks and answers: once, or again and again for whoever watches.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use jiff::tz::TimeZone;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::findings::{Finding, Severity, findings};
use super::from::Records;
use super::read::Reader;
use super::situation::Situation;
use super::{WhyError, output, render};
use crate::cli::WhyOptions;
use crate::cli::answer::Color;
use crate::cli::why::{Interval, Output};
use crate::commands::story::{Style, Zone};
use crate::store::Key;

/// What an answer says of the HPAs that were asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// All is well.
    Healthy,
    /// There is a finding that is at least a warning.
    Findings,
}

impl Found {
    /// The exit code: 0 or 3.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Healthy => 0,
            Self::Findings => 3,
        }
    }
}

/// Who is asked.
#[derive(Debug)]
pub(super) enum Asked {
    Cluster(Box<Reader>),
    Record(Box<Records>),
}

impl Asked {
    async fn round(&mut self) -> Result<Vec<Situation>, WhyError> {
        match self {
            // Boxed: all that one decision needs is large.
            Self::Cluster(reader) => Box::pin(reader.round()).await,
            Self::Record(records) => records.round().await,
        }
    }
}

/// How answers are shown.
#[derive(Debug, Clone)]
pub(super) struct View {
    output: Output,
    /// One HPA was named: its whole story is told. Otherwise each has one line.
    one: bool,
    watch: Option<Interval>,
    colours: bool,
    utc: bool,
}

impl View {
    pub(super) fn new(options: &WhyOptions, terminal: bool) -> Self {
        let wanted = || terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            output: options.output,
            one: options.name.is_some(),
            watch: options.watch,
            colours: match options.color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => wanted(),
            },
            utc: options.utc,
        }
    }

    fn zone(&self) -> Zone {
        if self.utc { Zone::utc() } else { Zone::new(TimeZone::system()) }
    }

    /// Lines are left to the terminal to break: what reads a pipe wants them whole.
    fn style(&self) -> Style {
        Style { colours: self.colours, width: None }
    }
}

/// An HPA with what was found.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) situation: Situation,
    pub(super) findings: Vec<Finding>,
}

impl Told {
    fn new(situation: Situation) -> Self {
        let findings = findings(&situation);
        Self { situation, findings }
    }

    /// The worst finding's severity.
    pub(super) fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }

    /// What must differ for a watch to tell it again: not what only passes, such as times and small moves of a metric.
    fn essence(&self) -> String {
        let explanation = &self.situation.explanation;
        let metrics =
            explanation.metrics.iter().map(|metric| metric.reading().map(|reading| reading.proposal));
        // What is only good to know may come and go with every sample.
        let grave = self.findings.iter().filter(|finding| finding.severity <= Severity::Warning);
        let codes = grave.map(|finding| finding.code);
        format!(
            "{:?}",
            (
                explanation.course,
                (explanation.current, explanation.status_replicas, explanation.min, explanation.max),
                (explanation.desired, explanation.limiting_step(), explanation.winner),
                metrics.collect::<Vec<_>>(),
                &explanation.failure,
                codes.collect::<Vec<_>>(),
            )
        )
    }
}

/// Asks and answers.
pub(super) async fn tell(
    mut asked: Asked,
    view: &View,
    out: &mut dyn Write,
    stop: &CancellationToken,
) -> Result<Found, WhyError> {
    let Some(first) = stop.run_until_cancelled(asked.round()).await else {
        return Err(WhyError::Interrupted);
    };
    let mut told: Vec<Told> = first?.into_iter().map(Told::new).collect();
    let mut seen = Seen::default();
    let changed = seen.changes(&told);
    write(&told, &changed, false, view, out)?;
    let Some(every) = view.watch else { return Ok(found(&told)) };
    let every = match every {
        Interval::Of(every) => every,
        Interval::Period => told.first().map_or(DEFAULT_PERIOD, |told| told.situation.period),
    };
    if view.output == Output::Text {
        let kept = match asked {
            Asked::Cluster(_) => {
                ": what it recommends is remembered here, beside what is known of the time before"
            }
            Asked::Record(_) => "",
        };
        writeln!(out, "\nFollowed from now on, every {every:?}{kept}.")?;
        out.flush()?;
    }
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut trouble = None;
    loop {
        let round = async {
            ticks.tick().await;
            asked.round().await
        };
        match stop.run_until_cancelled(round).await {
            None => return Ok(found(&told)),
            Some(Ok(situations)) => {
                trouble = None;
                told = situations.into_iter().map(Told::new).collect();
                let changed = seen.changes(&told);
                write(&told, &changed, true, view, out)?;
            }
            Some(Err(error @ (WhyError::NotFound { .. } | WhyError::Write(_)))) => return Err(error),
            Some(Err(error)) => {
                // An API server that is away for a while comes back: told once.
                let text = error.to_string();
                if trouble.as_ref() != Some(&text) {
                    eprintln!("{text}; trying again every {every:?}");
                }
                trouble = Some(text);
            }
        }
    }
}

const DEFAULT_PERIOD: Duration = Duration::from_secs(15);

fn found(told: &[Told]) -> Found {
    let bad = told.iter().filter_map(Told::worst).any(|severity| severity <= Severity::Warning);
    if bad { Found::Findings } else { Found::Healthy }
}

/// What was told last of each HPA.
#[derive(Debug, Default)]
struct Seen(BTreeMap<Key, String>);

impl Seen {
    /// Which of the HPAs have changed since they were told, by their places.
    fn changes(&mut self, told: &[Told]) -> Vec<usize> {
        let mut changed = Vec::new();
        for (place, told) in told.iter().enumerate() {
            let essence = told.essence();
            if self.0.get(&told.situation.key) != Some(&essence) {
                self.0.insert(told.situation.key.clone(), essence);
                changed.push(place);
            }
        }
        changed
    }
}

/// Writes an answer; a block of text that follows another begins with an empty line.
fn write(
    told: &[Told],
    changed: &[usize],
    follows: bool,
    view: &View,
    out: &mut dyn Write,
) -> Result<(), WhyError> {
    match view.output {
        Output::Text => {
            let changed: Vec<&Told> = changed.iter().filter_map(|place| told.get(*place)).collect();
            let text = match changed[..] {
                [] if told.is_empty() && !follows => "no HPAs\n".to_owned(),
                [] => return Ok(()),
                [one] if view.one => story(one, view),
                [first, ..] => {
                    let rows = changed.iter().map(|told| (&told.situation, told.findings.as_slice()));
                    let table = render::table(rows, view.style());
                    let at = view.zone().full(first.situation.at);
                    if follows { format!("{at}\n{table}") } else { table }
                }
            };
            let gap = if follows { "\n" } else { "" };
            write!(out, "{gap}{text}")?;
        }
        Output::Json => {
            let document = document(told, view)?;
            let wrong = |error: serde_json::Error| WhyError::Form { form: "JSON", error: error.to_string() };
            let text = if view.watch.is_some() {
                serde_json::to_string(&document).map_err(wrong)?
            } else {
                serde_json::to_string_pretty(&document).map_err(wrong)?
            };
            writeln!(out, "{text}")?;
        }
        Output::Yaml => {
            let text = serde_saphyr::to_string(&document(told, view)?)
                .map_err(|error| WhyError::Form { form: "YAML", error: error.to_string() })?;
            let divider = if view.watch.is_some() { "---\n" } else { "" };
            writeln!(out, "{divider}{}", text.trim_end())?;
        }
    }
    out.flush()?;
    Ok(())
}

/// The whole story of one HPA.
fn story(told: &Told, view: &View) -> String {
    render::whole(&told.situation, &told.findings, view.style(), &view.zone())
}

fn document(told: &[Told], view: &View) -> Result<serde_json::Value, WhyError> {
    let all = told.iter().map(|told| (&told.situation, told.findings.as_slice()));
    let wrong = |error: serde_json::Error| WhyError::Form { form: "JSON", error: error.to_string() };
    output::document(all, view.one).map_err(wrong)
}
