//! A replay of a load with one HPA: its controller each 15 seconds, and pods that take time to start.
//!
//! The decisions are those of the `autoscaling` crate with upstream's defaults. The metric is cpu, which never exceeds
//! the request of a ready pod, or the load itself. The load of a minute is reached at its end, in a line from the minute
//! before. Load above the capacity of the ready pods is lost. A floor acts like `minReplicas`.

use std::collections::VecDeque;
use std::sync::Arc;

use autoscaling::history::History;
use autoscaling::pod::{
    ConditionStatus, ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList,
};
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, ContainerUsage, ExternalValue, PodUsage};
use autoscaling::selector::{Selector, SelectorError};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::{Behavior, Spec};
use autoscaling::status::Status;
use autoscaling::{Answers, Hpa, Overlap, Scale, Verdict, WriteOutcome, conclude, decide, plan};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::number::{ceil_to_count, index, length, round};
use crate::series::Series;

/// The time from one sync to the next, in seconds.
const SYNC: i64 = 15;
const SYNCS_PER_MINUTE: usize = 4;

/// The metric of an HPA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The cpu usage of the ready pods.
    Cpu,
    /// An external metric that is the load itself, with a target per pod. Pods do not limit it.
    External,
}

/// The HPA and its workload.
#[derive(Debug, Clone, PartialEq)]
pub struct World {
    /// The metric.
    pub metric: Metric,
    /// The target in percent of a pod's capacity.
    pub target: i32,
    /// `minReplicas`.
    pub min_replicas: i32,
    /// The bounds of the time that a pod takes to start, in seconds.
    pub pod_start: (f64, f64),
    /// The age of the metric in seconds.
    pub metric_age: i64,
    /// `maxReplicas`.
    pub max_replicas: i32,
    /// `behavior`.
    pub behavior: Option<Behavior>,
    /// The seed of the times that pods take to start. Replays with equal seeds draw equal times.
    pub seed: u64,
}

impl World {
    /// The minutes in which nine of ten pods start, from 1 to 15.
    pub fn start_minutes(&self) -> i64 {
        let (low, high) = self.pod_start;
        i64::from(ceil_to_count((low + 0.9 * (high - low)) / 60.0).clamp(1, 15))
    }
}

/// What a replay cost, and what it lacked.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Score {
    /// The load in pod-seconds.
    pub load: f64,
    /// The load above the capacity of ready pods, in pod-seconds.
    pub unserved: f64,
    /// The time of all pods, ready or not, in seconds.
    pub pod_seconds: f64,
    /// The number of changes of the count.
    pub rescales: u32,
    /// The minutes in which ready pods were used by more than 80 %.
    pub minutes_above_80: u32,
}

impl Score {
    /// The lost load, in millionths of the load.
    pub fn unserved_ppm(&self) -> f64 {
        if self.load > 0.0 { self.unserved / self.load * 1e6 } else { 0.0 }
    }

    /// The time of all pods in hours.
    pub fn pod_hours(&self) -> f64 {
        self.pod_seconds / 3600.0
    }
}

/// A replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The score of the judged minutes.
    pub score: Score,
    /// The count at the end of each minute.
    pub counts: Vec<i32>,
    /// The lost load of each minute in pod-seconds, judged or not.
    pub unserved: Vec<f64>,
}

/// Replays a series with a floor per minute, and judges it from a minute on. A minute without a floor has none.
///
/// # Errors
/// Returns the error of a constant, so none.
pub fn replay(
    series: &Series,
    world: &World,
    floors: &[i32],
    judged_from: usize,
) -> Result<Run, ReplayError> {
    let mut hpa = Simulated::new(series, world)?;
    hpa.spec.behavior.clone_from(&world.behavior);
    let (mut score, mut counts, mut unserved) = (Score::default(), Vec::new(), Vec::new());
    for (minute, known) in series.loads.iter().enumerate() {
        let floor = floors.get(minute).copied().unwrap_or_default();
        hpa.spec.min_replicas = Some(floor.max(world.min_replicas).clamp(1, world.max_replicas));
        let (mut seconds_above_80, mut lost) = (0, 0.0);
        for sync in 0..SYNCS_PER_MINUTE {
            let tick = length(minute * SYNCS_PER_MINUTE + sync);
            hpa.start_pods(tick);
            let is_rescaled = hpa.sync(tick);
            let load = hpa.load_at(tick as f64 + 0.5);
            let ready = f64::from(hpa.ready);
            let short = (load - ready).max(0.0) * SYNC as f64;
            lost += short;
            // Gaps have no load to judge.
            if minute >= judged_from && known.is_some() {
                score.load += load * SYNC as f64;
                score.unserved += short;
                score.pod_seconds += hpa.pods.len() as f64 * SYNC as f64;
                score.rescales += u32::from(is_rescaled);
                seconds_above_80 += if load > 0.8 * ready { SYNC } else { 0 };
            }
        }
        score.minutes_above_80 += u32::from(seconds_above_80 > 30);
        counts.push(hpa.count());
        unserved.push(lost);
    }
    Ok(Run { score, counts, unserved })
}

/// The error of a constant of a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The spec.
    #[error("the HPA of the replay is invalid: {0}")]
    Spec(#[from] serde_json::Error),
    /// The selector.
    #[error("the selector of the replay is invalid: {0}")]
    Selector(#[from] SelectorError),
}

struct SimulatedPod {
    pod: Arc<Pod>,
    /// The second at which the pod becomes ready.
    ready_at: i64,
}

struct Simulated<'a> {
    world: &'a World,
    /// The load at the start of each minute, without gaps.
    loads: Vec<f64>,
    start: Timestamp,
    spec: Spec,
    status: Status,
    settings: Settings,
    history: History,
    selector: Arc<Selector>,
    /// Sorted by name, from the oldest.
    pods: Vec<SimulatedPod>,
    ready: i32,
    created: u64,
    requests: Arc<PodRequests>,
    labels: Arc<LabelSet>,
    /// The values of the metric at the last ticks, newest first: the utilization of ready pods, or the load.
    values: VecDeque<f64>,
}

impl<'a> Simulated<'a> {
    fn new(series: &Series, world: &'a World) -> Result<Self, ReplayError> {
        let first = series.loads.iter().flatten().next().copied().unwrap_or_default();
        let mut loads = vec![first];
        for load in &series.loads {
            loads.push(load.unwrap_or_else(|| loads.last().copied().unwrap_or_default()));
        }
        let metric = match world.metric {
            Metric::Cpu => json!({ "type": "Resource", "resource": {
                "name": "cpu", "target": { "type": "Utilization", "averageUtilization": world.target } } }),
            Metric::External => json!({ "type": "External", "external": {
                "metric": { "name": "load" },
                "target": { "type": "AverageValue", "averageValue": format!("{}m", 10 * i64::from(world.target)) } } }),
        };
        let spec = json!({
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "maxReplicas": world.max_replicas,
            "metrics": [metric]
        });
        let request = ResourceList::new([("cpu".into(), Quantity::from_milli(1000, Format::DecimalSi))]);
        let containers =
            Box::new([ContainerRequests { name: "web".into(), restartable: false, requests: request }]);
        let mut simulated = Self {
            world,
            loads,
            start: series.start,
            spec: serde_json::from_value(spec)?,
            status: Status::default(),
            settings: Settings::default(),
            history: History::default(),
            selector: Arc::new(Selector::parse_scale("app=web", Version::default())?),
            pods: Vec::new(),
            ready: 0,
            created: 0,
            requests: Arc::new(PodRequests { containers, ..PodRequests::default() }),
            labels: Arc::new(LabelSet::default()),
            values: VecDeque::new(),
        };
        let enough = ceil_to_count(first * 100.0 / f64::from(world.target)).clamp(1, world.max_replicas);
        for _ in 0..enough {
            // They are older than the initialization period of cpu.
            simulated.create(-1200, -1100);
        }
        Ok(simulated)
    }

    fn count(&self) -> i32 {
        i32::try_from(self.pods.len()).unwrap_or(i32::MAX)
    }

    /// The load at a tick.
    fn load_at(&self, tick: f64) -> f64 {
        let minutes = (tick * SYNC as f64 / 60.0).max(0.0);
        let at = index(round(minutes.floor())).unwrap_or_default();
        let from = self.loads.get(at).copied().unwrap_or_default();
        let to = self.loads.get(at + 1).copied().unwrap_or(from);
        from + (to - from) * minutes.fract()
    }

    fn time(&self, second: i64) -> Timestamp {
        self.start.saturating_add(SignedDuration::from_secs(second)).unwrap_or(self.start)
    }

    fn create(&mut self, second: i64, ready_at: i64) {
        self.created += 1;
        let created = self.time(second);
        let pod = Pod {
            name: format!("web-{:08}", self.created).into(),
            labels: Arc::clone(&self.labels),
            requests: Arc::clone(&self.requests),
            phase: Phase::Running,
            terminating: false,
            ready: Some(ReadyCondition { status: ConditionStatus::False, since: Some(created) }),
            start_time: Some(created),
        };
        self.pods.push(SimulatedPod { pod: Arc::new(pod), ready_at });
    }

    /// Marks the pods as ready that have started, and measures the metric.
    fn start_pods(&mut self, tick: i64) {
        let now = tick * SYNC;
        let mut ready = 0;
        for index in 0..self.pods.len() {
            let Some(SimulatedPod { pod, ready_at }) = self.pods.get(index) else { continue };
            if *ready_at > now {
                continue;
            }
            ready += 1;
            if pod.ready.is_some_and(|ready| ready.status == ConditionStatus::False) {
                let since = Some(self.time(*ready_at));
                if let Some(SimulatedPod { pod, .. }) = self.pods.get_mut(index) {
                    let ready = Some(ReadyCondition { status: ConditionStatus::True, since });
                    *pod = Arc::new(Pod { ready, ..(**pod).clone() });
                }
            }
        }
        self.ready = ready;
        let load = self.load_at(tick as f64);
        self.values.push_front(match self.world.metric {
            Metric::External => load,
            Metric::Cpu if ready > 0 => (load / f64::from(ready)).min(1.0),
            Metric::Cpu => 0.0,
        });
        self.values.truncate(64);
    }

    /// One sync of the controller. Returns whether it changed the count.
    fn sync(&mut self, tick: i64) -> bool {
        let second = tick * SYNC;
        let now = self.time(second);
        let current = self.count();
        let scale = Scale {
            replicas: current,
            status_replicas: current,
            selector: Arc::clone(&self.selector),
            selector_text: "app=web".into(),
        };
        let hpa = Hpa {
            namespace: "shop",
            name: "web",
            generation: Some(1),
            spec: &self.spec,
            status: &self.status,
        };
        let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &self.settings);
        let (mut pods, mut metrics) = (Vec::new(), Vec::new());
        if plan.reads_metrics() {
            pods = self.pods.iter().map(|pod| Arc::clone(&pod.pod)).collect();
            metrics.push(Some(Ok(self.answer(second))));
        }
        let decision =
            decide(&hpa, &plan, &Answers { metrics, pods: &pods }, &self.history, &self.settings, now);
        let to = decision.count().unwrap_or(current);
        let outcome = match decision.verdict() {
            Verdict::Rescale { .. } => WriteOutcome::Done,
            _ => WriteOutcome::NotNeeded,
        };
        let conclusion = conclude(&hpa, decision, &outcome, &self.settings, now);
        self.history.commit(&conclusion.changes);
        self.scale(to, second);
        to != current
    }

    /// The value of the metric: the load, or the usage of each pod that was ready when it was measured.
    fn answer(&self, second: i64) -> Answer {
        let measured = second - self.world.metric_age;
        let ticks_ago = index((self.world.metric_age + SYNC / 2) / SYNC).unwrap_or_default();
        let oldest = self.values.back();
        let value = self.values.get(ticks_ago).or(oldest).copied().unwrap_or_default();
        let value = Quantity::from_milli(round(value * 1000.0), Format::DecimalSi);
        let timestamp = Some(self.time(measured));
        if self.world.metric == Metric::External {
            return Answer::External([ExternalValue { timestamp, value }].into());
        }
        let usage = ResourceList::new([("cpu".into(), value)]);
        let usages = self.pods.iter().filter(|pod| pod.ready_at <= measured).map(|pod| PodUsage {
            pod: Arc::clone(&pod.pod.name),
            timestamp,
            // The window of metrics-server at its usual age.
            window_nanos: self.world.metric_age * 1_000_000_000 * 2 / 3,
            containers: Box::new([ContainerUsage { name: "web".into(), usage: usage.clone() }]),
        });
        Answer::Resource(usages.collect())
    }

    /// Creates pods, or deletes those that are not ready first, then the newest.
    fn scale(&mut self, to: i32, second: i64) {
        let (low, high) = self.world.pod_start;
        for pod in self.count()..to {
            let share = random(self.world.seed, second.cast_unsigned(), u64::from(pod.unsigned_abs()));
            self.create(second, second + round(low + (high - low) * share));
        }
        while self.count() > to.max(0) {
            let unready = self.pods.iter().rposition(|pod| pod.ready_at > second);
            match unready {
                Some(pod) => drop(self.pods.remove(pod)),
                None => drop(self.pods.pop()),
            }
        }
        self.ready =
            i32::try_from(self.pods.iter().filter(|pod| pod.ready_at <= second).count()).unwrap_or(i32::MAX);
    }
}

/// A number from 0 to 1 that depends on all arguments: one step of SplitMix64.
fn random(seed: u64, second: u64, pod: u64) -> f64 {
    let mut state =
        seed ^ second.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ pod.wrapping_mul(0xd1b5_4a32_d192_ed03);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((state ^ (state >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}
