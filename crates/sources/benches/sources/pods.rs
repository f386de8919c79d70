//! 10,000 pods, each scraped once per second.

use std::sync::Arc;
use std::time::Duration;

use sources::Reading;

use crate::rig::{Hpa, Ignored, Stopwatch, kilobytes, micros_each, pods, resident, rule, runtime, sources};
use crate::server::{SERIES, Server};
use crate::{Failure, Size};

/// Pods per HPA, and HPAs per namespace.
const PODS_OF_HPA: usize = 50;
const HPAS_OF_NAMESPACE: usize = 10;

pub(crate) fn measure(size: Size, bytes: usize) -> Result<(), Failure> {
    println!("pods: {} pods, each scraped once per second for {:?}", size.pods, size.time);
    println!(
        "{:>6} {:>9} {:>9} {:>15} {:>9} {:>13} {:>16}",
        "page", "due", "scrapes", "CPU per scrape", "cores", "heap per pod", "heap per series"
    );
    let server = Server::start()?;
    runtime()?.block_on(run(size, bytes, &server))
}

async fn run(size: Size, bytes: usize, server: &Server) -> Result<(), Failure> {
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
    // Waits until the windows of the rates are full.
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
