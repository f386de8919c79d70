//! Measures a simulated day without a controller. Run with `cargo test --release --lib a_day -- --ignored
//! --nocapture`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::load::{CpuModel, Curve, Load, LoadMetrics, Measure, Metric, Pipeline, Shape, Work};
use crate::workload::{Distribution, WorkloadModel, Workloads};
use crate::{Cluster, MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use clock::VirtualClock;

/// Simulates a day in which every workload scales each hour between half of `pods` and all of them. The usage
/// of the pods is listed every 15 s.
#[expect(clippy::disallowed_methods, reason = "the measurement needs real time")]
async fn day(workloads: usize, pods: u64) {
    let clock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().expect("time")));
    let cluster = Cluster::new(clock.clone());
    let world = Arc::new(Workloads::new(cluster.clone(), clock.clone()));
    let metrics = Arc::new(LoadMetrics::new(clock, Pipeline::default()));
    let names: Vec<_> = (0..workloads).map(|number| format!("web-{number}")).collect();
    for name in &names {
        let day =
            Shape::BusinessDay { night: 100.0, peak: 900.0, day: Duration::from_hours(24), weekend: 1.0 };
        let work = Work::requests(Curve::from(day).with_noise(0.1, 1), 20.0)
            .with_cpu(5.0)
            .with_metric(Metric::for_pods("rps", Measure::Served));
        let cpu = CpuModel { base: 10.0, start_up: 300.0, limit: Some(500.0) };
        metrics.add(Load { work: vec![work], cpu, ..Load::new("shop", "app", name) });
        let start_up =
            Distribution::LogNormal { median: Duration::from_secs(8), p95: Duration::from_secs(20) };
        world.set_model("shop", name, WorkloadModel { start_up, ..WorkloadModel::default() });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": name},
            "spec": {
                "replicas": pods, "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [
                        {"name": "app", "image": "web:1", "resources": {"requests": {"cpu": "200m"}}},
                    ]},
                },
            },
        });
        cluster.create(deployment).expect("create");
    }
    world.warm_up();
    let stop = CancellationToken::new();
    let (running, token) = (Arc::clone(&world), stop.clone());
    tokio::spawn(async move { running.run(token).await });
    let (running, of, token) = (Arc::clone(&metrics), cluster.clone(), stop.clone());
    tokio::spawn(async move { running.run(of, token).await });

    let start = std::time::Instant::now();
    let (mut bytes, mut listing) = (0, Duration::ZERO);
    for quarter in 0..5_760_u64 {
        tokio::time::sleep(Duration::from_secs(15)).await;
        for name in &names {
            let requested = std::time::Instant::now();
            let reply = metrics.answer(&MetricsRequest {
                cluster: &cluster,
                api: MetricsApi::Resource,
                version: "v1beta1",
                namespace: "shop",
                path: &["pods".to_owned()],
                label_selector: &format!("app={name}"),
                metric_label_selector: "",
            });
            listing += requested.elapsed();
            let MetricsReply::Encoded(text) = reply else { panic!("expected a list") };
            bytes += text.len();
            if quarter % 240 == 0 {
                let mut deployment = cluster.get("apps/deployments", "shop", name).expect("deployment");
                deployment["spec"]["replicas"] = json!(if quarter % 480 == 0 { pods / 2 } else { pods });
                cluster.update(deployment).expect("update");
            }
        }
    }
    let took = start.elapsed();
    println!("{workloads} workloads with {pods} pods: {took:?}, of which lists {listing:?} ({bytes} bytes)");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
#[ignore = "a measurement, for an optimised build"]
async fn a_day_of_one_workload_with_100_pods() {
    day(1, 100).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "a measurement, for an optimised build"]
async fn a_day_of_100_workloads_with_ten_pods() {
    day(100, 10).await;
}
