//! Runs the installed `kubectl` against the embedded cluster over TCP.
//!
//! `cargo test --test kubectl -- --ignored` runs the tests, which need `kubectl` on the PATH
//! (<https://kubernetes.io/docs/tasks/tools/#kubectl>).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use fake_cluster::Cluster;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// A cluster on a loopback port, with a kubeconfig for it.
struct ServedCluster {
    cluster: Cluster,
    home: PathBuf,
    stop: CancellationToken,
}

impl ServedCluster {
    async fn start(name: &str) -> Self {
        let cluster = Cluster::new(Arc::new(SystemClock));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let (serving, token) = (cluster.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, token).await });
        let home = std::env::temp_dir().join(format!("concertina-kubectl-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "embedded", "cluster": { "server": server } }],
            "users": [{ "name": "anyone", "user": {} }],
            "contexts": [{ "name": "embedded", "context": { "cluster": "embedded", "user": "anyone" } }],
            "current-context": "embedded",
        });
        std::fs::write(home.join("config"), kubeconfig.to_string()).unwrap();
        Self { cluster, home, stop }
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", self.home.join("config"))
            .env("HOME", &self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs kubectl with the given arguments and standard input. Returns its standard output, or its
    /// standard error if it fails.
    async fn try_kubectl(&self, arguments: &str, input: &str) -> Result<String, String> {
        let mut child = self
            .command(arguments)
            .spawn()
            .expect("kubectl must be on the PATH: https://kubernetes.io/docs/tasks/tools/#kubectl");
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    async fn kubectl(&self, arguments: &str, input: &str) -> String {
        let result = self.try_kubectl(arguments, input).await;
        result.unwrap_or_else(|error| panic!("kubectl {arguments}: {error}"))
    }
}

impl Drop for ServedCluster {
    fn drop(&mut self) {
        self.stop.cancel();
        // The system removes temporary folders that remain.
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// Returns the cells of each line. At least two spaces separate two cells.
fn rows(output: &str) -> Vec<Vec<&str>> {
    output
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect()
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: app
        image: web:1
        env:
        - {name: A, value: one}
        - {name: B, value: two}
        ports:
        - containerPort: 80
";

const HPA: &str = "
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 10
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
";

#[tokio::test]
#[ignore = "needs kubectl on the PATH"]
async fn apply_creates_configures_and_leaves_unchanged() {
    let served = ServedCluster::start("apply").await;
    assert_eq!(served.kubectl("apply -f -", DEPLOYMENT).await, "deployment.apps/web created\n");
    assert_eq!(served.kubectl("apply -f -", HPA).await, "horizontalpodautoscaler.autoscaling/web created\n");
    assert_eq!(served.kubectl("apply -f -", DEPLOYMENT).await, "deployment.apps/web unchanged\n");
    assert_eq!(
        served.kubectl("apply -f -", HPA).await,
        "horizontalpodautoscaler.autoscaling/web unchanged\n"
    );
    let changed = DEPLOYMENT.replace("web:1", "web:2").replace("        - {name: A, value: one}\n", "");
    assert_eq!(served.kubectl("apply -f -", &changed).await, "deployment.apps/web configured\n");
    let web = served.cluster.get("apps/deployments", "default", "web").unwrap();
    let container = &web["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["image"], &container["env"]),
        (&json!("web:2"), &json!([{ "name": "B", "value": "two" }]))
    );
    assert_eq!(container["imagePullPolicy"], "IfNotPresent", "the patch must keep defaults");
    let widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {replicas: 2}\n";
    assert_eq!(served.kubectl("apply -f -", widget).await, "widget.example.com/w created\n");
    let widget = widget.replace("replicas: 2", "replicas: 3");
    assert_eq!(served.kubectl("apply -f -", &widget).await, "widget.example.com/w configured\n");
    assert_eq!(
        served.kubectl("apply --dry-run=server -f -", &HPA.replace("10", "11")).await,
        "horizontalpodautoscaler.autoscaling/web configured (server dry run)\n"
    );
    let hpa = served.cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    assert_eq!(hpa["spec"]["maxReplicas"], 10);
}

#[tokio::test]
#[ignore = "needs kubectl on the PATH"]
async fn get_prints_kubernetes_columns() {
    let served = ServedCluster::start("get").await;
    served.kubectl("apply -f -", DEPLOYMENT).await;
    served.kubectl("apply -f -", HPA).await;
    let hpas = served.kubectl("get hpa", "").await;
    let hpas = rows(&hpas);
    assert_eq!(hpas[0], ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]);
    assert_eq!(hpas[1][..6], ["web", "Deployment/web", "cpu: <unknown>/80%", "1", "10", "0"]);
    let deployments = served.kubectl("get deploy -o wide", "").await;
    let deployments = rows(&deployments);
    assert_eq!(
        deployments[0],
        ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    );
    assert_eq!(deployments[1][..4], ["web", "0/1", "0", "0"]);
    assert_eq!(deployments[1][5..], ["app", "web:1", "app=web"]);
    served.cluster.put_raw(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web-1", "namespace": "default", "labels": { "app": "web" } },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "app" }] },
        "status": { "phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
            { "name": "app", "ready": true, "restartCount": 0, "state": { "running": {} } },
        ] },
    }));
    let pods = served.kubectl("get pods -l app=web", "").await;
    let pods = rows(&pods);
    assert_eq!(pods[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(pods[1][..4], ["web-1", "1/1", "Running", "0"]);
    let all = served.kubectl("get all,ns,leases -A", "").await;
    assert!(all.contains("horizontalpodautoscaler.autoscaling/web"), "{all}");
    let yaml = served.kubectl("get hpa web -o yaml", "").await;
    assert!(yaml.contains("kind: HorizontalPodAutoscaler") && yaml.contains("maxReplicas: 10"), "{yaml}");
    let absent = served.try_kubectl("get hpa nope", "").await.unwrap_err();
    assert!(absent.contains("horizontalpodautoscalers.autoscaling \"nope\" not found"), "{absent}");
}

#[tokio::test]
#[ignore = "needs kubectl on the PATH"]
async fn describe_and_events_show_the_rescales_of_an_hpa() {
    let served = ServedCluster::start("describe").await;
    served.kubectl("apply -f -", HPA).await;
    let mut hpa = served.cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    let now = hpa["metadata"]["creationTimestamp"].clone();
    hpa["status"] = json!({
        "currentReplicas": 2,
        "desiredReplicas": 4,
        "currentMetrics": [{
            "type": "Resource",
            "resource": { "name": "cpu", "current": { "averageUtilization": 120, "averageValue": "120m" } },
        }],
        "conditions": [{
            "type": "AbleToScale", "status": "True", "reason": "SucceededRescale",
            "message": "the HPA controller was able to update the target scale to 4", "lastTransitionTime": now,
        }],
    });
    let uid = hpa["metadata"]["uid"].clone();
    served.cluster.update_status(hpa).unwrap();
    served
        .cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": "web.1", "namespace": "default" },
            "involvedObject": {
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "namespace": "default", "name": "web", "uid": uid,
            },
            "type": "Normal", "reason": "SuccessfulRescale", "message": "New size: 4; reason: cpu above target",
            "source": { "component": "horizontal-pod-autoscaler" },
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        }))
        .unwrap();
    let described = served.kubectl("describe hpa web", "").await;
    for part in [
        "resource cpu on pods  (as a percentage of request):  120% (120m) / 80%",
        "Min replicas:",
        "2 current / 4 desired",
        "SucceededRescale",
        "horizontal-pod-autoscaler  New size: 4; reason: cpu above target",
    ] {
        assert!(described.contains(part), "no {part:?} in {described}");
    }
    let events = served.kubectl("get events", "").await;
    let events = rows(&events);
    assert_eq!(events[0], ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
    assert_eq!(
        events[1][1..],
        [
            "Normal",
            "SuccessfulRescale",
            "horizontalpodautoscaler/web",
            "New size: 4; reason: cpu above target"
        ]
    );
    let wide = served.kubectl("get hpa web", "").await;
    assert!(wide.contains("cpu: 120%/80%"), "{wide}");
    let hpa_events = served.kubectl("events --for hpa/web", "").await;
    assert!(hpa_events.contains("SuccessfulRescale"), "{hpa_events}");
}

#[tokio::test]
#[ignore = "needs kubectl on the PATH"]
async fn scale_patch_label_and_delete_work() {
    let served = ServedCluster::start("change").await;
    served.kubectl("apply -f -", DEPLOYMENT).await;
    served.kubectl("scale deployment/web --replicas=5", "").await;
    served.kubectl("apply -f -", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n").await;
    served.kubectl("scale widget/w --replicas=4", "").await;
    let replicas = |resource: &str, name: &str| {
        served.cluster.get(resource, "default", name).unwrap()["spec"]["replicas"].clone()
    };
    assert_eq!(
        (replicas("apps/deployments", "web"), replicas("example.com/widgets", "w")),
        (json!(5), json!(4))
    );
    served.kubectl("create -f -", HPA).await;
    let old = "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: old}\nspec:\n  \
               scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}\n  maxReplicas: 4\n  \
               targetCPUUtilizationPercentage: 55\n";
    served.kubectl("apply -f -", old).await;
    served.kubectl("apply -f -", &old.replace("55", "66")).await;
    let hpas = served.kubectl("get hpa old", "").await;
    assert!(hpas.contains("cpu: <unknown>/66%"), "{hpas}");
    served.kubectl("delete hpa old", "").await;
    served.kubectl(r#"patch hpa web --type=merge -p {"spec":{"minReplicas":2}}"#, "").await;
    served.kubectl(r#"patch hpa web -p {"spec":{"maxReplicas":9}}"#, "").await;
    served
        .kubectl(
            r#"patch hpa web --type=json -p [{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]"#,
            "",
        )
        .await;
    served.kubectl("label hpa web team=x", "").await;
    served.kubectl("annotate hpa web note=y", "").await;
    served.kubectl("set env deployment/web C=three", "").await;
    let hpa = served.cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    assert_eq!((&hpa["spec"]["minReplicas"], &hpa["spec"]["maxReplicas"]), (&json!(2), &json!(9)));
    assert_eq!(hpa["metadata"]["labels"], json!({ "a": "b", "team": "x" }));
    assert_eq!(hpa["metadata"]["generation"], 3);
    let error = served.try_kubectl(r#"patch hpa web -p {"spec":{"maxReplicas":1}}"#, "").await.unwrap_err();
    assert!(
        error.contains("spec.maxReplicas: Invalid value: 1: must be greater than or equal to `minReplicas`"),
        "{error}"
    );
    served.kubectl("apply -f -", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n").await;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop}\ndata: {a: b}\n";
    served.kubectl("apply -f -", map).await;
    let deleted = served.kubectl("delete hpa/web deployment/web widget/w namespace/shop", "").await;
    assert_eq!(deleted.lines().count(), 4, "{deleted}");
    assert!(served.cluster.list("configmaps", None).is_empty());
    assert!(served.cluster.list("autoscaling/horizontalpodautoscalers", None).is_empty());
}

/// From 1.32 on, kubectl sends protobuf.
#[tokio::test]
#[ignore = "needs kubectl on the PATH"]
async fn create_and_autoscale_work() {
    let served = ServedCluster::start("create").await;
    for (arguments, expected) in [
        ("create namespace shop", "namespace/shop created\n"),
        (
            "create deployment web --image=web:1 --replicas=2 --port=80 -n shop",
            "deployment.apps/web created\n",
        ),
        ("create configmap c --from-literal=a=b", "configmap/c created\n"),
        ("create secret generic s --from-literal=a=b", "secret/s created\n"),
        ("create serviceaccount a", "serviceaccount/a created\n"),
        ("create service clusterip s --tcp=80:web", "service/s created\n"),
        (
            "autoscale deployment web -n shop --min=2 --max=6 --cpu-percent=70",
            "horizontalpodautoscaler.autoscaling/web autoscaled\n",
        ),
    ] {
        assert_eq!(served.kubectl(arguments, "").await, expected);
    }
    let web = served.cluster.get("apps/deployments", "shop", "web").unwrap();
    assert_eq!(web["spec"]["replicas"], 2);
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"], 80);
    let hpa = served.cluster.get("autoscaling/horizontalpodautoscalers", "shop", "web").unwrap();
    let target = json!({ "type": "Utilization", "averageUtilization": 70 });
    let metrics = json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]);
    assert_eq!((&hpa["spec"]["metrics"], &hpa["spec"]["minReplicas"]), (&metrics, &json!(2)));
    assert_eq!(served.cluster.get("secrets", "default", "s").unwrap()["data"], json!({ "a": "Yg==" }));
    let names = served.kubectl("get ns -o name", "").await;
    assert!(names.contains("namespace/shop\n"), "{names}");
}

#[tokio::test]
#[ignore = "needs kubectl on the PATH"]
async fn hpa_of_v1_has_the_fields_of_its_annotations() {
    // kubectl ignores the version behind a short name.
    let served = ServedCluster::start("v1").await;
    let metrics = r#"[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":80}}]"#;
    let behavior = r#"{"ScaleUp":{"SelectPolicy":"Disabled"}}"#;
    let old = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": "web", "annotations": {
            "autoscaling.alpha.kubernetes.io/metrics": metrics, "autoscaling.alpha.kubernetes.io/behavior": behavior,
        } },
        "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "maxReplicas": 6, "targetCPUUtilizationPercentage": 70 },
    });
    let applied = served.kubectl("apply -f -", &old.to_string()).await;
    assert_eq!(applied, "horizontalpodautoscaler.autoscaling/web created\n");
    let hpa: serde_json::Value =
        serde_json::from_str(&served.kubectl("get hpa web -o json", "").await).unwrap();
    let names: Vec<_> =
        hpa["spec"]["metrics"].as_array().unwrap().iter().map(|metric| &metric["resource"]["name"]).collect();
    assert_eq!(names, ["memory", "cpu"]);
    assert_eq!(hpa["spec"]["behavior"]["scaleUp"]["selectPolicy"], "Disabled");
    let hpa: serde_json::Value = serde_json::from_str(
        &served.kubectl("get horizontalpodautoscalers.v1.autoscaling web -o json", "").await,
    )
    .unwrap();
    assert_eq!(
        (&hpa["apiVersion"], &hpa["spec"]["targetCPUUtilizationPercentage"]),
        (&json!("autoscaling/v1"), &json!(70))
    );
    let encoded = hpa["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].as_str().unwrap();
    let [encoded, metrics]: [serde_json::Value; 2] =
        [encoded, metrics].map(|text| serde_json::from_str(text).unwrap());
    assert_eq!(encoded, metrics);
}

#[tokio::test]
#[ignore = "needs kubectl on the PATH"]
async fn version_api_resources_explain_and_can_i_work() {
    let served = ServedCluster::start("about").await;
    assert!(served.kubectl("version", "").await.contains("Server Version: v1.37.1"));
    let resources = served.kubectl("api-resources", "").await;
    assert!(resources.contains("horizontalpodautoscalers") && resources.contains("widgets"), "{resources}");
    assert!(served.kubectl("api-versions", "").await.contains("autoscaling/v2"));
    let explained = served.kubectl("explain hpa.spec", "").await;
    assert!(explained.contains("maxReplicas"), "{explained}");
    assert_eq!(served.kubectl("auth can-i update deployments/scale", "").await.trim(), "yes");
    assert_eq!(served.kubectl("get --raw /readyz", "").await, "ok");
}

#[tokio::test]
#[ignore = "needs kubectl on the PATH"]
async fn wait_observes_a_status_change() {
    let served = ServedCluster::start("watch").await;
    served.kubectl("apply -f -", HPA).await;
    let cluster = served.cluster.clone();
    let watching =
        served.kubectl("wait hpa/web --for=jsonpath={.status.desiredReplicas}=4 --timeout=20s", "");
    let change = async move {
        let mut requests = cluster.requests();
        while requests.count(|request| request.verb == "watch") == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            requests = cluster.requests();
        }
        let mut hpa = cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
        hpa["status"] = json!({ "currentReplicas": 2, "desiredReplicas": 4 });
        cluster.update_status(hpa).unwrap();
    };
    let (waited, ()) = tokio::join!(watching, change);
    assert_eq!(waited, "horizontalpodautoscaler.autoscaling/web condition met\n");
}

#[tokio::test]
#[ignore = "needs kubectl on the PATH"]
async fn watch_prints_a_row_per_change() {
    let served = ServedCluster::start("rows").await;
    served.kubectl("apply -f -", HPA).await;
    let mut child = served.command("get hpa -w").kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(Duration::from_mins(1), lines.next_line()).await;
        line.expect("no row within a minute").unwrap().unwrap()
    };
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.contains("cpu: <unknown>/80%"));
    let mut hpa = served.cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    hpa["status"] = json!({ "currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": [{
        "type": "Resource", "resource": { "name": "cpu", "current": { "averageUtilization": 50, "averageValue": "1" } },
    }] });
    served.cluster.update_status(hpa).unwrap();
    assert!(next().await.contains("cpu: 50%/80%"));
    served.cluster.delete("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    assert!(next().await.contains("cpu: 50%/80%"));
}
