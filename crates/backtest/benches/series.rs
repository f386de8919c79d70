//! Unserved load and pods of the contestants on recorded series, relative to the HPA alone: `CONCERTINA_SERIES=FOLDER
//! cargo bench -p backtest`. The folder has files `NAME.csv.gz`. Arguments select series by a part of their name, and
//! `key=value` changes `budget`, `age`, `target` or `value`. `others=0` omits the other contestants, and `chart=FILE`
//! draws the means.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may fail")]

#[path = "series/contestants.rs"]
mod contestants;
#[path = "series/table.rs"]
mod table;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use backtest::contest::{Backtest, Contestant, backtest};
use backtest::replay::{Metric, Run, World, replay};
use backtest::series::{Series, read};
use flate2::read::GzDecoder;
use forecast::Settings;

use self::contestants::contestants;
use self::table::Table;

/// Minutes that only teach.
const HISTORY: usize = 7 * 1440;
/// The unserved load of a calm series, in millionths.
const CALM: f64 = 50.0;

fn main() {
    let Some(folder) = std::env::var_os("CONCERTINA_SERIES") else {
        println!("CONCERTINA_SERIES names no folder with series");
        return;
    };
    let (parameters, names): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).partition(|word| word.contains('='));
    let parameters: BTreeMap<&str, &str> =
        parameters.iter().filter_map(|word| word.split_once('=')).collect();
    let parameter =
        |key, default| parameters.get(key).map_or(default, |value| value.parse::<f64>().expect("a number"));
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of series")
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "gz"))
        .filter(|path| {
            names.is_empty() || names.iter().any(|name| path.to_string_lossy().contains(name.as_str()))
        })
        .collect();
    files.sort();
    let settings = Settings {
        budget: parameter("budget", 0.05),
        shortage_value: parameter("value", 100.0),
        ..Settings::default()
    };
    println!(
        "{:<14} {:<18} {:>8} {:>6} {:>7} {:>5} {:>5} {:>5}  reason at the end",
        "series", "class", "alone", "floor", "pods", "cover", "rise", "on"
    );
    let mut table = Table::default();
    let (mut worse, mut beaten) = (Vec::new(), Vec::new());
    for path in files {
        let series = series(&path);
        let history = HISTORY.min(series.loads.len() / 2);
        let peak = series.loads.iter().flatten().copied().fold(0.0, f64::max);
        let world = World {
            metric: Metric::Cpu,
            target: integer(parameter("target", 60.0)),
            min_replicas: 1,
            behavior: None,
            pod_start: (60.0, 180.0),
            metric_age: integer(parameter("age", 45.0)).into(),
            max_replicas: integer(peak / 0.6 * 2.0),
            seed: 1,
        };
        let found = backtest(&series, &world, &settings, history, &[Contestant::Oracle]).expect("a replay");
        let class = class(&series, &found, history);
        let [alone, floor, oracle] = [0, 1, 2].map(|run| &found.runs[run].1);
        let mut results = vec![("**floor**", relative(floor, alone))];
        if parameter("others", 1.0) > 0.0 {
            for (name, world, floors) in contestants(&series, &world) {
                let run = replay(&series, &world, &floors, history).expect("a replay");
                results.push((name, relative(&run, alone)));
            }
        }
        results.push(("oracle, at 90 %", relative(oracle, alone)));
        let on = found.floors.floors.iter().skip(history).filter(|floor| **floor > 0).count();
        let name = path.file_name().expect("a name").to_string_lossy().replace(".csv.gz", "");
        let [unserved, pods] = results[0].1;
        println!(
            "{:<14} {:<18} {:>8.0} {:>6.2} {:>7.3} {:>5.3} {:>5.2} {:>5.2}  {}",
            name,
            class,
            alone.score.unserved_ppm(),
            unserved,
            pods,
            found.floors.coverage,
            found.floors.coverage_rising.unwrap_or(f64::NAN),
            on as f64 / (series.loads.len() - history) as f64,
            found.floors.last.reason.sentence(found.floors.last.proposed.unwrap_or_default())
        );
        if floor.score.unserved_ppm() > alone.score.unserved_ppm() * 1.02 + 5.0 {
            worse.push(format!("{name}: {unserved:.2}"));
        }
        // Each contestant but the oracle that loses less of its load for the same pods.
        for (other, [less, cost]) in &results[1..results.len() - 1] {
            if alone.score.unserved_ppm() >= CALM && *less < 0.98 * unserved && *cost <= pods + 0.005 {
                beaten.push(format!(
                    "{name} by {other}: {less:.2} at {cost:.3}, the floor {unserved:.2} at {pods:.3}"
                ));
            }
        }
        table.add(class, &results);
    }
    println!("\n{}", table.markdown());
    println!("more unserved load than the HPA alone (2 % and 5 ppm): {worse:?}");
    println!("series on which another is better for the same pods: {beaten:#?}");
    if let Some(path) = parameters.get("chart") {
        std::fs::write(path, table.chart()).expect("the chart");
    }
}

#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
fn integer(value: f64) -> i32 {
    value.ceil() as i32
}

fn series(path: &Path) -> Series {
    let file = GzDecoder::new(File::open(path).expect("a series"));
    read(path, BufReader::new(file)).expect("a series")
}

/// The unserved load and the pods, relative to the HPA alone.
fn relative(run: &Run, alone: &Run) -> [f64; 2] {
    let relative = |run: f64, alone: f64| if alone > 0.0 { run / alone } else { 1.0 + run };
    [
        relative(run.score.unserved_ppm(), alone.score.unserved_ppm()),
        relative(run.score.pod_hours(), alone.score.pod_hours()),
    ]
}

/// A series is calm if the HPA alone is hardly short. It has a pattern if the median of earlier days explains half of
/// the variance. Its shortages recur if half of them are in minutes whose load came on two of seven days before.
fn class(series: &Series, found: &Backtest, history: usize) -> &'static str {
    let alone = &found.runs[0].1;
    let load = |minute: usize| series.loads.get(minute).copied().flatten();
    let judged = || (history..series.loads.len()).filter_map(|minute| Some((minute, load(minute)?)));
    let mean = judged().map(|(_, load)| load).sum::<f64>() / judged().count() as f64;
    let (mut variance, mut rest) = (0.0, 0.0);
    for (minute, now) in judged() {
        let mut days: Vec<f64> =
            (1..=14).filter_map(|day| minute.checked_sub(day * 1440).and_then(load)).collect();
        days.sort_by(f64::total_cmp);
        let Some(median) = days.get(days.len() / 2) else { continue };
        variance += (now - mean).powi(2);
        rest += (now - median).powi(2);
    }
    let has_pattern = rest <= variance / 2.0;
    if alone.score.unserved_ppm() < CALM {
        return if has_pattern { "calm, pattern" } else { "calm, none" };
    }
    let (mut short, mut recurring) = (0.0, 0.0);
    for (minute, now) in judged() {
        let unserved = alone.unserved[minute];
        if unserved <= 0.0 {
            continue;
        }
        short += unserved;
        let came = |ago: usize| {
            let around = (minute + 2).checked_sub(ago).map(|end| end.saturating_sub(4)..=end);
            around.is_some_and(|mut around| {
                around.any(|minute| load(minute).is_some_and(|load| load >= 0.8 * now))
            })
        };
        let days = (1..=7).filter(|day| came(day * 1440)).count();
        let hours = (1..=6).filter(|hour| came(hour * 60)).count();
        if days >= 2 || hours >= 4 {
            recurring += unserved;
        }
    }
    match (has_pattern, recurring >= short / 2.0) {
        (true, true) => "recurring, pattern",
        (true, false) => "irregular, pattern",
        (false, true) => "recurring, none",
        (false, false) => "irregular, none",
    }
}
