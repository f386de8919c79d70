//! Generates plans from seeds.

use std::time::Duration;

use flags::config::TakeOver;
use serde_json::{Value, json};

use crate::faults;
use crate::many_seeds::Rng;
use crate::plan::{
    Action, Class, Fault, FaultKind, HpaPlan, InitialState, InvalidSpec, MetricKind, MetricPlan, Plan,
    TimedAction,
};
use crate::seeded_bugs::SeededBug;

const SECOND: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(15);

/// Time after a fault or a restart until standbys have copied all histories.
const IMPAIRED: Duration = Duration::from_secs(25);
/// Minimum time after all faults: a minute in which syncs and requests may still be disturbed, and four periods.
const CALM: Duration = Duration::from_mins(2);

/// Time for which a tenant remains after all other faults: a minute in which syncs may still be late, and two periods.
const TENANT: Duration = Duration::from_secs(60 + 30);

/// Generates the plan of a seed. With a planted bug, the scene and the faults are chosen so that they can expose the
/// bug.
pub(crate) fn generate(seed: u64, plant: Option<SeededBug>) -> Plan {
    let mut scene = scene(seed);
    let mut favoured: &[_] = &[];
    if let Some(plant) = plant {
        plant.prepare(&mut scene);
        favoured = plant.exposing_faults();
    }
    // Without a planted bug, half of the seeds start with a chosen pair of faults.
    let pair = (plant.is_none() && Rng::for_purpose(seed, 6).percent(50)).then(|| pair(seed));
    if pair.iter().flatten().any(|kind| kind.needs_election()) {
        (scene.processes, scene.election) = (scene.processes.max(2), true);
    }
    let mut dice = Rng::for_purpose(seed, 2);
    let quiet = SECOND * u32::try_from(dice.between(60, 180)).unwrap();
    let actions = actions(&scene, seed, quiet);
    let mut faults = faults(&scene, seed, quiet, favoured, pair);
    limit_lost_versions(&mut faults);
    let quiet = quiet + faults.iter().map(Fault::aftermath).max().unwrap_or_default();
    let restarts = unimpaired_restarts(&scene, seed, &faults);
    let quiet = restarts.iter().map(|restart| restart.until + SECOND).fold(quiet, Duration::max);
    faults.extend(restarts);
    for fault in faults.iter_mut().filter(|fault| fault.kind.is_tenant()) {
        fault.until = quiet + TENANT;
    }
    let closing = closing(&scene, seed, quiet);
    let reach = scene.hpas.iter().map(HpaPlan::longest_wait).max().unwrap_or_default() + scene.downscale;
    let settle_time = reach + PERIOD * 2;
    let end = quiet + (SETTLED + settle_time).max(CALM);
    Plan { seed, scene, actions, faults, closing, quiet, end, settle_time }
}

/// A plan with steady load and without faults: `hpas` HPAs with `pods` pods each, until `end`.
pub(crate) fn steady(hpas: usize, pods: u32, end: Duration) -> Plan {
    let replicas = i64::from(pods);
    let metrics = || vec![MetricPlan { kind: MetricKind::Cpu, demand: u64::from(pods) * 10 }];
    let hpa = || HpaPlan {
        has_pods: true,
        replicas,
        min: None,
        max: replicas * 2,
        metrics: metrics(),
        behavior: None,
    };
    let scene = InitialState {
        processes: 1,
        election: true,
        takeover: TakeOver::Off,
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
        settle_time: Duration::ZERO,
    }
}

fn scene(seed: u64) -> InitialState {
    let mut dice = Rng::for_purpose(seed, 1);
    let processes = dice.pick(&[1, 1, 2, 2, 2, 3]);
    let crowd = dice.percent(1);
    let count = if crowd { 20 } else { dice.pick(&[1, 1, 2, 2, 3, 4]) };
    InitialState {
        processes,
        election: processes > 1 || dice.percent(50),
        takeover: if Rng::for_purpose(seed, 7).percent(40) { TakeOver::Wait } else { TakeOver::Off },
        // The default of the program, in most runs.
        checkpoint: !dice.percent(30),
        hpas: (0..count).map(|_| hpa(&mut dice, crowd)).collect(),
        tolerance: dice.pick(&[0.1, 0.1, 0.0]),
        downscale: SECOND * dice.pick(&[0, 15, 30, 60]),
        latency: dice.pick(&[1, 5, 20, 200]),
        shares: dice.percent(70),
    }
}

fn hpa(dice: &mut Rng, crowd: bool) -> HpaPlan {
    let has_pods = crowd || dice.percent(35);
    let mut metrics = Vec::new();
    if has_pods && dice.percent(70) {
        let kind = dice.pick(&[MetricKind::Cpu, MetricKind::Cpu, MetricKind::Container]);
        metrics.push(MetricPlan { kind, demand: demand(dice) });
    }
    let kinds: &[_] = if has_pods {
        &[MetricKind::Pods, MetricKind::Object, MetricKind::External]
    } else {
        &[MetricKind::Object, MetricKind::External]
    };
    let more = dice.pick(&[0, 1, 1, 2]);
    for _ in 0..if metrics.is_empty() { more.max(1) } else { more } {
        metrics.push(MetricPlan { kind: dice.pick(kinds), demand: demand(dice) });
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

fn demand(dice: &mut Rng) -> u64 {
    dice.pick(&[0, 5, 18, 28, 38, 48, 58, 78, 103, 200, 5000])
}

fn behavior(dice: &mut Rng) -> Value {
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

fn time(dice: &mut Rng, from: Duration, until: Duration) -> Duration {
    let (from, until) = (from.as_millis() as u64, until.as_millis() as u64);
    Duration::from_millis(dice.between(from, until.max(from)))
}

fn actions(scene: &InitialState, seed: u64, quiet: Duration) -> Vec<TimedAction> {
    let mut dice = Rng::for_purpose(seed, 3);
    let count = dice.between(2, 10 + scene.hpas.len() as u64);
    let mut actions = Vec::new();
    for _ in 0..count {
        let at = time(&mut dice, SECOND * 5, quiet.saturating_sub(SECOND));
        let hpa = dice.index(scene.hpas.len());
        let plan = &scene.hpas[hpa];
        let metric = dice.index(plan.metrics.len());
        let replicas = i64::try_from(dice.between(0, 12)).unwrap();
        let action = match dice.below(100) {
            0..50 => Action::Load { metric, demand: demand(&mut dice) },
            50..56 => Action::Odd { metric, text: dice.pick(ODD) },
            56..70 => Action::Edit { spec: edit(&mut dice) },
            70..74 => Action::Restore,
            74..80 => Action::InvalidSpec(dice.pick(POISONS)),
            80..88 => Action::Manual { replicas },
            88..92 => Action::DeleteTarget,
            92..95 => Action::CreateTarget { replicas },
            95..98 => Action::DeleteHpa,
            _ => Action::CreateHpa,
        };
        actions.push(TimedAction { at, hpa, action });
    }
    actions.sort_by_key(|act| act.at);
    actions
}

const ODD: &[&str] =
    &["9223372036854775808", "1e30", "-5", "7Ei", "0", "1e-9", "9223372036854775807", "214748364800"];

const POISONS: &[InvalidSpec] = &[
    InvalidSpec::InvalidSelector,
    InvalidSpec::MinAboveMax,
    InvalidSpec::NegativeMax,
    InvalidSpec::ManyMetrics,
    InvalidSpec::DifferentMetrics,
    InvalidSpec::MetricsTimesPods,
    InvalidSpec::OddQuantity("9223372036854775808"),
    InvalidSpec::OddQuantity("1e30"),
    InvalidSpec::OddQuantity("-1"),
    InvalidSpec::OddQuantity("0"),
    InvalidSpec::OddQuantity("4Ei"),
    InvalidSpec::NoSource,
    InvalidSpec::UnknownType,
    InvalidSpec::OddTarget,
];

fn edit(dice: &mut Rng) -> Value {
    match dice.below(6) {
        0 => json!({"minReplicas": dice.between(0, 6)}),
        1 => json!({"maxReplicas": dice.between(1, 14)}),
        2 | 3 => json!({"behavior": behavior(dice)}),
        4 => json!({"behavior": null}),
        // The server refuses the edit.
        _ => json!({"minReplicas": 20, "maxReplicas": 3}),
    }
}

fn faults(
    scene: &InitialState,
    seed: u64,
    quiet: Duration,
    favoured: &[FaultKind],
    pair: Option<[FaultKind; 2]>,
) -> Vec<Fault> {
    let mut dice = Rng::for_purpose(seed, 4);
    let count: usize = dice.pick(&[1, 2, 2, 2, 3, 3, 4, 6]);
    let count = if pair.is_some() { count.max(2) } else { count };
    let lists = pair.iter().flatten().any(|kind| kind.affects_lists());
    let mut faults: Vec<Fault> = Vec::new();
    for number in 0..count {
        let favours = !favoured.is_empty() && dice.percent(60);
        let drawn = dice.pick(if favours { favoured } else { FaultKind::ALL });
        let kind = pair.and_then(|pair| pair.get(number).copied()).unwrap_or(drawn);
        // The faults of a pair are active at about the same time.
        let at = match faults.last() {
            // A process is certain to send lists only at its start.
            _ if lists && number < 2 => Duration::from_millis(if kind.affects_lists() { 500 } else { 1500 }),
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

/// Permits at most one restore to lose versions, and none if a watch hangs or a process is cut off. After
/// a silence before the first bookmark, a process assumes that the server sends no bookmarks. It then notices the
/// restore only when the server ends the watch.
fn limit_lost_versions(faults: &mut [Fault]) {
    let is_restore = |fault: &Fault| fault.kind == FaultKind::EtcdRestored;
    let is_silence = |fault: &Fault| fault.kind == FaultKind::Partition || !fault.aftermath().is_zero();
    let mut may_lose = faults.iter().all(|fault| is_restore(fault) || !is_silence(fault));
    for fault in faults.iter_mut().filter(|fault| is_restore(fault)) {
        if !may_lose {
            fault.amount &= !1;
        }
        may_lose &= faults::raises_versions(fault.amount);
    }
}

/// Restarts of every process, in some seeds, at times when no other fault affects handovers. The ideal history then
/// judges the handovers.
fn unimpaired_restarts(scene: &InitialState, seed: u64, faults: &[Fault]) -> Vec<Fault> {
    if scene.processes == 1 || !Rng::for_purpose(seed, 8).percent(30) {
        return Vec::new();
    }
    let last = faults.iter().map(|fault| fault.until + fault.aftermath()).max().unwrap_or_default();
    let restart = |process: usize| {
        let at = last + IMPAIRED * u32::try_from(process + 1).unwrap();
        Fault {
            at,
            until: at,
            kind: FaultKind::Restart,
            process: Some(process),
            hpa: None,
            times: 1,
            class: Class::Other,
            amount: 0,
        }
    };
    (0..scene.processes).map(restart).collect()
}

/// A pair of faults. Consecutive seeds run through all pairs.
fn pair(seed: u64) -> [FaultKind; 2] {
    let kinds = FaultKind::ALL;
    let pairs = kinds.len() * (kinds.len() + 1) / 2;
    let pairs_before = |second: usize| second * (second + 1) / 2;
    let number = seed as usize % pairs;
    let second = (0..kinds.len()).rfind(|second| pairs_before(*second) <= number).unwrap_or(0);
    [kinds[number - pairs_before(second)], kinds[second]]
}

fn length(kind: FaultKind, dice: &mut Rng) -> Duration {
    use FaultKind as K;
    let (low, high) = match kind {
        K::CrashBefore | K::CrashAfter | K::ResetBefore | K::ResetAfter | K::Conflict => (20_000, 60_000),
        K::WatchCut | K::WatchHole | K::WatchLate => (1_000, 20_000),
        K::Restart | K::ClockJump | K::LeaseDeleted | K::LeaseStolen | K::EtcdRestored => (100, 100),
        _ => (2_000, 60_000),
    };
    Duration::from_millis(dice.between(low, high))
}

fn times(kind: FaultKind, dice: &mut Rng) -> u64 {
    use FaultKind as K;
    match kind {
        K::CrashBefore | K::CrashAfter | K::WatchGone | K::WatchHole | K::WatchCut => 1,
        K::ResetBefore | K::ResetAfter | K::Conflict => dice.between(1, 6),
        K::Throttle | K::Storm | K::ListGone | K::ListCut => dice.pick(&[1, 3, 10, 1_000]),
        _ => u64::MAX,
    }
}

fn class(kind: FaultKind, dice: &mut Rng) -> Class {
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

fn amount(kind: FaultKind, dice: &mut Rng) -> u64 {
    match kind {
        FaultKind::MetricsSlow => dice.between(2_000, 60_000),
        FaultKind::Slow | FaultKind::WatchLate => dice.between(100, 20_000),
        // The amount is the jump in seconds plus one hour.
        FaultKind::ClockJump => dice.pick(&[0, 3_590, 3_610, 7_200]),
        FaultKind::ClockDrift => dice.pick(&[0, 45_000, 55_000, 100_000]),
        _ => dice.below(1_000),
    }
}

/// Time until every sync uses the changes from the start of the quiet phase.
const SETTLED: Duration = Duration::from_secs(20);

/// Returns actions that lead to a unique final state: original specs, existing targets, and loads that match
/// one replica count exactly. With slightly less load, a pod that is not ready yet makes the rules alternate
/// between two counts if the tolerance is zero.
fn closing(scene: &InitialState, seed: u64, quiet: Duration) -> Vec<TimedAction> {
    let mut dice = Rng::for_purpose(seed, 5);
    let mut acts = Vec::new();
    for (hpa, plan) in scene.hpas.iter().enumerate() {
        let mut act = |action, later| acts.push(TimedAction { at: quiet + later, hpa, action });
        let replicas = i64::try_from(dice.between(1, 8)).unwrap();
        act(Action::CreateTarget { replicas }, Duration::ZERO);
        act(Action::CreateHpa, Duration::ZERO);
        act(Action::Restore, Duration::ZERO);
        // A difference of one pod must exceed the tolerance.
        let most_tolerated = if plan.tolerates_much() { 3 } else { 8 };
        let mut most = 0;
        for metric in 0..plan.metrics.len() {
            let demand = dice.between(1, most_tolerated) * 10;
            most = most.max(demand);
            act(Action::Load { metric, demand }, Duration::ZERO);
        }
        // The count starts close to the final count, so that few steps remain.
        let (low, high) = (plan.min.unwrap_or(1), plan.max);
        let target_count = i64::try_from(most.div_ceil(10)).unwrap().clamp(low, high);
        // An HPA that never scales down must not start above its final count. The count is set after
        // `SETTLED`, so that no decision uses an older view.
        let more = dice.pick(if plan.never_scales_down() { &[-1, 0] } else { &[-1, 0, 1] });
        act(Action::Manual { replicas: (target_count + more).clamp(low, high) }, SETTLED);
    }
    acts
}

impl HpaPlan {
    fn never_scales_down(&self) -> bool {
        self.behavior.as_ref().is_some_and(|behavior| behavior["scaleDown"]["selectPolicy"] == "Disabled")
    }

    /// Whether `behavior` has a tolerance above every value that the scene may have for the flag.
    fn tolerates_much(&self) -> bool {
        self.rules().any(|rules| rules["tolerance"] == "0.2")
    }

    /// Maximum time between two steps towards the final count: a window followed by a period.
    fn longest_wait(&self) -> Duration {
        Duration::from_secs(self.windows().max().unwrap_or(0) + self.periods().max().unwrap_or(0))
    }

    fn rules(&self) -> impl Iterator<Item = &Value> {
        self.behavior.iter().flat_map(|behavior| [&behavior["scaleUp"], &behavior["scaleDown"]])
    }

    /// Periods of the rate policies, in seconds.
    fn periods(&self) -> impl Iterator<Item = u64> {
        let policies = self.rules().flat_map(|rules| rules["policies"].as_array().into_iter().flatten());
        policies.filter_map(|policy| policy["periodSeconds"].as_u64())
    }

    /// Stabilization windows, in seconds.
    fn windows(&self) -> impl Iterator<Item = u64> {
        self.rules().filter_map(|rules| rules["stabilizationWindowSeconds"].as_u64())
    }
}
