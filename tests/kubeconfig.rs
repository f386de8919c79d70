//! Tests of the fields of a kubeconfig, credential plugins and proxies, with an embedded API server behind TLS.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the tests wait for other processes, which do not follow virtual time"
)]

#[path = "support/logs.rs"]
mod logs;
#[path = "kubeconfig/plugins.rs"]
mod plugins;
#[path = "kubeconfig/servers.rs"]
mod servers;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cluster::call::Call;
use cluster::client::{ClientOptions, Clients};
use cluster::connect::PluginLimits;
use cluster::error::ApiError;
use cluster::kubeconfig::{ClusterOptions, UserConfig, load_for_user};

use crate::servers::{NAME, Proxy, ProxyBehavior, Server};

/// A temporary folder with the files of one test. It is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-kubeconfig-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// Writes and loads a kubeconfig with the given YAML fields of its cluster and of its user.
    fn user_config(&self, cluster: &str, user: &str) -> UserConfig {
        let path = self.file("config", &config(cluster, user));
        load_for_user(&ClusterOptions { kubeconfig: Some(path), ..ClusterOptions::default() }).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config(cluster: &str, user: &str) -> String {
    format!(
        "current-context: dev\n\
         contexts: [{{name: dev, context: {{cluster: one, user: me}}}}]\n\
         clusters: [{{name: one, cluster: {{{cluster}}}}}]\n\
         users: [{{name: me, user: {{{user}}}}}]\n"
    )
}

fn clients(user_config: &UserConfig) -> Clients {
    clients_within(user_config, PluginLimits::default())
}

fn clients_within(user_config: &UserConfig, plugin_limits: PluginLimits) -> Clients {
    let options =
        ClientOptions { plugin_limits, request_timeout: Duration::from_secs(10), ..ClientOptions::default() };
    Clients::new(&user_config.config, &options).unwrap()
}

/// Fetches the list of API groups.
async fn ask(clients: &Clients) -> Result<(), ApiError> {
    clients.discovery.bytes(&Call::get(["apis"])).await.map(drop)
}

#[tokio::test]
async fn http_proxy_tunnels_requests_to_the_server() {
    let folder = Folder::new("tunnel");
    let server = Server::start().await;
    let proxy = Proxy::start(server.address, ProxyBehavior::Tunnel).await;
    let fields = format!("{}, proxy-url: 'http://me:p%40ss@{}'", server.fields(NAME), proxy.address);
    let clients = clients(&folder.user_config(&fields, "token: s3cret"));
    ask(&clients).await.unwrap();
    ask(&clients).await.unwrap();

    let heads = proxy.heads.all();
    assert_eq!(heads.len(), 1, "one tunnel for all requests: {heads:?}");
    let target = format!("{NAME}:{}", server.address.port());
    assert!(heads[0].starts_with(&format!("CONNECT {target} HTTP/1.1\r\n")), "{heads:?}");
    assert!(heads[0].contains(&format!("\r\nHost: {target}\r\n")), "{heads:?}");
    assert!(heads[0].contains("\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n"), "{heads:?}");
    assert!(!heads[0].contains("s3cret"), "{heads:?}");
    let requests = server.requests.all().concat();
    assert!(requests.contains("\r\nauthorization: Bearer s3cret\r\n"), "{requests}");
    assert!(!requests.contains("proxy-authorization"), "{requests}");
}

#[tokio::test]
async fn proxy_connection_may_use_tls() {
    let folder = Folder::new("tls");
    let server = Server::start().await;
    let proxy = Proxy::over_tls(&server).await;
    let fields = format!("{}, proxy-url: 'https://{}'", server.fields(NAME), proxy.address);
    ask(&clients(&folder.user_config(&fields, ""))).await.unwrap();
    assert!(proxy.heads.all()[0].starts_with(&format!("CONNECT {NAME}:")));
}

#[tokio::test]
async fn socks_proxy_resolves_the_server_name() {
    let folder = Folder::new("socks");
    let server = Server::start().await;
    let proxy = Proxy::start(server.address, ProxyBehavior::Socks).await;
    let fields = format!("{}, proxy-url: 'socks5://me:pass@{}'", server.fields(NAME), proxy.address);
    ask(&clients(&folder.user_config(&fields, ""))).await.unwrap();
    assert_eq!(proxy.heads.all(), [format!("me:pass@{NAME}:{}", server.address.port())]);
}

#[tokio::test]
async fn proxy_forwards_plain_http_requests() {
    let folder = Folder::new("forward");
    let server = Server::start().await;
    let proxy = Proxy::start(server.address, ProxyBehavior::Tunnel).await;
    let fields = format!("server: 'http://{NAME}:8080', proxy-url: 'http://me:pass@{}'", proxy.address);
    ask(&clients(&folder.user_config(&fields, "token: s3cret"))).await.unwrap();
    let head = &proxy.heads.all()[0];
    assert!(head.starts_with(&format!("GET http://{NAME}:8080/apis HTTP/1.1\r\n")), "{head}");
    assert!(head.contains("\r\nproxy-authorization: Basic bWU6cGFzcw==\r\n"), "{head}");
    assert!(!head.contains("s3cret"), "a token is not sent in the clear: {head}");
}

#[tokio::test]
async fn refusing_or_missing_proxy_is_named_in_the_error() {
    let folder = Folder::new("refused");
    let server = Server::start().await;
    let proxy =
        Proxy::start(server.address, ProxyBehavior::Refuse("407 Proxy Authentication Required")).await;
    let target = format!("{NAME}:{}", server.address.port());
    let with = |url: String| folder.user_config(&format!("{}, proxy-url: '{url}'", server.fields(NAME)), "");

    let error = ask(&clients(&with(format!("http://{}", proxy.address)))).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "Get \"https://{target}/apis\": proxyconnect tcp: {}: tunnel error: proxy authorization required",
            proxy.address
        )
    );
    let error = ask(&clients(&with("http://127.0.0.1:1".to_owned()))).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "Get \"https://{target}/apis\": proxyconnect tcp: dial tcp 127.0.0.1:1: connect: connection refused"
        )
    );
}

#[tokio::test]
async fn tls_server_name_overrides_the_host_name() {
    let folder = Folder::new("name");
    let server = Server::start().await;
    let error =
        ask(&clients(&folder.user_config(&server.fields("localhost"), ""))).await.unwrap_err().to_string();
    assert!(error.contains("tls: failed to verify certificate"), "{error}");
    let fields = format!("{}, tls-server-name: {NAME}", server.fields("localhost"));
    ask(&clients(&folder.user_config(&fields, ""))).await.unwrap();
}

/// Runs the built program with the environment `variables` until its log satisfies `condition`.
fn run_until(folder: &Folder, variables: &[(&str, &str)], condition: impl Fn(&str) -> bool) {
    let log = std::fs::File::create(folder.0.join("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    for variable in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"] {
        command.env_remove(variable);
    }
    let mut child = command
        .arg(format!("--kubeconfig={}", folder.0.join("config").display()))
        .args(["--secure-port=0", "-v=4"])
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !condition(&folder.read("log")) {
        assert!(
            started.elapsed() < Duration::from_mins(1),
            "the condition did not hold within a minute:\n{}",
            folder.read("log")
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_uses_the_proxy_of_the_environment_except_for_no_proxy() {
    let folder = Folder::new("environment");
    let server = Server::start().await;
    let proxy = Proxy::start(server.address, ProxyBehavior::Tunnel).await;
    folder.file("config", &config(&server.fields(NAME), ""));
    let url = format!("http://{}", proxy.address);

    run_until(&folder, &[("HTTPS_PROXY", &url), ("NO_PROXY", "other.test")], |_| {
        !server.cluster.requests().is_empty()
    });
    assert!(proxy.heads.all()[0].starts_with(&format!("CONNECT {NAME}:")));

    let before = proxy.heads.all().len();
    let exempt = [("HTTPS_PROXY", url.as_str()), ("NO_PROXY", ".concertina.test")];
    run_until(&folder, &exempt, |log| log.contains("no such host"));
    let others = [("HTTP_PROXY", url.as_str())];
    run_until(&folder, &others, |log| log.contains("no such host"));
    assert_eq!(proxy.heads.all().len(), before);

    folder.file("config", &config(&server.fields("127.0.0.1"), ""));
    let requests_before = server.cluster.requests().len();
    run_until(&folder, &[("HTTPS_PROXY", &url)], |_| server.cluster.requests().len() > requests_before);
    assert_eq!(proxy.heads.all().len(), before, "loopback addresses bypass the proxy");
}
