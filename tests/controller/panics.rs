//! A panic in the sync of one HPA.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::query::{Answer, Query, QueryError};
use cluster::metrics::Metrics;
use concertina::cli::Config;
use controller::options::Options;
use controller::reconcile::Controller;
use futures::future::BoxFuture;

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

/// Panics for the metric `bomb` and forwards all others to the real APIs.
#[derive(Debug)]
struct PanickingMetrics(Arc<dyn Metrics>);

impl Metrics for PanickingMetrics {
    fn fetch_within(&self, query: Query, age: Duration) -> BoxFuture<'_, Result<Answer, QueryError>> {
        if matches!(&query, Query::External { metric, .. } if **metric == *"bomb") {
            return Box::pin(async { panic!("this metric panics") });
        }
        self.0.fetch_within(query, age)
    }
}

fn with_bomb(controller: &mut Controller) {
    controller.metrics = Arc::new(PanickingMetrics(Arc::clone(&controller.metrics)));
}

#[tokio::test(start_paused = true)]
async fn panic_affects_one_hpa_which_is_retried_every_period() {
    let stage = Fixture::new();
    stage.external("queue", "40");
    for name in ["a", "bad", "c", "d"] {
        stage.target(name, 3);
        let metric = if name == "bad" { "bomb" } else { "queue" };
        stage.create(hpa(name, &[external(metric, "10")]));
    }
    let rig = Harness::altered(
        stage,
        &Config::from(Options { concurrent_syncs: 1, ..Options::default() }),
        with_bomb,
    );
    rig.pass(61.0).await;
    for name in ["a", "bad", "c", "d"] {
        let syncs = rig.syncs(name);
        assert_eq!(syncs.len(), 5, "{name}: {syncs:?}");
        assert_eq!(rig.replicas(name), if name == "bad" { 3 } else { 4 }, "{name}");
    }
    assert_eq!(rig.reconciliations("none", "internal"), 5.0);
    assert!(rig.hpa("bad")["status"]["conditions"].is_null());

    rig.edit("bad", |hpa| hpa["spec"]["metrics"][0]["external"]["metric"]["name"] = "queue".into());
    rig.until("the HPA scales with a working metric", 1.0, |stage| stage.replicas("bad") == 4).await;
}
