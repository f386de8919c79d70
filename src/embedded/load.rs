//! Load: what the pods of a cluster have to do, and the metrics that come of it.
//!
//! A [`Load`] says of a set of pods how much [`Work`] there is, each as a [`Curve`] over time, what it costs in cpu and
//! memory, and under which metrics it shows. [`LoadMetrics`] spreads the work over the pods that are ready, each up to its
//! capacity; what exceeds it is lost or waits. It samples the pods as a [`Pipeline`] says and answers for the three metrics
//! APIs from the samples. So a pod that has just started has no sample yet, and a value is as old as the pipeline makes it.
//!
//! The work does not depend on the autoscaler, only on time; what depends on it is how much each pod gets, what is lost,
//! and how long a queue is.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use concertina::clock::VirtualClock;
//! use concertina::embedded::load::*;
//! use concertina::embedded::workload::Span;
//! use concertina::embedded::{Cluster, MetricsApi};
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
//! let spikes = Points::from_csv("0s,0\n10h,0\n10h,400\n10h5m,400\n10h5m,0", Between::Linear).unwrap();
//! let per_second = Curve::sum([Curve::from(day).with_noise(0.05, 1), spikes.into()]);
//! let web = metrics.add(Load {
//!     // Each pod answers up to 100 requests per second, at 4 millicores each.
//!     work: vec![
//!         Work::requests(per_second, 100.0)
//!             .with_cpu(4.0)
//!             .shown_as(Metric::of_pods("http_requests_per_second", Measure::Served))
//!             .shown_as(Metric::of_object("requests", Measure::Demand, "networking.k8s.io/v1", "Ingress", "front")),
//!     ],
//!     cpu: CpuModel { base: 20.0, start_up: 900.0, limit: Some(1_000.0) },
//!     ..Load::of("shop", "app", "web")
//! });
//! cluster.set_metrics(metrics.clone());
//!
//! // In the background, `metrics.run(cluster, stop)`; at any time:
//! metrics.step(&cluster);
//! let state = metrics.state(web).unwrap();
//! assert_eq!((state.ready, state.work[0].capacity), (0, 0.0));
//! # });
//! ```
//!
//! Nothing ticks: [`LoadMetrics::run`] sleeps until a scrape is due, an outage begins or ends, or the cluster changes. A
//! scrape costs a few dozen nanoseconds for each pod; the text of an answer is written when somebody asks.
//!
//! # How it is built
//!
//! `roster` keeps the pods, from a feed of their changes, `stream` lets work flow to them, `ledger` does both for one load
//! and takes its samples (`sample`), `outages` says what is missing, `answer` writes the answers. `curve` and `points` are
//! the loads over time, `model` and `pipeline` what a scenario says.

mod answer;
mod curve;
mod ledger;
mod model;
mod outages;
mod pipeline;
mod points;
mod roster;
mod sample;
mod stream;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use autoscaling::selector::{Selector, SelectorError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::metrics::bad_selector;
use super::workload::feed::{Feed, Seen};
use super::workload::sleep_until;
use super::{Cluster, MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use crate::clock::SharedClock;

pub use curve::{Curve, Shape};
pub use ledger::{LoadState, WorkState};
pub use model::{CpuModel, Excess, Load, Measure, MemoryModel, Metric, Shown, Work};
pub use pipeline::{Outage, OutageKind, Pipeline, Scraping};
pub use points::{Between, LineProblem, Points, PointsError};

use answer::Answers;
use ledger::Ledger;
use outages::{Gaps, Switches};
use roster::{IDLE_BYTES, IDLE_MILLICORES, Pod, Roster};

/// How often metrics-server asks the kubelets, unless told otherwise.
pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);

/// The longest step in which work flows; shorter where scrapes are closer together.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// How many different selectors are remembered before the memory begins anew.
const SELECTORS: usize = 10_000;

const APIS: [MetricsApi; 3] = [MetricsApi::Resource, MetricsApi::Custom, MetricsApi::External];

/// A metrics backend that follows loads.
#[derive(Debug)]
pub struct LoadMetrics {
    clock: SharedClock,
    pipeline: Pipeline,
    /// The beginning of the run.
    origin: Instant,
    state: Mutex<State>,
}

/// Names a load of a [`LoadMetrics`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadId(usize);

#[derive(Debug)]
struct State {
    /// The first one is that of pods that no load knows.
    ledgers: Vec<Ledger>,
    roster: Roster,
    /// Open from the first step on.
    feed: Option<Feed>,
    switches: Switches,
    /// When each API is scraped next.
    next_scrapes: [(MetricsApi, Duration); 3],
    /// Groups by namespace and selector, of the groups that there are.
    selected: BTreeMap<(String, String), Vec<usize>>,
}

impl LoadMetrics {
    /// A backend without loads, whose curves begin now. Nothing is answered before the first [`step`](Self::step).
    pub fn new(clock: SharedClock, pipeline: Pipeline) -> Self {
        let mut idle = Load::of("", "", "");
        (idle.cpu.base, idle.cpu.start_up, idle.memory.base) = (IDLE_MILLICORES, IDLE_MILLICORES, IDLE_BYTES);
        let state = State {
            ledgers: vec![Ledger::new(idle, Duration::ZERO, LONGEST_STEP)],
            roster: Roster::default(),
            feed: None,
            switches: Switches::default(),
            next_scrapes: APIS.map(|api| (api, pipeline.scraping(api).phase)),
            selected: BTreeMap::new(),
        };
        Self { clock, pipeline, origin: Instant::now(), state: Mutex::new(state) }
    }

    /// Adds a load. Loads are added before the first step; then a pod has the first one that it matches.
    pub fn add(&self, load: Load) -> LoadId {
        let closest = APIS.iter().map(|api| self.pipeline.scraping(*api).interval).min();
        let step = closest.map_or(LONGEST_STEP, |interval| (interval / 10).min(LONGEST_STEP));
        let mut state = self.lock();
        state.ledgers.push(Ledger::new(load, self.origin.elapsed(), step));
        LoadId(state.ledgers.len() - 1)
    }

    /// A load as it is now.
    pub fn state(&self, load: LoadId) -> Option<LoadState> {
        Some(self.lock().ledgers.get(load.0)?.state(self.origin.elapsed()))
    }

    /// Computes and samples in the background until `stop` is cancelled.
    pub async fn run(&self, cluster: Cluster, stop: CancellationToken) {
        let mut changes = cluster.changes();
        loop {
            changes.mark_unchanged();
            let due = self.step(&cluster);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Ok(()) = changes.changed() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// Takes in what has changed, and takes the samples that are due; answers when there will be more to do, if nothing
    /// changes until then.
    pub fn step(&self, cluster: &Cluster) -> Option<Instant> {
        let now = self.origin.elapsed();
        let mut state = self.lock();
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
        let due = scrapes.chain(Switches::due(&self.pipeline, now)).min()?;
        self.origin.checked_add(due)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes in the changes of pods.
    fn follow(&mut self, cluster: &Cluster, now: Duration) {
        let feed = self.feed.get_or_insert_with(|| Feed::open(cluster, "pods"));
        for seen in feed.drain().collect::<Vec<_>>() {
            match seen {
                Seen::Here(stored) => {
                    let object = stored.value();
                    let group = self.group_for(&object);
                    if self.roster.group_of(&stored.uid).is_some_and(|before| before != group) {
                        self.remove(&stored.uid, now);
                    }
                    self.change(group, now, |members, ledger| {
                        let new = || Pod::new(&object, &ledger.load, ledger.metrics.len(), now);
                        let pod = members.pods.entry((*stored.uid).into()).or_insert_with(new);
                        pod.update(&object, &ledger.load, &ledger.streams, now);
                    });
                    self.roster.note(&stored.uid, group);
                }
                Seen::Gone(stored) => self.remove(&stored.uid, now),
            }
        }
    }

    fn remove(&mut self, uid: &str, now: Duration) {
        if let Some(group) = self.roster.forget(uid) {
            self.change(group, now, |members, _| {
                members.pods.remove(uid);
            });
        }
    }

    /// Changes a group of pods: work flows to them as they were up to now, and as they are from now on.
    fn change(&mut self, group: usize, now: Duration, how: impl FnOnce(&mut roster::Group, &Ledger)) {
        let Some(members) = self.roster.groups.get_mut(group) else { return };
        let Some(ledger) = self.ledgers.get_mut(members.load) else { return };
        ledger.advance(now);
        how(members, ledger);
        ledger.muster(&self.roster.groups);
    }

    fn group_for(&mut self, object: &serde_json::Value) -> usize {
        let before = self.roster.groups.len();
        let group = self.roster.group_for(object, |namespace, labels| {
            let matches = |ledger: &Ledger| {
                let load = &ledger.load;
                load.namespace == namespace
                    && load.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            };
            self.ledgers.iter().skip(1).position(matches).map_or(0, |place| place + 1)
        });
        if self.roster.groups.len() > before {
            self.selected.clear();
            let load = self.roster.groups.get(group).and_then(|members| self.ledgers.get_mut(members.load));
            if let Some(ledger) = load {
                ledger.groups.push(group);
            }
        }
        group
    }

    fn scrape(&mut self, api: MetricsApi, scraping: &Scraping, now: Duration) {
        for ledger in &mut self.ledgers {
            ledger.advance(now);
            if api != MetricsApi::Resource {
                ledger.sample_totals(api == MetricsApi::External, scraping, now);
            }
        }
        for group in &mut self.roster.groups {
            let Some(ledger) = self.ledgers.get(group.load) else { continue };
            match api {
                MetricsApi::Resource => {
                    group.pods.values_mut().for_each(|pod| ledger.sample_usage(pod, scraping, now));
                }
                MetricsApi::Custom if ledger.has_pod_metrics() => {
                    group.pods.values_mut().for_each(|pod| ledger.sample_metrics(pod, scraping, now));
                }
                MetricsApi::Custom | MetricsApi::External => {}
            }
        }
    }

    /// The groups that a request for pods selects. Controllers ask the same questions again and again.
    fn select(&mut self, namespace: &str, labels: &str) -> Result<Vec<usize>, SelectorError> {
        let key = (namespace.to_owned(), labels.to_owned());
        if let Some(groups) = self.selected.get(&key) {
            return Ok(groups.clone());
        }
        let selector = Selector::parse(labels)?;
        let matches = |group: &roster::Group| {
            (namespace.is_empty() || group.namespace == namespace) && selector.matches(&group.labels)
        };
        let all = self.roster.groups.iter().enumerate();
        let groups: Vec<_> = all.filter(|(_, group)| matches(group)).map(|(place, _)| place).collect();
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
        let mut state = self.lock();
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
            groups: &state.roster.groups,
            ledgers: &state.ledgers,
            gaps: Gaps { pipeline: &self.pipeline, api: request.api, now },
            now,
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
