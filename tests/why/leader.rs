//! The record of the controller that leads, asked for at its pod by port-forward.

use std::sync::Arc;
use std::time::Duration;

use concertina::api::client::Clients;
use concertina::cli::Config;
use concertina::commands::why::{self, Refusals, Way};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ask::options;
use super::front::{Front, TOKEN};
use crate::support::objects::{external, hpa};
use crate::support::{Rig, Stage};

const POD: &str = "concertina-7d9c5";

/// As a user with this token, or with other credentials.
fn user(token: &str) -> kube::Config {
    let mut config = kube::Config::new("https://embedded".parse().unwrap());
    config.auth_info.token = Some(token.to_owned().into());
    config
}

async fn told(rig: &Rig, front: &Front, user: &kube::Config, words: &[&str]) -> String {
    let refusals = Refusals::new();
    let clients = Clients::over(front.connector(), &why::client_options(&refusals)).unwrap();
    let clients = clients.asking_as(user).unwrap();
    let words: Vec<_> = ["-n", "shop", "--utc"].iter().chain(words).copied().collect();
    let mut out = Vec::new();
    let way = Way::Cluster { clients: &clients, refusals };
    let (clock, stop) = (Arc::clone(&rig.clock), CancellationToken::new());
    why::run_with(&options(&words), way, clock, &mut out, stop).await.unwrap();
    String::from_utf8(out).unwrap()
}

async fn document(rig: &Rig, front: &Front, words: &[&str]) -> Value {
    let words: Vec<_> = words.iter().chain(&["-o", "json"]).copied().collect();
    serde_json::from_str(&told(rig, front, &user(TOKEN), &words).await).unwrap()
}

/// A controller with flags of its own, which holds the Lease.
fn rig() -> Rig {
    let stage = Stage::new();
    for (name, replicas) in [("web", 4), ("api", 2)] {
        stage.target(name, replicas);
        stage.create(hpa(name, &[external("queue", "10")]));
    }
    stage.external("queue", "40");
    let mut config = Config::default();
    config.settings.downscale_stabilization = Duration::from_secs(90);
    config.sync_period = Duration::from_secs(10);
    let rig = Rig::with(stage, &config);
    lease(&rig, &format!("{POD}_0f8e"));
    pod(&rig, "Running");
    rig
}

fn lease(rig: &Rig, holder: &str) {
    rig.cluster.put_raw(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "concertina", "namespace": "kube-system"},
        "spec": {"holderIdentity": holder},
    }));
}

fn pod(rig: &Rig, phase: &str) {
    let ports = json!([{"name": "https", "containerPort": 10257}]);
    rig.cluster.put_raw(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": POD, "namespace": "kube-system"},
        "spec": {"nodeName": "cp-1", "containers": [{"name": "concertina", "image": "c", "ports": ports}]},
        "status": {"phase": phase},
    }));
}

#[tokio::test(start_paused = true)]
async fn the_leaders_flags_and_memory_decide_and_nothing_is_unknown() {
    let rig = rig();
    let front = Front::of(&rig, POD, 10257);
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
    // The target is read here all the same.
    assert_eq!(with["target"]["kind"], "Deployment");
    let sentence = with["sentence"].as_str().unwrap();
    assert!(sentence.contains("the 1 min 30 s scale-down window still holds 8, for another"), "{sentence}");

    let tokens = front.heads();
    assert!(
        !tokens.is_empty()
            && tokens.iter().all(|head| head.contains(&format!("authorization: Bearer {TOKEN}\r\n")))
    );
    assert!(tokens[0].starts_with("GET /decisions/shop/web HTTP/1.1\r\n"), "{tokens:?}");

    let text = told(&rig, &front, &user(TOKEN), &["web"]).await;
    assert!(text.contains(&format!("read from  pod kube-system/{POD}, Concertina")), "{text}");
    assert!(!text.contains("What cannot be known"), "{text}");

    let given = ["web", "--horizontal-pod-autoscaler-downscale-stabilization=7s"];
    let given = document(&rig, &front, &given).await;
    assert_eq!(given["flags"][1]["origin"], "given");
    assert_eq!(given["flags"][0]["origin"], "record");
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_for_all_hpas_over_one_connection_and_not_at_all_if_that_is_turned_off() {
    let rig = rig();
    let front = Front::of(&rig, POD, 10257);
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
async fn why_there_is_no_record_is_told_and_the_rest_comes_all_the_same() {
    let rig = rig();
    rig.pass(5.0).await;
    let reason = async |front: &Front, words: &[&str]| {
        let words: Vec<_> = ["web"].iter().chain(words).copied().collect();
        let told = document(&rig, front, &words).await;
        assert_eq!(told["current"], 4, "{told}");
        assert_ne!(told["unknowns"], json!([]));
        assert_eq!(told["findings"], json!([]), "what is refused elsewhere is no finding about the HPA");
        told["source"]["noRecord"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    let front = Front::of(&rig, POD, 10257);
    let none = reason(&front, &["--leader=kube-system/other"]).await;
    assert_eq!(
        none,
        "there is no Lease kube-system/other: no Concertina controller leads here under that name"
    );

    let refused = reason(&front.forbidding(), &[]).await;
    assert_eq!(refused, "you may not get and create pods/portforward in namespace kube-system");
    let closed = reason(&Front::of(&rig, POD, 9), &[]).await;
    assert!(closed.contains("nothing listens on port 10257"), "{closed}");
    let unknown = reason(&front.answering("401 Unauthorized"), &[]).await;
    assert!(unknown.starts_with("the controller does not know you: it answers 401"), "{unknown}");
    let refused = reason(&front.answering("403 Forbidden"), &[]).await;
    assert!(refused.starts_with("the controller answers 403: "), "{refused}");

    pod(&rig, "Failed");
    let ended = reason(&front, &[]).await;
    assert_eq!(ended, format!("pod kube-system/{POD} does not run: it is Failed"));
    lease(&rig, "laptop_0f8e");
    let elsewhere = reason(&front, &[]).await;
    assert!(
        elsewhere.contains("is held by laptop_0f8e, and namespace kube-system has no running pod"),
        "{elsewhere}"
    );
    lease(&rig, "");
    assert_eq!(reason(&front, &[]).await, "nobody holds the Lease kube-system/concertina now");
    let text = told(&rig, &front, &user(TOKEN), &["web"]).await;
    assert!(text.contains("no record  nobody holds the Lease"), "{text}");
    let table = told(&rig, &front, &user(TOKEN), &[]).await;
    let last = table.lines().last().unwrap();
    assert!(last.starts_with("Without the controller's own record (and of 1 more): nobody holds"), "{table}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_shown_to_a_controller_but_a_token_or_a_certificate_of_the_user() {
    let rig = rig();
    rig.pass(5.0).await;
    let front = Front::of(&rig, POD, 10257);
    let mut other = user(TOKEN);
    other.auth_info.impersonate = Some("jane".to_owned());
    let text = told(&rig, &front, &other, &["web"]).await;
    assert!(text.contains("a controller cannot be asked as somebody else (--as)"), "{text}");
    let mut password = kube::Config::new("https://embedded".parse().unwrap());
    password.auth_info.username = Some("jane".to_owned());
    password.auth_info.password = Some("secret".to_owned().into());
    let text = told(&rig, &front, &password, &["web"]).await;
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
    let text = told(&rig, &front, &certified, &["web"]).await;
    assert!(text.contains("read from  pod kube-system"), "{text}");
    assert_eq!(front.certificates(), [own.cert.der().to_vec()]);
    assert!(front.heads().iter().all(|head| !head.contains("authorization:")));
}
