//! The contestants of a backtest: the HPA alone, with the floors of the forecast, with a lower target, and with an
//! oracle that knows the load of the next minutes.

use forecast::{Observation, Outlook, Settings, State};
use jiff::Timestamp;

use crate::number::{ceil_to_count, length};
use crate::replay::{ReplayError, Run, World, replay};
use crate::series::Series;

/// The target of the contestant with more headroom, in percent.
const LOWER_TARGET: i32 = 45;
/// The utilization of the oracle's pods.
const UTILIZATION: f64 = 0.9;

/// A contestant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contestant {
    /// The HPA alone.
    Alone,
    /// The HPA with the floors of the forecast.
    Floor,
    /// The HPA alone with a target of 45 %.
    LowerTarget,
    /// The HPA with floors for the actual load of the next minutes.
    Oracle,
}

impl Contestant {
    /// The name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Floor => "floor",
            Self::LowerTarget => "target45",
            Self::Oracle => "oracle",
        }
    }

    /// The name in texts.
    pub fn title(self) -> &'static str {
        match self {
            Self::Alone => "HPA alone",
            Self::Floor => "HPA with the floor",
            Self::LowerTarget => "HPA alone with a target of 45 %",
            Self::Oracle => "HPA with an oracle as the floor",
        }
    }
}

/// What the forecast said about each minute of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Floors {
    /// The floor of each minute. 0 is none.
    pub floors: Vec<i32>,
    /// The expected load of each minute and of those until a pod that starts in it is ready, which 95 % of loads do not
    /// exceed. `None` if none is known.
    pub uppers: Vec<Option<f64>>,
    /// The share of judged minutes within the band.
    pub coverage: f64,
    /// The share of judged minutes within the band whose load rose by more than 30 % in 4 minutes. `None` without such
    /// minutes.
    pub coverage_rising: Option<f64>,
    /// The forecast for the minute after the series.
    pub last: Outlook,
}

/// The results of a backtest.
#[derive(Debug, Clone, PartialEq)]
pub struct Backtest {
    /// The replays.
    pub runs: Vec<(Contestant, Run)>,
    /// The forecast.
    pub floors: Floors,
    /// The number of minutes that only taught.
    pub history: usize,
    /// The first judged minute.
    pub judged_from: Timestamp,
}

/// Replays a series with the HPA alone, with the floors, and with other contestants. The first `history` minutes only
/// teach the forecast.
///
/// # Errors
/// Returns a [`ReplayError`] if the replay's own objects are invalid.
pub fn backtest(
    series: &Series,
    world: &World,
    settings: &Settings,
    history: usize,
    others: &[Contestant],
) -> Result<Backtest, ReplayError> {
    let run = |world: &World, floors: &[i32]| replay(series, world, floors, history);
    let alone = run(world, &[])?;
    let floors = floors(series, &alone.counts, world, settings, history);
    let floor = run(world, &floors.floors)?;
    let mut runs = vec![(Contestant::Alone, alone), (Contestant::Floor, floor)];
    for other in others {
        let found = match other {
            Contestant::Alone | Contestant::Floor => continue,
            Contestant::LowerTarget => run(&World { target: LOWER_TARGET, ..world.clone() }, &[]),
            Contestant::Oracle => run(world, &oracle(series, world.start_minutes())),
        };
        runs.push((*other, found?));
    }
    Ok(Backtest { runs, floors, history, judged_from: series.time(history) })
}

/// Forecasts each minute of a series from the minutes before. `asked`: the count of the HPA alone at the end of each
/// minute. The time that a pod takes to start is that of the world.
pub fn floors(series: &Series, asked: &[i32], world: &World, settings: &Settings, history: usize) -> Floors {
    let settings = &Settings { start_minutes: world.start_minutes(), ..settings.clone() };
    let mut state = State::new("");
    let (mut floors, mut uppers) = (Vec::new(), Vec::new());
    let outlook = |state: &State, minute| state.outlook(series.time(minute), settings);
    for (minute, (load, asked)) in series.loads.iter().zip(asked).enumerate() {
        let now = outlook(&state, minute);
        floors.push(now.proposed.map_or(0, |floor| i32::try_from(floor).unwrap_or(i32::MAX)));
        uppers.push(now.band.map(|band| f64::from(band.upper)));
        let observed =
            Observation { load: *load, saturated: false, asked: *asked, max_replicas: world.max_replicas };
        // Loads and times of a series are valid.
        let _ = state.learn("", series.time(minute + 1), &observed, settings);
    }
    let start = usize::try_from(settings.start_minutes).unwrap_or(1);
    let at = |minute: usize| series.loads.get(minute).copied().flatten();
    let (mut minutes, mut covered, mut rising, mut rising_covered) = (0_u32, 0_u32, 0_u32, 0_u32);
    for minute in history.max(start)..series.loads.len() {
        let Some((load, upper)) = at(minute).zip(uppers.get(minute - start).copied().flatten()) else {
            continue;
        };
        let is_rising = minute.checked_sub(4).and_then(at).is_some_and(|before| load > 1.3 * before);
        let is_covered = u32::from(load <= upper);
        minutes += 1;
        covered += is_covered;
        if is_rising {
            rising += 1;
            rising_covered += is_covered;
        }
    }
    let share = |part: u32, all: u32| (all > 0).then(|| f64::from(part) / f64::from(all));
    Floors {
        floors,
        uppers,
        coverage: share(covered, minutes).unwrap_or_default(),
        coverage_rising: share(rising_covered, rising),
        last: outlook(&state, series.loads.len()),
    }
}

/// The floors of an oracle, which knows the load until a pod that starts now is ready.
fn oracle(series: &Series, start_minutes: i64) -> Vec<i32> {
    let minutes = length(series.loads.len());
    let window = |minute: i64| {
        let until = (minute + start_minutes + 1).min(minutes);
        let range = usize::try_from(minute).unwrap_or_default()..usize::try_from(until).unwrap_or_default();
        series.loads.get(range).into_iter().flatten().flatten().copied().fold(0.0, f64::max)
    };
    (0..minutes).map(|minute| ceil_to_count(window(minute) / UTILIZATION)).collect()
}
