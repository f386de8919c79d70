//! What was recorded of an HPA and its workload, minute by minute, and the load that follows from it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::outcome::Refusal;
use backtest::replay::Metric;
use backtest::series::Series;

/// The minutes of a day.
pub(crate) const DAY: usize = 1440;
/// The fewest minutes with a known load.
const FEWEST: usize = 3 * DAY;
/// A utilization from which a pod is taken to be saturated, and the factor of the load that it hides. No load is above
/// the capacity of its pods times the factor: a counter that jumps is no load.
const SATURATED: (f64, f64) = (0.98, 1.5);
/// The highest capacity of a pod, in its requests.
const MOST_CAPACITY: f64 = 10.0;
/// What a pod is taken to serve of an external metric, in its targets, as in a forecast.
pub(crate) const CAPACITY_OF_EXTERNAL: f64 = 1.5;
/// The times that a pod takes to start, in seconds, if too few starts were recorded.
const USUAL_START: (f64, f64) = (60.0, 180.0);
/// The fewest recorded starts.
const FEWEST_STARTS: usize = 3;
/// The longest start in minutes.
const LONGEST_START: usize = 15;

/// A recorded series. All values are those at the end of a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// The cpu usage of all pods of the target, in cores, or the value of the external metric.
    Usage,
    /// The lowest cpu request of a pod of the target, in cores.
    LowestRequest,
    /// The highest cpu request of a pod of the target, in cores.
    HighestRequest,
    /// `status.currentReplicas` of the HPA.
    Replicas,
    /// The ready pods of the target.
    Ready,
    /// The ReplicaSets of the target with replicas.
    ReplicaSets,
    /// `spec.minReplicas`.
    Min,
    /// `spec.maxReplicas`.
    Max,
    /// The target of the metric, in percent or as the value that the HPA has.
    Target,
    /// The memory usage of all pods, relative to their requests.
    Memory,
    /// The age of the target in seconds.
    Age,
}

impl Column {
    /// All columns.
    pub const ALL: [Self; 11] = [
        Self::Usage,
        Self::LowestRequest,
        Self::HighestRequest,
        Self::Replicas,
        Self::Ready,
        Self::ReplicaSets,
        Self::Min,
        Self::Max,
        Self::Target,
        Self::Memory,
        Self::Age,
    ];
}

/// The unit of a usage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unit {
    /// Cores. The requests are recorded.
    Cores,
    /// The cpu requests of a pod.
    Requests,
    /// That of an external metric.
    Value {
        /// The target per pod.
        per_pod: f64,
    },
}

impl Unit {
    /// The metric of a replay.
    pub(crate) fn metric(self) -> Metric {
        if matches!(self, Self::Value { .. }) { Metric::External } else { Metric::Cpu }
    }
}

/// The recorded values of one HPA and its workload, per minute.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The start of the first minute.
    pub start: Timestamp,
    /// The number of minutes.
    pub minutes: usize,
    /// The unit of the usage.
    pub unit: Unit,
    /// Whether a usage is the highest of its time, and not that at the end of the minute.
    pub is_upper_bound: bool,
    columns: BTreeMap<Column, Vec<Option<f32>>>,
}

impl Recording {
    /// Creates a recording without values.
    pub fn new(start: Timestamp, minutes: usize) -> Self {
        Self { start, minutes, unit: Unit::Cores, is_upper_bound: false, columns: BTreeMap::new() }
    }

    /// Sets a value. A minute outside of the recording, and a value that is not a number from 0, are ignored.
    pub fn set(&mut self, column: Column, minute: usize, value: f64) {
        let minutes = self.minutes;
        let values = self.columns.entry(column).or_insert_with(|| vec![None; minutes]);
        if let Some(known) = values.get_mut(minute).filter(|_| value.is_finite() && value >= 0.0) {
            *known = Some(narrow(value));
        }
    }

    /// The value of a minute. `None` if it is unknown.
    pub fn at(&self, column: Column, minute: usize) -> Option<f64> {
        self.columns.get(&column)?.get(minute).copied().flatten().map(f64::from)
    }

    /// Whether a column has a value.
    pub fn has(&self, column: Column) -> bool {
        self.columns.get(&column).is_some_and(|values| values.iter().any(Option::is_some))
    }

    /// The known values of a column from a minute on, with their minutes.
    pub fn known(&self, column: Column, from: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        (from..self.minutes).filter_map(move |minute| Some((minute, self.at(column, minute)?)))
    }

    /// The start of a minute.
    pub fn time(&self, minute: usize) -> Timestamp {
        Series { start: self.start, loads: Vec::new() }.time(minute)
    }

    /// The pods that serve in a minute: the ready ones, or else all.
    fn pods(&self, minute: usize) -> Option<f64> {
        let pods = self.at(Column::Ready, minute).or_else(|| self.at(Column::Replicas, minute));
        pods.filter(|pods| *pods > 0.0)
    }

    /// The last minute that another target of the same name, a rollout or a change of the requests affects, with its
    /// reason.
    fn last_change(&self, request: f64) -> Option<(usize, Refusal)> {
        let differs = |column| {
            let values = self.known(column, 0).filter(|(_, value)| (value / request - 1.0).abs() > 0.01);
            values.last().map(|(minute, _)| minute)
        };
        let requests = differs(Column::LowestRequest).max(differs(Column::HighestRequest));
        let rollout = self.known(Column::ReplicaSets, 0).filter(|(_, sets)| *sets > 1.0).last();
        let requests = requests.map(|minute| (minute, Refusal::RequestsChanged { at: self.time(minute) }));
        let rollout = rollout.map(|(minute, _)| (minute, Refusal::Rollout { at: self.time(minute) }));
        let created = self.known(Column::Age, 0).last();
        let created = created.and_then(|(minute, age)| minute.checked_sub(index(age / 60.0)));
        let created = created.map(|minute| (minute, Refusal::Created { at: self.time(minute) }));
        [created, requests, rollout].into_iter().flatten().max_by_key(|(minute, _)| *minute)
    }

    /// The bounds of the time that a pod takes to start, in seconds: 10 % and 90 % of the recorded ones.
    fn pod_start(&self, from: usize) -> (f64, f64) {
        let mut starts: Vec<f64> = Vec::new();
        for minute in from + 1..self.minutes {
            let (Some(before), Some(after)) =
                (self.at(Column::Replicas, minute - 1), self.at(Column::Replicas, minute))
            else {
                continue;
            };
            if after > before {
                let are_ready =
                    |wait: &usize| self.at(Column::Ready, minute + wait).is_some_and(|ready| ready >= after);
                starts.extend((0..=LONGEST_START).find(are_ready).map(|wait| wait as f64 * 60.0 + 30.0));
            }
        }
        starts.sort_by(f64::total_cmp);
        match (quantile(&starts, 0.1), quantile(&starts, 0.9)) {
            (Some(low), Some(high)) if starts.len() >= FEWEST_STARTS => (low, high),
            _ => USUAL_START,
        }
    }

    /// The load of the workload since the last rollout and the last change of its requests.
    ///
    /// # Errors
    /// Returns the reason why the load is unknown, or too short.
    pub fn load(&self) -> Result<Load, Refusal> {
        if !self.has(Column::Usage) {
            return Err(match self.unit {
                _ if self.is_upper_bound => Refusal::NotRecorded { what: "reading of its metric" },
                Unit::Value { .. } => Refusal::NoValues,
                Unit::Cores | Unit::Requests => Refusal::NoUsage,
            });
        }
        let last = self.known(Column::Usage, 0).last().map(|(minute, _)| minute);
        if let Some(last) = last.filter(|last| self.minutes - last > DAY) {
            return Err(Refusal::Ended { at: self.time(last) });
        }
        let request = match self.unit {
            Unit::Cores => self.known(Column::HighestRequest, 0).last().map(|(_, cores)| cores),
            Unit::Requests => Some(1.0),
            Unit::Value { per_pod } => Some(per_pod),
        };
        let request = request.filter(|request| *request > 0.0).ok_or(Refusal::NoRequests)?;
        let change = self.last_change(request);
        let from = change.as_ref().map_or(0, |(minute, _)| minute + 1);
        let utilization =
            |minute: usize| Some(self.at(Column::Usage, minute)? / request / self.pods(minute)?);
        let mut utilizations: Vec<f64> = (from..self.minutes).filter_map(utilization).collect();
        if utilizations.len() < FEWEST {
            let days = utilizations.len() as f64 / DAY as f64;
            return Err(change.map_or(Refusal::TooShort { days }, |(_, reason)| reason));
        }
        utilizations.sort_by(f64::total_cmp);
        let highest = quantile(&utilizations, 0.999).unwrap_or_default();
        // A pod without a limit uses more than its request.
        let capacity = match self.unit.metric() {
            Metric::External => CAPACITY_OF_EXTERNAL,
            Metric::Cpu if highest > 1.05 => ((highest * 4.0).ceil() / 4.0).min(MOST_CAPACITY),
            Metric::Cpu => 1.0,
        };
        let load = |minute: usize| {
            let load = self.at(Column::Usage, minute)? / request / capacity;
            let pods = self.pods(minute).filter(|_| self.unit.metric() == Metric::Cpu);
            let Some(pods) = pods else { return Some(load) };
            let is_saturated = capacity == 1.0 && load >= SATURATED.0 * pods;
            Some(if is_saturated { load * SATURATED.1 } else { load }.min(pods * SATURATED.1))
        };
        Ok(Load {
            from,
            unit: self.unit,
            is_upper_bound: self.is_upper_bound,
            series: Series { start: self.time(from), loads: (from..self.minutes).map(load).collect() },
            request,
            capacity,
            pod_start: self.pod_start(from),
            utilizations,
        })
    }
}

/// The load of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The first minute of the recording that counts.
    pub from: usize,
    /// The unit of the recorded usage.
    pub unit: Unit,
    /// Whether the load of a minute is the highest of a longer time.
    pub is_upper_bound: bool,
    /// The load per minute, in pods at full capacity.
    pub series: Series,
    /// The cpu request of a pod in cores, 1, or the target per pod of the external metric: see the unit.
    pub request: f64,
    /// The capacity of a pod, in requests: 1, or more if pods were seen to use more.
    pub capacity: f64,
    /// The bounds of the time that a pod takes to start, in seconds.
    pub pod_start: (f64, f64),
    /// The utilizations of the pods relative to their requests, ascending.
    pub utilizations: Vec<f64>,
}

impl Load {
    /// The cpu request of a pod in cores. `None` if it is unknown, or for an external metric.
    pub(crate) fn cores(&self) -> Option<f64> {
        (self.unit == Unit::Cores).then_some(self.request)
    }

    /// The number of known days.
    pub fn days(&self) -> f64 {
        self.series.loads.iter().flatten().count() as f64 / DAY as f64
    }

    /// The minute before which a share of the load is known.
    pub(crate) fn minute_of(&self, share: f64) -> usize {
        let known = |(minute, load): (usize, &Option<f64>)| load.map(|_| minute);
        let minutes: Vec<usize> = self.series.loads.iter().enumerate().filter_map(known).collect();
        minutes.get(index(minutes.len() as f64 * share)).copied().unwrap_or_default()
    }

    /// The utilization in percent that the pods reached in at least `minutes` minutes.
    pub fn seen_for(&self, minutes: usize) -> f64 {
        let at = self.utilizations.len().checked_sub(minutes.max(1));
        at.and_then(|at| self.utilizations.get(at)).copied().unwrap_or_default() * 100.0
    }
}

/// The quantile of sorted values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(index(share * last as f64).min(last)).copied()
}

/// Rounds a share of a length to an index. NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
pub(crate) fn index(value: f64) -> usize {
    value.round() as usize
}

/// The nearest 32-bit float.
#[expect(clippy::cast_possible_truncation, reason = "a recorded value needs seven digits")]
fn narrow(value: f64) -> f32 {
    value as f32
}
