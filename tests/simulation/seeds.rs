//! Runs many seeds on all cores and reports the results. Each seed runs its plan with faults and without. The first
//! violations are each reduced to the actions and faults that cause them (delta debugging).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::generate::generate;
use crate::ideal_history::Handovers;
use crate::many_seeds::{self, each_seed, hash, print};
use crate::plan::{FaultKind, Plan, Selection};
use crate::run::Violation;
use crate::seeded_bugs::SeededBug;
use crate::world::{Outcome, play};

/// Maximum number of failures that are reported in full.
const FULL_REPORTS: u64 = 3;

/// The seeds in `CONCERTINA_SEEDS`, or `default`.
pub(crate) fn chosen(default: Range<u64>) -> Range<u64> {
    many_seeds::chosen("CONCERTINA_SEEDS", default)
}

fn kept(plan: &Plan) -> Selection {
    match std::env::var("CONCERTINA_KEEP") {
        Ok(text) => Selection::parse(&text).unwrap_or_else(|error| panic!("{error}")),
        Err(_) => Selection::all(plan),
    }
}

/// Totals over all seeds, for the summary.
#[derive(Debug, Default)]
struct Tally {
    seeds: u64,
    syncs: u64,
    requests: u64,
    silent_watches: u64,
    handovers: Handovers,
    faults: BTreeMap<FaultKind, u64>,
    pairs: BTreeSet<(FaultKind, FaultKind)>,
    simulated: Duration,
    failures: u64,
    /// Hash over every request with its time and response, independent of the order of the seeds.
    digest: u64,
}

impl Tally {
    fn add(&mut self, plan: &Plan, trial: &SeedResult, digest: u64) {
        self.seeds += 1;
        self.syncs += trial.syncs;
        self.requests += trial.outcome.requests as u64;
        self.silent_watches += trial.outcome.silent_watches;
        self.handovers.all += trial.outcome.handovers.all;
        self.handovers.judged += trial.outcome.handovers.judged;
        self.simulated += trial.simulated;
        self.failures += u64::from(trial.violation.is_some());
        self.digest ^= digest;
        let hits = &trial.outcome.hits;
        for (number, times) in hits {
            *self.faults.entry(plan.faults[*number].kind).or_default() += times;
        }
        for one in hits.keys() {
            for (other, _) in hits.range(one + 1..) {
                let (one, other) = (&plan.faults[*one], &plan.faults[*other]);
                if one.at <= other.until && other.at <= one.until {
                    self.pairs.insert((one.kind.min(other.kind), one.kind.max(other.kind)));
                }
            }
        }
    }

    fn summary(&self, real: Duration) -> String {
        let mut text = format!(
            "{} seeds, {} syncs, {} requests, {:.1} h simulated in {:.1} s ({:.0} times as fast), {} failures, digest {:016x}\n",
            self.seeds,
            self.syncs,
            self.requests,
            self.simulated.as_secs_f64() / 3600.0,
            real.as_secs_f64(),
            self.simulated.as_secs_f64() / real.as_secs_f64(),
            self.failures,
            self.digest,
        );
        let Handovers { all, judged } = self.handovers;
        let _ = writeln!(text, "{all} handovers of a history, {judged} judged by the ideal history");
        let kinds = FaultKind::ALL.len();
        let _ = write!(text, "{} pairs of faults of {}; faults:", self.pairs.len(), kinds * (kinds + 1) / 2);
        for kind in FaultKind::ALL {
            let _ = write!(text, " {} {},", kind.name(), self.faults.get(kind).unwrap_or(&0));
        }
        text.pop();
        let _ = write!(text, "\n{} silent watches replaced", self.silent_watches);
        text
    }
}

/// Hash over the requests of a seed, their times and their responses. If `CONCERTINA_DIGESTS` is set, the hash is
/// printed. With the value `full`, the requests are printed as well.
fn digest(seed: u64, trial: &SeedResult) -> u64 {
    let log = trial.outcome.run.log();
    let words = log.iter().flat_map(|line| line.as_bytes().chunks(8));
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
    let digest = words.fold(seed, |digest, bytes| hash(digest, word(bytes)));
    if std::env::var_os("CONCERTINA_DIGESTS").is_some() {
        print(&format!("seed {seed}: digest {digest:016x}"));
        if std::env::var("CONCERTINA_DIGESTS").is_ok_and(|value| value == "full") {
            for line in &log {
                print(line);
            }
        }
    }
    digest
}

/// Runs all seeds and returns the number of failed seeds.
#[expect(clippy::disallowed_methods, reason = "the duration of the simulation is measured in real time")]
pub(crate) fn run(seeds: &Range<u64>, plant: Option<SeededBug>) -> u64 {
    let started = std::time::Instant::now();
    let tally = Mutex::new(Tally::default());
    each_seed(seeds, |seed| {
        let plan = Arc::new(generate(seed, plant));
        let kept = kept(&plan);
        let trial = attempt(&plan, &kept, plant);
        let digest = digest(plan.seed, &trial);
        let failed = tally.lock().failures;
        tally.lock().add(&plan, &trial, digest);
        if trial.violation.is_some() && failed < FULL_REPORTS {
            let (kept, trial) = shrink(&plan, kept, trial, plant);
            print(&failure_report(&plan, &kept, &trial, plant));
        } else if let Some(violation) = &trial.violation {
            print(&format!("seed {seed}: {}", violation.invariant));
        }
    });
    let tally = tally.into_inner();
    print(&tally.summary(started.elapsed()));
    tally.failures
}

/// The first seed of `seeds` that finds a planted bug.
pub(crate) fn finds(plant: SeededBug, seeds: Range<u64>) -> Option<(u64, &'static str)> {
    seeds.into_iter().find_map(|seed| {
        let plan = Arc::new(generate(seed, Some(plant)));
        let trial = attempt(&plan, &Selection::all(&plan), Some(plant));
        trial.violation.map(|violation| (seed, violation.invariant))
    })
}

/// The first ordinary seed of `seeds` that finds each planted bug.
pub(crate) fn ordinary_finds(seeds: &Range<u64>) -> Vec<(SeededBug, Option<u64>)> {
    let found: Mutex<BTreeMap<usize, u64>> = Mutex::default();
    each_seed(seeds, |seed| {
        let plan = Arc::new(generate(seed, None));
        let mut fault_free = None;
        for (number, plant) in SeededBug::ALL.iter().enumerate() {
            let is_found = |found: &BTreeMap<_, _>| found.get(&number).is_some_and(|at| *at < seed);
            if is_found(&found.lock()) {
                continue;
            }
            let all = Selection::all(&plan);
            let trial = attempt_beside(&mut fault_free, &plan, &all, Some(*plant));
            if let Some(violation) = trial.violation {
                print(&format!("{}: found by seed {seed}: {}", plant.name(), violation.invariant));
                let mut found = found.lock();
                let first = found.entry(number).or_insert(seed);
                *first = seed.min(*first);
            }
        }
    });
    let found = found.into_inner();
    SeededBug::ALL.iter().enumerate().map(|(number, plant)| (*plant, found.get(&number).copied())).collect()
}

/// The report of a failure: the violation and the events that led to it.
fn failure_report(plan: &Plan, kept: &Selection, trial: &SeedResult, plant: Option<SeededBug>) -> String {
    let violation = trial.violation.as_ref().unwrap();
    let seed = plan.seed;
    let mut text = format!(
        "seed {seed}: {} does not hold at {:?}: {}\n",
        violation.invariant, violation.at, violation.text
    );
    let plant = plant.map_or_else(String::new, |plant| format!("CONCERTINA_PLANT={} ", plant.name()));
    let next = seed + 1;
    let _ = writeln!(
        text,
        "CONCERTINA_SEEDS={seed}..{next} CONCERTINA_KEEP={kept} {plant}cargo test --profile quick --test simulation nothing_is_lost"
    );
    let scene = &plan.scene;
    let _ = writeln!(
        text,
        "{} processes, election {}, takeover {:?}, tolerance {}, shares {}",
        scene.processes, scene.election, scene.takeover, scene.tolerance, scene.shares
    );
    for (number, hpa) in scene.hpas.iter().enumerate() {
        let _ = writeln!(text, "h{number}: {hpa:?}");
    }
    for (at, line) in trial.outcome.run.timeline() {
        let _ = writeln!(text, "{:10.3} {line}", at.as_secs_f64());
    }
    text
}

/// The result of a run and of its comparison with the run without faults.
#[derive(Debug)]
pub(crate) struct SeedResult {
    pub(crate) outcome: Outcome,
    pub(crate) violation: Option<Violation>,
    /// Simulated time of all runs.
    pub(crate) simulated: Duration,
    pub(crate) syncs: u64,
}

/// Runs the plan on this thread, in a separate runtime with paused time.
pub(crate) fn run_plan(plan: &Arc<Plan>, kept: &Selection, plant: Option<SeededBug>) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(plan, kept, plant))
}

/// Runs and checks the actions and faults of a plan that `kept` selects.
pub(crate) fn attempt(plan: &Arc<Plan>, kept: &Selection, plant: Option<SeededBug>) -> SeedResult {
    attempt_beside(&mut None, plan, kept, plant)
}

/// Like [`attempt`], but reuses the outcome of the run without faults in `fault_free`, or stores it there.
pub(crate) fn attempt_beside(
    fault_free: &mut Option<Outcome>,
    plan: &Arc<Plan>,
    kept: &Selection,
    plant: Option<SeededBug>,
) -> SeedResult {
    let outcome = run_plan(plan, kept, plant);
    let (mut simulated, mut syncs) = (outcome.simulated, outcome.syncs);
    let mut violation = outcome.violations.first().cloned();
    if violation.is_none() {
        let fault_free = fault_free.get_or_insert_with(|| run_without_faults(plan, kept));
        simulated += fault_free.simulated;
        syncs += fault_free.syncs;
        violation =
            fault_free.violations.first().cloned().or_else(|| compare_final_states(&outcome, fault_free));
    }
    SeedResult { outcome, violation, simulated, syncs }
}

/// Interval between the seeds that run their actions again without faults.
const REPEATED: u64 = 4;

/// Runs the plan without faults. The final state does not depend on the path to it, so most seeds omit the actions, and
/// processes act at once.
fn run_without_faults(plan: &Arc<Plan>, kept: &Selection) -> Outcome {
    if plan.seed.is_multiple_of(REPEATED) {
        return run_plan(plan, &kept.without_faults(), None);
    }
    let plan = Arc::new(plan.without_path());
    run_plan(&plan, &Selection::all(&plan), None)
}

/// Invariant 6: after the last fault, every run ends in the same state as the run without faults.
fn compare_final_states(outcome: &Outcome, fault_free: &Outcome) -> Option<Violation> {
    let (hpa, ended) = outcome.end.iter().find(|(hpa, ended)| fault_free.end.get(hpa) != Some(ended))?;
    let text = format!("h{hpa} ends as {ended}, without faults as {}", fault_free.end[hpa]);
    Some(Violation { at: outcome.simulated, invariant: "ends as without faults", text })
}

/// Maximum number of runs for one failure.
const TRIES: u32 = 150;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Fault(usize),
    Action(usize),
}

/// Removes the actions and faults that a violation of the same invariant does not need.
pub(crate) fn shrink(
    plan: &Arc<Plan>,
    kept: Selection,
    trial: SeedResult,
    plant: Option<SeededBug>,
) -> (Selection, SeedResult) {
    let invariant = trial.violation.as_ref().map(|violation| violation.invariant);
    let (mut kept, mut trial) = (kept, trial);
    let mut parts = parts(&kept);
    let (mut size, mut tries) = (parts.len().div_ceil(2), 0);
    while size > 0 && tries < TRIES {
        let mut left_out = false;
        let mut from = 0;
        while from < parts.len() && tries < TRIES {
            let without: Vec<_> = parts
                .iter()
                .enumerate()
                .filter(|(at, _)| !(from..from + size).contains(at))
                .map(|(_, part)| *part)
                .collect();
            let candidate = from_parts(&without);
            let next = attempt(plan, &candidate, plant);
            tries += 1;
            if next.violation.as_ref().map(|violation| violation.invariant) == invariant {
                (parts, kept, trial, left_out) = (without, candidate, next, true);
            } else {
                from += size;
            }
        }
        if !left_out || size > parts.len() {
            size /= 2;
        }
    }
    (kept, trial)
}

fn parts(kept: &Selection) -> Vec<Part> {
    let faults = kept.faults.iter().map(|number| Part::Fault(*number));
    faults.chain(kept.actions.iter().map(|number| Part::Action(*number))).collect()
}

fn from_parts(parts: &[Part]) -> Selection {
    let mut kept = Selection { actions: BTreeSet::new(), faults: BTreeSet::new() };
    for part in parts {
        match *part {
            Part::Fault(number) => kept.faults.insert(number),
            Part::Action(number) => kept.actions.insert(number),
        };
    }
    kept
}
