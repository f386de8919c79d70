//! Replays of made loads.

use forecast::{Mode, Settings};

use crate::contest::{Contestant, backtest, floors};
use crate::page::render;
use crate::replay::{Metric, World, replay};
use crate::series::Series;

const HOUR: usize = 60;
const DAY: usize = 24 * HOUR;

fn world() -> World {
    World {
        metric: Metric::Cpu,
        target: 60,
        min_replicas: 1,
        max_replicas: 50,
        behavior: None,
        pod_start: (60.0, 180.0),
        metric_age: 45,
        seed: 1,
    }
}

fn settings() -> Settings {
    Settings { mode: Mode::Floor, budget: 0.2, minimum_history: 1440, ..Settings::default() }
}

fn series(minutes: usize, load: impl Fn(usize) -> f64) -> Series {
    let start = "2026-11-02T00:00:00Z".parse().unwrap();
    Series { start, loads: (0..minutes).map(|minute| Some(load(minute))).collect() }
}

/// A load of 20 pods from 9:00 for half an hour, and of 2 pods otherwise.
fn daily(minute: usize) -> f64 {
    if (9 * HOUR..9 * HOUR + 30).contains(&(minute % DAY)) { 20.0 } else { 2.0 }
}

#[test]
fn steady_load_keeps_its_pods() {
    let run = replay(&series(3 * HOUR, |_| 6.0), &world(), &[], HOUR).unwrap();
    assert_eq!(run.counts, vec![10; 3 * HOUR]);
    assert_eq!((run.score.unserved, run.score.rescales, run.score.minutes_above_80), (0.0, 0, 0));
    assert_eq!((run.score.pod_hours(), run.score.load), (20.0, 6.0 * 7200.0));
    // The floor acts like minReplicas.
    for (min_replicas, floor) in [(1, 12), (12, 0), (12, 11)] {
        let world = World { min_replicas, ..world() };
        let run = replay(&series(HOUR, |_| 6.0), &world, &[floor; HOUR], 0).unwrap();
        assert_eq!((run.score.rescales, run.counts), (1, vec![12; HOUR]));
    }
}

#[test]
fn load_of_an_oracle_is_served() {
    let load = series(3 * HOUR, |minute| if minute < 2 * HOUR { 2.0 } else { 20.0 });
    let found = backtest(&load, &world(), &settings(), HOUR, &[Contestant::Oracle]).unwrap();
    let unserved: Vec<f64> = found.runs.iter().map(|(_, run)| run.score.unserved_ppm()).collect();
    // Without history, the floor is that of the HPA alone.
    assert!(unserved[0] > 10_000.0 && unserved[1] == unserved[0] && unserved[2] == 0.0, "{unserved:?}");
    let pods = &found.runs[0].1.counts;
    // 20 pods of load at 60 % are 33.3 pods, which is within the tolerance of 33.
    assert_eq!((pods[HOUR], pods[3 * HOUR - 1]), (4, 33));
}

#[test]
fn external_metric_shows_the_load_above_the_pods() {
    let load = series(3 * HOUR, |minute| if minute < 2 * HOUR { 2.0 } else { 20.0 });
    let of = |metric| replay(&load, &World { metric, ..world() }, &[], HOUR).unwrap();
    let (cpu, external) = (of(Metric::Cpu), of(Metric::External));
    assert!(external.score.unserved < 0.8 * cpu.score.unserved, "{external:?} {cpu:?}");
    // 20 pods of load at 60 % are 33.3 pods.
    assert_eq!((external.counts[HOUR], external.counts[3 * HOUR - 1]), (4, 34));
}

#[test]
fn replays_are_equal_for_equal_seeds() {
    let load = series(DAY, daily);
    let run = |seed| replay(&load, &World { seed, ..world() }, &[], 0).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).score, run(2).score);
}

#[test]
fn floor_uses_only_the_load_before_its_minute() {
    let load = series(3 * DAY, daily);
    let floors = |load: &Series| {
        let alone = replay(load, &world(), &[], 0).unwrap();
        floors(load, &alone.counts, &world(), &settings(), DAY).floors
    };
    let whole = floors(&load);
    assert!(whole.iter().any(|floor| *floor >= 20));
    // Around the start and the end of a peak, and of an hour with a choice.
    for minute in [2 * DAY + 9 * HOUR - 3, 2 * DAY + 9 * HOUR, 2 * DAY + 9 * HOUR + 30, 2 * DAY + 10 * HOUR] {
        let mut other = load.clone();
        for load in &mut other.loads[minute..] {
            *load = Some(40.0);
        }
        assert_eq!(floors(&other)[..=minute], whole[..=minute], "{minute}");
    }
}

#[test]
fn load_without_recurring_shortage_stays_in_preview() {
    let spike = |minute: usize| if minute == DAY + 12 * HOUR { 2000.0 } else { 2.0 };
    let mut gap = series(5 * DAY, daily);
    gap.loads[3 * DAY..].fill(None);
    for (load, expected) in [
        (series(3 * DAY, |_| 0.0), "no floor: in 8 days the HPA alone was short for 0 pod-minutes"),
        // Of one spike of 1,000 times the load, the HPA alone serves 4 pods.
        (
            series(3 * DAY, spike),
            "no floor: in 8 days the HPA alone was short for 1996.0 pod-minutes, and no forecast would have avoided \
             them",
        ),
        (series(2 * DAY, daily), "no floor: the history has 2.0 of 3.0 days"),
    ] {
        let settings = Settings { budget: 0.2, ..Settings::default() };
        let found = backtest(&load, &world(), &settings, DAY, &[]).unwrap();
        assert_eq!(found.floors.last.reason.sentence(0), expected);
        assert_eq!(found.runs[1].1.counts, found.runs[0].1.counts, "{expected}");
    }
    // Days without a load neither end a floor nor count.
    let found = backtest(&gap, &world(), &settings(), DAY, &[]).unwrap();
    assert!(found.floors.last.reason.pays());
    assert_eq!(found.runs[0].1.score.load, (2.0 * DAY as f64 * 2.0 + 2.0 * 30.0 * 18.0) * 60.0);
}

#[test]
fn page_shows_the_load_and_the_worst_hours() {
    let mut load = series(5 * DAY, daily);
    load.loads[2 * DAY..2 * DAY + 90].fill(None);
    let found = backtest(&load, &world(), &settings(), DAY, &[Contestant::Oracle]).unwrap();
    let page = render("<a&b>.csv", &load, &found);
    assert!(page.contains("<title>Backtest of &lt;a&amp;b&gt;.csv</title>"));
    // The whole load, three hours, and five keys.
    assert_eq!(page.matches("<svg ").count(), 9);
    assert_eq!(page.matches("09:00 UTC</h2>").count(), 3);
    assert!(page.contains("<th>HPA with the floor</th>") && page.contains("class=\"floor\" d=\"M"));
    assert!(!page.contains("NaN") && !page.contains("inf") && page.len() < 200_000, "{}", page.len());
    let page = render(
        "zero",
        &series(HOUR, |_| 0.0),
        &backtest(&series(HOUR, |_| 0.0), &world(), &settings(), 0, &[]).unwrap(),
    );
    assert!(!page.contains("NaN") && page.matches("<svg ").count() == 6);
}
