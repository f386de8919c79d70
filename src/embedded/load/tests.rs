use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{CpuLoad, Curve, Load, LoadMetrics, MemoryLoad, QueueLoad, RequestLoad, Shape};
use crate::clock::VirtualClock;
use crate::embedded::object::{list, text};
use crate::embedded::{Cluster, MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};

const SCRAPE: Duration = Duration::from_secs(15);

struct World {
    cluster: Cluster,
    metrics: LoadMetrics,
}

impl World {
    fn with(load: Load) -> Self {
        let clock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().expect("time")));
        let cluster = Cluster::new(clock.clone());
        let metrics = LoadMetrics::new(clock, SCRAPE);
        metrics.add(load);
        Self { cluster, metrics }
    }

    /// Puts `count` pods of an app, ready or not, without changing those that are there.
    fn pods(&self, app: &str, count: usize, ready: bool) {
        for index in 0..count {
            let status = if ready { "True" } else { "False" };
            self.cluster.put_raw(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "namespace": "shop", "name": format!("{app}-{index}"), "uid": format!("uid-{app}-{index}"),
                    "labels": {"app": app},
                },
                "spec": {"containers": [{"name": "app"}, {"name": "proxy"}]},
                "status": {
                    "phase": "Running", "startTime": "2030-01-01T00:00:00Z",
                    "conditions": [{"type": "Ready", "status": status}],
                },
            }));
        }
    }

    /// Passes time in steps of 200 ms.
    async fn pass(&self, time: Duration) {
        for _ in 0..time.as_millis() / 200 {
            tokio::time::advance(Duration::from_millis(200)).await;
            self.metrics.step(&self.cluster);
        }
    }

    fn ask(&self, api: MetricsApi, path: &[&str]) -> Vec<Value> {
        let path: Vec<_> = path.iter().map(ToString::to_string).collect();
        let reply = self.metrics.answer(&MetricsRequest {
            cluster: &self.cluster,
            api,
            version: "v1beta1",
            namespace: "shop",
            path: &path,
            label_selector: "",
            metric_label_selector: "",
        });
        match reply {
            MetricsReply::Json(answer) => list(&answer, &["items"]).to_vec(),
            other => panic!("expected a list, got {other:?}"),
        }
    }

    /// Millicores of the first container of each pod.
    fn cpu(&self) -> Vec<f64> {
        let of = |item: &Value| {
            let nanos = text(&item["containers"][0], &["usage", "cpu"]).trim_end_matches('n').parse::<f64>();
            nanos.expect("nanocores") / 1e6
        };
        self.ask(MetricsApi::Resource, &["pods"]).iter().map(of).collect()
    }
}

fn web() -> Load {
    Load::of("shop", "app", "web")
}

fn cpu(demand: impl Into<Curve>, capacity: f64) -> Load {
    Load { cpu: Some(CpuLoad { demand: demand.into(), capacity }), ..web() }
}

fn queue(arrivals: impl Into<Curve>, drain_per_pod: f64) -> Load {
    let labels = BTreeMap::from([("queue".to_owned(), "orders".to_owned())]);
    let queue =
        QueueLoad { metric: "queue_length".to_owned(), labels, arrivals: arrivals.into(), drain_per_pod };
    Load { queue: Some(queue), ..web() }
}

#[tokio::test(start_paused = true)]
async fn cpu_is_spread_over_the_ready_pods_almost_evenly() {
    let world = World::with(cpu(Curve::constant(1_000.0), 500.0));
    world.pods("web", 4, true);
    world.metrics.step(&world.cluster);
    let usage = world.cpu();
    assert_eq!(usage.len(), 4);
    assert!(usage.iter().all(|usage| (240.0..=260.0).contains(usage)), "{usage:?}");
    assert!(usage.windows(2).any(|pair| pair[0] != pair[1]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_uses_no_more_than_its_capacity() {
    let world = World::with(cpu(Curve::constant(1_000.0), 300.0));
    world.pods("web", 2, true);
    world.metrics.step(&world.cluster);
    assert_eq!(world.cpu(), [300.0, 300.0]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_not_ready_have_no_sample_and_get_no_work() {
    let world = World::with(cpu(Curve::constant(100.0), 500.0));
    world.pods("web", 3, false);
    world.pods("web", 1, true);
    world.metrics.step(&world.cluster);
    let usage = world.cpu();
    assert!(usage.len() == 1 && usage[0] > 95.0, "{usage:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sample_holds_until_the_next_scrape_and_carries_its_time_and_window() {
    let world =
        World::with(cpu(Shape::Step { before: 100.0, after: 400.0, at: Duration::from_secs(5) }, 500.0));
    world.pods("web", 1, true);
    world.pass(Duration::from_secs(14)).await;
    assert!(world.cpu()[0] < 110.0);
    world.pass(Duration::from_secs(2)).await;
    assert!(world.cpu()[0] > 350.0);
    let item = &world.ask(MetricsApi::Resource, &["pods"])[0];
    assert_eq!((text(item, &["timestamp"]), text(item, &["window"])), ("2030-01-01T00:00:15Z", "15s"));
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_load_idle_and_every_container_is_shown() {
    let world = World::with(cpu(Curve::constant(1_000.0), 500.0));
    world.pods("other", 1, true);
    world.metrics.step(&world.cluster);
    let item = &world.ask(MetricsApi::Resource, &["pods"])[0];
    assert_eq!(list(item, &["containers"]).len(), 2);
    assert_eq!(world.cpu(), [2.0]);
}

#[tokio::test(start_paused = true)]
async fn memory_grows_with_the_age_of_the_pod() {
    let memory = MemoryLoad { base: 64.0 * 1024.0, growth: 1024.0 };
    let world = World::with(Load { memory: Some(memory), ..web() });
    world.pods("web", 1, true);
    let memory = || world.ask(MetricsApi::Resource, &["pods"])[0]["containers"][0]["usage"]["memory"].clone();
    world.metrics.step(&world.cluster);
    assert_eq!(memory(), "64Ki");
    world.pass(Duration::from_secs(15)).await;
    assert_eq!(memory(), "79Ki");
}

#[tokio::test(start_paused = true)]
async fn requests_are_shown_for_each_pod_and_in_all_on_their_object() {
    let object = Some(("v1".to_owned(), "Service".to_owned(), "front".to_owned()));
    let requests =
        RequestLoad { metric: "rps".to_owned(), per_second: Curve::constant(90.0), capacity: 100.0, object };
    let world = World::with(Load { requests: Some(requests), ..web() });
    world.pods("web", 3, true);
    world.metrics.step(&world.cluster);
    assert_eq!(world.ask(MetricsApi::Custom, &["pods", "*", "rps"]).len(), 3);
    assert_eq!(world.ask(MetricsApi::Custom, &["services", "front", "rps"])[0]["value"], "90000m");
}

#[tokio::test(start_paused = true)]
async fn a_queue_grows_without_pods_and_is_drained_by_ready_ones() {
    let stop = Shape::Step { before: 10.0, after: 0.0, at: Duration::from_secs(30) };
    let world = World::with(queue(stop, 5.0));
    let waiting = || world.metrics.queue("queue_length").expect("queue").waiting().round();
    let shown = || world.ask(MetricsApi::External, &["queue_length"])[0]["value"].clone();
    world.pass(Duration::from_secs(30)).await;
    assert_eq!(waiting(), 300.0);
    world.pods("web", 4, true);
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(waiting(), 100.0);
    world.pass(Duration::from_secs(20)).await;
    assert_eq!((waiting(), shown()), (0.0, json!("0")));
    let queue = world.metrics.queue("queue_length").expect("queue");
    assert!((queue.arrived() - queue.served()).abs() < 1e-6);
}

#[tokio::test(start_paused = true)]
async fn the_series_of_a_queue_carries_its_labels() {
    let world = World::with(queue(Curve::constant(1.0), 1.0));
    world.metrics.step(&world.cluster);
    let item = &world.ask(MetricsApi::External, &["queue_length"])[0];
    assert_eq!(item["metricLabels"], json!({"queue": "orders"}));
    assert_eq!(item["metricName"], "queue_length");
}

#[tokio::test(start_paused = true)]
async fn two_runs_give_the_same_samples() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let world = World::with(cpu(Curve::constant(900.0).with_noise(0.2, 7), 500.0));
        world.pods("web", 3, true);
        world.pass(Duration::from_mins(1)).await;
        runs.push(world.ask(MetricsApi::Resource, &["pods"]));
    }
    assert_eq!(runs[0], runs[1]);
}
