//! The election in real time, on its own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clock::{SharedClock, SystemClock};
use cluster::client::Clients;
use concertina::app::{AppError, ElectionRuntime, RunContext, client_options, run_with};
use concertina::cli::Config;
use concertina::cli::config::{Election, TakeOver};
use concertina::serve::options::Serving;
use controller::assembly::Phase;
use controller::election::{LostReason, Timing};
use controller::reconcile::{ConcludedSync, Observer};
use controller::telemetry::metrics::Metrics;
use fake_cluster::Cluster;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::objects::{external, hpa};

/// Time limit of the block. A passing test takes much less.
const DEADLINE: Duration = Duration::from_secs(20);

/// Blocks the thread of the first sync, and counts the renewals of the Lease.
#[derive(Debug)]
struct Blocks {
    cluster: Cluster,
    stop: CancellationToken,
    renewals: AtomicUsize,
    /// The number of renewals after which the block ends.
    until: usize,
    /// The time without a renewal after which the block ends.
    silence: Duration,
}

impl Observer for Blocks {
    #[expect(clippy::disallowed_methods, reason = "blocks a real thread")]
    fn concluded(&self, _: &ConcludedSync<'_>) {
        let renewed = || {
            let lease = self.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina");
            lease.map(|lease| lease["spec"]["renewTime"].clone())
        };
        let (start, mut last) = (Instant::now(), renewed());
        let mut at = start;
        while self.renewals.load(Ordering::Relaxed) < self.until
            && at.elapsed() < self.silence
            && start.elapsed() < DEADLINE
        {
            std::thread::sleep(Duration::from_millis(2));
            let now = renewed();
            if now != last {
                (last, at) = (now, Instant::now());
                self.renewals.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.stop.cancel();
    }
}

/// Runs a process with one HPA whose first sync blocks. Returns the end of the process and the number of
/// renewals during the block.
async fn run_blocked(timing: Timing, until: usize, silence: Duration) -> (Result<(), AppError>, usize) {
    let clock: SharedClock = Arc::new(SystemClock);
    let cluster = Cluster::new(Arc::clone(&clock));
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    cluster.create(hpa("web", &[external("queue", "10")])).unwrap();
    let config = Config {
        serving: Serving { port: 0, ..Serving::default() },
        takeover: TakeOver::Off,
        election: Some(Election { timing, ..Election::default() }),
        ..Config::default()
    };
    let telemetry = Metrics::new();
    let clients = Clients::over(cluster.connector(), &client_options(&config, &telemetry)).unwrap();
    let stop = CancellationToken::new();
    let renewals = AtomicUsize::new(0);
    let blocks = Arc::new(Blocks { cluster: cluster.clone(), stop: stop.clone(), renewals, until, silence });
    let surroundings = RunContext {
        server: "http://embedded/".to_owned(),
        clock,
        identity: "busy".to_owned(),
        link: None,
        observers: vec![Arc::clone(&blocks) as _],
        phase: Phase::FirstSync,
        election: ElectionRuntime::Separate,
    };
    let ended = run_with(&config, &clients, surroundings, telemetry, stop).await;
    (ended, blocks.renewals.load(Ordering::Relaxed))
}

#[tokio::test]
async fn lease_is_renewed_while_the_process_is_busy() {
    let timing = Timing {
        lease: Duration::from_mins(1),
        renew_deadline: Duration::from_secs(50),
        retry: Duration::from_millis(50),
    };
    let (ended, renewals) = run_blocked(timing, 3, DEADLINE).await;
    ended.unwrap();
    assert_eq!(renewals, 3);
}

#[tokio::test]
async fn lease_is_not_renewed_while_the_process_hangs() {
    let timing = Timing {
        lease: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(900),
        retry: Duration::from_millis(50),
    };
    let (ended, _) = run_blocked(timing, usize::MAX, Duration::from_secs(3)).await;
    let error = ended.unwrap_err();
    assert!(matches!(error, AppError::LeaseLost(LostReason::Unresponsive { .. })), "{error:?}");
}
