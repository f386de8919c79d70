//! Random schedules create, edit and delete scaling policies in virtual time, while leaders die. The policies expire
//! and contradict each other. A model of the rules judges every write and every quiet time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, unused_imports, reason = "shared with the tests of the whole loop, which use all of it")]
mod support;

#[path = "policy_seeds/bugs.rs"]
mod bugs;
#[path = "policy_seeds/judge.rs"]
mod judge;
#[path = "simulation/many_seeds.rs"]
#[allow(dead_code, reason = "shared with the simulation, which uses the rest")]
mod many_seeds;
#[path = "policy_seeds/model.rs"]
mod model;
#[path = "policy_seeds/plan.rs"]
mod plan;
#[path = "policy_seeds/world.rs"]
mod world;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::bugs::PlantedBug;
use crate::judge::{Violation, check};
use crate::many_seeds::{Rng, each_seed, print};
use crate::plan::{
    Action, Event, Failure, Fallback, List, Metric, Mode, NAMES, Pending, Plan, Policy, Schedule,
};
use crate::world::Write;

/// A fast allocator, because allocation takes a fifth of the time of a run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of seeds that are tried for each planted bug.
const SEARCHED: u64 = 500;

#[test]
fn every_write_follows_the_policies_of_its_hpa() {
    let failures = run(&chosen());
    assert_eq!(failures, 0, "{failures} seeds failed");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs more seeds than run without optimisation")]
fn every_planted_bug_is_found() {
    let chosen = std::env::var("POLICY_PLANT").ok();
    let bugs = PlantedBug::ALL.iter().filter(|bug| chosen.as_ref().is_none_or(|name| name == bug.name()));
    let missed: Vec<_> = bugs.filter(|bug| first_failure(**bug, SEARCHED).is_none()).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn one_seed_writes_at_equal_times() {
    for seed in 0..if cfg!(debug_assertions) { 2 } else { 20 } {
        let [first, second] = [(), ()].map(|()| play(seed, None).facts);
        assert!(!first.is_empty(), "seed {seed}");
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Seeds that run if `POLICY_SEEDS` is not set.
const SEEDS: Range<u64> = 0..if cfg!(debug_assertions) { 5 } else { 100 };
/// Maximum number of failures that are reported in full.
const FULL_REPORTS: u64 = 2;

/// The result of one seed.
struct Outcome {
    facts: Vec<(i64, Write)>,
    violation: Option<Violation>,
    events: usize,
    judged: u64,
}

/// Totals over all seeds, for the summary.
#[derive(Default)]
struct Tally {
    seeds: u64,
    events: usize,
    writes: usize,
    judged: u64,
    failures: u64,
    digest: u64,
}

/// The seeds in `POLICY_SEEDS`, or the default.
fn chosen() -> Range<u64> {
    many_seeds::chosen("POLICY_SEEDS", SEEDS)
}

/// Runs one seed.
fn play(seed: u64, bug: Option<PlantedBug>) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let plan = draw(seed);
    let facts = runtime.block_on(world::play(&plan, bug));
    let (violation, judged) = check(&plan, &facts);
    Outcome { facts, violation, events: plan.events.len(), judged }
}

/// Runs all seeds and returns the number of failed seeds.
#[expect(clippy::disallowed_methods, reason = "the duration of the simulation is measured in real time")]
fn run(seeds: &Range<u64>) -> u64 {
    let started = std::time::Instant::now();
    let tally = Mutex::new(Tally::default());
    each_seed(seeds, |seed| {
        let outcome = play(seed, None);
        let mut tally = tally.lock();
        tally.add(seed, &outcome);
        if let Some(Violation { invariant, at, text }) = &outcome.violation {
            print(&format!("seed {seed}: {invariant} does not hold at {at} ms: {text}"));
            if tally.failures <= FULL_REPORTS {
                let lines = |text: String, item: String| text + &item + "\n";
                let events =
                    draw(seed).events.iter().map(|event| format!("{event:?}")).fold(String::new(), lines);
                let writes = outcome.facts.iter().map(|fact| format!("{fact:?}")).fold(String::new(), lines);
                print(&format!("{:?}\n{events}{writes}", draw(seed).bounds));
            }
        }
    });
    let Tally { seeds, events, writes, judged, failures, digest } = tally.into_inner();
    let took = started.elapsed().as_secs_f64();
    print(&format!(
        "{seeds} seeds with policies, {events} events, {writes} writes and {judged} quiet times judged in {took:.1} s, \
         {failures} failures, digest {digest:016x}"
    ));
    failures
}

/// The lowest seed below `seeds` that finds a planted bug.
fn first_failure(bug: PlantedBug, seeds: u64) -> Option<u64> {
    many_seeds::first_finding(bug.name(), seeds, |seed| {
        play(seed, Some(bug)).violation.map(|violation| violation.invariant)
    })
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.writes += outcome.facts.len();
        self.judged += outcome.judged;
        self.failures += u64::from(outcome.violation.is_some());
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        for (at, Write { hpa, from, to, .. }) in &outcome.facts {
            (at, hpa, from, to).hash(&mut hasher);
        }
        // XOR makes the digest independent of the order of the seeds.
        self.digest ^= hasher.finish();
    }
}

const MINUTE: i64 = 60_000;
/// Maximum time from the end of failures to a complete list, which a process may attempt once a minute.
const KNOWN: i64 = 90_000;
/// Starts of runs, each with a time zone. The first three time zones change their clocks 20 minutes after the start.
const STARTS: [(&str, &str); 4] = [
    ("2030-03-31T00:40:00Z", "Europe/Berlin"),
    ("2030-10-27T00:40:00Z", "Europe/Berlin"),
    ("2030-03-10T09:40:00Z", "America/Los_Angeles"),
    ("2030-01-01T00:00:00Z", "Asia/Kolkata"),
];

/// The plan of a seed: half an hour with about 40 events after the start.
fn draw(seed: u64) -> Plan {
    let mut rng = Rng::new(seed);
    let (epoch, zone) = rng.pick(&STARTS);
    let epoch: Timestamp = epoch.parse().unwrap();
    let bounds = NAMES.map(|_| (number(&mut rng, 1, 3), number(&mut rng, 8, 14))).to_vec();
    let mut plan = Plan { epoch, bounds, events: Vec::new(), end: 32 * MINUTE };
    for hpa in 0..NAMES.len() {
        for metric in 0..2 {
            plan.events.push((0, Event::Metric { hpa, metric, state: value(&mut rng) }));
        }
        plan.events.push((0, Event::Label { hpa, is_set: rng.percent(50) }));
    }
    let mut at = 0;
    loop {
        at += if rng.percent(40) { number(&mut rng, 100, 5_000) } else { number(&mut rng, 20_000, 120_000) };
        if at > plan.end - 2 * MINUTE {
            break;
        }
        let event = event(&mut rng, &plan, at, zone);
        plan.events.push((at, event));
    }
    if rng.percent(40) {
        unlist(&mut rng, &mut plan);
    }
    plan
}

/// Adds a time in which a list of policies fails, at a start or a failover.
fn unlist(rng: &mut Rng, plan: &mut Plan) {
    let start = number(rng, 4 * MINUTE, 22 * MINUTE);
    let list = rng.pick(&[List::Resources, List::Namespaced, List::Cluster, List::Namespaces]);
    let (failure, seconds) = match rng.below(4) {
        0 => (Failure::Forbidden, number(rng, 30, 150)),
        1 if list != List::Namespaces => (Failure::NotFound, number(rng, 30, 150)),
        2 => (Failure::Slow(u64::try_from(number(rng, 5, 25)).unwrap()), 90),
        _ => (Failure::Unavailable, number(rng, 30, 150)),
    };
    let (is_start, end) = (rng.percent(50), start + seconds * 1000);
    let mut added = vec![
        (start, Event::Unlisted { list, failure, is_start }),
        (end, Event::Listed),
        (end + KNOWN, Event::Known),
    ];
    if !is_start || rng.percent(50) {
        // After this failover, a process leads that has started without the list.
        added.push((start + number(rng, 5_000, 25_000), Event::Death));
    }
    plan.events.extend(added);
    plan.events.sort_by_key(|(at, _)| *at);
}

fn number(rng: &mut Rng, low: i64, high: i64) -> i64 {
    low + i64::try_from(rng.below(u64::try_from(high - low + 1).unwrap())).unwrap()
}

fn value(rng: &mut Rng) -> Metric {
    Metric::Value(number(rng, 0, 170))
}

fn event(rng: &mut Rng, plan: &Plan, at: i64, zone: &'static str) -> Event {
    let hpa = rng.index(NAMES.len());
    let some = |rng: &mut Rng, is_cluster| rng.percent(75).then(|| policy(rng, plan, at, zone, is_cluster));
    match rng.below(100) {
        0..30 => {
            let metric = rng.index(2);
            let state = match rng.below(100) {
                0..70 => value(rng),
                70..88 => Metric::Error,
                _ => Metric::Empty,
            };
            Event::Metric { hpa, metric, state }
        }
        30..34 => Event::Zero { hpa },
        34..42 => Event::PendingPods { hpa, pods: number(rng, 0, 4) },
        42..64 => Event::Annotation { hpa, policy: some(rng, false) },
        64..78 => Event::Namespaced(some(rng, false)),
        78..90 => Event::Cluster(some(rng, true)),
        90..95 => Event::Label { hpa, is_set: rng.percent(50) },
        _ => Event::Death,
    }
}

fn policy(rng: &mut Rng, plan: &Plan, at: i64, zone: &'static str, is_cluster: bool) -> Policy {
    let mut policy = Policy::default();
    if rng.percent(45) {
        let mode = match rng.below(5) {
            0 => Mode::Paused,
            1 => Mode::DryRun,
            2 => Mode::ScaleUpOnly,
            3 => Mode::ScaleDownOnly,
            _ => Mode::Pinned(number(rng, 1, 18)),
        };
        // An end in the past ends the mode at once.
        let until = rng.percent(70).then(|| at + number(rng, -10_000, 180_000));
        policy.mode = Some((mode, until));
    }
    if rng.percent(50) {
        let count = number(rng, 1, 2);
        policy.schedules = Some((0..count).map(|_| schedule(rng, plan, at, zone)).collect());
    }
    if rng.percent(40) {
        let count = number(rng, 1, 2);
        policy.fallback = Some((0..count).map(|_| fallback(rng)).collect());
    }
    policy.lowest = rng.percent(25).then(|| rng.percent(70));
    if rng.percent(25) {
        let up = rng.percent(80).then(|| number(rng, 1, 4));
        // The guard `maxStep` is invalid without a field.
        let down = (up.is_none() || rng.percent(50)).then(|| number(rng, 1, 4));
        policy.step = Some((up, down));
    }
    if rng.percent(30) {
        policy.pending = Some(match rng.below(2) {
            0 => Pending::Pods(number(rng, 0, 3)),
            _ => Pending::Percent(number(rng, 0, 60)),
        });
    }
    policy.zero = rng.percent(30);
    policy.period = rng.percent(50).then(|| number(rng, 2, 20));
    if is_cluster && rng.percent(40) {
        policy.limits = Some((number(rng, 2, 8), number(rng, 6, 16)));
        policy.allowed = rng
            .percent(60)
            .then(|| rng.pick(&[["Paused", "DryRun"], ["ScaleUpOnly", "Pinned"], ["Auto", "ScaleDownOnly"]]));
    }
    policy
}

fn schedule(rng: &mut Rng, plan: &Plan, at: i64, zone: &'static str) -> Schedule {
    let from = at + number(rng, -30_000, 180_000);
    let mut schedule =
        Schedule { from, to: from + number(rng, 10_000, 240_000), floor: None, ceiling: None, zone: None };
    // Cron expressions have a resolution of one minute. Local times that a change of the clock repeats would start a
    // schedule twice, so runs with such times have no recurring schedules.
    let minutes = |at: i64| at.div_euclid(MINUTE) * MINUTE;
    let is_repeated = plan.epoch.to_string().starts_with("2030-10-27");
    if rng.percent(50) && !is_repeated {
        let (from, to) = (minutes(from) + MINUTE, minutes(schedule.to) + 2 * MINUTE);
        schedule = Schedule { from, to, zone: Some(zone), ..schedule };
    }
    if rng.percent(60) {
        schedule.floor = Some(number(rng, 1, 16));
    }
    if schedule.floor.is_none() || rng.percent(25) {
        // A ceiling below the floor of the same schedule is invalid.
        schedule.ceiling = Some(number(rng, 2, 12).max(schedule.floor.unwrap_or(0)));
    }
    schedule
}

fn fallback(rng: &mut Rng) -> Fallback {
    let replicas = number(rng, 1, 12);
    let action = match rng.below(5) {
        0 => Action::Hold,
        1 => Action::Ignore,
        2 => Action::Replicas(replicas),
        3 => Action::AtLeast(replicas),
        _ => Action::AtMost(replicas),
    };
    let metric = rng.percent(50).then(|| rng.index(2));
    Fallback { metric, empty: rng.percent(35), seconds: number(rng, 0, 60), action }
}
