//! The program: ports, several consoles, and SIGINT in every state.

use std::net::TcpListener;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use fake_cluster::{Cluster, FaultAction, FaultRule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::timeout;

use super::{World, cluster_with, four, program, serve, url};

/// The maximum time until the program exits. A machine under load is slow.
const SOON: Duration = Duration::from_mins(1);

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
    assert!(interrupt(first).await.code() == Some(130));
    request(&other, "", "<!doctype html>").await;
    assert!(interrupt(second).await.code() == Some(130));
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
    assert!(interrupt(console).await.code() == Some(130), "during the list");
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
        assert!(interrupt(console).await.code() == Some(130), "{path}");
    }
    // The API server is unavailable.
    let gone = cluster_with(four());
    gone.faults().add(FaultRule::new(FaultAction::Close));
    let (_, kubeconfig_of_gone, _stop) = serve("interrupt-gone", &gone).await;
    let mut console = program(&kubeconfig_of_gone).spawn().unwrap();
    url(&mut console).await;
    assert!(interrupt(console).await.code() == Some(130), "without an API server");
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
