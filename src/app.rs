//! The process: builds, starts and supervises all components, and stops them in order.
//!
//! At the start, the process serves all ports, fills the caches from the watches, and then becomes a candidate for the
//! Lease. A standby replica keeps the same caches as the leader. At the shutdown, the process turns unready, starts no
//! new syncs and finishes syncs in flight. Then the process flushes events and the checkpoint, releases the Lease, and
//! stops serving last.

mod checks;
mod guard;
mod leader;
mod work;

use std::convert::Infallible;
use std::future::pending;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;

use self::guard::TakeoverSetup;
use self::guard::{GuardSetup, HandoverSetup};
pub use self::leader::ElectionRuntime;
use self::leader::LeaderElection;
use self::work::{HistoryRestore, work};
use crate::permissions;
use crate::serve::{Access, Component, Endpoints, Health, ServeError, Server};
use clock::SharedClock;
use cluster::client::{ClientError, ClientOptions, Clients};
use cluster::kubeconfig::{self, KubeconfigError};
use coexist::shadow::Parity;
use controller::assembly::{Assembly, Parts, Phase};
use controller::election;
use controller::options::MetricSources;
use controller::page::{HANDOVER, PARITY, page as handover_page};
use engine::reconcile::Observers;
use engine::tasks::{TaskFailure, Tasks};
use engine::telemetry::RequestMetrics;
use engine::telemetry::metrics::Metrics as Telemetry;
use flags::Config;
use flags::permissions::{needed, source_permissions};
use sources::{SourceFile, Sources};

/// Time limit for the release of the Lease.
const RELEASE: Duration = Duration::from_secs(5);

/// The error that kept the controller from starting or made it stop. The process exits with code 1.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The kubeconfig or the in-cluster configuration is missing or invalid.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the configured cluster could not be built.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server's certificate or the client's certificate was rejected.
    #[error(
        "failed to connect to {server}: {message}; check certificate-authority, client-certificate and tls-server-name \
         of the kubeconfig"
    )]
    Certificate {
        /// The URL of the API server.
        server: String,
        /// The cause, in the words of Go's TLS client.
        message: String,
    },
    /// The file of metric sources is unusable.
    #[error("--metric-sources: {0}")]
    Sources(#[from] sources::FileError),
    /// The ports could not be served as configured.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A unique identity for the Lease could not be built.
    #[error(transparent)]
    Identity(#[from] election::IdentityError),
    /// The Lease is lost, and another replica may be the leader.
    #[error("lost leadership: {0}")]
    LeaseLost(election::LostReason),
    /// The candidate exited unexpectedly, so the Lease is not renewed.
    #[error("lost leadership: the candidate exited: {0}")]
    CandidateExited(String),
    /// The thread of the election could not start.
    #[error("failed to start the election thread: {0}; raise the thread limit")]
    ElectionThread(#[source] std::io::Error),
    /// The thread of the webhook could not start.
    #[error("failed to start the webhook thread: {0}; raise the thread limit")]
    WebhookThread(#[source] std::io::Error),
    /// The guard refuses the writes of this process.
    #[error(
        "cannot use --handover-guard={guard}: this process runs as {user}, one of --built-in-users, so the guard \
         also refuses its writes; run the pods as a separate ServiceAccount, as in the manifests"
    )]
    BuiltInUser {
        /// The user name of this process.
        user: String,
        /// The value of `--handover-guard`.
        guard: &'static str,
    },
    /// The Lease was not released, so the next leader must wait until it expires.
    #[error("failed to release Lease {0}; the next leader must wait until the Lease expires")]
    LeaseNotReleased(String),
    /// A task panicked. The controller then shut down gracefully.
    #[error(transparent)]
    Task(#[from] TaskFailure),
}

/// The environment of one controller process.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// The name of the API server in logs, such as its URL.
    pub server: String,
    /// The source of the time of day.
    pub clock: SharedClock,
    /// The identity of this process in the Lease.
    pub identity: String,
    /// Further observers of watch events and concluded syncs.
    pub observers: Observers,
    /// The choice of each HPA's offset within the sync period.
    pub phase: Phase,
    /// The runtime of the election.
    pub election: ElectionRuntime,
}

/// Runs the controller until `stop`, then shuts it down gracefully. `observers` receive watch events and every
/// concluded sync.
///
/// # Errors
/// Returns [`AppError`] if the controller fails before its first sync, loses the Lease or fails to release
/// it, or if one of its tasks panics.
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
    let identity = election::identity()?;
    let surroundings = RunContext {
        server,
        clock,
        identity,
        observers,
        phase: Phase::Name,
        election: ElectionRuntime::Separate,
    };
    run_with(config, &clients, surroundings, telemetry, stop).await
}

/// Runs the controller with existing clients until `stop`.
///
/// # Errors
/// Returns [`AppError`] if the controller fails before its first sync, loses the Lease or fails to release
/// it, or if one of its tasks panics.
pub async fn run_with(
    config: &Config,
    clients: &Clients,
    surroundings: RunContext,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> Result<(), AppError> {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    // This token is cancelled with the token of the caller, or when a task fails.
    let stop = stop.child_token();
    let RunContext { server, clock, identity, observers, phase, election } = surroundings;
    let access = Access::new(
        &config.serving,
        config.own_kubeconfig(),
        clients,
        &client_options(config, &telemetry),
        Arc::clone(&clock),
    )?;
    let listening = Server::bind(&config.serving)?;
    let built_in_guard = GuardSetup::prepare(config, clients, &clock)?;
    let health = Health::new();
    let serving = CancellationToken::new();
    let watches = CancellationToken::new();
    let seed = seed(&clock, &identity);
    let metrics = telemetry.clone();
    let guard = TakeoverSetup::prepare(config, clients, Arc::clone(&clock), &telemetry);
    let mut options = config.controller.clone();
    let mut needed = needed(config);
    if let Some(file) = &config.metric_sources {
        needed.extend(source_permissions(config, &SourceFile::read(file)?));
        options.metric_sources = Some(MetricSources(Arc::new(Sources::new(file.clone(), None)?)));
    }
    let parts = Parts {
        clients,
        options: &options,
        clock: Arc::clone(&clock),
        telemetry: telemetry.clone(),
        observers: TakeoverSetup::observers(guard.as_ref()).into_iter().chain(observers).collect(),
        seed,
        phase,
    };
    let assembly = Assembly::start(parts, &watches);
    let handover = HandoverSetup::prepare(config, clients, Arc::clone(&clock), &assembly);
    let findings = permissions::Findings::default();
    let checking = permissions::run(clients.clone(), needed, findings.clone());
    let tasks = assembly.controller.runtime.tasks.clone();
    tasks.spawn("permission check", watches.clone().run_until_cancelled_owned(checking).map(drop));
    let component =
        Component::new(config.controller.settings.version, config.flag_values(), Arc::clone(&clock));
    let past = HistoryRestore::prepare(config, clients, &clock, &telemetry);
    let time = Arc::clone(&clock);
    let leading = LeaderElection::prepare(config, clients, identity, clock, seed, election);
    if let Some(guard) = built_in_guard {
        let shared = (clients, &time, &telemetry);
        guard.start(shared, &assembly, leading.as_ref(), election, &serving)?;
    }
    checks::add(&health, &assembly, leading.as_ref(), guard.as_ref(), findings, &stop);
    checks::add_handover(&health, handover.as_ref());
    let charges = assembly.handover.as_ref().map(|handover| Arc::clone(handover.charges()));
    if charges.is_some() {
        telemetry.handover_guard(config.handover.guard.as_str());
    }
    let handover_page = handover_page(charges, config.handover.guard.as_str());
    let parity_page = Parity::page(assembly.parity.clone());
    let endpoints = Endpoints::new(health, metrics, assembly.decisions.clone())
        .with_component(component)
        .with_json(PARITY, parity_page)
        .with_json(HANDOVER, handover_page);
    let (secure, plain) = (listening.secure_address(), listening.plain_address());
    let serving_pages = listening.run(endpoints, access, serving.clone());
    let server_task = tasks.spawn_until(&serving, "server", serving_pages);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %server,
        secure = secure.map(tracing::field::display),
        health = plain.map(tracing::field::display),
        period = ?config.controller.sync_period,
        dry_run = config.controller.dry_run,
        "starting concertina"
    );

    let guards = (guard, handover);
    let start = (server.as_str(), checks::check(config, &clients.guard));
    let work = work(&assembly, leading, guards, past, start, &telemetry, [&stop, &watches]);
    // The future is boxed, because it is large and moves.
    let result = supervised(&tasks, Box::pin(work), &stop).await;

    watches.cancel();
    serving.cancel();
    // `tasks` records a panic of the server, so the result is ignored.
    let _ = server_task.await;
    tracing::info!("concertina stopped");
    match (tasks.failure(), result) {
        (None, result) => result,
        (Some(failure), result) => {
            if let Err(error) = result {
                tracing::warn!(%error, "shutdown failed");
            }
            Err(failure.into())
        }
    }
}

/// Runs `work`, and cancels `stop` when a task fails. A panic of `work` is recorded as the failure of a task.
async fn supervised(
    tasks: &Tasks,
    work: impl Future<Output = Result<(), AppError>>,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let stopping = async {
        tasks.failed().await;
        stop.cancel();
        pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        ended = tasks.catch("controller".into(), work) => ended.unwrap_or(Ok(())),
        never = stopping => match never {},
    }
}

/// Derives a random seed for this process from the time and the identity.
fn seed(clock: &SharedClock, identity: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (clock.now().as_nanosecond(), identity).hash(&mut hasher);
    hasher.finish()
}

/// Returns the client options that the flags configure, with metrics of requests.
pub fn client_options(config: &Config, telemetry: &Telemetry) -> ClientOptions {
    ClientOptions {
        observer: Some(Arc::new(RequestMetrics::new(telemetry.clone()))),
        ..config.client_options()
    }
}
