//! CPU time, memory and bytes of this project's watch and of kube-runtime's.
//!
//! Run it with `cargo bench --package watch-benchmark`.
//!
//! Both read the same bytes from one HTTP server: 1,000 objects as an API server sends them, with their
//! managedFields, and then MODIFIED events. Both fill the controller's stores. Each run has its own process,
//! and the variants take turns. A line has the medians of all rounds, and the ratios to this project's watch
//! are the medians of the ratios within each round.
//!
//! - `ours`: `cluster::watch`.
//! - `slim`: `kube::runtime::watcher` with serde types that have only the fields that the stores need. For HPAs the
//!   result is a lower bound, because these types lack the bytes that a status PUT sends back.
//! - `raw`: `kube::runtime::watcher` with an object that keeps its bytes, decoded as in `ours`.
//!
//! Events arrive in a burst after a streaming list, or 0.2 ms apart after a list of two pages.
//!
//! The last table decodes the same pods in memory: with the cursor of `cluster::decode`, and with serde_json
//! into slim types that borrow. Linux only, because it reads /proc. `cargo test --package watch-benchmark`
//! makes one short run.

mod client;
mod decode;
#[path = "../memory/objects.rs"]
mod objects;
mod server;
mod slim;

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use self::server::Server;

/// The allocator of the image.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Any failure of a run. No caller distinguishes failures.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Environment variable with the run of a client process, as JSON.
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

/// The arrival of objects and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Arrival {
    /// A streaming list, then all events at once.
    Burst,
    /// A list of two pages, then each event separately.
    Spaced,
}

/// One run of a client process.
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
    /// Bytes from the server per object and event.
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
    decode::compare(objects, if bench { 20 } else { 1 }, rounds)
}

/// Measures all variants in turns and prints a line for each.
fn compare(server: &Server, rounds: usize, run: impl Fn(Variant) -> Run) -> Result<(), Failure> {
    let variants = [Variant::Ours, Variant::Slim, Variant::Raw];
    let mut results = [const { Vec::new() }; 3];
    for round in 0..rounds {
        // Each round starts with another variant.
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

/// Makes one run in its own process.
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

/// The median, or 0 without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// CPU seconds of the first thread, on which everything runs.
fn cpu_seconds() -> Result<f64, Failure> {
    // The kernel adds the time since the last tick when the thread yields.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanos: f64 = text.split(' ').next().ok_or("/proc/self/schedstat is empty")?.parse()?;
    Ok(nanos / 1e9)
}
