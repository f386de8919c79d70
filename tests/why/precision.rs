//! `why` and the rows of the console while statuses are withheld (`--status-precision`).

use cluster::decode;
use console::row::{Row, State};
use controller::options::Options;
use engine::store::Key;
use flags::Config;
use serde_json::{Value, json};

use crate::support::{Fixture, Harness};
use crate::{document, queue};

fn precise() -> Config {
    let mut options = Options::default();
    options.settings.status_precision = "10%".parse().unwrap();
    Config::from(options)
}

fn row(stage: &Fixture) -> Row {
    Row::new(&decode::hpa(stage.hpa("web").to_string().as_bytes()).unwrap(), Vec::new())
}

fn value(row: &Row) -> &str {
    row.metrics[0].value.as_deref().unwrap()
}

#[tokio::test(start_paused = true)]
async fn why_reads_current_metrics_and_the_console_those_of_the_status() {
    let rig = Harness::with(queue("36"), &precise());
    rig.pass(7.0).await;
    rig.external("queue", "37");
    rig.until("the next turn", 170.0, |stage| value(&row(stage)) == "9.25 per pod").await;
    rig.external("queue", "38");
    rig.pass(30.0).await;
    let document = document(&rig, &["web"]).await;
    let sentence = document["sentence"].as_str().unwrap();
    assert!(sentence.contains("9.5"), "{sentence}");
    assert_eq!(document["conditions"], status(&rig)["conditions"]);
    let shown = row(&rig);
    assert_eq!((value(&shown), shown.current, shown.state), ("9.25 per pod", 4, State::Fine));
    let decisions = rig.assembly.decisions.as_ref().unwrap();
    let entry = serde_json::to_string(&decisions.list(&Key::new("shop", "web")).unwrap().decisions).unwrap();
    assert!(entry.contains("9.5"), "{entry}");
    rig.until("the turn after it", 170.0, |stage| value(&row(stage)) == "9.5 per pod").await;
}

fn status(stage: &Fixture) -> Value {
    stage.hpa("web")["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn console_shows_no_contest_ten_periods_after_a_foreign_write() {
    let stage = queue("36");
    let mut foreign = stage.hpa("web");
    foreign["metadata"]["managedFields"] = json!([{
        "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "autoscaling/v2",
        "subresource": "status", "time": "2030-01-01T00:00:00Z",
    }]);
    foreign["status"] = json!({"currentReplicas": 4, "desiredReplicas": 4, "currentMetrics": null});
    stage.cluster.put_raw(foreign);
    let rig = Harness::with(stage, &precise());
    for seconds in 0..200 {
        rig.external("queue", if seconds % 2 == 0 { "36" } else { "36500m" });
        rig.pass(1.0).await;
    }
    assert_eq!(row(&rig).state, State::Fine);
}
