//! Time and memory of advice on HPAs, and the savings that it predicts and those of the judged part:
//! `cargo bench -p past --bench advise -- 300`. The past of each HPA is 14 days of a service on one of the series of
//! `CONCERTINA_SERIES`, or else on made loads, with other settings than the HPA before.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench may fail"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use backtest::replay::{World, replay};
use backtest::series::{Series, read};
use flate2::read::GzDecoder;
use past::advise::outcome::Choice;
use past::advise::recording::{Column, Recording};
use past::advise::search::{Search, Today, search};

const DAYS: usize = 14;
const MINUTES: usize = DAYS * 1440;
const SERVICES: [&str; 5] = ["linear", "saturating", "slow start", "warm-up", "IO-bound"];

fn main() {
    let count = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(300);
    let loads = loads();
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let (start, processor) = (Instant::now(), processor_seconds());
    let generating = Mutex::new(0.0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let hpa = next.fetch_add(1, Ordering::Relaxed);
                    if hpa >= count {
                        break;
                    }
                    let made = Instant::now();
                    let (today, recording) = past(hpa, loads.len(), &loads[hpa % loads.len()]);
                    *generating.lock().expect("a number") += made.elapsed().as_secs_f64();
                    let load = recording.load();
                    let found = load.map(|load| search(&today, &recording, &load).expect("a replay"));
                    results.lock().expect("results").insert(hpa, found);
                }
            });
        }
    });
    println!(
        "{count} HPAs: {:.0} s, {:.0} s of processors with {:.0} s to make the pasts, {} at most",
        start.elapsed().as_secs_f64(),
        processor_seconds() - processor,
        generating.into_inner().expect("a number"),
        status("VmHWM")
    );
    let results = results.into_inner().expect("results");
    for (kind, service) in SERVICES.iter().enumerate() {
        let of_kind = results.iter().filter(|(hpa, _)| **hpa / loads.len() % SERVICES.len() == kind);
        let (mut saved, mut cost) = ([0.0, 0.0], [0.0, 0.0]);
        let (mut advised, mut near, mut worse, mut hpas) = (0, 0, 0, 0);
        let mut refusals = BTreeMap::<String, u32>::new();
        for (_, found) in of_kind {
            hpas += 1;
            match found {
                Ok(Search { outcome: Ok(proposal), .. }) => {
                    let (fit, judge) = (proposal.advised.fitted, proposal.advised.judged);
                    advised += 1;
                    let sum = if fit.saved() > 0.0 { &mut saved } else { &mut cost };
                    sum[0] += fit.saved();
                    sum[1] += judge.saved();
                    near += u32::from((fit.saved_share() - judge.saved_share()).abs() <= 0.1);
                    worse += u32::from(judge.advised.unserved_ppm > 1.02 * judge.today.unserved_ppm + 5.0);
                }
                Ok(Search { outcome: Err(refusal), .. }) | Err(refusal) => {
                    let text = format!("{refusal:?}");
                    let name = text.split([' ', '{']).next().unwrap_or_default().to_owned();
                    *refusals.entry(name).or_default() += 1;
                }
            }
        }
        println!(
            "{service:<11} {hpas:>4} HPAs, {advised:>3} advised, pod-hours a week predicted and judged: saved {saved:.0?}, \
             for less shortage {cost:.0?}; {near} within 10 points, {worse} with more unserved load; refused \
             {refusals:?}"
        );
    }
}

/// The loads, in pods at full capacity.
fn loads() -> Vec<Vec<f64>> {
    let Some(folder) = std::env::var_os("CONCERTINA_SERIES") else {
        return (0..12).map(|shape| (0..MINUTES).map(|minute| made(shape, minute)).collect()).collect();
    };
    let files = std::fs::read_dir(folder).expect("the folder of series");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "gz"));
    files.sort();
    files.iter().map(|path| scaled(path)).collect()
}

/// A daily load with noise, between steady and steep.
fn made(shape: usize, minute: usize) -> f64 {
    let day = (minute % 1440) as f64 / 1440.0 * std::f64::consts::TAU;
    let noise = (minute.wrapping_mul(7919) % 1000) as f64 / 1000.0;
    let depth = 0.1 * (shape % 9) as f64;
    (4.0 + shape as f64)
        * (1.0 - depth * day.cos()).powi(1 + i32::from(shape.is_multiple_of(3)))
        * (0.95 + 0.1 * noise)
}

fn scaled(path: &Path) -> Vec<f64> {
    let file = BufReader::new(GzDecoder::new(File::open(path).expect("a series")));
    let series = read(path, file).expect("a series");
    let mut last = 0.0;
    let minutes = series.loads.iter().cycle().take(MINUTES);
    let loads: Vec<f64> = minutes
        .map(|load| {
            last = load.unwrap_or(last);
            last
        })
        .collect();
    let mut sorted = loads.clone();
    sorted.sort_by(f64::total_cmp);
    // Sixteen pods at the 99.9 % quantile.
    let factor = 16.0 / sorted[sorted.len() * 999 / 1000].max(1e-9);
    loads.into_iter().map(|load| load * factor).collect()
}

/// The settings and the past of an HPA.
fn past(hpa: usize, series: usize, loads: &[f64]) -> (Today, Recording) {
    let kind = hpa / series % SERVICES.len();
    let choice = Choice {
        target: [50, 60, 70, 40][hpa % 4],
        min_replicas: [2, 2, 12][hpa % 3],
        max_replicas: 100,
        scale_down_window_seconds: 300,
    };
    let pod_start = if kind == 2 { (400.0, 480.0) } else { (60.0, 180.0) };
    let world = World { target: choice.target, pod_start, metric_age: 45, max_replicas: 100, seed: 3 };
    let shown = |load: f64| if kind == 4 { load / 3.0 } else { load };
    let start = "2026-11-02T00:00:00Z".parse().expect("a time");
    let series = Series { start, loads: loads.iter().map(|load| Some(shown(*load))).collect() };
    let run = replay(&series, &world, &vec![choice.min_replicas; MINUTES], 0).expect("a replay");
    let mut recording = Recording::new(start, MINUTES);
    let wait = if kind == 2 { 8 } else { 2 };
    for (minute, count) in run.counts.iter().enumerate() {
        let ready = f64::from(run.counts[minute.saturating_sub(wait)].min(*count));
        let started = f64::from((count - run.counts[minute.saturating_sub(3)]).max(0));
        let load = shown(loads[minute]);
        let used = match kind {
            3 => load + 0.5 * started,
            4 => load.min(ready / 3.0),
            _ => load.min(ready),
        };
        recording.set(Column::Usage, minute, used * 0.5);
        recording.set(Column::Replicas, minute, f64::from(*count));
        recording.set(Column::Ready, minute, ready);
        recording.set(Column::LowestRequest, minute, 0.5);
        recording.set(Column::HighestRequest, minute, 0.5);
    }
    (Today { choice, behavior: None }, recording)
}

/// The processor time of this process in seconds.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = text.split(' ').filter_map(|field| field.parse().ok()).collect();
    // utime and stime in hundredths; the name and the state are no numbers.
    fields.get(11..13).map_or(0.0, |times| times.iter().sum::<f64>() / 100.0)
}

fn status(field: &str) -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.map(|line| line.trim_start_matches([':', ' ', '\t']).to_owned()).unwrap_or_default()
}
