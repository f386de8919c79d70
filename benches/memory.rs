//! Memory of cached pods, HPAs and policies and of the record of decisions, and the time of their operations: `cargo
//! bench --bench memory`.
//!
//! - pods: 50,000 pods of 5,000 ReplicaSets in 50 namespaces, with 2 containers and 5 labels each, and 5,000 HPAs
//! - clusters: 1,000 and 10,000 HPAs with 15 pods each
//! - record: 10,000 HPAs with two metrics and 15 pods each
//! - policies: 1,000 ScalingPolicies for 10,000 HPAs
//!
//! Bytes are the growth of the resident memory of the process, so they include the overhead of the allocator. The
//! benchmark needs Linux, because it reads `/proc`.

#[path = "memory/objects.rs"]
mod objects;
#[path = "memory/record.rs"]
mod record;

use std::borrow::Cow;
use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;

use autoscaling::pod::{ConditionStatus, Phase, ReadyCondition};
use autoscaling::quantity::Quantity;
use autoscaling::selector::Selector;
use cluster::decode;
use cluster::status::StatusTarget;
use cluster::watch::{Sink as _, Watched as _};
use engine::reconcile::PodIntake;
use engine::store::{ContainerInput, HpaRecord, Hpas, Key, Overlap, PodInput, Pods};
use jiff::Timestamp;
use rulebook::{GROUP, Kind, Policies, VERSION};
use serde_json::json;
use tokio::time::Instant;

/// The environment variable that selects the part to measure.
const PART: &str = "MEMORY_BENCH_PART";
const NAMESPACES: usize = 50;
const SETS: usize = 100;
const PODS: usize = 10;

/// The maximum memory per pod, in bytes.
const BYTES_PER_POD: usize = 400;

/// Runs each part in a separate process, because freed memory of one part would hide the growth of the next part.
fn main() -> Result<(), Box<dyn Error>> {
    match std::env::var(PART).as_deref() {
        Ok("pods") => return measure_pods(),
        Ok("small") => return measure_cluster(1_000),
        Ok("large") => return measure_cluster(10_000),
        Ok("time") => return measure_times(),
        Ok("record") => return record::measure(false),
        Ok("policies") => return measure_policies(),
        Ok("changing") => return record::measure(true),
        _ => {}
    }
    for part in ["pods", "small", "large", "time", "record", "changing", "policies"] {
        let status = Command::new(std::env::current_exe()?).env(PART, part).status()?;
        if !status.success() {
            return Err(format!("part {part}: {status}").into());
        }
    }
    Ok(())
}

fn measure_pods() -> Result<(), Box<dyn Error>> {
    let (pods, overlap) = (Pods::new(), Overlap::new());
    let requests = [
        (Cow::Borrowed("cpu"), "250m".parse::<Quantity>()?),
        (Cow::Borrowed("memory"), "512Mi".parse::<Quantity>()?),
    ];
    let start = "2026-03-01T10:00:00Z".parse::<Timestamp>()?;
    let count = NAMESPACES * SETS * PODS;

    let before = resident_bytes()?;
    let started = Instant::now();
    pods.begin(None);
    list(&pods, &requests, start);
    pods.finish(None);
    let listed = started.elapsed();
    let bytes = resident_bytes()?.saturating_sub(before) / count;
    println!("{count} pods: {bytes} B each; {:.2} µs each to list", micros(listed) / count as f64);

    let started = Instant::now();
    list(&pods, &requests, start);
    println!("unchanged pod: {:.2} µs", micros(started.elapsed()) / count as f64);

    let mut hpas = Vec::new();
    for (namespace, set) in all_sets() {
        let selector = Arc::new(Selector::parse(&format!("app.kubernetes.io/name={}", app(set)))?);
        hpas.push((Key::new(namespace_name(namespace), app(set)), selector));
    }
    for round in ["first", "next"] {
        let started = Instant::now();
        let shared: usize =
            hpas.iter().map(|(hpa, selector)| overlap.claim(hpa, selector, &pods).len()).sum();
        let each = micros(started.elapsed()) / hpas.len() as f64;
        println!("{} HPAs: {each:.2} µs for the {round} claim, {shared} holders", hpas.len());
    }
    let started = Instant::now();
    let selected: usize =
        hpas.iter().map(|(hpa, selector)| pods.select(&hpa.namespace, selector).len()).sum();
    println!("select: {:.2} µs, {selected} pods", micros(started.elapsed()) / hpas.len() as f64);

    for (hpa, _) in &hpas {
        overlap.release(hpa, &pods);
    }
    pods.begin(None);
    pods.finish(None);
    println!("remaining after all objects are deleted: {:?}", pods.stats());
    if bytes > BYTES_PER_POD {
        return Err(format!("{bytes} B per pod is more than {BYTES_PER_POD}").into());
    }
    Ok(())
}

fn list(pods: &Pods, requests: &[(Cow<'_, str>, Quantity)], start: Timestamp) {
    let containers = ["main", "sidecar"].map(|name| ContainerInput { name, restartable: false, requests });
    for (namespace, set) in all_sets() {
        let (namespace, app, hash) =
            (namespace_name(namespace), app(set), format!("{:010x}", set * 7_919_113));
        let labels = [
            ("app.kubernetes.io/instance", &*app),
            ("app.kubernetes.io/name", &*app),
            ("app.kubernetes.io/part-of", "shop"),
            ("pod-template-hash", &*hash),
            ("topology.kubernetes.io/zone", "eu-central-1a"),
        ]
        .map(|(key, value)| (Cow::Borrowed(key), Cow::Borrowed(value)));
        for pod in 0..PODS {
            pods.apply(&PodInput {
                namespace: &namespace,
                name: &format!("{app}-{hash}-{pod:05}"),
                labels: &labels,
                terminating: false,
                phase: Phase::Running,
                start_time: Some(start),
                ready: Some(ReadyCondition { status: ConditionStatus::True, since: Some(start) }),
                containers: &containers,
                init_containers: &[],
                pod_level: &[],
            });
        }
    }
}

fn all_sets() -> impl Iterator<Item = (usize, usize)> {
    (0..NAMESPACES).flat_map(|namespace| (0..SETS).map(move |set| (namespace, set)))
}

fn namespace_name(namespace: usize) -> String {
    format!("team-{namespace:03}")
}

fn app(set: usize) -> String {
    format!("checkout-{set:03}")
}

/// The number of pods per HPA in the clusters.
const PODS_PER_HPA: usize = 15;
/// The number of pods that are created in advance, so that the measured time excludes their creation.
const AT_ONCE: usize = 500;
/// The number of repetitions of a timing. The result is the minimum, because other work on the machine only adds time.
const ROUNDS: usize = 7;

/// Decodes and stores the pods and HPAs of a cluster with `count` HPAs, like the watches.
fn measure_cluster(count: usize) -> Result<(), Box<dyn Error>> {
    let (pods, hpas) = (Arc::new(Pods::new()), Hpas::new());
    let mut sink = PodIntake::new(Arc::clone(&pods), None);
    let title = format!("{count} HPAs × {PODS_PER_HPA} pods");
    // This allocates the memory for the creation of objects before the measurement.
    let sample: Vec<_> = (0..AT_ONCE).map(|number| objects::pod(number, 0)).collect();
    let size = sample.iter().map(String::len).sum::<usize>() / sample.len();

    reset_peak()?;
    let before = resident_bytes()?;
    let mut elapsed_micros = 0.0;
    sink.start();
    let mut numbers = (0..count).flat_map(|hpa| (0..PODS_PER_HPA).map(move |pod| (hpa, pod)));
    loop {
        let page: Vec<_> =
            numbers.by_ref().take(AT_ONCE).map(|(hpa, number)| objects::pod(hpa, number)).collect();
        if page.is_empty() {
            break;
        }
        let started = Instant::now();
        for object in &page {
            sink.apply(decode::pod(object.as_bytes())?);
        }
        elapsed_micros += micros(started.elapsed());
    }
    let started = Instant::now();
    sink.done();
    elapsed_micros += micros(started.elapsed());
    let after = resident_bytes()?;
    let each = after.saturating_sub(before) / (count * PODS_PER_HPA);
    println!(
        "{title}: {each} B per pod of {size} B, peak {} B; {:.2} µs each",
        peak_bytes()?.saturating_sub(before) / (count * PODS_PER_HPA),
        elapsed_micros / (count * PODS_PER_HPA) as f64
    );

    reset_peak()?;
    let before = resident_bytes()?;
    let mut elapsed_micros = 0.0;
    hpas.begin(None);
    for number in 0..count {
        let object = objects::hpa(number, 4_000_000 + number, &objects::status(PODS_PER_HPA));
        let started = Instant::now();
        hpas.apply(HpaRecord::from(decode::hpa(object.as_bytes())?));
        elapsed_micros += micros(started.elapsed());
    }
    let started = Instant::now();
    let changes = hpas.finish(None);
    elapsed_micros += micros(started.elapsed());
    drop(changes);
    println!(
        "{title}: {} B per HPA of {} B, peak {} B; {:.2} µs each",
        resident_bytes()?.saturating_sub(before) / count,
        objects::hpa(0, 4_000_000, &objects::status(PODS_PER_HPA)).len(),
        peak_bytes()?.saturating_sub(before) / count,
        elapsed_micros / count as f64
    );
    Ok(())
}

/// Measures the time to decode, store and write an object.
fn measure_times() -> Result<(), Box<dyn Error>> {
    let pods: Vec<_> = (0..AT_ONCE).map(|number| objects::pod(number, 0)).collect();
    let hpas: Vec<_> = (0..AT_ONCE)
        .map(|number| objects::hpa(number, 4_000_000 + number, &objects::status(PODS_PER_HPA)))
        .collect();
    let store = Arc::new(Pods::new());
    let mut sink = PodIntake::new(Arc::clone(&store), None);
    println!(
        "pod decoded: {:.2} µs",
        minimum(&pods, |object| drop(black_box(decode::pod(object.as_bytes()))))
    );
    println!(
        "pod decoded and stored: {:.2} µs",
        minimum(&pods, |object| {
            if let Ok(pod) = decode::pod(object.as_bytes()) {
                sink.apply(pod);
            }
        })
    );
    println!(
        "HPA decoded: {:.2} µs",
        minimum(&hpas, |object| drop(black_box(decode::hpa(object.as_bytes()))))
    );
    let records: Vec<_> = hpas
        .iter()
        .map(|object| decode::hpa(object.as_bytes()).map(HpaRecord::from))
        .collect::<Result<_, _>>()?;
    let body = |record: &HpaRecord| {
        let target = StatusTarget {
            namespace: &record.key.namespace,
            name: &record.key.name,
            metadata: &record.metadata,
            spec: &record.spec_raw,
        };
        drop(black_box(target.body(&record.status)));
    };
    println!("status body written: {:.2} µs", minimum(&records, body));
    Ok(())
}

/// Returns the minimum time of `work` per item, in microseconds.
fn minimum<T>(items: &[T], mut work: impl FnMut(&T)) -> f64 {
    let round = |_| {
        let started = Instant::now();
        items.iter().for_each(&mut work);
        micros(started.elapsed()) / items.len() as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// The number of HPAs that match policies.
const HPAS: usize = 10_000;
/// The number of HPAs that each ScalingPolicy matches.
const PER_POLICY: usize = 10;
/// The maximum memory of the match of an HPA, in bytes.
const BYTES_PER_MATCH: usize = 300;

/// Stores ScalingPolicies for ten HPAs each and a ClusterScalingPolicy for all HPAs, and matches the HPAs with them.
fn measure_policies() -> Result<(), Box<dyn Error>> {
    let policies = Policies::default();
    let mut hpas = Vec::with_capacity(HPAS);
    for number in 0..HPAS {
        let object = objects::hpa(number, 4_000_000 + number, &objects::status(1));
        hpas.push(HpaRecord::from(decode::hpa(object.as_bytes())?));
    }
    let before = resident_bytes()?;
    policies.apply_object(Kind::Cluster.decode(cluster_policy().as_bytes())?);
    let count = HPAS / PER_POLICY;
    for number in 0..count {
        policies.apply_object(Kind::Namespaced.decode(policy(number).as_bytes())?);
    }
    let stored = resident_bytes()?;
    // The ten HPAs of a ScalingPolicy share a merged policy. The match of the first HPA creates the merged policy.
    let matched = |offset: usize| {
        hpas.iter().skip(offset).step_by(PER_POLICY).filter(|hpa| policies.applies_to(hpa)).count()
    };
    let first = matched(0);
    let merged = resident_bytes()?;
    let all = first + (1..PER_POLICY).map(matched).sum::<usize>();
    if all != HPAS {
        return Err(format!("{all} of {HPAS} HPAs match").into());
    }
    let bytes = resident_bytes()?.saturating_sub(merged) / (HPAS - first);
    println!(
        "{count} policies for {HPAS} HPAs: {} B per policy, {} B per merged policy with its first HPA, {bytes} B per \
         other HPA",
        stored.saturating_sub(before) / count,
        merged.saturating_sub(stored) / count,
    );
    if bytes > BYTES_PER_MATCH {
        return Err(format!("{bytes} B per matched HPA is more than {BYTES_PER_MATCH}").into());
    }
    Ok(())
}

fn policy(number: usize) -> String {
    let first = number * PER_POLICY;
    debug_assert_eq!(objects::PER_NAMESPACE % PER_POLICY, 0, "the HPAs of a policy are in one namespace");
    let names: Vec<_> = (first..first + PER_POLICY).map(objects::app).collect();
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": Kind::Namespaced.as_str(),
        "metadata": {
            "name": format!("team-{number}"), "namespace": objects::namespace(first), "uid": objects::uid(3, number),
            "resourceVersion": "7", "generation": 1, "creationTimestamp": "2026-03-01T09:58:12Z",
        },
        "spec": {
            "selector": {"matchExpressions": [
                {"key": "app.kubernetes.io/name", "operator": "In", "values": names},
            ]},
            "tolerance": 0.2,
            "schedules": [{
                "name": "business-hours", "timeZone": "Europe/Berlin", "start": "0 8 * * 1-5", "end": "0 19 * * 1-5",
                "minReplicas": 4,
            }],
        },
    })
    .to_string()
}

fn cluster_policy() -> String {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": Kind::Cluster.as_str(),
        "metadata": {
            "name": "platform", "uid": objects::uid(3, HPAS), "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-03-01T09:58:12Z",
        },
        "spec": {"guards": {"maxStep": {"up": "100%"}}, "limits": {"highestFloor": 50}},
    })
    .to_string()
}

fn micros(elapsed: std::time::Duration) -> f64 {
    elapsed.as_secs_f64() * 1e6
}

fn resident_bytes() -> Result<usize, Box<dyn Error>> {
    process_memory("VmRSS:")
}

/// Returns the maximum resident memory since [`reset_peak`].
fn peak_bytes() -> Result<usize, Box<dyn Error>> {
    process_memory("VmHWM:")
}

fn reset_peak() -> Result<(), Box<dyn Error>> {
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}

fn process_memory(field: &str) -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.ok_or_else(|| format!("no {field} in /proc/self/status"))?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}
