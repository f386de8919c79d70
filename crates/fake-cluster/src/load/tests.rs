mod pipeline;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    CpuModel, Curve, Load, LoadId, LoadMetrics, Measure, MemoryModel, Metric, Pipeline, Shape, Work,
    WorkState,
};
use crate::object::{list, text};
use crate::{Cluster, MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use clock::VirtualClock;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct World {
    cluster: Cluster,
    metrics: LoadMetrics,
    load: LoadId,
}

impl World {
    fn with(load: Load) -> Self {
        Self::with_pipeline(Pipeline::default(), load)
    }

    fn with_pipeline(pipeline: Pipeline, load: Load) -> Self {
        let clock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().expect("time")));
        let cluster = Cluster::new(clock.clone());
        let metrics = LoadMetrics::new(clock, pipeline);
        let load = metrics.add(load);
        Self { cluster, metrics, load }
    }

    fn pod(&self, app: &str, name: &str, status: &Value) {
        self.cluster.put_raw(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "labels": {"app": app}},
            "spec": {"containers": [{"name": "app"}, {"name": "proxy"}]},
            "status": status,
        }));
        self.metrics.step(&self.cluster);
    }

    /// Creates `count` ready pods of an app.
    fn pods(&self, app: &str, count: usize) {
        for index in 0..count {
            self.pod(app, &format!("{app}-{index}"), &ready());
        }
    }

    /// Advances time in whole seconds.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            tokio::time::advance(secs(1)).await;
            self.metrics.step(&self.cluster);
        }
    }

    fn reply(&self, api: MetricsApi, path: &[&str], labels: &str) -> MetricsReply {
        let path: Vec<_> = path.iter().map(ToString::to_string).collect();
        self.metrics.answer(&MetricsRequest {
            cluster: &self.cluster,
            api,
            version: "v1beta1",
            namespace: "shop",
            path: &path,
            label_selector: labels,
            metric_label_selector: "",
        })
    }

    fn ask(&self, api: MetricsApi, path: &[&str]) -> Vec<Value> {
        match self.reply(api, path, "") {
            MetricsReply::Encoded(text) => {
                let answer: Value = serde_json::from_slice(&text).expect("JSON");
                list(&answer, &["items"]).to_vec()
            }
            other => panic!("expected a list, got {other:?}"),
        }
    }

    /// Returns the millicores of the first container of each pod.
    fn cpu(&self) -> Vec<f64> {
        let of = |item: &Value| {
            let nanos = text(&item["containers"][0], &["usage", "cpu"]).trim_end_matches('n').parse::<f64>();
            nanos.expect("nanocores") / 1e6
        };
        self.ask(MetricsApi::Resource, &["pods"]).iter().map(of).collect()
    }

    fn work(&self) -> WorkState {
        self.metrics.state(self.load).expect("load").work[0]
    }
}

fn ready() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
}

fn starting() -> Value {
    json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "app", "started": false, "state": {"running": {}}}],
    })
}

fn backing_off() -> Value {
    json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{
            "name": "app", "restartCount": 1, "started": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        }],
    })
}

fn web() -> Load {
    Load::new("shop", "app", "web")
}

fn cpu(demand: impl Into<Curve>, capacity: f64) -> Load {
    Load { work: vec![Work::cpu(demand, capacity)], ..web() }
}

fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-3 * expected.max(1.0), "{value} is not close to {expected}");
}

#[tokio::test(start_paused = true)]
async fn cpu_is_spread_almost_evenly_and_its_total_is_exact() {
    let world = World::with(cpu(Curve::constant(1_000.0), 500.0));
    world.pods("web", 4);
    world.pass(15).await;
    let usage = world.cpu();
    assert_eq!(usage.len(), 4);
    assert!(usage.iter().all(|usage| (240.0..=260.0).contains(usage)), "{usage:?}");
    assert!(usage.windows(2).any(|pair| pair[0] != pair[1]));
    close(usage.iter().sum(), 1_000.0);
}

#[tokio::test(start_paused = true)]
async fn skew_spreads_cpu_unevenly() {
    let world = World::with(Load { skew: 0.5, ..cpu(Curve::constant(1_200.0), 500.0) });
    world.pods("web", 12);
    world.pass(15).await;
    let usage = world.cpu();
    assert!(usage.iter().any(|usage| *usage < 80.0) && usage.iter().any(|usage| *usage > 120.0), "{usage:?}");
    close(usage.iter().sum(), 1_200.0);
}

#[tokio::test(start_paused = true)]
async fn pod_use_is_limited_by_its_capacity_and_the_rest_is_unserved() {
    let world = World::with(cpu(Curve::constant(1_000.0), 300.0));
    world.pods("web", 2);
    world.pass(15).await;
    assert_eq!(world.cpu(), [300.0, 300.0]);
    let work = world.work();
    assert_eq!((work.demand, work.capacity), (1_000.0, 600.0));
    assert_eq!((work.arrived, work.served, work.unserved), (15_000.0, 9_000.0, 6_000.0));
    assert_eq!((work.waiting, work.saturated), (0.0, secs(15)));
}

#[tokio::test(start_paused = true)]
async fn cpu_limit_lowers_the_capacity() {
    let work = Work::requests(Curve::constant(100.0), 100.0).with_cpu(10.0);
    let limits = CpuModel { base: 50.0, start_up: 0.0, limit: Some(250.0) };
    let world = World::with(Load { work: vec![work], cpu: limits, ..web() });
    world.pods("web", 3);
    world.pass(15).await;
    assert_eq!(world.work().capacity, 60.0);
    assert_eq!(world.cpu(), [250.0; 3]);
}

#[tokio::test(start_paused = true)]
async fn starting_pods_use_start_up_cpu_and_get_no_work() {
    let limits = CpuModel { base: 10.0, start_up: 900.0, limit: None };
    let world = World::with(Load { cpu: limits, ..cpu(Curve::constant(100.0), 500.0) });
    world.pods("web", 1);
    world.pod("web", "fresh", &starting());
    world.pass(10).await;
    world.pod("web", "fresh", &ready());
    world.pass(5).await;
    let usage = world.cpu();
    // The pod starts for ten seconds, and does half of the work for five seconds.
    close(usage[0], (900.0 * 10.0 + 60.0 * 5.0) / 15.0 + (usage[0] - 620.0));
    assert!((615.0..=625.0).contains(&usage[0]), "{usage:?}");
    close(usage.iter().sum(), 600.0 + (100.0 * 15.0 + 10.0 * 20.0) / 15.0);
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_running_container_have_no_sample() {
    let world = World::with(cpu(Curve::constant(100.0), 500.0));
    world.pods("web", 1);
    world.pod("web", "pending", &json!({"phase": "Pending"}));
    world.pod("web", "crashed", &ready());
    world.pass(15).await;
    assert_eq!(world.cpu().len(), 2);
    world.pod("web", "crashed", &backing_off());
    world.pass(15).await;
    assert_eq!(world.cpu(), [100.0]);
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_load_idle_and_list_every_container() {
    let world = World::with(cpu(Curve::constant(1_000.0), 500.0));
    world.pods("other", 1);
    world.pass(15).await;
    let item = &world.ask(MetricsApi::Resource, &["pods"])[0];
    assert_eq!(list(item, &["containers"]).len(), 2);
    assert_eq!(world.cpu(), [2.0]);
}

#[tokio::test(start_paused = true)]
async fn load_can_name_the_working_container() {
    let world =
        World::with(Load { container: Some("proxy".to_owned()), ..cpu(Curve::constant(100.0), 500.0) });
    world.pods("web", 1);
    world.pass(15).await;
    let item = &world.ask(MetricsApi::Resource, &["pods"])[0];
    assert_eq!(item["containers"][0]["usage"]["cpu"], "2000000n");
    assert_eq!(item["containers"][1]["usage"]["cpu"], "100000000n");
}

#[tokio::test(start_paused = true)]
async fn memory_grows_with_container_age_and_work() {
    let memory = MemoryModel { base: 64.0 * 1024.0, growth: 1024.0 };
    let work = Work::requests(Curve::constant(8.0), 10.0).with_memory(2_048.0);
    let world = World::with(Load { memory, work: vec![work], ..web() });
    world.pods("web", 1);
    let memory = || world.ask(MetricsApi::Resource, &["pods"])[0]["containers"][0]["usage"]["memory"].clone();
    world.pass(15).await;
    assert_eq!(memory(), "95Ki");
    world.pass(15).await;
    assert_eq!(memory(), "110Ki");
    world.pod("web", "web-0", &backing_off());
    world.pass(5).await;
    let mut restarted = starting();
    restarted["containerStatuses"][0]["restartCount"] = json!(1);
    world.pod("web", "web-0", &restarted);
    world.pass(10).await;
    assert_eq!(memory(), "74Ki");
}

#[tokio::test(start_paused = true)]
async fn pod_usage_can_be_read_by_name() {
    let world = World::with(cpu(Curve::constant(100.0), 500.0));
    world.pods("web", 1);
    world.pass(15).await;
    let MetricsReply::Encoded(text) = world.reply(MetricsApi::Resource, &["pods", "web-0"], "") else {
        panic!("expected a PodMetrics")
    };
    let item: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!((&item["kind"], &item["metadata"]["name"]), (&json!("PodMetrics"), &json!("web-0")));
    assert!(matches!(world.reply(MetricsApi::Resource, &["pods", "gone"], ""), MetricsReply::Status(_)));
    world.cluster.delete_now("pods", "shop", "web-0").expect("delete");
    world.metrics.step(&world.cluster);
    assert!(matches!(world.reply(MetricsApi::Resource, &["pods", "web-0"], ""), MetricsReply::Status(_)));
}

#[tokio::test(start_paused = true)]
async fn selector_limits_the_list_and_includes_later_pods() {
    let world = World::with(cpu(Curve::constant(100.0), 500.0));
    let listed = || match world.reply(MetricsApi::Resource, &["pods"], "app in (web, late)") {
        MetricsReply::Encoded(text) => {
            list(&serde_json::from_slice::<Value>(&text).expect("JSON"), &["items"]).len()
        }
        other => panic!("expected a list, got {other:?}"),
    };
    world.pods("web", 2);
    world.pods("other", 2);
    world.pass(15).await;
    assert_eq!(listed(), 2);
    world.pods("late", 1);
    world.pass(15).await;
    assert_eq!(listed(), 3);
    assert!(matches!(world.reply(MetricsApi::Resource, &["pods"], "app in"), MetricsReply::Status(_)));
}

#[tokio::test(start_paused = true)]
async fn requests_are_exposed_per_pod_and_in_total_on_an_object() {
    let work = Work::requests(Curve::constant(90.0), 100.0)
        .with_metric(Metric::for_pods("rps", Measure::Served))
        .with_metric(Metric::for_object("rps", Measure::Demand, "v1", "Service", "front"))
        .with_metric(Metric::for_object(
            "busy",
            Measure::Saturation,
            "networking.k8s.io/v1",
            "Ingress",
            "front",
        ));
    let world = World::with(Load { work: vec![work], ..web() });
    world.pods("web", 3);
    world.pass(15).await;
    let pods = world.ask(MetricsApi::Custom, &["pods", "*", "rps"]);
    let milli = |item: &Value| text(item, &["value"]).trim_end_matches('m').parse::<f64>().expect("value");
    close(pods.iter().map(milli).sum(), 90_000.0);
    assert_eq!((&pods[0]["metricName"], &pods[0]["window"]), (&json!("rps"), &json!(15)));
    assert_eq!(world.ask(MetricsApi::Custom, &["services", "front", "rps"])[0]["value"], "90000m");
    let busy = &world.ask(MetricsApi::Custom, &["ingresses.networking.k8s.io", "front", "busy"])[0];
    assert_eq!(busy["value"], "300m");
    assert!(world.ask(MetricsApi::Custom, &["services", "back", "rps"]).is_empty());
    assert_eq!(world.ask(MetricsApi::Custom, &["pods", "web-1", "rps"]).len(), 1);
    assert!(matches!(world.reply(MetricsApi::Custom, &["pods", "*", "other"], ""), MetricsReply::Status(_)));
}

#[tokio::test(start_paused = true)]
async fn queue_exposes_its_length_and_waiting_time_with_labels() {
    let labels = [("queue", "orders")];
    let work = Work::queue(Shape::Step { before: 10.0, after: 0.0, at: secs(30) }, 5.0)
        .with_metric(Metric::external("queue_length", Measure::Waiting, labels))
        .with_metric(Metric::external("queue_seconds", Measure::WaitingTime, labels))
        .with_metric(Metric::for_pods("queue_per_pod", Measure::Waiting));
    let world = World::with(Load { work: vec![work], ..web() });
    let shown = |metric| world.ask(MetricsApi::External, &[metric])[0]["value"].clone();
    world.pass(30).await;
    assert_eq!(
        (world.work().waiting, shown("queue_length"), shown("queue_seconds")),
        (300.0, json!("300000m"), json!("60000m"))
    );
    world.pods("web", 4);
    world.pass(10).await;
    close(world.work().waiting, 100.0);
    world.pass(20).await;
    assert_eq!((world.work().waiting, shown("queue_length")), (0.0, json!("0m")));
    let item = &world.ask(MetricsApi::External, &["queue_length"])[0];
    assert_eq!(
        (&item["metricLabels"], &item["metricName"]),
        (&json!({"queue": "orders"}), &json!("queue_length"))
    );
    assert_eq!(world.ask(MetricsApi::Custom, &["pods", "*", "queue_per_pod"]).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn arrived_work_is_accounted_for_while_pods_crash() {
    let demand =
        Curve::from(Shape::Sine { mean: 50.0, amplitude: 40.0, period: secs(300) }).with_noise(0.3, 3);
    let lossy = Work::requests(demand.clone(), 12.0);
    let patient = Work::queue(demand, 12.0);
    let world = World::with(Load { work: vec![lossy, patient], ..web() });
    for round in 0..60_u64 {
        let status = if round % 3 == 0 { backing_off() } else { ready() };
        world.pod("web", &format!("web-{}", round % 5), &status);
        world.pass(10).await;
    }
    let state = world.metrics.state(world.load).expect("load");
    for work in &state.work {
        assert!(work.served > 1_000.0);
        close(work.arrived, work.served + work.unserved + work.waiting);
    }
    assert!(state.work[0].unserved > 0.0 && state.work[1].waiting > 0.0);
}

#[tokio::test(start_paused = true)]
async fn reading_the_state_changes_nothing() {
    let mut runs = Vec::new();
    for asks in [false, true] {
        let world = World::with(cpu(Curve::constant(900.0).with_noise(0.2, 7), 500.0));
        world.pods("web", 3);
        for _ in 0..600 {
            tokio::time::advance(Duration::from_millis(100)).await;
            if asks {
                world.work();
            }
        }
        world.metrics.step(&world.cluster);
        runs.push((world.work(), world.ask(MetricsApi::Resource, &["pods"])));
    }
    assert_eq!(runs[0], runs[1]);
}
