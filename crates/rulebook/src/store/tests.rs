use std::time::Duration;

use cluster::decode;
use cluster::watch::Watched as _;
use serde_json::json;

use tokio::time::Instant;

use super::*;
use engine::reconcile::OwnPeriod;

/// Returns an HPA with the given labels, each with the value `x`.
fn hpa(namespace: &str, labels: &[String]) -> HpaRecord {
    let labels: BTreeMap<_, _> = labels.iter().map(|label| (label, "x")).collect();
    let object = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": namespace, "name": "web", "uid": "u", "resourceVersion": "1", "labels": labels},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 10},
        "status": {},
    });
    HpaRecord::from(decode::hpa(object.to_string().as_bytes()).unwrap())
}

/// Returns a policy for HPAs with the label `name` and the value `x`.
fn policy(kind: Kind, namespace: &str, name: &str, mode: &str) -> PolicyObject {
    let object = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"mode": mode, "selector": {"matchLabels": {name: "x"}}},
    });
    kind.decode(object.to_string().as_bytes()).unwrap()
}

fn merged(policies: &Policies, hpa: &HpaRecord) -> Option<Arc<Merged>> {
    match policies.applicable(hpa) {
        Some(Applicable::Merged(merged)) => Some(merged),
        _ => None,
    }
}

fn names(merged: Option<Arc<Merged>>) -> Vec<String> {
    merged.map_or_else(Vec::new, |merged| merged.objects().iter().map(ToString::to_string).collect())
}

#[test]
fn change_in_a_namespace_keeps_the_matches_of_the_others() {
    let policies = Policies::default();
    let team = ["team".to_owned()];
    let (shop, bank) = (hpa("shop", &team), hpa("bank", &team));
    for namespace in ["shop", "bank"] {
        policies.apply_object(policy(Kind::Namespaced, namespace, "team", "Paused"));
    }
    let before = (merged(&policies, &shop).unwrap(), merged(&policies, &bank).unwrap());
    policies.apply_object(policy(Kind::Namespaced, "shop", "team", "DryRun"));
    let after = (merged(&policies, &shop).unwrap(), merged(&policies, &bank).unwrap());
    assert!(!Arc::ptr_eq(&before.0, &after.0) && Arc::ptr_eq(&before.1, &after.1));

    policies.apply_object(policy(Kind::Cluster, "", "team", "Paused"));
    let of = |namespace: &str| {
        vec!["ClusterScalingPolicy team".to_owned(), format!("ScalingPolicy {namespace}/team")]
    };
    assert_eq!(names(merged(&policies, &shop)), of("shop"));
    assert_eq!(names(merged(&policies, &bank)), of("bank"));
    assert!(policies.delete_object(&PolicyName { namespace: Some("shop".into()), name: "team".into() }));
    assert_eq!(names(merged(&policies, &shop)), ["ClusterScalingPolicy team"]);
    assert_eq!(names(merged(&policies, &bank)), of("bank"));
    // The list of all namespaces is empty.
    assert!(policies.retain_objects(Kind::Namespaced, None, &BTreeSet::new()));
    assert_eq!(names(merged(&policies, &bank)), ["ClusterScalingPolicy team"]);
}

#[test]
fn changed_labels_of_a_namespace_match_its_hpas_again() {
    let policies = Policies::default();
    let mut object = policy(Kind::Cluster, "", "team", "Paused");
    let selector = json!({"matchLabels": {"stage": "test"}});
    let of_spec = json!({
        "metadata": {"name": "team", "uid": "u", "resourceVersion": "1"}, "spec": {"namespaceSelector": selector},
    });
    object.namespace_selector =
        Kind::Cluster.decode(of_spec.to_string().as_bytes()).unwrap().namespace_selector;
    policies.apply_object(object);
    let web = hpa("shop", &["team".to_owned()]);
    assert!(merged(&policies, &web).is_none());
    assert!(policies.label_namespace("shop", Some([("stage".to_owned(), "test".to_owned())].into())));
    assert_eq!(names(merged(&policies, &web)), ["ClusterScalingPolicy team"]);
    assert!(policies.label_namespace("shop", None));
    assert!(merged(&policies, &web).is_none());
}

#[test]
fn sets_of_policies_that_no_hpa_matches_any_more_take_no_memory() {
    let policies = Policies::default();
    let labels: Vec<String> = (0..8).map(|number| format!("l{number}")).collect();
    for label in &labels {
        policies.apply_object(policy(Kind::Namespaced, "shop", label, "Paused"));
    }
    for set in 1..1_usize << labels.len() {
        let of_set = labels.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
        let of_set: Vec<String> = of_set.map(|(_, label)| label.clone()).collect();
        assert_eq!(names(merged(&policies, &hpa("shop", &of_set))).len(), of_set.len());
    }
    let kept = policies.inner.read().merged.len();
    assert!(kept <= FEW_MERGED + 2, "{kept}");
}

#[test]
fn namespaces_that_were_deleted_take_no_memory_for_ever() {
    let policies = Policies::default();
    let web = hpa("shop", &["team".to_owned()]);
    for number in 0..MAX_NAMESPACES + 10 {
        let name = PolicyName { namespace: Some(format!("n{number}").into()), name: "team".into() };
        policies.inner.write().object_changed(&name);
    }
    assert!(policies.inner.read().namespace_revisions.len() <= MAX_NAMESPACES);
    policies.apply_object(policy(Kind::Namespaced, "shop", "team", "Paused"));
    assert_eq!(names(merged(&policies, &web)), ["ScalingPolicy shop/team"]);
}

#[test]
fn event_of_the_status_write_keeps_the_due_times_of_the_sync() {
    let policies = Policies::default();
    let mut web = hpa("shop", &[]);
    let annotated = r#"{"name": "web", "annotations": {"concertina.dev/policy": "syncPeriodSeconds: 3600"}}"#;
    web.metadata = serde_json::value::RawValue::from_string(annotated.to_owned()).unwrap();
    assert!(policies.apply_hpa(&web, false));
    let before = merged(&policies, &web).unwrap();
    let due = RuleDue {
        period: Some(OwnPeriod { period: Duration::from_hours(1), requested: None }),
        edge: Some(Instant::now()),
    };
    policies.set_due(&web.key, due);
    assert!(!policies.apply_hpa(&web, true));
    assert_eq!(policies.due(&web.key), due);
    assert!(Arc::ptr_eq(&before, &merged(&policies, &web).unwrap()));
}
