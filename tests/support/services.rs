//! Generated services: their load, and what is recorded of them under an HPA. The unit tests and the bench of `past` and
//! the test against Prometheus include this file.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use autoscaling::spec::Behavior;
use backtest::replay::{Metric, World, replay};
use backtest::series::{Series, read};
use flate2::read::GzDecoder;
use jiff::Timestamp;
use past::advise::recording::{Column, Recording};

pub(crate) const DAY: usize = 1440;

/// The settings of the past.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Past {
    pub(crate) target: i32,
    pub(crate) min: i32,
    pub(crate) max: i32,
    /// The seconds that a pod takes to start.
    pub(crate) start: (f64, f64),
    /// The cores of a pod's request.
    pub(crate) request: f64,
    pub(crate) days: usize,
}

impl Past {
    /// The past of one of many HPAs: each has other settings than the previous one.
    pub(crate) fn of_many(hpa: usize, days: usize) -> Self {
        Self {
            target: [50, 60, 70, 40][hpa % 4],
            min: [2, 2, 12][hpa % 3],
            max: 100,
            start: (60.0, 180.0),
            request: 0.5,
            days,
        }
    }
}

/// How the cpu usage of a service follows from its load, in pods at full capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Service {
    /// The usage is the load.
    Linear,
    /// The usage ends at the capacity of the pods, and the load is often above.
    Saturating,
    /// The usage is the load, and pods take eight minutes to start.
    SlowStart,
    /// For three minutes after its start, a pod uses half of its request in addition.
    WarmUp,
    /// The pods wait for others, and use at most a third of their requests.
    IoBound,
}

impl Service {
    pub(crate) const ALL: [Self; 5] =
        [Self::Linear, Self::Saturating, Self::SlowStart, Self::WarmUp, Self::IoBound];

    /// The service of one of many HPAs.
    pub(crate) fn of_many(hpa: usize) -> Self {
        Self::ALL[hpa % Self::ALL.len()]
    }
}

/// Records the past of a service: the counts are those of a replay with the settings of the past.
pub(crate) fn record(
    past: Past,
    service: Service,
    start: Timestamp,
    load: impl Fn(usize) -> f64,
) -> Recording {
    record_with(past, service, None, start, load)
}

/// Records the past of a service under an HPA with `behavior`.
pub(crate) fn record_with(
    past: Past,
    service: Service,
    behavior: Option<Behavior>,
    start: Timestamp,
    load: impl Fn(usize) -> f64,
) -> Recording {
    let minutes = past.days * DAY;
    let pod_start = if service == Service::SlowStart { (460.0, 500.0) } else { past.start };
    let world = World {
        metric: Metric::Cpu,
        target: past.target,
        min_replicas: past.min,
        max_replicas: past.max,
        behavior,
        pod_start,
        metric_age: 45,
        seed: 7,
    };
    let shown = |load: f64| if service == Service::IoBound { load / 3.0 } else { load };
    let series = Series { start, loads: (0..minutes).map(|minute| Some(shown(load(minute)))).collect() };
    let run = replay(&series, &world, &[], 0).expect("constants are valid");
    let mut recording = Recording::new(start, minutes);
    let wait = (0_usize..60).find(|wait| (wait + 1) as f64 * 60.0 > pod_start.1).unwrap_or(60);
    for (minute, count) in run.counts.iter().enumerate() {
        let before = minute.checked_sub(wait).map_or(*count, |before| run.counts[before]);
        let ready = f64::from(before.min(*count));
        let started = minute.checked_sub(3).map_or(0, |before| (count - run.counts[before]).max(0));
        let load = shown(load(minute));
        let used = match service {
            Service::WarmUp => load + 0.5 * f64::from(started),
            Service::IoBound => load.min(ready / 3.0),
            _ => load.min(ready),
        };
        recording.set(Column::Usage, minute, used * past.request);
        recording.set(Column::Replicas, minute, f64::from(*count));
        recording.set(Column::Ready, minute, ready);
        for column in [Column::LowestRequest, Column::HighestRequest] {
            recording.set(column, minute, past.request);
        }
        recording.set(Column::ReplicaSets, minute, 1.0);
        recording.set(Column::Min, minute, f64::from(past.min));
        recording.set(Column::Max, minute, f64::from(past.max));
        recording.set(Column::Target, minute, f64::from(past.target));
    }
    recording
}

/// Loads per minute, in pods at full capacity, of which `pods` serve the highest thousandth: the series `NAME.csv.gz` of
/// the folder that `CONCERTINA_SERIES` names, or else twelve made ones.
pub(crate) fn loads(minutes: usize, pods: f64) -> Vec<Vec<f64>> {
    let scaled = |loads: Vec<f64>| {
        let mut sorted = loads.clone();
        sorted.sort_by(f64::total_cmp);
        let factor = pods / sorted[sorted.len() * 999 / 1000].max(1e-9);
        loads.into_iter().map(|load| load * factor).collect()
    };
    let Some(folder) = std::env::var_os("CONCERTINA_SERIES") else {
        return (0..12)
            .map(|shape| scaled((0..minutes).map(|minute| made(shape, minute)).collect()))
            .collect();
    };
    let files = std::fs::read_dir(folder).expect("the folder of series");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "gz"));
    files.sort();
    files.iter().map(|path| scaled(recorded(path, minutes))).collect()
}

/// A daily load with noise, between steady and steep.
fn made(shape: usize, minute: usize) -> f64 {
    let day = (minute % DAY) as f64 / DAY as f64 * std::f64::consts::TAU;
    let noise = (minute.wrapping_mul(7919) % 1000) as f64 / 1000.0;
    let depth = 0.1 * (shape % 9) as f64;
    (1.0 - depth * day.cos()).powi(1 + i32::from(shape.is_multiple_of(3))) * (0.95 + 0.1 * noise)
}

/// The loads of a file, from its start again where it ends. A gap has the load before it.
fn recorded(path: &Path, minutes: usize) -> Vec<f64> {
    let file = BufReader::new(GzDecoder::new(File::open(path).expect("a series")));
    let series = read(path, file).expect("a series");
    let mut last = 0.0;
    let known = series.loads.iter().cycle().take(minutes).map(|load| {
        last = load.unwrap_or(last);
        last
    });
    known.collect()
}
