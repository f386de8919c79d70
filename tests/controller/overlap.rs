//! Two HPAs on one workload.

use serde_json::json;

use crate::support::objects::{cpu, hpa, pod};
use crate::support::{Fixture, HPAS, Harness};

#[tokio::test(start_paused = true)]
async fn overlapping_hpas_get_a_condition_and_do_not_scale() {
    let stage = Fixture::new();
    stage.target("web", 2);
    for index in 0..2 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[100, 100]);
    for name in ["one", "two"] {
        let mut object = hpa(name, &[cpu(50)]);
        object["spec"]["scaleTargetRef"]["name"] = json!("web");
        stage.create(object);
    }
    // As in the reference, the first of the two HPAs is alone in its first sync.
    let rig = Harness::start(stage);
    let message = "pods by selector app=web are controlled by more than one HPA (e.g. [shop/one shop/two])";
    rig.until("both HPAs have the condition", 16.0, |stage| {
        ["one", "two"].iter().all(|name| {
            stage.condition(name, "ScalingActive") == format!("False AmbiguousSelector {message}")
        })
    })
    .await;
    let events = rig.events("two");
    assert!(events.contains(&format!("AmbiguousSelector {message}")), "{events:?}");
    let count = rig.replicas("web");
    rig.cpu("web", &[400, 400]);
    rig.pass(60.0).await;
    assert_eq!(rig.replicas("web"), count);

    rig.cluster.delete(HPAS, "shop", "two").unwrap();
    rig.until("the remaining HPA scales", 15.1, |stage| stage.replicas("web") > count).await;
    assert!(rig.condition("one", "ScalingActive").starts_with("True ValidMetricFound"));
}
