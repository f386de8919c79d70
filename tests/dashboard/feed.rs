//! The demo, a shadow of its controller, a controller of a second cluster that does not act, and a Prometheus that
//! scrapes all of them.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use crate::outcome::{Context, Outcome, Process, ensure, eventually};
use crate::rest::{Rest, collection};

/// The seconds that the dashboard shows.
pub(crate) const SECONDS: f64 = 75.0;
/// A sync period of one second, and the windows of the demo.
const PERIODS: [&str; 4] = [
    "--horizontal-pod-autoscaler-sync-period=1s",
    "--horizontal-pod-autoscaler-downscale-stabilization=6s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=5s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=2s",
];

pub(crate) struct Feed {
    pub(crate) prometheus: Rest,
    /// The page with the decisions of the demo's controller.
    pub(crate) decisions: Rest,
    tasks: Vec<JoinHandle<()>>,
    _processes: Vec<Process>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Feed {
    pub(crate) async fn start(folder: &Path) -> Outcome<Self> {
        let program = std::env::var_os("PROMETHEUS")
            .ok_or("PROMETHEUS is not set: run tests/prometheus/build.sh prometheus")?;
        let [api, second, demo, holding, shadow, limits, port] = free_ports()?;
        let concertina = || Command::new(env!("CARGO_BIN_EXE_concertina"));
        let mut processes = Vec::new();
        let mut clusters = Vec::new();
        for (name, api, flags) in
            [("demo", api, vec![format!("--metrics-port={demo}")]), ("second", second, Vec::new())]
        {
            let mut command = concertina();
            command.arg("demo").args(flags).arg(format!("--port={api}"));
            command.arg(format!("--write-kubeconfig={}", folder.join(name).display()));
            processes.push(Process::start(name, command, folder)?);
            let cluster = rest(api)?;
            let served = async || cluster.list("/apis/autoscaling/v2/horizontalpodautoscalers").await;
            eventually(Duration::from_mins(1), "the demo serves its HPAs", served).await?;
            let namespace = if name == "demo" { "shop" } else { "other" };
            for object in more_objects(namespace) {
                cluster.create(&collection(&object), &object).await?;
            }
            clusters.push(cluster);
        }
        let [cluster, second] = clusters.try_into().map_err(|_| "two clusters")?;
        for (name, port, kubeconfig, flags) in [
            (
                "holding",
                holding,
                "second",
                &["--watch-namespaces=other", "--leader-elect-resource-namespace=other"][..],
            ),
            ("shadow", shadow, "demo", &["--dry-run"]),
        ] {
            let mut command = concertina();
            command.arg("controller").args(PERIODS).args(flags).args([
                format!("--kubeconfig={}", folder.join(kubeconfig).display()),
                "--secure-port=0".to_owned(),
                format!("--health-address=127.0.0.1:{port}"),
            ]);
            processes.push(Process::start(name, command, folder)?);
        }
        let pods = [("concertina", demo), ("concertina-holding", holding), ("concertina-shadow", shadow)];
        let configuration = folder.join("prometheus.yml");
        fs::write(&configuration, scrape_configuration(folder, &pods, limits)?.to_string())?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        processes.push(Process::start("prometheus", command, folder)?);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", limits)).await?;
        let tasks = vec![tokio::spawn(serve_limits(listener, cluster)), tokio::spawn(write_statuses(second))];
        Ok(Self { prometheus: rest(port)?, decisions: rest(demo)?, tasks, _processes: processes })
    }

    /// Waits until Prometheus has enough samples. Returns the first and the last second to show.
    pub(crate) async fn collect(&self) -> Outcome<(f64, f64)> {
        let query = r#"min(count_over_time(up{job="concertina"}[10m])) > 0 and on () min(up) == 1"#;
        eventually(Duration::from_mins(5), "Prometheus has samples of all targets", async || {
            let found = self.query(query).await?;
            let count = found.first().and_then(|found| found["value"][1].as_str()?.parse::<f64>().ok());
            ensure(count > Some(SECONDS + 5.0), || format!("{count:?} samples"))
        })
        .await?;
        let answer = self.prometheus.get("/api/v1/query?query=time()").await?;
        let now = answer["data"]["result"][0].as_f64().context_of("the time of Prometheus")?;
        Ok((now - SECONDS, now))
    }

    /// Evaluates an expression now.
    pub(crate) async fn query(&self, expression: &str) -> Outcome<Vec<Value>> {
        self.result(&format!("/api/v1/query?query={}", encoded(expression))).await
    }

    /// Evaluates an expression at each step, such as `1s`.
    pub(crate) async fn range(
        &self,
        expression: &str,
        from: f64,
        to: f64,
        step: &str,
    ) -> Outcome<Vec<Value>> {
        let query = encoded(expression);
        self.result(&format!("/api/v1/query_range?query={query}&start={from}&end={to}&step={step}")).await
    }

    async fn result(&self, path: &str) -> Outcome<Vec<Value>> {
        let answer = self.prometheus.get(path).await?;
        ensure(answer.get("warnings").is_none(), || format!("{answer}"))?;
        let result = answer["data"]["result"].as_array().cloned();
        result.ok_or_else(|| format!("not a vector or matrix: {answer}").into())
    }

    /// Returns the values of a variable `label_values(SELECTOR, LABEL)`.
    pub(crate) async fn values(&self, query: &str) -> Outcome<Vec<Value>> {
        let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (selector, label) = inner.and_then(|inner| inner.rsplit_once(", ")).context_of(query)?;
        let path = format!("/api/v1/label/{label}/values?match[]={}", encoded(selector));
        let answer = self.prometheus.get(&path).await?;
        Ok(answer["data"].as_array().cloned().unwrap_or_default())
    }
}

/// Turns a missing part of a text into an error.
trait ContextOf<T> {
    fn context_of(self, text: &str) -> Outcome<T>;
}

impl<T> ContextOf<T> for Option<T> {
    fn context_of(self, text: &str) -> Outcome<T> {
        self.ok_or_else(|| format!("cannot read {text}").into())
    }
}

fn rest(port: u16) -> Outcome<Rest> {
    Rest::new(&format!("http://127.0.0.1:{port}"), "")
}

fn free_ports<const N: usize>() -> Outcome<[u16; N]> {
    let mut ports = [0; N];
    // All listeners exist at once, so that the ports differ.
    let mut listeners = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

/// Returns a Deployment with an HPA whose metric does not exist. For the namespace of the demo, also returns an HPA
/// that needs more than its maximum. For any other namespace, also returns the Namespace object.
fn more_objects(namespace: &str) -> Vec<Value> {
    let hpa = |name: &str, metric: Value| {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1, "maxReplicas": 3, "metrics": [metric],
            },
        })
    };
    let labels = json!({"app": "orders"});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "orders", "namespace": namespace},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "orders", "image": "shop/orders:1"}]},
                },
            },
        }),
        hpa(
            "orders",
            json!({"type": "Pods", "pods": {
                "metric": {"name": "missing"}, "target": {"type": "AverageValue", "averageValue": "5"},
            }}),
        ),
        hpa(
            "cache",
            json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 10},
            }}),
        ),
    ];
    if namespace == "shop" {
        objects.remove(0);
    } else {
        objects.pop();
    }
    objects
}

/// Writes the status of an HPA as the built-in controller, until the task is aborted.
async fn write_statuses(cluster: Rest) {
    let path = "/apis/autoscaling/v2/namespaces/other/horizontalpodautoscalers/orders/status";
    let path = format!("{path}?fieldManager=kube-controller-manager");
    let mut ticks = tokio::time::interval(Duration::from_millis(700));
    for count in (2..4).cycle() {
        ticks.tick().await;
        let status = json!({"status": {"currentReplicas": count, "desiredReplicas": count}});
        // The next write replaces a failed write.
        let _ = cluster.merge(&path, &status).await;
    }
}

/// Creates the scrape configuration, with the labels that the ServiceMonitor sets, and the shipped rules. The format is
/// JSON, which is also YAML.
fn scrape_configuration(folder: &Path, pods: &[(&str, u16)], limits: u16) -> Outcome<Value> {
    let targets: Vec<_> = pods
        .iter()
        .map(|(service, port)| {
            let labels = json!({
                "cluster": if *service == "concertina-holding" { "second" } else { "demo" },
                "namespace": "concertina-system", "service": service,
                "pod": format!("{service}-0"),
            });
            json!({"targets": [format!("127.0.0.1:{port}")], "labels": labels})
        })
        .collect();
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/helm/concertina/files");
    let read = |name: &str| -> Outcome<Value> {
        serde_saphyr::from_str(&fs::read_to_string(format!("{files}/{name}"))?).context(name)
    };
    let mut rules = read("prometheus-rule.yaml")?["spec"].take();
    rules["groups"].as_array_mut().ok_or("no groups")?.push(read("hpa-rules.yaml")?);
    let file = folder.join("rules.json");
    fs::write(&file, rules.to_string())?;
    Ok(json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "5s"},
        "rule_files": [file],
        "scrape_configs": [
            {"job_name": "concertina", "honor_labels": true, "static_configs": targets},
            {"job_name": "kube-state-metrics", "static_configs": [
                {"targets": [format!("127.0.0.1:{limits}")], "labels": {"cluster": "demo"}},
            ]},
        ],
    }))
}

/// Serves minReplicas and maxReplicas of the cluster's HPAs in the form of kube-state-metrics, which is not part of the
/// test.
async fn serve_limits(listener: tokio::net::TcpListener, cluster: Rest) {
    while let Ok((mut client, _)) = listener.accept().await {
        let hpas = cluster.list("/apis/autoscaling/v2/horizontalpodautoscalers").await.unwrap_or_default();
        let mut page = String::new();
        for (metric, field) in [("max", "maxReplicas"), ("min", "minReplicas")] {
            for hpa in &hpas {
                let (name, namespace) = (&hpa["metadata"]["name"], &hpa["metadata"]["namespace"]);
                let value = hpa["spec"][field].as_i64().unwrap_or(1);
                let _ = writeln!(
                    page,
                    "kube_horizontalpodautoscaler_spec_{metric}_replicas{{horizontalpodautoscaler={name},\
                     namespace={namespace}}} {value}"
                );
            }
        }
        let _ = client.read(&mut [0; 4096]).await;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
        let answer = format!("{head}Content-Length: {}\r\n\r\n{page}", page.len());
        let _ = client.write_all(answer.as_bytes()).await;
    }
}

/// Encodes a text for the query of a URL.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
