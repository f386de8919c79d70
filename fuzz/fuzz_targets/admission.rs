//! The handover webhook. Any body gives an error or a verdict. A refused body is a write of the built-in controller for
//! an HPA in scope.
//!
//! The input is a byte with the state of the replica, and the body.

#![no_main]

mod once;
mod plant;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use autoscaling::spec::Spec;
use clock::SystemClock;
use coexist::handover::admission::{Facts, Refused, Request, ReviewError, Verdict, decide};
use coexist::handover::charges::{Charges, GuardProof};
use coexist::handover::scope::{ControllerName, LABEL};
use engine::store::{HpaRecord, Key};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

fuzz_target!(|input: &[u8]| {
    let Some(([state], body)) = input.split_first_chunk() else { return };
    let (is_synced, leader_is_alive, is_broken) = (state & 1 == 0, state & 2 == 0, state & 4 != 0);
    let users = users();
    let facts = Facts {
        built_in_users: users,
        charges: charges(is_synced, is_broken),
        leader_is_alive,
        has_resource: &has_resource,
    };
    let request = match Request::parse(body) {
        Ok(request) => request,
        Err(error) => return check_error(&error, body),
    };
    let verdict = decide(&request, &facts);
    assert_eq!(verdict, decide(&request, &facts));
    let mut response: Value =
        serde_json::from_slice(&verdict.response(&request.uid)).expect("the response is JSON");
    assert_eq!(response["response"]["uid"], json!(request.uid));
    let Verdict::Refuse { resource, namespace, hpa } = &verdict else {
        if plant::planted("admission") && request.is_dry_run() && body.len() > 200 {
            response["response"]["allowed"] = json!(false);
        }
        assert_eq!(response["response"]["allowed"], json!(true));
        return;
    };
    assert_eq!(response["response"]["allowed"], json!(false));
    assert!(is_synced && leader_is_alive && !is_broken);
    assert_eq!(namespace, "shop");
    assert!(["web-hpa", "mouse-hpa"].contains(&hpa.as_str()));
    // Without duplicate keys, serde_json must find the same values.
    if !once::every_key(body) {
        return;
    }
    let review: Value = serde_json::from_slice(body).expect("a request of invalid JSON is an error");
    let request = &review["request"];
    assert_eq!(
        (&review["kind"], &review["apiVersion"]),
        (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
    );
    assert_eq!(request["userInfo"]["username"], json!(USER));
    let (name, subresource) = (&request["name"], &request["subResource"]);
    match resource {
        Refused::Scale => {
            assert_eq!((&request["operation"], subresource), (&json!("UPDATE"), &json!("scale")));
            let target = if hpa == "web-hpa" { "web" } else { "jerry" };
            assert_eq!((name, &request["namespace"]), (&json!(target), &json!("shop")));
        }
        Refused::Status => {
            assert_eq!((&request["operation"], subresource), (&json!("UPDATE"), &json!("status")));
            assert_eq!((name, &request["namespace"]), (&json!(hpa), &json!("shop")));
        }
        Refused::Event => {
            assert!(["CREATE", "UPDATE"].contains(&request["operation"].as_str().expect("an operation")));
            assert!(body.windows(hpa.len()).any(|part| part == hpa.as_bytes()) || body.contains(&b'\\'));
        }
    }
});

fn check_error(error: &ReviewError, body: &[u8]) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 2_000, "{} bytes", text.len());
    // A review of the right kind must give no error if it has a UID, and all its other fields are unchecked texts.
    let Ok(review) = serde_json::from_slice::<Value>(body) else { return };
    let is_review = review["kind"] == "AdmissionReview" && review["apiVersion"] == "admission.k8s.io/v1";
    let request = &review["request"];
    let only_texts = request.as_object().is_some_and(|fields| {
        fields.contains_key("uid")
            && fields.values().all(Value::is_string)
            && !fields.contains_key("object")
            && !fields.contains_key("userInfo")
            && !fields.contains_key("resource")
            && !fields.contains_key("dryRun")
    });
    assert!(!(is_review && only_texts && once::every_key(body)), "{error}");
}

fn users() -> &'static BTreeSet<String> {
    static USERS: OnceLock<BTreeSet<String>> = OnceLock::new();
    USERS.get_or_init(|| [USER.to_owned()].into())
}

fn has_resource(group: &str, kind: &str, resource: &str) -> bool {
    matches!(
        (group, kind, resource),
        ("apps", "Deployment", "deployments") | ("example.com", "Mouse", "mice")
    )
}

/// Returns charges with the HPAs of a Deployment and of a custom resource in scope.
fn charges(is_synced: bool, is_broken: bool) -> &'static Charges {
    static ALL: OnceLock<[Arc<Charges>; 4]> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(is_synced, is_broken)| {
            let charges = Charges::new(
                ControllerName::default(),
                Duration::from_secs(15),
                false,
                Arc::new(SystemClock),
            );
            charges.sort(&hpa("web-hpa", "apps/v1", "Deployment", "web"), false);
            charges.sort(&hpa("mouse-hpa", "example.com/v1", "Mouse", "jerry"), false);
            if is_synced {
                charges.set_synced();
            }
            if is_broken {
                charges.guard(GuardProof::Broken { reason: "no configuration".to_owned() });
            }
            charges
        })
    });
    &all[usize::from(is_synced) * 2 + usize::from(is_broken)]
}

fn hpa(name: &str, api_version: &str, kind: &str, target: &str) -> HpaRecord {
    let spec: Spec = serde_json::from_value(json!({
        "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": target}, "maxReplicas": 3,
    }))
    .expect("a valid spec");
    let metadata = json!({"labels": {LABEL: "concertina"}});
    HpaRecord {
        key: Key::new("shop", name),
        uid: name.into(),
        generation: None,
        resource_version: "1".to_owned(),
        metadata: RawValue::from_string(metadata.to_string()).expect("JSON"),
        spec_raw: RawValue::from_string("{}".to_owned()).expect("JSON").into(),
        spec: Arc::new(spec),
        status: Arc::default(),
        status_writers: Vec::new(),
    }
}
