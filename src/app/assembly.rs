//! A controller put together: clients, stores, queue, watches. The same for the process, the demo and the tests.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::client::Clients;
use crate::api::events::{EventOptions, Recorder};
use crate::api::jitter::Jitter;
use crate::api::mapper::Mapper;
use crate::api::metrics::{ApiMetrics, MetricsOptions};
use crate::api::scale::Scales;
use crate::api::status::Statuses;
use crate::api::watch::{self, Handle, WatchOptions};
use crate::cli::Config;
use crate::clock::SharedClock;
use crate::controller::queue::Queue;
use crate::controller::{Beside, Controller, Histories, HpaIntake, Observer, Observers, PodIntake};
use crate::record::{Decisions, Record};
use crate::shadow::{self, Parity, Shadow};
use crate::store::{Hpas, Overlap, Pods};
use crate::telemetry::metrics::Metrics as Telemetry;

/// The field manager of status writes.
const STATUS_MANAGER: &str = "concertina";

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
}

/// A controller with its watches running.
#[derive(Debug)]
pub struct Assembly {
    /// The controller. Its syncs run once [`Controller::run`] does.
    pub controller: Arc<Controller>,
    /// How the watch of HPAs is doing.
    pub hpas: Handle,
    /// How the watch of pods is doing.
    pub pods: Handle,
    /// The record of its decisions; `None` if it is to keep none.
    pub decisions: Option<Decisions>,
    /// What a dry run compares with another controller; `None` if this is none.
    pub parity: Option<Parity>,
}

impl Parts<'_> {
    /// Puts a controller together that sees nothing yet. The sender of its events runs in the background until the
    /// controller is gone.
    pub fn controller(self) -> Arc<Controller> {
        self.build(false).0
    }

    /// The same, with a shadow if it is to compare itself with another controller.
    fn build(self, beside: bool) -> (Arc<Controller>, Option<Arc<Shadow>>) {
        let Self { clients, config, clock, telemetry, mut observers, .. } = self;
        let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
        let metrics_options = MetricsOptions {
            timeout: config.metrics_timeout,
            max_response: config.max_metrics_response,
            per_api: config.max_concurrent_metric_requests_per_api,
            total: config.max_concurrent_metric_requests,
            version_life: config.sync_period,
        };
        let (events, sender) =
            Recorder::new(clients.core.clone(), Arc::clone(&clock), EventOptions::default());
        // It outlives the watches: what was recorded on the way down is still sent.
        tokio::spawn(sender);
        let queue = Arc::new(Queue::new(telemetry.workqueue("horizontalpodautoscaler")));
        let levels = Arc::clone(&queue);
        telemetry.before_render(move || levels.publish());
        let pods = Arc::new(Pods::new());
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
        observers.extend(shadow.clone().map(|shadow| shadow as Arc<dyn Observer>));
        let controller = Arc::new(Controller {
            hpas: Arc::new(Hpas::new()),
            pods,
            overlap: Arc::new(Overlap::new()),
            mapper: Arc::clone(&mapper),
            scales: Scales::new(clients.scale.clone(), config.field_manager.as_str()),
            statuses: Statuses::new(clients.core.clone(), STATUS_MANAGER),
            metrics: Arc::new(ApiMetrics::new(clients, mapper, metrics_options)),
            events,
            histories: Histories::new(),
            observers,
            beside: shadow.clone().map(|shadow| shadow as Arc<dyn Beside>),
            queue,
            telemetry,
            clock,
            settings: config.settings.clone(),
            stale_guard: config.stale_consistency,
            period: config.sync_period,
            workers: Arc::new(Semaphore::new(config.concurrent_syncs.clamp(1, Semaphore::MAX_PERMITS))),
        });
        (controller, shadow)
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
        // Whoever writes nothing has another one beside it that does, or is to.
        let dry_run = parts.config.dry_run;
        let (controller, shadow) = parts.build(dry_run);
        let parity = shadow.map(|shadow| Parity::new(shadow, Arc::clone(&controller)));
        let decisions = record.map(|record| Decisions::new(record, Arc::clone(&controller)));
        let options =
            |seed| WatchOptions { longest_wait, jitter: Jitter::seeded(seed), ..WatchOptions::default() };
        let (hpas, watching_hpas) = watch::watch::<watch::Hpas, _>(
            watch_client.clone(),
            options(seed),
            HpaIntake::new(Arc::clone(&controller)),
        );
        let (pods, watching_pods) = watch::watch::<watch::Pods, _>(
            watch_client,
            options(seed.wrapping_add(1)),
            PodIntake::new(Arc::clone(&controller.pods)),
        );
        for task in [watching_hpas, watching_pods] {
            tasks.spawn(stop.clone().run_until_cancelled_owned(task));
        }
        Self { controller, hpas, pods, decisions, parity }
    }

    /// Waits until both watches have shown everything there is.
    pub async fn synced(&self) {
        self.hpas.wait_synced().await;
        self.pods.wait_synced().await;
    }
}
