//! HPAs with very many metrics.

use std::sync::Arc;

use autoscaling::query::QueryError;
use concertina::cli::Config;
use controller::reconcile::{ConcludedSync, Observer};
use controller::record::{Answer, DecisionsRequest};
use controller::store::Key;
use fake_cluster::{FaultAction, FaultRule, Status};
use http::StatusCode;
use parking_lot::Mutex;

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

/// The bytes of errors in the answers of each sync of `web`, and the number of answers.
#[derive(Debug, Default)]
struct KeptAnswers(Mutex<Vec<(usize, usize)>>);

impl Observer for KeptAnswers {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let answers = || sync.answers.metrics.iter().flatten();
        let bytes =
            |answer: &Result<_, QueryError>| answer.as_ref().map_or_else(|error| error.message.len(), |_| 0);
        self.0.lock().push((answers().map(bytes).sum(), answers().count()));
    }
}

#[tokio::test(start_paused = true)]
async fn large_answers_are_dropped_before_all_have_arrived() {
    let stage = Fixture::new();
    stage.external("queue", "90");
    stage.target("web", 3);
    let names: Vec<String> = (0..400).map(|index| format!("broken-{index:03}")).collect();
    for name in &names {
        let error = Status::new(404, "NotFound", "x".repeat(15 << 10));
        stage.fault(&format!("/{name}"), FaultAction::Status(error));
    }
    let mut metrics: Vec<_> = names.iter().map(|name| external(name, "10")).collect();
    metrics.push(external("queue", "10"));
    stage.create(hpa("web", &metrics));
    let kept = Arc::new(KeptAnswers::default());
    let observer = Arc::clone(&kept);
    let rig = Harness::altered(stage, &Config::default(), |controller| controller.observers.push(observer));
    rig.pass(120.0).await;

    // The last metric of the spec scales up, although the others fail.
    assert_eq!(rig.replicas("web"), 9);
    let syncs = kept.0.lock().clone();
    assert!(!syncs.is_empty());
    for (bytes, answers) in syncs {
        assert!(bytes <= 4 << 20 && answers < 400, "{bytes} bytes of {answers} answers");
    }
    // All failures count, and the first ones have events.
    let failures = rig.series("concertina_sync_failures_total{reason=\"FailedGetExternalMetric\"}");
    assert!(failures >= 400.0, "{failures}");
    assert!(rig.events("web").len() > 5);
}

#[tokio::test(start_paused = true)]
async fn large_responses_are_built_one_at_a_time() {
    let stage = Fixture::new();
    stage.target("web", 3);
    stage.target("api", 3);
    stage.external("queue", "30");
    stage.create(hpa("web", &vec![external(&"absent".repeat(10), "10"); 5000]));
    stage.create(hpa("api", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    for min in [1, 2] {
        rig.edit("web", |hpa| hpa["spec"]["minReplicas"] = min.into());
        rig.pass(16.0).await;
    }
    let decisions = rig.assembly.decisions.clone().unwrap();
    let answer = |name: &str| -> Answer {
        decisions.answer(
            &DecisionsRequest::parse(&format!("/shop/{name}"), None).unwrap_or_else(|_| panic!("{name}")),
        )
    };
    let large = answer("web");
    assert_eq!(large.status, StatusCode::OK);
    assert!((64 << 10..4 << 20).contains(&large.json.len()), "{} bytes", large.json.len());
    assert_eq!(answer("web").status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer("api").status, StatusCode::OK);
    drop(large);
    assert_eq!(answer("web").status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn large_specs_are_kept_compressed_and_written_back_whole() {
    let stage = Fixture::new();
    stage.target("web", 3);
    stage.external("queue", "90");
    let mut metrics = vec![external(&"absent".repeat(10), "10"); 5000];
    metrics.push(external("queue", "10"));
    stage.create(hpa("web", &metrics));
    let rig = Harness::start(stage);
    rig.pass(60.0).await;

    let kept = rig.assembly.controller.hpas.get(&Key::new("shop", "web")).unwrap();
    assert_eq!((kept.spec_raw.get().len(), kept.spec.metrics.len()), ("null".len(), 0));
    assert_eq!((kept.status.current_metrics.len(), kept.status.current_replicas), (0, 9));
    let whole = kept.unpack().unwrap();
    assert_eq!((whole.spec.metrics.len(), whole.status.current_metrics.len()), (5001, 5001));
    // The last metric of the spec scales up, and status writes change nothing else.
    assert_eq!(rig.replicas("web"), 9);
    assert_eq!(rig.hpa("web")["spec"]["metrics"].as_array().unwrap().len(), 5001);
    assert_eq!(rig.hpa("web")["status"]["currentMetrics"].as_array().unwrap().len(), 5001);
}

#[tokio::test(start_paused = true)]
async fn large_hpas_of_a_namespace_are_synced_one_at_a_time() {
    let stage = Fixture::new();
    for name in ["web", "api"] {
        stage.target(name, 3);
        let metrics: Vec<_> =
            (0..3000).map(|index| external(&format!("{name}-{index:0100}"), "10")).collect();
        stage.create(hpa(name, &metrics));
    }
    stage
        .cluster
        .faults()
        .add(FaultRule::new(FaultAction::Silence).path_contains("/external.metrics.k8s.io/v1beta1/"));
    let rig = Harness::start(stage);
    rig.pass(20.0).await;
    // One sync has eight queries in flight.
    assert_eq!(
        rig.times(|request| request.path.contains("/namespaces/shop/") && request.path.contains("external"))
            .len(),
        8
    );
}
