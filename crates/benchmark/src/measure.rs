//! Computes a report from the server's observations and the usage of the processes, and the medians of several reports.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Failure;
use crate::observations::{HpaObservations, Micros, Observations, PendingReaction, Usage};
use crate::workload::Workload;

/// A sync is on time if its lateness is at most this number of seconds.
const ON_TIME: f64 = 1.0;

/// The inputs of a report: the parameters of a run and its observations.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) label: String,
    /// The command line of the controller.
    pub(crate) controller: String,
    /// The sync period in seconds.
    pub(crate) period: f64,
    pub(crate) started: Micros,
    /// The time of the restart or failover, if any.
    pub(crate) restarted: Option<Micros>,
    pub(crate) observed: &'a Observations,
    /// CPU seconds of the controller in the measured time.
    pub(crate) cpu: f64,
    /// Instructions of the controller outside the kernel in the measured time, if counted.
    pub(crate) instructions: Option<f64>,
    /// Samples of the controller's resident bytes in the measured time.
    pub(crate) resident: Vec<u64>,
    /// The usage of the last controller process since its start.
    pub(crate) last: Usage,
    /// The number of syncs in the measured time, from the controller's metrics.
    pub(crate) own_syncs: Option<f64>,
    /// The share of syncs on time, from the controller's metrics.
    pub(crate) own_on_time: Option<f64>,
}

/// The distribution of a figure, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    /// The number of expected reactions that did not occur.
    pub(crate) missing: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// The averages of a kind of request, per sync.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PerSync {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) requests: f64,
    /// Requests with a response other than 2xx.
    pub(crate) failed: f64,
    /// Bytes of request bodies. `sent` has the bytes of response bodies.
    pub(crate) received: f64,
    pub(crate) sent: f64,
}

impl PerSync {
    /// Returns whether two entries have the same verb and resource.
    pub(crate) fn same_kind(&self, other: &Self) -> bool {
        (&self.verb, &self.resource) == (&other.verb, &other.resource)
    }
}

/// All figures of a run, or the medians of several runs. This type is the format of stored reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) label: String,
    pub(crate) workload: Workload,
    /// `embedded`, or the name of the real server.
    pub(crate) server: String,
    /// The command line of the controller.
    pub(crate) controller: String,
    /// The number of runs. With several runs, each figure is the median.
    pub(crate) runs: usize,
    /// The sync period in seconds.
    pub(crate) period: f64,
    /// The measured time in seconds.
    pub(crate) measured: f64,
    pub(crate) syncs: f64,
    /// The number of observed syncs divided by the expected number, one per HPA and period.
    pub(crate) done: f64,
    /// The share of syncs due in the measured time that wrote a status at most a second late. Without status writes,
    /// and with withheld ones, the value of [`Self::own_on_time`].
    pub(crate) on_time: Option<f64>,
    pub(crate) lateness: Option<Spread>,
    /// The share of syncs on time, from the controller's metrics.
    pub(crate) own_on_time: Option<f64>,
    pub(crate) requests: Vec<PerSync>,
    pub(crate) requests_per_sync: f64,
    /// Bytes on the wire per sync, if counted.
    pub(crate) received_per_sync: Option<f64>,
    pub(crate) sent_per_sync: Option<f64>,
    /// CPU seconds per 1,000 syncs.
    pub(crate) controller_cpu: f64,
    pub(crate) server_cpu: f64,
    /// CPU seconds of etcd per 1,000 syncs. Only with a real server.
    #[serde(default)]
    pub(crate) etcd_cpu: Option<f64>,
    #[serde(default)]
    /// CPU seconds of this program with its metrics server, per 1,000 syncs. Only with a real server.
    pub(crate) beside_cpu: Option<f64>,
    /// Instructions of the controller outside the kernel, per sync. The other figures of a run with this count are
    /// meaningless.
    pub(crate) instructions_per_sync: Option<f64>,
    /// The median of the controller's resident bytes in the measured time.
    pub(crate) resident: f64,
    /// The maximum of the controller's resident bytes since its start.
    pub(crate) resident_peak: f64,
    pub(crate) server_resident: f64,
    /// Seconds from a metric change to the scale write.
    pub(crate) reaction: Option<Spread>,
    /// Seconds from the creation of an HPA to its first status.
    pub(crate) creation: Option<Spread>,
    /// Seconds from a spec change to a status that observes it.
    pub(crate) spec_change: Option<Spread>,
    /// Seconds from the start of the controller until every HPA has a status.
    pub(crate) all_decided: Option<f64>,
    /// Seconds from the restart or failover until every HPA has a new status.
    pub(crate) all_decided_again: Option<f64>,
    /// The maximum number of requests in one second, in multiples of the mean.
    pub(crate) burst: f64,
}

impl Run<'_> {
    pub(crate) fn report(self, server: &str) -> Report {
        let Observations { begin: start, end, .. } = *self.observed;
        let ordinary: Vec<_> = self.observed.hpas.values().filter(|seen| !seen.special).collect();
        let measured = seconds(end - start);
        let within = |seen: &HpaObservations| {
            seen.statuses.iter().filter(|at| (start..end).contains(*at)).count() as f64
        };
        let statuses: f64 = self.observed.hpas.values().map(within).sum();
        // The controller's count is exact, but the server observes only syncs with a status write.
        let syncs = self.own_syncs.unwrap_or(statuses);
        let per_sync = |amount: f64| if syncs > 0.0 { amount / syncs } else { 0.0 };
        // A sync that withholds its status is not late.
        let is_observable = !self.workload.unchanged && !self.controller.contains("--status-precision");
        let late = ordinary.iter().filter(|_| is_observable);
        let late: Vec<_> = late.flat_map(|seen| lateness(seen, self.period, start, end)).collect();
        let on_time =
            late.iter().filter(|late| **late <= ON_TIME).count() as f64 / (late.len() as f64).max(1.0);
        let mut requests: Vec<PerSync> = Vec::new();
        for counted in &self.observed.requests {
            let (verb, resource) = (counted.verb.clone(), counted.resource.clone());
            let existing = requests.iter().position(|line| line.verb == verb && line.resource == resource);
            let index = existing.unwrap_or_else(|| {
                requests.push(PerSync { verb, resource, ..PerSync::default() });
                requests.len() - 1
            });
            if let Some(line) = requests.get_mut(index) {
                line.requests += per_sync(counted.count as f64);
                line.failed += per_sync(counted.failed as f64);
                line.received += per_sync(counted.received as f64);
                line.sent += per_sync(counted.sent as f64);
            }
        }
        requests.sort_by(|a, b| b.requests.total_cmp(&a.requests));
        let total: u64 = self.observed.requests.iter().map(|counted| counted.count).sum();
        let maximum = self.observed.seconds.iter().max().copied().unwrap_or(0) as f64;
        let mean =
            self.observed.seconds.iter().sum::<u64>() as f64 / self.observed.seconds.len().max(1) as f64;
        let on_wire = |bytes: u64| (bytes > 0).then(|| per_sync(bytes as f64));
        let mut resident: Vec<_> = self.resident.iter().map(|bytes| *bytes as f64).collect();
        resident.sort_by(f64::total_cmp);
        let expected = ordinary.len() as f64 * measured / self.period;
        let seen_of_ordinary: f64 = ordinary.iter().map(|seen| within(seen)).sum();
        Report {
            label: self.label,
            workload: self.workload.clone(),
            server: server.to_owned(),
            controller: self.controller,
            runs: 1,
            period: self.period,
            measured,
            syncs,
            done: if is_observable {
                seen_of_ordinary / expected.max(1.0)
            } else {
                syncs / expected.max(1.0)
            },
            on_time: if is_observable { Some(on_time) } else { self.own_on_time },
            lateness: Spread::from_values(late, 0),
            own_on_time: self.own_on_time,
            requests,
            requests_per_sync: per_sync(total as f64),
            received_per_sync: on_wire(self.observed.received),
            sent_per_sync: on_wire(self.observed.sent),
            controller_cpu: per_sync(self.cpu * 1_000.0),
            server_cpu: per_sync(self.observed.cpu * 1_000.0),
            etcd_cpu: self.observed.etcd_cpu.map(|cpu| per_sync(cpu * 1_000.0)),
            beside_cpu: self.observed.beside_cpu.map(|cpu| per_sync(cpu * 1_000.0)),
            instructions_per_sync: self.instructions.map(per_sync),
            resident: percentile(&resident, 0.5),
            resident_peak: self.last.peak as f64,
            server_resident: self.observed.resident as f64,
            reaction: awaited(&self.observed.reactions),
            creation: awaited(&self.observed.creations),
            spec_change: awaited(&self.observed.spec_changes),
            all_decided: all_decided(&ordinary, self.started),
            all_decided_again: self.restarted.and_then(|since| all_decided(&ordinary, since)),
            burst: if mean > 0.0 { maximum / mean } else { 0.0 },
        }
    }
}

/// Returns the lateness in seconds of each sync that was due in the measured time. A sync is due one period after the
/// previous sync. Without an earlier sync, the first sync is due at the start of the measured time. A delay by the
/// server is subtracted. The lateness of a missing sync ends at the end of the measured time. A sync that is due in the
/// last second is omitted, because it may be on time after the end.
fn lateness(seen: &HpaObservations, period: f64, start: Micros, end: Micros) -> Vec<f64> {
    let mut late = Vec::new();
    let held_up = seconds(seen.held_up);
    let first = seen.statuses.first().copied();
    if first.is_none_or(|first| first > start) {
        late.push((seconds(first.unwrap_or(end).min(end) - start) - held_up).max(0.0));
    }
    let next = seen.statuses.iter().skip(1).map(|at| Some(*at)).chain([None]);
    for (at, next) in seen.statuses.iter().zip(next) {
        let due = seconds(*at - start) + period;
        if due < 0.0 || due > seconds(end - start) - ON_TIME - held_up {
            continue;
        }
        let arrived = seconds(next.unwrap_or(end).min(end) - start);
        late.push((arrived - due - held_up).max(0.0));
    }
    late
}

fn awaited(all: &[PendingReaction]) -> Option<Spread> {
    let arrived: Vec<_> = all.iter().filter_map(|it| Some(seconds(it.until? - it.since))).collect();
    let missing = all.len() - arrived.len();
    Spread::from_values(arrived, missing)
}

/// Returns the seconds from `since` until every HPA has a new status. Returns `None` if an HPA has no new status.
fn all_decided(hpas: &[&HpaObservations], since: Micros) -> Option<f64> {
    let firsts = hpas.iter().map(|seen| seen.statuses.iter().find(|at| **at >= since).copied());
    let last = firsts.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    Some(seconds(last - since))
}

impl Spread {
    fn from_values(mut values: Vec<f64>, missing: usize) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let max = *values.last()?;
        Some(Self {
            count: values.len(),
            missing,
            p50: percentile(&values, 0.5),
            p99: percentile(&values, 0.99),
            max,
        })
    }
}

/// Returns the percentile by nearest rank. `share` is from 0 to 1. Returns 0 without values.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank is within the count of values"
)]
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}

/// Returns the medians of several reports. If a report lacks a kind of request, its figures for that kind are zero.
pub(crate) fn median_report(reports: &[Report]) -> Result<Report, Failure> {
    let mut kinds: Vec<PerSync> = Vec::new();
    for kind in reports.iter().flat_map(|report| &report.requests) {
        if !kinds.iter().any(|existing| existing.same_kind(kind)) {
            let (verb, resource) = (kind.verb.clone(), kind.resource.clone());
            kinds.push(PerSync { verb, resource, ..PerSync::default() });
        }
    }
    let mut values = Vec::new();
    for report in reports {
        let same =
            |kind: &PerSync| report.requests.iter().find(|it| it.same_kind(kind)).unwrap_or(kind).clone();
        let whole = Report { requests: kinds.iter().map(same).collect(), ..report.clone() };
        values.push(serde_json::to_value(whole)?);
    }
    let mut median: Report = serde_json::from_value(median_value(&values.iter().collect::<Vec<_>>()))?;
    median.requests.sort_by(|a, b| b.requests.total_cmp(&a.requests));
    median.runs = reports.len();
    Ok(median)
}

/// Returns a value with the median of each number, or the upper median of an even count. Other values come from the
/// first report that contains them.
fn median_value(values: &[&Value]) -> Value {
    let present: Vec<_> = values.iter().copied().filter(|value| !value.is_null()).collect();
    match present.first() {
        Some(Value::Object(fields)) => {
            let field = |key: &String| {
                let field_values: Vec<_> = present.iter().filter_map(|value| value.get(key)).collect();
                (key.clone(), median_value(&field_values))
            };
            fields.keys().map(field).collect()
        }
        Some(Value::Array(items)) => {
            let item = |index: usize| {
                median_value(&present.iter().filter_map(|value| value.get(index)).collect::<Vec<_>>())
            };
            (0..items.len()).map(item).collect()
        }
        Some(Value::Number(_)) => {
            let mut numbers: Vec<_> =
                present.iter().filter_map(|value| Some((value.as_f64()?, (*value).clone()))).collect();
            numbers.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            numbers.into_iter().map(|(_, value)| value).nth(present.len() / 2).unwrap_or_default()
        }
        Some(other) => (*other).clone(),
        None => Value::Null,
    }
}
