//! The invariants that are checked at the cluster: at each request, at each answer and each second.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use crate::ledger::Entry;
use crate::plan::{Class, Fault, FaultKind, Scene};
use crate::run::Violation;

/// A leader that could not renew for so long writes nothing any more.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How long what a process sees may be behind, if nothing goes wrong with its watches.
const LAG: Duration = Duration::from_secs(2);
/// How long it may be behind after a fault of its watches: the longest life of one.
const LONG_LAG: Duration = Duration::from_secs(620);
const PERIOD: Duration = Duration::from_secs(15);

/// What is wrong: the name of the invariant and what was seen.
pub(crate) type Finding = Option<(&'static str, String)>;

/// What is known of the world, to judge by.
#[derive(Debug)]
pub(crate) struct Judge {
    hpas: Vec<Watched>,
    processes: Vec<Standing>,
    has_election: bool,
    /// Until when views may be old.
    views_late_until: Duration,
    pub(crate) violations: Vec<Violation>,
}

/// An HPA and its target.
#[derive(Debug, Default)]
struct Watched {
    /// Its bounds, since when; none while it is not there.
    bounds: Vec<(Duration, Option<Bounds>)>,
    metrics: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    min: i64,
    max: i64,
}

/// A process in its present life.
#[derive(Debug, Default)]
struct Standing {
    life: u32,
    /// When the last renewal was sent of which it knows that it succeeded.
    renewed: Option<Duration>,
    /// When it sent its last requests.
    sent: VecDeque<Duration>,
    /// By HPA: what was read of its Scale since the last write.
    scales: Vec<Read>,
}

/// What a process knows of a Scale.
#[derive(Debug, Clone, Default)]
struct Read {
    /// Writes that were applied since it was read.
    written: u32,
}

impl Judge {
    pub(crate) fn new(scene: &Scene) -> Self {
        let standing = || Standing { scales: vec![Read::default(); scene.hpas.len()], ..Standing::default() };
        Self {
            hpas: scene.hpas.iter().map(|_| Watched::default()).collect(),
            processes: (0..scene.processes).map(|_| standing()).collect(),
            has_election: scene.election,
            views_late_until: Duration::ZERO,
            violations: Vec::new(),
        }
    }

    // --- what is told

    pub(crate) fn born(&mut self, process: usize, life: u32) {
        let scales = vec![Read::default(); self.hpas.len()];
        self.processes[process] = Standing { life, scales, ..Standing::default() };
    }

    pub(crate) fn crashed(&mut self, _process: usize, _now: Duration) {}

    /// The HPA as it is now.
    pub(crate) fn seen(&mut self, hpa: usize, object: Option<&Value>, now: Duration) {
        let bounds = object.map(|object| {
            let spec = &object["spec"];
            self.hpas[hpa].metrics = spec["metrics"].as_array().map_or(1, Vec::len);
            Bounds {
                min: spec["minReplicas"].as_i64().unwrap_or(1),
                max: spec["maxReplicas"].as_i64().unwrap_or(0),
            }
        });
        if self.hpas[hpa].bounds.last().is_none_or(|(_, last)| *last != bounds) {
            self.hpas[hpa].bounds.push((now, bounds));
        }
    }

    pub(crate) fn scaled_by_hand(&mut self, _hpa: usize) {}

    pub(crate) fn begins(&mut self, fault: &Fault, now: Duration) {
        use FaultKind as K;
        let of_views = [
            K::Partition,
            K::Hang,
            K::Slow,
            K::Storm,
            K::Throttle,
            K::ResetBefore,
            K::ResetAfter,
            K::WatchCut,
            K::WatchHole,
            K::WatchLate,
            K::WatchSilent,
            K::WatchGone,
            K::ListGone,
            K::ListCut,
        ];
        if of_views.contains(&fault.kind) {
            self.views_late_until = self.views_late_until.max(fault.until.max(now) + LONG_LAG);
        }
    }

    pub(crate) fn sent(&mut self, entry: &Entry) -> Finding {
        self.no_write_after_the_fence(entry).or_else(|| self.requests_are_bounded(entry))
    }

    pub(crate) fn applied(&mut self, entry: &Entry, now: Duration) -> Finding {
        let finding = self.replicas_are_within_bounds(entry, now);
        finding.or_else(|| self.one_write_for_one_decision(entry))
    }

    pub(crate) fn answered(&mut self, entry: &Entry) {
        let standing = &mut self.processes[entry.process];
        if standing.life != entry.life {
            return;
        }
        if entry.class == Class::LeaseWrite && entry.is_done() && entry.intact {
            standing.renewed = Some(entry.sent);
        }
        if let (Class::ScaleGet, Some(hpa)) = (entry.class, entry.hpa) {
            standing.scales[hpa] = Read::default();
        }
    }

    pub(crate) fn second(&mut self, _now: Duration) -> Finding {
        None
    }

    // --- the invariants

    /// 1. What is written lies between the bounds that the HPA has, or had as long as a view may be old, is never
    ///    negative, and is zero only where the HPA allows it.
    fn replicas_are_within_bounds(&self, entry: &Entry, now: Duration) -> Finding {
        let (hpa, replicas) =
            (entry.hpa?, entry.replicas.filter(|_| entry.class == Class::ScalePut && entry.is_done())?);
        let lag = if now < self.views_late_until { LONG_LAG } else { LAG };
        let since = now.saturating_sub(lag);
        let versions = &self.hpas[hpa].bounds;
        let ends = versions.iter().skip(1).map(|(from, _)| *from).chain([Duration::MAX]);
        let mut recent =
            versions.iter().zip(ends).filter(|(_, end)| *end >= since).filter_map(|((_, bounds), _)| *bounds);
        let allowed = |bounds: Bounds| {
            let (low, high) = (bounds.min.min(bounds.max).max(0), bounds.min.max(bounds.max));
            (low..=high).contains(&replicas)
        };
        if recent.clone().any(allowed) {
            return None;
        }
        let bounds: Vec<_> = recent.by_ref().collect();
        Some(("replicas are within bounds", format!("{entry}; the bounds are {bounds:?}")))
    }

    /// 5. Nothing is written by a process whose last renewal was sent longer ago than the renew deadline.
    fn no_write_after_the_fence(&self, entry: &Entry) -> Finding {
        if !entry.writes() || !self.has_election {
            return None;
        }
        let standing = &self.processes[entry.process];
        let renewed = standing.renewed.filter(|_| standing.life == entry.life);
        match renewed {
            Some(renewed) if entry.sent <= renewed + RENEW_DEADLINE => None,
            Some(renewed) => {
                Some(("no write after the fence", format!("{entry}; the Lease was renewed at {renewed:?}")))
            }
            None => Some(("no write after the fence", format!("{entry}; this process never led"))),
        }
    }

    /// 5. One decision leads to one successful write of a Scale at most: before another the Scale is read again.
    fn one_write_for_one_decision(&mut self, entry: &Entry) -> Finding {
        let hpa = entry.hpa.filter(|_| entry.class == Class::ScalePut && entry.is_done())?;
        let standing = &mut self.processes[entry.process];
        let read = standing.scales.get_mut(hpa).filter(|_| standing.life == entry.life)?;
        read.written += 1;
        (read.written > 1).then(|| {
            ("one write for one decision", format!("{entry}; its answer was not awaited, or not read back"))
        })
    }

    /// 8. No process sends more requests in a period than its HPAs need, and a bounded number of repetitions.
    fn requests_are_bounded(&mut self, entry: &Entry) -> Finding {
        let needed: usize = self.hpas.iter().map(|hpa| 6 + hpa.metrics.min(400)).sum();
        let standing = &mut self.processes[entry.process];
        standing.sent.push_back(entry.sent);
        while standing.sent.front().is_some_and(|at| *at + PERIOD < entry.sent) {
            standing.sent.pop_front();
        }
        let most = 100 + 4 * needed;
        (standing.sent.len() > most).then(|| {
            (
                "requests are bounded",
                format!("{} requests of {} in a period, last {entry}", standing.sent.len(), entry.process),
            )
        })
    }
}
