//! Every folder of kustomize builds from a copy of itself, and components combine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::rendered::{HOME, Objects, helm, named, objects, only, path, run};

/// Copies a folder below deploy/kustomize, alone, to a folder of this test.
fn vendored(test: &str, folder: &str) -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test).join(folder);
    let _ = fs::remove_dir_all(&copy);
    copy_folder(Path::new(&path("kustomize")).join(folder).as_path(), &copy);
    copy
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn build(folder: &Path) -> Objects {
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("kustomize").arg(folder);
    objects(&run(kubectl).unwrap_or_else(|error| panic!("{}: {error}", folder.display())))
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(path(&format!("kustomize/{folder}"))).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
#[ignore = "needs kubectl"]
fn each_folder_builds_when_only_it_is_vendored() {
    let test = "vendored-folders";
    let components = names("components");
    assert!(components.len() >= 10, "{components:?}");
    for name in components {
        build(&vendored(test, &format!("components/{name}")));
    }
    for folder in ["base", "prometheus", "service-account", "namespace-role"] {
        assert!(!build(&vendored(test, folder)).is_empty(), "{folder}");
    }
    // The overlays use the other folders of deploy/kustomize, but nothing outside of that folder.
    let all = vendored("vendored-kustomize", "");
    for name in names("overlays") {
        assert!(!build(&all.join("overlays").join(&name)).is_empty(), "{name}");
    }
    fs::remove_dir_all(all).unwrap();
    fs::remove_dir_all(Path::new(env!("CARGO_TARGET_TMPDIR")).join(test)).unwrap();
}

/// The objects with the arguments of the Deployment in alphabetical order.
fn with_sorted_flags(mut objects: Objects) -> Objects {
    for (_, deployment) in objects.iter_mut().filter(|(key, _)| key.kind == "Deployment") {
        let arguments = &mut deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        arguments.as_array_mut().unwrap().sort_by_key(Value::to_string);
    }
    objects
}

/// The objects with the rules of the ClusterRole in alphabetical order.
fn with_sorted_rules(mut objects: Objects) -> Objects {
    for (_, role) in objects.iter_mut().filter(|(key, _)| key.kind == "ClusterRole") {
        role["rules"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    }
    objects
}

#[test]
#[ignore = "needs kubectl and HELM: run tests/helm/build.sh"]
fn components_combine_in_a_folder_of_the_users_own() {
    let all = vendored("combined-components", "");
    let own = all.join("own");
    fs::create_dir(&own).unwrap();
    let combination = |components: &[&str]| {
        let list: Vec<_> = components.iter().map(|name| format!("  - ../components/{name}\n")).collect();
        let text = format!(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - ../base\n\
             components:\n{}",
            list.concat()
        );
        fs::write(own.join("kustomization.yaml"), text).unwrap();
        with_sorted_rules(with_sorted_flags(build(&own)))
    };
    for (components, values) in [
        (
            &["control-plane", "history-checkpoint", "scaling-policies"][..],
            &["controlPlane=true", "historyCheckpoint=true", "scalingPolicies.enabled=true"][..],
        ),
        (
            &["scope-labelled", "guard-webhook", "history-checkpoint"],
            &["scope=labelled", "historyCheckpoint=true"],
        ),
    ] {
        let chart = with_sorted_rules(with_sorted_flags(helm("concertina", HOME, values)));
        let built = combination(components);
        assert_eq!(only(&built, "Deployment"), only(&chart, "Deployment"), "{components:?}");
        assert_eq!(built, chart, "{components:?}");
    }
    fs::remove_dir_all(all).unwrap();
}

#[test]
#[ignore = "needs kubectl and HELM: run tests/helm/build.sh"]
fn account_for_kubelets_may_only_read_metrics_of_nodes() {
    let all = vendored("kubelet-metrics", "");
    let own = all.join("own");
    fs::create_dir(&own).unwrap();
    let text = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../base]\n\
                components: [../components/kubelet-metrics]\n";
    fs::write(own.join("kustomization.yaml"), text).unwrap();
    let built = build(&own);
    let values = ["metricSources.kubelet.enabled=true", "metricSources.kubelet.insecureSkipVerify=true"];
    let chart = helm("concertina", HOME, &values);
    for kind in ["ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding"] {
        let account = named(&built, kind, "concertina-kubelet");
        assert_eq!(account, named(&chart, kind, "concertina-kubelet"), "{kind}");
    }
    let reader = named(&built, "ClusterRole", "concertina-kubelet");
    let rule = serde_json::json!({"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]});
    assert_eq!(reader["rules"], serde_json::json!([rule]));
    let mount = serde_json::json!({
        "name": "kubelet-token", "mountPath": "/var/run/secrets/concertina/kubelet", "readOnly": true,
    });
    for objects in [&built, &chart] {
        let pod = &only(objects, "Deployment")["spec"]["template"]["spec"];
        assert!(pod["containers"][0]["volumeMounts"].as_array().unwrap().contains(&mount));
        let volumes = pod["volumes"].as_array().unwrap().iter();
        let secrets: Vec<_> = volumes.filter_map(|volume| volume["secret"]["secretName"].as_str()).collect();
        assert_eq!(secrets, ["concertina-kubelet"]);
    }
    fs::remove_dir_all(all).unwrap();
}

/// Files that the chart and a folder of kustomize both need, because neither can read outside of its folder.
const SHARED: [(&str, &str); 3] = [
    ("prometheus-rule.yaml", "prometheus/prometheus-rule.yaml"),
    ("concertina.json", "prometheus/concertina.json"),
    ("scaling-policies/definitions.yaml", "components/scaling-policies/definitions.yaml"),
];

#[test]
fn files_of_the_chart_and_of_kustomize_are_equal() {
    for (chart, kustomize) in SHARED {
        let source = path(&format!("helm/concertina/files/{chart}"));
        let copy = path(&format!("kustomize/{kustomize}"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::copy(&source, &copy).unwrap();
        }
        assert!(
            fs::read(&source).unwrap() == fs::read(&copy).unwrap(),
            "{copy} differs from {source}; run UPDATE_DOCS=1 cargo test --test deploy files_of_the_chart"
        );
    }
}
