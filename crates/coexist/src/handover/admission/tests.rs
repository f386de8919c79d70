use std::sync::Arc;
use std::time::Duration;

use autoscaling::spec::Spec;
use clock::SystemClock;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::handover::scope::ControllerName;
use engine::store::{HpaRecord, Key};

const USER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// Returns an HPA in scope in namespace `shop`.
fn hpa(name: &str, api_version: &str, kind: &str, target: &str) -> HpaRecord {
    let spec: Spec = serde_json::from_value(json!({
        "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": target}, "maxReplicas": 3,
    }))
    .unwrap();
    let metadata = json!({"labels": {"concertina.dev/controller": "concertina"}});
    HpaRecord {
        key: Key::new("shop", name),
        uid: name.into(),
        generation: None,
        resource_version: "1".to_owned(),
        metadata: RawValue::from_string(metadata.to_string()).unwrap(),
        spec_raw: RawValue::from_string("{}".to_owned()).unwrap().into(),
        spec: Arc::new(spec),
        status: Arc::default(),
        status_writers: Vec::new(),
    }
}

/// Returns a registry with two HPAs in scope: of a Deployment and of a custom resource.
fn charges() -> Arc<Charges> {
    let charges =
        Charges::new(ControllerName::default(), Duration::from_secs(15), false, Arc::new(SystemClock));
    charges.set_synced();
    charges.sort(&hpa("web-hpa", "apps/v1", "Deployment", "web"), false);
    charges.sort(&hpa("mouse-hpa", "example.com/v1", "Mouse", "jerry"), false);
    charges
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass literals")]
fn review(changes: Value) -> Vec<u8> {
    let mut request = json!({
        "uid": "1-2-3", "operation": "UPDATE", "dryRun": false, "namespace": "shop", "name": "web",
        "userInfo": {"username": USER, "groups": ["system:serviceaccounts"]},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "subResource": "scale",
        "object": {"kind": "Scale", "spec": {"replicas": 3}}, "oldObject": {"kind": "Scale"},
    });
    for (key, value) in changes.as_object().unwrap() {
        request[key] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
        .into_bytes()
}

fn verdict_with(registry: &Charges, leader_is_alive: bool, changes: Value) -> Verdict {
    let users = [USER.to_owned()].into();
    let has_resource = |_: &str, kind: &str, resource: &str| {
        matches!((kind, resource), ("Deployment", "deployments") | ("Mouse", "mice"))
    };
    let facts =
        Facts { built_in_users: &users, charges: registry, leader_is_alive, has_resource: &has_resource };
    decide(&Request::parse(&review(changes)).unwrap(), &facts)
}

fn verdict(changes: Value) -> Verdict {
    verdict_with(&charges(), true, changes)
}

fn refused(resource: Refused, hpa: &str) -> Verdict {
    Verdict::Refuse { resource, namespace: "shop".to_owned(), hpa: hpa.to_owned() }
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass literals")]
fn event(group: &str, field: &str, reference: Value) -> Value {
    json!({
        "operation": "CREATE", "name": "", "subResource": null,
        "resource": {"group": group, "version": "v1", "resource": "events"}, "object": {field: reference},
    })
}

#[test]
fn writes_about_hpas_in_scope_are_refused() {
    assert_eq!(verdict(json!({})), refused(Refused::Scale, "web-hpa"));
    let mice = json!({"resource": {"group": "example.com", "resource": "mice"}, "name": "jerry"});
    assert_eq!(verdict(mice), refused(Refused::Scale, "mouse-hpa"));
    let status = json!({
        "resource": {"group": "autoscaling", "version": "v2", "resource": "horizontalpodautoscalers"},
        "subResource": "status", "name": "web-hpa",
    });
    assert_eq!(verdict(status), refused(Refused::Status, "web-hpa"));
    let about = json!({"kind": "HorizontalPodAutoscaler", "namespace": "shop", "name": "web-hpa",
                       "apiVersion": "autoscaling/v2"});
    for (group, field) in [("", "involvedObject"), ("events.k8s.io", "regarding")] {
        assert_eq!(verdict(event(group, field, about.clone())), refused(Refused::Event, "web-hpa"));
    }
    // An empty namespace in the reference means the event's namespace.
    let short = json!({"kind": "HorizontalPodAutoscaler", "namespace": "", "name": "web-hpa"});
    assert_eq!(verdict(event("", "involvedObject", short)), refused(Refused::Event, "web-hpa"));
    let mut update = event("", "involvedObject", about);
    update["operation"] = json!("UPDATE");
    assert_eq!(verdict(update), refused(Refused::Event, "web-hpa"));
}

#[test]
fn only_events_about_hpas_of_kubernetes_are_refused() {
    let about = json!({"kind": "HorizontalPodAutoscaler", "namespace": "shop", "name": "web-hpa"});
    let mut other_kind = event("", "involvedObject", about.clone());
    other_kind["resource"]["resource"] = json!("pods");
    let mut other_group = about.clone();
    other_group["apiVersion"] = json!("example.com/v1");
    for changes in
        [other_kind, event("metrics", "regarding", about), event("", "involvedObject", other_group)]
    {
        assert_eq!(verdict(changes.clone()), Verdict::Allow(Allowed::OtherWrite), "{changes}");
    }
    let text = String::from_utf8(review(json!({}))).unwrap();
    let other = text.replace("\"AdmissionReview\"", "\"ConversionReview\"");
    assert!(matches!(Request::parse(other.as_bytes()), Err(ReviewError::Kind { .. })));
}

#[test]
fn other_writes_are_allowed() {
    let hpas = json!({"group": "autoscaling", "version": "v2", "resource": "horizontalpodautoscalers"});
    let about = |kind: &str, namespace: &str, name: &str| {
        event("", "involvedObject", json!({"kind": kind, "namespace": namespace, "name": name}))
    };
    for (changes, reason) in [
        (json!({"userInfo": {"username": "alice"}}), Allowed::OtherUser),
        (json!({"userInfo": {}}), Allowed::OtherUser),
        (json!({"operation": "DELETE"}), Allowed::OtherWrite),
        (json!({"operation": "CONNECT"}), Allowed::OtherWrite),
        (json!({"subResource": "status"}), Allowed::OtherWrite),
        (json!({"subResource": null}), Allowed::OtherWrite),
        (json!({"namespace": null}), Allowed::OtherWrite),
        (json!({"name": null}), Allowed::OtherWrite),
        (json!({"resource": hpas, "subResource": null, "name": "web-hpa"}), Allowed::OtherWrite),
        (json!({"resource": hpas, "subResource": "status", "name": "web"}), Allowed::OutOfScope),
        (json!({"name": "other"}), Allowed::OutOfScope),
        (json!({"name": "web\0\n../../"}), Allowed::OutOfScope),
        (json!({"namespace": "bank"}), Allowed::OutOfScope),
        (json!({"resource": {"group": "apps", "resource": "statefulsets"}}), Allowed::OutOfScope),
        (json!({"resource": {"group": "", "resource": "deployments"}}), Allowed::OutOfScope),
        (about("Pod", "shop", "web-hpa"), Allowed::OtherWrite),
        (about("HorizontalPodAutoscaler", "bank", "web-hpa"), Allowed::OutOfScope),
        (about("HorizontalPodAutoscaler", "shop", "web"), Allowed::OutOfScope),
        (event("", "regarding", json!(null)), Allowed::OtherWrite),
        (event("metrics", "regarding", json!({"kind": "HorizontalPodAutoscaler"})), Allowed::OtherWrite),
    ] {
        assert_eq!(verdict(changes.clone()), Verdict::Allow(reason), "{changes}");
    }
}

#[test]
fn writes_are_allowed_in_doubt() {
    let charges = charges();
    assert_eq!(verdict_with(&charges, false, json!({})), Verdict::Allow(Allowed::NoLeader));
    charges.guard(GuardProof::Broken { reason: "no configuration".to_owned() });
    assert_eq!(verdict_with(&charges, true, json!({})), Verdict::Allow(Allowed::GuardBroken));
    let empty =
        Charges::new(ControllerName::default(), Duration::from_secs(15), false, Arc::new(SystemClock));
    empty.sort(&hpa("web-hpa", "apps/v1", "Deployment", "web"), false);
    assert_eq!(verdict_with(&empty, true, json!({})), Verdict::Allow(Allowed::NotSynced));
    // Discovery has not returned the plural of the kind.
    empty.set_synced();
    let users = [USER.to_owned()].into();
    let facts = Facts {
        built_in_users: &users,
        charges: &empty,
        leader_is_alive: true,
        has_resource: &|_, _, _| false,
    };
    let request = Request::parse(&review(json!({}))).unwrap();
    assert_eq!(decide(&request, &facts), Verdict::Allow(Allowed::OutOfScope));
}

#[test]
fn dry_run_is_decided_like_the_write() {
    assert_eq!(verdict(json!({"dryRun": true})), refused(Refused::Scale, "web-hpa"));
    let parse = |changes| Request::parse(&review(changes)).unwrap().is_dry_run();
    assert!(parse(json!({"dryRun": true})) && !parse(json!({"dryRun": null})));
}

#[test]
fn invalid_reviews_are_errors() {
    let deep = format!("{{\"request\":{}", "[".repeat(100_000));
    let bodies: [&[u8]; 7] = [
        b"",
        b"null",
        b"[1]",
        b"\xff\xfe",
        b"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\"}",
        deep.as_bytes(),
        &review(json!({"object": {"involvedObject": 3}})),
    ];
    for body in bodies {
        assert!(matches!(Request::parse(body), Err(ReviewError::Malformed(_))), "{:?}", body.get(..20));
    }
    let other = String::from_utf8(review(json!({}))).unwrap().replace("k8s.io/v1\"", "k8s.io/v1beta1\"");
    assert!(matches!(Request::parse(other.as_bytes()), Err(ReviewError::Kind { .. })));
    let large = vec![b' '; MAX_BODY + 1];
    assert_eq!(Request::parse(&large), Err(ReviewError::TooLarge(MAX_BODY + 1)));
    assert!(Request::parse(&review(json!({"options": "x".repeat(2 << 20)}))).is_ok());
}

#[test]
fn response_names_concertina_the_hpa_and_the_label() {
    let response: Value = serde_json::from_slice(&verdict(json!({})).response("1-2-3")).unwrap();
    assert_eq!(response["response"]["uid"], "1-2-3");
    assert_eq!(response["response"]["allowed"], false);
    assert_eq!(response["response"]["status"]["code"], 403);
    let expected = "HorizontalPodAutoscaler \"shop/web-hpa\" is controlled by Concertina; to hand it back, remove the \
                    label concertina.dev/controller from the HPA or its namespace";
    assert_eq!(response["response"]["status"]["message"], expected);
    let allowed: Value = serde_json::from_slice(&Verdict::Allow(Allowed::NoLeader).response("u")).unwrap();
    assert_eq!(allowed["response"], json!({"uid": "u", "allowed": true}));
}

#[test]
fn truncated_and_altered_reviews_never_panic() {
    let charges = charges();
    let users = [USER.to_owned()].into();
    let facts = Facts {
        built_in_users: &users,
        charges: &charges,
        leader_is_alive: true,
        has_resource: &|_, _, _| true,
    };
    let decided = |body: &[u8]| Request::parse(body).ok().map(|request| decide(&request, &facts));
    let about = json!({"kind": "HorizontalPodAutoscaler", "namespace": "shop", "name": "web-hpa"});
    for body in [review(json!({})), review(event("", "involvedObject", about))] {
        assert!(matches!(decided(&body), Some(Verdict::Refuse { .. })));
        for length in 0..body.len() {
            assert_eq!(decided(&body[..length]), None);
        }
        for index in 0..body.len() {
            for bit in 0..8 {
                let mut altered = body.clone();
                altered[index] ^= 1 << bit;
                // Even for an altered request, a refusal names an HPA in scope.
                if let Some(Verdict::Refuse { namespace, hpa, .. }) = decided(&altered) {
                    assert!(charges.is_in_scope(&namespace, &hpa));
                }
            }
        }
    }
}
