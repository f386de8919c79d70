//! The cost of scrapes of pods. `cargo bench -p sources --bench sources -- cost pods hostile`, all parts by default.
//!
//! - `cost`: CPU of a scrape over one connection, for pages of 4 KB to 1 MB.
//! - `pods`: 10,000 pods, each scraped once per second, with pages of 2 KB and 20 KB.
//! - `hostile`: 200 HPAs next to a tenant whose 1,000 HPAs scrape 10,000 pods with pages of 4 MB once per second.
//!
//! Pages come over TCP from another process. CPU is the time of the thread with the scraper, and memory is the growth
//! of the resident memory of its process. Each part runs in a process of its own, because memory that one part frees
//! would hide the growth of the next. Linux only, because it reads /proc.
//!
//! Without `--bench`, each part makes one short run, which checks that the part still works.

mod cost;
mod hostile;
mod pods;
mod rig;
mod server;

use std::error::Error;
use std::process::Command;
use std::time::Duration;

type Failure = Box<dyn Error>;

/// The allocator of the image.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Environment variables that select the part to measure, and its size.
const PART: &str = "SOURCES_BENCH_PART";
const SHORT: &str = "SOURCES_BENCH_SHORT";
const PARTS: [&str; 4] = ["cost", "pods-2-kb", "pods-20-kb", "hostile"];

/// The amount of work of a part.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Scrapes of each page of `cost`.
    scrapes: u32,
    /// Pods of `pods`, and of the hostile tenant.
    pods: usize,
    /// The measured time.
    time: Duration,
}

fn main() -> Result<(), Failure> {
    if std::env::var_os(server::SERVER).is_some() {
        return server::run();
    }
    let size = if std::env::var_os(SHORT).is_some() {
        Size { scrapes: 5, pods: 20, time: Duration::from_secs(2) }
    } else {
        Size { scrapes: 2_000, pods: 10_000, time: Duration::from_secs(30) }
    };
    match std::env::var(PART).as_deref() {
        Ok("cost") => return cost::measure(size),
        Ok("pods-2-kb") => return pods::measure(size, 2 << 10),
        Ok("pods-20-kb") => return pods::measure(size, 20 << 10),
        Ok("hostile") => return hostile::measure(size),
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
