//! The record of the leader, read from its pod through a port-forward or with `--from`. Also the state of the
//! controller for the console, read with the permissions of a user.

use std::sync::Arc;

use autoscaling::history::History;
use cluster::client::{ClientOptions, Clients};
use concertina::serve::{Endpoints, Health, serve_connection};
use console::command::Inspector;
use console::controller::{ControllerState, Inspect, Missing};
use engine::store::Key;
use fake_cluster::{FaultAction, FaultRule, Status};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use terminal::options::leader::Leader;
use tokio_util::sync::CancellationToken;
use why::{Connection, Diagnosis, Refusals, WhyError};

use super::options;
use super::port_forward_proxy::{POD, PortForwardProxy, TOKEN, lease, may_write_statuses, pod, rig, user};
use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

async fn text_of(rig: &Harness, front: &PortForwardProxy, user: &kube::Config, words: &[&str]) -> String {
    let refusals = Refusals::new();
    let clients = Clients::over(front.connector(), &why::client_options(&refusals)).unwrap();
    let clients = clients.with_user(user).unwrap();
    let words: Vec<_> = ["-n", "shop", "--utc"].iter().chain(words).copied().collect();
    let mut out = Vec::new();
    let way = Connection::Cluster { clients: &clients, refusals };
    let (clock, stop) = (Arc::clone(&rig.clock), CancellationToken::new());
    why::run_with(&options(&words), way, clock, &mut out, stop).await.unwrap();
    String::from_utf8(out).unwrap()
}

async fn document(rig: &Harness, front: &PortForwardProxy, words: &[&str]) -> Value {
    let words: Vec<_> = words.iter().chain(&["-o", "json"]).copied().collect();
    serde_json::from_str(&text_of(rig, front, &user(TOKEN), &words).await).unwrap()
}

#[tokio::test(start_paused = true)]
async fn leader_record_supplies_flags_and_history() {
    let rig = rig();
    let front = PortForwardProxy::new(&rig, POD, 10257);
    rig.pass(21.0).await;
    rig.external("queue", "80");
    rig.pass(21.0).await;
    rig.external("queue", "20");
    rig.pass(21.0).await;

    let with = document(&rig, &front, &["web"]).await;
    let record = &with["source"]["record"];
    assert_eq!(record["from"], format!("pod kube-system/{POD}"), "{with}");
    assert_eq!(record["version"], env!("CARGO_PKG_VERSION"));
    assert!(record["last"]["sentence"].as_str().unwrap().contains("still holds 8"), "{with}");
    assert_eq!(with["unknowns"], json!([]));
    let flag = |name: &str| {
        let all = with["flags"].as_array().unwrap();
        let flag = all.iter().find(|flag| flag["name"] == name).unwrap();
        (flag["value"].as_str().unwrap(), flag["origin"].as_str().unwrap())
    };
    assert_eq!(flag("horizontal-pod-autoscaler-downscale-stabilization"), ("1m30s", "record"));
    let history = with["history"].as_array().unwrap();
    assert!(!history.is_empty() && history.iter().all(|entry| entry["origin"] == "record"), "{with}");
    // The target is still read from the cluster.
    assert_eq!(with["target"]["kind"], "Deployment");
    let sentence = with["sentence"].as_str().unwrap();
    assert!(sentence.contains("the 1 min 30 s scale-down window still holds 8, for another"), "{sentence}");

    let tokens = front.heads();
    assert!(
        !tokens.is_empty()
            && tokens.iter().all(|head| head.contains(&format!("authorization: Bearer {TOKEN}\r\n")))
    );
    assert!(tokens[0].starts_with("GET /decisions/shop/web HTTP/1.1\r\n"), "{tokens:?}");

    let text = text_of(&rig, &front, &user(TOKEN), &["web"]).await;
    assert!(text.contains(&format!("read from  pod kube-system/{POD}, Concertina")), "{text}");
    assert!(!text.contains("Not known") && !text.contains("remembered"), "{text}");
    let text = text_of(&rig, &front, &user(TOKEN), &["web", "-v", "1"]).await;
    assert!(text.contains("  remembered ") && text.contains("  flags      --horizontal"), "{text}");

    let given = ["web", "--horizontal-pod-autoscaler-downscale-stabilization=7s"];
    let given = document(&rig, &front, &given).await;
    assert_eq!(given["flags"][1]["origin"], "given");
    assert_eq!(given["flags"][0]["origin"], "record");
}

#[tokio::test(start_paused = true)]
async fn leader_is_read_over_one_connection_and_not_with_record_off() {
    let rig = rig();
    let front = PortForwardProxy::new(&rig, POD, 10257);
    rig.pass(5.0).await;
    let all = document(&rig, &front, &["-A"]).await;
    let items = all["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    assert!(items.iter().all(|item| item["source"]["record"].is_object()), "{all}");
    assert_eq!(front.forwards(), 1);

    let off = document(&rig, &front, &["web", "--record=off"]).await;
    assert_eq!(off["source"], json!({"type": "cluster"}));
    assert_ne!(off["unknowns"], json!([]));
    assert_eq!(front.forwards(), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_record_has_a_reason_and_the_answer_is_complete() {
    let rig = rig();
    rig.pass(5.0).await;
    let reason = async |front: &PortForwardProxy, words: &[&str]| {
        let words: Vec<_> = ["web"].iter().chain(words).copied().collect();
        let answer = document(&rig, front, &words).await;
        assert_eq!(answer["current"], 4, "{answer}");
        assert_ne!(answer["unknowns"], json!([]));
        assert_eq!(answer["findings"], json!([]), "a refused record is not a finding about the HPA");
        answer["source"]["noRecord"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let front = PortForwardProxy::new(&rig, POD, 10257);
    let none = reason(&front, &["--leader=kube-system/other"]).await;
    assert_eq!(
        none,
        "Lease kube-system/other does not exist: no Concertina controller has been the leader under that name"
    );

    let refused = reason(&front.forbidding(), &[]).await;
    assert_eq!(refused, "you may not get and create pods/portforward in namespace kube-system");
    let closed = reason(&PortForwardProxy::new(&rig, POD, 9), &[]).await;
    assert!(closed.contains("nothing listens on port 10257"), "{closed}");
    let unknown = reason(&front.answering("401 Unauthorized"), &[]).await;
    assert!(unknown.starts_with("the controller rejected your credentials with 401"), "{unknown}");
    let refused = reason(&front.answering("403 Forbidden"), &[]).await;
    assert!(refused.starts_with("the controller responded with 403: "), "{refused}");

    pod(&rig, "Failed");
    let ended = reason(&front, &[]).await;
    assert!(
        ended.starts_with(&format!("pod kube-system/{POD} is not running: its phase is Failed; ")),
        "{ended}"
    );
    lease(&rig, "laptop_0f8e");
    let elsewhere = reason(&front, &[]).await;
    assert!(
        elsewhere.contains("is held by laptop_0f8e, but namespace kube-system has no running pod"),
        "{elsewhere}"
    );
    lease(&rig, "");
    assert_eq!(
        reason(&front, &[]).await,
        "Lease kube-system/concertina has no holder: no replica is the leader now"
    );
    let text = text_of(&rig, &front, &user(TOKEN), &["web"]).await;
    assert!(text.contains(", because Lease kube-system/concertina has no holder"), "{text}");
    let table = text_of(&rig, &front, &user(TOKEN), &[]).await;
    let without =
        "Without the controller's own record (and of 1 more): Lease kube-system/concertina has no holder";
    assert!(table.lines().any(|line| line.starts_with(without)), "{table}");
}

#[tokio::test(start_paused = true)]
async fn record_of_another_version_is_named_and_the_answer_is_complete() {
    let rig = rig();
    rig.pass(5.0).await;
    let front = PortForwardProxy::new(&rig, POD, 10257);
    let list = rig.assembly.decisions.as_ref().unwrap().list(&Key::new("shop", "web"));
    let mut record = serde_json::to_value(list.unwrap()).unwrap();
    record["apiVersion"] = "concertina/v9".into();
    let answer = document(&rig, &front.recording(&record), &["web"]).await;
    assert_eq!(
        answer["source"]["noRecord"],
        "the controller's record has version concertina/v9, not concertina/v1: use the version of the controller"
    );
    assert_eq!(answer["current"], 4, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn controller_receives_only_the_users_token_or_certificate() {
    let rig = rig();
    rig.pass(5.0).await;
    let front = PortForwardProxy::new(&rig, POD, 10257);
    let mut other = user(TOKEN);
    other.auth_info.impersonate = Some("jane".to_owned());
    let text = text_of(&rig, &front, &other, &["web"]).await;
    assert!(text.contains("--as does not work for requests to a controller"), "{text}");
    let mut password = kube::Config::new("https://embedded".parse().unwrap());
    password.auth_info.username = Some("jane".to_owned());
    password.auth_info.password = Some("secret".to_owned().into());
    let text = text_of(&rig, &front, &password, &["web"]).await;
    assert!(text.contains("neither a token nor a client certificate"), "{text}");
    assert_eq!(front.forwards(), 0);

    let own = rcgen::generate_simple_self_signed(vec!["jane".to_owned()]).unwrap();
    let mut certified = kube::Config::new("https://embedded".parse().unwrap());
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("why-leader");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, pem) in [("cert", own.cert.pem()), ("key", own.signing_key.serialize_pem())] {
        std::fs::write(folder.join(name), pem).unwrap();
    }
    let path = |name: &str| Some(folder.join(name).display().to_string());
    certified.auth_info.client_certificate = path("cert");
    certified.auth_info.client_key = path("key");
    let text = text_of(&rig, &front, &certified, &["web"]).await;
    assert!(text.contains("read from  pod kube-system"), "{text}");
    assert_eq!(front.certificates(), [own.cert.der().to_vec()]);
    assert!(front.heads().iter().all(|head| !head.contains("authorization:")));
}

#[tokio::test(start_paused = true)]
async fn pod_of_a_squatters_lease_gets_no_credentials() {
    let rig = rig();
    rig.pass(5.0).await;
    let front = PortForwardProxy::new(&rig, POD, 10257);
    let no_record = async |words: &[&str]| {
        let words: Vec<_> = ["web"].iter().chain(words).copied().collect();
        let answer = document(&rig, &front, &words).await;
        assert_eq!(answer["current"], 4, "{answer}");
        answer["source"]["noRecord"].as_str().map(str::to_owned)
    };
    // Write access in some namespaces, which a squatter may have, proves nothing.
    rig.cluster.reviews().allow_nothing();
    may_write_statuses(&rig, Some("kube-system"));
    let unproven = format!(
        "pod kube-system/{POD} did not get your credentials, because it is not proven to be a controller: its \
         ServiceAccount concertina may not update the status of HPAs in all namespaces; if you trust it, use \
         --leader=kube-system/concertina"
    );
    assert_eq!(no_record(&[]).await.as_ref(), Some(&unproven));
    let seen = state(&front, TOKEN).await;
    assert_eq!(part(&seen, "pages of the controller").reason, unproven);
    refuse(&rig, "/subjectaccessreviews");
    let unknown = no_record(&[]).await.unwrap();
    assert!(unknown.contains("you may not create subjectaccessreviews"), "{unknown}");
    assert_eq!((front.forwards(), front.heads().len()), (0, 0), "the pod got a connection");

    assert_eq!(no_record(&["--leader=kube-system/concertina"]).await, None);
    assert!(front.heads().iter().any(|head| head.contains(TOKEN)));
}

#[tokio::test(start_paused = true)]
async fn pod_with_the_labels_of_a_dry_run_is_read_only_if_its_namespace_is_named() {
    let rig = rig();
    rig.pass(5.0).await;
    rig.cluster.delete("coordination.k8s.io/leases", "kube-system", "concertina").unwrap();
    rig.cluster.put_raw(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": POD, "namespace": "kube-system", "labels": {
            "app.kubernetes.io/name": "concertina", "app.kubernetes.io/instance": "concertina-shadow"}},
        "spec": {"nodeName": "cp-1", "serviceAccountName": "concertina",
            "containers": [{"name": "concertina", "image": "c"}]},
        "status": {"phase": "Running"},
    }));
    let front = PortForwardProxy::new(&rig, POD, 10257);
    let answer = document(&rig, &front, &["web"]).await;
    let reason = answer["source"]["noRecord"].as_str().unwrap();
    assert!(reason.starts_with("Lease concertina-system/concertina does not exist"), "{reason}");
    let seen = state(&front, TOKEN).await;
    let reason = &part(&seen, "pages of the controller").reason;
    assert!(reason.starts_with("a dry run gets your credentials only with --leader"), "{reason}");
    assert_eq!((front.forwards(), front.heads().len()), (0, 0), "the pod got a connection");

    let named = document(&rig, &front, &["web", "--leader=kube-system/concertina"]).await;
    assert_eq!(named["source"]["record"]["from"], format!("pod kube-system/{POD}"), "{named}");
}

async fn ask(rig: &Harness, words: &[&str]) -> (Result<Diagnosis, WhyError>, String) {
    let endpoints = Endpoints::new(Health::new(), rig.telemetry.clone(), rig.assembly.decisions.clone());
    let connector = tower::service_fn(move |_: http::Uri| {
        let (client, server) = tokio::io::duplex(1 << 20);
        tokio::spawn(serve_connection(server, endpoints.clone(), CancellationToken::new()));
        async move { Ok::<_, std::io::Error>(TokioIo::new(client)) }
    });
    let clients = Clients::over(connector, &ClientOptions::default()).unwrap();
    let words: Vec<_> = ["-n", "shop", "--from=http://controller"].iter().chain(words).copied().collect();
    let way = Connection::Record { clients: &clients, url: "http://controller".to_owned() };
    let (clock, stop) = (Arc::clone(&rig.clock), CancellationToken::new());
    let mut out = Vec::new();
    let found = why::run_with(&options(&words), way, clock, &mut out, stop).await;
    (found, String::from_utf8(out).unwrap())
}

fn recorded_rig() -> Harness {
    let stage = Fixture::new();
    for (name, replicas) in [("web", 4), ("api", 2)] {
        stage.target(name, replicas);
        stage.create(hpa(name, &[external("queue", "10")]));
    }
    stage.external("queue", "40");
    Harness::start(stage)
}

#[tokio::test(start_paused = true)]
async fn last_decision_has_the_controllers_history_and_flags() {
    let rig = recorded_rig();
    rig.pass(31.0).await;
    rig.external("queue", "80");
    rig.pass(31.0).await;
    rig.external("queue", "20");
    rig.pass(31.0).await;
    rig.cluster.requests().clear();
    let (found, text) = ask(&rig, &["web", "-o", "json"]).await;
    found.unwrap();
    assert!(rig.cluster.requests().entries().is_empty(), "the cluster received requests");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert!(answer["sentence"].as_str().unwrap().contains("still holds 8"), "{answer}");
    assert_eq!(answer["source"]["type"], "record");
    assert_eq!(answer["source"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(answer["unknowns"], json!([]));
    assert_eq!(answer["flags"][0]["origin"], "record");
    let history = answer["history"].as_array().unwrap();
    let rescale = history.iter().find(|entry| entry["type"] == "rescale").unwrap();
    assert_eq!((&rescale["from"], &rescale["to"]), (&json!(4), &json!(8)));
    assert!(history.iter().filter(|entry| entry["type"] == "recommendation").count() >= 5);
    let (_, text) = ask(&rig, &["web"]).await;
    assert!(text.contains("still holds 8"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn rescale_of_unknown_size_is_shown() {
    let rig = recorded_rig();
    rig.pass(31.0).await;
    let uid: Arc<str> = rig.hpa("web")["metadata"]["uid"].as_str().unwrap().into();
    let (histories, at) = (&rig.assembly.controller.stores.histories, rig.clock.now());
    let uncertain = History { unknown_up: Some(at), unknown_down: Some(at), ..histories.get(&uid) };
    histories.seed(&uid, uncertain);
    let (_, text) = ask(&rig, &["web", "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    let history = answer["history"].as_array().unwrap();
    let unknown: Vec<_> = history.iter().filter(|entry| entry["type"] == "unknownRescale").collect();
    assert_eq!(unknown, [&json!({"type": "unknownRescale", "at": at, "origin": "record"})]);
}

#[tokio::test(start_paused = true)]
async fn all_hpas_of_the_controller_have_one_line_each() {
    let rig = recorded_rig();
    rig.pass(5.0).await;
    let (found, text) = ask(&rig, &["-A"]).await;
    found.unwrap();
    // The heads, two HPAs, and their number.
    assert_eq!(text.lines().count(), 4, "{text}");
    let (_, same) = ask(&rig, &[]).await;
    assert_eq!(same, text);
}

#[tokio::test(start_paused = true)]
async fn unknown_hpa_has_the_controllers_error() {
    let rig = recorded_rig();
    rig.pass(5.0).await;
    let (found, text) = ask(&rig, &["absent"]).await;
    let error = found.unwrap_err().to_string();
    assert!(
        error.starts_with("failed to read the record of shop/absent from http://controller: "),
        "{error}"
    );
    assert_eq!(text, "");
}

/// Gives the pod of the controller the label of an installation and a status.
fn label(rig: &Harness) {
    rig.cluster.put_raw(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": POD, "namespace": "kube-system", "labels": {"app.kubernetes.io/name": "concertina"}},
        "spec": {"nodeName": "cp-1", "serviceAccountName": "concertina",
            "containers": [{"name": "concertina", "image": "concertina:1",
                "ports": [{"name": "https", "containerPort": 10257}]}]},
        "status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "concertina", "restartCount": 2, "ready": true, "image": "c", "imageID": ""}],
        },
    }));
}

async fn state(front: &PortForwardProxy, token: &str) -> ControllerState {
    let clients = Clients::over(front.connector(), &ClientOptions::default()).unwrap();
    let clients = clients.with_user(&user(token)).unwrap();
    Inspector::new(clients, Leader::candidates(None)).inspect().await
}

fn part<'a>(state: &'a ControllerState, part: &str) -> &'a Missing {
    state.missing.iter().find(|missing| missing.part == part).unwrap_or_else(|| panic!("{:?}", state.missing))
}

fn refuse(rig: &Harness, path: &str) {
    let action = FaultAction::Status(Status::new(403, "Forbidden", "no"));
    rig.cluster.faults().add(FaultRule::new(action).path_contains(path));
}

#[tokio::test(start_paused = true)]
async fn leader_shows_its_replicas_and_numbers() {
    let rig = rig();
    label(&rig);
    rig.pass(31.0).await;
    let state = state(&PortForwardProxy::new(&rig, POD, 10257), TOKEN).await;
    let lease = state.lease.as_ref().unwrap();
    assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("kube-system", "concertina"));
    let [replica] = &state.replicas[..] else { panic!("{:?}", state.replicas) };
    assert_eq!((replica.pod.as_str(), replica.leads, replica.ready, replica.restarts), (POD, true, true, 2));
    let numbers = state.numbers.as_ref().unwrap();
    assert_eq!(numbers.hpas, Some(2.0));
    assert!(numbers.lateness.as_ref().unwrap().count > 0.0, "{numbers:?}");
    assert!(numbers.requests.iter().any(|row| row.resource.starts_with("horizontalpodautoscalers")));
    // The proxy serves no /handover.
    assert!(part(&state, "handover").reason.contains("404"), "{:?}", state.missing);
}

#[tokio::test(start_paused = true)]
async fn missing_permissions_are_named_and_the_rest_is_shown() {
    let rig = rig();
    label(&rig);
    let front = PortForwardProxy::new(&rig, POD, 10257);
    let refused = state(&front.forbidding(), TOKEN).await;
    let pages = part(&refused, "pages of the controller");
    assert_eq!(pages.reason, "you may not get and create pods/portforward in namespace kube-system");
    assert_eq!(
        pages.advice,
        "A Role with get and create on pods/portforward in namespace kube-system allows it."
    );
    assert!(refused.lease.is_some() && refused.replicas.len() == 1);

    let denied = state(&front.answering("403 Forbidden"), TOKEN).await;
    assert_eq!(
        part(&denied, "metrics").advice,
        "A ClusterRole with get on the nonResourceURL /metrics allows it."
    );

    refuse(&rig, "/leases/");
    refuse(&rig, "/pods");
    let nothing = state(&front, TOKEN).await;
    assert_eq!(
        part(&nothing, "Lease").advice,
        "A Role with get on leases.coordination.k8s.io in namespace concertina-system allows it."
    );
    assert_eq!(part(&nothing, "replicas").reason, "you may not list pods in namespace concertina-system");
    assert!(nothing.lease.is_none() && nothing.numbers.is_none());
}

#[tokio::test(start_paused = true)]
async fn cluster_without_concertina_says_so() {
    let rig = rig();
    rig.cluster.delete("coordination.k8s.io/leases", "kube-system", "concertina").unwrap();
    let state = state(&PortForwardProxy::new(&rig, POD, 10257), TOKEN).await;
    let [missing] = &state.missing[..] else { panic!("{:?}", state.missing) };
    assert!(missing.reason.starts_with("no Concertina controller runs in this cluster"), "{missing:?}");
    assert!(missing.advice.contains("--leader"), "{missing:?}");
}
