//! Exhaustive fault plans, after Sieve (OSDI '22): every scenario is played once without a fault, which tells every call of
//! the controller and every event that it is sent. Then it is played once for each of these places and each thing that can
//! go wrong there, and the end is compared.
//!
//! `CONCERTINA_PLANS=NAME` plays the plans of the scenarios whose name begins so, `CONCERTINA_PLANS=every/N` every Nth plan,
//! counted over all. A build without optimization tries every 50th unless told otherwise.

mod catalog;
mod compare;
mod plant;
mod play;
mod rates;
mod scenario;
mod way;
mod world;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use self::compare::{Run, differences, stays_paused};
use self::plant::Plant;
use self::play::{Played, play};
use self::scenario::Scenario;
use self::way::Fault;

/// How long after its end a scenario must still be the same.
const SETTLED: Duration = Duration::from_secs(65);
/// Late, but before the next sync.
const LATE: Duration = Duration::from_secs(1);
/// Later than the next sync.
const VERY_LATE: Duration = Duration::from_secs(20);
/// Of so many plans one is tried unless told otherwise.
const EVERY: usize = if cfg!(debug_assertions) { 50 } else { 1 };
/// How many divergences are printed in full; of the others only where they are.
const SHOWN: usize = 12;

/// A scenario as it goes without a fault, and what can go wrong in it.
struct Base {
    scenario: Scenario,
    played: Played,
}

impl Base {
    fn of(scenario: Scenario) -> Self {
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

    /// The place of a fault: when it was reached, and what it is.
    fn place(&self, fault: Fault) -> (&'static str, &way::Call) {
        let log = &self.played.log;
        match fault {
            Fault::DiesBefore(call) => ("dies before", &log.calls[call]),
            Fault::DiesAfter(call) => ("dies after", &log.calls[call]),
            Fault::Lost(event) => ("loses", &log.events[event]),
            Fault::Late(event, delay) if delay == LATE => ("gets 1 s late", &log.events[event]),
            Fault::Late(event, _) => ("gets 20 s late", &log.events[event]),
        }
    }

    /// Plays a plan.
    fn check(&self, fault: Fault, plant: Option<Plant>) -> Verdict {
        let got = play(&self.scenario, Some(fault), plant, Duration::ZERO);
        let (_, place) = self.place(fault);
        let place_again = match fault {
            Fault::DiesBefore(call) | Fault::DiesAfter(call) => got.log.calls.get(call),
            Fault::Lost(event) | Fault::Late(event, _) => got.log.events.get(event),
        };
        if place_again != Some(place) {
            return Verdict::Differs(vec![format!("not the same run: {place_again:?}")]);
        }
        let expected = Run { outcome: &self.played.outcome, writes: &self.played.log.writes };
        let run = Run { outcome: &got.outcome, writes: &got.log.writes };
        if stays_paused(&expected, &run, fault, place.at) {
            return Verdict::StaysPaused;
        }
        let mut found = differences(&self.scenario, &expected, &run, fault, place.at);
        found.extend(rates::broken(&got.log.writes));
        if found.is_empty() { Verdict::Same } else { Verdict::Differs(found) }
    }
}

/// How a plan ended.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    /// The process died between the write of 0 replicas and the status that says that this controller did it. As in the
    /// reference, whoever comes next takes the target for one that somebody has paused, and leaves it.
    StaysPaused,
    Differs(Vec<String>),
}

fn bases(wanted: &str) -> Vec<Base> {
    let scenarios = catalog::all().into_iter().filter(|scenario| scenario.name.starts_with(wanted));
    scenarios.map(Base::of).collect()
}

#[test]
fn every_scenario_comes_to_rest_and_breaks_no_rule() {
    let bases = bases("");
    assert!(bases.len() >= 20, "{}", bases.len());
    for Base { scenario, played } in &bases {
        let longer = play(scenario, None, None, SETTLED);
        assert_eq!(played.outcome, longer.outcome, "{} is not at rest at its end", scenario.name);
        assert_eq!(rates::broken(&played.log.writes), [""; 0], "{}", scenario.name);
        assert!(!played.log.writes.is_empty(), "{} writes no count", scenario.name);
    }
}

#[test]
fn no_death_and_no_event_lost_or_late_changes_where_a_scenario_ends() {
    let asked = std::env::var("CONCERTINA_PLANS").unwrap_or_default();
    let (wanted, every) = match asked.strip_prefix("every/") {
        Some(every) => ("", every.parse().unwrap()),
        None if asked.is_empty() => ("", EVERY),
        None => (asked.as_str(), 1),
    };
    #[expect(clippy::disallowed_methods, reason = "how long the plans take is told in real time")]
    let began = std::time::Instant::now();
    let bases = bases(wanted);
    assert!(!bases.is_empty(), "no scenario begins with {wanted:?}");
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
                let (what, place) = base.place(fault);
                let at = place.at.as_secs_f64();
                found.push(format!(
                    "{} ({}) {what} {:?} ({fault:?}) at {at:.3} s\n    {}",
                    base.scenario.name,
                    base.scenario.about,
                    place.text,
                    differences.join("\n    "),
                ));
            }
        }
    }
    for (number, divergence) in found.iter().enumerate() {
        let length = if number < SHOWN { usize::MAX } else { 1 };
        println!("{}\n", divergence.lines().take(length).collect::<Vec<_>>().join("\n"));
    }
    let kinds: Vec<String> = tried.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    // Past the test runner, which would keep it to itself when all is well.
    let summary = format!(
        "plans: {} scenarios, {} of {number} plans ({}), {} divergences, {paused} of the reference (stays paused), {:.1} s\n",
        bases.len(),
        tried.values().sum::<usize>(),
        kinds.join(", "),
        found.len(),
        began.elapsed().as_secs_f64(),
    );
    std::io::stdout().write_all(summary.as_bytes()).unwrap();
    assert!(found.is_empty(), "{} divergences, told above", found.len());
}

#[test]
fn planted_bugs_are_found() {
    for (plant, name) in
        [(Plant::RepeatsWrites, "external"), (Plant::SkipsEvents, "bounds"), (Plant::DropsStatuses, "bounds")]
    {
        let base = Base::of(catalog::all().into_iter().find(|scenario| scenario.name == name).unwrap());
        let unharmed = play(&base.scenario, None, Some(plant), Duration::ZERO);
        assert_eq!(unharmed.outcome, base.played.outcome, "{plant:?} shows without a fault");
        let found =
            base.plans().into_iter().find(|(_, fault)| base.check(*fault, Some(plant)) != Verdict::Same);
        assert!(found.is_some(), "no plan finds {plant:?}");
    }
}

#[test]
fn a_target_at_zero_stays_there_if_the_status_that_tells_why_was_lost_as_in_the_reference() {
    let base = Base::of(catalog::all().into_iter().find(|scenario| scenario.name == "to-zero").unwrap());
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
