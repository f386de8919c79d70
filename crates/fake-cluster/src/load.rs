//! Load: the work of a cluster's pods, and the metrics that result from this work.
//!
//! A [`Load`] describes the work of a set of pods. Each [`Work`] has a demand as a [`Curve`] over time, a cost in cpu
//! and memory, and metrics. [`LoadMetrics`] spreads the work over the ready pods, each up to its capacity. Work beyond
//! the capacity is lost or waits. [`LoadMetrics`] samples the pods as a [`Pipeline`] specifies and serves the three
//! metrics APIs from the samples. Therefore a newly started pod has no sample yet, and the pipeline determines the age
//! of a value.
//!
//! The demand depends only on time, not on the autoscaler. The autoscaler affects the share of each pod, the lost work
//! and the length of a queue.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use clock::VirtualClock;
//! use fake_cluster::load::*;
//! use fake_cluster::workload::Span;
//! use fake_cluster::{Cluster, MetricsApi};
//!
//! let clock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
//! let cluster = Cluster::new(clock.clone());
//! let outage = Outage {
//!     api: MetricsApi::Resource,
//!     during: Span::new(Duration::from_hours(10), Duration::from_mins(30)),
//!     kind: OutageKind::Error { code: 503, message: "service unavailable".to_owned() },
//! };
//! let pipeline = Pipeline { outages: vec![outage], ..Pipeline::default() };
//! let metrics = Arc::new(LoadMetrics::new(clock, pipeline));
//!
//! let day = Shape::BusinessDay { night: 50.0, peak: 900.0, day: Duration::from_hours(24), weekend: 0.3 };
//! let spikes = Points::from_csv("0s,0\n10h,0\n10h,400\n10h5m,400\n10h5m,0", Interpolation::Linear).unwrap();
//! let per_second = Curve::sum([Curve::from(day).with_noise(0.05, 1), spikes.into()]);
//! let web = metrics.add(Load {
//! // Each pod serves up to 100 requests per second. A request per second uses 4 millicores.
//!     work: vec![
//!         Work::requests(per_second, 100.0)
//!             .with_cpu(4.0)
//!             .with_metric(Metric::for_pods("http_requests_per_second", Measure::Served))
//!             .with_metric(Metric::for_object("requests", Measure::Demand, "networking.k8s.io/v1", "Ingress", "front")),
//!     ],
//!     cpu: CpuModel { base: 20.0, start_up: 900.0, limit: Some(1_000.0) },
//!     ..Load::new("shop", "app", "web")
//! });
//! cluster.set_metrics(metrics.clone());
//!
//! // `metrics.run(cluster, stop)` runs in the background. `metrics.step` may be called at any time:
//! metrics.step(&cluster);
//! let state = metrics.state(web).unwrap();
//! assert_eq!((state.ready, state.work[0].capacity), (0, 0.0));
//! # });
//! ```
//!
//! [`LoadMetrics::run`] sleeps until a scrape is due, an outage starts or ends, or the cluster changes. A scrape takes
//! a few dozen nanoseconds per pod. The text of a response is written only when a client requests it.
//!
//! # Structure
//!
//! `pod_registry` tracks the pods and their samples from a feed of changes. `stream` distributes work over the pods.
//! `load_state` takes the samples of one load. `answer` writes the responses, without the data that an outage hides.
//! `curve` and `points` describe loads over time. `model` contains the parameters of a scenario.

mod answer;
mod curve;
mod load_state;
mod model;
mod pod_registry;
mod points;
mod stream;

use std::collections::BTreeMap;
use std::time::Duration;

use autoscaling::selector::{Selector, SelectorError};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::metrics::bad_selector;
use super::watch::{Feed, FeedEvent};
use super::{Cluster, MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use clock::SharedClock;

pub use curve::{Curve, Shape};
pub use load_state::{LoadState, WorkState};
pub use model::{
    CpuModel, Load, Measure, MemoryModel, Metric, Outage, OutageKind, OverflowPolicy, Pipeline, Relay,
    Scraping, Shown, Work,
};
pub use points::{Interpolation, LineProblem, Points, PointsError};

use answer::Answers;
use load_state::{Gaps, OutageRules, TrackedLoad};
use pod_registry::{IDLE_BYTES, IDLE_MILLICORES, Pod, PodRegistry};

/// Default scrape interval, as in metrics-server.
pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);

/// Maximum simulation step. A step is also at most a tenth of the shortest scrape interval.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// Maximum number of cached selectors. The cache is cleared when it is full.
const SELECTORS: usize = 10_000;

const APIS: [MetricsApi; 3] = [MetricsApi::Resource, MetricsApi::Custom, MetricsApi::External];

/// A metrics backend that derives its values from loads.
#[derive(Debug)]
pub struct LoadMetrics {
    clock: SharedClock,
    pipeline: Pipeline,
    /// The start of the run.
    origin: Instant,
    state: Mutex<State>,
}

/// The identifier of a load of a [`LoadMetrics`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadId(usize);

#[derive(Debug)]
struct State {
    /// The first entry is for pods without a load.
    tracked_loads: Vec<TrackedLoad>,
    pods: PodRegistry,
    /// The feed of pod changes. `None` before the first step.
    feed: Option<Feed>,
    switches: OutageRules,
    /// The next scrape time of each API.
    next_scrapes: [(MetricsApi, Duration); 3],
    /// Cached indexes of groups by namespace and selector. Cleared when a group is added, and when the cache is full.
    selected: BTreeMap<(String, String), Vec<usize>>,
}

impl LoadMetrics {
    /// Creates a backend without loads. Curves start now. Until the first [`step`](Self::step), the APIs are absent.
    pub fn new(clock: SharedClock, pipeline: Pipeline) -> Self {
        let mut idle = Load::new("", "", "");
        (idle.cpu.base, idle.cpu.start_up, idle.memory.base) = (IDLE_MILLICORES, IDLE_MILLICORES, IDLE_BYTES);
        let state = State {
            tracked_loads: vec![TrackedLoad::new(idle, Duration::ZERO, LONGEST_STEP)],
            pods: PodRegistry::default(),
            feed: None,
            switches: OutageRules::default(),
            next_scrapes: APIS.map(|api| (api, pipeline.scraping(api).phase)),
            selected: BTreeMap::new(),
        };
        Self { clock, pipeline, origin: Instant::now(), state: Mutex::new(state) }
    }

    /// Adds a load. Call it before the first step. A pod belongs to the first load that matches it.
    pub fn add(&self, load: Load) -> LoadId {
        let closest = APIS.iter().map(|api| self.pipeline.scraping(*api).interval).min();
        let step = closest.map_or(LONGEST_STEP, |interval| (interval / 10).min(LONGEST_STEP));
        let mut state = self.state.lock();
        state.tracked_loads.push(TrackedLoad::new(load, self.origin.elapsed(), step));
        LoadId(state.tracked_loads.len() - 1)
    }

    /// Returns the current state of a load.
    pub fn state(&self, load: LoadId) -> Option<LoadState> {
        Some(self.state.lock().tracked_loads.get(load.0)?.state(self.origin.elapsed()))
    }

    /// Simulates and samples in the background until `stop` is cancelled.
    pub async fn run(&self, cluster: Cluster, stop: CancellationToken) {
        let mut changes = cluster.changes();
        loop {
            changes.mark_unchanged();
            let due = self.step(&cluster);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Ok(()) = changes.changed() => {}
                () = clock::sleep_until(due) => {}
            }
        }
    }

    /// Processes the cluster's changes and takes the samples that are due. Returns the time of the next step if nothing
    /// changes until then.
    pub fn step(&self, cluster: &Cluster) -> Option<Instant> {
        let now = self.origin.elapsed();
        let mut state = self.state.lock();
        state.follow(cluster, now);
        state.switches.update(&self.pipeline, cluster, now);
        for (api, next) in state.next_scrapes {
            if next <= now && !(Gaps { pipeline: &self.pipeline, api, now }).are_stale() {
                state.scrape(api, self.pipeline.scraping(api), now);
            }
        }
        for (api, next) in &mut state.next_scrapes {
            *next = self.pipeline.scraping(*api).next_after(now);
        }
        let scrapes = state.next_scrapes.iter().map(|(_, next)| *next);
        let due = scrapes.chain(OutageRules::due(&self.pipeline, now)).min()?;
        self.origin.checked_add(due)
    }
}

impl State {
    /// Processes the changes of pods.
    fn follow(&mut self, cluster: &Cluster, now: Duration) {
        let feed = self.feed.get_or_insert_with(|| Feed::open(cluster, "pods"));
        for event in feed.drain().collect::<Vec<_>>() {
            match event {
                FeedEvent::Present(stored) => {
                    let object = stored.value();
                    let group = self.group_for(&object);
                    if self.pods.group_of(&stored.uid).is_some_and(|before| before != group) {
                        self.remove(&stored.uid, now);
                    }
                    self.change(group, now, |members, tracked| {
                        let new = || Pod::new(&object, &tracked.load, tracked.metrics.len(), now);
                        let pod = members.pods.entry((*stored.uid).into()).or_insert_with(new);
                        pod.update(&object, &tracked.load, &tracked.streams, now);
                    });
                    self.pods.insert(&stored.uid, group);
                }
                FeedEvent::Deleted(stored) => self.remove(&stored.uid, now),
            }
        }
    }

    fn remove(&mut self, uid: &str, now: Duration) {
        if let Some(group) = self.pods.remove(uid) {
            self.change(group, now, |members, _| {
                members.pods.remove(uid);
            });
        }
    }

    /// Changes a group of pods. Before the change, the work up to `now` is distributed over the previous pods.
    fn change(
        &mut self,
        group: usize,
        now: Duration,
        change: impl FnOnce(&mut pod_registry::Group, &TrackedLoad),
    ) {
        let Some(members) = self.pods.groups.get_mut(group) else { return };
        let Some(tracked) = self.tracked_loads.get_mut(members.load) else { return };
        tracked.advance(now);
        change(members, tracked);
        tracked.count_pods(&self.pods.groups);
    }

    fn group_for(&mut self, object: &serde_json::Value) -> usize {
        let before = self.pods.groups.len();
        let group = self.pods.group_for(object, |namespace, labels| {
            let matches = |tracked: &TrackedLoad| {
                let load = &tracked.load;
                load.namespace == namespace
                    && load.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            };
            self.tracked_loads.iter().skip(1).position(matches).map_or(0, |index| index + 1)
        });
        if self.pods.groups.len() > before {
            self.selected.clear();
            let members = self.pods.groups.get(group);
            if let Some(tracked) = members.and_then(|members| self.tracked_loads.get_mut(members.load)) {
                tracked.groups.push(group);
            }
        }
        group
    }

    fn scrape(&mut self, api: MetricsApi, scraping: &Scraping, now: Duration) {
        for tracked in &mut self.tracked_loads {
            tracked.advance(now);
            if api != MetricsApi::Resource {
                tracked.sample_totals(api == MetricsApi::External, scraping, now);
            }
        }
        for group in &mut self.pods.groups {
            let Some(tracked) = self.tracked_loads.get(group.load) else { continue };
            match api {
                MetricsApi::Resource => {
                    group.pods.values_mut().for_each(|pod| tracked.sample_usage(pod, scraping, now));
                }
                MetricsApi::Custom if tracked.has_pod_metrics() => {
                    group.pods.values_mut().for_each(|pod| tracked.sample_metrics(pod, scraping, now));
                }
                MetricsApi::Custom | MetricsApi::External => {}
            }
        }
    }

    /// Returns the groups that a request for pods selects. Results are cached, because controllers repeat their
    /// requests.
    fn select(&mut self, namespace: &str, labels: &str) -> Result<Vec<usize>, SelectorError> {
        let key = (namespace.to_owned(), labels.to_owned());
        if let Some(groups) = self.selected.get(&key) {
            return Ok(groups.clone());
        }
        let selector = Selector::parse(labels)?;
        let matches = |group: &pod_registry::Group| {
            (namespace.is_empty() || group.namespace == namespace) && selector.matches(&group.labels)
        };
        let all = self.pods.groups.iter().enumerate();
        let groups: Vec<_> = all.filter(|(_, group)| matches(group)).map(|(index, _)| index).collect();
        if self.selected.len() >= SELECTORS {
            self.selected.clear();
        }
        self.selected.insert(key, groups.clone());
        Ok(groups)
    }
}

impl MetricsBackend for LoadMetrics {
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let now = self.origin.elapsed();
        let mut state = self.state.lock();
        if state.feed.is_none() {
            return MetricsReply::Absent;
        }
        let groups = match request.api {
            MetricsApi::External => Vec::new(),
            MetricsApi::Resource | MetricsApi::Custom => {
                match state.select(request.namespace, request.label_selector) {
                    Ok(groups) => groups,
                    Err(error) => return bad_selector(&error),
                }
            }
        };
        let answers = Answers {
            groups: &state.pods.groups,
            tracked_loads: &state.tracked_loads,
            gaps: Gaps { pipeline: &self.pipeline, api: request.api, now },
            now,
            served: self.pipeline.scraping(request.api).served_at(now),
            time: self.clock.now(),
        };
        match request.api {
            MetricsApi::Resource => answers.resource(request, &groups),
            MetricsApi::Custom => answers.custom(request, &groups),
            MetricsApi::External => answers.external(request),
        }
    }
}

#[cfg(test)]
mod tests;
