//! The commands against the in-memory cluster, in virtual time.

mod change;
mod check;
mod read;

use std::sync::Arc;
use std::time::Duration;

use fake_cluster::{BareScale, Cluster, FaultAction, FaultId, FaultRule, ScalePath, Status};
use http::Method;
use serde_json::{Value, json};

use super::{HandoverError, PageSource, Verdict, client_options, run_with};
use crate::command::Parsed;
use crate::options::handover::parse;
use clock::{SharedClock, VirtualClock};
use cluster::call::Call;
use cluster::client::{ClientOptions, Clients};

const LABEL: &str = "concertina.dev/controller";
const ACCOUNT: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// A cluster with the HPAs `shop/web`, `shop/api` and `back/jobs`.
struct Rig {
    cluster: Cluster,
    clients: Clients,
    clock: SharedClock,
}

impl Rig {
    fn new() -> Self {
        let clock: SharedClock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
        let cluster = Cluster::new(Arc::clone(&clock));
        for (namespace, name) in [("shop", "web"), ("shop", "api"), ("back", "jobs")] {
            cluster.put_scale(
                &ScalePath {
                    group: "apps".to_owned(),
                    version: "v1".to_owned(),
                    resource: "deployments".to_owned(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                },
                BareScale { spec_replicas: 3, status_replicas: 3, selector: format!("app={name}") },
            );
            cluster
                .create(json!({
                    "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                    "metadata": {"namespace": namespace, "name": name},
                    "spec": {
                        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                        "maxReplicas": 10,
                    },
                }))
                .unwrap();
        }
        let clients = Clients::over(cluster.connector(), &client_options()).unwrap();
        Self { cluster, clients, clock }
    }

    /// Runs a command line after `handover`.
    async fn run(&self, words: &[&str]) -> (Result<Verdict, HandoverError>, String) {
        let words = words.iter().chain(&["--utc"]).map(ToString::to_string);
        let Ok(Parsed::Options(options)) = parse("concertina", words) else { panic!("invalid arguments") };
        let mut out = Vec::new();
        let page = PageSource::Clients(&self.clients);
        let verdict = run_with(&options, &self.clients, page, Arc::clone(&self.clock), &mut out).await;
        (verdict, String::from_utf8(out).unwrap())
    }

    /// Runs a command and decodes its JSON document.
    async fn document(&self, words: &[&str]) -> (Verdict, Value) {
        let words: Vec<_> = words.iter().chain(&["-o", "json"]).copied().collect();
        let (verdict, text) = self.run(&words).await;
        (verdict.unwrap(), serde_json::from_str(&text).unwrap())
    }

    /// Serves the leader's page with `hpas`, from now on.
    fn page(&self, hpas: &Value) -> FaultId {
        let page = json!({
            "scope": "labelled", "controller": "concertina", "leads": true,
            "guard": {"state": "proven", "since": "2030-01-01T00:00:00Z"}, "hpas": hpas,
        });
        self.serve(&page)
    }

    fn serve(&self, page: &Value) -> FaultId {
        self.cluster
            .faults()
            .add(FaultRule::new(FaultAction::Body(page.to_string())).path_suffix("/handover"))
    }

    fn label(&self, namespace: &str, hpa: &str) -> Option<String> {
        let hpa = self.cluster.get("autoscaling/horizontalpodautoscalers", namespace, hpa).unwrap();
        hpa["metadata"]["labels"][LABEL].as_str().map(str::to_owned)
    }

    fn namespace_label(&self, namespace: &str) -> Option<String> {
        let namespace = self.cluster.get("namespaces", "", namespace).unwrap();
        namespace["metadata"]["labels"][LABEL].as_str().map(str::to_owned)
    }

    fn set_label(&self, namespace: &str, name: &str, value: &str) {
        let mut hpa = self.cluster.get("autoscaling/horizontalpodautoscalers", namespace, name).unwrap();
        hpa["metadata"]["labels"] = json!({LABEL: value});
        self.cluster.update(hpa).unwrap();
    }

    /// Writes the status of an HPA as a controller with the field manager `manager` does.
    async fn write_status(&self, manager: &str, namespace: &str, name: &str, replicas: i32) {
        write_status(&self.cluster, manager, namespace, name, replicas).await;
    }

    /// Refuses writes of `user` with a path that ends with `suffix`, as a guard does.
    fn refuse(&self, user: &str, suffix: &str) {
        let message =
            "admission webhook \"handover.concertina.dev\" denied the request: concertina is in charge";
        let status = Status::new(403, "Forbidden", message);
        let rule =
            FaultRule::new(FaultAction::Status(status)).verb("update").impersonated(user).path_suffix(suffix);
        self.cluster.faults().add(rule);
    }

    /// Denies a permission in every access review of `user`. An empty name selects the caller's own reviews.
    fn deny(&self, user: &str) {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
            "spec": {}, "status": {"allowed": false},
        });
        let rule = FaultRule::new(FaultAction::Body(review.to_string())).impersonated(user);
        self.cluster.faults().add(rule.path_suffix("/selfsubjectaccessreviews"));
    }
}

async fn write_status(cluster: &Cluster, manager: &str, namespace: &str, name: &str, replicas: i32) {
    let options = ClientOptions { user_agent: format!("{manager}/v1"), ..ClientOptions::default() };
    let client = Clients::over(cluster.connector(), &options).unwrap().status;
    let path =
        ["apis", "autoscaling", "v2", "namespaces", namespace, "horizontalpodautoscalers", name, "status"];
    let mut hpa: Value = client.json(&Call::get(path)).await.unwrap();
    hpa["status"]["currentReplicas"] = replicas.into();
    hpa["status"]["desiredReplicas"] = replicas.into();
    let body = hpa.to_string().into_bytes();
    client.bytes(&Call::send(Method::PUT, path, "application/json", body)).await.unwrap();
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
