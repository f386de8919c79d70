//! Runs several variants in parallel. Each run has its own runtime, so that no run depends on another.

use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::runner::{self, Progress, RunError, RunOutput};
use super::scenario::Scenario;

/// Runs the scenarios. The results are in the order of the scenarios.
pub(super) fn run_all(scenarios: &[Scenario]) -> Result<Vec<RunOutput>, RunError> {
    let line = ProgressLine::new(scenarios.len());
    let next = AtomicUsize::new(0);
    let runs: Vec<_> = scenarios.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((scenario, run)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            scenarios.get(index).zip(runs.get(index))
        } {
            let output = runner::run_scenario(scenario, &RunProgress::new(&line));
            *run.lock() = Some(output);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(scenarios.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    line.finish();
    runs.into_iter().filter_map(Mutex::into_inner).collect()
}

/// The progress of all runs, as one line on a terminal.
#[derive(Debug)]
struct ProgressLine {
    is_shown: bool,
    runs: u64,
    /// The sum over all runs, in hundredths of a percent of one run.
    done: AtomicU64,
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

/// The progress of one run.
#[derive(Debug)]
struct RunProgress<'a> {
    line: &'a ProgressLine,
    /// The progress already added to the line, in hundredths of a percent.
    reported: AtomicU64,
}

impl<'a> RunProgress<'a> {
    fn new(line: &'a ProgressLine) -> Self {
        Self { line, reported: 0.into() }
    }
}

impl Progress for RunProgress<'_> {
    fn advance(&self, elapsed: Duration, duration: Duration) {
        let part = elapsed.as_millis() * 10_000 / duration.as_millis().max(1);
        let part = u64::try_from(part).unwrap_or(10_000);
        let reported = self.reported.swap(part, Ordering::Relaxed);
        self.line.add(part.saturating_sub(reported));
    }
}
