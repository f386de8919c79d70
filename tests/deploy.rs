//! The contents of `deploy/`: kustomize and Helm render the same objects, and a real API server accepts the objects.
//! The alerts, the dashboard and the runbook name existing metrics.
//!
//! `cargo test --test deploy -- --ignored` runs the tests that need tools: `kubectl` on the PATH, `HELM`
//! (tests/helm/build.sh), `PROMTOOL` (tests/prometheus/build.sh promtool) and `KUBEBUILDER_ASSETS`
//! (tests/controlplane/build.sh).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(dead_code, reason = "tests/e2e.rs shares the control plane modules and uses all of them")]

#[path = "e2e/adapter.rs"]
mod adapter;
#[path = "deploy/alerts.rs"]
mod alerts;
#[path = "e2e/audit.rs"]
mod audit;
#[path = "deploy/cluster.rs"]
mod cluster;
#[path = "deploy/components.rs"]
mod components;
#[path = "e2e/controlplane.rs"]
mod controlplane;
#[path = "e2e/extensions.rs"]
mod extensions;
#[path = "deploy/guides.rs"]
mod guides;
#[path = "deploy/monitoring.rs"]
mod monitoring;
#[path = "e2e/node.rs"]
mod node;
#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "deploy/release.rs"]
mod release;
#[path = "deploy/rendered.rs"]
mod rendered;
#[path = "e2e/rest.rs"]
mod rest;
#[path = "deploy/roles.rs"]
mod roles;
#[path = "deploy/walk.rs"]
mod walk;

/// The metrics API of the guides, for `adapter`.
mod metrics {
    pub(crate) const APIS: [(&str, &str, &str, &str); 1] =
        [("custom.metrics.k8s.io", "v1beta1", "pods/requests_per_second", "MetricValueList")];
}

use std::collections::BTreeMap;

use concertina::invocation::Invocation;

use crate::rendered::{VARIANTS, helm, helm_complains, kustomize, only};

#[test]
#[ignore = "needs kubectl and HELM: run tests/helm/build.sh"]
fn kustomize_and_helm_render_the_same_objects() {
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
    let mut chart = helm(
        "concertina",
        rendered::HOME,
        &[
            "prometheus.serviceMonitor.enabled=true",
            "prometheus.rule.enabled=true",
            "grafana.dashboard.enabled=true",
        ],
    );
    let mut all = kustomize("base");
    all.extend(monitoring);
    // The ServiceMonitor of the folder selects every installation in its namespace. The ServiceMonitor of the chart
    // selects only its own release.
    for (key, object) in chart.iter_mut().filter(|(key, _)| key.kind == "ServiceMonitor") {
        let labels = object["spec"]["selector"]["matchLabels"].as_object_mut().unwrap();
        assert_eq!(labels.remove("app.kubernetes.io/instance"), Some("concertina".into()), "{key}");
    }
    assert_eq!(all, chart);
}

#[test]
#[ignore = "needs kubectl"]
fn flags_of_every_deployment_parse_without_a_warning() {
    for variant in VARIANTS {
        let deployment = only(&kustomize(variant.folder), "Deployment");
        let arguments = rendered::flags(&deployment);
        match Invocation::from_args(arguments.iter().map(Into::into)) {
            Ok(Invocation::Controller(config)) => {
                assert_eq!(config.warnings, Vec::<String>::new(), "{}: {arguments:?}", variant.folder);
                assert_eq!(config.controller.dry_run, variant.folder == "overlays/shadow", "{arguments:?}");
            }
            Ok(_) => panic!("{}: {arguments:?} do not select the controller", variant.folder),
            Err(error) => panic!("{}: {arguments:?}: {error}", variant.folder),
        }
    }
}

#[test]
#[ignore = "needs kubectl"]
fn probes_and_service_use_the_served_port() {
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
        let service = rendered::named(&objects, "Service", variant.release);
        assert_eq!(service["spec"]["ports"][0]["targetPort"], port["name"]);
    }
}

#[test]
#[ignore = "needs HELM: run tests/helm/build.sh"]
fn chart_refuses_invalid_values() {
    for (values, expected) in [
        (&["replica=3"][..], "additional properties 'replica' not allowed"),
        (&["mode=both"], "value must be one of 'replace', 'labelled', 'shadow'"),
        (&["mode=labelled", "shadow=true"], "the values ask for the modes labelled and shadow"),
        (&["scope=labelled", "mode=shadow"], "the values ask for the modes shadow and labelled"),
        (&["replicas=3", "replicaCount=4"], "replicas is the former name of replicaCount"),
        (&["serviceAccount.create=false"], "serviceAccount.create=false needs serviceAccount.name"),
        (&["image.tagg=v1"], "additional properties 'tagg' not allowed"),
        (&["replicaCount=two"], "got string, want integer"),
        (&["shadow=yes"], "got string, want boolean"),
        (&["extraArgs={horizontal-pod-autoscaler-tolerance=0.2}"], "does not match pattern '^-'"),
        (&["watchNamespaces={Shop}"], "'Shop' does not match pattern"),
        (&["resources.limits.memory=much"], "'much' does not match pattern"),
        (&["image.repository=concertina:v1"], "'concertina:v1' does not match pattern"),
        (&["mode=shadow", "serviceAccount.name=horizontal-pod-autoscaler"], "may write"),
        (&["mode=shadow", "rbac.builtInRoles=true"], "rbac.builtInRoles cannot be combined with mode=shadow"),
        (
            &["mode=labelled", "watchNamespaces={shop}"],
            "mode=labelled cannot be combined with watchNamespaces",
        ),
        (&["mode=labelled", "controlPlane=true"], "mode=labelled cannot be combined with controlPlane"),
        (&["mode=labelled", "handover.guard=rbac"], "value must be one of 'webhook', 'policy'"),
        (
            &["mode=labelled", "serviceAccount.name=horizontal-pod-autoscaler"],
            "the guard refuses the writes of the account horizontal-pod-autoscaler",
        ),
        (&["handover.certificate.secret=webhook"], "handover.certificate.secret needs mode=labelled"),
        (
            &["mode=labelled", "handover.certificate.caBundle=YQ=="],
            "handover.certificate.caBundle needs handover.certificate.secret",
        ),
        (
            &["mode=labelled", "flags.handover-webhook-cert-file=a"],
            "the flag --handover-webhook-cert-file is set by the value handover.certificate.secret",
        ),
        (
            &["scalingPolicies.enabled=true", "watchNamespaces={shop}"],
            "scalingPolicies.enabled cannot be combined with",
        ),
        (&["extraArgs={--dry-run}"], "the flag --dry-run is set by the value mode"),
        (&["extraArgs={--secure_port=1}"], "the flag --secure-port is set by the value controlPlane"),
        (&["flags.scale-targets=a"], "the flag --scale-targets is set by the value scaleTargets"),
        (&["flags.leader-elect-resource-name=a"], "the role allows the Lease concertina only"),
        (&["prometheus.rule.hpas=true"], "prometheus.rule.hpas needs prometheus.rule.enabled"),
        (&["prometheus.podMonitoring.enabled=true"], "prometheus.podMonitoring.tokenSecret"),
        (
            &["extraArgs={--history-checkpoint}"],
            "the flag --history-checkpoint is set by the value historyCheckpoint",
        ),
        (
            &["controlPlane=true", "watchNamespaces={shop}"],
            "controlPlane cannot be combined with watchNamespaces",
        ),
    ] {
        let error = helm_complains("kube-system", values);
        assert!(error.contains(expected), "{values:?}: {error}");
    }
    let error = helm_complains("shop", &["serviceAccount.name=horizontal-pod-autoscaler"]);
    assert!(error.contains("install with --namespace=kube-system"), "{error}");
    let error = helm_complains("shop", &["rbac.builtInRoles=true"]);
    assert!(error.contains("set serviceAccount.name=horizontal-pod-autoscaler"), "{error}");
    let error = helm_complains("shop", &["mode=labelled", "handover.controllerName=built-in"]);
    assert!(error.contains("controllerName"), "{error}");
}

#[test]
#[ignore = "needs HELM: run tests/helm/build.sh"]
fn chart_values_shape_the_pod_and_its_surroundings() {
    let objects = helm(
        "concertina",
        "kube-system",
        &[
            "fullnameOverride=hpa",
            "commonLabels.team=platform",
            "global.imageRegistry=mirror.example.com",
            "imagePullSecrets[0].name=registry",
            "extraArgs={--horizontal-pod-autoscaler-sync-period=10s}",
            "deploymentAnnotations.a=b",
            "service.annotations.a=b",
            "strategy.type=Recreate",
            "env[0].name=HTTPS_PROXY",
            "env[0].value=http://proxy",
            "extraVolumes[0].name=tls",
            "extraVolumes[0].secret.secretName=tls",
            "extraVolumeMounts[0].name=tls",
            "extraVolumeMounts[0].mountPath=/tls",
            "podSecurityContext.runAsUser=null",
            "revisionHistoryLimit=3",
            "test.enabled=true",
            "x-defaults.note=kept",
            "extraObjects[0]=apiVersion: v1\nkind: Event\nmetadata: {name: {{ .Release.Name }}-own}",
            "prometheus.serviceMonitor.enabled=true",
            "prometheus.serviceMonitor.scrapeTimeout=5s",
            "prometheus.serviceMonitor.relabelings[0].action=drop",
            "prometheus.rule.enabled=true",
            "prometheus.rule.hpas=true",
            "prometheus.rule.runbookUrl=https://wiki.example.com/hpa",
        ],
    );
    let deployment = only(&objects, "Deployment");
    assert_eq!(deployment["metadata"]["name"], "hpa");
    assert_eq!(deployment["metadata"]["annotations"]["a"], "b");
    assert_eq!(
        (&deployment["spec"]["strategy"]["type"], &deployment["spec"]["revisionHistoryLimit"]),
        (&"Recreate".into(), &3.into())
    );
    assert!(rendered::flags(&deployment).contains(&"--horizontal-pod-autoscaler-sync-period=10s".to_owned()));
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["team"], "platform");
    let pod = &template["spec"];
    assert_eq!(pod["imagePullSecrets"][0]["name"], "registry");
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "tls");
    assert_eq!(
        (pod["securityContext"].get("runAsUser"), &pod["securityContext"]["runAsNonRoot"]),
        (None, &true.into())
    );
    let container = &pod["containers"][0];
    assert!(container["image"].as_str().unwrap().starts_with("mirror.example.com/concertina:v"));
    assert_eq!(
        (&container["env"][0]["name"], &container["volumeMounts"][0]["mountPath"]),
        (&"HTTPS_PROXY".into(), &"/tls".into())
    );
    assert_eq!(rendered::named(&objects, "Service", "hpa")["metadata"]["annotations"]["a"], "b");
    assert_eq!(rendered::named(&objects, "ClusterRoleBinding", "hpa")["roleRef"]["name"], "hpa");
    rendered::named(&objects, "Event", "concertina-own");
    let test = rendered::named(&objects, "Pod", "hpa-test");
    assert_eq!(test["metadata"]["annotations"]["helm.sh/hook"], "test");
    assert_eq!(test["spec"]["containers"][0]["args"][0], "https://hpa.kube-system.svc:10257/readyz");
    let endpoint = &only(&objects, "ServiceMonitor")["spec"]["endpoints"][0];
    assert_eq!(
        (&endpoint["scrapeTimeout"], &endpoint["relabelings"][0]["action"]),
        (&"5s".into(), &"drop".into())
    );
    let groups = only(&objects, "PrometheusRule")["spec"]["groups"].as_array().unwrap().clone();
    let last = groups.last().unwrap();
    assert_eq!(last["name"], "concertina-hpas");
    let url = last["rules"][0]["annotations"]["runbook_url"].as_str().unwrap();
    assert_eq!(url, "https://wiki.example.com/hpa#concertinahpaflapping");
}

#[test]
#[ignore = "needs HELM: run tests/helm/build.sh"]
fn chart_values_take_effect_in_the_objects() {
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

    let built_in = ["serviceAccount.name=horizontal-pod-autoscaler", "serviceAccount.create=true"];
    let account_of_the_chart = only(&chart(&built_in), "ServiceAccount");
    assert_eq!(account_of_the_chart["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    let account = helm("concertina", "shop", &["serviceAccount.name=scaler"]);
    assert!(only(&account, "ServiceAccount")["metadata"].get("annotations").is_none());
    let existing = helm("concertina", "shop", &["serviceAccount.name=scaler", "serviceAccount.create=false"]);
    assert!(existing.keys().all(|name| name.kind != "ServiceAccount"));
    assert_eq!(only(&existing, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"], "scaler");
    let none = only(&chart(&["revisionHistoryLimit=0"]), "Deployment");
    assert_eq!(none["spec"]["revisionHistoryLimit"], 0);
    // Without client certificates, all namespaced objects are in the namespace of the release.
    let alone = helm("concertina", "shop", &["clientCertificates=false"]);
    assert!(alone.keys().all(|name| name.namespace.as_deref().is_none_or(|namespace| namespace == "shop")));
    let flags = rendered::flags(&only(&alone, "Deployment"));
    assert!(flags.contains(&"--authentication-skip-lookup".to_owned()), "{flags:?}");

    let kinds: BTreeMap<_, _> = chart(&[
        "rbac.create=false",
        "networkPolicy.enabled=false",
        "flowSchema.enabled=false",
        "podDisruptionBudget.enabled=false",
        "historyCheckpoint=false",
    ]);
    assert_eq!(
        kinds.keys().map(|name| &*name.kind).collect::<Vec<_>>(),
        ["Deployment", "Service", "ServiceAccount"]
    );
}

#[test]
#[ignore = "needs HELM: run tests/helm/build.sh"]
fn chart_accepts_the_former_names_of_values() {
    let chart = |values: &[&str]| helm("concertina", "kube-system", values);
    for (former, current) in [
        (&["shadow=true"][..], &["mode=shadow"][..]),
        (&["scope=labelled"], &["mode=labelled"]),
        (&["scope=all", "replicas=0"], &["replicaCount=0"]),
        (&["image.pullSecrets[0].name=registry"], &["imagePullSecrets[0].name=registry"]),
        (
            &["flags.concurrent-horizontal-pod-autoscaler-syncs=9"],
            &["extraArgs={--concurrent-horizontal-pod-autoscaler-syncs=9}"],
        ),
        (
            &["prometheus.serviceMonitor.enabled=true", "prometheus.serviceAccount.name=mine"],
            &["prometheus.serviceMonitor.enabled=true", "prometheus.scraperServiceAccount.name=mine"],
        ),
    ] {
        assert_eq!(chart(former), chart(current), "{former:?}");
    }
}

#[test]
#[ignore = "needs HELM: run tests/helm/build.sh"]
fn chart_names_its_objects_by_the_convention_of_helm() {
    for (release, values, expected) in [
        ("concertina-blue", &[][..], "concertina-blue"),
        ("platform", &[], "platform-concertina"),
        ("platform", &["nameOverride=hpa"], "platform-hpa"),
        ("hpa", &["nameOverride=hpa"], "hpa"),
        ("platform", &["nameOverride=hpa", "fullnameOverride=scaler"], "scaler"),
    ] {
        let deployment = only(&helm(release, "shop", values), "Deployment");
        assert_eq!(deployment["metadata"]["name"], expected, "{release} {values:?}");
        assert_eq!(deployment["metadata"]["labels"]["app.kubernetes.io/name"], "concertina");
    }
}

#[test]
#[ignore = "needs HELM: run tests/helm/build.sh"]
fn chart_is_a_dependency_with_and_without_aliases() {
    let folder = std::env::temp_dir().join(format!("concertina-umbrella-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let dependency =
        format!("name: concertina, version: '*', repository: 'file://{}'", rendered::path("helm/concertina"));
    let chart = format!(
        "apiVersion: v2\nname: platform\nversion: 1.0.0\ndependencies:\n\
         - {{{dependency}, condition: concertina.enabled}}\n\
         - {{{dependency}, alias: blue, condition: blue.enabled}}\n\
         - {{{dependency}, alias: green, condition: green.enabled}}\n"
    );
    std::fs::write(folder.join("Chart.yaml"), chart).unwrap();
    let helm = |arguments: &[&str]| {
        let mut helm = rendered::helm_command();
        helm.args(arguments).arg(&folder);
        rendered::run(helm).unwrap()
    };
    helm(&["dependency", "update", "--skip-refresh"]);
    let render = |values: &str| {
        let objects =
            rendered::objects(&helm(&["template", "platform", "--namespace", "shop", "--set", values]));
        let deployments = objects.iter().filter(|(name, _)| name.kind == "Deployment");
        let names: Vec<String> = deployments.map(|(name, _)| name.name.clone()).collect();
        // Each selector contains the name of the Deployment, so it selects no pods of another one.
        let mut pods = std::collections::BTreeMap::new();
        for (key, object) in &objects {
            let selector = match key.kind.as_str() {
                "Service" => &object["spec"]["selector"],
                "Deployment" | "PodDisruptionBudget" => &object["spec"]["selector"]["matchLabels"],
                "NetworkPolicy" => &object["spec"]["podSelector"]["matchLabels"],
                _ => continue,
            };
            let instance = selector["app.kubernetes.io/instance"].as_str().unwrap().to_owned();
            assert!(names.contains(&instance), "{key}: {selector}");
            *pods.entry(instance).or_insert(0) += 1;
        }
        (names, pods.into_values().collect::<Vec<_>>())
    };
    let off = "concertina.enabled=false,blue.enabled=false,green.enabled=false";
    let (names, selectors) = render(&format!("{off},concertina.enabled=true"));
    assert_eq!((names, selectors), (vec!["platform-concertina".to_owned()], vec![4]));
    let both =
        "blue.enabled=true,green.enabled=true,green.mode=shadow,blue.mode=labelled,blue.fullnameOverride=act";
    let (names, selectors) = render(&format!("{off},{both}"));
    assert_eq!((names, selectors), (vec!["act".to_owned(), "platform-green".to_owned()], vec![5, 3]));
    std::fs::remove_dir_all(&folder).unwrap();
}
