//! The judge's view of one lifetime of a process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::plan::{Class, InitialState};
use crate::request_log::Entry;

/// `--metric-snapshot-age`: time for which other syncs may reuse a response.
const SHARED: Duration = Duration::from_secs(5);

/// The current lifetime of a process.
#[derive(Debug)]
pub(super) struct ProcessState {
    pub(super) life: u32,
    pub(super) started: Duration,
    /// Time at which the process sent its last successful renewal of the Lease.
    pub(super) renewed: Option<Duration>,
    /// Object versions that the process received.
    pub(super) versions: BTreeSet<String>,
    /// Last read of each HPA's Scale, by HPA.
    pub(super) scales: Vec<ScaleRead>,
    /// Times of the process's recent requests: without and for hostile tenants.
    recent: [VecDeque<Duration>; 2],
}

/// Observations since a process read a Scale.
#[derive(Debug, Clone, Default)]
pub(super) struct ScaleRead {
    pub(super) version: String,
    /// Writes that were applied since the read.
    pub(super) written: u32,
    /// Whether the last write was refused with a conflict.
    conflicted: bool,
    /// Whether the Scale was read again after a conflict.
    pub(super) again: bool,
    /// Time of the last request since the last sync, and whether the request was answered, by query.
    metrics: BTreeMap<String, (Duration, bool)>,
}

impl ScaleRead {
    /// Drops the queries of the finished sync. Responses that may be shared still count for the next sync.
    pub(super) fn synced(&mut self, now: Duration) {
        self.metrics.retain(|_, (sent, answered)| *answered && *sent + SHARED > now);
    }

    /// Numbers of answered and of failed queries.
    pub(super) fn metrics(&self) -> (usize, usize) {
        let answered = self.metrics.values().filter(|(_, answered)| *answered).count();
        (answered, self.metrics.len() - answered)
    }
}

impl ProcessState {
    pub(super) fn new(life: u32, hpas: usize, started: Duration) -> Self {
        Self {
            life,
            started,
            renewed: None,
            versions: BTreeSet::new(),
            scales: vec![ScaleRead::default(); hpas],
            recent: Default::default(),
        }
    }

    /// Number of requests within `period`, for hostile tenants or for all other HPAs as `entry` is.
    pub(super) fn in_a_period(&mut self, entry: &Entry, period: Duration) -> usize {
        let recent = &mut self.recent[usize::from(entry.is_tenant)];
        recent.push_back(entry.sent);
        while recent.front().is_some_and(|at| *at + period < entry.sent) {
            recent.pop_front();
        }
        recent.len()
    }

    pub(super) fn sent(&mut self, entry: &Entry) {
        if let (Class::Metrics, Some(hpa)) = (entry.class, entry.hpa) {
            self.scales[hpa].metrics.insert(entry.path.clone(), (entry.sent, false));
        }
    }

    pub(super) fn answered(&mut self, entry: &Entry) {
        let is_whole = entry.code == Some(200) && entry.intact;
        match (entry.class, entry.hpa) {
            (Class::LeaseWrite, _) if entry.is_done() && entry.intact => self.renewed = Some(entry.sent),
            (Class::ScaleGet, Some(hpa)) => {
                let read = &mut self.scales[hpa];
                if is_whole {
                    read.version.clear();
                    read.version.push_str(&entry.shown);
                    read.written = 0;
                }
                read.again = std::mem::take(&mut read.conflicted);
            }
            (Class::ScalePut, Some(hpa)) => self.scales[hpa].conflicted = entry.code == Some(409),
            (Class::Metrics, Some(hpa)) => {
                self.scales[hpa].metrics.insert(entry.path.clone(), (entry.sent, is_whole));
            }
            // A shared list serves all HPAs of its namespace with pod metrics. If it fails, each HPA may still fetch its
            // metrics.
            (Class::Metrics, None) if is_whole => {
                let is_here = |hpa: usize| {
                    entry.path.contains(&format!("/namespaces/{}/", InitialState::namespace(hpa)))
                };
                for (_, read) in self.scales.iter_mut().enumerate().filter(|(hpa, _)| is_here(*hpa)) {
                    read.metrics.insert(entry.path.clone(), (entry.sent, true));
                }
            }
            (Class::StatusPut | Class::HpaGet, _) if is_whole => {
                self.versions.insert(entry.shown.clone());
            }
            _ => {}
        }
    }
}
