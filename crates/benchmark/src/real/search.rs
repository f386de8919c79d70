//! Searches for the maximum number of HPAs that a controller keeps on time, by doubling and bisection.

use std::path::Path;

use super::Real;
use super::cluster::RealCluster;
use crate::measure::Report;
use crate::{Failure, run, store};

/// The required share of syncs on time.
const ENOUGH: f64 = 0.99;
/// The search ends when the smallest number that was late is at most this multiple of the largest number on time.
const CLOSE: f64 = 1.125;
/// The minimum number of HPAs to try.
const LEAST: usize = 10;

/// The known bounds of a controller's capacity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bounds {
    /// The largest number of HPAs that was on time.
    holds: Option<usize>,
    /// The smallest number of HPAs that was not on time.
    fails: Option<usize>,
}

impl Bounds {
    fn add(&mut self, hpas: usize, on_time: bool) {
        *(if on_time { &mut self.holds } else { &mut self.fails }) = Some(hpas);
    }

    /// The next number to try. `None` if the bounds are close enough, or if the next number is below [`LEAST`].
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

/// Searches for each contestant. Returns the report of the maximum that each contestant kept on time.
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
            let mut options = real.options_for(*contestant);
            options.workload.hpas = hpas;
            cluster.load_workload(&options.workload).await?;
            cluster.measure_idle().await?;
            cluster.reset().await?;
            cluster.kubeconfig = contestant.kubeconfig(&cluster.plane, real.built_in_role).await?;
            let tried = run::run(&options, cluster, folder).await?;
            let on_time = tried
                .on_time
                .ok_or("without status writes, only the controller's metrics show which syncs are on time")?;
            let p99 = tried.lateness.map_or(0.0, |late| late.p99);
            println!("{contestant}, {hpas} HPAs: {:.2} % on time, lateness p99 {p99:.2} s", on_time * 100.0);
            bounds.add(hpas, on_time >= ENOUGH);
            if on_time >= ENOUGH {
                report = Some(tried);
            }
            next = bounds.next();
        }
        if let Some(mut report) = report {
            report.label = format!("{}, at its maximum", report.label);
            store(&report, folder)?;
            best.push(report);
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_capacity_is_found() {
        for capacity in [30, 333, 1_000, 1_999, 20_000] {
            let (mut bounds, mut next) = (Bounds::default(), Some(1_000));
            while let Some(hpas) = next {
                bounds.add(hpas, hpas <= capacity);
                next = bounds.next();
            }
            let holds = bounds.holds.unwrap_or(0);
            assert!(holds <= capacity, "{holds} of {capacity}");
            assert!((holds as f64) * CLOSE * CLOSE >= capacity as f64, "{holds} of {capacity}");
        }
    }
}
