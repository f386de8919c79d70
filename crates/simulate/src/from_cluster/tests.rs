use super::*;
use crate::scenario::{Scenario, print};

const NOW: Timestamp = Timestamp::constant(1_900_000_000, 0);

fn hpa(metrics: &Value, current: &Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 10, "metrics": metrics,
        },
        "status": {"currentMetrics": current},
    })
}

fn cpu_metric() -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}})
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": 3,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}},
            "template": {"spec": {"containers": [
                {"name": "app", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}},
                {"name": "proxy"},
            ]}},
        },
    })
}

/// Returns a pod that was scheduled at second 0. Its container started at second `started`, and the pod became ready at
/// second `ready`.
fn pod(started: u32, ready: u32) -> Value {
    let at = |second: u32| format!("2030-01-01T00:{:02}:{:02}Z", second / 60, second % 60);
    json!({
        "status": {
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0)},
                {"type": "Ready", "status": "True", "lastTransitionTime": at(ready)},
            ],
            "containerStatuses": [{"restartCount": 0, "state": {"running": {"startedAt": at(started)}}}],
        },
    })
}

fn usage(cpu: &str) -> Value {
    json!({"containers": [{"name": "app", "usage": {"cpu": cpu, "memory": "64Mi"}}]})
}

#[test]
fn cluster_hpa_on_cpu_becomes_a_valid_scenario() {
    let objects = ClusterObjects {
        hpa: hpa(&json!([cpu_metric()]), &json!([])),
        target: Some(deployment()),
        replicas: 3,
        pods: vec![pod(4, 24), pod(4, 24), pod(6, 36)],
        usage: vec![usage("200m"), usage("300m"), usage("400m")],
        policies: Policies::default(),
    };
    let node = scenario(&objects, NOW);
    assert_eq!(
        print(&node),
        "title: shop/web
duration: 1h
hpas:
- metadata:
    name: web
    namespace: shop
  spec:
    maxReplicas: 10
    metrics:
    - resource:
        name: cpu
        target:
          averageUtilization: 60
          type: Utilization
      type: Resource
    minReplicas: 2
    scaleTargetRef:
      apiVersion: apps/v1
      kind: Deployment
      name: web
workloads:
- name: web
  namespace: shop
  kind: Deployment
  replicas: 3
  containers:
  - limits:
      cpu: \"1\"
    name: app
    requests:
      cpu: 500m
  - name: proxy
  startup:
    oneOf:
    - 20s
    - 20s
    - 30s
  imagePull:
    everyPod:
      oneOf:
      - 4s
      - 4s
      - 6s
  cpu:
    base: 0
  memory:
    base: 64Mi
  rollingUpdate:
    maxSurge: 50%
    maxUnavailable: 0
load:
- cpu: 900m
"
    );
    let again = Node::read("printed.yaml", &print(&node)).unwrap();
    Scenario::read(&again, "", None).unwrap();
}

#[test]
fn start_up_ignores_pods_that_recovered_or_restarted() {
    let objects =
        ClusterObjects { pods: vec![pod(0, 20), pod(0, 22), pod(0, 3_000)], ..ClusterObjects::default() };
    assert_eq!(Measured::from_objects(&objects).startup, json!({"oneOf": ["20s", "22s"]}));
    let mut restarted = pod(0, 20);
    restarted["status"]["containerStatuses"][0]["restartCount"] = json!(1);
    assert!(
        Measured::from_objects(&ClusterObjects { pods: vec![restarted], ..ClusterObjects::default() })
            .startup
            .is_null()
    );
}

#[test]
fn custom_metrics_become_demand_with_cpu_as_its_cost() {
    let metric = |field: &str, value: Value| {
        json!({
            "type": "Pods",
            "pods": {"metric": {"name": "requests"}, field: {"type": "AverageValue", "averageValue": value}},
        })
    };
    let external = json!({
        "type": "External",
        "external": {
            "metric": {"name": "queue", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "Value", "value": "100"},
        },
    });
    let queue_now =
        json!({"type": "External", "external": {"metric": {"name": "queue"}, "current": {"value": "40"}}});
    let objects = ClusterObjects {
        hpa: hpa(
            &json!([metric("target", json!("20")), cpu_metric(), external]),
            &json!([metric("current", json!("16500m")), queue_now]),
        ),
        replicas: 2,
        usage: vec![usage("330m"), usage("330m")],
        ..ClusterObjects::default()
    };
    assert_eq!(
        Value::Array(Measured::from_objects(&objects).loads),
        json!([
            {"demand": 33.0, "capacityPerPod": 25.0, "metrics": [{"name": "requests"}], "cpuPerUnit": "20m"},
            {"demand": 40.0, "capacityPerPod": 62.5, "metrics": [{"name": "queue", "external": {"labels": {"a": "b"}}}]},
        ])
    );
    Scenario::read(&scenario(&objects, NOW), "", None).unwrap();
}

#[test]
fn target_of_unknown_kind_becomes_a_deployment() {
    let mut hpa = hpa(&json!([cpu_metric()]), &json!([]));
    hpa["spec"]["scaleTargetRef"] = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "web"});
    let scenario = Scenario::read(
        &scenario(&ClusterObjects { hpa, replicas: 2, ..ClusterObjects::default() }, NOW),
        "",
        None,
    )
    .unwrap();
    assert_eq!(scenario.workloads.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cluster_receives_only_reads() {
    use std::time::Duration;

    use clock::{SharedClock, VirtualClock};
    use fake_cluster::Cluster;
    use fake_cluster::load::{Curve, Load, LoadMetrics, Pipeline, Work};
    use fake_cluster::workload::{WorkloadModel, Workloads};

    let clock: SharedClock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
    let cluster = Cluster::new(Arc::clone(&clock));
    let mut object = deployment();
    object["apiVersion"] = json!("apps/v1");
    object["kind"] = json!("Deployment");
    object["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    object["spec"]["template"]["metadata"] = json!({"labels": {"app": "web"}});
    object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:1");
    object["spec"]["template"]["spec"]["containers"][1]["image"] = json!("proxy:1");
    cluster.create(object).unwrap();
    let mut autoscaler = hpa(&json!([cpu_metric()]), &json!([]));
    autoscaler["apiVersion"] = json!("autoscaling/v2");
    autoscaler["kind"] = json!("HorizontalPodAutoscaler");
    autoscaler["metadata"] = json!({"name": "web", "namespace": "shop"});
    cluster.create(autoscaler).unwrap();
    let workloads = Workloads::new(cluster.clone(), Arc::clone(&clock));
    let start_up = Duration::from_secs(20).into();
    workloads.set_model("shop", "web", WorkloadModel { start_up, ..WorkloadModel::default() });
    let load = Arc::new(LoadMetrics::new(clock, Pipeline::default()));
    load.add(Load {
        work: vec![Work::cpu(Curve::constant(900.0), 1_000.0)],
        ..Load::new("shop", "app", "web")
    });
    cluster.set_metrics(load.clone());
    for _ in 0..120 {
        workloads.step();
        load.step(&cluster);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    cluster.requests().clear();

    let options = options::cluster::reads_only();
    let clients = Clients::over(cluster.connector(), &options).unwrap();
    let objects = read_objects(&clients, "shop", "web").await.unwrap();
    let measured = Measured::from_objects(&objects);
    assert_eq!((objects.replicas, objects.pods.len(), &measured.startup), (3, 3, &json!("20s")));
    assert_eq!(measured.containers[0]["requests"], json!({"cpu": "500m"}));
    let used = measured.loads[0]["cpu"].as_str().unwrap();
    assert!(["905m", "906m", "907m"].contains(&used), "the work and the pods' base usage: {used}");
    assert!(cluster.requests().entries().iter().all(|request| ["get", "list"].contains(&request.verb)));

    let error = read_objects(&clients, "shop", "wbe").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the HPA shop/wbe cannot be read: horizontalpodautoscalers.autoscaling \"wbe\" not found"
    );
}

#[tokio::test(start_paused = true)]
async fn policies_of_the_cluster_are_part_of_the_scenario() {
    use clock::VirtualClock;
    use fake_cluster::Cluster;

    let cluster = Cluster::new(Arc::new(VirtualClock::starting_at(NOW)));
    cluster.put_raw(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"tier": "production"}},
    }));
    let policy = |kind: &str, name: &str, selectors: Value, min: i32| {
        let mut spec = selectors;
        spec["schedules"] = json!([
            {"name": name, "timeZone": "UTC", "start": "0 0 * * *", "end": "59 23 * * *", "minReplicas": min},
        ]);
        let mut metadata = json!({"name": name});
        if kind == "ScalingPolicy" {
            metadata["namespace"] = json!("shop");
        }
        let object = json!({
            "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec,
        });
        cluster.create(object).unwrap();
    };
    policy("ScalingPolicy", "web", json!({"selector": {"matchLabels": {"app": "web"}}}), 4);
    policy("ScalingPolicy", "others", json!({"selector": {"matchLabels": {"app": "other"}}}), 5);
    let namespaces = |tier: &str| json!({"namespaceSelector": {"matchLabels": {"tier": tier}}});
    policy("ClusterScalingPolicy", "production", namespaces("production"), 3);
    policy("ClusterScalingPolicy", "staging", namespaces("staging"), 6);

    let mut autoscaler = hpa(&json!([cpu_metric()]), &json!([]));
    autoscaler["metadata"]["labels"] = json!({"app": "web"});
    autoscaler["metadata"]["annotations"] =
        json!({"concertina.dev/policy": "mode: ScaleUpOnly", "example.com/other": "x"});
    let options = options::cluster::reads_only();
    let clients = Clients::over(cluster.connector(), &options).unwrap();
    let policies = Policies::read(&clients, &autoscaler).await;
    assert_eq!(policies.notes, Vec::<String>::new());
    let names: Vec<&str> = policies.manifests.iter().map(|object| text(object, "/metadata/name")).collect();
    assert_eq!(names, ["web", "production"]);

    let objects = ClusterObjects { hpa: autoscaler, replicas: 2, policies, ..ClusterObjects::default() };
    let printed = print(&scenario(&objects, NOW));
    assert!(printed.contains("start: \"2030-03-17T17:46:40Z\"\n"), "{printed}");
    assert!(
        printed.contains("concertina.dev/policy: \"mode: ScaleUpOnly\"\n    labels:\n      app: web\n"),
        "{printed}"
    );
    assert!(!printed.contains("namespaceSelector") && !printed.contains("example.com"), "{printed}");
    let again = Node::read("printed.yaml", &printed).unwrap();
    let scenario = Scenario::read(&again, "", None).unwrap();
    assert_eq!((scenario.policies.len(), scenario.start), (2, NOW));
}

#[tokio::test(start_paused = true)]
async fn policies_that_cannot_be_read_are_named() {
    use clock::VirtualClock;
    use fake_cluster::{Cluster, FaultAction, FaultRule, Status};

    let cluster = Cluster::new(Arc::new(VirtualClock::starting_at(NOW)));
    let options = options::cluster::reads_only();
    let clients = Clients::over(cluster.connector(), &options).unwrap();
    let refused = FaultAction::Status(Status::forbidden("", "policies", "", "no right to list them"));
    cluster.faults().add(FaultRule::new(refused).path_contains("clusterscalingpolicies"));
    let policies = Policies::read(&clients, &hpa(&json!([]), &json!([]))).await;
    assert!(policies.manifests.is_empty());
    let [note] = &policies.notes[..] else { panic!("{:?}", policies.notes) };
    assert!(
        note.starts_with("the run has no clusterscalingpolicies, which cannot be read: ")
            && note.contains("no right to list them"),
        "{note}"
    );
}
