//! The process: the only place that knows everything. Builds, starts, supervises, stops in order.

mod assembly;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;

pub use self::assembly::{Assembly, Parts};
use crate::api::client::{ClientError, ClientOptions, Clients, RequestObserver};
use crate::api::error::ApiError;
use crate::api::gate::{Gate, Refusal};
use crate::api::kubeconfig::{self, KubeconfigError};
use crate::api::watch::Handle;
use crate::cli::Config;
use crate::clock::SharedClock;
use crate::serve::{self, Endpoints, Health, Scope};
use crate::telemetry::metrics::Metrics as Telemetry;

/// How long events may take to be sent on the way down.
const FLUSH: Duration = Duration::from_secs(5);
/// How long syncs that have begun may take to end on the way down.
const DRAIN: Duration = Duration::from_secs(30);
/// How often it is looked for a certificate that is refused, before the first list.
const LOOK: Duration = Duration::from_millis(500);
/// How often it is told that there is no API server.
const REMINDER: Duration = Duration::from_mins(1);

/// Why the controller cannot run. Exit code 1.
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
    /// The health address cannot be bound.
    #[error("cannot listen on {address} (--health-address): {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Runs the controller until `stop`, then ends in order: no new syncs, syncs in hand, events, health last.
///
/// # Errors
/// Only before the first sync: what [`AppError`] lists.
pub async fn run(config: &Config, clock: SharedClock, stop: CancellationToken) -> Result<(), AppError> {
    let cluster = kubeconfig::load(config.kubeconfig.as_deref(), config.master.as_deref())?;
    let telemetry = Telemetry::new();
    let clients = Clients::new(&cluster, &client_options(config, &telemetry))?;
    let server = cluster.cluster_url.to_string();
    run_with(config, &clients, &server, clock, telemetry, stop).await
}

/// The same with clients that exist already. `server` is how logs call the API server.
///
/// # Errors
/// Only before the first sync: what [`AppError`] lists.
pub async fn run_with(
    config: &Config,
    clients: &Clients,
    server: &str,
    clock: SharedClock,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> Result<(), AppError> {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let address = config.health_address;
    let listener = TcpListener::bind(address).await.map_err(|source| AppError::Listen { address, source })?;
    let health = Health::new();
    let serving = CancellationToken::new();
    let watches = CancellationToken::new();
    let seed = u64::try_from(clock.now().as_nanosecond().unsigned_abs() % u128::from(u64::MAX)).unwrap_or(0);
    let metrics = telemetry.clone();
    let parts = Parts { clients, config, clock, telemetry, observers: Vec::new(), seed };
    let assembly = Assembly::start(parts, &watches);
    add_checks(&health, &assembly);
    let endpoints = Endpoints { health, metrics, decisions: assembly.decisions.clone() };
    let server_task = tokio::spawn(serve::serve(listener, endpoints, serving.clone()));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %server,
        health = %address,
        period = ?config.sync_period,
        dry_run = config.dry_run,
        "concertina starts"
    );
    let running = async {
        match stop.run_until_cancelled(await_sync(&assembly, server)).await {
            None => return Ok(()),
            Some(Err(error)) => return Err(error),
            Some(Ok(())) => {}
        }
        tracing::info!(
            hpas = assembly.controller.hpas.len(),
            pods = assembly.controller.pods.len(),
            "in sync"
        );
        Arc::clone(&assembly.controller).run(stop.clone()).await;
        Ok(())
    };
    let result = tokio::select! {
        biased;
        result = running => result,
        () = async { stop.cancelled().await; tokio::time::sleep(DRAIN).await } => {
            tracing::warn!("syncs that have begun did not end within {DRAIN:?}; they are abandoned");
            Ok(())
        }
    };
    watches.cancel();
    if timeout(FLUSH, assembly.controller.events.flush()).await.is_err() {
        tracing::warn!("not all events could be sent within {FLUSH:?}");
    }
    serving.cancel();
    if let Err(error) = server_task.await {
        tracing::debug!(%error, "the health server ended badly");
    }
    tracing::info!("concertina ends");
    result
}

/// What requests are made with: limits, gate, metrics.
pub fn client_options(config: &Config, telemetry: &Telemetry) -> ClientOptions {
    ClientOptions {
        qps: config.qps.map_or(0.0, narrow),
        burst: config.burst,
        gate: if config.dry_run { Gate::refusing(Refusal::DryRun) } else { Gate::open() },
        observer: Some(Arc::new(RequestMetrics(telemetry.clone()))),
        ..ClientOptions::default()
    }
}

/// A rate as the token bucket takes it; what a 32-bit float cannot hold is infinite, which is unlimited.
#[expect(clippy::cast_possible_truncation, reason = "a rate needs no more digits than a 32-bit float has")]
fn narrow(rate: f64) -> f32 {
    rate as f32
}

/// Counts requests.
#[derive(Debug)]
struct RequestMetrics(Telemetry);

impl RequestObserver for RequestMetrics {
    fn observe(&self, method: &Method, host: &str, code: Option<u16>, elapsed: Duration) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        self.0.rest_request(&code, host, method.as_str());
        self.0.rest_duration(method.as_str(), host, elapsed);
    }
}

fn add_checks(health: &Health, assembly: &Assembly) {
    let informer = |handle: &Handle| {
        let handle = handle.clone();
        move || {
            let status = handle.status();
            match (status.synced, status.error) {
                (true, _) => Ok(()),
                (false, Some(error)) => Err(format!("{} cannot be listed: {error}", status.resource)),
                (false, None) => Err(format!("{} are not listed yet", status.resource)),
            }
        }
    };
    health.add("ping", Scope::Live, || Ok(()));
    health.add("hpa-informer", Scope::Ready, informer(&assembly.hpas));
    health.add("pod-informer", Scope::Ready, informer(&assembly.pods));
}

/// Waits for the first view of the cluster. Without an API server: one line a minute. A certificate that is refused
/// will be refused again, so that ends it.
async fn await_sync(assembly: &Assembly, server: &str) -> Result<(), AppError> {
    let mut looks = interval_at(Instant::now() + LOOK, LOOK);
    let mut reminder = interval_at(Instant::now() + REMINDER / 6, REMINDER);
    reminder.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let synced = assembly.synced();
    tokio::pin!(synced);
    loop {
        tokio::select! {
            biased;
            () = &mut synced => return Ok(()),
            _ = looks.tick() => {
                if let Some(ApiError::Certificate { message, .. }) = assembly.hpas.status().error {
                    return Err(AppError::Certificate { server: server.to_owned(), message });
                }
            }
            _ = reminder.tick() => {
                let waiting = [assembly.hpas.status(), assembly.pods.status()];
                let waiting: Vec<_> = waiting.into_iter().filter(|status| !status.synced).collect();
                if let Some(error) = waiting.iter().find_map(|status| status.error.as_ref()) {
                    let resources: Vec<_> = waiting.iter().map(|status| status.resource).collect();
                    tracing::warn!(resources = resources.join(","), %server, %error, "waiting for the API server");
                }
            }
        }
    }
}
