//! What `deploy/` ships: that kustomize and Helm give the same objects, that a real API server takes them, and that the
//! alerts, the dashboard and the runbook speak of metrics that exist.
//!
//! `cargo test --test deploy -- --ignored` runs what needs tools: `kubectl` on the PATH, `HELM` (tests/helm/build.sh) and
//! `KUBEBUILDER_ASSETS` (tests/controlplane/build.sh).

#![cfg(feature = "tools")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(
    dead_code,
    reason = "the control plane modules are shared with tests/e2e.rs, which uses all of them"
)]

#[path = "e2e/assets.rs"]
mod assets;
#[path = "e2e/audit.rs"]
mod audit;
#[path = "deploy/cluster.rs"]
mod cluster;
#[path = "e2e/controlplane.rs"]
mod controlplane;
#[path = "deploy/monitoring.rs"]
mod monitoring;
#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "e2e/process.rs"]
mod process;
#[path = "deploy/rendered.rs"]
mod rendered;
#[path = "e2e/rest.rs"]
mod rest;
#[path = "deploy/roles.rs"]
mod roles;

use std::collections::BTreeMap;

use concertina::cli::Invocation;

use crate::rendered::{VARIANTS, helm, helm_complains, kustomize, only};

#[test]
#[ignore = "needs kubectl and HELM: run tests/helm/build.sh"]
fn kustomize_and_helm_give_the_same_objects() {
    for variant in VARIANTS {
        let (folder, chart) =
            (kustomize(variant.folder), helm(variant.release, variant.namespace, variant.values));
        let names: [Vec<_>; 2] = [&folder, &chart].map(|objects| objects.keys().collect());
        assert_eq!(names[0], names[1], "{}", variant.folder);
        for (name, object) in &folder {
            assert_eq!(object, &chart[name], "{}: {name}", variant.folder);
        }
    }
    let monitoring = kustomize("prometheus");
    let chart = helm(
        "concertina",
        "kube-system",
        &[
            "prometheus.serviceMonitor.enabled=true",
            "prometheus.rule.enabled=true",
            "grafana.dashboard.enabled=true",
        ],
    );
    let mut all = kustomize("base");
    all.extend(monitoring);
    assert_eq!(all, chart);
}

#[test]
#[ignore = "needs kubectl"]
fn the_flags_of_every_deployment_are_taken_without_a_warning() {
    for variant in VARIANTS {
        let deployment = only(&kustomize(variant.folder), "Deployment");
        let words = rendered::flags(&deployment);
        match Invocation::from_args(words.iter().map(Into::into)) {
            Ok(Invocation::Controller(config)) => {
                assert_eq!(config.warnings, Vec::<String>::new(), "{}: {words:?}", variant.folder);
                assert_eq!(config.dry_run, variant.folder == "overlays/shadow", "{words:?}");
            }
            Ok(_) => panic!("{}: {words:?} do not run the controller", variant.folder),
            Err(error) => panic!("{}: {words:?}: {error}", variant.folder),
        }
    }
}

#[test]
#[ignore = "needs kubectl"]
fn probes_and_service_meet_the_port_that_is_served() {
    for variant in VARIANTS {
        let objects = kustomize(variant.folder);
        let deployment = only(&objects, "Deployment");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let port = &container["ports"][0];
        let flag = format!("--secure-port={}", port["containerPort"]);
        assert!(rendered::flags(&deployment).contains(&flag), "{}: {flag}", variant.folder);
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], port["name"], "{}: {probe}", variant.folder);
        }
        assert_eq!(only(&objects, "Service")["spec"]["ports"][0]["targetPort"], port["name"]);
    }
}

#[test]
#[ignore = "needs HELM: run tests/helm/build.sh"]
fn values_that_mean_nothing_are_refused() {
    for (values, complaint) in [
        (&["replica=3"][..], "additional properties 'replica' not allowed"),
        (&["image.tagg=v1"], "additional properties 'tagg' not allowed"),
        (&["replicas=two"], "got string, want integer"),
        (&["shadow=yes"], "got string, want boolean"),
        (&["extraArgs={horizontal-pod-autoscaler-tolerance=0.2}"], "does not match pattern '^-'"),
        (&["watchNamespaces={Shop}"], "'Shop' does not match pattern"),
        (&["resources.limits.memory=much"], "'much' does not match pattern"),
        (&["image.repository=concertina:v1"], "'concertina:v1' does not match pattern"),
        (&["shadow=true", "serviceAccount.name=horizontal-pod-autoscaler"], "may write"),
        (&["shadow=true", "rbac.builtInRoles=true"], "rbac.builtInRoles goes neither with shadow"),
        (&["shadow=true", "historyCheckpoint=true"], "historyCheckpoint does not go with shadow"),
        (&["controlPlane=true", "watchNamespaces={shop}"], "controlPlane is for those who run the cluster"),
    ] {
        let told = helm_complains("kube-system", values);
        assert!(told.contains(complaint), "{values:?}: {told}");
    }
    let told = helm_complains("shop", &[]);
    assert!(told.contains("install with --namespace=kube-system"), "{told}");
}

#[test]
#[ignore = "needs HELM: run tests/helm/build.sh"]
fn what_the_values_promise_is_in_the_objects() {
    let chart = |values: &[&str]| helm("concertina", "kube-system", values);
    let pod = |values: &[&str]| only(&chart(values), "Deployment")["spec"]["template"].clone();

    let digest = format!("image.digest=sha256:{}", "0".repeat(64));
    let image =
        pod(&["image.repository=registry:5000/a/concertina", &digest])["spec"]["containers"][0]["image"]
            .clone();
    assert_eq!(image, format!("registry:5000/a/concertina@sha256:{}", "0".repeat(64)));

    let targets = chart(&["scaleTargets={deployments.apps,replicationcontrollers}"]);
    let scales: Vec<_> = only(&targets, "ClusterRole")["rules"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| rule["resources"][0].as_str().unwrap().ends_with("/scale"))
        .map(|rule| (rule["apiGroups"][0].clone(), rule["resources"][0].clone()))
        .collect();
    assert_eq!(
        scales,
        [("apps", "deployments/scale"), ("", "replicationcontrollers/scale")]
            .map(|(group, resource)| (group.into(), resource.into()))
    );
    assert!(
        rendered::flags(&only(&targets, "Deployment"))
            .contains(&"--scale-targets=deployments.apps,replicationcontrollers".to_owned())
    );

    let kept = only(&chart(&["serviceAccount.create=true"]), "ServiceAccount");
    assert_eq!(kept["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    let account = helm("concertina", "shop", &["serviceAccount.name=scaler", "serviceAccount.create=true"]);
    assert!(only(&account, "ServiceAccount")["metadata"].get("annotations").is_none());
    // One Lease for the cluster, wherever the release is.
    assert_eq!(only(&account, "Role")["metadata"]["namespace"], "kube-system");

    let kinds: BTreeMap<_, _> = chart(&[
        "rbac.create=false",
        "networkPolicy.enabled=false",
        "flowSchema.enabled=false",
        "podDisruptionBudget.enabled=false",
    ]);
    assert_eq!(kinds.keys().map(|name| &*name.kind).collect::<Vec<_>>(), ["Deployment", "Service"]);
}
