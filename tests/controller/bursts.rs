//! HPAs that sync each second, right after the arrival of their numbers, and proposals that follow a stable and a panic
//! window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use controller::store::Key;
use fake_cluster::pages::{PageResponse, PageServers};
use serde_json::{Value, json};

use crate::sources::{ANNOTATION, FILE, config, pods_metric, readings, stage};
use crate::support::objects::{external, hpa, pod};
use crate::support::{Fixture, Harness};

const QUEUE: &str = "metrics: [{metric: queue, prometheus: {server: main, query: 'sum(queue)'}}]";

/// A number that servers report.
#[derive(Clone, Default)]
struct Load(Arc<AtomicU32>);

impl Load {
    fn set(&self, load: u32) {
        self.0.store(load, Ordering::Relaxed);
    }

    fn get(&self) -> f64 {
        self.0.load(Ordering::Relaxed).into()
    }
}

/// A server that answers each query with a load.
fn queue_server(servers: &PageServers) -> Load {
    let load = Load::default();
    let answered = load.clone();
    servers.serve("prometheus:9090", move |_| PageResponse::vector(&[(&[], answered.get())]));
    load
}

/// The HPA with a policy, and with a `behavior` that does not delay scaling.
fn without_delay(mut object: Value, policy: &str) -> Value {
    object["metadata"]["annotations"] = json!({ ANNOTATION: policy });
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
    // Each HPA syncs at another offset within the second.
    for name in names {
        let mut object = hpa(name, &[external("queue", "10")]);
        object["metadata"]["annotations"] = json!({ ANNOTATION: format!("syncPeriodSeconds: 1\n{QUEUE}") });
        rig.create(object);
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
    let load = Load::default();
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
