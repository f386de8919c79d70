use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;
use crate::handover::objects::{BUILT_IN_USERS, WEBHOOKS};
use crate::handover::scope::ControllerName;

fn objects() -> GuardObjects {
    GuardObjects {
        controller: ControllerName::default(),
        built_in_users: BUILT_IN_USERS.map(str::to_owned).into(),
        namespace: "concertina-system".to_owned(),
    }
}

/// Returns the object in the form that the API server returns to the typed client.
fn typed<T: Serialize + DeserializeOwned>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

/// Returns the webhook configuration with the defaults of the API server.
fn configuration() -> Value {
    let mut webhook = typed::<ValidatingWebhookConfiguration>(&objects().webhook());
    for entry in webhook["webhooks"].as_array_mut().unwrap() {
        entry["clientConfig"]["caBundle"] = json!("good");
        entry["matchPolicy"] = json!("Equivalent");
        for selector in ["namespaceSelector", "objectSelector"] {
            entry.as_object_mut().unwrap().entry(selector).or_insert_with(|| json!({}));
        }
    }
    webhook
}

fn check(actual: &Value) -> Result<(), String> {
    let name = "concertina-handover.concertina-system.svc";
    let trusts = |bundle: &str, host: &str| bundle == "good" && [name, "10.0.0.7", "fd00::7"].contains(&host);
    webhook(&objects(), Some(actual), &trusts).map_err(|defect| defect.to_string())
}

/// Checks the configuration after a change of its first webhook.
fn changed(change: impl FnOnce(&mut Value)) -> Result<(), String> {
    let mut actual = configuration();
    change(&mut actual["webhooks"][0]);
    check(&actual)
}

#[test]
fn webhook_of_the_manifests_is_proven() {
    assert_eq!(check(&configuration()), Ok(()));
    let mut shared = configuration();
    shared["webhooks"].as_array_mut().unwrap().insert(0, json!({"name": "other.example.com"}));
    shared["metadata"]["labels"] = json!({"team": "a"});
    assert_eq!(check(&shared), Ok(()));
    assert_eq!(
        changed(|webhook| {
            webhook["rules"][0]["scope"] = json!("*");
            webhook["clientConfig"]["service"].as_object_mut().unwrap().remove("port");
        }),
        Ok(())
    );
    for host in ["10.0.0.7:10250", "[fd00::7]:10250", "10.0.0.7"] {
        let url = json!({"url": format!("https://{host}/handover"), "caBundle": "good"});
        assert_eq!(changed(|webhook| webhook["clientConfig"] = url), Ok(()), "{host}");
    }
}

#[test]
fn changed_webhook_is_named_with_its_field() {
    let fix = "apply the manifests of the guard";
    let name = "ValidatingWebhookConfiguration concertina-handover";
    let missing = webhook(&objects(), None, &|_, _| true).unwrap_err().to_string();
    assert_eq!(missing, format!("{name} does not exist: {fix}"));
    let field = |change: &dyn Fn(&mut Value)| {
        let error = changed(change).unwrap_err();
        error.strip_prefix(&format!("{name}: ")).unwrap().split(' ').next().unwrap().to_owned()
    };
    let selector = json!({"matchLabels": {"a": "b"}});
    assert_eq!(
        field(&|webhook| webhook["rules"][0]["resources"] = json!(["deployments/scale"])),
        "webhooks[0].rules[0].resources[0]"
    );
    assert_eq!(field(&|webhook| webhook["rules"] = json!([])), "webhooks[0].rules");
    assert_eq!(
        field(&|webhook| webhook["rules"][0]["operations"] = json!(["CREATE"])),
        "webhooks[0].rules[0].operations[0]"
    );
    assert_eq!(
        field(&|webhook| webhook["namespaceSelector"] = selector.clone()),
        "webhooks[0].namespaceSelector"
    );
    assert_eq!(
        field(&|webhook| webhook["objectSelector"] = selector.clone()),
        "webhooks[0].objectSelector.matchLabels.concertina.dev/controller"
    );
    assert_eq!(
        field(&|webhook| webhook["matchConditions"][0]["expression"] = json!("false")),
        "webhooks[0].matchConditions[0].expression"
    );
    assert_eq!(field(&|webhook| webhook["name"] = json!("other")), "webhooks[*].name");
    assert_eq!(
        field(&|webhook| webhook["clientConfig"]["service"]["name"] = json!("other")),
        "webhooks[0].clientConfig.service.name"
    );
    assert_eq!(
        field(&|webhook| webhook["clientConfig"]["caBundle"] = json!("other")),
        "webhooks[0].clientConfig.caBundle"
    );
    assert_eq!(
        changed(|webhook| webhook["rules"][0]["operations"] = json!(["CREATE"])).unwrap_err(),
        format!("{name}: webhooks[0].rules[0].operations[0] is \"CREATE\", not \"UPDATE\": {fix}")
    );
}

#[test]
fn guard_needs_each_of_its_webhooks() {
    for (index, name) in WEBHOOKS.iter().enumerate() {
        let mut fewer = configuration();
        fewer["webhooks"].as_array_mut().unwrap().remove(index);
        let error = check(&fewer).unwrap_err();
        assert!(
            error.contains("webhooks[*].name is ") && error.contains(&format!("not \"{name}\"")),
            "{error}"
        );
        let mut untrusted = configuration();
        untrusted["webhooks"][index]["clientConfig"]["caBundle"] = json!("other");
        let error = check(&untrusted).unwrap_err();
        assert!(
            error.contains(&format!("webhooks[{index}].clientConfig.caBundle does not trust")),
            "{error}"
        );
        let mut narrow = configuration();
        let conditions = narrow["webhooks"][index]["matchConditions"].as_array_mut().unwrap();
        conditions.push(json!({"name": "never", "expression": "false"}));
        let error = check(&narrow).unwrap_err();
        assert!(error.contains(&format!("webhooks[{index}].matchConditions is ")), "{error}");
    }
}

#[test]
fn guard_that_fails_closed_is_a_defect() {
    let name = "ValidatingWebhookConfiguration concertina-handover";
    let effect = "so a failure of the guard stops the built-in controller for all HPAs, in scope or not: apply the \
                  manifests of the guard";
    assert_eq!(
        changed(|webhook| webhook["failurePolicy"] = json!("Fail")).unwrap_err(),
        format!("{name}: webhooks[0].failurePolicy is \"Fail\", not \"Ignore\", {effect}")
    );
    let unset = |object: &mut Value| drop(object.as_object_mut().unwrap().remove("failurePolicy"));
    assert!(changed(unset).unwrap_err().contains("webhooks[0].failurePolicy is unset"));
    for policy in ["scale", "status", "events"] {
        let policy = format!("ValidatingAdmissionPolicy concertina-handover-{policy}");
        let error = policies_with(&policy, |object| object["spec"]["failurePolicy"] = json!("Fail"));
        let expected = format!("{policy}: spec.failurePolicy is \"Fail\", not \"Ignore\", {effect}");
        assert_eq!(error, Err(expected));
    }
}

/// Checks the policies and bindings in the form that the API server returns, after a change of one object.
fn policies_with(object: &str, change: impl Fn(&mut Value)) -> Result<(), String> {
    let expected = objects();
    let mut actual: Vec<Value> = expected.policies().iter().map(typed::<ValidatingAdmissionPolicy>).collect();
    actual.extend(expected.bindings().iter().map(typed::<ValidatingAdmissionPolicyBinding>));
    for value in &mut actual {
        if value["kind"] == "ValidatingAdmissionPolicy" {
            value["spec"]["matchConstraints"]["matchPolicy"] = json!("Equivalent");
            value["spec"]["matchConstraints"]["namespaceSelector"] = json!({});
            value["spec"]["matchConstraints"]["objectSelector"] = json!({});
        }
        if object_of(value) == object {
            change(value);
        }
    }
    let find = |kind: &str, name: &str| {
        actual.iter().find(|value| value["kind"] == kind && value["metadata"]["name"] == name)
    };
    policies(&expected, &find).map_err(|defect| defect.to_string())
}

#[test]
fn policies_of_the_manifests_are_proven() {
    assert_eq!(policies_with("", |_| ()), Ok(()));
    let wrapped = |policy: &mut Value| {
        let text = policy["spec"]["validations"][0]["expression"].as_str().unwrap().replace(' ', "\n  ");
        policy["spec"]["validations"][0]["expression"] = json!(text);
    };
    assert_eq!(policies_with("ValidatingAdmissionPolicy concertina-handover-scale", wrapped), Ok(()));
}

#[test]
fn changed_policy_is_named_with_its_field() {
    let check = |object: &str, field: &str, change: &dyn Fn(&mut Value)| {
        let error = policies_with(object, change).unwrap_err();
        assert!(error.starts_with(&format!("{object}: {field} is ")), "{error}");
    };
    let policy = "ValidatingAdmissionPolicy concertina-handover-scale";
    check(policy, "spec.paramKind", &|value| value["spec"]["paramKind"] = json!(null));
    check(policy, "spec.validations[0].expression", &|value| {
        value["spec"]["validations"][0]["expression"] = json!("true");
    });
    check(policy, "spec.matchConditions", &|value| {
        value["spec"]["matchConditions"] = json!([]);
    });
    check(policy, "spec.matchConstraints.excludeResourceRules", &|value| {
        value["spec"]["matchConstraints"]["excludeResourceRules"] = json!([{"resources": ["*/scale"]}]);
    });
    let binding = "ValidatingAdmissionPolicyBinding concertina-handover-events";
    check(binding, "spec.validationActions[0]", &|value| {
        value["spec"]["validationActions"] = json!(["Audit"]);
    });
    check(binding, "spec.paramRef.selector.matchLabels.concertina.dev/controller", &|value| {
        value["spec"]["paramRef"]["selector"]["matchLabels"] = json!({"concertina.dev/controller": "other"});
    });
    check(binding, "spec.policyName", &|value| value["spec"]["policyName"] = json!("other"));
    check(binding, "spec.matchResources", &|value| {
        value["spec"]["matchResources"] = json!({"namespaceSelector": {"matchLabels": {"a": "b"}}});
    });
    let by_namespace = "ValidatingAdmissionPolicyBinding concertina-handover-scale-by-namespace";
    let gone = policies_with(by_namespace, |value| value["metadata"]["name"] = json!("other")).unwrap_err();
    assert_eq!(gone, format!("{by_namespace} does not exist: apply the manifests of the guard"));
}

#[test]
fn longer_time_limit_is_a_defect() {
    for seconds in [json!(2), json!(10), json!(30), json!(null)] {
        let error = changed(|webhook| webhook["timeoutSeconds"] = seconds).unwrap_err();
        assert!(error.contains("webhooks[0].timeoutSeconds is ") && error.contains(", not 1: "), "{error}");
    }
}

#[test]
fn url_of_the_webhook_needs_a_host_in_its_certificate() {
    let client = json!({"url": "https://example.com/handover", "caBundle": "good"});
    let error = changed(|webhook| webhook["clientConfig"] = client).unwrap_err();
    assert!(
        error.contains("caBundle does not trust the certificate of the webhook for example.com"),
        "{error}"
    );
}

#[test]
fn url_of_the_webhook_needs_https_and_its_path() {
    for url in [
        "http://10.0.0.7:10250/handover",
        "https://10.0.0.7:10250/other",
        "https://10.0.0.7:10250",
        "https://10.0.0.7:10250/other/handover",
        "https://10.0.0.7:10250/handover?to=other",
    ] {
        let client = json!({"url": url, "caBundle": "good"});
        let error = changed(|webhook| webhook["clientConfig"] = client).unwrap_err();
        assert!(error.contains("webhooks[0].clientConfig.service is "), "{url}: {error}");
    }
}

#[test]
fn added_fields_break_the_guard_unless_they_are_empty_or_free() {
    for (field, value) in [
        ("namespaceSelector", json!(null)),
        ("variables", json!([])),
        ("conditions", json!({})),
        ("reason", json!("Forbidden")),
        ("matchPolicy", json!("Equivalent")),
    ] {
        assert_eq!(changed(|webhook| webhook[field] = value), Ok(()), "{field}");
    }
    for (field, value) in [("other", json!("*")), ("variables", json!([1])), ("matchPolicy", json!("Exact"))]
    {
        let error = changed(|webhook| webhook[field] = value).unwrap_err();
        assert!(error.contains(&format!("webhooks[0].{field} is ")), "{error}");
    }
}

#[test]
fn defect_shows_missing_and_long_values_in_short() {
    let error = changed(|webhook| webhook["rules"][0]["operations"] = json!(null)).unwrap_err();
    assert!(error.contains("webhooks[0].rules[0].operations is unset, not [\"UPDATE\"]"), "{error}");
    let long = "x".repeat(5_000);
    let error = changed(|webhook| webhook["rules"][0]["operations"] = json!(long)).unwrap_err();
    assert!(error.contains('…') && error.len() < 600, "{} bytes", error.len());
}
