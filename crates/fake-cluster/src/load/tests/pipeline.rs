//! The times of samples, outages, and the cost of a simulated day.

use tokio_util::sync::CancellationToken;

use super::*;
use crate::load::{Outage, OutageKind, Relay, Scraping};
use crate::workload::{Distribution, Span, WorkloadModel, Workloads};

#[tokio::test(start_paused = true)]
async fn container_is_sampled_after_ten_seconds() {
    let world = World::with(cpu(Curve::constant(100.0), 500.0));
    world.pass(6).await;
    world.pods("web", 1);
    world.pass(9).await;
    assert_eq!(world.cpu().len(), 0);
    world.pass(15).await;
    let item = &world.ask(MetricsApi::Resource, &["pods"])[0];
    assert_eq!((text(item, &["timestamp"]), text(item, &["window"])), ("2030-01-01T00:00:30Z", "15s"));
}

#[tokio::test(start_paused = true)]
async fn sample_is_a_window_mean_and_stays_until_the_next_scrape() {
    let world = World::with(cpu(Shape::Step { before: 100.0, after: 400.0, at: secs(25) }, 500.0));
    world.pods("web", 1);
    world.pass(29).await;
    close(world.cpu()[0], 100.0);
    world.pass(1).await;
    close(world.cpu()[0], 200.0);
    world.pass(15).await;
    close(world.cpu()[0], 400.0);
}

#[tokio::test(start_paused = true)]
async fn window_spans_several_scrapes_and_delay_withholds_samples() {
    let scraping = Scraping { window: secs(60), delay: secs(20), ..Scraping::default() };
    let pipeline = Pipeline { resource: scraping, ..Pipeline::default() };
    let world =
        World::with_pipeline(pipeline, cpu(Shape::Step { before: 100.0, after: 400.0, at: secs(60) }, 500.0));
    world.pods("web", 1);
    world.pass(34).await;
    assert_eq!(world.cpu().len(), 0);
    world.pass(61).await;
    let item = &world.ask(MetricsApi::Resource, &["pods"])[0];
    assert_eq!((text(item, &["timestamp"]), text(item, &["window"])), ("2030-01-01T00:01:15Z", "1m0s"));
    close(world.cpu()[0], (45.0 * 100.0 + 15.0 * 400.0) / 60.0);
}

#[tokio::test(start_paused = true)]
async fn relay_serves_its_last_reading_until_the_next_one() {
    let relay = Some(Relay { interval: secs(15), phase: secs(5) });
    let scraping = Scraping { relay, ..Scraping::every(secs(10)) };
    let pipeline = Pipeline { resource: scraping, ..Pipeline::default() };
    let world = World::with_pipeline(pipeline, cpu(Curve::constant(100.0), 500.0));
    world.pods("web", 1);
    // Samples are taken every 10 s, and readings every 15 s from 20 s on. A reading includes a sample of the same
    // instant.
    let mut passed = 0;
    for (at, expected) in [(20, 20), (34, 20), (35, 30), (49, 30), (50, 50), (64, 50)] {
        world.pass(at - passed).await;
        passed = at;
        let item = &world.ask(MetricsApi::Resource, &["pods"])[0];
        assert_eq!(
            item["timestamp"],
            format!("2030-01-01T00:{:02}:{:02}Z", expected / 60, expected % 60),
            "{at}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn phase_determines_the_first_scrape() {
    let scraping = Scraping { phase: secs(7), ..Scraping::default() };
    let pipeline = Pipeline { resource: scraping, ..Pipeline::default() };
    let world = World::with_pipeline(pipeline, cpu(Curve::constant(100.0), 500.0));
    world.pods("web", 1);
    world.pass(21).await;
    assert_eq!(world.cpu().len(), 0);
    world.pass(1).await;
    assert_eq!(world.ask(MetricsApi::Resource, &["pods"])[0]["timestamp"], "2030-01-01T00:00:22Z");
}

fn outage(api: MetricsApi, from: u64, length: u64, kind: OutageKind) -> Pipeline {
    let during = Span::new(secs(from), secs(length));
    Pipeline { outages: vec![Outage { api, during, kind }], ..Pipeline::default() }
}

#[tokio::test(start_paused = true)]
async fn empty_outage_removes_all_samples() {
    let world = World::with_pipeline(
        outage(MetricsApi::Resource, 40, 30, OutageKind::Empty),
        cpu(Curve::constant(9.0), 9.0),
    );
    world.pods("web", 3);
    world.pass(39).await;
    assert_eq!(world.cpu().len(), 3);
    world.pass(1).await;
    assert_eq!(world.cpu().len(), 0);
    world.pass(30).await;
    assert_eq!(world.cpu().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn partial_outage_removes_the_same_pods() {
    let missing = OutageKind::Missing { fraction: 0.5 };
    let world =
        World::with_pipeline(outage(MetricsApi::Resource, 20, 60, missing), cpu(Curve::constant(9.0), 9.0));
    world.pods("web", 40);
    let names = || {
        let items = world.ask(MetricsApi::Resource, &["pods"]);
        items.iter().map(|item| text(item, &["metadata", "name"]).to_owned()).collect::<Vec<_>>()
    };
    world.pass(20).await;
    let first = names();
    assert!((10..30).contains(&first.len()), "{}", first.len());
    world.pass(30).await;
    assert_eq!(names(), first);
    world.pass(30).await;
    assert_eq!(names().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn stale_outage_keeps_the_old_samples() {
    let world = World::with_pipeline(
        outage(MetricsApi::Resource, 20, 60, OutageKind::Stale),
        cpu(Curve::constant(9.0), 9.0),
    );
    world.pods("web", 1);
    let time = || world.ask(MetricsApi::Resource, &["pods"])[0]["timestamp"].clone();
    world.pass(79).await;
    assert_eq!(time(), "2030-01-01T00:00:15Z");
    world.pass(11).await;
    assert_eq!(time(), "2030-01-01T00:01:30Z");
}

#[tokio::test(start_paused = true)]
async fn error_outage_adds_a_fault_rule_while_it_lasts() {
    let down = OutageKind::Error { code: 503, message: "service unavailable".to_owned() };
    let world = World::with_pipeline(outage(MetricsApi::Custom, 20, 60, down), web());
    for (seconds, rules) in [(19, 0), (1, 1), (59, 1), (1, 0)] {
        world.pass(seconds).await;
        assert_eq!(world.cluster.faults().active(), rules);
    }
}

#[tokio::test(start_paused = true)]
async fn only_scrapes_and_outage_edges_are_due() {
    let world = World::with_pipeline(outage(MetricsApi::Custom, 20, 3, OutageKind::Timeout), web());
    let start = tokio::time::Instant::now();
    let mut due = Vec::new();
    for _ in 0..5 {
        let next = world.metrics.step(&world.cluster).expect("due");
        due.push((next - start).as_secs());
        tokio::time::advance(next - tokio::time::Instant::now()).await;
    }
    assert_eq!(due, [15, 20, 23, 30, 45]);
}

#[tokio::test(start_paused = true)]
async fn equal_runs_produce_equal_samples() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let world = World::with(cpu(Curve::constant(900.0).with_noise(0.2, 7), 500.0));
        world.pods("web", 3);
        world.pass(60).await;
        runs.push(world.ask(MetricsApi::Resource, &["pods"]));
    }
    assert_eq!(runs[0], runs[1]);
}

/// Simulates a day without a controller, and measures its duration in real time. Every workload scales each hour
/// between half of `pods` and all of them. The usage of the pods is listed every 15 s.
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
