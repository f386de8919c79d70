//! Histories that outlive the leader: a standby copies them and uses them as the next leader.

use std::time::Duration;

use serde_json::{Value, json};

use crate::checkpoint::plain;
use crate::support::objects::{SHOP, external, hpa};
use crate::support::{Fixture, Process};

/// Period of the rate policies and length of the scale-down window, in seconds.
const PERIOD: f64 = 300.0;
/// The sync period, in seconds.
const SYNC: f64 = 15.0;

/// One HPA with windows and rate policies in both directions: two pods up in five minutes, one pod down.
fn stage() -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", "40");
    let mut web = hpa("web", &[external("queue", "10")]);
    web["spec"]["behavior"] = json!({
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 2, "periodSeconds": 300}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
        },
    });
    stage.create(web);
    stage
}

/// Starts a process without takeover checks, so that only the copied histories carry state to the next replica.
fn start(stage: &Fixture, identity: &str) -> Process {
    Process::start(stage, identity, plain())
}

/// The way in which the first leader stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaderExit {
    Never,
    InOrder,
    CutOff,
}

/// Runs two replicas while the load rises and falls. The leader stops at `at` seconds, if at all. Returns the counts of
/// the target with the time of each change.
async fn counts_over_time(end: LeaderExit, at: f64) -> Vec<(i64, f64)> {
    let stage = stage();
    let mut leader = Some(start(&stage, "a"));
    stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
    let standby = start(&stage, "b");
    let mut counts = vec![(4, 0.0)];
    let mut ended = None;
    while stage.now() < Duration::from_mins(40) {
        let now = stage.now().as_secs_f64();
        stage.external("queue", if (60.0..800.0).contains(&now) { "90" } else { "20" });
        if now >= at
            && end != LeaderExit::Never
            && let Some(leader) = leader.take()
        {
            ended = Some(tokio::spawn(async move {
                if end == LeaderExit::InOrder {
                    assert!(leader.end().await <= Duration::from_secs(2));
                } else {
                    leader.cut_off();
                    leader.wait_for_failure().await;
                }
            }));
        }
        let count = stage.replicas("web");
        if counts.last().is_none_or(|(last, _)| *last != count) {
            counts.push((count, now));
        }
        stage.pass(1.0).await;
    }
    if let Some(ended) = ended {
        ended.await.unwrap();
    }
    for process in leader.into_iter().chain([standby]) {
        process.end().await;
    }
    counts
}

/// Checks that the pods added and removed within any five minutes do not exceed the policies.
fn check_rates(counts: &[(i64, f64)]) -> Result<(), String> {
    let steps: Vec<_> = counts.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[1].1)).collect();
    for (_, from) in &steps {
        let within = steps.iter().filter(|(_, at)| at >= from && *at < from + PERIOD - 1.0);
        let (mut up, mut down) = (0, 0);
        for (step, _) in within {
            up += (*step).max(0);
            down += (-*step).max(0);
        }
        if up > 2 || down > 1 {
            return Err(format!("{up} up and {down} down within five minutes from {from}: {counts:?}"));
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn next_leader_decides_as_if_no_handover_had_happened() {
    let undisturbed = counts_over_time(LeaderExit::Never, 0.0).await;
    check_rates(&undisturbed).unwrap();
    let values = |counts: &[(i64, f64)]| counts.iter().map(|(count, _)| *count).collect::<Vec<_>>();
    assert_eq!(values(&undisturbed), [4, 6, 8, 9, 8, 7, 6, 5, 4]);
    // The leader stops while the HPA waits for its rate policy, while it waits for its window, and between two steps
    // down.
    for at in [90.0, 810.0, 1250.0] {
        for (end, gap) in [(LeaderExit::InOrder, 2.0), (LeaderExit::CutOff, 17.0)] {
            let disturbed = counts_over_time(end, at).await;
            check_rates(&disturbed).unwrap();
            assert_eq!(values(&disturbed), values(&undisturbed), "{end:?} at {at}: {disturbed:?}");
            for ((_, one), (_, other)) in undisturbed.iter().zip(&disturbed) {
                assert!(
                    (one - other).abs() <= SYNC + gap + 1.0,
                    "{end:?} at {at}: {undisturbed:?}, {disturbed:?}"
                );
            }
        }
    }
}

/// The history of the HPA, as a process publishes it.
async fn history(stage: &Fixture, process: &Process) -> Value {
    let page = stage.network.page(process.address, "/decisions/shop/web").await.unwrap();
    serde_json::from_slice::<Value>(&page).unwrap()["history"].take()
}

#[tokio::test(start_paused = true)]
async fn planned_handover_preserves_the_whole_history() {
    let stage = stage();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
    stage.external("queue", "90");
    stage.until("a scales", 20.0, |stage| stage.replicas("web") == 6).await;
    let standby = start(&stage, "b");
    stage.pass(40.0).await;
    let before = history(&stage, &leader).await;
    let syncs = stage.syncs("web").len();
    leader.end().await;
    stage.until("b leads", 2.0, |stage| stage.syncs("web").len() > syncs).await;
    stage.pass(0.1).await;
    let mut after = history(&stage, &standby).await;
    // The newest recommendation comes from the first sync of the new leader.
    let newest = after["recommendations"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(newest["replicas"], 9);
    assert_eq!(after, before);
    standby.end().await;
}

#[tokio::test(start_paused = true)]
async fn uncopied_rescale_still_counts_against_the_rate_policy() {
    let stage = stage();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
    let standby = start(&stage, "b");
    stage.pass(5.0).await;
    stage.external("queue", "90");
    while stage.replicas("web") != 6 {
        stage.pass(0.01).await;
    }
    let rescaled = stage.now();
    leader.cut_off();
    let failure = tokio::spawn(leader.wait_for_failure());
    let syncs = stage.syncs("web").len();
    stage.until("b leads", 20.0, |stage| stage.syncs("web").len() > syncs).await;
    stage.until("b scales", 600.0, |stage| stage.replicas("web") > 6).await;
    let waited = stage.now().saturating_sub(rescaled).as_secs_f64();
    assert_eq!(stage.replicas("web"), 8);
    assert!((PERIOD..=PERIOD + SYNC + 2.0).contains(&waited), "{waited}");
    failure.await.unwrap();
    standby.end().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_hpa_leaves_no_history_with_the_next_leader() {
    let stage = stage();
    stage.target("api", 2);
    stage.create(hpa("api", &[external("queue", "10")]));
    let uid = stage.hpa("api")["metadata"]["uid"].as_str().unwrap().to_owned();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.hpa("api")["status"]["desiredReplicas"] == 4).await;
    let standby = start(&stage, "b");
    stage.pass(5.0).await;
    let publishes = async |process: &Process| {
        let page = stage.network.page(process.address, "/history").await.unwrap();
        page.windows(uid.len()).any(|bytes| bytes == uid.as_bytes())
    };
    assert!(publishes(&leader).await);
    stage.cluster.delete(crate::support::HPAS, SHOP, "api").unwrap();
    stage.pass(1.0).await;
    assert!(!publishes(&leader).await);
    leader.end().await;
    stage.pass(5.0).await;
    assert!(!publishes(&standby).await);
    standby.end().await;
}

#[tokio::test(start_paused = true)]
async fn standby_rejects_a_wrong_certificate_and_still_takes_over() {
    let stage = stage();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
    stage.network.forge(leader.address);
    let standby = start(&stage, "b");
    stage.pass(30.0).await;
    let text = standby.telemetry.render();
    assert!(!text.contains("concertina_history_age_seconds{"), "{text}");
    assert!(!text.contains(r#"concertina_history_pulls_total{result="ok"}"#), "{text}");
    assert!(text.contains(r#"concertina_history_pulls_total{result="unreachable"}"#), "{text}");
    let syncs = stage.syncs("web").len();
    leader.end().await;
    stage.until("b leads", 2.0, |stage| stage.syncs("web").len() > syncs).await;
    standby.end().await;
}

#[tokio::test(start_paused = true)]
async fn leader_restores_a_forged_address_within_seconds() {
    const ADDRESS: &str = "concertina.dev/serving-address";
    let stage = stage();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
    let lease = || stage.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina").unwrap();
    let published = lease()["metadata"]["annotations"][ADDRESS].clone();
    assert_eq!(published, leader.address.to_string());
    let mut forged = lease();
    forged["metadata"]["annotations"][ADDRESS] = json!("203.0.113.1:443");
    stage.cluster.update(forged).unwrap();
    stage
        .until("the address is restored", 5.0, |_| lease()["metadata"]["annotations"][ADDRESS] == published)
        .await;
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn standby_copy_is_at_most_a_second_old_and_reports_its_age() {
    let stage = stage();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
    let standby = start(&stage, "b");
    stage.pass(30.0).await;
    let age = |process: &Process| {
        let text = process.telemetry.render();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("concertina_history_age_seconds{name=\"concertina\"} "));
        line.map(|age| age.parse::<f64>().unwrap())
    };
    assert!(age(&standby).is_some_and(|age| age <= 1.0), "{:?}", age(&standby));
    assert_eq!(age(&leader), None);
    let refused = stage.network.page(standby.address, "/history").await.unwrap_err().to_string();
    assert!(refused.contains("503") && refused.contains("does not lead"), "{refused}");
    leader.end().await;
    stage.pass(2.0).await;
    assert_eq!(age(&standby), None);
    standby.end().await;
}
