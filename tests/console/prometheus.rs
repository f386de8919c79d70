//! The form `What if`, with the history of a metric in a real Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::one_hpa::{SIMULATED, click, fill, open, picture};
use super::record::{deployment, documents, now, web};
use super::{World, assert_quiet, wait};

/// Seconds between two samples.
const INTERVAL: i64 = 30;
/// The age of the first sample, in minutes.
const OLDEST: i64 = 25 * 60;

/// A Prometheus with the history of two series of the same name. Dropping it kills the program.
struct Prometheus {
    url: String,
    folder: PathBuf,
    _process: Child,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the path of a program, from an environment variable.
fn program(variable: &str, name: &str) -> String {
    let advice = format!("{variable} is not set: run tests/prometheus/build.sh {name}");
    std::env::var(variable).expect(&advice)
}

/// Returns the number of jobs at an instant: 300 between 40 and 55 minutes ago, and 40 at any other time. The record
/// lacks this peak.
fn jobs(at: Timestamp) -> u32 {
    match now().duration_since(at).as_secs() / 60 {
        40..55 => 300,
        _ => 40,
    }
}

impl Prometheus {
    async fn start() -> Self {
        let folder =
            std::env::temp_dir().join(format!("concertina-console-prometheus-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (data, samples) = (folder.join("data"), folder.join("samples.txt"));
        std::fs::write(&samples, samples_of_the_past()).unwrap();
        let made = Command::new(program("PROMTOOL", "promtool"))
            .args(["tsdb", "create-blocks-from", "openmetrics", "--quiet"])
            .args([&samples, &data])
            .output()
            .await
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::write(folder.join("prometheus.yml"), "{}").unwrap();
        let process = Command::new(program("PROMETHEUS", "prometheus"))
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // The port is open before the blocks are loaded, but queries wait for them.
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Self { url: format!("http://127.0.0.1:{port}"), folder, _process: process }
    }

    /// Writes the file for `--metric-sources-file`. Returns its path.
    fn sources(&self) -> PathBuf {
        let path = self.folder.join("sources.yaml");
        let server = json!({"name": "main", "url": self.url, "enforceNamespaceLabel": "namespace"});
        std::fs::write(&path, json!({"prometheus": [server]}).to_string()).unwrap();
        path
    }
}

/// Returns the jobs of two namespaces as OpenMetrics text, for `promtool`.
fn samples_of_the_past() -> String {
    let mut text = "# TYPE jobs gauge\n".to_owned();
    for (namespace, factor) in [("shop", 1), ("bank", 1_000)] {
        let first = now() - SignedDuration::from_mins(OLDEST);
        for step in 0..OLDEST * 60 / INTERVAL {
            let at = first + SignedDuration::from_secs(step * INTERVAL);
            let value = jobs(at) * factor;
            let _ =
                writeln!(text, "jobs{{namespace=\"{namespace}\",app=\"web\"}} {value} {}", at.as_second());
        }
    }
    text + "# EOF\n"
}

/// Returns `shop/web`, with a target of ten jobs per replica. Its policy reads the jobs from Prometheus.
fn web_on_jobs() -> Value {
    let policy = "metrics: [{metric: jobs, prometheus: {server: main, query: 'sum(jobs{app=\"$name\"})'}}]";
    let mut web = web();
    web["status"]["currentReplicas"] = 4.into();
    web["status"]["desiredReplicas"] = 4.into();
    web["metadata"]["annotations"] = json!({"concertina.dev/policy": policy});
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    web["spec"]["metrics"] =
        json!([{"type": "External", "external": {"metric": {"name": "jobs"}, "target": target}}]);
    web["status"]["currentMetrics"] = json!([
        {"type": "External", "external": {"metric": {"name": "jobs"}, "current": {"averageValue": "10"}}}
    ]);
    web
}

/// Returns a record with four replicas and 40 jobs, without a change.
fn record() -> BTreeMap<String, Value> {
    let mut documents = documents();
    let decisions = documents.get_mut("/decisions/shop/web").unwrap();
    let first = decisions["decisions"].as_array().unwrap().last().unwrap()["firstAt"].clone();
    let mut entry = decisions["decisions"][0].clone();
    for (field, value) in [
        ("firstAt", first),
        ("sentence", "stays at 4: jobs is at its target of 10 per pod".into()),
        ("limitingStep", Value::Null),
        ("winner", "jobs".into()),
        ("from", 4.into()),
        ("to", 4.into()),
    ] {
        entry[field] = value;
    }
    let explanation = &mut entry["explanation"];
    for field in ["current", "statusReplicas", "desired", "proposal"] {
        explanation[field] = 4.into();
    }
    let metric = &mut explanation["metrics"][0]["valid"];
    metric["subject"] = json!({"type": "External", "name": "jobs"});
    metric["name"] = "external metric jobs(nil)".into();
    metric["target"] = json!({"milliPerPod": 10_000});
    metric["value"] = json!({"milliPerPod": 10_000});
    metric["unlisted"] = json!([]);
    metric["proposal"] = 4.into();
    decisions["decisions"] = json!([entry]);
    documents
}

/// Simulates a higher maximum with the record, which lacks the peak, and with the history of the metric in Prometheus.
/// Writes a picture to the folder that `PICTURES` names.
#[tokio::test]
#[ignore = "needs Chromium, PROMETHEUS and PROMTOOL: run tests/prometheus/build.sh for both"]
async fn what_if_plays_the_past_of_a_real_prometheus() {
    let prometheus = Prometheus::start().await;
    let flag = format!("--metric-sources-file={}", prometheus.sources().display());
    // 300 jobs need 30 replicas. With the tolerance, 28 replicas suffice.
    for (name, flags, origin, peaks) in [
        ("record", &[][..], "The load of jobs comes from the record of the controller.", 4..=4),
        ("prometheus", &[flag.as_str()][..], "The load of jobs comes from Prometheus server main.", 28..=33),
    ] {
        let world = World::recorded(name, [deployment("web", 4), web_on_jobs()], record(), flags).await;
        let mut browser = world.open(&format!("what-if-{name}"), 1280, 1250).await;
        open(&mut browser).await;
        click(&mut browser, "details.card > summary").await;
        fill(&mut browser, "max", "40").await;
        click(&mut browser, ".whatif [type=submit]").await;
        wait(&mut browser, SIMULATED).await;
        let text = browser.evaluate("document.querySelector('.result').innerText").await;
        let text = text.as_str().unwrap();
        assert!(text.contains(origin), "{text}");
        let cell = "(() => { const table = document.querySelector('.result table'); \
             const column = [...table.tHead.rows[0].cells].findIndex((it) => it.innerText === 'peak'); \
             return [...table.tBodies[0].rows].at(-1).cells[column].innerText })()";
        let peak = browser.evaluate(cell).await;
        let peak: i32 = peak.as_str().unwrap().parse().unwrap();
        assert!(peaks.contains(&peak), "{peak}: {text}");
        if let Ok(folder) = std::env::var("PICTURES") {
            browser.evaluate("document.querySelector('.result').scrollIntoView()").await;
            picture(&mut browser, Path::new(&folder), &format!("console-whatif-{name}")).await;
        }
        assert_quiet(&browser, &world);
        browser.stop().await;
    }
}
