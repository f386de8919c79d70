//! The cost of scrapes of pods. `cargo bench -p sources --bench sources -- cost pods` runs the parts `cost` and `pods`.
//! Without names, all parts run.
//!
//! - `cost`: CPU of a scrape over one connection, for pages of 4 KB to 1 MB.
//! - `pods`: 10,000 pods, each scraped once per second, with pages of 2 KB and 20 KB.
//! - `hostile`: 200 HPAs next to a tenant whose 1,000 HPAs scrape 10,000 pods with pages of 4 MB once per second.
//!
//! Pages come over TCP from another process. CPU is the time of the thread with the scraper, and memory is the growth
//! of the resident memory of its process. Each part runs in a separate process, because memory that one part frees
//! would hide the growth in the next part. The bench reads /proc, so it runs only on Linux.
//!
//! Without `--bench`, each part makes one short run, which checks that the part still works.

mod rig;

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sources::Reading;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::rig::{
    Hpa, Ignored, SERIES, Server, Stopwatch, kilobytes, micros_each, pods, resident, rule, runtime, sources,
};

type Failure = Box<dyn Error>;

/// The allocator of the container image.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Environment variable with the part to measure.
const PART: &str = "SOURCES_BENCH_PART";
/// Environment variable that selects a short run.
const SHORT: &str = "SOURCES_BENCH_SHORT";
const PARTS: [&str; 4] = ["cost", "pods-2-kb", "pods-20-kb", "hostile"];

/// The amount of work of a part.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Scrapes of each page of `cost`.
    scrapes: u32,
    /// Pods of `pods` and of the hostile tenant.
    pods: usize,
    /// The measured time.
    time: Duration,
}

fn main() -> Result<(), Failure> {
    if std::env::var_os(rig::SERVER).is_some() {
        return rig::serve_pages();
    }
    let size = if std::env::var_os(SHORT).is_some() {
        Size { scrapes: 5, pods: 20, time: Duration::from_secs(2) }
    } else {
        Size { scrapes: 2_000, pods: 10_000, time: Duration::from_secs(30) }
    };
    match std::env::var(PART).as_deref() {
        Ok("cost") => return measure_cost(size),
        Ok("pods-2-kb") => return measure_pods(size, 2 << 10),
        Ok("pods-20-kb") => return measure_pods(size, 20 << 10),
        Ok("hostile") => return measure_hostile(size),
        _ => {}
    }
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let short = !std::env::args().any(|argument| argument == "--bench");
    for part in PARTS
        .iter()
        .filter(|part| chosen.is_empty() || chosen.iter().any(|one| part.starts_with(one.as_str())))
    {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(PART, part);
        if short {
            command.env(SHORT, "1");
        }
        let status = command.status()?;
        if !status.success() {
            return Err(format!("part {part}: {status}").into());
        }
    }
    Ok(())
}

/// Page sizes in bytes, each with a divisor of the number of scrapes.
const PAGES: [(usize, u32); 4] = [(4 << 10, 1), (20 << 10, 1), (64 << 10, 4), (1 << 20, 20)];

fn measure_cost(size: Size) -> Result<(), Failure> {
    let server = Server::start()?;
    println!("cost: scrapes over one connection, one after the other");
    println!("{:>10} {:>10} {:>15} {:>10}", "page", "scrapes", "CPU per scrape", "per KB");
    for (bytes, divisor) in PAGES {
        let scrapes = (size.scrapes / divisor).max(1);
        runtime()?.block_on(async {
            let sources = sources(server.address)?;
            let mut stopwatch = Stopwatch::start()?;
            // The first scrapes are a warm-up.
            for number in 0..scrapes + scrapes / 5 {
                if number == scrapes / 5 {
                    stopwatch = Stopwatch::start()?;
                }
                // Each scrape has a distinct URL, so that no earlier page is reused.
                let hpa = Hpa { namespace: "shop".into(), pods: pods(1..2)?, rule: rule(bytes, number) };
                let reading = hpa.read(&sources).await?;
                if let Some((_, error)) = reading.missing {
                    return Err(error.into());
                }
            }
            let each = micros_each(stopwatch.cpu()?, scrapes.into());
            let per_kilobyte = each / (bytes as f64 / 1024.0);
            println!("{:>7} KB {scrapes:>10} {each:>12.1} µs {per_kilobyte:>7.2} µs", bytes >> 10);
            Ok::<_, Failure>(())
        })?;
    }
    Ok(())
}

/// Pods per HPA in `pods`.
const PODS_OF_HPA: usize = 50;
/// HPAs per namespace in `pods`.
const HPAS_OF_NAMESPACE: usize = 10;

fn measure_pods(size: Size, bytes: usize) -> Result<(), Failure> {
    println!("pods: {} pods, each scraped once per second for {:?}", size.pods, size.time);
    println!(
        "{:>6} {:>9} {:>9} {:>15} {:>9} {:>13} {:>16}",
        "page", "due", "scrapes", "CPU per scrape", "cores", "heap per pod", "heap per series"
    );
    let server = Server::start()?;
    runtime()?.block_on(run_pods(size, bytes, &server))
}

async fn run_pods(size: Size, bytes: usize, server: &Server) -> Result<(), Failure> {
    let sources = sources(server.address)?;
    let mut hpas = Vec::new();
    for first in (0..size.pods).step_by(PODS_OF_HPA) {
        let namespace = format!("team-{}", first / PODS_OF_HPA / HPAS_OF_NAMESPACE);
        let pods = pods(first + 1..(first + PODS_OF_HPA).min(size.pods) + 1)?;
        hpas.push(Hpa { namespace: namespace.into(), pods, rule: rule(bytes, 0) });
    }
    let before = resident(false)?;
    // Spreads the reads over a second, as syncs are spread over their period.
    let pause = Duration::from_secs(1) / u32::try_from(hpas.len())?;
    let running = tokio::spawn(Arc::clone(&sources).run(Ignored));
    let first = hpas.iter().zip(0..).map(|(hpa, number)| {
        let sources = &sources;
        async move {
            tokio::time::sleep(pause * number).await;
            hpa.read(sources).await
        }
    });
    // With 10,000 connections to one address within a second, some can fail. The next scrape reconnects.
    let first = futures::future::join_all(first).await;
    let failed = first.iter().filter(|reading| !matches!(reading, Ok(Reading { missing: None, .. }))).count();
    // After this time, the windows of the rates are full.
    tokio::time::sleep(size.time.min(Duration::from_secs(12))).await;
    let (answered, stopwatch) = (server.served()?, Stopwatch::start()?);
    tokio::time::sleep(size.time).await;
    let (cpu, elapsed) = (stopwatch.cpu()?, stopwatch.elapsed());
    let scrapes = server.served()? - answered;
    let heap = resident(false)?.saturating_sub(before) / u64::try_from(size.pods)?;
    running.abort();
    if failed > 0 {
        println!("{failed} of {} HPAs had pods without a number at first", hpas.len());
    }
    println!(
        "{:>3} KB {:>9.0} {scrapes:>9} {:>12.1} µs {:>9.2} {:>10.1} KB {:>13.2} KB",
        bytes >> 10,
        size.pods as f64 * elapsed.as_secs_f64(),
        micros_each(cpu, scrapes),
        cpu.as_secs_f64() / elapsed.as_secs_f64(),
        kilobytes(heap),
        kilobytes(heap) / SERIES as f64,
    );
    Ok(())
}

/// HPAs of the hostile tenant. [`Size`] contains the number of its pods.
const HOSTILE_HPAS: usize = 1_000;
/// Size of a page of the hostile tenant in bytes.
const HOSTILE_PAGE: usize = 4_000_000;
/// HPAs of the other tenants.
const HPAS: usize = 200;
/// Pods per HPA of the other tenants.
const PODS: usize = 5;
/// Namespaces of the other tenants.
const NAMESPACES: usize = 20;
/// Size of a page of the other tenants in bytes.
const PAGE: usize = 4 << 10;
/// Period of syncs and interval of scrapes in `hostile`.
const PERIOD: Duration = Duration::from_secs(1);

/// The reads of the other tenants' HPAs.
#[derive(Default)]
struct Reads {
    /// The duration of each read.
    took: Vec<Duration>,
    /// Number of reads that returned recent numbers of all pods within the period.
    on_time: usize,
    /// The problem of the first read that was not on time.
    problem: Option<String>,
}

fn measure_hostile(size: Size) -> Result<(), Failure> {
    println!(
        "hostile: {HPAS} HPAs with {PODS} pods next to {HOSTILE_HPAS} HPAs that scrape {} pods with pages of 4 MB, for {:?}",
        size.pods, size.time
    );
    println!(
        "{:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>12}",
        "hostile", "reads", "on time", "p50", "p99", "longest", "cores", "peak memory"
    );
    for hostile in [false, true] {
        let server = Server::start()?;
        runtime()?.block_on(run_hostile(size, hostile, &server))?;
    }
    Ok(())
}

async fn run_hostile(size: Size, hostile: bool, server: &Server) -> Result<(), Failure> {
    let sources = sources(server.address)?;
    let before = resident(false)?;
    let running = tokio::spawn(Arc::clone(&sources).run(Ignored));
    let reads = Arc::new(Mutex::new(Reads::default()));
    let mut tasks = tokio::task::JoinSet::new();
    if hostile {
        for number in 0..HOSTILE_HPAS {
            let each = size.pods / HOSTILE_HPAS.min(size.pods);
            let first = (number * each) % size.pods;
            let pods = pods(first + 1..first + each + 1)?;
            let hpa = Hpa { namespace: "hostile".into(), pods, rule: rule(HOSTILE_PAGE, 0) };
            let sources = Arc::clone(&sources);
            tasks.spawn(async move {
                let mut period = interval(PERIOD);
                period.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    period.tick().await;
                    let _ = hpa.read(&sources).await;
                }
            });
        }
    }
    let start = Instant::now() + PERIOD * 3;
    for number in 0..HPAS {
        let first = (100_000 + number * PODS, 100_000 + (number + 1) * PODS);
        let namespace = format!("team-{}", number % NAMESPACES).into();
        let hpa = Hpa { namespace, pods: pods(first.0..first.1)?, rule: rule(PAGE, 0) };
        let (sources, reads) = (Arc::clone(&sources), Arc::clone(&reads));
        let offset = PERIOD * u32::try_from(number)? / u32::try_from(HPAS)?;
        tasks.spawn(async move {
            let mut due = Instant::now() + offset;
            loop {
                tokio::time::sleep_until(due).await;
                let reading = hpa.read(&sources).await;
                // The first reads have no rates yet.
                if due > start {
                    reads.lock().add(due.elapsed(), &reading);
                }
                due = (due + PERIOD).max(Instant::now());
            }
        });
    }
    tokio::time::sleep_until(start).await;
    let (answered, stopwatch) = (server.served()?, Stopwatch::start()?);
    tokio::time::sleep(size.time).await;
    let (cpu, elapsed) = (stopwatch.cpu()?, stopwatch.elapsed());
    let answered = server.served()? - answered;
    tasks.shutdown().await;
    running.abort();
    let peak = resident(true)?.saturating_sub(before);
    let mut reads = std::mem::take(&mut *reads.lock());
    reads.took.sort_unstable();
    let count = reads.took.len();
    let rank = |share: usize| {
        let took = reads.took.get((count * share / 100).min(count.saturating_sub(1)));
        took.map_or(0.0, Duration::as_secs_f64) * 1e3
    };
    println!(
        "{:>9} {count:>9} {:>7.2} % {:>5.1} ms {:>5.1} ms {:>5.0} ms {:>8.2} {:>9.1} MB",
        if hostile { "yes" } else { "no" },
        reads.on_time as f64 * 100.0 / (count.max(1) as f64),
        rank(50),
        rank(99),
        rank(100),
        cpu.as_secs_f64() / elapsed.as_secs_f64(),
        kilobytes(peak) / 1e3,
    );
    println!(
        "          {answered} pages in {elapsed:.1?}; {}",
        reads.problem.as_deref().unwrap_or("no read failed")
    );
    Ok(())
}

impl Reads {
    fn add(&mut self, took: Duration, reading: &Result<sources::Reading, sources::Failure>) {
        let problem = match reading {
            Err(failure) => Some(failure.to_string()),
            Ok(sources::Reading { missing: Some((pod, error)), .. }) => Some(format!("{pod}: {error}")),
            Ok(_) if took > PERIOD => Some(format!("a read took {took:?}")),
            Ok(reading) if reading.at.elapsed() > PERIOD * 2 => Some("a number was too old".to_owned()),
            Ok(_) => None,
        };
        self.took.push(took);
        self.on_time += usize::from(problem.is_none());
        self.problem = self.problem.take().or(problem);
    }
}
