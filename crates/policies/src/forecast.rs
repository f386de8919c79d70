//! `forecast`: a floor from the load of earlier days. The crate [`forecast`] contains the rules. This module converts a
//! decision to a load, collects the syncs of a minute, and applies the floor.

mod replay;

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::Decision;
use autoscaling::explanation::{DecisionPath, Measure, MetricReading, PodGroup};
use autoscaling::pod::{ConditionStatus, Pod};
use autoscaling::spec::Spec;
pub use forecast::Mode;
use forecast::reason::Reason;
pub use forecast::stored::{LONGEST, StoredError};
use forecast::{Band, Candidate, Observation, Outlook, Settings, State};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::replay::{NoTarget, Replay};
use crate::spec::ForecastSpec;

/// The share of its capacity from which a pod counts as saturated.
const SATURATED: f64 = 0.98;
/// The highest target of type Utilization with which a saturated pod is above its target.
const HIGHEST_TARGET: i32 = 90;
/// The longest start of a pod that counts, in minutes. A longer time to the Ready condition is that of a restart.
const LONGEST_START: usize = 15;
/// The share of pods that have started within the horizon.
const STARTED: f64 = 0.9;
/// Minutes after which a state is stored again.
const STORED: i64 = 60;

/// What one sync observed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The load in pods at full capacity. `None` if no metric has a load.
    pub load: Option<f64>,
    /// Whether the pods were saturated.
    pub saturated: bool,
    /// The count without a floor of the forecast.
    pub asked: i32,
    /// `maxReplicas`.
    pub max: i32,
    /// The minutes that a pod takes to start. `None` if no pod shows it.
    pub start_minutes: Option<i64>,
}

impl Sample {
    /// Returns what a sync observed. `decision`: the decision without a floor of the forecast. `ready`: the number of
    /// ready pods.
    pub fn new<'a>(
        spec: &ForecastSpec,
        decision: &Decision,
        pods: impl IntoIterator<Item = &'a Pod>,
        ready: i32,
    ) -> Self {
        let explanation = decision.explanation();
        let readings = explanation.metrics.iter().filter_map(|metric| metric.reading());
        let loads = readings.filter_map(|reading| load(reading, ready, spec.load_per_pod));
        let highest = loads.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let count = decision.count().unwrap_or(explanation.current);
        let asked = match &explanation.limit {
            // The rates of a scale-down start from a count that the floor may have raised.
            Some(limit) if spec.applies() && count <= explanation.current => {
                limit.before.min(explanation.max).max(explanation.min)
            }
            _ => count,
        };
        Self {
            load: highest.map(|(load, _)| load),
            saturated: highest.is_some_and(|(_, saturated)| saturated),
            asked,
            max: explanation.max,
            start_minutes: spec.start_minutes.or_else(|| start_minutes(pods)),
        }
    }
}

/// The load of a metric in pods at full capacity, and whether the pods are saturated. `None` for a target of 0.
fn load(reading: &MetricReading, ready: i32, load_per_pod: f64) -> Option<(f64, bool)> {
    let with_sample = match (reading.ready_pods, &*reading.pods, &*reading.unlisted) {
        (Some(ready), ..) => ready as f64,
        (None, [], []) => f64::from(ready),
        (None, pods, unlisted) => {
            let listed = pods.iter().filter(|pod| pod.group == PodGroup::Ready).count();
            let others = unlisted.iter().filter(|count| count.group == PodGroup::Ready);
            others.map(|count| f64::from(count.pods)).sum::<f64>() + listed as f64
        }
    };
    let (load, can_saturate) = match (reading.target, reading.value) {
        (Measure::Percent(target), Measure::Percent(value)) => {
            (f64::from(value) / 100.0 * with_sample, target <= HIGHEST_TARGET)
        }
        (Measure::MilliPerPod(target), Measure::MilliPerPod(value)) if target > 0 => {
            let total = reading.total.map_or(value as f64 * with_sample, |total| total as f64);
            (total / (target as f64 * load_per_pod), true)
        }
        (Measure::Milli(target), Measure::Milli(value)) if target > 0 => {
            (value as f64 / target as f64 * with_sample / load_per_pod, true)
        }
        _ => return None,
    };
    Some((load.max(0.0), can_saturate && with_sample > 0.0 && load >= SATURATED * with_sample))
}

/// The minutes within which most pods of a target became ready. `None` if no pod shows it.
fn start_minutes<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Option<i64> {
    let mut counts = [0_u32; LONGEST_START + 1];
    for pod in pods {
        let ready = pod.ready.as_ref().filter(|ready| ready.status == ConditionStatus::True);
        let Some((ready, started)) = ready.and_then(|ready| ready.since).zip(pod.start_time) else {
            continue;
        };
        let minutes = usize::try_from((ready.as_second() - started.as_second() + 59).div_euclid(60));
        if let Some(count) = minutes.ok().and_then(|minutes| counts.get_mut(minutes)) {
            *count += 1;
        }
    }
    let all: u32 = counts.iter().sum();
    let mut started = 0;
    let within = (0_i64..).zip(counts).find(|(_, count)| {
        started += count;
        f64::from(started) >= STARTED * f64::from(all)
    });
    within.filter(|_| all > 0).map(|(minutes, _)| minutes.max(1))
}

/// The state of one HPA's forecast, with the syncs of the current minute. The caller keeps it in memory.
#[derive(Debug, Clone)]
pub struct Forecast {
    state: State,
    /// The minute of the last sync since the Unix epoch, and what its syncs observed.
    minute: Option<(i64, Observation)>,
    /// The minutes that a pod takes to start.
    start_minutes: i64,
    /// The report of a minute, and the fields that it depends on.
    report: Option<(i64, Arc<ForecastSpec>, Arc<ForecastReport>)>,
    /// The minute in which the state was last stored, or the first minute.
    stored: Option<i64>,
    /// The read of the history from a source, until it succeeds.
    reading: Option<HistoryRead>,
}

/// The state of a read of the history from a source, with the source as a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryRead {
    /// The read has not ended.
    Pending(String),
    /// The last read failed, for the reason in the text.
    Failed(String),
}

impl Forecast {
    /// Creates a forecast without a history.
    pub fn new(uid: &str) -> Self {
        Self::with_state(State::new(uid))
    }

    /// Restores a forecast from the form that [`Self::observe`] returns.
    ///
    /// # Errors
    /// Returns the reason why the bytes are not a state of this HPA.
    pub fn restore(stored: &[u8], uid: &str) -> Result<Self, StoredError> {
        State::decode(stored, uid).map(Self::with_state)
    }

    fn with_state(state: State) -> Self {
        let start_minutes = Settings::default().start_minutes;
        Self { state, minute: None, start_minutes, report: None, stored: None, reading: None }
    }

    /// Whether the history is shorter than its minimum.
    pub fn is_short(&self, spec: &ForecastSpec) -> bool {
        self.state.is_short(&spec.settings)
    }

    /// Sets the state of the read that the reason of a history that is too short shows.
    pub fn set_reading(&mut self, reading: Option<HistoryRead>) {
        (self.reading, self.report) = (reading, None);
    }

    /// Creates a replay of the load before the forecast. `stabilization`: the window of scale-downs without `behavior`.
    ///
    /// # Errors
    /// Returns [`NoTarget`] if all targets of the HPA are of type Value.
    pub fn replay(
        &self,
        uid: &str,
        spec: &ForecastSpec,
        hpa: &Spec,
        stabilization: Duration,
    ) -> Result<Replay, NoTarget> {
        Replay::new(uid, spec, hpa, stabilization, self.start_minutes)
    }

    /// Continues the history of a replay, unless it belongs to another HPA, or the own history is as long.
    pub fn adopt(&mut self, replay: Replay) {
        if replay.state.extends(&self.state) {
            self.state = replay.state;
            // The next sync stores the state.
            self.stored = self.stored.map(|minute| minute.saturating_sub(STORED));
        }
        self.set_reading(None);
    }

    /// Learns the minutes before `now`, and returns the forecast for the minute of `now`. A second call in a minute
    /// changes nothing.
    pub fn report(&mut self, uid: &str, spec: &Arc<ForecastSpec>, now: Timestamp) -> Arc<ForecastReport> {
        let minute = minute_of(now);
        if let Some((_, _, report)) =
            self.report.as_ref().filter(|(of, by, _)| *of == minute && Arc::ptr_eq(by, spec))
        {
            return Arc::clone(report);
        }
        let settings = Settings { start_minutes: self.start_minutes, ..spec.settings.clone() };
        if let Some((observed, observation)) = self.minute.filter(|(observed, _)| *observed < minute) {
            let mut learn = |minute: i64, observation| {
                let end = Timestamp::from_second(minute.saturating_mul(60)).unwrap_or(now);
                // A refused observation counts as a gap.
                let _ = self.state.learn(uid, end, &observation, &settings);
            };
            learn(observed + 1, observation);
            if observed + 1 < minute {
                // The minutes between two syncs are a gap.
                learn(minute, Observation { load: None, saturated: false, ..observation });
            }
            self.minute = None;
        }
        let outlook = self.state.outlook(now, &settings);
        let report = Arc::new(ForecastReport::new(&outlook, spec, self.reading.as_ref()));
        self.report = Some((minute, Arc::clone(spec), Arc::clone(&report)));
        report
    }

    /// Adds what a sync observed at `now`. Returns the form to store, once in an hour.
    pub fn observe(&mut self, uid: &str, sample: &Sample, now: Timestamp) -> Option<Vec<u8>> {
        let minute = minute_of(now);
        let Sample { load, saturated, asked, max, start_minutes } = *sample;
        self.start_minutes = start_minutes.unwrap_or(self.start_minutes);
        let mut observation = Observation { load, saturated, asked, max_replicas: max };
        if let Some((_, earlier)) = self.minute.filter(|(observed, _)| *observed == minute)
            && earlier.load > load
        {
            (observation.load, observation.saturated) = (earlier.load, earlier.saturated);
        }
        self.minute = Some((minute, observation));
        // The states of many HPAs are not stored at once.
        let offset = uid.bytes().map(i64::from).sum::<i64>();
        let hour = |minute: i64| (minute.saturating_add(offset)).div_euclid(STORED);
        let stored = *self.stored.get_or_insert(minute);
        (hour(minute) != hour(stored)).then(|| {
            self.stored = Some(minute);
            self.state.encode()
        })
    }
}

fn minute_of(now: Timestamp) -> i64 {
    now.as_second().div_euclid(60)
}

/// The reason for a floor or for no floor, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForecastState {
    /// A floor pays.
    Pays,
    /// The HPA alone was never short.
    NoShortage,
    /// No forecast avoids the shortage.
    NoneAvoids,
    /// Every forecast costs more than the shortage.
    NonePays,
    /// Every forecast that pays is over the budget.
    OverBudget,
    /// The budget of the day is spent.
    DayBudget,
    /// The load is far below that of earlier days.
    Moved,
    /// The history is too short.
    ShortHistory,
    /// The history is too short, and its source cannot be read.
    HistoryUnread,
    /// The load of the last minute is not known.
    Unknown,
    /// Too many HPAs have a forecast.
    TooMany,
}

impl ForecastState {
    fn of(reason: &Reason) -> Self {
        match reason {
            Reason::Pays { .. } => Self::Pays,
            Reason::NoShortage => Self::NoShortage,
            Reason::NoneAvoids { .. } => Self::NoneAvoids,
            Reason::NonePays { .. } => Self::NonePays,
            Reason::OverBudget { .. } => Self::OverBudget,
            Reason::DayBudget { .. } => Self::DayBudget,
            Reason::Moved => Self::Moved,
            Reason::ShortHistory { .. } | Reason::OtherUid { .. } => Self::ShortHistory,
            Reason::Stale => Self::Unknown,
        }
    }

    /// The state without numbers that change in each minute.
    fn text(self) -> &'static str {
        match self {
            Self::Pays => "a forecast pays",
            Self::NoShortage => "the HPA alone was not short",
            Self::NoneAvoids => "no forecast would have avoided the shortage",
            Self::NonePays => "each forecast would have cost more than the shortage is worth",
            Self::OverBudget => "each forecast would have exceeded the budget",
            Self::DayBudget => "the budget of the day is spent",
            Self::Moved => "the load is far below that of earlier days",
            Self::ShortHistory => "the history is too short",
            Self::HistoryUnread => "the history is too short, and its source cannot be read",
            Self::Unknown => "the load of the last minute is not known",
            Self::TooMany => "too many HPAs have a forecast",
        }
    }
}

/// The forecast for one minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastReport {
    /// Whether the floor applies. Otherwise it is only shown.
    pub applies: bool,
    /// The reason in one word.
    pub state: ForecastState,
    /// The floor without the bounds of the HPA. `None` without a reason for a floor.
    pub floor: Option<i32>,
    /// The origin of the floor: `the highest load of similar days`. Empty without a floor.
    pub candidate: Arc<str>,
    /// The reason in a sentence with its numbers.
    pub reason: Arc<str>,
    /// The load that is expected until a pod that starts now is ready. `None` if none is known.
    pub band: Option<ForecastBand>,
    /// What the replay of the last eight days found about the floor. `None` without a reason for a floor.
    pub benefit: Option<ForecastBenefit>,
}

/// An expected load, in pods at full capacity, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForecastBand {
    /// The median of similar days.
    pub usual: i32,
    /// The load that 95 % of minutes do not exceed.
    pub upper: i32,
}

/// The effect of a floor in the last eight days, according to a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastBenefit {
    /// The shortage that the floor avoids, in pod-minutes.
    pub avoided: i64,
    /// The shortage of the HPA alone, in pod-minutes.
    pub short: i64,
    /// The pods that the floor adds, relative to those of the HPA alone, in thousandths.
    pub added_permille: i64,
}

impl ForecastReport {
    fn new(outlook: &Outlook, spec: &ForecastSpec, reading: Option<&HistoryRead>) -> Self {
        let highest = spec.highest.unwrap_or(i32::MAX);
        let floor = outlook.proposed.map(|floor| i32::try_from(floor).unwrap_or(i32::MAX).min(highest));
        let shown = u32::try_from(floor.unwrap_or_default()).unwrap_or_default();
        let (mut state, mut reason) = (ForecastState::of(&outlook.reason), outlook.reason.sentence(shown));
        match reading.filter(|_| state == ForecastState::ShortHistory) {
            Some(HistoryRead::Pending(source)) => {
                let _ = write!(reason, "; the history from {source} is being read");
            }
            Some(HistoryRead::Failed(problem)) => {
                state = ForecastState::HistoryUnread;
                let _ = write!(reason, "; history from {problem}");
            }
            None => {}
        }
        Self {
            applies: spec.applies(),
            state,
            floor,
            candidate: outlook.candidate.map(origin).unwrap_or_default().into(),
            reason: reason.into(),
            band: outlook.band.map(|Band { usual, upper }| {
                let [usual, upper] = [usual, upper].map(|load| whole(load.ceil().into()));
                ForecastBand { usual, upper }
            }),
            benefit: match outlook.reason {
                Reason::Pays { avoided, short, extra, .. } => {
                    let [avoided, short, added_permille] =
                        [avoided, short, extra * 1000.0].map(|amount| whole(amount.round().into()).into());
                    Some(ForecastBenefit { avoided, short, added_permille })
                }
                _ => None,
            },
        }
    }

    /// The report of an HPA beyond the maximum number of forecasts.
    pub fn too_many(spec: &ForecastSpec, maximum: usize) -> Self {
        let reason = format!("no floor: {maximum} other HPAs have a forecast, which is the maximum");
        Self {
            applies: spec.applies(),
            state: ForecastState::TooMany,
            floor: None,
            candidate: Arc::default(),
            reason: reason.into(),
            band: None,
            benefit: None,
        }
    }

    /// Whether a floor that is only shown is above a count. `None` if no count could be computed.
    pub fn would_raise(&self, count: Option<i32>) -> bool {
        self.is_preview() && self.floor > count
    }

    /// Whether a floor would apply in the mode Floor.
    pub fn is_preview(&self) -> bool {
        !self.applies && self.floor.is_some()
    }

    /// Applies the floor to the count of the HPA. Returns the count, and the step if a floor applies.
    pub(crate) fn apply(
        &self,
        path: DecisionPath,
        current: i32,
        count: Option<i32>,
        max: i32,
    ) -> (Option<i32>, Option<ForecastStep>) {
        let has_floor = matches!(path, DecisionPath::Metrics | DecisionPath::BelowMin) && current > 0;
        let Some(floor) = self.floor.filter(|_| self.applies && has_floor) else { return (count, None) };
        let floor = floor.min(max);
        let raised = match count {
            Some(count) => Some(count.max(floor)),
            // The metrics fail, so the floor can only add pods.
            None => Some(floor).filter(|floor| *floor > current),
        };
        let step = ForecastStep { candidate: Arc::clone(&self.candidate), floor, from: count, to: raised };
        (raised, Some(step))
    }
}

/// Prints the report without numbers that change in each minute, because the text is part of a condition.
impl fmt::Display for ForecastReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.floor, self.applies) {
            (Some(_), true) => write!(f, "the forecast sets a floor from {}", self.candidate),
            (Some(_), false) => write!(f, "preview: the forecast would set a floor from {}", self.candidate),
            (None, _) => write!(f, "the forecast has no floor: {}", self.state.text()),
        }
    }
}

/// Converts a whole number within the bounds of a count.
#[expect(clippy::cast_possible_truncation, reason = "a number that is too large becomes the highest count")]
fn whole(number: f64) -> i32 {
    number as i32
}

fn origin(candidate: Candidate) -> String {
    let days = candidate.quantile.map(|quantile| {
        if quantile < 1.0 {
            format!("the load of similar days at their {:.0} % quantile", quantile * 100.0)
        } else {
            "the highest load of similar days".to_owned()
        }
    });
    match (days, candidate.slope) {
        (Some(days), false) => days,
        (Some(days), true) => format!("{days} and the rise of the last minutes"),
        (None, _) => "the rise of the last minutes".to_owned(),
    }
}

/// The floor of a forecast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastStep {
    /// The origin of the floor.
    pub candidate: Arc<str>,
    /// The floor, within the bounds of the HPA.
    pub floor: i32,
    /// The count of the HPA alone. `None` if it could not be computed.
    pub from: Option<i32>,
    /// The count with the floor, before guards and mode.
    pub to: Option<i32>,
}

impl ForecastStep {
    /// Whether the floor changes the count.
    pub fn raises(&self) -> bool {
        self.from != self.to
    }
}

/// Prints the step without numbers that change in each minute, because the text is part of a condition.
impl fmt::Display for ForecastStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the forecast sets a floor from {}", self.candidate)
    }
}

#[cfg(test)]
mod tests;
