//! Several variants at once: each in a thread and a runtime of its own, so that none depends on another.

use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::play::{self, PlayError, Played, Progress};
use super::scenario::Scenario;

/// Plays scenarios; the runs are in their order.
pub(super) fn play(scenarios: &[Scenario]) -> Result<Vec<Played>, PlayError> {
    let line = Line::over(scenarios.len());
    let next = AtomicUsize::new(0);
    let runs: Vec<_> = scenarios.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((scenario, run)) = {
            let place = next.fetch_add(1, Ordering::Relaxed);
            scenarios.get(place).zip(runs.get(place))
        } {
            let played = play::play(scenario, &Part::of(&line));
            *run.lock().unwrap_or_else(PoisonError::into_inner) = Some(played);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(scenarios.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    line.end();
    runs.into_iter().filter_map(|run| run.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// How far all runs are, in one line on a terminal.
#[derive(Debug)]
struct Line {
    is_shown: bool,
    runs: u64,
    /// In hundredths of a percent of one run, of all runs.
    done: AtomicU64,
    shown: AtomicU64,
}

impl Line {
    fn over(runs: usize) -> Self {
        let runs = u64::try_from(runs).unwrap_or(u64::MAX).max(1);
        Self { is_shown: io::stderr().is_terminal(), runs, done: 0.into(), shown: 0.into() }
    }

    fn add(&self, part: u64) {
        let percent = (self.done.fetch_add(part, Ordering::Relaxed) + part) / 100 / self.runs;
        if self.is_shown && self.shown.fetch_max(percent, Ordering::Relaxed) < percent {
            eprint!("\rsimulating: {percent} %");
        }
    }

    fn end(&self) {
        if self.is_shown && self.shown.load(Ordering::Relaxed) > 0 {
            eprint!("\r\x1b[K");
        }
    }
}

/// One run's part of the line.
#[derive(Debug)]
struct Part<'a> {
    line: &'a Line,
    /// How much of it was told.
    told: AtomicU64,
}

impl<'a> Part<'a> {
    fn of(line: &'a Line) -> Self {
        Self { line, told: 0.into() }
    }
}

impl Progress for Part<'_> {
    fn played(&self, elapsed: Duration, duration: Duration) {
        let part = elapsed.as_millis() * 10_000 / duration.as_millis().max(1);
        let part = u64::try_from(part).unwrap_or(10_000);
        let told = self.told.swap(part, Ordering::Relaxed);
        self.line.add(part.saturating_sub(told));
    }
}
