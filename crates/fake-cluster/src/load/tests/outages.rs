//! Outages of the metrics, and the moments at which samples change.

use super::*;

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
