//! `concertina simulate`: HPAs against a model of their workload, in virtual time, through the whole controller.
//!
//! `scenario` reads what is to be played, `play` plays it, `observe` takes down what the controller decides, `scores` makes
//! of it what people compare. What comes out is a [`run::Comparison`], of which charts, pages and tables are made.

mod observe;
mod play;
pub mod run;
mod scenario;
mod scores;
mod vary;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::SimulateOptions;

use self::play::{PlayError, Progress};
use self::run::{Comparison, Run};
use self::scenario::Scenario;
pub use self::scenario::{Problem, schema};

/// Why there is no simulation. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The scenario cannot be followed.
    #[error("{0}")]
    Scenario(#[from] Problem),
    /// The scenario cannot be played.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

/// Plays the scenarios that the options name, and shows what came of them.
pub fn run(options: &SimulateOptions) -> Result<(), SimulateError> {
    if options.schema {
        return Ok(writeln!(io::stdout(), "{}", schema())?);
    }
    let comparison = simulate(options)?;
    let mut out = io::stdout().lock();
    for run in &comparison.runs {
        print(run, &mut out)?;
    }
    Ok(())
}

/// Plays the scenarios that the options name.
pub fn simulate(options: &SimulateOptions) -> Result<Comparison, SimulateError> {
    let mut comparison = Comparison::default();
    if let Some(path) = &options.scenario {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SimulateError::Read { path: path.clone(), source })?;
        let document = scenario::open(&path.display().to_string(), &text)?;
        let scenario = Scenario::read(&document, "")?;
        comparison.notes.extend(scenario.notes.clone());
        comparison.runs.push(play::play(&scenario, &Line::new())?);
    }
    Ok(comparison)
}

fn print(run: &Run, out: &mut impl Write) -> io::Result<()> {
    for hpa in &run.hpas {
        writeln!(out, "{}/{} scales {}", hpa.namespace, hpa.name, hpa.target)?;
        for decision in &hpa.decisions {
            let at = i64::try_from(decision.at.as_secs()).unwrap_or(i64::MAX);
            writeln!(out, "  {:>6} s  {}", at, decision.sentence)?;
        }
        writeln!(out, "  {:?}", hpa.scores)?;
    }
    Ok(())
}

/// How far the run is, in one line on a terminal.
#[derive(Debug)]
struct Line {
    is_shown: bool,
    percent: std::sync::atomic::AtomicU64,
}

impl Line {
    fn new() -> Self {
        Self { is_shown: io::stderr().is_terminal(), percent: 0.into() }
    }
}

impl Progress for Line {
    fn played(&self, elapsed: Duration, duration: Duration) {
        use std::sync::atomic::Ordering::Relaxed;
        if !self.is_shown {
            return;
        }
        let percent = elapsed.as_secs() * 100 / duration.as_secs().max(1);
        if self.percent.swap(percent, Relaxed) != percent {
            let end = if percent >= 100 { "\r\x1b[K" } else { "" };
            eprint!("\rsimulating: {percent} %{end}");
        }
    }
}
