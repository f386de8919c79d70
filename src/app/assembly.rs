//! A controller put together: clients, stores, queue, watches. The same for the process, the demo and the tests.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::client::Clients;
use crate::api::events::{EventOptions, Recorder};
use crate::api::jitter::Jitter;
use crate::api::mapper::Mapper;
use crate::api::metrics::{ApiMetrics, MetricsOptions, NamespacePods, Sharing};
use crate::api::scale::Scales;
use crate::api::status::{Following, Statuses};
use crate::api::watch::{self, Handle, Informer, WatchOptions};
use crate::cli::Config;
use crate::cli::config::ScaleSource;
use crate::clock::SharedClock;
use crate::controller::queue::Queue;
use crate::controller::{
    Beside, Controller, Histories, HpaIntake, Observer, Observers, Phases, PodIntake, Workers,
};
use crate::record::{Comparisons, Decisions, Record};
use crate::shadow::{self, Parity, Shadow};
use crate::store::{Hpas, Overlap, Pods};
use crate::targets::{self, Targets};
use crate::telemetry::metrics::Metrics as Telemetry;

/// How often it is looked whether only forbidden namespaces are missing.
const LOOK: Duration = Duration::from_millis(500);
/// The field manager of status writes.
pub(super) const STATUS_MANAGER: &str = "concertina";

/// What a controller is put together from.
#[derive(Debug)]
pub struct Parts<'a> {
    /// How requests are made.
    pub clients: &'a Clients,
    /// Flags and gates.
    pub config: &'a Config,
    /// The time of day.
    pub clock: SharedClock,
    /// What is counted.
    pub telemetry: Telemetry,
    /// Who is told of concluded syncs, besides the record of decisions.
    pub observers: Observers,
    /// Spreads waits and watch lengths; equal seeds give equal runs.
    pub seed: u64,
    /// When in each period HPAs are synced.
    pub phase: Phase,
}

/// What makes the phase of an HPA: when in each period it is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its namespace and name among those of the others: syncs are spread over the period.
    Name,
    /// Its first sync, as with the built-in controller: what is played then has times that can be told beforehand.
    FirstSync,
}

/// A controller with its watches running.
#[derive(Debug)]
pub struct Assembly {
    /// The controller. Its syncs run once [`Controller::run`] does.
    pub controller: Arc<Controller>,
    /// How the watches of HPAs are doing.
    pub hpas: Informer,
    /// How the watches of pods are doing; of the same namespaces in the same order.
    pub pods: Informer,
    /// The record of its decisions; `None` if it is to keep none.
    pub decisions: Option<Decisions>,
    /// What a dry run compares with another controller; `None` if this is none.
    pub parity: Option<Parity>,
}

impl Parts<'_> {
    /// Puts a controller together that sees nothing yet. The sender of its events runs in the background until the
    /// controller is gone.
    pub fn controller(self) -> Arc<Controller> {
        self.build(false, None).0
    }

    /// The same, with a shadow if it is to compare itself with another controller. It watches targets until `stop`, if it
    /// is to watch at all.
    fn build(self, beside: bool, stop: Option<&CancellationToken>) -> (Arc<Controller>, Option<Arc<Shadow>>) {
        let Self { clients, config, clock, telemetry, mut observers, seed, phase } = self;
        let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
        let pods = Arc::new(Pods::new());
        // Whoever is compared with another controller has to read what that one read when it acted.
        let sharing = config.metric_sharing.filter(|_| !beside).map(|age| Sharing {
            // No HPA is to be answered twice with the same.
            age: age.min(config.sync_period / 2),
            period: config.sync_period,
            pods: Arc::new(KnownPods(Arc::clone(&pods))),
        });
        let shared = sharing.as_ref().map(|sharing| sharing.age);
        let phases = Arc::new(match phase {
            Phase::Name => Phases::spread(config.sync_period, shared, clock.now()),
            Phase::FirstSync => Phases::of_first_syncs(config.sync_period),
        });
        let metrics_options = MetricsOptions {
            timeout: config.metrics_timeout,
            max_response: config.max_metrics_response,
            per_api: config.max_concurrent_metric_requests_per_api,
            total: config.max_concurrent_metric_requests,
            version_life: config.sync_period,
            observer: Some(Arc::new(telemetry.clone())),
            sharing,
        };
        let event_options = EventOptions { gate: Some(Arc::clone(&clients.gate)), ..EventOptions::default() };
        let (events, sender) = Recorder::new(clients.core.clone(), Arc::clone(&clock), event_options);
        // It outlives the watches: what was recorded on the way down is still sent.
        tokio::spawn(sender);
        let queue = Arc::new(Queue::new(telemetry.workqueue("horizontalpodautoscaler")));
        let shadow = beside.then(|| {
            Arc::new(Shadow::new(shadow::Parts {
                pods: Arc::clone(&pods),
                queue: Arc::clone(&queue),
                clock: Arc::clone(&clock),
                telemetry: telemetry.clone(),
                settings: config.settings.clone(),
                period: config.sync_period,
            }))
        });
        let targets = stop.filter(|_| config.scale_source != ScaleSource::Get).map(|stop| {
            let options = targets::Options {
                warn: config.scale_source == ScaleSource::Watch,
                by_namespace: config.watch_namespaces.is_some(),
                longest_wait: config.sync_period / 2,
                seed,
            };
            Arc::new(Targets::new(clients, options, stop))
        });
        // A limit that was given stands.
        let following = config
            .qps
            .filter(|_| config.status_qps.is_none())
            .map(|at_least| Following { period: config.sync_period, at_least });
        observers.extend(shadow.clone().map(|shadow| shadow as Arc<dyn Observer>));
        let controller = Arc::new(Controller {
            hpas: Arc::new(Hpas::new()),
            pods,
            overlap: Arc::new(Overlap::new()),
            mapper: Arc::clone(&mapper),
            scales: Scales::new(clients.scale.clone(), config.field_manager.as_str()),
            targets,
            statuses: Statuses::new(clients.status.clone(), STATUS_MANAGER).following(following),
            metrics: Arc::new(ApiMetrics::new(clients, mapper, metrics_options)),
            events,
            histories: Histories::of_epoch(seed),
            observers,
            beside: shadow.clone().map(|shadow| shadow as Arc<dyn Beside>),
            queue,
            phases,
            telemetry,
            clock,
            settings: config.settings.clone(),
            stale_guard: config.stale_consistency,
            period: config.sync_period,
            workers: Workers::new(config.concurrent_syncs),
        });
        (controller, shadow)
    }
}

/// What the watch has shown of pods, for who weighs lists of them.
#[derive(Debug)]
struct KnownPods(Arc<Pods>);

impl NamespacePods for KnownPods {
    fn count(&self, namespace: &str) -> usize {
        self.0.len_of(namespace)
    }
}

impl Assembly {
    /// Puts a controller together and starts its watches, until `stop`.
    pub fn start(mut parts: Parts<'_>, stop: &CancellationToken) -> Self {
        let tasks = TaskTracker::new();
        let (watch_client, seed) = (parts.clients.watch.clone(), parts.seed);
        let longest_wait = parts.config.sync_period / 2;
        let capacity = parts.config.decisions_per_hpa;
        let record = (capacity > 0).then(|| Arc::new(Record::new(capacity)));
        parts.observers.extend(record.clone().map(|record| record as Arc<dyn Observer>));
        let watched = parts.config.watch_namespaces.clone();
        // Whoever writes nothing has another one beside it that does, or is to.
        let dry_run = parts.config.dry_run;
        let (controller, shadow) = parts.build(dry_run, Some(stop));
        let parity = shadow.map(|shadow| Parity::new(shadow, Arc::clone(&controller)));
        let comparisons = parity.clone().map(|parity| Arc::new(parity) as Arc<dyn Comparisons>);
        let decisions =
            record.map(|record| Decisions::new(record, Arc::clone(&controller)).comparing(comparisons));
        let namespaces: Vec<Option<Arc<str>>> = match &watched {
            None => vec![None],
            Some(names) => names.iter().map(|name| Some(name.as_str().into())).collect(),
        };
        let mut seeds = (0..).map(|n| seed.wrapping_add(n));
        let mut options = |namespace: &Option<Arc<str>>| WatchOptions {
            namespace: namespace.clone(),
            longest_wait,
            jitter: Jitter::seeded(seeds.next().unwrap_or(seed)),
            ..WatchOptions::default()
        };
        let (mut hpas, mut pods) = (Vec::new(), Vec::new());
        for namespace in namespaces {
            let known: Arc<dyn watch::KnownHpas> = Arc::clone(&controller.hpas) as _;
            let (hpa_watch, watching_hpas) = watch::watch_of(
                watch::Hpas { known: Some(known) },
                watch_client.clone(),
                options(&namespace),
                HpaIntake::new(Arc::clone(&controller), namespace.clone()),
            );
            let (pod_watch, watching_pods) = watch::watch::<watch::Pods, _>(
                watch_client.clone(),
                options(&namespace),
                PodIntake::new(Arc::clone(&controller.pods), namespace.clone()),
            );
            let pods_first = namespace.is_some().then(|| pod_watch.clone());
            tasks.spawn(stop.clone().run_until_cancelled_owned(watching_pods));
            tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
                // Other namespaces may be at work already: what comes from here must find its pods.
                if let Some(pods) = pods_first {
                    pods.wait_synced().await;
                }
                watching_hpas.await;
            }));
            hpas.push(hpa_watch);
            pods.push(pod_watch);
        }
        let (hpas, pods) = (Informer::new(hpas), Informer::new(pods));
        controller.publish_levels(vec![hpas.clone(), pods.clone()]);
        Self { controller, hpas, pods, decisions, parity }
    }

    /// Waits for the first view of the cluster: until everything was listed. One of several namespaces that may not be
    /// listed, or that is not there, does not hold up the others.
    pub fn synced(&self) -> impl Future<Output = ()> + Send + use<> {
        let (hpas, pods) = (self.hpas.clone(), self.pods.clone());
        async move {
            while !settled(&hpas, &pods) {
                let all = async {
                    hpas.wait_synced().await;
                    pods.wait_synced().await;
                };
                let _ = timeout(LOOK, all).await;
            }
        }
    }
}

/// Whether everything is listed but what is forbidden, and that is not all.
fn settled(hpas: &Informer, pods: &Informer) -> bool {
    let is_forbidden = |watch: &Handle| watch.status().error.is_some_and(|error| error.is_forbidden());
    let mut any = false;
    for (hpas, pods) in hpas.watches().zip(pods.watches()) {
        if hpas.is_synced() && pods.is_synced() {
            any = true;
        } else if !is_forbidden(hpas) && !is_forbidden(pods) {
            return false;
        }
    }
    any
}
