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
use controller::election::Timing;
use controller::reconcile::{ConcludedSync, Observer};
use controller::telemetry::metrics::Metrics;
use fake_cluster::Cluster;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::objects::{external, hpa};

/// Time limit of the block. A passing test takes much less.
const DEADLINE: Duration = Duration::from_secs(20);

/// Blocks the thread of the first sync until the Lease was renewed three times, and counts the renewals.
#[derive(Debug)]
struct Blocks {
    cluster: Cluster,
    stop: CancellationToken,
    renewals: AtomicUsize,
}

impl Observer for Blocks {
    #[expect(clippy::disallowed_methods, reason = "blocks a real thread")]
    fn concluded(&self, _: &ConcludedSync<'_>) {
        let renewed = || {
            let lease = self.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina");
            lease.map(|lease| lease["spec"]["renewTime"].clone())
        };
        let (start, mut last) = (Instant::now(), renewed());
        while self.renewals.load(Ordering::Relaxed) < 3 && start.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(2));
            let now = renewed();
            if now != last {
                last = now;
                self.renewals.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.stop.cancel();
    }
}

#[tokio::test]
async fn lease_is_renewed_while_the_process_is_busy() {
    let clock: SharedClock = Arc::new(SystemClock);
    let cluster = Cluster::new(Arc::clone(&clock));
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    cluster.create(hpa("web", &[external("queue", "10")])).unwrap();
    let timing = Timing {
        lease: Duration::from_mins(1),
        renew_deadline: Duration::from_secs(50),
        retry: Duration::from_millis(50),
    };
    let config = Config {
        serving: Serving { port: 0, ..Serving::default() },
        takeover: TakeOver::Off,
        election: Some(Election { timing, ..Election::default() }),
        ..Config::default()
    };
    let telemetry = Metrics::new();
    let clients = Clients::over(cluster.connector(), &client_options(&config, &telemetry)).unwrap();
    let stop = CancellationToken::new();
    let blocks =
        Arc::new(Blocks { cluster: cluster.clone(), stop: stop.clone(), renewals: AtomicUsize::new(0) });
    let surroundings = RunContext {
        server: "http://embedded/".to_owned(),
        clock,
        identity: "busy".to_owned(),
        link: None,
        observers: vec![Arc::clone(&blocks) as _],
        phase: Phase::FirstSync,
        election: ElectionRuntime::Separate,
    };
    let ended: Result<(), AppError> = run_with(&config, &clients, surroundings, telemetry, stop).await;
    ended.unwrap();
    assert_eq!(blocks.renewals.load(Ordering::Relaxed), 3);
}
