//! Unserved load and pods of the contestants on recorded series, relative to the HPA alone: `CONCERTINA_SERIES=FOLDER
//! cargo bench -p backtest`. The folder has files `NAME.csv.gz`. Arguments select series by a part of their name, and
//! `key=value` changes `budget`, `age`, `target` or `value`. `others=0` omits the other contestants.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a bench may fail")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use backtest::contest::{Backtest, Contestant, backtest};
use backtest::replay::World;
use backtest::series::{Series, read};
use flate2::read::GzDecoder;
use forecast::Settings;

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
    let parameters: BTreeMap<&str, f64> = parameters
        .iter()
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| (key, value.parse().expect("a number")))
        .collect();
    let parameter = |key, default| parameters.get(key).copied().unwrap_or(default);
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
        "{:<14} {:<18} {:>8} {:>6} {:>7} {:>6} {:>7} {:>6} {:>7} {:>5} {:>5} {:>5}  reason at the end",
        "series", "class", "alone", "floor", "pods", "t45", "pods", "oracle", "pods", "cover", "rise", "on"
    );
    let mut classes: BTreeMap<&str, Vec<[f64; 6]>> = BTreeMap::new();
    let mut worse = Vec::new();
    for path in files {
        let series = series(&path);
        let history = HISTORY.min(series.loads.len() / 2);
        let peak = series.loads.iter().flatten().copied().fold(0.0, f64::max);
        let world = World {
            target: integer(parameter("target", 60.0)),
            min_replicas: 1,
            behavior: None,
            pod_start: (60.0, 180.0),
            metric_age: integer(parameter("age", 45.0)).into(),
            max_replicas: integer(peak / 0.6 * 2.0),
            seed: 1,
        };
        let others = [Contestant::LowerTarget, Contestant::Oracle];
        let others = if parameter("others", 1.0) > 0.0 { &others[..] } else { &[] };
        let found = backtest(&series, &world, &settings, history, others).expect("a replay");
        let class = class(&series, &found, history);
        let (unserved, pods) = (relative(&found, true), relative(&found, false));
        let alone = found.runs[0].1.score.unserved_ppm();
        let on = found.floors.floors.iter().skip(history).filter(|floor| **floor > 0).count();
        let name = path.file_name().expect("a name").to_string_lossy().replace(".csv.gz", "");
        println!(
            "{:<14} {:<18} {:>8.0} {:>6.2} {:>7.3} {:>6.2} {:>7.3} {:>6.2} {:>7.3} {:>5.3} {:>5.2} {:>5.2}  {}",
            name,
            class,
            alone,
            unserved[0],
            pods[0],
            unserved[1],
            pods[1],
            unserved[2],
            pods[2],
            found.floors.coverage,
            found.floors.coverage_rising.unwrap_or(f64::NAN),
            on as f64 / (series.loads.len() - history) as f64,
            found.floors.last.reason.sentence(found.floors.last.proposed.unwrap_or_default())
        );
        let floor = found.runs[1].1.score.unserved_ppm();
        if floor > alone * 1.02 + 5.0 {
            worse.push(format!("{name}: {alone:.0} -> {floor:.0} ppm"));
        }
        classes.entry(class).or_default().push([
            unserved[0],
            pods[0],
            unserved[1],
            pods[1],
            unserved[2],
            pods[2],
        ]);
    }
    println!("\nmedian / mean / worst, relative to the HPA alone");
    println!(
        "{:<18} {:>2}  {:<20} {:<20} {:<20} {:<20}",
        "class", "n", "unserved", "pods", "unserved t45", "pods t45"
    );
    for (class, rows) in &classes {
        print!("{class:<18} {:>2}", rows.len());
        for column in 0..4 {
            let mut values: Vec<f64> = rows.iter().map(|row| row[column]).collect();
            values.sort_by(f64::total_cmp);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
            print!("  {median:.3}/{mean:.3}/{:.3}", values[values.len() - 1]);
        }
        println!();
    }
    println!("series with more unserved load than the HPA alone (2 % and 5 ppm): {worse:?}");
}

#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
fn integer(value: f64) -> i32 {
    value.ceil() as i32
}

fn series(path: &Path) -> Series {
    let file = GzDecoder::new(File::open(path).expect("a series"));
    read(path, BufReader::new(file)).expect("a series")
}

/// The unserved load or the pods of the other contestants, relative to the HPA alone.
fn relative(found: &Backtest, unserved: bool) -> [f64; 3] {
    let value = |name: Contestant| {
        let run = found.runs.iter().find(|(contestant, _)| *contestant == name);
        run.map_or(
            f64::NAN,
            |(_, run)| {
                if unserved { run.score.unserved_ppm() } else { run.score.pod_hours() }
            },
        )
    };
    [Contestant::Floor, Contestant::LowerTarget, Contestant::Oracle].map(|name| {
        let (alone, other) = (value(Contestant::Alone), value(name));
        if alone > 0.0 { other / alone } else { 1.0 + other }
    })
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
