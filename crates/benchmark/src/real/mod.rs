//! Runs against a real API server: several controllers one after the other against one etcd and
//! kube-apiserver, with the same objects and metrics.
//!
//! The end-to-end tests use the same programs (`KUBEBUILDER_ASSETS`). kube-controller-manager runs only
//! the HPA controller, so no other controller changes the loaded objects: Deployments with their status,
//! and ready pods.

mod cluster;
mod connection;
mod control_plane;
mod controllers;
mod hpa_watch;
pub(crate) mod lists;
mod load;
mod metrics_server;
pub(crate) mod minimum_cost;
pub(crate) mod options;
mod protobuf;
mod request_counters;
mod search;
mod sockets;

use self::cluster::RealCluster;
pub(crate) use self::options::{Real, command, read};
use crate::measure::Report;
use crate::{Failure, measure, run, store};

/// Measures every contestant `runs` times and returns the medians of each.
pub(crate) async fn run(real: &Real) -> Result<Vec<Report>, Failure> {
    let folder = &real.options.folder;
    std::fs::create_dir_all(folder)?;
    let folder = std::fs::canonicalize(folder)?;
    let mut cluster = RealCluster::start().await?;
    if !real.built_in_role {
        controllers::grant(&cluster.plane, &real.flags).await?;
    }
    if real.search {
        return search::run(real, &mut cluster, &folder).await;
    }
    cluster.load_workload(&real.options.workload).await?;
    cluster.measure_idle().await?;
    let mut reports = vec![Vec::new(); real.contestants.len()];
    for number in 1..=real.options.runs {
        for (contestant, reports) in real.contestants.iter().zip(&mut reports) {
            eprintln!("{contestant}, run {number} of {}", real.options.runs);
            cluster.reset().await?;
            cluster.kubeconfig = contestant.kubeconfig(&cluster.plane, real.built_in_role).await?;
            reports.push(run::run(&real.options_for(*contestant), &mut cluster, &folder).await?);
        }
    }
    cluster.reset().await?;
    let medians =
        reports.iter().map(|reports| measure::median_report(reports)).collect::<Result<Vec<_>, _>>()?;
    for report in &medians {
        store(report, &folder)?;
    }
    Ok(medians)
}
