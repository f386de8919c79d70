//! The objects of the guards in `deploy/kustomize/components` are those that the controller checks.

use std::fs;

use controller::handover::objects::{BUILT_IN_USERS, GuardObjects};
use controller::handover::proof;
use controller::handover::scope::ControllerName;
use serde_json::Value;

use crate::rendered::{helm, kustomize, only, path};

fn expected() -> GuardObjects {
    GuardObjects {
        controller: ControllerName::default(),
        built_in_users: BUILT_IN_USERS.map(str::to_owned).into(),
        namespace: "concertina-system".to_owned(),
    }
}

fn shipped(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(path(&format!("kustomize/components/guard-{file}"))).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

#[test]
fn shipped_webhook_proves_the_guard() {
    let webhook = shipped("webhook/webhook.yaml").remove(0);
    assert_eq!(proof::webhook(&expected(), Some(&webhook), &|_| true), Ok(()));
    let settings = &webhook["webhooks"][0];
    assert_eq!((&settings["failurePolicy"], &settings["timeoutSeconds"]), (&"Ignore".into(), &1.into()));
    let secret = shipped("webhook/secret.yaml").remove(0);
    assert!(secret.get("data").is_none() && secret["metadata"]["name"] == *expected().name());
    let service = shipped("webhook/service.yaml").remove(0);
    assert_eq!(service["metadata"]["name"], *expected().name());
}

#[test]
#[ignore = "needs kubectl and HELM: run tests/helm/build.sh"]
fn guards_of_a_second_instance_prove_themselves() {
    let expected = GuardObjects {
        controller: ControllerName::new("blue-concertina").unwrap(),
        namespace: "concertina-blue".to_owned(),
        ..expected()
    };
    let rendered = kustomize("overlays/second-instance");
    let webhook = only(&rendered, "ValidatingWebhookConfiguration");
    assert_eq!(proof::webhook(&expected, Some(&webhook), &|_| true), Ok(()));
    let values = ["scope=labelled", "handover.guard=policy", "handover.controllerName=blue-concertina"];
    let policies = helm("blue-concertina", "concertina-blue", &values);
    let find = |kind: &str, name: &str| {
        policies.iter().find(|(key, _)| key.kind == kind && key.name == name).map(|(_, object)| object)
    };
    assert_eq!(proof::policies(&expected, &find), Ok(()));
}

#[test]
fn shipped_policies_prove_the_guard() {
    let objects = shipped("policy/policies.yaml");
    let find = |kind: &str, name: &str| {
        objects.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name)
    };
    assert_eq!(proof::policies(&expected(), &find), Ok(()));
    assert_eq!(objects.len(), 8);
    let policies = objects.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy");
    assert!(policies.clone().all(|policy| policy["spec"]["failurePolicy"] == "Ignore"));
    assert_eq!(policies.count(), 3);
}
