//! The server's process: the embedded cluster with a world in it, over TCP and TLS on a loopback address.
//!
//! It is this program, started again with `server` and a workload. What it says and hears are lines of its standard output
//! and input: it says `ready KUBECONFIG`; it hears `measure SECONDS`, lets happen what the workload has for that time, and
//! says what it saw as one line of JSON; it ends with its input.

mod gateway;
pub(crate) mod happenings;
mod wire;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use concertina::clock::SystemClock;
use concertina::embedded::Cluster;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use self::gateway::Gateway;
use self::wire::{Metered, Traffic};
use crate::Failure;
use crate::observed::Observed;
use crate::process::Usage;
use crate::workload::Workload;
use crate::world::World;

/// Changes of each resource type from which a watch can be started again.
const HISTORY: usize = 2_000;

/// Serves a workload until the input ends; the kubeconfig goes to this file.
pub(crate) async fn run(workload: &Workload, kubeconfig: &Path) -> Result<(), Failure> {
    let cluster = Cluster::new(Arc::new(SystemClock));
    cluster.requests().keep(0);
    cluster.keep_history(HISTORY);
    let world = Arc::new(World::new(workload));
    world.build(&cluster);
    cluster.compact();
    cluster.set_metrics(world.clone());
    let gateway = Arc::new(Gateway::new(workload, Arc::clone(&world)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (acceptor, text) = wire::identity(listener.local_addr()?)?;
    std::fs::write(kubeconfig, text)?;
    let traffic = Arc::new(Traffic::default());
    let (served, way, counted) = (cluster.clone(), Arc::clone(&gateway), Arc::clone(&traffic));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, served, way) = (acceptor.clone(), served.clone(), Arc::clone(&way));
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                let stream = acceptor.accept(Metered::new(stream, counted)).await?;
                served.serve_stream(stream, Some(way)).await;
                Ok::<_, std::io::Error>(())
            });
        }
    });
    println!("ready {}", kubeconfig.display());

    while let Some(line) = spawn_blocking(|| std::io::stdin().lines().next().transpose()).await?? {
        let seconds = line.strip_prefix("measure ").and_then(|seconds| seconds.parse::<f64>().ok());
        let seconds = seconds.ok_or_else(|| format!("the server does not know what {line:?} means"))?;
        let (before, received, sent) =
            (Usage::own()?, traffic.received.load(Ordering::Relaxed), traffic.sent.load(Ordering::Relaxed));
        gateway.begin();
        happenings::play(workload, &world, &cluster, &gateway, Duration::from_secs_f64(seconds)).await;
        let after = Usage::own()?;
        let seen = Observed {
            cpu: after.cpu - before.cpu,
            resident: after.resident,
            received: traffic.received.load(Ordering::Relaxed) - received,
            sent: traffic.sent.load(Ordering::Relaxed) - sent,
            ..gateway.end()
        };
        println!("{}", serde_json::to_string(&seen)?);
    }
    Ok(())
}
