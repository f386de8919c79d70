//! Draws a plan from a seed.

use jiff::Timestamp;

use crate::plan::{Action, Event, Fallback, Metric, Mode, NAMES, Pending, Plan, Policy, Schedule};
use crate::rng::Rng;

const MINUTE: i64 = 60_000;
/// Starts of runs with time zones whose clocks change 20 minutes later, and one without a change.
const STARTS: [(&str, &str); 4] = [
    ("2030-03-31T00:40:00Z", "Europe/Berlin"),
    ("2030-10-27T00:40:00Z", "Europe/Berlin"),
    ("2030-03-10T09:40:00Z", "America/Los_Angeles"),
    ("2030-01-01T00:00:00Z", "Asia/Kolkata"),
];

/// The plan of a seed: half an hour with about 30 events.
pub(crate) fn draw(seed: u64) -> Plan {
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
    plan
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
        // A step without a field is reported as invalid.
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
    // Expressions of cron have minutes. Local times that a change of the clock repeats would start a schedule twice.
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
