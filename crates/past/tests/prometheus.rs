//! `concertina advise` against a real Prometheus, which promtool fills with the past of many HPAs in the series of
//! kube-state-metrics and of cAdvisor.
//!
//! `CONCERTINA`, `PROMETHEUS` and `PROMTOOL` name the programs. `ADVISE_HPAS` and `ADVISE_DAYS` set their number and the days, 6 and 4 by default. `CONCERTINA_SERIES` names a folder
//! with recorded loads. `ADVISE_OUTPUT` names a folder that keeps the answer and the page.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and waits for processes"
)]

#[path = "../../../tests/support/services.rs"]
mod services;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use past::advise::recording::{Column, Recording};
use serde_json::{Value, json};

use self::services::{DAY, Past, Service, loads, record};

/// The minutes of a block of Prometheus. promtool reads a whole file for each block.
const BLOCK: usize = 18 * 60;

/// Returns a number from an environment variable.
fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

/// Returns the path of a program, from an environment variable.
fn program(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: see advice in .ci/run"))
}

/// A pod: the number of pods that had its place before, and the seconds of cpu that it has used.
#[derive(Default)]
struct Place {
    pods: usize,
    exists: bool,
    used: f64,
}

/// A workload with its HPA and its past.
struct Workload {
    namespace: String,
    name: String,
    past: Past,
    service: Service,
    recording: Recording,
    places: Vec<Place>,
}

impl Workload {
    fn new(index: usize, days: usize, start: Timestamp, loads: &[Vec<f64>]) -> Self {
        let (past, load) = (Past::of_many(index, days), &loads[index % loads.len()]);
        let service = Service::of_many(index);
        Self {
            namespace: format!("team-{}", index % 10),
            name: format!("web-{index}"),
            past,
            service,
            recording: record(past, service, start, |minute| load[minute]),
            places: Vec::new(),
        }
    }

    fn hpa(&self) -> Value {
        let target = json!({"type": "Utilization", "averageUtilization": self.past.target});
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"namespace": self.namespace, "name": self.name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
                "minReplicas": self.past.min, "maxReplicas": self.past.max,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            },
        })
    }

    /// Writes the samples of a minute: pods and HPAs are scraped once, at different seconds.
    fn write(&mut self, minute: usize, out: &mut dyn Write) -> std::io::Result<()> {
        let at = |column| self.recording.at(column, minute).unwrap_or_default();
        let (count, ready, used) = (at(Column::Replicas), at(Column::Ready), at(Column::Usage));
        let Self { namespace, name, past, .. } = self;
        let time = self.recording.time(minute).as_second();
        let (of_state, rate) = (time + 17, used / ready.max(1.0));
        while (self.places.len() as f64) < count {
            self.places.push(Place::default());
        }
        for (place, pod) in self.places.iter_mut().enumerate() {
            let (exists, is_ready) = ((place as f64) < count, (place as f64) < ready);
            if exists && !pod.exists {
                *pod = Place { pods: pod.pods + 1, exists, used: 0.0 };
            }
            pod.exists = exists;
            if !exists {
                continue;
            }
            // The counter of a container that is restarted starts again.
            if minute % 1000 == place {
                pod.used = 0.0;
            }
            let second = i32::try_from(place * 7 % 60).unwrap();
            let rate = if is_ready { rate } else { 0.0 };
            let used = pod.used + rate * f64::from(second);
            pod.used += rate * 60.0;
            let pods = pod.pods;
            let pod = format!("namespace=\"{namespace}\",pod=\"{name}-6d4f9c-{:05}\"", pods * 100 + place);
            let scraped = time + i64::from(second);
            // The cgroup of a pod has the sum of its containers.
            for container in ["web", ""] {
                writeln!(
                    out,
                    "container_cpu_usage_seconds_total{{{pod},container=\"{container}\"}} {used} {scraped}"
                )?;
            }
            writeln!(
                out,
                "kube_pod_container_resource_requests{{{pod},container=\"web\",resource=\"cpu\"}} {} {of_state}",
                past.request
            )?;
            let is_ready = u8::from(is_ready);
            writeln!(out, "kube_pod_status_ready{{{pod},condition=\"true\"}} {is_ready} {of_state}")?;
        }
        let deployment = format!("namespace=\"{namespace}\",deployment=\"{name}\"");
        writeln!(out, "kube_deployment_created{{{deployment}}} 1000000000 {of_state}")?;
        let replica_set = format!("namespace=\"{namespace}\",replicaset=\"{name}-6d4f9c\"");
        writeln!(out, "kube_replicaset_spec_replicas{{{replica_set}}} {count} {of_state}")?;
        let hpa = format!("namespace=\"{namespace}\",horizontalpodautoscaler=\"{name}\"");
        for (what, more, value) in [
            ("status_current_replicas", "", count),
            ("spec_min_replicas", "", f64::from(past.min)),
            ("spec_max_replicas", "", f64::from(past.max)),
            (
                "spec_target_metric",
                ",metric_name=\"cpu\",metric_target_type=\"utilization\"",
                f64::from(past.target),
            ),
        ] {
            writeln!(out, "kube_horizontalpodautoscaler_{what}{{{hpa}{more}}} {value} {of_state}")?;
        }
        Ok(())
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed at the end.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Fills the data of Prometheus, one block after another.
fn fill(data: &Path, workloads: &mut [Workload], start: Timestamp, minutes: usize) {
    let samples = data.with_extension("txt");
    let first = usize::try_from(start.as_second() / 60).unwrap();
    let mut from = 0;
    while from < minutes {
        let to = (from + BLOCK - (first + from) % BLOCK).min(minutes);
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&samples).unwrap());
        for workload in workloads.iter_mut() {
            for minute in from..to {
                workload.write(minute, &mut out).unwrap();
            }
        }
        writeln!(out, "# EOF").unwrap();
        drop(out);
        let made = Command::new(program("PROMTOOL"))
            .args(["tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=18h"])
            .args([&samples, data])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        from = to;
    }
    std::fs::remove_file(samples).unwrap();
}

/// Starts Prometheus on its data. Returns it with its URL.
fn serve(folder: &Path, data: &Path) -> (Server, String) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = folder.join("prometheus.yml");
    std::fs::write(&settings, "{}").unwrap();
    let process = Command::new(program("PROMETHEUS"))
        .arg(format!("--config.file={}", settings.display()))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .args(["--storage.tsdb.retention.time=60d", &format!("--web.listen-address=127.0.0.1:{port}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server(process);
    // The port is open before the blocks are loaded, but queries wait for them.
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(50));
    }
    (server, format!("http://127.0.0.1:{port}"))
}

/// What a process needed: the highest memory in MB, and the seconds of processors.
fn usage(process: u32) -> Option<(f64, f64)> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let memory: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let times = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = times.rsplit_once(')')?;
    let times: Vec<f64> = fields.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    Some((memory / 1024.0, times.iter().sum::<f64>() / 100.0))
}

/// Runs the command. Returns its answer, and what it needed.
fn advise(folder: &Path, url: &str, days: usize) -> (Value, String) {
    let (answer, hpas) = (folder.join("answer.json"), folder.join("hpas.json"));
    let start = Instant::now();
    let mut process = Command::new(program("CONCERTINA"))
        .args(["advise", "--prometheus", url, "-o", "json", "--days", &days.to_string(), "-f"])
        .args([hpas.as_path(), Path::new("--report"), &folder.join("advice.html")])
        .stdout(File::create(&answer).unwrap())
        .spawn()
        .unwrap();
    let mut used = (0.0, 0.0);
    let status = loop {
        used = usage(process.id()).unwrap_or(used);
        match process.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(status.success(), "{status}");
    let text =
        format!("{:.0} s, {:.0} s of processors, {:.0} MB", start.elapsed().as_secs_f64(), used.1, used.0);
    (serde_json::from_slice(&std::fs::read(answer).unwrap()).unwrap(), text)
}

#[test]
#[ignore = "needs CONCERTINA, PROMETHEUS and PROMTOOL: see advice in .ci/run"]
fn advice_from_a_real_prometheus_saves_what_it_predicts() {
    let (count, days) = (number("ADVISE_HPAS", 6), number("ADVISE_DAYS", 4));
    let kept = std::env::var_os("ADVISE_OUTPUT").map(PathBuf::from);
    let work = Folder(std::env::temp_dir().join(format!("concertina-advise-{}", std::process::id())));
    let folder = kept.as_deref().unwrap_or(&work.0);
    std::fs::create_dir_all(&work.0).unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let minutes = days * DAY;
    let now = Timestamp::now().as_second().div_euclid(60) * 60;
    let start =
        Timestamp::from_second(now).unwrap() - SignedDuration::from_mins(i64::try_from(minutes).unwrap());
    let loads = loads(minutes, 6.0);
    let began = Instant::now();
    let mut workloads: Vec<_> = (0..count).map(|index| Workload::new(index, days, start, &loads)).collect();
    let hpas: Vec<_> = workloads.iter().map(Workload::hpa).collect();
    std::fs::write(folder.join("hpas.json"), json!({"kind": "List", "items": hpas}).to_string()).unwrap();
    let data = work.0.join("data");
    fill(&data, &mut workloads, start, minutes);
    println!("{count} HPAs with {days} days: {:.0} s to fill Prometheus", began.elapsed().as_secs_f64());
    let (_server, url) = serve(&work.0, &data);
    let (answer, needed) = advise(folder, &url, days);
    println!("advise: {needed}");
    let rows = answer["hpas"].as_array().unwrap();
    assert_eq!(rows.len(), count);
    assert_eq!(answer["lacked"], json!([]));
    let mut worse = Vec::new();
    for service in Service::ALL {
        let (mut hpas, mut advised, mut near, mut hours) = (0, 0, 0, [0.0, 0.0]);
        let mut refused = BTreeMap::<&str, u32>::new();
        for workload in workloads.iter().filter(|workload| workload.service == service) {
            let row = rows.iter().find(|row| row["name"] == workload.name.as_str()).unwrap();
            hpas += 1;
            if let Some(reason) = row["refused"]["reason"].as_str() {
                *refused.entry(reason).or_default() += 1;
                continue;
            }
            let measured =
                |part: &str, run: &str, field: &str| row["advice"][part][run][field].as_f64().unwrap();
            let saved =
                |part| measured(part, "today", "podHoursAWeek") - measured(part, "advised", "podHoursAWeek");
            let share = |part| saved(part) / measured(part, "today", "podHoursAWeek");
            advised += 1;
            near += u32::from((share("fitted") - share("judged")).abs() <= 0.1);
            hours[0] += saved("fitted");
            hours[1] += saved("judged");
            let unserved = |run| measured("judged", run, "unservedPpm");
            if unserved("advised") > 1.02 * unserved("today") + 5.0 {
                worse.push(workload.name.as_str());
            }
        }
        println!(
            "{service:?}: {hpas} HPAs, {advised} advised, {near} of them within 10 points; pod-hours a week \
             predicted {:.0}, judged {:.0}; refused {refused:?}",
            hours[0], hours[1]
        );
        // What Prometheus has is what was recorded.
        for unknown in ["noUsage", "noRequests", "tooShort", "rollout", "requestsChanged", "unreadable"] {
            assert!(!refused.contains_key(unknown), "{service:?}: {refused:?}");
        }
    }
    assert!(worse.is_empty(), "{worse:?}");
    assert!(rows.iter().any(|row| !row["advice"].is_null()), "{answer}");
}
