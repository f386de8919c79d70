//! The built program: its exit codes, its kubeconfig, and its name as a plugin.

#![allow(
    clippy::disallowed_methods,
    reason = "the tests wait for another process, which has no virtual time"
)]

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Instant;

use clock::SystemClock;
use fake_cluster::metrics::StaticMetrics;
use fake_cluster::{BareScale, Cluster, ScalePath};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::objects::{external, hpa};

/// A cluster served over TCP, with its kubeconfig.
struct ServedCluster {
    cluster: Cluster,
    folder: PathBuf,
    stop: CancellationToken,
}

impl ServedCluster {
    async fn start(test: &str) -> Self {
        let cluster = Cluster::new(Arc::new(SystemClock));
        let metrics = StaticMetrics::new();
        let now = cluster.now();
        let item = json!({"metricName": "queue", "metricLabels": {}, "timestamp": now, "value": "40"});
        metrics.set_external(json!({"queue": {"items": [item]}}));
        cluster.set_metrics(Arc::new(metrics));
        cluster
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
            .unwrap();
        let path = ScalePath {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        let scale = BareScale { spec_replicas: 4, status_replicas: 4, selector: "app=web".to_owned() };
        cluster.put_scale(&path, scale);
        cluster.create(hpa("web", &[external("queue", "10")])).unwrap();
        cluster.create(hpa("lost", &[external("queue", "10")])).unwrap();

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let (serving, stopped) = (cluster.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, stopped).await });
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("why-{test}"));
        fs::create_dir_all(&folder).unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        });
        fs::write(folder.join("config"), kubeconfig.to_string()).unwrap();
        Self { cluster, folder, stop }
    }

    /// Runs a program. Returns the exit code, the standard output and the standard error.
    async fn run(&self, program: &Path, words: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(program);
        command.args(words).env("KUBECONFIG", self.folder.join("config"));
        for variable in ["KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "HTTP_PROXY", "NO_COLOR"] {
            command.env_remove(variable);
        }
        let Output { status, stdout, stderr } =
            tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    async fn concertina(&self, words: &[&str]) -> (i32, String, String) {
        self.run(Path::new(env!("CARGO_BIN_EXE_concertina")), words).await
    }
}

impl Drop for ServedCluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_code_reports_findings() {
    let served = ServedCluster::start("codes").await;
    let started = Instant::now();
    let (code, stdout, stderr) = served.concertina(&["why", "web", "-o", "json"]).await;
    let took = started.elapsed().as_secs();
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["sentence"], "stays at 4: queue is at its target of 10 per pod");
    // The server's Date header has whole seconds, both clocks are equal here, and a response may arrive late.
    assert!(answer["clockSkewSeconds"].as_i64().unwrap().unsigned_abs() <= 1 + took, "{answer}");

    let (code, stdout, _) = served.concertina(&["why", "hpa/lost", "--utc"]).await;
    assert_eq!(code, 3, "{stdout}");
    assert!(stdout.contains("lost") && !stdout.contains('\u{1b}'), "{stdout}");

    let (code, stdout, stderr) = served.concertina(&["why", "absent"]).await;
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert_eq!(stderr, "Error: HPA absent not found in namespace shop (existing: lost, web)\n");

    let (code, stdout, stderr) = served.concertina(&["why", "--outputs"]).await;
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("--outputs"), "{stderr}");

    let closed = ["why", "web", "--server", "http://127.0.0.1:1"];
    let (code, _, stderr) = served.concertina(&closed).await;
    assert_eq!(code, 1);
    assert!(stderr.starts_with("Error: cannot read the API server's version: "), "{stderr}");
    let closed = ["why", "web", "--from", "http://127.0.0.1:1"];
    let (code, _, stderr) = served.concertina(&closed).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("failed to read the record of shop/web from http://127.0.0.1:1: "), "{stderr}");
    let (code, stdout, stderr) = served.concertina(&["why", "-n", "typo"]).await;
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "", "No HPAs found in namespace typo\n"));
    let (code, stdout, _) = served.concertina(&["why", "-A"]).await;
    assert_eq!((code, stdout.lines().last()), (3, Some("2 HPAs: 1 error, 1 ok")), "{stdout}");
    let (code, stdout, _) = served.concertina(&["why", "--state=ok"]).await;
    assert_eq!((code, stdout.lines().last()), (0, Some("2 HPAs: 1 error, 1 ok (1 not shown)")), "{stdout}");
    assert!(stdout.contains("web") && !stdout.contains("lost"), "{stdout}");
    let requests = served.cluster.requests().entries();
    assert!(requests.iter().all(|request| matches!(request.verb, "get" | "list")), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colors_are_off_in_a_pipe_unless_forced() {
    let served = ServedCluster::start("colours").await;
    let (_, stdout, _) = served.concertina(&["why", "--color=always"]).await;
    assert!(stdout.contains("\u{1b}["), "{stdout}");
    let (_, stdout, _) = served.concertina(&["why"]).await;
    assert!(!stdout.contains("\u{1b}["), "{stdout}");
    assert!(stdout.lines().next().unwrap().starts_with("STATE"), "{stdout}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interruption_exits_with_130() {
    use std::io::BufRead as _;

    let served = ServedCluster::start("interrupt").await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["why", "web", "--watch"]).env("KUBECONFIG", served.folder.join("config"));
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    let ended = tokio::task::spawn_blocking(move || {
        let mut lines = std::io::BufReader::new(stdout).lines();
        assert!(lines.any(|line| line.unwrap().starts_with("Following changes")));
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        child.wait().unwrap()
    });
    assert_eq!(ended.await.unwrap().code(), Some(130));
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn help_of_the_plugin_names_kubectl() {
    let served = ServedCluster::start("plugin").await;
    let plugin = served.folder.join("kubectl-concertina");
    let _ = fs::remove_file(&plugin);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_concertina"), &plugin).unwrap();
    let (code, stdout, _) = served.run(&plugin, &["why", "--help"]).await;
    assert_eq!(code, 0);
    assert!(stdout.contains("Usage: kubectl concertina why [OPTIONS] [NAME]"), "{stdout}");
    let (code, stdout, _) = served.run(&plugin, &["why", "web"]).await;
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("stays at 4"), "{stdout}");
}
