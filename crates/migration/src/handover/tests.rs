//! Tests of the commands against the in-memory cluster, in virtual time.

mod change;

use std::sync::Arc;
use std::time::Duration;

use fake_cluster::{BareScale, Cluster, FaultAction, FaultId, FaultRule, ScalePath, Status};
use http::Method;
use serde_json::{Value, json};

use super::{HandoverError, PageReader, Session, Verdict, client_options};
use crate::handover::options::{command, options};
use clock::{SharedClock, VirtualClock};
use cluster::call::Call;
use cluster::client::{ClientOptions, Clients};
use terminal::options::parsed;

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

    /// Runs `handover` with the given arguments.
    async fn run(&self, words: &[&str]) -> (Result<Verdict, HandoverError>, String) {
        let words: Vec<_> = words.iter().chain(&["--utc"]).copied().collect();
        let options = parsed(command("concertina"), &words, options).unwrap();
        let mut out = Vec::new();
        let page =
            PageReader::Address { client: self.clients.watch.clone(), url: "http://embedded".to_owned() };
        let (clients, clock) = (&self.clients, Arc::clone(&self.clock));
        let session = Session { options: &options, clients, page, clock, colours: false, out: &mut out };
        let verdict = session.run().await;
        (verdict, String::from_utf8(out).unwrap())
    }

    /// Runs a command and decodes its JSON document.
    async fn document(&self, words: &[&str]) -> (Verdict, Value) {
        let words: Vec<_> = words.iter().chain(&["-o", "json"]).copied().collect();
        let (verdict, text) = self.run(&words).await;
        (verdict.unwrap(), serde_json::from_str(&text).unwrap())
    }

    /// Serves a leader's page with `hpas` for all further requests.
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

    /// Writes the status of an HPA as a controller with the field manager `manager`.
    async fn write_status(&self, manager: &str, namespace: &str, name: &str, replicas: i32) {
        write_status(&self.cluster, manager, namespace, name, replicas).await;
    }

    /// Refuses writes of `user` to paths that end with `suffix`, like a guard.
    fn refuse(&self, user: &str, suffix: &str) {
        let message =
            "admission webhook \"scale.handover.concertina.dev\" denied the request: concertina is in charge";
        let status = Status::new(403, "Forbidden", message);
        let rule =
            FaultRule::new(FaultAction::Status(status)).verb("update").impersonated(user).path_suffix(suffix);
        self.cluster.faults().add(rule);
    }

    /// Denies the permission in every access review of `user`. An empty name selects the caller's own reviews.
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

#[tokio::test(start_paused = true)]
async fn check_passes_if_writes_in_scope_are_refused_and_others_pass() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.deny("system:kube-controller-manager");
    rig.deny("system:vpa-recommender");
    rig.refuse(ACCOUNT, "/web/scale");
    rig.refuse(ACCOUNT, "/web/status");
    let (verdict, answer) = rig.document(&["check"]).await;
    assert_eq!(verdict, Verdict::Good, "{answer}");
    assert_eq!(answer["passed"], true);
    let may_write: Vec<_> =
        answer["users"].as_array().unwrap().iter().map(|user| &user["mayWrite"]).collect();
    assert_eq!(may_write, [true, false, false]);
    let attempts = answer["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "{answer}");
    assert_eq!((&attempts[0]["name"], &attempts[0]["scale"]["result"]), (&json!("web"), &json!("refused")));
    assert_eq!(attempts[1]["status"]["result"], "passed");
    let writes = rig.cluster.requests().entries();
    let writes: Vec<_> = writes.iter().filter(|request| request.verb == "update").collect();
    assert!(writes.len() == 4 && writes.iter().all(|write| write.query == "dryRun=All"), "{writes:?}");
    let scale = &rig.cluster.get("autoscaling/horizontalpodautoscalers", "shop", "web").unwrap();
    assert_eq!(scale["metadata"].get("managedFields"), None, "a dry run is not stored");
}

#[tokio::test(start_paused = true)]
async fn check_shows_each_write_with_an_unintended_result() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.refuse(ACCOUNT, "/web/scale");
    rig.refuse(ACCOUNT, "/jobs/status");
    let (verdict, text) = rig.run(&["check", &format!("--built-in-users={ACCOUNT}")]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention, "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.contains(ACCOUNT))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[1..],
        [
            ["shop", "web", "in", ACCOUNT, "refused", "passed"].to_vec(),
            ["back", "jobs", "out", ACCOUNT, "passed", "refused"].to_vec()
        ],
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn missing_right_to_impersonate_names_the_rule() {
    let rig = Rig::new();
    rig.deny("");
    let (error, _) = rig.run(&["check"]).await;
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "you may not impersonate system:serviceaccount:kube-system:horizontal-pod-autoscaler: ask a cluster \
         administrator for the rule {apiGroups: [\"\"], resources: [serviceaccounts], resourceNames: \
         [horizontal-pod-autoscaler], verbs: [impersonate]} in a Role in namespace kube-system, or a ClusterRole"
    );
    let (error, _) = rig.run(&["check", "--built-in-users=system:vpa-recommender"]).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("resources: [users], resourceNames: [\"system:vpa-recommender\"]"), "{error}");
    assert!(error.ends_with("in a ClusterRole"), "{error}");
    assert!(rig.cluster.requests().entries().iter().all(|request| request.verb != "update"));
}

#[tokio::test(start_paused = true)]
async fn refusal_by_rbac_is_told_apart_from_a_guard() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.refuse(ACCOUNT, "/scale");
    rig.refuse(ACCOUNT, "/status");
    // The first access review, for the status in all namespaces, is allowed. The reviews after a refusal are denied.
    let denied = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}, "spec": {},
        "status": {"allowed": false},
    });
    let rule = FaultRule::new(FaultAction::Body(denied.to_string())).impersonated(ACCOUNT).after(1);
    rig.cluster.faults().add(rule.path_suffix("/selfsubjectaccessreviews"));
    let (verdict, answer) = rig.document(&["check", &format!("--built-in-users={ACCOUNT}")]).await;
    assert_eq!(verdict, Verdict::Attention, "the write out of scope must pass: {answer}");
    assert_eq!(answer["attempts"][0]["scale"]["result"], "unauthorized");
    assert_eq!((&answer["attempts"][0]["ok"], &answer["attempts"][1]["ok"]), (&json!(true), &json!(false)));
}

#[tokio::test(start_paused = true)]
async fn check_without_an_active_user_or_scope_says_so() {
    let rig = Rig::new();
    rig.deny(ACCOUNT);
    let (verdict, text) = rig.run(&["check", &format!("--built-in-users={ACCOUNT}")]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention, "{text}");
    assert!(text.contains("none of the users may write the status of HPAs"), "{text}");
    assert!(text.contains("no HPA is in scope"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn check_without_an_hpa_in_scope_proves_nothing() {
    let rig = Rig::new();
    let words = ["check", &format!("--built-in-users={ACCOUNT}")];
    let (verdict, answer) = rig.document(&words).await;
    assert_eq!((verdict, &answer["passed"]), (Verdict::Attention, &json!(false)), "{answer}");
    let (_, text) = rig.run(&words).await;
    assert!(text.contains("no HPA is in scope") && !text.contains("refused, "), "{text}");
}

#[tokio::test(start_paused = true)]
async fn missing_target_is_not_a_failure_of_the_guard() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.cluster.remove_scale(&ScalePath {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    });
    rig.refuse(ACCOUNT, "/web/status");
    let (verdict, answer) = rig.document(&["check", &format!("--built-in-users={ACCOUNT}")]).await;
    assert_eq!(verdict, Verdict::Good, "{answer}");
    assert_eq!(answer["attempts"][0]["scale"]["result"], "noTarget");
}

#[tokio::test(start_paused = true)]
async fn status_has_the_leaders_state_of_each_hpa_in_scope() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.set_label("shop", "api", "concertina");
    rig.page(&json!([
        {"namespace": "shop", "name": "api", "by": "hpa", "state": "in_charge", "since": "2030-01-01T00:00:00Z",
         "lastRefusedWrite": "2030-01-01T00:00:05Z"},
        {"namespace": "shop", "name": "web", "by": "hpa", "state": "contested", "since": "2030-01-01T00:00:00Z",
         "lastForeignWrite": {"manager": "kube-controller-manager", "at": "2030-01-01T00:00:03Z"}},
    ]));
    let (verdict, text) = rig.run(&["status"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention);
    assert_eq!(
        text,
        "guard      proven since 00:00:00Z\n\
         STATE     NAMESPACE NAME LABEL ON SINCE     LAST FOREIGN WRITE                LAST REFUSED WRITE\n\
         contested shop      web  hpa      00:00:00Z kube-controller-manager 00:00:03Z -\n\
         in_charge shop      api  hpa      00:00:00Z -                                 00:00:05Z\n"
    );
    rig.set_label("shop", "web", "built-in");
    let (verdict, answer) = rig.document(&["status"]).await;
    assert_eq!(verdict, Verdict::Good, "{answer}");
    assert_eq!((&answer["kind"], &answer["guard"]["state"]), (&json!("HandoverStatus"), &json!("proven")));
    assert_eq!(answer["hpas"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn status_without_the_page_is_from_the_api_and_says_so() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.write_status("kube-controller-manager", "shop", "web", 3).await;
    let (verdict, text) = rig.run(&["status", "-n", "shop"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention);
    assert!(text.starts_with("note       the leader's state is unavailable: failed to read"), "{text}");
    assert!(text.contains("unknown shop      web  hpa"), "{text}");
    assert!(text.contains("kube-controller-manager 00:00:00Z"), "{text}");
    rig.serve(&json!({"scope": "labelled", "leads": false}));
    let (_, text) = rig.run(&["status"]).await;
    assert!(text.contains("http://embedded is not the leader"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn forbidden_namespaces_leave_the_labels_of_hpas() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.page(&json!([]));
    let forbidden = FaultAction::Status(Status::new(403, "Forbidden", "namespaces is forbidden"));
    rig.cluster.faults().add(FaultRule::new(forbidden).path_suffix("/namespaces"));
    let (_, answer) = rig.document(&["status"]).await;
    assert_eq!(answer["hpas"][0]["name"], "web");
    let note = answer["notes"][0].as_str().unwrap();
    assert_eq!(note, "cannot read the labels of namespaces: namespaces is forbidden");
}

#[tokio::test(start_paused = true)]
async fn plan_names_the_writer_and_prints_an_applicable_guard() {
    let rig = Rig::new();
    rig.write_status("kube-controller-manager", "shop", "web", 3).await;
    rig.deny("system:vpa-recommender");
    rig.cluster.requests().clear();
    let (verdict, text) = rig.run(&["plan"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good);
    assert!(text.contains("# server: v1.37.1\n"), "{text}");
    assert!(
        text.contains("# status of HPAs: written by kube-controller-manager (1 HPA, last at 00:00:00Z)\n"),
        "{text}"
    );
    assert!(text.contains("# user: system:vpa-recommender, may not write the status of HPAs\n"), "{text}");
    assert!(text.contains("# guard: webhook\n"), "{text}");
    let manifests: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let kinds: Vec<_> = manifests.iter().filter_map(|object| object["kind"].as_str()).collect();
    let policy = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    assert_eq!(kinds, [&policy[..], &["ValidatingWebhookConfiguration"]].concat(), "{text}");
    let writes = rig.cluster.requests().count(|request| !matches!(request.verb, "get" | "list"));
    assert_eq!(writes, 6, "only access reviews");

    let (_, answer) = rig.document(&["plan", "--guard=policy"]).await;
    assert_eq!(answer["guard"], "policy");
    let manifests: Vec<Value> = serde_saphyr::from_multiple(answer["manifests"].as_str().unwrap()).unwrap();
    assert!(manifests.iter().any(|object| object["kind"] == "ValidatingAdmissionPolicyBinding"));
    for guard in ["rbac", "flag"] {
        let (_, text) = rig.run(&["plan", &format!("--guard={guard}")]).await;
        assert!(text.contains("only with --scope=all"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn plan_on_an_old_server_and_without_impersonation_gives_reasons() {
    let rig = Rig::new();
    let version = json!({"gitVersion": "v1.29.3-gke.1", "minor": "29"});
    rig.cluster.faults().add(FaultRule::new(FaultAction::Body(version.to_string())).path_suffix("/version"));
    rig.deny("");
    let (_, answer) = rig.document(&["plan"]).await;
    assert_eq!(answer["guard"], "rbac", "{answer}");
    assert_eq!(answer["users"][0].get("mayWrite"), None);
    let notes = answer["notes"].to_string();
    assert!(notes.contains("you may not impersonate") && notes.contains("this looks like GKE"), "{notes}");
    let (_, answer) = rig.document(&["plan", "--guard=webhook"]).await;
    assert!(answer["reasons"].to_string().contains("older than 1.30"), "{answer}");
}

#[test]
fn answers_have_published_schemas() {
    crate::schemas::check::<super::plan::Document<'static>>("handover-plan");
    crate::schemas::check::<super::check::Document<'static>>("handover-check");
    crate::schemas::check::<super::status::Document<'static>>("handover-status");
    crate::schemas::check::<super::change::Document<'static>>("handover-change");
}
