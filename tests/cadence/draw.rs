//! Draws cases: behaviors, loads, latencies, late starts and events between syncs.

use std::ops::Range;

use crate::many_seeds::Rng;
use crate::model::{Case, Event, RatePolicy, Rules, Step};

/// Sync periods in seconds.
const PERIODS: [u64; 5] = [5, 10, 15, 30, 60];
/// Maximum number of sync periods in a policy's period, and in a window.
pub(crate) const LONGEST: u64 = 8;

/// The case of a seed.
pub(crate) fn draw(seed: u64) -> Case {
    let mut dice = Rng::for_purpose(seed, 1);
    let seconds = if dice.percent(60) { 15 } else { dice.pick(&PERIODS) };
    let behavior = dice.percent(90).then(|| [rules(&mut dice, seconds, 80), rules(&mut dice, seconds, 80)]);
    let downscale = seconds * dice.between(0, LONGEST);
    let (count, replicas) = (dice.between(10, 40), small(&mut dice, 1, 60));
    let steps = steps(&mut dice, count, seconds * 1000);
    Case { period: seconds * 1000, behavior, downscale, max: 200, replicas, steps }
}

fn small(dice: &mut Rng, low: u64, high: u64) -> i32 {
    i32::try_from(dice.between(low, high)).unwrap()
}

/// The length of a policy's period or of a window, in seconds.
fn length(dice: &mut Rng, period: u64, least: u64, exact: u64) -> u64 {
    if dice.percent(exact) {
        period * dice.between(least, LONGEST)
    } else {
        dice.between(least, period * LONGEST)
    }
}

/// Draws the rules of a direction. `exact`: percentage of lengths that are a multiple of the sync period.
fn rules(dice: &mut Rng, period: u64, exact: u64) -> Rules {
    let window = if dice.percent(40) { 0 } else { length(dice, period, 0, exact) };
    let select = dice.pick(&["Max", "Max", "Max", "Min", "Min", "Disabled"]);
    let policies = (0..dice.between(1, 3)).map(|_| {
        let pods = dice.percent(50);
        let value = small(dice, 1, if pods { 20 } else { 100 });
        RatePolicy { pods, value, seconds: length(dice, period, 1, exact) }
    });
    Rules { window, select, policies: policies.collect() }
}

fn steps(dice: &mut Rng, count: u64, period: u64) -> Vec<Step> {
    let longest = dice.pick(&[2, 20, 100, 400]);
    let latest = dice.pick(&[0, 0, 0, 50, 2_000, period * 4 / 5]);
    let (has_events, has_jumps) = (dice.percent(50), dice.percent(50));
    let (mut proposal, hold) = (small(dice, 1, 200), dice.pick(&[1, 2, 4, 10, 30]));
    let step = |_| {
        if dice.below(hold) == 0 {
            proposal = small(dice, 1, 200);
        }
        let late = if dice.percent(30) { dice.between(0, latest) } else { 0 };
        let [read, scale, status] = [0; 3].map(|_| dice.between(1, longest));
        let after = (has_events && dice.percent(8)).then(|| event(dice, period, has_jumps));
        Step { proposal, late, read, scale, status, after }
    };
    (0..count).map(step).collect()
}

/// Draws an event. A case has either jumps or failovers: after the clock was set back, the last rescale in the status is
/// newer than the history, so a new process holds the count, because it cannot know whether the history is complete.
fn event(dice: &mut Rng, period: u64, has_jumps: bool) -> Event {
    if dice.percent(30) {
        Event::Edit(dice.between(1, period))
    } else if has_jumps {
        let by = dice.pick(&[200, 700, 5_000, 7_200_000]) + i64::try_from(dice.below(1_000)).unwrap();
        Event::Jump(if dice.percent(50) { by } else { -by })
    } else {
        Event::Failover(dice.between(1, period * 2))
    }
}

/// One HPA of a whole controller.
#[derive(Debug)]
pub(crate) struct HpaPlan {
    /// The case of each generation of the spec. The steps are not used.
    pub(crate) versions: Vec<Case>,
    /// `syncPeriodSeconds` of the policy.
    pub(crate) own_period: Option<u64>,
    /// The seed of the proposals.
    pub(crate) seed: u64,
    /// Number of syncs with the same proposal.
    pub(crate) hold: u64,
}

impl HpaPlan {
    /// The proposal in the sync with a number.
    pub(crate) fn proposal(&self, sync: usize) -> i32 {
        let number = u64::try_from(sync).unwrap() / self.hold;
        small(&mut Rng::for_purpose(self.seed, 1_000 + number), 1, 200)
    }
}

/// An event in the run of a whole controller.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WholeEvent {
    /// Creates an HPA.
    Create(usize),
    /// Changes the spec of an HPA to its next version.
    Edit(usize, usize),
    /// The wall clock jumps by this many milliseconds.
    Jump(i64),
    /// The controller shuts down. Its successor starts this many milliseconds later, with its histories.
    Failover(u64),
}

/// The run of a whole controller.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// The sync period in milliseconds.
    pub(crate) period: u64,
    /// `--horizontal-pod-autoscaler-downscale-stabilization` in seconds.
    pub(crate) downscale: u64,
    /// The latency of one direction of a request to the API server in milliseconds, and to a metrics API.
    pub(crate) api: Range<u64>,
    pub(crate) metrics: Range<u64>,
    pub(crate) hpas: Vec<HpaPlan>,
    /// The events, by time in milliseconds.
    pub(crate) events: Vec<(u64, WholeEvent)>,
    pub(crate) end: u64,
}

/// Number of HPAs of a run.
pub(crate) const HPAS: usize = 40;
/// Number of sync periods of a run.
const SYNCS: u64 = 20;
/// Minimum time between two groups of edits of an HPA.
const EDIT_PAUSE: u64 = 6_000;

/// The plan of a seed.
pub(crate) fn plan(seed: u64) -> Plan {
    let mut dice = Rng::for_purpose(seed, 2);
    let seconds = if dice.percent(60) { 15 } else { dice.pick(&PERIODS) };
    let (period, end) = (seconds * 1000, seconds * 1000 * SYNCS);
    let downscale = seconds * dice.between(0, LONGEST);
    let [api, metrics] = [[5, 20, 60], [15, 60, 150]].map(|longest| 1..dice.pick(&longest));
    // A history has no rescales of an HPA without `behavior`. After a failover, such a rescale would hold the count.
    let (has_failovers, has_jumps) = (seed % 3 == 1, seed % 3 == 2);
    let (mut hpas, mut events) = (Vec::new(), Vec::new());
    for hpa in 0..HPAS {
        let created = dice.between(100, period);
        events.push((created, WholeEvent::Create(hpa)));
        let mut versions = 1;
        let mut at = created;
        while dice.percent(60) {
            at += EDIT_PAUSE + dice.between(0, end / 4);
            if dice.percent(60) {
                // An edit near a periodic sync.
                at += period - (at - created) % period + dice.below(600);
            }
            for _ in 0..dice.between(1, 2) {
                if at < end {
                    events.push((at, WholeEvent::Edit(hpa, versions)));
                    versions += 1;
                }
                at += dice.pick(&[1, 10, 50, 200, 900, 1_500]) + dice.below(50);
            }
        }
        let replicas = small(&mut dice, 1, 60);
        let cases = (0..versions).map(|version| {
            let has_behavior = has_failovers || dice.percent(85);
            let behavior =
                has_behavior.then(|| [rules(&mut dice, seconds, 80), rules(&mut dice, seconds, 80)]);
            // Each version differs from the previous one.
            let max = 200 + i32::try_from(version).unwrap();
            Case { period, behavior, downscale, max, replicas, steps: Vec::new() }
        });
        let versions = cases.collect();
        let own_period = dice.percent(20).then(|| dice.pick(&[5, 7, 10, 20, 30]));
        hpas.push(HpaPlan { versions, own_period, seed: dice.draw(), hold: dice.pick(&[1, 2, 4, 10]) });
    }
    if has_failovers || has_jumps {
        let mut at = period;
        for _ in 0..dice.between(1, 3) {
            at += dice.between(period, end / 3);
            let by = dice.pick(&[200, 700, 5_000, 7_200_000]) + i64::try_from(dice.below(1_000)).unwrap();
            let jump = WholeEvent::Jump(if dice.percent(50) { by } else { -by });
            let failover = WholeEvent::Failover(dice.between(1, period * 2));
            events.push((at, if has_jumps { jump } else { failover }));
        }
    }
    events.sort_by_key(|(at, _)| *at);
    Plan { seed, period, downscale, api, metrics, hpas, events, end }
}
