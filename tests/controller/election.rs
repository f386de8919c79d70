//! Several replicas: the leader acts, and the standbys watch and take over when the leader stops.

use std::time::Duration;

use concertina::cli::Config;
use fake_cluster::LoggedRequest;

use crate::support::Fixture;
use crate::support::process::Process;

fn start(stage: &Fixture, identity: &str) -> Process {
    Process::start(stage, identity, config())
}

fn config() -> Config {
    Config { takeover: concertina::cli::config::TakeOver::Off, ..Config::default() }
}

fn is_write(request: &LoggedRequest) -> bool {
    !matches!(request.verb, "get" | "list" | "watch") && !request.path.contains("/leases")
}

fn holder(stage: &Fixture) -> String {
    let lease = stage.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina");
    lease.unwrap_or_default()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn standby_watches_everything_and_writes_nothing() {
    let stage = Fixture::growing();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.replicas("web") == 8).await;
    let before = stage.count("get", "/scale");
    let standby = start(&stage, "b");
    stage.pass(10.0).await;
    // The leader syncs every 15 s.
    assert!(stage.count("get", "/scale") <= before + 1);
    let master = r#"leader_election_master_status{name="concertina"}"#;
    assert!(leader.telemetry.render().contains(&format!("{master} 1")));
    assert!(standby.telemetry.render().contains(&format!("{master} 0")));
    let hpas = "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers 1";
    assert!(standby.telemetry.render().contains(hpas));
    standby.end().await;
    assert_eq!(holder(&stage), "a");
    leader.end().await;
    assert_eq!(holder(&stage), "");
}

#[tokio::test(start_paused = true)]
async fn planned_handover_takes_less_than_two_seconds() {
    let stage = Fixture::growing();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.replicas("web") == 8).await;
    let standby = start(&stage, "b");
    stage.pass(7.0).await;
    let stopped = stage.now();
    leader.end().await;
    stage.until("b leads", 2.0, |stage| stage.syncs("web").last().is_some_and(|at| *at >= stopped)).await;
    assert_eq!(holder(&stage), "b");
    standby.end().await;
}

#[tokio::test(start_paused = true)]
async fn failover_after_a_crash_takes_at_most_17_s_without_other_writes() {
    let mut waits = Vec::new();
    for round in 0..40_u32 {
        let stage = Fixture::growing();
        let leader = start(&stage, "a");
        stage.until("a leads", 5.0, |stage| stage.replicas("web") == 8).await;
        let standby = start(&stage, "b");
        stage.pass(20.0 + f64::from(round) * 0.37).await;
        leader.cut_off();
        let cut = stage.now();
        // The next leader has a rescale to write.
        stage.external("queue", "100");
        let failure = tokio::spawn(leader.wait_for_failure());
        stage.until("b decides", 20.0, |stage| stage.replicas("web") == 10).await;
        waits.push(stage.now().saturating_sub(cut));
        let writes = stage.times(is_write);
        assert!(!writes.iter().any(|at| *at > cut && *at < cut + Duration::from_secs(10)), "{writes:?}");
        let (error, took) = failure.await.unwrap();
        assert!(error.contains("lost leadership"), "{error}");
        assert!(took <= Duration::from_secs(10), "{took:?}");
        standby.end().await;
    }
    waits.sort();
    assert!(waits[37] <= Duration::from_secs(17), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn only_one_of_two_replicas_that_start_together_writes() {
    let stage = Fixture::growing();
    let (a, b) = (start(&stage, "a"), start(&stage, "b"));
    stage.pass(100.0).await;
    // The HPA has one sync per period, and one at the start.
    assert!((6..=8).contains(&stage.syncs("web").len()), "{:?}", stage.syncs("web"));
    a.end().await;
    b.end().await;
}
