//! The real half: controllers in front of etcd and kube-apiserver, one after the other in one go, over the same objects and
//! the same metrics.
//!
//! The programs are those of the end-to-end tests (`KUBEBUILDER_ASSETS`); only the HPA controller runs of
//! kube-controller-manager, so nobody else works on the objects, which are as they were loaded: Deployments with their
//! status, pods that are ready.

mod cluster;
mod connection;
mod contestant;
pub(crate) mod floor;
mod follow;
pub(crate) mod lists;
mod load;
mod options;
mod pages;
mod plane;
mod protobuf;
pub(crate) mod rounds;
mod search;
mod sockets;
mod stub;

use self::cluster::RealCluster;
pub(crate) use self::options::{Real, command, read};
use crate::measure::Report;
use crate::{Failure, median, run, store};

/// Measures every contestant as often as is asked for, and gives the medians of each.
pub(crate) async fn run(real: &Real) -> Result<Vec<Report>, Failure> {
    let folder = &real.options.folder;
    std::fs::create_dir_all(folder)?;
    let folder = std::fs::canonicalize(folder)?;
    let mut cluster = RealCluster::start().await?;
    if !real.built_in_role {
        contestant::grant(&cluster.plane, &real.flags).await?;
    }
    if real.search {
        return search::run(real, &mut cluster, &folder).await;
    }
    cluster.hold(&real.options.workload).await?;
    cluster.listen().await?;
    let mut reports = vec![Vec::new(); real.contestants.len()];
    for number in 1..=real.options.runs {
        for (contestant, reports) in real.contestants.iter().zip(&mut reports) {
            eprintln!("{contestant}, run {number} of {}", real.options.runs);
            cluster.reset().await?;
            cluster.kubeconfig = contestant.kubeconfig(&cluster.plane, real.built_in_role).await?;
            reports.push(run::run(&real.of(*contestant), &mut cluster, &folder).await?);
        }
    }
    cluster.reset().await?;
    let medians = reports.iter().map(|reports| median::of(reports)).collect::<Result<Vec<_>, _>>()?;
    for report in &medians {
        store(report, &folder)?;
    }
    Ok(medians)
}

/// That pages, paths, watches and counters are read rightly; needs no control plane.
pub(crate) fn check() -> Result<(), Failure> {
    pages::check()?;
    stub::check()?;
    follow::check()?;
    sockets::check()?;
    protobuf::check()?;
    search::check()?;
    options::check()
}
