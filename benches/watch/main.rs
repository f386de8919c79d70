//! CPU time, memory and bytes of `cluster::watch` and of kube-runtime's watcher: `cargo bench --package
//! watch-benchmark`.
//!
//! All variants read the same bytes from one HTTP server: 1,000 objects with managedFields, and then MODIFIED events.
//! They fill the stores of the controller. Each run has a separate process, and the variants take turns. A line has the
//! medians of all rounds. A ratio to `ours` is the median of the ratios of the rounds.
//!
//! - `ours`: `cluster::watch`.
//! - `slim`: `kube::runtime::watcher` with serde types that have only the fields that the stores need. The result for
//!   HPAs is a lower bound, because the types lack the bytes that a status PUT sends back.
//! - `raw`: `kube::runtime::watcher` with an object that keeps its bytes. The decoder is that of `ours`.
//!
//! Events arrive in a burst after a streaming list, or at intervals of 0.2 ms after a list of two pages.
//!
//! The last table compares decoders of the same pods in memory: the cursor of `cluster::decode`, and serde_json with
//! slim types that own or borrow their strings.
//!
//! The benchmark needs Linux, because it reads `/proc`. `cargo test --package watch-benchmark` makes one short run.

mod client;
#[path = "../memory/objects.rs"]
mod objects;
mod server;
mod slim;

use std::hint::black_box;
use std::process::{Command, Stdio};

use cluster::decode::{self, Text};
use serde::{Deserialize, Serialize};

use self::server::Server;
use self::slim::Pod;

/// The allocator of released binaries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Any failure of a run. No caller distinguishes failures.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The environment variable with the [`Run`] of a client process, as JSON.
const RUN: &str = "WATCH_BENCH_RUN";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Resource {
    Pods,
    Hpas,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Variant {
    Ours,
    Slim,
    Raw,
}

/// The form of the list and the timing of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Arrival {
    /// A streaming list, then all events at once.
    Burst,
    /// A list of two pages, then events at intervals.
    Spaced,
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Run {
    variant: Variant,
    resource: Resource,
    arrival: Arrival,
    objects: usize,
    events: usize,
    port: u16,
}

/// The result of a run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Figures {
    /// CPU microseconds per object of the list.
    list: f64,
    /// CPU microseconds per event.
    event: f64,
    /// Growth of the resident memory at its peak, in kB.
    peak: f64,
    /// Growth of the resident memory after the last event, in kB.
    retained: f64,
    /// Bytes from the server per object of the list and per event.
    #[serde(default)]
    bytes: f64,
}

impl Figures {
    fn values(self) -> [f64; 5] {
        [self.list, self.event, self.peak, self.retained, self.bytes]
    }
}

fn main() -> Result<(), Failure> {
    if let Ok(run) = std::env::var(RUN) {
        println!("{}", serde_json::to_string(&client::run(serde_json::from_str(&run)?)?)?);
        return Ok(());
    }
    let bench = std::env::args().any(|argument| argument == "--bench");
    let (objects, burst, spaced, rounds) = if bench { (1_000, 20_000, 2_000, 11) } else { (20, 20, 5, 1) };
    let server = Server::start(objects)?;
    println!("medians of {rounds} rounds; (ratio to ours)");
    println!(
        "{:22} | {:>17} | {:>17} | {:>15} | {:>15} | {:>14}",
        "objects, arrival, by",
        "CPU µs per listed",
        "CPU µs per event",
        "peak kB",
        "retained kB",
        "bytes per event"
    );
    for (arrival, events) in [(Arrival::Burst, burst), (Arrival::Spaced, spaced)] {
        for resource in [Resource::Pods, Resource::Hpas] {
            let run = |variant| Run { variant, resource, arrival, objects, events, port: server.port };
            compare(&server, rounds, run)?;
        }
    }
    compare_decoders(objects, if bench { 20 } else { 1 }, rounds)
}

/// Measures all variants in turn, and prints a line for each variant.
fn compare(server: &Server, rounds: usize, run: impl Fn(Variant) -> Run) -> Result<(), Failure> {
    let variants = [Variant::Ours, Variant::Slim, Variant::Raw];
    let mut results = [const { Vec::new() }; 3];
    for round in 0..rounds {
        // Each round starts with a different variant.
        for turn in 0..variants.len() {
            let at = (round + turn) % variants.len();
            if let (Some(variant), Some(results)) = (variants.get(at), results.get_mut(at)) {
                results.push(measure(server, run(*variant))?.values());
            }
        }
    }
    let [ours, ..] = &results;
    for (variant, result) in variants.into_iter().zip(&results) {
        let Run { resource, arrival, .. } = run(variant);
        print!("{:22}", format!("{resource:?}, {arrival:?}, {variant:?}"));
        for column in 0..5 {
            let values = result.iter().filter_map(|figures| figures.get(column).copied());
            let ratios = result.iter().zip(ours).filter_map(|(figures, ours)| {
                Some(figures.get(column)? / ours.get(column).filter(|ours| **ours > 0.0)?)
            });
            print!(" | {:9.2} ({:5.2})", median(values), median(ratios));
        }
        println!();
    }
    Ok(())
}

/// Decodes `count` pods with each decoder, `passes` times in each round, and prints the medians.
fn compare_decoders(count: usize, passes: usize, rounds: usize) -> Result<(), Failure> {
    let pods: Vec<_> = (0..count).map(|number| objects::pod(number / 10, number % 10)).collect();
    let mut results = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let decoders: [fn(&[u8]) -> bool; 3] = [
            |pod| black_box(decode::pod(pod)).is_ok(),
            |pod| black_box(serde_json::from_slice::<Pod<Text<'_>>>(pod)).is_ok(),
            |pod| black_box(serde_json::from_slice::<Pod<String>>(pod)).is_ok(),
        ];
        for (decoder, results) in decoders.into_iter().zip(&mut results) {
            let started = cpu_seconds()?;
            for _ in 0..passes {
                if !pods.iter().all(|pod| decoder(pod.as_bytes())) {
                    return Err("a pod cannot be decoded".into());
                }
            }
            results.push((cpu_seconds()? - started) * 1e6 / (passes * count) as f64);
        }
    }
    let size = pods.iter().map(String::len).sum::<usize>() / count;
    println!("CPU µs to decode a pod of {size} B; (ratio to the cursor)");
    let [cursor, ..] = &results;
    for (name, result) in ["cursor", "serde_json, borrowed", "serde_json, owned"].into_iter().zip(&results) {
        let ratios = result.iter().zip(cursor).map(|(figure, cursor)| figure / cursor);
        println!("{name:22} | {:9.2} ({:5.2})", median(result.iter().copied()), median(ratios));
    }
    Ok(())
}

/// Performs a run in a separate process.
fn measure(server: &Server, run: Run) -> Result<Figures, Failure> {
    server.prepare(run);
    let output = Command::new(std::env::current_exe()?)
        .env(RUN, serde_json::to_string(&run)?)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{run:?}: {}", output.status).into());
    }
    let figures: Figures = serde_json::from_slice(&output.stdout)?;
    Ok(Figures { bytes: server.sent() as f64 / (run.objects + run.events) as f64, ..figures })
}

/// Returns the median, or 0 without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Returns the CPU seconds of the main thread, which is the only busy thread of a client process.
fn cpu_seconds() -> Result<f64, Failure> {
    // After a yield, the kernel's figure includes the time since the last tick.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanos: f64 = text.split(' ').next().ok_or("/proc/self/schedstat is empty")?.parse()?;
    Ok(nanos / 1e9)
}
