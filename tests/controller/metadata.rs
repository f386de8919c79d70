//! Fields of the user stay unchanged.

use std::time::Duration;

use concertina::cli::Config;
use controller::options::Options;
use serde_json::{Value, json};

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, HPAS, Harness};

/// Metadata of an HPA without the fields that a status write changes.
fn user_metadata(hpa: &Value) -> Value {
    let mut meta = hpa["metadata"].clone();
    let fields = meta.as_object_mut().unwrap();
    fields.remove("resourceVersion");
    fields.remove("managedFields");
    meta
}

#[tokio::test(start_paused = true)]
async fn metadata_and_spec_are_unchanged_after_a_hundred_status_writes() {
    let stage = Fixture::new();
    stage.target("web", 2);
    let mut object = hpa("web", &[external("queue", "10")]);
    object["metadata"]["labels"] = json!({"team": "shop", "tier": ""});
    object["metadata"]["annotations"] =
        json!({"note": "\u{e4} \"quoted\" \\ \u{1f697}\n", "autoscaling.alpha.kubernetes.io/x": "{}"});
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u-1", "controller": true,
    }]);
    stage.create(object);
    // Add fields of a newer API server.
    let mut stored = stage.hpa("web");
    stored["spec"]["futureField"] = json!({"deep": [1, 2.50, null]});
    stored["metadata"]["futureField"] = json!("kept");
    stage.cluster.put_raw(stored);
    let before = stage.cluster.get(HPAS, "shop", "web").unwrap();

    let rig = Harness::with(
        stage,
        &Config::from(Options { sync_period: Duration::from_secs(1), ..Options::default() }),
    );
    for round in 0..210 {
        rig.external("queue", if round % 2 == 0 { "20" } else { "21" });
        rig.pass(1.0).await;
    }
    let writes = rig.count("update", "/web/status");
    assert!(writes > 100, "{writes}");
    let after = rig.hpa("web");
    assert_eq!(user_metadata(&after), user_metadata(&before));
    assert_eq!(after["spec"], before["spec"]);
}
