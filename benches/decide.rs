//! Time and allocations of a decision, and of the decoders of a pod and of a list of pod usage: `cargo bench --bench
//! decide`.

#![allow(clippy::expect_used, reason = "literals in this file are valid")]

use std::sync::Arc;

use autoscaling::history::History;
use autoscaling::pod::{
    ConditionStatus, ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList,
};
use autoscaling::query::{Answer, ContainerUsage, PodUsage};
use autoscaling::selector::Selector;
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use autoscaling::{Answers, Hpa, Overlap, Scale, WriteOutcome, conclude, decide, plan};
use cluster::decode;
use cluster::metrics::Snapshot;
use divan::{AllocProfiler, Bencher, black_box};
use jiff::Timestamp;
use serde_json::json;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// The inputs of a sync without a change: an HPA on cpu whose ready pods use as much cpu as the target.
struct Steady {
    spec: Spec,
    status: Status,
    pods: Vec<Arc<Pod>>,
    usage: Answer,
    history: History,
    settings: Settings,
    now: Timestamp,
}

impl Steady {
    fn new(count: i32) -> Self {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a literal time");
        let start: Timestamp = "2026-03-01T08:00:00Z".parse().expect("a literal time");
        let spec = json!({
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": 1, "maxReplicas": 2000,
            "metrics": [{ "type": "Resource", "resource": {
                "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } }]
        });
        let amount =
            |text: &str| ResourceList::new([("cpu".into(), text.parse().expect("a literal quantity"))]);
        let labels = Arc::new(LabelSet::new([("app".into(), "web".into())]));
        let containers = Box::new([ContainerRequests {
            name: "app".into(),
            restartable: false,
            requests: amount("200m"),
        }]);
        let requests = Arc::new(PodRequests { containers, ..PodRequests::default() });
        let names: Vec<Arc<str>> = (0..count).map(|pod| format!("web-{pod:05}").into()).collect();
        let pods = names.iter().map(|name| {
            Arc::new(Pod {
                name: Arc::clone(name),
                labels: Arc::clone(&labels),
                requests: Arc::clone(&requests),
                phase: Phase::Running,
                terminating: false,
                ready: Some(ReadyCondition { status: ConditionStatus::True, since: Some(start) }),
                start_time: Some(start),
            })
        });
        let usage = names.iter().map(|name| PodUsage {
            pod: Arc::clone(name),
            timestamp: Some(now),
            window_nanos: 15_000_000_000,
            containers: Box::new([ContainerUsage { name: "app".into(), usage: amount("100m") }]),
        });
        let mut steady = Self {
            spec: serde_json::from_value(spec).expect("a literal spec"),
            status: Status::default(),
            usage: Answer::Resource(usage.collect()),
            pods: pods.collect(),
            history: History::default(),
            settings: Settings::default(),
            now,
        };
        // The second sync of the HPA has this status, and changes nothing.
        if let Some(status) = steady.sync() {
            steady.status.clone_from(&status);
        }
        steady
    }

    /// Runs the steps of a sync in the core: plan, decide, conclude.
    fn sync(&self) -> Option<Arc<Status>> {
        let hpa = Hpa {
            namespace: "shop",
            name: "web",
            generation: Some(1),
            spec: &self.spec,
            status: &self.status,
        };
        let count = i32::try_from(self.pods.len()).unwrap_or(i32::MAX);
        let scale = Scale::new(count, count, "app=web", Version::default()).expect("a literal selector");
        let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &self.settings);
        let answers = Answers { metrics: vec![Some(Ok(self.usage.clone()))], pods: &self.pods };
        let decision = decide(&hpa, &plan, &answers, &self.history, &self.settings, self.now);
        let outcome = WriteOutcome::NotNeeded;
        conclude(&hpa, decision, &outcome, &self.settings, self.now).status
    }
}

/// Measures `decide` for one HPA on cpu.
#[divan::bench(args = [10, 100, 1000])]
fn decide_cpu(bencher: Bencher<'_, '_>, pods: i32) {
    let steady = Steady::new(pods);
    let hpa = Hpa {
        namespace: "shop",
        name: "web",
        generation: Some(1),
        spec: &steady.spec,
        status: &steady.status,
    };
    let scale = Scale::new(pods, pods, "app=web", Version::default()).expect("a literal selector");
    let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &steady.settings);
    bencher.bench_local(|| {
        let answers = Answers { metrics: vec![Some(Ok(steady.usage.clone()))], pods: &steady.pods };
        black_box(decide(&hpa, &plan, &answers, &steady.history, &steady.settings, steady.now))
    });
}

/// Measures all steps of a sync in the core.
#[divan::bench(args = [10, 100])]
fn steady_sync(bencher: Bencher<'_, '_>, pods: i32) {
    let steady = Steady::new(pods);
    bencher.bench_local(|| black_box(steady.sync()));
}

/// Decodes a pod of about 4 KB from its JSON.
#[divan::bench]
fn decode_pod(bencher: Bencher<'_, '_>) {
    let bytes = pod_json();
    bencher
        .counter(divan::counter::BytesCount::new(bytes.len()))
        .bench_local(|| black_box(decode::pod(&bytes).is_ok()));
}

/// Decodes a list of 1,000 pods from metrics.k8s.io into the snapshot that HPAs share. Each item has about 407 bytes.
#[divan::bench]
fn decode_usage_of_1000_pods(bencher: Bencher<'_, '_>) {
    let list = usage_json(1000);
    bencher.counter(divan::counter::ItemsCount::new(1000_usize)).bench_local(|| {
        let pieces = list.chunks(16 << 10);
        black_box(Snapshot::read(pieces).is_ok())
    });
}

/// Selects the ten pods of an HPA from a snapshot of all pods of its namespace.
#[divan::bench(args = [1000, 60_000])]
fn select_10_pods(bencher: Bencher<'_, '_>, all: usize) {
    let snapshot = Snapshot::read([&*usage_json(all)]).expect("a valid list");
    let selector = Selector::parse("app=app-42").expect("a literal selector");
    assert_eq!(snapshot.select(&selector).len(), 10);
    bencher.bench_local(|| black_box(snapshot.select(&selector)));
}

/// Creates a list in the format of metrics-server, with two containers and four labels per pod and ten pods per app.
fn usage_json(pods: usize) -> Vec<u8> {
    let item = |pod: usize| {
        let app = pod / 10;
        format!(
            "{{\"metadata\":{{\"name\":\"app-{app}-6d4cf56db6-{pod:05}\",\"namespace\":\"shop\",\
             \"creationTimestamp\":\"2026-03-01T12:00:00Z\",\"labels\":{{\"app\":\"app-{app}\",\
             \"pod-template-hash\":\"6d4cf56db6\",\"team\":\"checkout\",\"tier\":\"frontend\"}}}},\
             \"timestamp\":\"2026-03-01T12:00:00Z\",\"window\":\"15.023s\",\"containers\":[\
             {{\"name\":\"app\",\"usage\":{{\"cpu\":\"{}n\",\"memory\":\"262144Ki\"}}}},\
             {{\"name\":\"istio-proxy\",\"usage\":{{\"cpu\":\"2345678n\",\"memory\":\"49152Ki\"}}}}]}}",
            120_000_000 + pod
        )
    };
    let items: Vec<_> = (0..pods).map(item).collect();
    format!(
        "{{\"kind\":\"PodMetricsList\",\"apiVersion\":\"metrics.k8s.io/v1beta1\",\"metadata\":{{}},\"items\":[{}]}}",
        items.join(",")
    )
    .into_bytes()
}

/// Creates a pod of about 4 KB as an API server sends it, with 2 containers, 5 labels and managedFields.
fn pod_json() -> Vec<u8> {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/shop/web:1.2.3", "imagePullPolicy": "IfNotPresent",
            "resources": { "requests": { "cpu": "250m", "memory": "512Mi" }, "limits": { "memory": "1Gi" } },
            "env": (0..8).map(|n| json!({ "name": format!("SETTING_{n}"), "value": "a value of some length" })).collect::<Vec<_>>(),
            "volumeMounts": [{ "name": "kube-api-access-x2k9p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true }],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"
        })
    };
    let fields: serde_json::Map<_, _> =
        (0..24).map(|n| (format!("f:field{n}"), json!({ ".": {}, "f:name": {}, "f:value": {} }))).collect();
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-03-01T08:00:10Z" });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-5d9c7b8f6d-abcde", "generateName": "web-5d9c7b8f6d-", "namespace": "shop",
            "uid": "4d5b0000-0000-0000-0000-000000000001", "resourceVersion": "123456789",
            "creationTimestamp": "2026-03-01T08:00:00Z",
            "labels": { "app": "web", "pod-template-hash": "5d9c7b8f6d", "team": "checkout", "tier": "front", "version": "v1" },
            "annotations": { "prometheus.io/scrape": "true", "prometheus.io/port": "8080" },
            "managedFields": [{ "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": "2026-03-01T08:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": fields } }]
        },
        "spec": { "containers": [container("app"), container("proxy")], "nodeName": "node-1", "serviceAccountName": "default",
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst" },
        "status": { "phase": "Running", "podIP": "10.1.2.3", "hostIP": "10.0.0.1", "startTime": "2026-03-01T08:00:00Z", "qosClass": "Burstable",
            "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")] }
    });
    serde_json::to_vec(&pod).expect("a literal pod")
}
