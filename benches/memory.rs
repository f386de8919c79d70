//! Memory of a cached pod and of a recorded HPA, and the time of index and record operations. `cargo
//! bench --bench memory`.
//!
//! The pods: 50,000 pods of 5,000 ReplicaSets in 50 namespaces, with 2 containers and 5 labels each, and 5,000 HPAs.
//! The clusters: 1,000 and 10,000 HPAs with 15 pods each. The record: 10,000 HPAs with two metrics and 15 pods each.
//! The policies: 1,000 for 10,000 HPAs. Bytes are the growth of the process's resident memory, so they include the
//! allocator and the index. Linux only, because it reads /proc.

#[path = "memory/cluster.rs"]
mod cluster;
#[path = "memory/objects.rs"]
mod objects;
#[path = "memory/policies.rs"]
mod policies;
#[path = "memory/record.rs"]
mod record;

use std::borrow::Cow;
use std::error::Error;
use std::process::Command;
use std::sync::Arc;

use autoscaling::pod::{ConditionStatus, Phase, ReadyCondition};
use autoscaling::quantity::Quantity;
use autoscaling::selector::Selector;
use controller::store::{ContainerInput, Key, Overlap, PodInput, Pods};
use jiff::Timestamp;
use tokio::time::Instant;

/// Environment variable that selects the part to measure.
const PART: &str = "MEMORY_BENCH_PART";
const NAMESPACES: usize = 50;
const SETS: usize = 100;
const PODS: usize = 10;

/// Maximum memory per pod, in bytes.
const BYTES_PER_POD: usize = 400;

/// Runs each part in a separate process, because memory that one part frees would hide the growth of the
/// next.
fn main() -> Result<(), Box<dyn Error>> {
    match std::env::var(PART).as_deref() {
        Ok("pods") => return pods(),
        Ok("small") => return cluster::measure(1_000),
        Ok("large") => return cluster::measure(10_000),
        Ok("time") => return cluster::time(),
        Ok("record") => return record::measure(false),
        Ok("policies") => return policies::measure(),
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

fn pods() -> Result<(), Box<dyn Error>> {
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

fn micros(elapsed: std::time::Duration) -> f64 {
    elapsed.as_secs_f64() * 1e6
}

fn resident_bytes() -> Result<usize, Box<dyn Error>> {
    process_memory("VmRSS:")
}

/// The maximum resident memory since [`reset_peak`].
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
