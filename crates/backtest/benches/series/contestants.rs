//! Contestants that are only measured: other settings of the HPA, and floors from other forecasts. Each floor is from
//! the loads before its minute.

use autoscaling::spec::{Behavior, PolicyKind, ScalingPolicy, ScalingRules};
use backtest::replay::World;
use backtest::series::Series;
use jiff::tz::TimeZone;

const DAY: usize = 1440;
const WEEK: usize = 7 * DAY;
/// The minutes that a forecast is for: until a pod that starts now is ready.
const AHEAD: usize = 4;
/// The utilization of an HPA's target, and that of a pod that is nearly full.
const TARGET: f64 = 0.6;
const FULL: f64 = 0.9;

/// A contestant: its world, and its floors.
pub(crate) type Contestant = (&'static str, World, Vec<i32>);

/// All contestants on a series.
pub(crate) fn contestants(series: &Series, world: &World) -> Vec<Contestant> {
    let loads = without_gaps(series);
    let floors = |utilization: f64, forecast: &[f64]| -> Vec<i32> {
        forecast.iter().map(|load| backtest::number::ceil_to_count(load / utilization)).collect()
    };
    let quantile = |forecast: &[f64]| with_margin(&loads, forecast);
    let window = World { behavior: Some(with_window(3600)), ..world.clone() };
    let fresh = World { metric_age: 3, ..world.clone() };
    let lower = World { target: 45, ..world.clone() };
    let floor = |name, utilization, forecast: &[f64]| (name, world.clone(), floors(utilization, forecast));
    let week = quantile(&naive(&loads, WEEK));
    vec![
        ("target 45 %", lower, Vec::new()),
        ("window of scale-downs of 1 h", window, Vec::new()),
        ("metrics 3 s old", fresh, Vec::new()),
        floor("schedule by hand, at 60 %", TARGET, &schedule(series, &loads)),
        floor("same time yesterday, q95, at 60 %", TARGET, &quantile(&naive(&loads, DAY))),
        floor("same time last week, q95, at 60 %", TARGET, &week),
        floor("same time last week, q95, at 90 %", FULL, &week),
        floor("Holt-Winters, q95, at 60 %", TARGET, &quantile(&holt_winters(&loads))),
        floor("Holt-Winters, q95, at 90 %", FULL, &quantile(&holt_winters(&loads))),
        floor("harmonics of a day and 15 %, at 60 %", TARGET, &harmonics(&loads)),
        floor("ridge regression, q95, at 60 %", TARGET, &quantile(&ridge(&loads))),
        floor("slope of 2 min, at 90 %", FULL, &slope(&loads)),
    ]
}

fn without_gaps(series: &Series) -> Vec<f64> {
    let mut last = 0.0;
    let known = series.loads.iter().map(|load| {
        last = load.unwrap_or(last);
        last
    });
    known.collect()
}

/// The rules of upstream with another window of scale-downs, in seconds.
fn with_window(window: i32) -> Behavior {
    let policy = |kind, value| ScalingPolicy { kind, value, period_seconds: 15 };
    let all = policy(PolicyKind::Percent, 100);
    let rules = |stabilization_window_seconds, policies: &[ScalingPolicy]| ScalingRules {
        stabilization_window_seconds,
        policies: policies.into(),
        ..ScalingRules::default()
    };
    Behavior {
        scale_up: rules(Some(0), &[policy(PolicyKind::Pods, 4), all]),
        scale_down: rules(Some(window), &[all]),
    }
}

/// The highest load from a minute on, until a pod that starts in it is ready.
fn ahead(loads: &[f64], minute: usize) -> f64 {
    let until = (minute + AHEAD).min(loads.len());
    loads.get(minute..until).into_iter().flatten().copied().fold(0.0, f64::max)
}

/// Adds the 95 % quantile of the errors of the last seven days, which is renewed each hour.
fn with_margin(loads: &[f64], forecast: &[f64]) -> Vec<f64> {
    let mut margin = 0.0;
    let came: Vec<f64> = (0..loads.len()).map(|minute| ahead(loads, minute)).collect();
    let with = |(minute, load): (usize, &f64)| {
        if minute % 60 == 0 && minute > DAY + AHEAD {
            let from = minute.saturating_sub(WEEK).max(DAY);
            let mut errors: Vec<f64> =
                (from..minute - AHEAD).map(|before| came[before] - forecast[before]).collect();
            errors.sort_by(f64::total_cmp);
            margin = errors.get(errors.len() * 95 / 100).copied().unwrap_or_default().max(0.0);
        }
        load + margin
    };
    forecast.iter().enumerate().map(with).collect()
}

/// The highest load of each hour of the first week, on weekdays or at weekends.
fn schedule(series: &Series, loads: &[f64]) -> Vec<f64> {
    let kind = |minute: usize| {
        let time = series.time(minute).to_zoned(TimeZone::UTC);
        let is_weekend = time.weekday().to_monday_zero_offset() > 4;
        (is_weekend, usize::try_from(time.hour()).unwrap_or_default())
    };
    let mut highest = [[0.0_f64; 24]; 2];
    for (minute, load) in loads.iter().enumerate().take(WEEK) {
        let (is_weekend, hour) = kind(minute);
        let known = &mut highest[usize::from(is_weekend)][hour];
        *known = known.max(*load);
    }
    let planned = |minute| {
        let (is_weekend, hour) = kind(minute);
        if minute < WEEK { 0.0 } else { highest[usize::from(is_weekend)][hour] }
    };
    (0..loads.len()).map(planned).collect()
}

/// The load of the same time, some minutes ago.
fn naive(loads: &[f64], ago: usize) -> Vec<f64> {
    (0..loads.len())
        .map(|minute| minute.checked_sub(ago).map_or(0.0, |before| ahead(loads, before)))
        .collect()
}

/// Holt-Winters with an additive season of a day and without a trend. The two weights are those of a small grid with the
/// least squared errors in the first week.
fn holt_winters(loads: &[f64]) -> Vec<f64> {
    let run = |level_weight: f64, season_weight: f64| {
        let (mut level, mut season, mut errors) = (0.0, vec![0.0; DAY], 0.0);
        let mut forecast = Vec::new();
        for (minute, load) in loads.iter().enumerate() {
            if minute < DAY {
                forecast.push(0.0);
                level += load / DAY as f64;
                continue;
            }
            if minute == DAY {
                season = loads[..DAY].iter().map(|load| load - level).collect();
            }
            let next = |ahead: usize| season[(minute + ahead) % DAY];
            forecast.push(level + (0..AHEAD).map(next).fold(f64::MIN, f64::max));
            let here = &mut season[minute % DAY];
            let error = load - level - *here;
            if minute < WEEK {
                errors += error * error;
            }
            level += level_weight * error;
            *here += season_weight * error;
        }
        (errors, forecast)
    };
    let grid = [0.02, 0.1, 0.3, 0.6].iter().flat_map(|level| [0.05, 0.2, 0.5].map(|season| (*level, season)));
    let best = grid.map(|(level, season)| run(level, season)).min_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, forecast)| forecast).unwrap_or_default()
}

/// The mean day of the last week, of the 40 slowest harmonics, with a margin of 15 %, as Crane's DSP: renewed each day.
fn harmonics(loads: &[f64]) -> Vec<f64> {
    let mut forecast = Vec::new();
    let mut day = vec![0.0; DAY];
    for minute in 0..loads.len() {
        if minute.is_multiple_of(DAY) && minute >= DAY {
            let days = (minute / DAY).min(7);
            let mean = |of_day: usize| {
                (1..=days).map(|ago| loads[minute + of_day - ago * DAY]).sum::<f64>() / days as f64
            };
            let mean: Vec<f64> = (0..DAY).map(mean).collect();
            day = slowest(&mean, 40);
        }
        let next = (0..AHEAD).map(|ahead| day[(minute + ahead) % DAY]).fold(0.0, f64::max);
        forecast.push(1.15 * next);
    }
    forecast
}

/// Keeps the slowest harmonics of values.
fn slowest(values: &[f64], harmonics: usize) -> Vec<f64> {
    let count = values.len() as f64;
    let mut kept = vec![values.iter().sum::<f64>() / count; values.len()];
    for harmonic in 1..=harmonics {
        let angle = |at: usize| (at * harmonic % values.len()) as f64 / count * std::f64::consts::TAU;
        let (mut cosine, mut sine) = (0.0, 0.0);
        for (at, value) in values.iter().enumerate() {
            cosine += value * angle(at).cos() * 2.0 / count;
            sine += value * angle(at).sin() * 2.0 / count;
        }
        for (at, value) in kept.iter_mut().enumerate() {
            *value += cosine * angle(at).cos() + sine * angle(at).sin();
        }
    }
    kept
}

/// Ridge regression on the last load and on those of the same time yesterday and last week, as Kapacity's: renewed each
/// day from the last week.
fn ridge(loads: &[f64]) -> Vec<f64> {
    const TERMS: usize = 4;
    let terms = |minute: usize| {
        let before = |ago: usize| minute.checked_sub(ago).map_or(0.0, |before| ahead(loads, before));
        [1.0, minute.checked_sub(1).map_or(0.0, |last| loads[last]), before(DAY), before(WEEK)]
    };
    let mut weights = [0.0; TERMS];
    let mut forecast = Vec::new();
    for minute in 0..loads.len() {
        if minute.is_multiple_of(DAY) && minute > DAY {
            let mut rows = [[0.0; TERMS + 1]; TERMS];
            for known in minute.saturating_sub(WEEK).max(DAY)..minute - AHEAD {
                let (terms, goal) = (terms(known), ahead(loads, known));
                for (row, term) in rows.iter_mut().zip(terms) {
                    row.iter_mut().zip(terms).for_each(|(sum, other)| *sum += term * other);
                    row[TERMS] += term * goal;
                }
            }
            for (at, row) in rows.iter_mut().enumerate() {
                row[at] += 1.0;
            }
            weights = solved(rows);
        }
        let found: f64 = terms(minute).iter().zip(weights).map(|(term, weight)| term * weight).sum();
        forecast.push(found.max(0.0));
    }
    forecast
}

/// Solves linear equations whose matrix is positive definite. The last column is the right side.
fn solved<const N: usize, const M: usize>(mut rows: [[f64; M]; N]) -> [f64; N] {
    for at in 0..N {
        let pivot = rows[at];
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let factor = row[at] / pivot[at];
            row.iter_mut().zip(pivot).for_each(|(value, of_pivot)| *value -= factor * of_pivot);
        }
    }
    std::array::from_fn(|at| rows[at][M - 1] / rows[at][at])
}

/// The last load, and its growth until a pod that starts now is ready.
fn slope(loads: &[f64]) -> Vec<f64> {
    let next = |minute: usize| {
        let Some(before) = minute.checked_sub(3) else { return 0.0 };
        let now = loads[minute - 1];
        now + AHEAD as f64 * ((now - loads[before]) / 2.0).max(0.0)
    };
    (0..loads.len()).map(next).collect()
}
