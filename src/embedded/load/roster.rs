//! The pods that work, as the metrics need them: kept from their changes, so that a scrape reads no object.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::model::{Load, Measure};
use super::sample::{Delayed, Trace};
use super::stream::{Shares, Stream};
use crate::embedded::object::{at, int, list, meta, text};
use crate::embedded::workload::seed::Seed;
use crate::embedded::workload::{is_active, is_ready};

/// What a container uses that no load knows, and one beside the container that does the work.
pub(super) const IDLE_MILLICORES: f64 = 2.0;
pub(super) const IDLE_BYTES: f64 = 12.0 * 1024.0 * 1024.0;

/// What a pod is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Its container does not run.
    Nothing,
    /// Its container starts.
    Starting,
    /// Its container runs and gets no work.
    Idling,
    /// It is ready.
    Working,
}

/// Pods of one namespace with the same labels; they have the same load.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    /// The same as JSON.
    pub(super) labels_text: Vec<u8>,
    /// The place of the load.
    pub(super) load: usize,
    /// By uid.
    pub(super) pods: BTreeMap<Box<str>, Pod>,
}

/// A pod.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) doing: Doing,
    /// When its container has last started.
    pub(super) started: Duration,
    /// By how much its share of the work is above or below the mean, as far as there is room.
    pub(super) bias: f64,
    /// The names of its containers, and which of them does the work.
    pub(super) containers: Vec<String>,
    pub(super) working: usize,
    pub(super) tasks: Vec<Task>,
    /// Millicore-seconds used beside the work, and up to when.
    own_cpu: f64,
    settled: Duration,
    restarts: i64,
    pub(super) cpu: Trace,
    pub(super) usage: Delayed<Option<Usage>>,
    /// One for each metric of the load.
    pub(super) metrics: Vec<(Trace, Delayed<Option<Reading>>)>,
}

/// What a pod has done of one stream of work since its container has started.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Task {
    shares: Shares,
    pub(super) done: f64,
    asked: f64,
}

/// One sample of cpu and memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    pub(super) at: Duration,
    pub(super) window: Duration,
    pub(super) millicores: f64,
    pub(super) bytes: f64,
}

/// One sample of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    pub(super) at: Duration,
    pub(super) window: Duration,
    pub(super) value: f64,
}

impl Pod {
    /// A pod that has just been seen for the first time and does nothing yet.
    pub(super) fn new(object: &Value, load: &Load, metrics: usize, now: Duration) -> Self {
        let name = meta(object, "name").to_owned();
        let containers: Vec<_> =
            list(object, &["spec", "containers"]).iter().map(|it| text(it, &["name"]).to_owned()).collect();
        let named = |container: &String| load.container.as_ref() == Some(container);
        let skew = load.skew.clamp(0.0, 0.5);
        Self {
            bias: skew * (Seed::new(load.seed).of(&name).share() * 2.0 - 1.0),
            working: containers.iter().position(named).unwrap_or(0),
            containers,
            name,
            doing: Doing::Nothing,
            started: now,
            tasks: vec![Task::default(); load.work.len()],
            own_cpu: 0.0,
            settled: now,
            restarts: 0,
            cpu: Trace::default(),
            usage: Delayed::default(),
            metrics: (0..metrics).map(|_| Default::default()).collect(),
        }
    }

    /// Takes in what the object says now. The streams are computed up to now.
    pub(super) fn update(&mut self, object: &Value, load: &Load, streams: &[Stream], now: Duration) {
        self.settle(load, streams, now);
        let container = list(object, &["status", "containerStatuses"]);
        let container = container.get(self.working).unwrap_or(&Value::Null);
        let restarts = int(container, &["restartCount"]).unwrap_or(0);
        let doing = doing(object, container);
        if doing != Doing::Nothing && (self.doing == Doing::Nothing || restarts != self.restarts) {
            self.started = now;
            self.own_cpu = 0.0;
            self.tasks.fill(Task::default());
            self.cpu = Trace::beginning(now);
            for (trace, _) in &mut self.metrics {
                *trace = Trace::beginning(now);
            }
        }
        (self.doing, self.restarts) = (doing, restarts);
        for (task, stream) in self.tasks.iter_mut().zip(streams) {
            task.shares = stream.shares;
        }
    }

    /// Counts what has been done up to now.
    pub(super) fn settle(&mut self, load: &Load, streams: &[Stream], now: Duration) {
        if self.doing == Doing::Working {
            for (task, stream) in self.tasks.iter_mut().zip(streams) {
                task.done += stream.shares.done_since(&task.shares, self.bias);
                task.asked += stream.shares.asked_since(&task.shares);
                task.shares = stream.shares;
            }
        }
        let own = match self.doing {
            Doing::Nothing => 0.0,
            Doing::Starting => load.cpu.start_up,
            Doing::Idling | Doing::Working => load.cpu.base,
        };
        self.own_cpu += own * now.saturating_sub(self.settled).as_secs_f64();
        self.settled = now;
    }

    /// Millicore-seconds since the container has started.
    pub(super) fn cpu_used(&self, load: &Load) -> f64 {
        let work = self.tasks.iter().zip(&load.work).map(|(task, work)| task.done * work.cpu_per_unit);
        self.own_cpu + work.sum::<f64>()
    }

    /// The counter whose growth a metric shows.
    pub(super) fn counter(&self, work: usize, measure: Measure) -> f64 {
        let task = self.tasks.get(work).copied().unwrap_or_default();
        if measure == Measure::Demand { task.asked } else { task.done }
    }
}

fn doing(pod: &Value, container: &Value) -> Doing {
    let runs = text(pod, &["status", "phase"]) == "Running" && at(container, &["state", "waiting"]).is_none();
    if !runs {
        Doing::Nothing
    } else if at(container, &["started"]) == Some(&Value::Bool(false)) {
        Doing::Starting
    } else if is_ready(pod) && is_active(pod) {
        Doing::Working
    } else {
        Doing::Idling
    }
}

/// All pods of a cluster.
#[derive(Debug, Default)]
pub(super) struct Roster {
    pub(super) groups: Vec<Group>,
    /// The places of the groups.
    by_labels: BTreeMap<(String, BTreeMap<String, String>), usize>,
    by_uid: BTreeMap<Box<str>, usize>,
}

impl Roster {
    /// The group of a pod as it was last seen.
    pub(super) fn group_of(&self, uid: &str) -> Option<usize> {
        self.by_uid.get(uid).copied()
    }

    /// The group that a pod belongs to; `load` says which load a new one has.
    pub(super) fn group_for(
        &mut self,
        object: &Value,
        load: impl FnOnce(&str, &BTreeMap<String, String>) -> usize,
    ) -> usize {
        let labels = at(object, &["metadata", "labels"]).and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        let labels: BTreeMap<_, _> =
            labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
        let key = (meta(object, "namespace").to_owned(), labels);
        if let Some(place) = self.by_labels.get(&key) {
            return *place;
        }
        let place = self.groups.len();
        let (namespace, labels) = key.clone();
        let load = load(&namespace, &labels);
        // Texts always become JSON.
        let labels_text = serde_json::to_vec(&labels).unwrap_or_default();
        self.groups.push(Group { namespace, labels, labels_text, load, pods: BTreeMap::new() });
        self.by_labels.insert(key, place);
        place
    }

    /// Remembers the group of a pod.
    pub(super) fn note(&mut self, uid: &str, group: usize) {
        if self.by_uid.get(uid) != Some(&group) {
            self.by_uid.insert(uid.into(), group);
        }
    }

    /// Forgets a pod's group, and answers it.
    pub(super) fn forget(&mut self, uid: &str) -> Option<usize> {
        self.by_uid.remove(uid)
    }
}
