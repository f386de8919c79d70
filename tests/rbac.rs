//! `concertina rbac`: the roles for a controller with given flags.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::{Value, json};

fn rbac(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_concertina")).arg("rbac").args(flags).output().unwrap()
}

fn text(flags: &[&str]) -> String {
    let output = rbac(flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn objects(flags: &[&str]) -> Vec<Value> {
    let text = text(flags);
    // The first document is a comment.
    text.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

fn rules(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects.iter().filter_map(|object| object["rules"].as_array()).flatten()
}

#[test]
fn manifest_is_stable_and_explains_each_rule() {
    let manifest = text(&[]);
    assert_eq!(manifest, text(&[]));
    let lines: Vec<_> = manifest.lines().collect();
    let rules: Vec<_> = (0..lines.len()).filter(|index| lines[*index].starts_with("  - apiGroups")).collect();
    assert_eq!(rules.len(), 19);
    assert!(rules.iter().all(|index| lines[index - 1].starts_with("  # to ")), "{manifest}");
}

#[test]
fn each_role_is_bound_to_the_account_and_no_account_is_created() {
    let objects = objects(&["--service-account=scaling/concertina", "--name=hpa"]);
    let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    let mut expected = vec!["ClusterRole", "ClusterRoleBinding"];
    expected.extend(["ConfigMap"; 8]);
    expected.extend(["Role", "RoleBinding"]);
    assert_eq!(kinds, expected);
    let roles: Vec<_> = objects.into_iter().filter(|object| object["kind"] != "ConfigMap").collect();
    for pair in roles.chunks(2) {
        assert_eq!(pair[0]["metadata"], pair[1]["metadata"]);
        assert_eq!(pair[1]["roleRef"]["name"], "hpa");
        assert_eq!(pair[1]["roleRef"]["kind"], pair[0]["kind"]);
        let account = json!([{"kind": "ServiceAccount", "name": "concertina", "namespace": "scaling"}]);
        assert_eq!(pair[1]["subjects"], account);
    }
}

#[test]
fn json_is_a_list_of_the_same_objects() {
    for flags in [&[][..], &["--watch-namespaces=shop"], &["--history-checkpoint=false", "--name=hpa"]] {
        let list: Value = serde_json::from_str(&text(&[flags, &["-o", "json"]].concat())).unwrap();
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("List"), &json!("v1")));
        assert_eq!(list["items"], json!(objects(flags)), "{flags:?}");
        assert_eq!(text(&[flags, &["--output=yaml"]].concat()), text(flags));
    }
    let refused = rbac(&["-o", "wide"]);
    assert_eq!(refused.status.code(), Some(2));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("yaml") && error.contains("json"), "{error}");
}

#[test]
fn dry_run_allows_reads_and_reviews_only() {
    let objects = objects(&["--dry-run"]);
    for rule in rules(&objects) {
        let resource = rule["resources"][0].as_str().unwrap();
        let reviews = ["tokenreviews", "subjectaccessreviews"].contains(&resource);
        let verbs = rule["verbs"].as_array().unwrap();
        let reads = verbs.iter().all(|verb| ["get", "list", "watch"].contains(&verb.as_str().unwrap()));
        assert!(reviews || reads, "{rule}");
    }
    assert!(rules(&objects).all(|rule| rule["resources"] != json!(["leases"])));
}

#[test]
fn watched_namespaces_yield_roles_and_name_missing_rights() {
    let flags = ["--watch-namespaces=shop,bank"];
    let mut manifest = objects(&flags);
    manifest.retain(|object| object["kind"] != "ConfigMap");
    assert!(manifest.iter().all(|object| object["kind"] == "Role" || object["kind"] == "RoleBinding"));
    let namespaces: Vec<_> =
        manifest.iter().map(|object| object["metadata"]["namespace"].as_str().unwrap()).collect();
    assert_eq!(namespaces, ["bank", "bank", "kube-system", "kube-system", "shop", "shop"]);
    let comments = text(&flags).split("---").next().unwrap().to_owned();
    assert!(comments.contains("create tokenreviews.authentication.k8s.io"), "{comments}");
    assert!(comments.contains("create subjectaccessreviews.authorization.k8s.io"), "{comments}");
}

#[test]
fn rules_of_the_lease_namespace_are_merged_into_one_role() {
    let manifest = objects(&["--watch-namespaces=kube-system", "--history-checkpoint=false"]);
    assert_eq!(manifest.len(), 2);
}

#[test]
fn guards_need_their_named_objects_only() {
    let of_guard = |flags: &[&str]| {
        let all =
            objects(&[&["--scope=labelled", "--leader-elect-resource-namespace=scaling"], flags].concat());
        let rules: Vec<_> = rules(&all).cloned().collect();
        let guards = rules.into_iter().filter(|rule| {
            rule["apiGroups"] == json!(["admissionregistration.k8s.io"])
                || rule["resources"] == json!(["secrets"])
        });
        let rules = guards
            .map(|rule| (rule["resources"][0].clone(), rule["resourceNames"].clone(), rule["verbs"].clone()));
        rules.collect::<Vec<_>>()
    };
    let webhook =
        (json!("validatingwebhookconfigurations"), json!(["blue-handover"]), json!(["get", "update"]));
    let secret = (json!("secrets"), json!(["blue-handover"]), json!(["get", "update"]));
    let flags = ["--controller-name=blue", "--handover-namespace=scaling"];
    assert_eq!(of_guard(&flags), [webhook.clone(), secret]);
    let files = ["--controller-name=blue", "--handover-webhook-cert-file=a", "--handover-webhook-key-file=b"];
    assert_eq!(of_guard(&files), [(webhook.0, webhook.1, json!(["get"]))]);
    let policy = of_guard(&["--handover-guard=policy"]);
    assert_eq!(policy.len(), 2);
    assert!(
        policy
            .iter()
            .all(|(_, names, verbs)| *verbs == json!(["get"]) && names.as_array().unwrap().len() >= 3)
    );
    assert!(of_guard(&["--handover-guard=none"]).is_empty());
}

#[test]
fn labelled_scope_needs_nothing_in_kube_system() {
    let flags = [
        "--scope=labelled",
        "--leader-elect-resource-namespace=concertina-system",
        "--authentication-skip-lookup",
    ];
    let manifest = objects(&flags);
    assert!(manifest.iter().all(|object| object["metadata"]["namespace"] != "kube-system"));
    assert!(rules(&manifest).any(|rule| rule["resources"] == json!(["namespaces"])));
}

#[test]
fn scale_targets_narrow_the_scale_rules() {
    let manifest = objects(&["--scale-targets=deployments.apps,replicationcontrollers,rollouts.argoproj.io"]);
    let scales: Vec<_> = rules(&manifest)
        .filter(|rule| rule["resources"][0].as_str().unwrap().ends_with("/scale"))
        .map(|rule| {
            format!("{} {}", rule["apiGroups"][0].as_str().unwrap(), rule["resources"][0].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        scales,
        [" replicationcontrollers/scale", "apps deployments/scale", "argoproj.io rollouts/scale"]
    );
}

#[test]
fn targets_have_list_and_watch_rules() {
    let watched = |flags: &[&str]| -> Vec<String> {
        let text = |rule: &Value, field: &str| rule[field][0].as_str().unwrap().to_owned();
        let manifest = objects(flags);
        let is_watch_rule = |rule: &&Value| {
            let resource = text(rule, "resources");
            rule["verbs"] == json!(["list", "watch"])
                && !["pods", "horizontalpodautoscalers"].contains(&&*resource)
                || text(rule, "apiGroups") == "apiextensions.k8s.io"
        };
        rules(&manifest)
            .filter(is_watch_rule)
            .map(|rule| {
                let names = rule["resourceNames"][0].as_str().unwrap_or_default();
                format!("{} {} {names}", text(rule, "apiGroups"), text(rule, "resources"))
            })
            .collect()
    };
    let built_in =
        ["apps deployments ", "apps replicasets ", "apps statefulsets ", " replicationcontrollers "];
    assert_eq!(watched(&[]), built_in);
    assert_eq!(watched(&["--dry-run"]), built_in);
    assert_eq!(watched(&["--watch-namespaces=shop"]), built_in);
    let custom = "--scale-targets=deployments.apps,rollouts.argoproj.io";
    assert_eq!(
        watched(&[custom]),
        [
            "apps deployments ",
            "argoproj.io rollouts ",
            "apiextensions.k8s.io customresourcedefinitions rollouts.argoproj.io",
        ]
    );
    // A Role cannot grant access to a CustomResourceDefinition, which is cluster-scoped, so the rule is
    // omitted.
    assert_eq!(watched(&[custom, "--watch-namespaces=shop"]), ["apps deployments ", "argoproj.io rollouts "]);
}

#[test]
fn credentials_user_gets_rights_for_tokens_lease_and_account() {
    let mut manifest = objects(&["--use-service-account-credentials", "--user=boot"]);
    manifest.retain(|object| object["kind"] != "ConfigMap");
    let names: Vec<_> = manifest.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names[0..4], ["concertina"; 4]);
    assert_eq!(names[4..], ["concertina-credentials"; 4]);
    assert_eq!(
        manifest[7]["subjects"],
        json!([{"kind": "User", "name": "boot", "apiGroup": "rbac.authorization.k8s.io"}])
    );
    let has = |resource: &str| rules(&manifest[6..7]).any(|rule| rule["resources"] == json!([resource]));
    assert!(has("serviceaccounts/token") && has("leases") && has("serviceaccounts"), "{:?}", manifest[6]);
}

#[test]
fn checkpoint_has_empty_config_maps_and_a_rule_for_their_names() {
    let manifest = objects(&["--leader-elect-resource-namespace=scaling"]);
    let maps: Vec<_> = manifest.iter().filter(|object| object["kind"] == "ConfigMap").collect();
    let names: Vec<_> = maps.iter().map(|map| map["metadata"]["name"].as_str().unwrap()).collect();
    let expected: Vec<_> = (0..8).map(|number| format!("concertina-history-{number}")).collect();
    assert_eq!(names, expected);
    for map in maps {
        assert_eq!(map["metadata"]["namespace"], "scaling");
        assert!(
            map["data"].is_null() && map["binaryData"].is_null(),
            "a second apply must keep the contents"
        );
    }
    let is_role = |object: &&Value| object["kind"] == "Role" && object["metadata"]["namespace"] == "scaling";
    let role: Vec<_> = manifest.iter().filter(is_role).collect();
    let of_maps = |objects: &[Value]| {
        rules(objects).filter(|rule| rule["resources"] == json!(["configmaps"])).cloned().collect::<Vec<_>>()
    };
    let expected = json!({
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": ["get", "update"],
    });
    assert_eq!((role.len(), of_maps(&[role[0].clone()])), (1, vec![expected]));
    for flags in [["--history-checkpoint=false"], ["--dry-run"]] {
        let manifest = objects(&flags);
        assert!(manifest.iter().all(|object| object["kind"] != "ConfigMap"), "{flags:?}");
    }
}

#[test]
fn invalid_flags_are_named() {
    for (flag, reason) in [
        ("--service-account=x", "must be NAMESPACE/NAME"),
        ("--service-account=a/b\nc", "must be NAMESPACE/NAME"),
        ("--name=A B", "must consist of"),
        ("--watch-namespaces=", "must name at least one namespace"),
        ("--nope", "unknown flag: --nope"),
    ] {
        let output = rbac(&[flag]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(reason), "{flag:?}: {error}");
    }
}

#[test]
fn api_groups_of_the_source_file_have_their_rule() {
    let file = std::env::temp_dir().join(format!("rbac-sources-{}.yaml", std::process::id()));
    let flag = format!("--metric-sources={}", file.display());
    std::fs::write(&file, "adapters: [{apiGroup: models.example.com}]").unwrap();
    let rule = json!({"apiGroups": ["models.example.com"], "resources": ["*"], "verbs": ["get", "list"]});
    assert!(rules(&objects(&[&flag])).any(|found| *found == rule));
    let namespaced = objects(&[&flag, "--watch-namespaces=shop,bank"]);
    assert_eq!(rules(&namespaced).filter(|found| **found == rule).count(), 2);
    std::fs::write(&file, "adapters: [{apiGroup: metrics.k8s.io}]").unwrap();
    let output = rbac(&[&flag]);
    std::fs::remove_file(&file).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("adapters[0].apiGroup must be"), "{error}");
}

#[test]
fn secrets_of_pods_have_a_role_in_the_listed_namespaces() {
    let file = std::env::temp_dir().join(format!("rbac-secrets-{}.yaml", std::process::id()));
    let flag = format!("--metric-sources={}", file.display());
    let is_for_secrets = |rule: &Value| rule["resources"] == json!(["secrets"]);
    std::fs::write(&file, "pods: {enabled: true, tls: true}").unwrap();
    assert!(!rules(&objects(&[&flag])).any(is_for_secrets));
    std::fs::write(&file, "pods: {enabled: true, tls: true, secretNamespaces: [shop, bank]}").unwrap();
    let printed = objects(&[&flag]);
    std::fs::remove_file(&file).unwrap();
    let with_rule = |object: &&Value| rules(std::slice::from_ref(*object)).any(is_for_secrets);
    let roles: Vec<_> = printed.iter().filter(with_rule).collect();
    let namespaces: Vec<_> =
        roles.iter().map(|role| role["metadata"]["namespace"].as_str().unwrap()).collect();
    assert_eq!(namespaces, ["bank", "shop"]);
    for role in roles {
        assert_eq!(role["kind"], "Role");
        let rule = rules(std::slice::from_ref(role)).find(|rule| is_for_secrets(rule)).unwrap();
        assert_eq!(rule["verbs"], json!(["get"]));
    }
}
