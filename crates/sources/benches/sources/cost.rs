//! CPU of a scrape over one connection.

use crate::rig::{Hpa, Stopwatch, micros_each, pods, rule, runtime, sources};
use crate::server::Server;
use crate::{Failure, Size};

/// Page sizes in bytes, each with a divisor of the number of scrapes.
const PAGES: [(usize, u32); 4] = [(4 << 10, 1), (20 << 10, 1), (64 << 10, 4), (1 << 20, 20)];

pub(crate) fn measure(size: Size) -> Result<(), Failure> {
    let server = Server::start()?;
    println!("cost: scrapes over one connection, one after the other");
    println!("{:>10} {:>10} {:>15} {:>10}", "page", "scrapes", "CPU per scrape", "per KB");
    for (bytes, divisor) in PAGES {
        let scrapes = (size.scrapes / divisor).max(1);
        runtime()?.block_on(async {
            let sources = sources(server.address)?;
            let mut stopwatch = Stopwatch::start()?;
            // A fifth of the number of scrapes runs first, as a warm-up.
            for number in 0..scrapes + scrapes / 5 {
                if number == scrapes / 5 {
                    stopwatch = Stopwatch::start()?;
                }
                // Each scrape has its own URL, so no earlier page answers it.
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
