//! Tests of the command against the embedded cluster, in virtual time.

use std::sync::Arc;

use fake_cluster::{Cluster, FaultAction, FaultRule, Status};
use serde_json::{Value, json};

use super::{HOLDER, now};
use crate::options::{command, options};
use crate::{answer, client_options, rules};
use clock::{SharedClock, VirtualClock};
use cluster::client::Clients;
use terminal::explain::Style;
use terminal::options::{Verdict, parsed};

/// A cluster, and the clients of a user.
struct Rig {
    cluster: Cluster,
    clients: Clients,
    clock: SharedClock,
}

impl Rig {
    fn new() -> Self {
        let clock: SharedClock = Arc::new(VirtualClock::starting_at(now()));
        let cluster = Cluster::new(Arc::clone(&clock));
        let clients = Clients::over(cluster.connector(), &client_options()).unwrap();
        Self { cluster, clients, clock }
    }

    fn install(&self) {
        let labels = json!({"app.kubernetes.io/name": "concertina"});
        let container = json!({
            "name": "concertina", "image": format!("concertina:v{}", rules::VERSION),
            "args": ["--leader-elect-resource-namespace=concertina-system", "--metric-sources=/etc/s/sources.yaml"],
            "volumeMounts": [{"name": "s", "mountPath": "/etc/s"}],
        });
        let pod = json!({
            "serviceAccountName": "concertina", "containers": [container],
            "volumes": [{"name": "s", "configMap": {"name": "files"}}],
        });
        let metadata = |name: &str| json!({"namespace": "concertina-system", "name": name, "labels": labels});
        for object in [
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("concertina"),
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod},
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("files"),
                "data": {"sources.yaml": "pods: {enabledd: true}"},
            }),
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata("concertina"),
                "spec": {
                    "holderIdentity": HOLDER, "leaseDurationSeconds": 15,
                    "renewTime": "2029-12-31T23:59:58.000000Z",
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata("concertina-a"),
                "spec": {"containers": [{"name": "concertina", "image": "concertina"}]},
            }),
        ] {
            self.cluster.create(object).unwrap();
        }
    }

    async fn run(&self, words: &[&str]) -> (Verdict, String) {
        let options = parsed(command("concertina"), words, |matches| Ok(options(matches))).unwrap();
        let mut out = Vec::new();
        let (server, clock) = ("http://embedded".to_owned(), Arc::clone(&self.clock));
        let verdict =
            answer(&options, &self.clients, server, clock, Style::default(), &mut out).await.unwrap();
        (verdict, String::from_utf8(out).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn command_prints_a_line_for_each_item() {
    let rig = Rig::new();
    let (verdict, text) = rig.run(&[]).await;
    assert_eq!(verdict, Verdict::Attention);
    assert!(text.contains("  × deployment             no Deployment has the label"), "{text}");
    rig.install();
    let (verdict, text) = rig.run(&[]).await;
    assert_eq!(verdict, Verdict::Attention);
    for line in [
        "cluster\n  √ api-server             v1.37.1\n",
        "  √ clock                  equals",
        "  √ metrics.k8s.io         v1beta1 answers\n",
        "concertina-system/concertina\n  × deployment             0 of 1 replicas",
        "  × permissions            the account is not allowed to list, watch horizontalpodautoscalers.autoscaling",
        "  × metric-sources         ConfigMap files: sources.yaml is invalid: ",
        "  √ lease                  concertina-a_1 has held concertina-system/concertina, renewed 2 s ago\n",
        "  ‼ readiness              unknown, because the leader's state cannot be read: the user has no credentials",
        "(docs/troubleshooting.md#nothing-scales)\n",
        "  ‼ takeover               the leader's state is unknown (docs/runbook.md#concertinanotacting)\n",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
    // Every request is a read or a review, and goes to the API server.
    for request in rig.cluster.requests().entries() {
        let reads = matches!(request.verb, "get" | "list");
        assert!(reads || request.path.contains("accessreviews"), "{request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn document_has_the_items_of_all_sections() {
    let rig = Rig::new();
    let (verdict, text) = rig.run(&["--pre", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&document["apiVersion"], &document["kind"], &document["pre"], &document["passed"]),
        (&json!("concertina/v1"), &json!("CheckReport"), &json!(true), &json!(true))
    );
    assert_eq!(verdict, Verdict::Good, "{text}");
    let names: Vec<_> = document["sections"][1]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["permissions", "roles", "guard", "other-installation"]);
    rig.install();
    let (verdict, text) = rig.run(&["--pre", "-o", "json"]).await;
    assert_eq!(verdict, Verdict::Attention);
    assert!(text.contains("upgrade this installation"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn aggregated_api_without_an_answer_is_a_problem() {
    let rig = Rig::new();
    let fault = FaultAction::Status(Status::new(503, "ServiceUnavailable", "error trying to reach service"));
    rig.cluster.faults().add(FaultRule::new(fault).path_prefix("/apis/metrics.k8s.io/v1beta1"));
    rig.cluster.set_discovery("custom.metrics.k8s.io", false);
    let (verdict, text) = rig.run(&["--pre"]).await;
    assert_eq!(verdict, Verdict::Attention);
    assert!(text.contains("× metrics.k8s.io         does not answer"), "{text}");
    assert!(text.contains("error trying to reach service"), "{text}");
    assert!(text.contains("√ custom.metrics.k8s.io  not installed"), "{text}");
    assert!(text.ends_with("1 problem, 0 warnings\n"), "{text}");
}
