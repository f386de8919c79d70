//! The page on the secure port of a controller, for the users of a cluster.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use fake_cluster::Cluster;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::{Browser, NAMES, four, serve, wait};

const HPAS: &str = "horizontalpodautoscalers.autoscaling";

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a controller with `--console`.
fn start(kubeconfig: &Path, port: u16) -> Child {
    Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["--console", "--leader-elect=false", "--bind-address=127.0.0.1", "--takeover=off"])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Makes the browser send a token, as an authenticating proxy does.
async fn sign_in(browser: &mut Browser, token: &str) {
    browser.call("Security.setIgnoreCertificateErrors", json!({"ignore": true})).await;
    let headers = json!({"headers": {"Authorization": format!("Bearer {token}")}});
    browser.call("Network.setExtraHTTPHeaders", headers).await;
}

/// Opens the page as soon as the controller listens.
async fn navigate(browser: &mut Browser, address: &str) {
    while browser.call("Page.navigate", json!({"url": address})).await.get("errorText").is_some() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn page_connects_again_after_a_restart_and_after_another_login() {
    let cluster = Cluster::new(Arc::new(SystemClock));
    for hpa in four() {
        cluster.put_raw(hpa);
    }
    cluster.reviews().add_token("admin", "root", &["system:masters"]);
    let (_, kubeconfig, _stop) = serve("again", &cluster).await;
    let port = free_port();
    let mut controller = start(&kubeconfig, port);
    let mut browser = Browser::start("console-again", 1280, 800).await;
    sign_in(&mut browser, "admin").await;
    navigate(&mut browser, &format!("https://127.0.0.1:{port}/console/")).await;
    wait(&mut browser, "document.querySelectorAll('.rows .row').length === 4").await;
    let notice = "document.getElementById('notice')";
    for token in ["admin", "expired"] {
        controller.start_kill().unwrap();
        controller.wait().await.unwrap();
        wait(&mut browser, &format!("{notice}.textContent.includes('does not respond')")).await;
        assert_eq!(browser.evaluate("document.querySelectorAll('.rows .row').length").await, 4);
        sign_in(&mut browser, token).await;
        controller = start(&kubeconfig, port);
        if token == "expired" {
            wait(
                &mut browser,
                &format!("{notice}.textContent.includes('refuses the connection: sign in again')"),
            )
            .await;
            sign_in(&mut browser, "admin").await;
        }
        wait(&mut browser, &format!("{notice}.hidden")).await;
    }
    browser.stop().await;
    controller.start_kill().unwrap();
    controller.wait().await.unwrap();
    std::fs::remove_file(kubeconfig).unwrap();
}

#[tokio::test]
#[ignore = "needs Chromium"]
async fn controller_serves_the_page_to_the_users_of_its_cluster() {
    let cluster = Cluster::new(Arc::new(SystemClock));
    for hpa in four() {
        cluster.put_raw(hpa);
    }
    let reviews = cluster.reviews();
    reviews.add_token("tenant", "jane", &["shop"]);
    reviews.allow_path("jane", "get", "/console");
    reviews.allow_resource("shop", "list", HPAS, Some("shop"));
    reviews.allow_resource("shop", "get", HPAS, Some("shop"));
    reviews.add_token("admin", "root", &["system:masters"]);
    let (_, kubeconfig, _stop) = serve("secure", &cluster).await;
    let port = free_port();
    let mut controller = start(&kubeconfig, port);
    let address = format!("https://127.0.0.1:{port}/console/");
    for (token, names) in [("tenant", "2"), ("admin", "4")] {
        let mut browser = Browser::start(&format!("console-secure-{token}"), 1280, 800).await;
        sign_in(&mut browser, token).await;
        navigate(&mut browser, &address).await;
        wait(&mut browser, &format!("document.querySelectorAll('.rows .row').length === {names}")).await;
        let shown = browser.evaluate(NAMES).await;
        assert!(shown.as_str().unwrap().contains("alright"), "{shown}");
        assert_eq!(shown.as_str().unwrap().contains("stuck"), token == "admin", "{shown}");
        browser.evaluate("document.querySelector('.rows a[href*=\"alright\"]').click()").await;
        // The target does not exist, so the decision is that its scale cannot be read.
        wait(&mut browser, "document.querySelector('.sentence')?.textContent.length > 0").await;
        wait(
            &mut browser,
            "document.querySelector('.answer').textContent.includes('concertina why alright -n shop')",
        )
        .await;
        let answer = browser.evaluate("document.querySelector('.answer').innerText").await;
        let answer = answer.as_str().unwrap();
        // The page has a finding with its fix, and no form.
        for part in ["missing-target", "Correct spec.scaleTargetRef", "would delay the syncs of the leader"] {
            assert!(answer.contains(part), "{part}: {answer}");
        }
        assert_eq!(browser.evaluate("document.querySelector('.whatif').offsetParent").await, Value::Null);
        browser.evaluate("location.hash = '#page=controller'").await;
        if token == "admin" {
            wait(&mut browser, "document.querySelectorAll('.controller table').length > 0").await;
            let text = browser.evaluate("document.querySelector('.controller').innerText").await;
            assert!(text.as_str().unwrap().contains("Started within 1 s"), "{text}");
            if let Ok(folder) = std::env::var("PICTURES") {
                browser.picture(&format!("{folder}/secure.png")).await;
            }
        } else {
            wait(&mut browser, "document.querySelector('.controller .failure') !== null").await;
            let text = browser.evaluate("document.querySelector('.controller').innerText").await;
            assert!(text.as_str().unwrap().contains("cannot get path \"/metrics\""), "{text}");
        }
        browser.stop().await;
    }
    controller.start_kill().unwrap();
    controller.wait().await.unwrap();
    std::fs::remove_file(kubeconfig).unwrap();
}
