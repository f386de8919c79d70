//! Compares the shipped roles with the roles that `concertina rbac` prints for the same flags. Also checks that the
//! controller accepts the shipped objects of its guards.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use coexist::handover::objects::{BUILT_IN_USERS, GuardObjects};
use coexist::handover::proof;
use coexist::handover::scope::ControllerName;
use serde_json::Value;

use crate::rendered::{
    HOME, Key, Objects, VARIANTS, flags, helm, is_for_users, kustomize, objects, only, path, run,
};

/// Namespace, group, resource, object name, verb.
type AccessRight = (String, String, String, String, String);

#[test]
#[ignore = "needs kubectl"]
fn roles_match_concertina_rbac_for_the_same_flags() {
    for variant in VARIANTS {
        let shipped = kustomize(variant.folder);
        let mut concertina = Command::new(env!("CARGO_BIN_EXE_concertina"));
        concertina.arg("rbac").args(flags(&only(&shipped, "Deployment")));
        let mut printed = rights(&objects(&run(concertina).unwrap()));
        match variant.folder {
            // In this overlay, a built-in role grants the cluster-wide rights.
            "overlays/built-in-role" => printed.retain(|right| !right.0.is_empty()),
            // The owner of single namespaces cannot grant rights in kube-system.
            "overlays/namespaced" => printed.retain(|right| right.0 != "kube-system"),
            _ => {}
        }
        assert_eq!(rights(&shipped), printed, "{}", variant.folder);
    }
}

#[test]
#[ignore = "needs HELM: run tests/helm/build.sh"]
fn certificate_in_a_secret_needs_no_writes_to_the_webhook() {
    let values = [
        "mode=labelled",
        "handover.certificate.secret=webhook",
        "handover.certificate.caBundle=YQ==",
        "handover.certificate.annotations.injector=webhook",
    ];
    let chart = helm("concertina", HOME, &values);
    let deployment = only(&chart, "Deployment");
    let mut concertina = Command::new(env!("CARGO_BIN_EXE_concertina"));
    concertina.arg("rbac").args(flags(&deployment));
    assert_eq!(rights(&chart), rights(&objects(&run(concertina).unwrap())));
    let of_guard: BTreeSet<_> = rights(&chart)
        .into_iter()
        .filter(|right| right.2 == "secrets" || right.2 == "validatingwebhookconfigurations")
        .map(|right| right.4)
        .collect();
    assert_eq!(of_guard, BTreeSet::from(["get".to_owned()]));
    let needless = ["Secret", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    assert!(chart.keys().all(|key| !needless.contains(&&*key.kind)));
    let webhook = only(&chart, "ValidatingWebhookConfiguration");
    assert_eq!(webhook["metadata"]["annotations"]["injector"], "webhook");
    assert_eq!(webhook["webhooks"][0]["clientConfig"]["caBundle"], "YQ==");
    let pod = &deployment["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["secret"]["secretName"] == "webhook"));
    assert_eq!(proof::webhook(&expected(), Some(&webhook), &|_, _| true), Ok(()));
}

#[test]
#[ignore = "needs kubectl"]
fn every_role_is_bound_to_the_pods_account() {
    for variant in VARIANTS {
        let objects = kustomize(variant.folder);
        let deployment = only(&objects, "Deployment");
        let account = &deployment["spec"]["template"]["spec"]["serviceAccountName"];
        let of_kind = |kind: &'static str| objects.iter().filter(move |(name, _)| name.kind == kind);
        for (role, binding) in [("Role", "RoleBinding"), ("ClusterRole", "ClusterRoleBinding")] {
            for (name, _) in of_kind(role).filter(|(_, role)| !is_for_users(role)) {
                let bound = of_kind(binding).any(|(other, binding)| {
                    other.namespace == name.namespace && binding["roleRef"]["name"] == *name.name
                });
                assert!(bound, "{}: no binding refers to {name}", variant.folder);
            }
            for (name, binding) in of_kind(binding) {
                let subject = &binding["subjects"][0];
                assert_eq!(&subject["name"], account, "{}: {name}", variant.folder);
                assert_eq!(
                    subject["namespace"], deployment["metadata"]["namespace"],
                    "{}: {name}",
                    variant.folder
                );
            }
        }
    }
}

#[test]
#[ignore = "needs kubectl"]
fn shadow_roles_allow_reads_only() {
    let reads = ["get", "list", "watch"];
    for right in rights(&kustomize("overlays/shadow")) {
        let review = ["tokenreviews", "subjectaccessreviews"].contains(&&*right.2);
        assert!(review || reads.contains(&&*right.4), "{right:?}");
    }
}

fn rights(objects: &Objects) -> BTreeSet<AccessRight> {
    let mut rights = BTreeSet::new();
    let of_controller =
        |name: &Key, role: &Value| matches!(&*name.kind, "Role" | "ClusterRole") && !is_for_users(role);
    for (name, role) in objects.iter().filter(|(name, role)| of_controller(name, role)) {
        for rule in role["rules"].as_array().unwrap() {
            let names = list(&rule["resourceNames"]);
            let names = if names.is_empty() { vec![String::new()] } else { names };
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    for object in &names {
                        for verb in list(&rule["verbs"]) {
                            let namespace = name.namespace.clone().unwrap_or_default();
                            rights.insert((namespace, group.clone(), resource.clone(), object.clone(), verb));
                        }
                    }
                }
            }
        }
    }
    rights
}

fn list(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.map(|item| item.as_str().unwrap().to_owned()).collect()
}

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
    assert_eq!(proof::webhook(&expected(), Some(&webhook), &|_, _| true), Ok(()));
    let printed = expected().webhook();
    assert_eq!(webhook["webhooks"], printed["webhooks"]);
    for settings in webhook["webhooks"].as_array().unwrap() {
        assert_eq!((&settings["failurePolicy"], &settings["timeoutSeconds"]), (&"Ignore".into(), &1.into()));
    }
    let secret = shipped("webhook/secret.yaml").remove(0);
    assert!(secret.get("data").is_none() && secret["metadata"]["name"] == *expected().name());
    let service = shipped("webhook/service.yaml").remove(0);
    assert_eq!(service["metadata"]["name"], *expected().name());
}

#[test]
fn every_field_of_the_webhook_is_in_the_policy_for_its_updates() {
    let [policy, _] = expected().update_policy("concertina");
    let expression = policy["spec"]["validations"][0]["expression"].as_str().unwrap();
    for webhook in expected().webhook()["webhooks"].as_array().unwrap() {
        for field in webhook.as_object().unwrap().keys().filter(|field| *field != "clientConfig") {
            let is_compared = ["", "?"].iter().any(|optional| {
                expression.contains(&format!("old.{optional}{field} == new.{optional}{field}"))
            });
            assert!(is_compared, "{field}");
        }
    }
}

#[test]
fn shipped_policy_for_updates_of_the_webhook_is_the_printed_policy() {
    let printed = expected().update_policy("concertina");
    let mut shipped = shipped("webhook/update-policy.yaml");
    for object in &mut shipped {
        object["metadata"].as_object_mut().unwrap().remove("labels");
    }
    assert_eq!(shipped, printed);
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
    assert_eq!(proof::webhook(&expected, Some(&webhook), &|_, _| true), Ok(()));
    let values = ["mode=labelled", "handover.guard=policy", "handover.controllerName=blue-concertina"];
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
