//! HPAs next to a hostile tenant.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::rig::{Hpa, Ignored, Stopwatch, kilobytes, pods, resident, rule, runtime, sources};
use crate::server::Server;
use crate::{Failure, Size};

/// The hostile tenant: HPAs, and bytes of a page. [`Size`] contains the number of its pods.
const HOSTILE_HPAS: usize = 1_000;
const HOSTILE_PAGE: usize = 4_000_000;
/// The other tenants: HPAs, their pods, their namespaces, and bytes of a page.
const HPAS: usize = 200;
const PODS: usize = 5;
const NAMESPACES: usize = 20;
const PAGE: usize = 4 << 10;
/// The period of syncs and the interval of scrapes.
const PERIOD: Duration = Duration::from_secs(1);

/// The reads of the other tenants' HPAs.
#[derive(Default)]
struct Reads {
    /// The duration of each read.
    took: Vec<Duration>,
    /// Reads within their period, with the numbers of all pods.
    on_time: usize,
    /// The problem of the first read that was not on time.
    problem: Option<String>,
}

pub(crate) fn measure(size: Size) -> Result<(), Failure> {
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
        runtime()?.block_on(run(size, hostile, &server))?;
    }
    Ok(())
}

async fn run(size: Size, hostile: bool, server: &Server) -> Result<(), Failure> {
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
