//! Counts that follow a load. The pods of some workloads start and terminate, and some HPAs sync every second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::store::Key;
use fake_cluster::load::{Load, LoadMetrics, Pipeline, Shape, Work};
use fake_cluster::pages::{PageResponse, PageServers};
use fake_cluster::workload::Workloads;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::policies::annotated;
use crate::sources::{FILE, config, pods_metric, readings, stage};
use crate::support::objects::{cpu, deployment, external, hpa, pod};
use crate::support::{Fixture, HPAS, Harness};

/// A cluster with simulated workloads.
fn with_workloads() -> Fixture {
    let stage = Fixture::new();
    let workloads = Workloads::new(stage.cluster.clone(), Arc::clone(&stage.clock));
    tokio::spawn(async move { workloads.run(CancellationToken::new()).await });
    stage
}

fn ready(stage: &Fixture, name: &str) -> i64 {
    let deployment = stage.cluster.get("apps/deployments", "shop", name).unwrap();
    deployment["status"]["readyReplicas"].as_i64().unwrap_or(0)
}

/// Pod metrics with `millicores` for each running pod.
fn usage(stage: &Fixture, millicores: u32) -> Value {
    let pods = stage.cluster.list("pods", Some("shop"));
    let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
    let items = running.map(|pod| {
        json!({
            "metadata": {
                "namespace": "shop", "name": pod["metadata"]["name"], "labels": pod["metadata"]["labels"],
            },
            "timestamp": stage.clock.now().to_string(), "window": "15s",
            "containers": [{"name": "app", "usage": {"cpu": format!("{millicores}m"), "memory": "1Mi"}}],
        })
    });
    json!({ "items": items.collect::<Vec<_>>() })
}

#[tokio::test(start_paused = true)]
async fn workload_grows_at_once_and_shrinks_after_the_window() {
    let stage = with_workloads();
    stage.create(deployment("web", 4));
    stage.external("queue", "80");
    stage.create(hpa("web", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.until("the workload has grown", 25.0, |stage| ready(stage, "web") == 8).await;
    rig.external("queue", "20");
    rig.pass(285.0).await;
    assert_eq!(ready(&rig, "web"), 8);
    assert!(rig.condition("web", "AbleToScale").starts_with("True ScaleDownStabilized"));
    rig.until("the workload has shrunk", 60.0, |stage| ready(stage, "web") == 2).await;
    rig.pass(15.0).await;
    let status = &rig.hpa("web")["status"];
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(2), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn workload_scales_to_zero_and_back() {
    let stage = with_workloads();
    stage.create(deployment("web", 2));
    stage.external("queue", "0");
    let mut object = hpa("web", &[external("queue", "10")]);
    object["spec"]["minReplicas"] = json!(0);
    object["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    stage.create(object);
    let rig = Harness::start(stage);
    rig.until("the workload is at zero", 60.0, |stage| {
        stage.cluster.count("pods") == 0 && stage.now().as_secs() > 10
    })
    .await;
    assert!(rig.condition("web", "ScaledToZero").starts_with("True"), "{}", rig.hpa("web")["status"]);
    rig.external("queue", "15");
    rig.until("the workload has two pods again", 25.0, |stage| ready(stage, "web") == 2).await;
    assert!(rig.condition("web", "ScaledToZero").starts_with("False"));
}

#[tokio::test(start_paused = true)]
async fn starting_pods_do_not_count_as_reduced_load() {
    let stage = with_workloads();
    stage.create(deployment("web", 4));
    stage.pass(400.0).await;
    stage.metrics.set_resource(Some(usage(&stage, 100)));
    stage.create(hpa("web", &[cpu(50)]));
    let rig = Harness::start(stage);
    rig.until("the workload has doubled", 20.0, |stage| ready(stage, "web") == 8).await;
    // The new pods have no metrics at first. Then, all pods are close to their target.
    for millicores in [50, 48, 52] {
        rig.metrics.set_resource(Some(usage(&rig, millicores)));
        rig.pass(60.0).await;
        assert_eq!(ready(&rig, "web"), 8);
    }
}

#[tokio::test(start_paused = true)]
async fn count_follows_a_periodic_load() {
    let stage = with_workloads();
    let metrics = Arc::new(LoadMetrics::new(Arc::clone(&stage.clock), Pipeline::default()));
    let demand = Shape::Sine { mean: 300.0, amplitude: 200.0, period: Duration::from_mins(30) };
    metrics.add(Load { work: vec![Work::cpu(demand, 200.0)], ..Load::new("shop", "app", "web") });
    stage.cluster.set_metrics(Arc::clone(&metrics) as _);
    let cluster = stage.cluster.clone();
    tokio::spawn(async move { metrics.run(cluster, CancellationToken::new()).await });
    stage.create(deployment("web", 2));
    stage.create(hpa("web", &[cpu(70)]));
    let rig = Harness::start(stage);
    // The load is 500 millicores at the peak and 100 in the valley. The target is 70 millicores per pod, with a
    // tolerance of a tenth.
    rig.until("the peak has seven", 10.0 * 60.0, |stage| ready(stage, "web") == 7).await;
    let failed = rig.reconciliations("none", "internal");
    rig.until("the valley has two", 20.0 * 60.0, |stage| ready(stage, "web") == 2).await;
    rig.until("the next peak has seven again", 20.0 * 60.0, |stage| ready(stage, "web") == 7).await;
    assert_eq!((rig.reconciliations("none", "internal"), rig.reconciliations("none", "spec")), (failed, 0.0));
}

#[tokio::test(start_paused = true)]
async fn overlapping_hpas_get_a_condition_and_do_not_scale() {
    let stage = Fixture::new();
    stage.target("web", 2);
    for index in 0..2 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[100, 100]);
    for name in ["one", "two"] {
        let mut object = hpa(name, &[cpu(50)]);
        object["spec"]["scaleTargetRef"]["name"] = json!("web");
        stage.create(object);
    }
    // As with the built-in controller, the first HPA is synced before the second HPA has registered its selector.
    let rig = Harness::start(stage);
    let message = "pods by selector app=web are controlled by more than one HPA (e.g. [shop/one shop/two])";
    rig.until("both HPAs have the condition", 16.0, |stage| {
        ["one", "two"].iter().all(|name| {
            stage.condition(name, "ScalingActive") == format!("False AmbiguousSelector {message}")
        })
    })
    .await;
    let events = rig.events("two");
    assert!(events.contains(&format!("AmbiguousSelector {message}")), "{events:?}");
    let count = rig.replicas("web");
    rig.cpu("web", &[400, 400]);
    rig.pass(60.0).await;
    assert_eq!(rig.replicas("web"), count);

    rig.cluster.delete(HPAS, "shop", "two").unwrap();
    rig.until("the remaining HPA scales", 15.1, |stage| stage.replicas("web") > count).await;
    assert!(rig.condition("one", "ScalingActive").starts_with("True ValidMetricFound"));
}

const QUEUE: &str = "metrics: [{metric: queue, prometheus: {server: main, query: 'sum(queue)'}}]";

/// A load that servers report.
#[derive(Clone, Default)]
struct ServedLoad(Arc<AtomicU32>);

impl ServedLoad {
    fn set(&self, load: u32) {
        self.0.store(load, Ordering::Relaxed);
    }

    fn get(&self) -> f64 {
        self.0.load(Ordering::Relaxed).into()
    }
}

/// Starts a server that answers each query with the returned load.
fn queue_server(servers: &PageServers) -> ServedLoad {
    let load = ServedLoad::default();
    let answered = load.clone();
    servers.serve("prometheus:9090", move |_| PageResponse::vector(&[(&[], answered.get())]));
    load
}

/// The HPA with a policy, and with a `behavior` that does not delay scaling.
fn without_delay(object: Value, policy: &str) -> Value {
    let mut object = annotated(object, policy);
    object["spec"]["behavior"] = json!({
        "scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 1}]},
        "scaleDown": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}],
        },
    });
    object
}

fn step(rig: &Harness) -> Value {
    let list = rig.assembly.decisions.as_ref().unwrap().list(&Key::new("shop", "web")).unwrap();
    let entry = serde_json::to_value(&list.decisions[0]).unwrap();
    entry["policy"]["steps"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn decision_follows_the_arrival_of_its_number_within_100_ms() {
    let servers = PageServers::default();
    queue_server(&servers).set(20);
    let (config, _file) = config(&servers, FILE);
    let stage = Fixture::new();
    let names = ["web", "api", "jobs", "mail", "search"];
    for name in names {
        stage.target(name, 2);
    }
    let rig = Harness::with(stage, &config);
    // Each HPA syncs at a different offset within the second.
    for name in names {
        let policy = format!("syncPeriodSeconds: 1\n{QUEUE}");
        rig.create(annotated(hpa(name, &[external("queue", "10")]), &policy));
        rig.pass(0.23).await;
    }
    rig.pass(20.0).await;
    let before = servers.requests().len();
    let mut oldest = 0.0_f64;
    for _ in 0..50 {
        rig.pass(0.37).await;
        for name in names {
            let list = rig.assembly.decisions.as_ref().unwrap().list(&Key::new("shop", name)).unwrap();
            oldest = oldest.max(list.decisions[0].sources[0].age_seconds.unwrap());
        }
    }
    assert!(oldest <= 0.1, "{oldest}");
    // Equal queries are sent once per second for all HPAs.
    let sent = servers.requests().len() - before;
    assert!((16..=21).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn step_in_load_is_followed_within_a_second() {
    let servers = PageServers::default();
    let load = ServedLoad::default();
    load.set(10);
    for last in 1..=2 {
        let load = load.clone();
        servers.serve(format!("10.0.0.{last}:8080"), move |_| {
            PageResponse::page(format!("waiting {}\n", load.get()))
        });
    }
    let policy = "{syncPeriodSeconds: 1, metrics: [{metric: waiting, pods: {port: http, series: waiting, intervalSeconds: 1}}]}";
    let (config, _file) = config(&servers, FILE);
    let rig = Harness::with(stage(pods_metric("waiting", "10"), policy), &config);
    rig.pass(20.3).await;
    assert_eq!(rig.replicas("web"), 2);
    load.set(20);
    rig.until("the step", 1.2, |stage| stage.replicas("web") == 4).await;
    rig.pass(30.0).await;
    assert!(readings(&rig)[0].age_seconds.unwrap() <= 0.1, "{:?}", readings(&rig));
}

#[tokio::test(start_paused = true)]
async fn burst_does_not_scale_down_in_panic_mode() {
    let servers = PageServers::default();
    let load = queue_server(&servers);
    load.set(20);
    let (config, _file) = config(&servers, FILE);
    let run = async |burst: &str| {
        let stage = Fixture::new();
        stage.target("web", 2);
        for index in 0..2 {
            stage.cluster.put_raw(pod("web", index));
        }
        let policy = format!("syncPeriodSeconds: 1\n{burst}\n{QUEUE}");
        stage.create(without_delay(hpa("web", &[external("queue", "10")]), &policy));
        let rig = Harness::with(stage, &config);
        load.set(20);
        // Wait until the panic mode of the start is over.
        rig.pass(90.0).await;
        let reason = step(&rig)["reason"].clone();
        load.set(100);
        rig.until("the burst", 9.0, |stage| stage.replicas("web") == 10).await;
        let panic = step(&rig);
        load.set(20);
        rig.pass(30.0).await;
        let held = rig.replicas("web");
        rig.pass(90.0).await;
        (reason, panic["reason"].clone(), held, rig.replicas("web"))
    };
    assert_eq!(run("burst: {}").await, (json!("Burst"), json!("BurstPanic"), 10, 2));
    assert_eq!(run("").await, (Value::Null, Value::Null, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn queue_at_zero_replicas_is_asked_each_second() {
    let servers = PageServers::default();
    let load = queue_server(&servers);
    let (mut config, _file) = config(&servers, FILE);
    config.controller.settings.scale_to_zero = true;
    let stage = Fixture::new();
    stage.target("web", 1);
    let mut object = without_delay(hpa("web", &[external("queue", "10")]), &format!("burst: {{}}\n{QUEUE}"));
    object["spec"]["minReplicas"] = json!(0);
    stage.create(object);
    let rig = Harness::with(stage, &config);
    rig.until("the scale to zero", 150.0, |stage| stage.replicas("web") == 0).await;
    rig.pass(30.5).await;
    let before = servers.requests().len();
    rig.pass(10.0).await;
    let sent = servers.requests().len() - before;
    assert!((9..=12).contains(&sent), "{sent} {}", rig.condition("web", "ScalingActive"));
    load.set(30);
    rig.until("the first pod", 1.2, |stage| stage.replicas("web") > 0).await;
    rig.until("the demand", 7.0, |stage| stage.replicas("web") == 3).await;
    load.set(0);
    rig.until("the end of the demand", 150.0, |stage| stage.replicas("web") == 0).await;
}
