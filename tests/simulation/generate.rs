//! Plans from seeds.

use std::time::Duration;

use serde_json::{Value, json};

use crate::dice::Dice;
use crate::plan::{
    Act, Action, Class, Fault, FaultKind, HpaPlan, MetricKind, MetricPlan, Plan, Poison, Scene,
};
use crate::plants::Plant;

const SECOND: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(15);

/// The plan of a seed; a planted bug gets the world and the faults under which it can show.
pub(crate) fn generate(seed: u64, plant: Option<Plant>) -> Plan {
    let mut scene = scene(seed);
    let mut favoured: &[_] = &[];
    if let Some(plant) = plant {
        plant.sets(&mut scene);
        favoured = plant.favours();
    }
    // Half of the seeds begin with a pair that was chosen.
    let pair = (plant.is_none() && Dice::apart(seed, 6).percent(50)).then(|| pair(seed));
    if pair.iter().flatten().any(|kind| kind.is_among_replicas()) {
        (scene.processes, scene.election) = (scene.processes.max(2), true);
    }
    let mut dice = Dice::apart(seed, 2);
    let quiet = SECOND * u32::try_from(dice.between(60, 180)).unwrap();
    let actions = actions(&scene, seed, quiet);
    let faults = faults(&scene, seed, quiet, favoured, pair);
    let closing = closing(&scene, seed, quiet);
    let longest = scene.hpas.iter().map(HpaPlan::longest).max().unwrap_or_default().max(scene.downscale);
    let end = quiet + SETTLED + longest + PERIOD * 6;
    let reach = scene.hpas.iter().map(HpaPlan::reach).max().unwrap_or_default() + scene.downscale;
    Plan { seed, scene, actions, faults, closing, quiet, end, still: reach + PERIOD * 2 }
}

/// Nothing but load that is as it should be: so many HPAs with as many pods each, for as long.
pub(crate) fn steady(hpas: usize, pods: u32, end: Duration) -> Plan {
    let replicas = i64::from(pods);
    let metrics = || vec![MetricPlan { kind: MetricKind::Cpu, wanted: u64::from(pods) * 10 }];
    let hpa = || HpaPlan {
        has_pods: true,
        replicas,
        min: None,
        max: replicas * 2,
        metrics: metrics(),
        behavior: None,
    };
    let scene = Scene {
        processes: 1,
        election: true,
        checkpoint: false,
        hpas: (0..hpas).map(|_| hpa()).collect(),
        tolerance: 0.1,
        downscale: SECOND * 60,
        latency: 5,
        shares: true,
    };
    Plan {
        seed: 0,
        scene,
        actions: Vec::new(),
        faults: Vec::new(),
        closing: Vec::new(),
        quiet: Duration::ZERO,
        end,
        still: Duration::ZERO,
    }
}

fn scene(seed: u64) -> Scene {
    let mut dice = Dice::apart(seed, 1);
    let processes = dice.pick(&[1, 1, 2, 2, 2, 3]);
    let crowd = dice.percent(1);
    let count = if crowd { 20 } else { dice.pick(&[1, 1, 2, 2, 3, 4]) };
    Scene {
        processes,
        election: processes > 1 || dice.percent(50),
        checkpoint: dice.percent(30),
        hpas: (0..count).map(|_| hpa(&mut dice, crowd)).collect(),
        tolerance: dice.pick(&[0.1, 0.1, 0.0]),
        downscale: SECOND * dice.pick(&[0, 15, 30, 60]),
        latency: dice.pick(&[0, 5, 20, 200]),
        shares: dice.percent(70),
    }
}

fn hpa(dice: &mut Dice, crowd: bool) -> HpaPlan {
    let has_pods = crowd || dice.percent(35);
    let mut metrics = Vec::new();
    if has_pods && dice.percent(70) {
        let kind = dice.pick(&[MetricKind::Cpu, MetricKind::Cpu, MetricKind::Container]);
        metrics.push(MetricPlan { kind, wanted: wanted(dice) });
    }
    let kinds: &[_] = if has_pods {
        &[MetricKind::Pods, MetricKind::Object, MetricKind::External]
    } else {
        &[MetricKind::Object, MetricKind::External]
    };
    let more = dice.pick(&[0, 1, 1, 2]);
    for _ in 0..if metrics.is_empty() { more.max(1) } else { more } {
        metrics.push(MetricPlan { kind: dice.pick(kinds), wanted: wanted(dice) });
    }
    let max = i64::try_from(dice.between(4, 12)).unwrap();
    HpaPlan {
        has_pods,
        replicas: i64::try_from(dice.between(1, 8)).unwrap(),
        min: dice.pick(&[None, Some(1), Some(2), Some(3)]),
        max,
        metrics,
        behavior: dice.percent(65).then(|| behavior(dice)),
    }
}

fn wanted(dice: &mut Dice) -> u64 {
    dice.pick(&[0, 5, 18, 28, 38, 48, 58, 78, 103, 200, 5000])
}

fn behavior(dice: &mut Dice) -> Value {
    let mut rules = |slow: bool| {
        let mut rules = json!({});
        if dice.percent(60) {
            rules["stabilizationWindowSeconds"] = dice.pick(&[0, 0, 15, 30, 45, 60]).into();
        }
        if dice.percent(60) {
            let count = dice.pick(&[1, 1, 2]);
            let policies: Vec<_> = (0..count)
                .map(|_| {
                    let kind = dice.pick(&["Pods", "Pods", "Percent"]);
                    let value =
                        if kind == "Pods" { dice.between(1, 4) } else { dice.pick(&[10, 50, 100, 200]) };
                    json!({"type": kind, "value": value, "periodSeconds": dice.pick(&[15, 30, 45, 60])})
                })
                .collect();
            rules["policies"] = policies.into();
            let select: &[_] = if slow { &["Max", "Min", "Max", "Disabled"] } else { &["Max", "Min"] };
            if dice.percent(50) {
                rules["selectPolicy"] = dice.pick(select).into();
            }
        }
        if dice.percent(10) {
            rules["tolerance"] = dice.pick(&["0", "0.05", "0.2"]).into();
        }
        rules
    };
    let (up, down) = (rules(false), rules(true));
    json!({"scaleUp": up, "scaleDown": down})
}

fn time(dice: &mut Dice, from: Duration, until: Duration) -> Duration {
    let (from, until) = (from.as_millis() as u64, until.as_millis() as u64);
    Duration::from_millis(dice.between(from, until.max(from)))
}

fn actions(scene: &Scene, seed: u64, quiet: Duration) -> Vec<Act> {
    let mut dice = Dice::apart(seed, 3);
    let count = dice.between(2, 10 + scene.hpas.len() as u64);
    let mut actions = Vec::new();
    for _ in 0..count {
        let at = time(&mut dice, SECOND * 5, quiet.saturating_sub(SECOND));
        let hpa = dice.index(scene.hpas.len());
        let plan = &scene.hpas[hpa];
        let metric = dice.index(plan.metrics.len());
        let replicas = i64::try_from(dice.between(0, 12)).unwrap();
        let what = match dice.below(100) {
            0..50 => Action::Load { metric, wanted: wanted(&mut dice) },
            50..56 => Action::Odd { metric, text: dice.pick(ODD) },
            56..70 => Action::Edit { spec: edit(&mut dice) },
            70..74 => Action::Restore,
            74..80 => Action::Poison(dice.pick(POISONS)),
            80..88 => Action::Manual { replicas },
            88..92 => Action::DeleteTarget,
            92..95 => Action::CreateTarget { replicas },
            95..98 => Action::DeleteHpa,
            _ => Action::CreateHpa,
        };
        actions.push(Act { at, hpa, what });
    }
    actions.sort_by_key(|act| act.at);
    actions
}

const ODD: &[&str] =
    &["9223372036854775808", "1e30", "-5", "7Ei", "0", "1e-9", "9223372036854775807", "214748364800"];

const POISONS: &[Poison] = &[
    Poison::InvalidSelector,
    Poison::MinAboveMax,
    Poison::NegativeMax,
    Poison::ManyMetrics,
    Poison::OddQuantity("9223372036854775808"),
    Poison::OddQuantity("1e30"),
    Poison::OddQuantity("-1"),
    Poison::OddQuantity("0"),
    Poison::OddQuantity("4Ei"),
    Poison::NoSource,
    Poison::UnknownType,
    Poison::OddTarget,
];

fn edit(dice: &mut Dice) -> Value {
    match dice.below(6) {
        0 => json!({"minReplicas": dice.between(0, 6)}),
        1 => json!({"maxReplicas": dice.between(1, 14)}),
        2 | 3 => json!({"behavior": behavior(dice)}),
        4 => json!({"behavior": null}),
        // What a server refuses.
        _ => json!({"minReplicas": 20, "maxReplicas": 3}),
    }
}

fn faults(
    scene: &Scene,
    seed: u64,
    quiet: Duration,
    favoured: &[FaultKind],
    pair: Option<[FaultKind; 2]>,
) -> Vec<Fault> {
    let mut dice = Dice::apart(seed, 4);
    let count: usize = dice.pick(&[1, 2, 2, 2, 3, 3, 4, 6]);
    let count = if pair.is_some() { count.max(2) } else { count };
    let lists = pair.iter().flatten().any(|kind| kind.is_of_lists());
    let mut faults: Vec<Fault> = Vec::new();
    for number in 0..count {
        let favours = !favoured.is_empty() && dice.percent(60);
        let drawn = dice.pick(if favours { favoured } else { FaultKind::ALL });
        let kind = pair.and_then(|pair| pair.get(number).copied()).unwrap_or(drawn);
        // Pairs strike at about the same time.
        let at = match faults.last() {
            // Only a start is sure to list.
            _ if lists && number < 2 => Duration::from_millis(if kind.is_of_lists() { 500 } else { 1500 }),
            Some(last) if (pair.is_some() && number == 1) || dice.percent(70) => {
                time(&mut dice, last.at, last.until.min(quiet.saturating_sub(SECOND)))
            }
            _ => time(&mut dice, SECOND, quiet.saturating_sub(SECOND)),
        };
        let length = length(kind, &mut dice);
        let until = (at + length).min(quiet);
        let process = dice.percent(60).then(|| dice.index(scene.processes));
        faults.push(Fault {
            at,
            until,
            kind,
            process,
            hpa: dice.percent(40).then(|| dice.index(scene.hpas.len())),
            times: times(kind, &mut dice),
            class: class(kind, &mut dice),
            amount: amount(kind, &mut dice),
        });
    }
    faults
}

/// Two faults, another pair for each seed until all have come.
fn pair(seed: u64) -> [FaultKind; 2] {
    let kinds = FaultKind::ALL;
    let pairs = kinds.len() * (kinds.len() + 1) / 2;
    let pairs_before = |second: usize| second * (second + 1) / 2;
    let number = seed as usize % pairs;
    let second = (0..kinds.len()).rfind(|second| pairs_before(*second) <= number).unwrap_or(0);
    [kinds[number - pairs_before(second)], kinds[second]]
}

fn length(kind: FaultKind, dice: &mut Dice) -> Duration {
    use FaultKind as K;
    let (low, high) = match kind {
        K::CrashBefore | K::CrashAfter | K::ResetBefore | K::ResetAfter | K::Conflict => (20_000, 60_000),
        K::WatchCut | K::WatchHole | K::WatchLate => (1_000, 20_000),
        K::Restart | K::ClockJump | K::LeaseDeleted | K::LeaseStolen => (100, 100),
        _ => (2_000, 60_000),
    };
    Duration::from_millis(dice.between(low, high))
}

fn times(kind: FaultKind, dice: &mut Dice) -> u64 {
    use FaultKind as K;
    match kind {
        K::CrashBefore | K::CrashAfter | K::WatchGone | K::WatchHole | K::WatchCut => 1,
        K::ResetBefore | K::ResetAfter | K::Conflict => dice.between(1, 6),
        K::Throttle | K::Storm | K::ListGone | K::ListCut => dice.pick(&[1, 3, 10, 1_000]),
        _ => u64::MAX,
    }
}

fn class(kind: FaultKind, dice: &mut Dice) -> Class {
    const WRITES: &[Class] =
        &[Class::ScalePut, Class::ScalePut, Class::StatusPut, Class::Event, Class::LeaseWrite];
    const ALL: &[Class] = &[
        Class::ScaleGet,
        Class::ScalePut,
        Class::ScalePut,
        Class::StatusPut,
        Class::Event,
        Class::LeaseGet,
        Class::LeaseWrite,
        Class::Metrics,
        Class::WatchHpas,
        Class::WatchPods,
        Class::Discovery,
        Class::Other,
    ];
    match kind {
        FaultKind::Conflict => dice.pick(&[Class::ScalePut, Class::StatusPut]),
        FaultKind::ResetAfter => dice.pick(WRITES),
        _ => dice.pick(ALL),
    }
}

fn amount(kind: FaultKind, dice: &mut Dice) -> u64 {
    match kind {
        FaultKind::MetricsSlow => dice.between(2_000, 60_000),
        FaultKind::Slow | FaultKind::WatchLate | FaultKind::PeerSlow => dice.between(100, 20_000),
        // Less than an hour back, or an hour ahead.
        FaultKind::ClockJump => dice.pick(&[0, 3_590, 3_610, 7_200]),
        FaultKind::ClockDrift => dice.pick(&[0, 45_000, 55_000, 100_000]),
        _ => dice.below(1_000),
    }
}

/// After so long every sync knows what was done at the beginning of the quiet.
const SETTLED: Duration = Duration::from_secs(20);

/// Brings everything to a state that has one outcome only: specs as they were, targets there, and loads that are exactly
/// what one count is there for. A little less, and a pod that is not ready yet makes the rules waver between two counts
/// where nothing is tolerated.
fn closing(scene: &Scene, seed: u64, quiet: Duration) -> Vec<Act> {
    let mut dice = Dice::apart(seed, 5);
    let mut acts = Vec::new();
    for (hpa, plan) in scene.hpas.iter().enumerate() {
        let mut act = |what, later| acts.push(Act { at: quiet + later, hpa, what });
        let replicas = i64::try_from(dice.between(1, 8)).unwrap();
        act(Action::CreateTarget { replicas }, Duration::ZERO);
        act(Action::CreateHpa, Duration::ZERO);
        act(Action::Restore, Duration::ZERO);
        // One pod more or fewer must be more than what is tolerated.
        let most_tolerated = if plan.tolerates_much() { 3 } else { 8 };
        let mut most = 0;
        for metric in 0..plan.metrics.len() {
            let wanted = dice.between(1, most_tolerated) * 10;
            most = most.max(wanted);
            act(Action::Load { metric, wanted }, Duration::ZERO);
        }
        // So near that few steps are left.
        let (low, high) = (plan.min.unwrap_or(1), plan.max);
        let wanted = i64::try_from(most.div_ceil(10)).unwrap().clamp(low, high);
        // What may never go down does not begin above. Later, when nobody decides by what was before.
        let more = dice.pick(if plan.never_goes_down() { &[-1, 0] } else { &[-1, 0, 1] });
        act(Action::Manual { replicas: (wanted + more).clamp(low, high) }, SETTLED);
    }
    acts
}

impl HpaPlan {
    fn never_goes_down(&self) -> bool {
        self.behavior.as_ref().is_some_and(|behavior| behavior["scaleDown"]["selectPolicy"] == "Disabled")
    }

    /// Whether its own tolerance is larger than those of the flag.
    fn tolerates_much(&self) -> bool {
        self.rules().any(|rules| rules["tolerance"] == "0.2")
    }

    /// How long a count may be on its way: as far as decisions look back, and twice where there are windows, since a count
    /// that went down comes up in two steps, as its pods become ready.
    fn longest(&self) -> Duration {
        let periods = self.periods().map(|period| period * 3);
        Duration::from_secs(periods.chain(self.windows().map(|window| window * 2)).max().unwrap_or(0))
    }

    /// How far apart two steps on its way are at most: a window must pass, and then a period.
    fn reach(&self) -> Duration {
        Duration::from_secs(self.windows().max().unwrap_or(0) + self.periods().max().unwrap_or(0))
    }

    fn rules(&self) -> impl Iterator<Item = &Value> {
        self.behavior.iter().flat_map(|behavior| [&behavior["scaleUp"], &behavior["scaleDown"]])
    }

    /// Of its rate policies, in seconds.
    fn periods(&self) -> impl Iterator<Item = u64> {
        let policies = self.rules().flat_map(|rules| rules["policies"].as_array().into_iter().flatten());
        policies.filter_map(|policy| policy["periodSeconds"].as_u64())
    }

    /// In seconds.
    fn windows(&self) -> impl Iterator<Item = u64> {
        self.rules().filter_map(|rules| rules["stabilizationWindowSeconds"].as_u64())
    }
}
