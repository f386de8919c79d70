//! The pods of a cluster and their samples. Changes of pods update this state, so a scrape reads no objects.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::model::{Load, Measure};
use super::stream::{Shares, Stream};
use crate::object::{at, int, list, meta, text};
use crate::workload::model::Seed;
use crate::workload::{is_active, is_ready};

/// Millicores of a container that does no work.
pub(super) const IDLE_MILLICORES: f64 = 2.0;
/// Memory of a container that does no work, in bytes.
pub(super) const IDLE_BYTES: f64 = 12.0 * 1024.0 * 1024.0;

/// The activity of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodActivity {
    /// The pod's container is not running.
    Stopped,
    /// The pod's container is starting.
    Starting,
    /// The pod's container is running but gets no work.
    Idling,
    /// The pod is ready and serves work.
    Working,
}

/// Pods of one namespace with the same labels, and therefore with the same load.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    /// The labels as JSON.
    pub(super) labels_text: Vec<u8>,
    /// The index of the load.
    pub(super) load: usize,
    /// The pods by uid.
    pub(super) pods: BTreeMap<Box<str>, Pod>,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) activity: PodActivity,
    /// The last start of the working container.
    pub(super) started: Duration,
    /// Relative deviation of the pod's share of the work from the mean share. The capacity of the pod limits the deviation.
    pub(super) bias: f64,
    /// The names of the containers.
    pub(super) containers: Vec<String>,
    /// The index of the container that does the work.
    pub(super) working: usize,
    pub(super) tasks: Vec<Task>,
    /// Millicore-seconds used in addition to the work.
    base_cpu: f64,
    /// The time up to which the work and the cpu are accounted for.
    settled: Duration,
    restarts: i64,
    pub(super) cpu: Trace,
    pub(super) usage: DelayedSamples<Option<Usage>>,
    /// One entry for each metric of the load.
    pub(super) metrics: Vec<(Trace, DelayedSamples<Option<Reading>>)>,
}

/// The work of a pod on one stream since its container's start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Task {
    shares: Shares,
    pub(super) done: f64,
    assigned: f64,
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
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Reading {
    pub(super) at: Duration,
    pub(super) window: Duration,
    pub(super) value: f64,
}

impl Pod {
    /// Creates the state of a new pod that has not started.
    pub(super) fn new(object: &Value, load: &Load, metrics: usize, now: Duration) -> Self {
        let name = meta(object, "name").to_owned();
        let containers: Vec<_> =
            list(object, &["spec", "containers"]).iter().map(|it| text(it, &["name"]).to_owned()).collect();
        let named = |container: &String| load.container.as_ref() == Some(container);
        let skew = load.skew.clamp(0.0, 0.5);
        Self {
            bias: skew * (Seed::new(load.seed).for_name(&name).share() * 2.0 - 1.0),
            working: containers.iter().position(named).unwrap_or(0),
            containers,
            name,
            activity: PodActivity::Stopped,
            started: now,
            tasks: vec![Task::default(); load.work.len()],
            base_cpu: 0.0,
            settled: now,
            restarts: 0,
            cpu: Trace::default(),
            usage: DelayedSamples::default(),
            metrics: (0..metrics).map(|_| Default::default()).collect(),
        }
    }

    /// Updates the state from the object. The streams must be computed up to `now`.
    pub(super) fn update(&mut self, object: &Value, load: &Load, streams: &[Stream], now: Duration) {
        self.settle(load, streams, now);
        let container = list(object, &["status", "containerStatuses"]);
        let container = container.get(self.working).unwrap_or(&Value::Null);
        let restarts = int(container, &["restartCount"]).unwrap_or(0);
        let activity = activity(object, container);
        if activity != PodActivity::Stopped
            && (self.activity == PodActivity::Stopped || restarts != self.restarts)
        {
            self.started = now;
            self.base_cpu = 0.0;
            self.tasks.fill(Task::default());
            self.cpu = Trace::starting_at(now);
            for (trace, _) in &mut self.metrics {
                *trace = Trace::starting_at(now);
            }
        }
        (self.activity, self.restarts) = (activity, restarts);
        for (task, stream) in self.tasks.iter_mut().zip(streams) {
            task.shares = stream.shares;
        }
    }

    /// Accounts for the work up to `now`.
    pub(super) fn settle(&mut self, load: &Load, streams: &[Stream], now: Duration) {
        if self.activity == PodActivity::Working {
            for (task, stream) in self.tasks.iter_mut().zip(streams) {
                task.done += stream.shares.done_since(&task.shares, self.bias);
                task.assigned += stream.shares.assigned_since(&task.shares);
                task.shares = stream.shares;
            }
        }
        let millicores = match self.activity {
            PodActivity::Stopped => 0.0,
            PodActivity::Starting => load.cpu.start_up,
            PodActivity::Idling | PodActivity::Working => load.cpu.base,
        };
        self.base_cpu += millicores * now.saturating_sub(self.settled).as_secs_f64();
        self.settled = now;
    }

    /// Returns the millicore-seconds used since the container's start.
    pub(super) fn cpu_used(&self, load: &Load) -> f64 {
        let work = self.tasks.iter().zip(&load.work).map(|(task, work)| task.done * work.cpu_per_unit);
        self.base_cpu + work.sum::<f64>()
    }

    /// Returns the counter that is the basis of a metric's rate.
    pub(super) fn counter(&self, work: usize, measure: Measure) -> f64 {
        let task = self.tasks.get(work).copied().unwrap_or_default();
        if measure == Measure::Demand { task.assigned } else { task.done }
    }
}

fn activity(pod: &Value, container: &Value) -> PodActivity {
    let runs = text(pod, &["status", "phase"]) == "Running" && at(container, &["state", "waiting"]).is_none();
    if !runs {
        PodActivity::Stopped
    } else if at(container, &["started"]) == Some(&Value::Bool(false)) {
        PodActivity::Starting
    } else if is_ready(pod) && is_active(pod) {
        PodActivity::Working
    } else {
        PodActivity::Idling
    }
}

/// All pods of a cluster.
#[derive(Debug, Default)]
pub(super) struct PodRegistry {
    pub(super) groups: Vec<Group>,
    /// The indexes of groups by namespace and labels.
    by_labels: BTreeMap<(String, BTreeMap<String, String>), usize>,
    by_uid: BTreeMap<Box<str>, usize>,
}

impl PodRegistry {
    /// Returns the current group of a pod.
    pub(super) fn group_of(&self, uid: &str) -> Option<usize> {
        self.by_uid.get(uid).copied()
    }

    /// Returns the group for a pod's namespace and labels. `load` selects the load of a new group.
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
        if let Some(index) = self.by_labels.get(&key) {
            return *index;
        }
        let index = self.groups.len();
        let (namespace, labels) = key.clone();
        let load = load(&namespace, &labels);
        // Strings always encode as JSON.
        let labels_text = serde_json::to_vec(&labels).unwrap_or_default();
        self.groups.push(Group { namespace, labels, labels_text, load, pods: BTreeMap::new() });
        self.by_labels.insert(key, index);
        index
    }

    /// Sets the group of a pod.
    pub(super) fn insert(&mut self, uid: &str, group: usize) {
        if self.by_uid.get(uid) != Some(&group) {
            self.by_uid.insert(uid.into(), group);
        }
    }

    /// Removes a pod and returns its group.
    pub(super) fn remove(&mut self, uid: &str) -> Option<usize> {
        self.by_uid.remove(uid)
    }
}

/// The times and values of a counter at the last scrapes that a window covers.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Trace {
    points: VecDeque<(Duration, f64)>,
}

/// A mean rate per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) per_second: f64,
    /// The averaging window.
    pub(super) window: Duration,
}

impl Trace {
    /// Creates a trace of a counter that is 0 at `now`.
    pub(super) fn starting_at(now: Duration) -> Self {
        Self { points: VecDeque::from([(now, 0.0)]) }
    }

    /// Records the counter's value. Returns the rate over the window, or since the counter's start if the start is
    /// later. Returns `None` for the first value, and if no time has passed.
    pub(super) fn record(&mut self, now: Duration, value: f64, window: Duration) -> Option<Rate> {
        let start = now.saturating_sub(window);
        while self.points.get(1).is_some_and(|(at, _)| *at <= start) {
            self.points.pop_front();
        }
        let rate = self.points.front().and_then(|(at, before)| {
            let window = now.saturating_sub(*at);
            let per_second = (value - before) / window.as_secs_f64();
            (!window.is_zero()).then_some(Rate { per_second, window })
        });
        self.points.push_back((now, value));
        rate
    }
}

/// Samples that are served after a delay.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct DelayedSamples<T>(VecDeque<(Duration, T)>);

impl<T> DelayedSamples<T> {
    /// Adds the newest sample, which becomes visible after `delay`. Later reads are for `served` or a later time, so
    /// older samples are dropped.
    pub(super) fn push(&mut self, now: Duration, delay: Duration, served: Duration, sample: T) {
        while self.0.get(1).is_some_and(|(from, _)| *from <= served) {
            self.0.pop_front();
        }
        self.0.push_back((now.saturating_add(delay), sample));
    }

    /// Returns the newest visible sample.
    pub(super) fn visible(&self, now: Duration) -> Option<&T> {
        self.0.iter().rev().find(|(from, _)| *from <= now).map(|(_, sample)| sample)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DelayedSamples, Trace};

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rate_covers_the_window_or_the_time_since_the_start() {
        let mut trace = Trace::starting_at(secs(5));
        let mut record =
            |at, value| trace.record(secs(at), value, secs(60)).map(|rate| (rate.per_second, rate.window));
        assert_eq!(record(5, 0.0), None);
        assert_eq!(record(15, 10.0), Some((1.0, secs(10))));
        assert_eq!(record(45, 100.0), Some((2.5, secs(40))));
        assert_eq!(record(75, 100.0), Some((1.5, secs(60))));
        assert_eq!(record(105, 220.0), Some((2.0, secs(60))));
    }

    #[test]
    fn sample_is_visible_from_its_delay_until_the_next_sample() {
        let mut samples = DelayedSamples::default();
        assert_eq!(samples.visible(secs(0)), None);
        for at in [0, 10, 20, 30] {
            samples.push(secs(at), secs(25), secs(at), at);
        }
        let visible = [24, 25, 34, 35, 54, 55].map(|at| samples.visible(secs(at)).copied());
        assert_eq!(visible, [None, Some(0), Some(0), Some(10), Some(20), Some(30)]);
        samples.push(secs(60), secs(0), secs(60), 60);
        assert_eq!(samples.visible(secs(60)), Some(&60));
        assert!(samples.0.len() <= 3);
    }
}
