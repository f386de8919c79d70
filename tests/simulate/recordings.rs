//! Recordings of kube-controller-manager, expressed as scenarios. A recording and its scenario must lead to the same
//! decisions.
//!
//! A recording sets the state for each sync freely. In a scenario, the pods follow the desired count. The test
//! therefore uses a recording only up to the first sync that a scenario cannot have. The HPA must scale a workload on a
//! single metric (cpu in percent). All pods must run, be ready, and have samples. Their number must match the count of
//! the target, and only the decisions may change the count.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use autoscaling::duration::GoDuration;
use autoscaling::quantity::Quantity;
use jiff::Timestamp;
use serde_json::Value;

use crate::{only, run_scenario};

/// The request of each pod, in cores. It is so large that rounding to millicores does not matter.
const REQUEST: f64 = 1_000.0;
/// The minimum number of recordings. A smaller number means that the search for recordings failed.
const FEWEST: usize = 15;

/// Upper bound of the total duration of a scenario's syncs, in seconds. It is less than a period.
const DRIFT: f64 = 10.0;

/// One sync of a recording that a scenario can have.
struct Sync {
    replicas: i64,
    /// Usage divided by request.
    utilization: f64,
    /// The desired count of kube-controller-manager.
    wanted: i64,
    /// The utilization in percent in the status that kube-controller-manager wrote.
    percent: Option<f64>,
}

#[test]
fn recordings_and_scenarios_lead_to_the_same_decisions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let (mut run_count, mut syncs) = (0, 0);
    for version in ["1.36", "1.37", "1.38"] {
        let mut files: Vec<_> =
            std::fs::read_dir(folder.join(version)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.is_file());
        files.sort();
        for file in files {
            for recording in lines(&file) {
                let expressed = expressed(&recording);
                if !expressed.is_empty() {
                    check(&recording, &expressed);
                    run_count += 1;
                    syncs += expressed.len();
                }
            }
        }
    }
    println!("{run_count} recordings, {syncs} syncs");
    assert!(run_count >= FEWEST, "found only {run_count} recordings that a scenario can express");
}

fn lines(file: &Path) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs the expressible part of a recording and compares each sync.
fn check(recording: &Value, syncs: &[Sync]) {
    let name = recording["name"].as_str().unwrap();
    let comparison = run_scenario(&format!("recording-{name}.yaml"), &scenario(recording, syncs));
    let run = only(&comparison);
    for (number, sync) in syncs.iter().enumerate() {
        let got = (i64::from(run.samples[number].wanted), run.metrics[0].values[number]);
        assert_eq!(got, (sync.wanted, sync.percent), "{name}, sync {number}: wanted count and percent");
    }
}

/// Returns the syncs of a recording before the first sync with a state that a scenario cannot have.
fn expressed(recording: &Value) -> Vec<Sync> {
    let all = recording["syncs"].as_array().unwrap();
    let spec = &all[0]["object"]["spec"];
    let metrics = spec["metrics"].as_array().map_or(&[][..], Vec::as_slice);
    let is_cpu = |metric: &Value| {
        metric["resource"]["name"] == "cpu" && metric["resource"]["target"]["type"] == "Utilization"
    };
    let kind = spec["scaleTargetRef"]["kind"].as_str().unwrap_or_default();
    let is_alone = all.iter().all(|sync| sync["hpa"] == all[0]["hpa"]);
    if !is_alone
        || metrics.len() != 1
        || !is_cpu(&metrics[0])
        || !["Deployment", "StatefulSet"].contains(&kind)
    {
        return Vec::new();
    }
    let mut world = BTreeMap::new();
    let mut syncs: Vec<Sync> = Vec::new();
    let period = duration(&recording["config"]["syncPeriod"]);
    for (number, sync) in all.iter().enumerate() {
        let is_in_step = number == 0 || {
            let [before, now] = [&all[number - 1]["at"], &sync["at"]].map(time);
            now - before == period && !sync["object"].is_object()
        };
        for (field, value) in sync["world"].as_object().into_iter().flatten() {
            world.insert(field.as_str(), value);
        }
        let Some((replicas, utilization)) = state(&world, time(&sync["at"])).filter(|_| is_in_step) else {
            break;
        };
        if syncs.last().is_some_and(|before| before.wanted != replicas) {
            break;
        }
        let expect = &sync["expect"];
        let wanted = expect["scaleWrites"][0]["replicas"].as_i64().unwrap_or(replicas);
        let percent = &expect["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"];
        syncs.push(Sync { replicas, utilization, wanted, percent: percent.as_f64() });
    }
    syncs
}

/// Returns the number of replicas and the utilization. Returns `None` for a state with a fault or a special case.
fn state(world: &BTreeMap<&str, &Value>, now: f64) -> Option<(i64, f64)> {
    let [target] = world.get("targets")?.as_array()?.as_slice() else { return None };
    let pods = world.get("pods")?.as_array()?;
    let replicas = i64::try_from(pods.len()).unwrap();
    let is_plain = target["getFault"].is_null()
        && target["putFaults"].is_null()
        && world.get("statusPutFaults").is_none_or(|faults| faults.is_null());
    if !is_plain
        || target["specReplicas"] != replicas
        || target["statusReplicas"] != replicas
        || replicas == 0
    {
        return None;
    }
    let samples = world.get("resourceMetrics")?["items"].as_array()?;
    let (mut used, mut requested) = (0.0, 0.0);
    for pod in pods {
        let sample = samples.iter().find(|sample| sample["metadata"]["name"] == pod["metadata"]["name"])?;
        used += cpu(&sample["containers"], "usage")?;
        requested += cpu(&pod["spec"]["containers"], "requests")?;
        if !is_settled(pod, sample, now) {
            return None;
        }
    }
    Some((replicas, used / requested))
}

/// Returns whether a pod runs and is ready, and the decision uses its sample.
fn is_settled(pod: &Value, sample: &Value, now: f64) -> bool {
    let (status, spec) = (&pod["status"], &pod["spec"]);
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    let Some(ready) = ready.filter(|ready| ready["status"] == "True") else { return false };
    let window_start = time(&sample["timestamp"]) - duration(&sample["window"]);
    status["phase"] == "Running"
        && pod["metadata"]["deletionTimestamp"].is_null()
        && spec["resources"].is_null()
        && spec["initContainers"].is_null()
        && status["startTime"].is_string()
        && (now > time(&status["startTime"]) + 300.0 || window_start >= time(&ready["lastTransitionTime"]))
}

/// Returns the sum over the containers, in cores. Returns `None` if a container has no value.
fn cpu(containers: &Value, field: &str) -> Option<f64> {
    let amount = |container: &Value| {
        let amounts = if field == "usage" { &container["usage"] } else { &container["resources"][field] };
        Some(amounts["cpu"].as_str()?.parse::<Quantity>().ok()?.as_f64())
    };
    containers.as_array()?.iter().map(amount).sum()
}

fn time(value: &Value) -> f64 {
    let time: Timestamp = value.as_str().unwrap().parse().unwrap();
    time.as_nanosecond() as f64 / 1e9
}

fn duration(value: &Value) -> f64 {
    value.as_str().unwrap().parse::<GoDuration>().unwrap().0 as f64 / 1e9
}

/// Builds the scenario: pods that start at once, metrics without delay, and a load that changes between two syncs.
///
/// A recorded sync has no length. In a scenario, it has, so the n-th sync is later than n periods. Without `behavior`,
/// a recommendation as old as the window still counts, so the window is longer by [`DRIFT`].
fn scenario(recording: &Value, syncs: &[Sync]) -> String {
    let config = &recording["config"];
    let period = duration(&config["syncPeriod"]);
    let object = &recording["syncs"][0]["object"];
    let gates: Vec<_> = config["featureGates"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(gate, on)| format!("{gate}={on}"))
        .collect();
    let mut points = String::new();
    for (number, sync) in syncs.iter().enumerate() {
        let cores = sync.utilization * REQUEST * sync.replicas as f64;
        // The load is a step curve. Each value applies until the next point.
        let at = if number == 0 { 0.0 } else { period * (number as f64 - 1.0) + DRIFT };
        write!(points, "{{at: {at}s, value: {cores:.6}}}, ").unwrap();
    }
    let hpa = serde_json::json!({"metadata": {"name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"]}, "spec": object["spec"]});
    let target = &object["spec"]["scaleTargetRef"]["name"];
    let [mut stabilization, initialization, readiness, sync_period] =
        ["downscaleStabilization", "cpuInitializationPeriod", "initialReadinessDelay", "syncPeriod"]
            .map(|field| config[field].as_str().unwrap().to_owned());
    if object["spec"]["behavior"].is_null() {
        stabilization = format!("{}s", duration(&config["downscaleStabilization"]) + DRIFT);
    }
    format!(
        "duration: {}s
flags:
  emulated-version: {}
  feature-gates: \"{}\"
  horizontal-pod-autoscaler-tolerance: {}
  horizontal-pod-autoscaler-downscale-stabilization: {stabilization}
  horizontal-pod-autoscaler-cpu-initialization-period: {initialization}
  horizontal-pod-autoscaler-initial-readiness-delay: {readiness}
  horizontal-pod-autoscaler-sync-period: {sync_period}
hpas: [{hpa}]
workloads:
  - {{name: {target}, replicas: {}, containers: [{{requests: {{cpu: {REQUEST}}}}}], startup: 0s, skew: 0, cpu: {{base: 0}}}}
load:
  - cpu: {{points: [{points}], steps: true}}
    capacityPerPod: 1000000
metrics: {{scrapeInterval: 1s}}
",
        period * syncs.len() as f64,
        recording["emulatedVersion"],
        gates.join(","),
        config["tolerance"],
        syncs[0].replicas,
    )
}
