//! A day in virtual time.

use std::sync::Arc;
use std::time::Duration;

use clock::{SharedClock, VirtualClock};
use concertina::app::{ElectionRuntime, RunContext, client_options, run_with};
use concertina::cli::Config;
use concertina::cli::config::{Election, TakeOver};
use concertina::serve::options::Serving;
use controller::assembly::{Assembly, Parts, Phase};
use controller::options::Options;
use controller::reconcile::Observer;
use controller::record::Record;
use controller::telemetry::metrics::Metrics;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::churn::{CYCLE, Churn, NAMESPACES, SLOTS};
use crate::network::Network;
use crate::{HEAP, growth, link};

/// Time between two rounds of the churn.
const ROUND: Duration = Duration::from_mins(1);
const DAY: usize = 24 * 60;
/// Rounds until the caches of fixed size are full and every table has had its maximum size. The cache of
/// event correlation takes the longest.
const WARM_UP: usize = 14 * 60;
/// Maximum growth of the heap, in percent.
const ALLOWED_PERCENT: f64 = 1.0;

/// Number of entries in each store of a controller.
#[derive(Debug, PartialEq, Eq)]
struct Sizes {
    hpas: usize,
    pods: usize,
    namespaces: usize,
    selectors: usize,
    claims: usize,
    histories: usize,
    records: usize,
    keys: usize,
}

fn sizes(assembly: &Assembly, record: &Record) -> Sizes {
    let controller = &assembly.controller;
    let pods = controller.pods.stats();
    Sizes {
        hpas: controller.hpas.len(),
        pods: pods.pods,
        namespaces: pods.namespaces,
        selectors: pods.selectors,
        claims: controller.overlap.len(),
        histories: controller.histories.len(),
        records: record.len(),
        keys: controller.queue.len() + controller.queue.waiting(),
    }
}

/// Number of series that name a namespace of the churn.
fn series(telemetry: &Metrics) -> usize {
    telemetry.render().lines().filter(|line| line.contains("team-")).count()
}

#[tokio::test(start_paused = true)]
#[ignore = "takes a minute; run by .ci/run --long"]
async fn day_of_churn_leaves_no_state_behind() {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
    let mut churn = Churn::new(Arc::clone(&clock));
    let controller = Options { decisions_per_hpa: 0, ..Options::default() };
    let config = Config { controller, takeover: TakeOver::Off, ..Config::default() };
    let telemetry = Metrics::new();
    let clients = link::clients(&churn.cluster, &client_options(&config, &telemetry));
    let record = Arc::new(Record::new(40));
    let stop = CancellationToken::new();
    let parts = Parts {
        clients: &clients,
        options: &config.controller,
        clock,
        telemetry: telemetry.clone(),
        observers: vec![Arc::clone(&record) as Arc<dyn Observer>],
        seed: 0,
        phase: Phase::Name,
    };
    let assembly = Assembly::start(parts, &stop);
    assembly.synced().await;
    let running = tokio::spawn(Arc::clone(&assembly.controller).run(stop.clone()));
    let expected = |churn: &Churn| Sizes {
        hpas: SLOTS,
        pods: churn.pods(),
        namespaces: NAMESPACES,
        selectors: SLOTS,
        claims: SLOTS,
        histories: SLOTS,
        records: SLOTS,
        keys: SLOTS,
    };

    let mut heaps = Vec::new();
    let mut series_at = Vec::new();
    let mut strings_at = Vec::new();
    let mut next = Instant::now();
    for round in 1..=DAY {
        churn.run_round();
        next += ROUND;
        sleep_until(next).await;
        assert_eq!(sizes(&assembly, &record), expected(&churn), "after {round} rounds");
        if round >= WARM_UP && round % CYCLE == 0 {
            series_at.push(series(&telemetry));
            strings_at.push(assembly.controller.pods.stats().strings);
            heaps.push(HEAP.current_usage());
        }
    }
    let (first, last) = (heaps[0] as f64, heaps[heaps.len() - 1] as f64);
    let grown = growth(first, last);
    println!(
        "a day: {} HPAs replaced; heap of cluster and controller {:.0} kB after the warm-up, {:.0} kB at the end \
         ({grown:+.2} %), {} series",
        DAY * crate::churn::REPLACED,
        first / 1e3,
        last / 1e3,
        series_at[0],
    );
    assert!(series_at.iter().all(|count| *count == series_at[0]), "{series_at:?}");
    assert!(strings_at.iter().all(|count| *count == strings_at[0]), "{strings_at:?}");
    assert!(grown < ALLOWED_PERCENT, "{heaps:?}");

    churn.delete_all();
    sleep_until(next + ROUND).await;
    let empty =
        Sizes { hpas: 0, pods: 0, namespaces: 0, selectors: 0, claims: 0, histories: 0, records: 0, keys: 0 };
    assert_eq!(sizes(&assembly, &record), empty);
    assert_eq!(assembly.controller.pods.stats(), controller::store::Stats::default());
    assert_eq!(series(&telemetry), 0, "{}", telemetry.render());
    stop.cancel();
    running.await.unwrap();
}

/// Rounds between two failovers. Each replica is replaced in every second failover.
const ROUNDS_PER_LEADER: usize = 15;

#[tokio::test(start_paused = true)]
#[ignore = "takes a minute; run by .ci/run --long"]
async fn day_of_failovers_leaves_no_state_behind() {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
    let mut churn = Churn::new(Arc::clone(&clock));
    let network = Network::default();
    let start = |churn: &Churn, number: usize| {
        let config = Config {
            serving: Serving { port: 0, ..Serving::default() },
            takeover: TakeOver::Off,
            election: Some(Election::default()),
            ..Config::default()
        };
        let telemetry = Metrics::new();
        let clients = link::clients(&churn.cluster, &client_options(&config, &telemetry));
        let cable = CancellationToken::new();
        let surroundings = RunContext {
            server: "http://embedded/".to_owned(),
            clock: Arc::clone(&clock),
            identity: format!("replica-{number:04}"),
            observers: Vec::new(),
            phase: Phase::Name,
            election: ElectionRuntime::Shared,
            link: Some(network.join(&cable)),
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            Box::pin(run_with(&config, &clients, surroundings, telemetry, stopped)).await
        });
        (stop, running, cable.drop_guard())
    };
    let mut replicas = vec![start(&churn, 0), start(&churn, 1)];
    let mut heaps = Vec::new();
    let mut next = Instant::now();
    for round in 1..=DAY {
        churn.run_round();
        next += ROUND;
        sleep_until(next).await;
        if round % ROUNDS_PER_LEADER == 0 {
            // The older replica has led since the previous failover.
            let (stop, running, _cable) = replicas.remove(0);
            stop.cancel();
            running.await.unwrap().unwrap();
            replicas.push(start(&churn, round));
        }
        // The measurement precedes the next failover. The memory of connections varies by some percent, so
        // the test averages many measurements.
        if round >= WARM_UP && round % ROUNDS_PER_LEADER == ROUNDS_PER_LEADER - 1 {
            heaps.push(HEAP.current_usage() as f64);
        }
    }
    let (early, late) = heaps.split_at(heaps.len() / 2);
    let mean = |heaps: &[f64]| heaps.iter().sum::<f64>() / heaps.len() as f64;
    let (first, last) = (mean(early), mean(late));
    let grown = growth(first, last);
    println!(
        "a day with {} failovers: heap of cluster and two replicas {:.0} kB on average after the warm-up, {:.0} kB at \
         the end ({grown:+.2} %)",
        DAY / ROUNDS_PER_LEADER,
        first / 1e3,
        last / 1e3
    );
    assert!(grown < ALLOWED_PERCENT, "{heaps:?}");
    for (stop, running, _cable) in replicas {
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}
