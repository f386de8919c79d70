//! Figures from what a server saw and what the processes used.

use serde::{Deserialize, Serialize};

use crate::observed::{Awaited, Micros, Observed, Seen};
use crate::process::Usage;
use crate::workload::Workload;

/// A sync is on time that begins within so many seconds of its due time.
const ON_TIME: f64 = 1.0;

/// What was done in a run, and what was seen.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) label: String,
    pub(crate) controller: String,
    /// Seconds.
    pub(crate) period: f64,
    pub(crate) started: Micros,
    pub(crate) restarted: Option<Micros>,
    pub(crate) observed: &'a Observed,
    /// CPU seconds of the controller in the measured time.
    pub(crate) cpu: f64,
    /// Its instructions in the measured time, outside the kernel, if they were counted.
    pub(crate) instructions: Option<f64>,
    /// Its resident bytes, once a second in the measured time; at most over its life.
    pub(crate) resident: Vec<u64>,
    pub(crate) last: Usage,
    /// Syncs in the measured time as the controller counts them, and the share of them that were on time.
    pub(crate) own_syncs: Option<f64>,
    pub(crate) own_on_time: Option<f64>,
}

/// Seconds, or whatever else, of many.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    /// How many of those that were awaited never came.
    pub(crate) missing: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// A request that a sync needs, on average.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PerSync {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) requests: f64,
    pub(crate) failed: f64,
    /// Bytes of bodies, to the server and from it.
    pub(crate) received: f64,
    pub(crate) sent: f64,
}

impl PerSync {
    /// Whether it is about equal requests.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        (&self.verb, &self.resource) == (&other.verb, &other.resource)
    }
}

/// All figures of a run, or the medians of several, as they are stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) label: String,
    pub(crate) workload: Workload,
    /// `simulated`, or which real server.
    pub(crate) server: String,
    pub(crate) controller: String,
    /// Of so many runs each figure is the median.
    pub(crate) runs: usize,
    /// Seconds.
    pub(crate) period: f64,
    pub(crate) measured: f64,
    pub(crate) syncs: f64,
    /// Syncs that there were, of those that one per HPA and period would be.
    pub(crate) done: f64,
    /// Of the syncs that were due in the measured time: those that began within a second. Of syncs that have nothing to
    /// write only the controller itself knows.
    pub(crate) on_time: Option<f64>,
    pub(crate) lateness: Option<Spread>,
    pub(crate) own_on_time: Option<f64>,
    pub(crate) requests: Vec<PerSync>,
    pub(crate) requests_per_sync: f64,
    /// Bytes on the wire per sync, if they were counted.
    pub(crate) received_per_sync: Option<f64>,
    pub(crate) sent_per_sync: Option<f64>,
    /// CPU seconds per 1,000 syncs.
    pub(crate) controller_cpu: f64,
    pub(crate) server_cpu: f64,
    /// Of a real server etcd, and the metrics server with all that stands beside; apart from `server_cpu`.
    #[serde(default)]
    pub(crate) etcd_cpu: Option<f64>,
    #[serde(default)]
    pub(crate) beside_cpu: Option<f64>,
    /// Instructions of the controller per sync, outside the kernel; other figures of such a run say nothing.
    pub(crate) instructions_per_sync: Option<f64>,
    /// Bytes.
    pub(crate) resident: f64,
    pub(crate) resident_peak: f64,
    pub(crate) server_resident: f64,
    /// Seconds.
    pub(crate) reaction: Option<Spread>,
    pub(crate) creation: Option<Spread>,
    pub(crate) spec_change: Option<Spread>,
    pub(crate) all_decided: Option<f64>,
    pub(crate) all_decided_again: Option<f64>,
    /// The most requests in one second, in multiples of the mean.
    pub(crate) burst: f64,
}

impl Run<'_> {
    /// The figures of the run.
    pub(crate) fn report(self, server: &str) -> Report {
        let Observed { begin, end, .. } = *self.observed;
        let ordinary: Vec<_> = self.observed.hpas.values().filter(|seen| !seen.special).collect();
        let measured = seconds(end - begin);
        let within =
            |seen: &Seen| seen.statuses.iter().filter(|at| (begin..end).contains(*at)).count() as f64;
        let statuses: f64 = self.observed.hpas.values().map(within).sum();
        // What the controller counts is exact; a sync that has no new status to write is seen by nobody else.
        let syncs = self.own_syncs.unwrap_or(statuses);
        let per_sync = |amount: f64| if syncs > 0.0 { amount / syncs } else { 0.0 };
        let is_seen = !self.workload.unchanged;
        let late = ordinary.iter().filter(|_| is_seen);
        let late: Vec<_> = late.flat_map(|seen| lateness(seen, self.period, begin, end)).collect();
        let on_time =
            late.iter().filter(|late| **late <= ON_TIME).count() as f64 / (late.len() as f64).max(1.0);
        let mut requests: Vec<PerSync> = Vec::new();
        for counted in &self.observed.requests {
            let (verb, resource) = (counted.verb.clone(), counted.resource.clone());
            let known = requests.iter().position(|line| line.verb == verb && line.resource == resource);
            let place = known.unwrap_or_else(|| {
                let (requests_, failed, received, sent) = (0.0, 0.0, 0.0, 0.0);
                requests.push(PerSync { verb, resource, requests: requests_, failed, received, sent });
                requests.len() - 1
            });
            if let Some(line) = requests.get_mut(place) {
                line.requests += per_sync(counted.count as f64);
                line.failed += per_sync(counted.failed as f64);
                line.received += per_sync(counted.received as f64);
                line.sent += per_sync(counted.sent as f64);
            }
        }
        requests.sort_by(|a, b| b.requests.total_cmp(&a.requests));
        let total: u64 = self.observed.requests.iter().map(|counted| counted.count).sum();
        let most = self.observed.seconds.iter().max().copied().unwrap_or(0) as f64;
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
            done: if is_seen { seen_of_ordinary / expected.max(1.0) } else { syncs / expected.max(1.0) },
            on_time: if is_seen { Some(on_time) } else { self.own_on_time },
            lateness: Spread::of(late, 0),
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
            burst: if mean > 0.0 { most / mean } else { 0.0 },
        }
    }
}

/// How late each sync was that was due in the measured time, in seconds. A sync is due one period after the one before,
/// the first one at the beginning, and its status comes when it has waited as long as the server lets it. One that never came is as late as it was at the end; one that was due in the last second
/// is not judged, as its second is not over.
fn lateness(seen: &Seen, period: f64, begin: Micros, end: Micros) -> Vec<f64> {
    let mut late = Vec::new();
    let held_up = seconds(seen.held_up);
    let first = seen.statuses.first().copied();
    if first.is_none_or(|first| first > begin) {
        late.push((seconds(first.unwrap_or(end).min(end) - begin) - held_up).max(0.0));
    }
    let next = seen.statuses.iter().skip(1).map(|at| Some(*at)).chain([None]);
    for (at, next) in seen.statuses.iter().zip(next) {
        let due = seconds(*at - begin) + period;
        if due < 0.0 || due > seconds(end - begin) - ON_TIME - held_up {
            continue;
        }
        let came = seconds(next.unwrap_or(end).min(end) - begin);
        late.push((came - due - held_up).max(0.0));
    }
    late
}

fn awaited(all: &[Awaited]) -> Option<Spread> {
    let came: Vec<_> = all.iter().filter_map(|it| Some(seconds(it.until? - it.since))).collect();
    let missing = all.len() - came.len();
    Spread::of(came, missing)
}

/// Seconds until the last HPA has had a status since then; none if one had none.
fn all_decided(hpas: &[&Seen], since: Micros) -> Option<f64> {
    let firsts = hpas.iter().map(|seen| seen.statuses.iter().find(|at| **at >= since).copied());
    let last = firsts.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    Some(seconds(last - since))
}

impl Spread {
    fn of(mut values: Vec<f64>, missing: usize) -> Option<Self> {
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

/// By the nearest rank; of nothing it is 0.
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
