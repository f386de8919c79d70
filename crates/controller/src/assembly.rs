//! Builds a controller with its stores, queue and watches, for the process, the demo and the tests.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::options::{MetricSources, Options};
use clock::{Jitter, SharedClock};
use cluster::client::Clients;
use cluster::events::{EventOptions, Recorder};
use cluster::gate::Permits;
use cluster::mapper::Mapper;
use cluster::metrics::{ApiMetrics, MetricsOptions, NamespacePods, Sharing};
use cluster::scale::Scales;
use cluster::status::{Following, Statuses};
use cluster::watch::{self, Handle, Informer, WatchOptions};
use coexist::handover::charges::ChargePermits;
use coexist::handover::{self, Handover, NamespaceIntake, Namespaces, ScopedIntake};
use coexist::shadow::{self, Parity, Shadow};
use engine::reconcile::queue::Queue;
use engine::reconcile::{
    Alone, ApiClients, Comparator, Controller, EveryHpa, Guests, Histories, HpaIntake, Observer, Observers,
    PodIntake, Runtime, Scope, Stores, SyncSchedule, Workers,
};
use engine::store::{Hpas, Overlap, Pods};
use engine::targets::{self, CachedScales, Targets};
use engine::tasks::Tasks;
use engine::telemetry::metrics::Metrics as Telemetry;
use journal::decision_events::{self, DecisionEvents};
use journal::record::{Comparisons, Decisions, Record};
use rulebook::{
    Adapters, Bursts, Forecasts, HistoryReader, Policies, PolicyGuest, PolicyRules, PolicyWatches,
    SourceReader,
};
use sources::SourceObserver;

/// The interval at which [`Assembly::synced`] and [`labels_known`] check whether a missing list is forbidden.
const SYNCED_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The field manager of status writes.
pub const STATUS_MANAGER: &str = "concertina";

/// The inputs from which a controller is built.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The clients for all requests.
    pub clients: &'a Clients,
    /// The options of the controller.
    pub options: &'a Options,
    /// The clock of the controller.
    pub clock: SharedClock,
    /// The metrics registry.
    pub telemetry: Telemetry,
    /// Observers of the caller, in addition to those that the options enable.
    pub observers: Observers,
    /// The random seed for waits and watch lengths, and the epoch of the histories.
    pub seed: u64,
    /// The source of each HPA's offset within the sync period.
    pub phase: Phase,
}

/// The source of an HPA's slot within the sync period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The namespace and name of the HPA, so that syncs are spread over the period.
    Name,
    /// No slots: an HPA is due exactly one period after the end of its sync, as in the built-in controller. The times of
    /// replayed runs are then predictable.
    FirstSync,
}

/// A controller with running watches.
#[derive(Debug)]
pub struct Assembly {
    /// The controller. It syncs once [`Controller::run`] is called.
    pub controller: Arc<Controller>,
    /// The state of the HPA watches.
    pub hpas: Informer,
    /// The state of the pod watches, in the order of `hpas`: one watch per namespace, or one watch for all namespaces.
    pub pods: Informer,
    /// The record of decisions; `None` if `--decisions-per-hpa` is 0.
    pub decisions: Option<Decisions>,
    /// The comparison with another controller, for `--dry-run` and `--shadow-others`. Otherwise `None`.
    pub parity: Option<Parity>,
    /// The handover of single HPAs; `None` if all HPAs are in scope.
    pub handover: Option<Arc<Handover>>,
    /// The scaling policies.
    pub policies: Arc<Policies>,
}

impl Parts<'_> {
    /// Builds a controller with empty stores and without watches. It takes Scales from `targets` if possible. The event
    /// senders run in the background until the controller is dropped.
    pub fn controller(self, targets: Arc<dyn CachedScales>) -> Arc<Controller> {
        self.build(false, |_| Some(targets)).controller
    }

    /// Builds a controller. With `compares`, a shadow compares its decisions with those of another controller.
    /// `targets` returns the source of cached Scales, and receives the tasks of the controller.
    fn build(self, compares: bool, targets: impl FnOnce(&Tasks) -> Option<Arc<dyn CachedScales>>) -> Built {
        let Self { clients, options, clock, telemetry, mut observers, seed, phase } = self;
        let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
        let pods = Arc::new(Pods::new());
        let charges = options.charges(&clock);
        // A dry run compares all HPAs. Without a dry run, only the HPAs out of scope are compared.
        let others_only = charges.clone().filter(|_| !options.dry_run);
        // A comparison needs the metrics at the time of the other controller's sync, so no response is shared.
        let sharing = options.metric_sharing.filter(|_| !compares).map(|age| Sharing {
            // At most half a period, so that two consecutive syncs of an HPA never use the same response.
            age: age.min(options.sync_period / 2),
            period: options.sync_period,
            pods: Arc::new(CachedPodCounts(Arc::clone(&pods))),
        });
        let shared = sharing.as_ref().map(|sharing| sharing.age);
        let phases = Arc::new(match phase {
            Phase::Name => SyncSchedule::spread(options.sync_period, shared, clock.now()),
            Phase::FirstSync => SyncSchedule::without_slots(options.sync_period),
        });
        let metrics_options = MetricsOptions {
            timeout: options.metrics_timeout,
            max_response: options.max_metrics_response,
            per_api: options.max_concurrent_metric_requests_per_api,
            total: options.max_concurrent_metric_requests,
            version_life: options.sync_period,
            observer: Some(Arc::new(telemetry.clone())),
            sharing,
        };
        if charges.is_some() {
            clients.gate.require_permits();
        }
        let permits = charges.clone().map(|charges| Arc::new(ChargePermits(charges)) as Arc<dyn Permits>);
        let event_options = EventOptions {
            gate: Some(Arc::clone(&clients.gate)),
            permits: permits.clone(),
            ..EventOptions::default()
        };
        // A dry run writes no events.
        let decision_events = (options.decision_events && !options.dry_run).then(|| event_options.clone());
        let handover = charges.clone().map(|charges| {
            Handover::new(handover::Parts {
                charges,
                period: options.sync_period,
                manager: STATUS_MANAGER,
                telemetry: telemetry.clone(),
                clock: Arc::clone(&clock),
            })
        });
        // The handover is the first observer, so that an HPA is contested before any other reaction to a foreign write.
        observers.splice(..0, handover.clone().map(|handover| handover as Arc<dyn Observer>));
        let (events, sender) = Recorder::new(clients.core.clone(), Arc::clone(&clock), event_options);
        // The sender outlives the watches, so that events recorded during the shutdown are still sent.
        let tasks = Tasks::default();
        tasks.spawn("events", sender);
        observers.extend(decision_events.map(|options| {
            let (gate, permits) = (Arc::clone(&clients.gate), options.permits.clone());
            let options =
                EventOptions { component: STATUS_MANAGER.to_owned(), name_part: ".decision", ..options };
            let (events, sender) = Recorder::new(clients.core.clone(), Arc::clone(&clock), options);
            tasks.spawn("decision events", sender);
            let parts = decision_events::Parts { events, gate, permits, telemetry: telemetry.clone() };
            Arc::new(DecisionEvents::new(parts)) as Arc<dyn Observer>
        }));
        let queue = Arc::new(Queue::new(telemetry.workqueue("horizontalpodautoscaler")));
        let shadow = compares.then(|| {
            Arc::new(Shadow::new(shadow::Parts {
                pods: Arc::clone(&pods),
                queue: Arc::clone(&queue),
                clock: Arc::clone(&clock),
                telemetry: telemetry.clone(),
                settings: options.settings.clone(),
                period: options.sync_period,
                others_of: others_only,
            }))
        });
        let targets = targets(&tasks);
        // Each HPA may need a status write per period, so the rate follows the number of HPAs, unless requests are
        // unlimited.
        let following = options.qps.map(|at_least| Following { period: options.sync_period, at_least });
        observers.extend(shadow.clone().map(|shadow| shadow as Arc<dyn Observer>));
        let sources = options.metric_sources.as_ref().map(|MetricSources(sources)| SourceReader {
            sources: Arc::clone(sources),
            addresses: Arc::default(),
            secrets: clients.core.clone(),
            adapters: Arc::new(Adapters::new(clients, Arc::clone(&mapper), metrics_options.clone())),
        });
        let metrics = Arc::new(ApiMetrics::new(clients, Arc::clone(&mapper), metrics_options));
        let forecasts = Forecasts::new(HistoryReader {
            sources: sources.as_ref().map(|reader| Arc::clone(&reader.sources)),
            tasks: tasks.clone(),
            clock: Arc::clone(&clock),
            telemetry: telemetry.clone(),
            seed,
        });
        let rules = Arc::new(PolicyRules {
            policies: Arc::default(),
            pods: Arc::clone(&pods),
            mapper: Arc::clone(&mapper),
            guard_reads: clients.scale.clone(),
            sources,
            clock: Arc::clone(&clock),
            telemetry: telemetry.clone(),
            forecasts,
            bursts: Bursts::default(),
        });
        let comparator: Arc<dyn Comparator> = match &shadow {
            Some(shadow) => Arc::clone(shadow) as _,
            None => Arc::new(Alone),
        };
        let scope: Arc<dyn Scope> = match charges {
            Some(charges) => charges,
            None => Arc::new(EveryHpa),
        };
        let guests = Guests {
            rules: Arc::new(PolicyGuest(Arc::clone(&rules))),
            comparator,
            permits: permits.unwrap_or_else(|| Arc::new(EveryHpa)),
            scope,
            observers,
        };
        let controller = Arc::new(Controller {
            stores: Stores {
                hpas: Arc::new(Hpas::new()),
                pods,
                overlap: Arc::new(Overlap::new()),
                targets,
                histories: Histories::new(),
            },
            clients: ApiClients {
                mapper,
                scales: Scales::new(clients.scale.clone()),
                statuses: Statuses::new(clients.status.clone(), STATUS_MANAGER).following(following),
                metrics,
                events,
            },
            guests,
            runtime: Runtime {
                queue,
                phases,
                workers: Workers::new(options.concurrent_syncs),
                tasks,
                decisions_end: CancellationToken::new(),
            },
            telemetry,
            clock,
            settings: options.settings.clone(),
            stale_guard: options.stale_consistency,
            period: options.sync_period,
        });
        if let Some(handover) = &handover {
            handover.begin(&controller);
        }
        Built { controller, shadow, handover, rules }
    }
}

/// A controller with its guests.
struct Built {
    controller: Arc<Controller>,
    shadow: Option<Arc<Shadow>>,
    handover: Option<Arc<Handover>>,
    rules: Arc<PolicyRules>,
}

/// The number of cached pods by namespace, for the choice between a list of all pods and a list by selector.
#[derive(Debug)]
struct CachedPodCounts(Arc<Pods>);

impl NamespacePods for CachedPodCounts {
    fn count(&self, namespace: &str) -> usize {
        self.0.len_of(namespace)
    }
}

impl Assembly {
    /// Builds a controller and starts its watches, which run until `stop`.
    pub fn start(mut parts: Parts<'_>, stop: &CancellationToken) -> Self {
        let (watch_client, seed) = (parts.clients.watch.clone(), parts.seed);
        let longest_wait = parts.options.sync_period / 2;
        let capacity = parts.options.decisions_per_hpa;
        let record = (capacity > 0).then(|| Arc::new(Record::new(capacity)));
        parts.observers.extend(record.clone().map(|record| record as Arc<dyn Observer>));
        let watched = parts.options.watch_namespaces.clone();
        // In a dry run, another controller acts on the same HPAs. With --shadow-others, another controller acts on the
        // HPAs out of scope.
        let compares = parts.options.dry_run || parts.options.shadow_others;
        let (watches_policies, clients) = (parts.options.watch_scaling_policies, parts.clients.clone());
        let watching = parts.options.watch_targets.then(|| targets::Options {
            by_namespace: watched.is_some(),
            longest_wait,
            seed,
        });
        let targets = |tasks: &Tasks| {
            let targets = Targets::new(&clients, watching?, tasks, stop);
            Some(Arc::new(targets) as Arc<dyn CachedScales>)
        };
        let Built { controller, shadow, handover, rules } = parts.build(compares, targets);
        let parity = shadow.map(|shadow| Parity::new(shadow, Arc::clone(&controller)));
        let comparisons = parity.clone().map(|parity| Arc::new(parity) as Arc<dyn Comparisons>);
        let decisions =
            record.map(|record| Decisions::new(record, Arc::clone(&controller)).comparing(comparisons));
        let namespaces: Vec<Option<Arc<str>>> = match &watched {
            None => vec![None],
            Some(names) => names.iter().map(|name| Some(name.as_str().into())).collect(),
        };
        let mut seeds = (0..).map(|n| seed.wrapping_add(n));
        let mut watch_options = |namespace: &Option<Arc<str>>| WatchOptions {
            namespace: namespace.clone(),
            longest_wait,
            jitter: Jitter::seeded(seeds.next().unwrap_or(seed)),
            ..WatchOptions::default()
        };
        // A controller for some namespaces has no cluster-wide permissions, so it does not watch the labels of
        // namespaces.
        let labels = handover.as_ref().filter(|_| watched.is_none()).map(|handover| {
            let intake = NamespaceIntake::new(Arc::clone(&controller), Arc::clone(handover.charges()));
            let (watch, watching) =
                watch::watch::<Namespaces, _>(watch_client.clone(), watch_options(&None), intake);
            controller.runtime.tasks.spawn_until(stop, "watch of namespaces", watching);
            watch
        });
        let addresses = rules.sources.as_ref().map(|reader| Arc::clone(&reader.addresses));
        if let Some(reader) = &rules.sources {
            let telemetry = controller.telemetry.clone();
            telemetry.reloaded(true);
            let states = Arc::clone(&reader.adapters).report(Arc::clone(&reader.sources), telemetry.clone());
            controller.runtime.tasks.spawn_until(stop, "metric adapters", states);
            let reading = Arc::clone(&reader.sources).run(telemetry);
            controller.runtime.tasks.spawn_until(stop, "metric sources", reading);
        }
        if watches_policies {
            PolicyWatches {
                controller: Arc::downgrade(&controller),
                policies: Arc::clone(&rules.policies),
                watch: clients.watch,
                discovery: clients.discovery,
                statuses: clients.checkpoint,
                longest_wait,
                seed,
            }
            .start(watched.as_ref(), &controller.runtime.tasks, stop);
        }
        let (mut hpas, mut pods) = (Vec::new(), Vec::new());
        for namespace in namespaces {
            let known: Arc<dyn watch::HpaCache> = Arc::clone(&controller.stores.hpas) as _;
            let (resource, options) = (watch::Hpas { known: Some(known) }, watch_options(&namespace));
            let (client, synced) = (watch_client.clone(), Arc::clone(&controller));
            let (hpa_watch, watching_hpas) = match &handover {
                Some(handover) => {
                    let charges = Arc::clone(handover.charges());
                    let intake = ScopedIntake::new(synced, charges, namespace.clone());
                    watch::watch_of(resource, client, options, intake)
                }
                None => watch::watch_of(resource, client, options, HpaIntake::new(synced, namespace.clone())),
            };
            let (pod_watch, watching_pods) = watch::watch::<watch::Pods, _>(
                watch_client.clone(),
                watch_options(&namespace),
                PodIntake::new(Arc::clone(&controller.stores.pods), namespace.clone())
                    .with_addresses(addresses.clone()),
            );
            let pods_first = namespace.is_some().then(|| pod_watch.clone());
            let labels_first = labels.clone();
            let policies_first = Arc::clone(&rules.policies);
            let tasks = &controller.runtime.tasks;
            tasks.spawn_until(stop, "watch of pods", watching_pods);
            tasks.spawn_until(stop, "watch of HPAs", async move {
                // HPAs sync as soon as they are listed, so the pods of their namespace are listed first.
                if let Some(pods) = pods_first {
                    pods.wait_synced().await;
                }
                // An HPA that is listed before the label of its namespace would be read twice.
                if let Some(labels) = labels_first {
                    labels_known(&labels).await;
                }
                // The first sync of an HPA needs its policies.
                policies_first.answered().await;
                watching_hpas.await;
            });
            hpas.push(hpa_watch);
            pods.push(pod_watch);
        }
        let (hpas, pods) = (Informer::new(hpas), Informer::new(pods));
        controller.register_gauges(vec![hpas.clone(), pods.clone()]);
        let policies = Arc::clone(&rules.policies);
        Self { controller, hpas, pods, decisions, parity, handover, policies }
    }

    /// Waits until HPAs and pods are listed. Ignores forbidden namespaces, if at least one namespace is listed.
    pub fn synced(&self) -> impl Future<Output = ()> + Send + use<> {
        let (hpas, pods) = (self.hpas.clone(), self.pods.clone());
        async move {
            while !settled(&hpas, &pods) {
                let all = async {
                    hpas.wait_synced().await;
                    pods.wait_synced().await;
                };
                let _ = timeout(SYNCED_CHECK_INTERVAL, all).await;
            }
        }
    }
}

/// Waits until the labels of namespaces are listed, or until the list is forbidden.
async fn labels_known(labels: &Handle) {
    while timeout(SYNCED_CHECK_INTERVAL, labels.wait_synced()).await.is_err() {
        if labels.status().error.is_some_and(|error| error.is_forbidden()) {
            tracing::warn!("not permitted to list and watch namespaces; ignoring the labels of namespaces");
            return;
        }
    }
}

/// Returns whether at least one namespace is listed, and all others are listed or forbidden.
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
