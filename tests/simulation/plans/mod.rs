//! Exhaustive fault plans, after Sieve (OSDI '22). Every scenario runs once without a fault, which records
//! every call of the controller and every event that it receives. Then it runs once for each call and each
//! event with each fault that can occur there, and the final states are compared.
//!
//! `CONCERTINA_PLANS=NAME` runs the plans of the scenarios with names that start with `NAME`.
//! `CONCERTINA_PLANS=every/N` runs every Nth plan, counted over all scenarios. By default, a build with debug
//! assertions runs every 150th plan, and any other build runs all plans.

mod catalog;
mod compare;
mod fault_injector;
mod runner;
mod scenarios;
mod world;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use self::compare::{Run, differences, stays_paused};
use self::fault_injector::{Fault, SeededBug};
use self::runner::{RunOutcome, play};
use self::world::Scenario;

/// Time after the end of a scenario in which nothing may change.
const SETTLED: Duration = Duration::from_secs(65);
/// Delay of an event that arrives late, but before the next sync.
const LATE: Duration = Duration::from_secs(1);
/// Delay of an event that arrives after the next sync.
const VERY_LATE: Duration = Duration::from_secs(20);
/// The default `N` of `every/N`.
const EVERY: usize = if cfg!(debug_assertions) { 150 } else { 1 };
/// Maximum number of divergences that are printed in full. Only the first line of each other divergence is printed.
const FULL_REPORTS: usize = 12;

/// A scenario with its run without a fault.
struct Baseline {
    scenario: Scenario,
    played: RunOutcome,
}

impl Baseline {
    fn new(scenario: Scenario) -> Self {
        let played = play(&scenario, None, None, Duration::ZERO);
        Self { scenario, played }
    }

    /// Every plan, by kind.
    fn plans(&self) -> Vec<(&'static str, Fault)> {
        let calls = 0..self.played.log.calls.len();
        let events = 0..self.played.log.events.len();
        let deaths = calls.flat_map(|call| {
            [("dies before a call", Fault::DiesBefore(call)), ("dies after a call", Fault::DiesAfter(call))]
        });
        let events = events.flat_map(|event| {
            [
                ("event lost", Fault::Lost(event)),
                ("event 1 s late", Fault::Late(event, LATE)),
                ("event 20 s late", Fault::Late(event, VERY_LATE)),
            ]
        });
        deaths.chain(events).collect()
    }

    /// The description of a fault, with the call or event that it concerns.
    fn location(&self, fault: Fault) -> (&'static str, &fault_injector::Call) {
        let log = &self.played.log;
        match fault {
            Fault::DiesBefore(call) => ("dies before", &log.calls[call]),
            Fault::DiesAfter(call) => ("dies after", &log.calls[call]),
            Fault::Lost(event) => ("loses", &log.events[event]),
            Fault::Late(event, delay) if delay == LATE => ("gets 1 s late", &log.events[event]),
            Fault::Late(event, _) => ("gets 20 s late", &log.events[event]),
        }
    }

    /// Runs a plan and compares its final state.
    fn check(&self, fault: Fault, plant: Option<SeededBug>) -> Verdict {
        let got = play(&self.scenario, Some(fault), plant, Duration::ZERO);
        let (_, location) = self.location(fault);
        let repeated = match fault {
            Fault::DiesBefore(call) | Fault::DiesAfter(call) => got.log.calls.get(call),
            Fault::Lost(event) | Fault::Late(event, _) => got.log.events.get(event),
        };
        if repeated != Some(location) {
            return Verdict::Differs(vec![format!("the run diverged before the fault: {repeated:?}")]);
        }
        let expected = Run { outcome: &self.played.outcome, writes: &self.played.log.writes };
        let run = Run { outcome: &got.outcome, writes: &got.log.writes };
        if stays_paused(&expected, &run, fault, location.at) {
            return Verdict::StaysPaused;
        }
        let mut found = differences(&self.scenario, &expected, &run, fault, location.at);
        found.extend(compare::broken(&got.log.writes));
        if found.is_empty() { Verdict::Same } else { Verdict::Differs(found) }
    }
}

/// The outcome of a plan.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    /// The process died between the write of 0 replicas and the status that attributes it to this controller. As in the
    /// reference, the next process treats the target as paused by a user and does not scale it.
    StaysPaused,
    Differs(Vec<String>),
}

fn bases(prefix: &str) -> Vec<Baseline> {
    let scenarios = catalog::all().into_iter().filter(|scenario| scenario.name.starts_with(prefix));
    scenarios.map(Baseline::new).collect()
}

#[test]
fn every_scenario_settles_and_breaks_no_rule() {
    let bases = bases("");
    assert!(bases.len() >= 20, "{}", bases.len());
    for Baseline { scenario, played } in &bases {
        let longer = play(scenario, None, None, SETTLED);
        assert_eq!(played.outcome, longer.outcome, "{} still changes at its end", scenario.name);
        assert_eq!(compare::broken(&played.log.writes), [""; 0], "{}", scenario.name);
        assert!(!played.log.writes.is_empty(), "{} writes no count", scenario.name);
    }
}

#[test]
fn scenario_ends_the_same_after_a_crash_or_a_lost_or_late_event() {
    let selection = std::env::var("CONCERTINA_PLANS").unwrap_or_default();
    let (prefix, every) = match selection.strip_prefix("every/") {
        Some(every) => ("", every.parse().unwrap()),
        None if selection.is_empty() => ("", EVERY),
        None => (selection.as_str(), 1),
    };
    #[expect(clippy::disallowed_methods, reason = "the duration of the plans is measured in real time")]
    let started = std::time::Instant::now();
    let bases = bases(prefix);
    assert!(!bases.is_empty(), "CONCERTINA_PLANS: the name of no scenario starts with {prefix:?}");
    let mut number = 0_usize;
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut found, mut paused) = (Vec::new(), 0);
    for base in &bases {
        for (kind, fault) in base.plans() {
            number += 1;
            if !number.is_multiple_of(every) {
                continue;
            }
            *tried.entry(kind).or_default() += 1;
            let verdict = base.check(fault, None);
            paused += usize::from(verdict == Verdict::StaysPaused);
            if let Verdict::Differs(differences) = verdict {
                let (effect, location) = base.location(fault);
                let at = location.at.as_secs_f64();
                found.push(format!(
                    "{} ({}) {effect} {:?} ({fault:?}) at {at:.3} s\n    {}",
                    base.scenario.name,
                    base.scenario.about,
                    location.text,
                    differences.join("\n    "),
                ));
            }
        }
    }
    for (number, divergence) in found.iter().enumerate() {
        let length = if number < FULL_REPORTS { usize::MAX } else { 1 };
        println!("{}\n", divergence.lines().take(length).collect::<Vec<_>>().join("\n"));
    }
    let kinds: Vec<String> = tried.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    // The summary is written directly, because the test runner hides the output of passing tests.
    let summary = format!(
        "plans: {} scenarios, {} of {number} plans ({}), {} divergences, {paused} of the reference (stays paused), {:.1} s\n",
        bases.len(),
        tried.values().sum::<usize>(),
        kinds.join(", "),
        found.len(),
        started.elapsed().as_secs_f64(),
    );
    std::io::stdout().write_all(summary.as_bytes()).unwrap();
    assert!(found.is_empty(), "{} divergences, printed above", found.len());
}

#[test]
fn plans_find_the_planted_bugs() {
    for (plant, name) in [
        (SeededBug::RepeatsWrites, "external"),
        (SeededBug::SkipsEvents, "bounds"),
        (SeededBug::DropsStatuses, "bounds"),
    ] {
        let base = Baseline::new(catalog::all().into_iter().find(|scenario| scenario.name == name).unwrap());
        let unharmed = play(&base.scenario, None, Some(plant), Duration::ZERO);
        assert_eq!(unharmed.outcome, base.played.outcome, "{plant:?} has an effect without a fault");
        let found =
            base.plans().into_iter().find(|(_, fault)| base.check(*fault, Some(plant)) != Verdict::Same);
        assert!(found.is_some(), "no plan finds {plant:?}");
    }
}

#[test]
fn target_stays_at_zero_as_upstream_when_the_status_is_lost() {
    let base = Baseline::new(catalog::all().into_iter().find(|scenario| scenario.name == "to-zero").unwrap());
    let plans = base.plans();
    let (mut written, mut paused) = (None, Vec::new());
    for (number, call) in base.played.log.calls.iter().enumerate() {
        if written.is_none() && call.text.contains(" update ") && call.text.contains("/web/scale") {
            written = Some(number);
        }
    }
    let written = written.unwrap();
    for (_, fault) in plans {
        let near =
            matches!(fault, Fault::DiesBefore(call) | Fault::DiesAfter(call) if call.abs_diff(written) < 4);
        if near && base.check(fault, None) == Verdict::StaysPaused {
            paused.push(fault);
        }
    }
    assert_eq!(paused.first(), Some(&Fault::DiesAfter(written)), "{paused:?}");
    assert!(matches!(paused.last(), Some(Fault::DiesBefore(status)) if *status > written), "{paused:?}");
}
