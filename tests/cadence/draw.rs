//! Draws cases: behaviors, loads, latencies, late starts and events between syncs.

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
