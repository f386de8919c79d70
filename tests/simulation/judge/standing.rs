//! A process in one of its lives, as the judge knows it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::ledger::Entry;
use crate::plan::Class;

/// `--metric-snapshot-age`: how long an answer may serve other syncs.
const SHARED: Duration = Duration::from_secs(5);

/// A process in its present life.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) life: u32,
    /// When the last renewal was sent of which it knows that it succeeded.
    pub(super) renewed: Option<Duration>,
    /// The versions of objects that it was shown.
    pub(super) versions: BTreeSet<String>,
    /// By HPA: what it knows of its Scale.
    pub(super) scales: Vec<Read>,
    /// When it sent its last requests.
    recent: VecDeque<Duration>,
}

/// What a process knows since it read a Scale.
#[derive(Debug, Clone, Default)]
pub(super) struct Read {
    pub(super) version: String,
    /// Writes that were applied since.
    pub(super) written: u32,
    /// Whether a write was refused just now.
    conflicted: bool,
    /// Whether it was read again because a write was refused.
    pub(super) again: bool,
    /// By question since the last sync: when it was asked last, and whether it was answered.
    metrics: BTreeMap<String, (Duration, bool)>,
}

impl Read {
    /// What was asked for the sync that has ended does not count for the next, but an answer that may be shared still.
    pub(super) fn synced(&mut self, now: Duration) {
        self.metrics.retain(|_, (asked, answered)| *answered && *asked + SHARED > now);
    }

    /// How many questions were answered, and how many were not.
    pub(super) fn metrics(&self) -> (usize, usize) {
        let answered = self.metrics.values().filter(|(_, answered)| *answered).count();
        (answered, self.metrics.len() - answered)
    }
}

impl Standing {
    pub(super) fn new(life: u32, hpas: usize) -> Self {
        Self {
            life,
            renewed: None,
            versions: BTreeSet::new(),
            scales: vec![Read::default(); hpas],
            recent: VecDeque::new(),
        }
    }

    pub(super) fn in_a_period(&mut self, now: Duration, period: Duration) -> usize {
        self.recent.push_back(now);
        while self.recent.front().is_some_and(|at| *at + period < now) {
            self.recent.pop_front();
        }
        self.recent.len()
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
            // For all HPAs that ask for pods, and no harm to any other. Without it each may still ask for itself.
            (Class::Metrics, None) if is_whole => {
                for read in &mut self.scales {
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
