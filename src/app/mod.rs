//! The process: the only place that knows everything. Builds, starts, supervises, stops in order.
//!
//! Start: everything is served, the watches fill the stores, then this replica becomes a candidate for the Lease; while
//! another leads it stands by with the same view. End: not ready, no new syncs, syncs in hand, events, the Lease, and
//! serving last.

mod assembly;
mod checks;
mod guard;
mod leading;
mod past;
mod replication;
mod start;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use self::assembly::{Assembly, Parts, Phase};
use self::guard::Guard;
use self::leading::Leading;
use self::past::Past;
use self::replication::Replication;
use crate::api::client::{ClientError, ClientOptions, Clients, ServiceAccount};
use crate::api::gate::{Gate, Refusal};
use crate::api::jitter::Jitter;
use crate::api::kubeconfig::{self, KubeconfigError};
use crate::api::peers::Peers;
use crate::cli::Config;
use crate::clock::SharedClock;
use crate::controller::Observers;
use crate::election;
use crate::history::replica::link::{Link, Served};
use crate::history::replica::{Inheritance, Source};
use crate::permissions;
use crate::serve::{Access, Component, Endpoints, Health, PARITY, ServeError, Server};
use crate::shadow::Parity;
use crate::telemetry::RequestMetrics;
use crate::telemetry::metrics::Metrics as Telemetry;

/// How long syncs that have begun may take to end on the way down. With the times below it fits into the half
/// minute that a pod is given.
const DRAIN: Duration = Duration::from_secs(15);
/// How long events may take to be sent on the way down.
const FLUSH: Duration = Duration::from_secs(5);
/// How long giving the Lease back may take.
const RELEASE: Duration = Duration::from_secs(5);

/// Why the controller cannot run, or cannot go on. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration of the cluster cannot be had.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The clients cannot be made of it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server's certificate, or ours, is refused.
    #[error(
        "{server} cannot be talked to: {message}; check certificate-authority, client-certificate and tls-server-name \
         of the kubeconfig"
    )]
    Certificate {
        /// The API server.
        server: String,
        /// What is wrong, as Go prints it.
        message: String,
    },
    /// It cannot be served as the flags say.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The process cannot be told apart from others.
    #[error(transparent)]
    Identity(#[from] election::IdentityError),
    /// Another replica may lead now.
    #[error("this replica does not lead any more: {0}")]
    LeaseLost(String),
    /// The next leader has to wait until the Lease runs out.
    #[error("the Lease {0} could not be given back; the next leader has to wait until it runs out")]
    LeaseNotReleased(String),
}

/// What a process is placed in.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// How logs call the API server.
    pub server: String,
    /// The time of day.
    pub clock: SharedClock,
    /// Who this process is among the candidates for the Lease.
    pub identity: String,
    /// How replicas reach each other; without it, no history is copied.
    pub link: Option<Arc<dyn Link>>,
    /// Who else is told of concluded syncs.
    pub observers: Observers,
    /// When in each period HPAs are synced.
    pub phase: Phase,
}

/// Runs the controller until `stop`, then ends in order. `observers` are told of concluded syncs, besides its own.
///
/// # Errors
/// What [`AppError`] lists: before the first sync, and when the Lease is lost.
pub async fn run(
    config: &Config,
    clock: SharedClock,
    observers: Observers,
    stop: CancellationToken,
) -> Result<(), AppError> {
    let cluster = kubeconfig::load(config.kubeconfig.as_deref(), config.master.as_deref())?;
    let telemetry = Telemetry::new();
    let counted = RequestMetrics::with_skew(telemetry.clone(), Arc::clone(&clock));
    let options = ClientOptions { observer: Some(Arc::new(counted)), ..client_options(config, &telemetry) };
    let clients = Clients::new(&cluster, &options)?;
    let server = cluster.cluster_url.to_string();
    let elected = config.election.is_some() && !config.dry_run;
    let peers =
        elected.then(|| Peers::new(&clients, &cluster.cluster_url, config.serving.advertised)).flatten();
    let link = peers.map(|peers| Arc::new(peers) as Arc<dyn Link>);
    let identity = election::identity()?;
    let surroundings = Surroundings { server, clock, identity, link, observers, phase: Phase::Name };
    run_with(config, &clients, surroundings, telemetry, stop).await
}

/// The same with clients that exist already.
///
/// # Errors
/// What [`AppError`] lists: before the first sync, and when the Lease is lost.
pub async fn run_with(
    config: &Config,
    clients: &Clients,
    surroundings: Surroundings,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> Result<(), AppError> {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let Surroundings { server, clock, identity, link, observers, phase } = surroundings;
    let access = Access::new(config, clients, &client_options(config, &telemetry), Arc::clone(&clock))?;
    let listening = Server::bind(&config.serving)?;
    let health = Health::new();
    let serving = CancellationToken::new();
    let watches = CancellationToken::new();
    let seed = seed(&clock, &identity);
    let metrics = telemetry.clone();
    let guard = Guard::prepare(config, clients, Arc::clone(&clock), &telemetry);
    let parts = Parts {
        clients,
        config,
        clock: Arc::clone(&clock),
        telemetry: telemetry.clone(),
        observers: Guard::observers(guard.as_ref()).into_iter().chain(observers).collect(),
        seed,
        phase,
    };
    let assembly = Assembly::start(parts, &watches);
    let findings = permissions::check::Findings::default();
    let checking = permissions::check::run(clients.clone(), permissions::needed(config), findings.clone());
    tokio::spawn(watches.clone().run_until_cancelled_owned(checking));
    let component = Component::new(config, Arc::clone(&clock));
    let past = Past::prepare(config, clients, &clock, &telemetry);
    let leading = Leading::prepare(config, clients, identity, clock, seed, link.clone());
    let source = leading.as_ref().map(|_| Source::new(Arc::clone(&assembly.controller)));
    checks::add(&health, &assembly, leading.as_ref(), guard.as_ref(), findings, &stop);
    let endpoints = Endpoints::new(health, metrics, assembly.decisions.clone())
        .with_component(component)
        .with_json(PARITY, Parity::page(assembly.parity.clone()))
        .with_history(Source::page(source.clone()), config.watch_namespaces.clone());
    let (secure, plain) = (listening.secure_address(), listening.plain_address());
    if let Some(link) = &link {
        let certificate = Arc::new(listening.certificate());
        link.serves(Served { endpoints: endpoints.clone(), address: secure, certificate });
    }
    let server_task = tokio::spawn(listening.run(endpoints, access, serving.clone()));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %server,
        secure = secure.map(tracing::field::display),
        health = plain.map(tracing::field::display),
        period = ?config.sync_period,
        dry_run = config.dry_run,
        "concertina starts"
    );

    let leading = leading.zip(source).map(|(leading, source)| {
        let replication = Replication::new(source, link, &leading, &assembly.controller, &telemetry);
        (leading, replication)
    });
    let result = work(&assembly, leading, guard, past, &server, &telemetry, [&stop, &watches]).await;

    watches.cancel();
    serving.cancel();
    if let Err(error) = server_task.await {
        tracing::debug!(%error, "serving ended badly");
    }
    tracing::info!("concertina ends");
    result
}

/// From the first list to the release of the Lease.
async fn work(
    assembly: &Assembly,
    leading: Option<(Leading, Replication)>,
    guard: Option<Guard>,
    past: Option<Past>,
    server: &str,
    telemetry: &Telemetry,
    [stop, watches]: [&CancellationToken; 2],
) -> Result<(), AppError> {
    let Some(synced) = stop.run_until_cancelled(start::synced(assembly, server)).await else {
        return Ok(());
    };
    synced?;
    let controller = &assembly.controller;
    tracing::info!(hpas = controller.hpas.len(), pods = controller.pods.len(), "in sync");
    let takeover = guard.map(|guard| guard.start(controller, watches));
    let Some((leading, mut replication)) = leading else {
        if let Some(takeover) = &takeover {
            takeover.leads(None);
        }
        sync_until(assembly, past, Inheritance::Nothing, stop).await;
        return Ok(());
    };
    let mut candidacy = leading.start(telemetry);
    if replication.follow_until(candidacy.leads(stop)).await {
        let inheritance = candidacy.term().map_or(Inheritance::Nothing, |term| replication.adopt(term));
        replication.leads();
        if let Some(takeover) = &takeover {
            takeover.leads(candidacy.since_others());
        }
        // A leader that is none any more ends as it stands: whatever it still did could be somebody else's by now.
        tokio::select! {
            biased;
            lost = candidacy.lost() => {
                replication.lost();
                return Err(lost);
            }
            in_order = sync_until(assembly, past, inheritance, stop) => {
                // What a sync may still do that was abandoned, nobody could copy.
                if in_order {
                    replication.conclude().await;
                }
            }
        }
    }
    candidacy.release().await
}

/// Learns what was before, syncs until `stop`, then finishes what has begun, within bounds. Whether all of it has ended.
async fn sync_until(
    assembly: &Assembly,
    past: Option<Past>,
    inheritance: Inheritance,
    stop: &CancellationToken,
) -> bool {
    let controller = &assembly.controller;
    let checkpoint = match past.map(|past| stop.run_until_cancelled(past.begin(controller, inheritance))) {
        None => None,
        // On the heap: it is long over while the syncs run.
        Some(begun) => match Box::pin(begun).await {
            Some(checkpoint) => checkpoint,
            // What was not learned, the next leader has to.
            None => return false,
        },
    };
    let running = Arc::clone(controller).run(stop.clone());
    let in_order = tokio::select! {
        biased;
        () = running => true,
        () = async { stop.cancelled().await; tokio::time::sleep(DRAIN).await } => {
            tracing::warn!("syncs that have begun did not end within {DRAIN:?}; they are abandoned");
            false
        }
    };
    let flush = timeout(FLUSH, controller.events.flush());
    let finish = timeout(FLUSH, async {
        if let Some(checkpoint) = checkpoint {
            checkpoint.finish(in_order).await;
        }
    });
    let (flushed, finished) = futures::future::join(flush, finish).await;
    if flushed.is_err() {
        tracing::warn!("not all events could be sent within {FLUSH:?}");
    }
    if finished.is_err() {
        tracing::warn!(
            "the checkpoint of histories could not be written within {FLUSH:?}; it lacks the last seconds"
        );
    }
    in_order
}

/// A number that no other process has, as far as time and names tell.
fn seed(clock: &SharedClock, identity: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (clock.now().as_nanosecond(), identity).hash(&mut hasher);
    hasher.finish()
}

/// What requests are made with: limits, gate, metrics.
pub fn client_options(config: &Config, telemetry: &Telemetry) -> ClientOptions {
    ClientOptions {
        qps: config.qps.map_or(0.0, narrow),
        burst: config.burst,
        status_qps: config.status_qps.map(narrow),
        gate: if config.dry_run { Gate::refusing(Refusal::DryRun) } else { Gate::open() },
        observer: Some(Arc::new(RequestMetrics::new(telemetry.clone()))),
        service_account: config.service_account_credentials.then(|| ServiceAccount {
            namespace: permissions::ACCOUNT_NAMESPACE.to_owned(),
            name: permissions::ACCOUNT_NAME.to_owned(),
            jitter: Jitter::seeded(u64::from(std::process::id())),
        }),
        ..ClientOptions::default()
    }
}

/// A rate as the token bucket takes it; what a 32-bit float cannot hold is infinite, which is unlimited.
#[expect(clippy::cast_possible_truncation, reason = "a rate needs no more digits than a 32-bit float has")]
fn narrow(rate: f64) -> f32 {
    rate as f32
}
