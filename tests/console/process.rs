//! The program: ports, several consoles, and SIGINT in every state. Also the page on the secure port of a controller,
//! for the users of a cluster.

use std::net::TcpListener;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use fake_cluster::{Cluster, FaultAction, FaultRule};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{Browser, NAMES, World, cluster_with, four, program, serve, url, wait};

/// The maximum time until the program exits. A machine under load is slow.
const SOON: Duration = Duration::from_secs(20);

/// Sends SIGINT and returns the exit status.
async fn interrupt(mut child: Child) -> ExitStatus {
    let id = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    timeout(SOON, child.wait()).await.expect("the program did not end").unwrap()
}

/// Requests a path of the page, and reads the response until it contains `wanted`.
async fn request(url: &str, path: &str, wanted: &str) -> TcpStream {
    let (host, token) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!("GET /{token}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    while !text.contains(wanted) {
        let mut piece = vec![0; 4096];
        let read = timeout(SOON, stream.read(&mut piece)).await.unwrap().unwrap();
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    stream
}

#[tokio::test]
async fn taken_port_is_an_error_with_advice() {
    let (_, kubeconfig, _stop) = serve("taken", &cluster_with(four())).await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output =
        program(&kubeconfig).arg(format!("--port={port}")).stderr(Stdio::piped()).output().await.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("cannot listen on 127.0.0.1:{port} (--port)")), "{text}");
    assert!(text.contains("omit the flag to use a free port"), "{text}");
    std::fs::remove_file(kubeconfig).unwrap();
}

#[tokio::test]
async fn second_console_has_a_port_and_a_token_of_its_own() {
    let (_, kubeconfig, _stop) = serve("second", &cluster_with(four())).await;
    let mut first = program(&kubeconfig).spawn().unwrap();
    let mut second = program(&kubeconfig).spawn().unwrap();
    let (one, other) = (url(&mut first).await, url(&mut second).await);
    let token = |url: &str| url.rsplit('/').nth(1).unwrap().to_owned();
    assert!(one != other && token(&one) != token(&other), "{one} {other}");
    for url in [&one, &other] {
        request(url, "", "<!doctype html>").await;
    }
    // The token of one console does not open another console.
    let host = other.strip_prefix("http://").unwrap().split_once('/').unwrap().0;
    request(&format!("http://{host}/{}/", token(&one)), "", "the token is missing or wrong").await;
    assert!(interrupt(first).await.success());
    request(&other, "", "<!doctype html>").await;
    assert!(interrupt(second).await.success());
    std::fs::remove_file(kubeconfig).unwrap();
}

#[tokio::test]
async fn interrupt_ends_the_console_in_every_state() {
    let silent = |cluster: &Cluster| cluster.faults().add(FaultRule::new(FaultAction::Silence));
    // The list is in flight.
    let waiting = cluster_with(four());
    silent(&waiting);
    let (_, kubeconfig, _stop) = serve("interrupt-list", &waiting).await;
    let mut console = program(&kubeconfig).spawn().unwrap();
    url(&mut console).await;
    assert!(interrupt(console).await.success(), "during the list");
    std::fs::remove_file(kubeconfig).unwrap();
    // A stream is open, and a second request is in flight.
    let (_, kubeconfig, _stop) = serve("interrupt-page", &cluster_with(four())).await;
    for path in ["stream", "hpas/shop/alright", "controller"] {
        let mut console = program(&kubeconfig).spawn().unwrap();
        let url = url(&mut console).await;
        let _stream = request(&url, "stream", "alright").await;
        let (host, token) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut second = TcpStream::connect(host).await.unwrap();
        let text = format!("GET /{token}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        second.write_all(text.as_bytes()).await.unwrap();
        assert!(interrupt(console).await.success(), "{path}");
    }
    // The API server is unavailable.
    let gone = cluster_with(four());
    gone.faults().add(FaultRule::new(FaultAction::Close));
    let (_, kubeconfig_of_gone, _stop) = serve("interrupt-gone", &gone).await;
    let mut console = program(&kubeconfig_of_gone).spawn().unwrap();
    url(&mut console).await;
    assert!(interrupt(console).await.success(), "without an API server");
    std::fs::remove_file(kubeconfig).unwrap();
    std::fs::remove_file(kubeconfig_of_gone).unwrap();
}

#[tokio::test]
async fn page_stays_usable_while_the_api_server_does_not_respond() {
    let world = World::start("silent-page", four()).await;
    request(&world.url, "stream", "alright").await;
    world.cluster.faults().add(FaultRule::new(FaultAction::Silence));
    request(&world.url, "main.js", "import").await;
    request(&world.url, "stream", "alright").await;
}

const HPAS: &str = "horizontalpodautoscalers.autoscaling";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a controller with `--console`.
fn start_controller(kubeconfig: &Path, port: u16) -> Child {
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
    let cluster = cluster_with(four());
    cluster.reviews().add_token("admin", "root", &["system:masters"]);
    let (_, kubeconfig, _stop) = serve("again", &cluster).await;
    let port = free_port();
    let mut controller = start_controller(&kubeconfig, port);
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
        controller = start_controller(&kubeconfig, port);
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
    let cluster = cluster_with(four());
    let reviews = cluster.reviews();
    reviews.add_token("tenant", "jane", &["shop"]);
    reviews.allow_path("jane", "get", "/console");
    reviews.allow_resource("shop", "list", HPAS, Some("shop"));
    reviews.allow_resource("shop", "get", HPAS, Some("shop"));
    reviews.add_token("admin", "root", &["system:masters"]);
    let (_, kubeconfig, _stop) = serve("secure", &cluster).await;
    let port = free_port();
    let mut controller = start_controller(&kubeconfig, port);
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
        // The page has a finding with its fix, but no form for simulations.
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
