//! The most HPAs that a controller keeps on time: doubled until it fails, then halved between.

use std::path::Path;

use super::Real;
use super::cluster::RealCluster;
use crate::measure::Report;
use crate::{Failure, run, store};

/// Of the syncs so many must be on time.
const ENOUGH: f64 = 0.99;
/// It ends when the least that was too many is not more than so much above the most that was not.
const CLOSE: f64 = 1.125;
/// Fewer are of no interest.
const LEAST: usize = 10;

/// What is known of a controller's capacity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bounds {
    /// The most HPAs that were on time.
    holds: Option<usize>,
    /// The least that were not.
    fails: Option<usize>,
}

impl Bounds {
    fn add(&mut self, hpas: usize, on_time: bool) {
        *(if on_time { &mut self.holds } else { &mut self.fails }) = Some(hpas);
    }

    /// How many to try next; none when it is known well enough.
    fn next(self) -> Option<usize> {
        match (self.holds, self.fails) {
            (Some(holds), None) => Some(holds * 2),
            (None, Some(fails)) => Some(fails / 2).filter(|next| *next >= LEAST),
            (Some(holds), Some(fails)) => {
                (fails as f64 > holds as f64 * CLOSE).then(|| usize::midpoint(holds, fails))
            }
            (None, None) => None,
        }
    }
}

/// Searches for each contestant; the reports are of the most HPAs that each kept on time.
pub(super) async fn run(
    real: &Real,
    cluster: &mut RealCluster,
    folder: &Path,
) -> Result<Vec<Report>, Failure> {
    let mut best = Vec::new();
    for contestant in &real.contestants {
        let (mut bounds, mut report) = (Bounds::default(), None);
        let mut next = Some(real.options.workload.hpas);
        while let Some(hpas) = next {
            let mut options = real.of(*contestant);
            options.workload.hpas = hpas;
            cluster.hold(&options.workload).await?;
            cluster.listen().await?;
            cluster.reset().await?;
            cluster.kubeconfig = contestant.kubeconfig(&cluster.plane, real.built_in_role).await?;
            let tried = run::run(&options, cluster, folder).await?;
            let on_time =
                tried.on_time.ok_or("without new statuses only the controller knows who is on time")?;
            let p99 = tried.lateness.map_or(0.0, |late| late.p99);
            println!(
                "{contestant}, {hpas} HPAs: {:.2} % on time, 99 of 100 within {p99:.2} s of their time",
                on_time * 100.0
            );
            bounds.add(hpas, on_time >= ENOUGH);
            if on_time >= ENOUGH {
                report = Some(tried);
            }
            next = bounds.next();
        }
        if let Some(mut report) = report {
            report.label = format!("{}, as many as it can", report.label);
            store(&report, folder)?;
            best.push(report);
        }
    }
    Ok(best)
}

/// That the search finds a capacity, wherever it is.
pub(super) fn check() -> Result<(), Failure> {
    for capacity in [30, 333, 1_000, 1_999, 20_000] {
        let (mut bounds, mut next) = (Bounds::default(), Some(1_000));
        while let Some(hpas) = next {
            bounds.add(hpas, hpas <= capacity);
            next = bounds.next();
        }
        let holds = bounds.holds.unwrap_or(0);
        if holds > capacity || (holds as f64) * CLOSE * CLOSE < capacity as f64 {
            return Err(format!("a capacity of {capacity} is taken for {holds}").into());
        }
    }
    Ok(())
}
