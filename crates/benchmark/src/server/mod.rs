//! The server process: the embedded cluster with a world, over TCP and TLS on a loopback address.
//!
//! The server process is this program, started with `server` and a workload. It communicates over lines
//! of standard input and output, and first prints `ready KUBECONFIG`. On `measure SECONDS`, it runs the
//! workload's events for that time and prints its observations as one line of JSON. `attack SECONDS` does the
//! same with the workload's hostile tenant. It exits at the end of its input.

pub(crate) mod events;
mod gateway;
mod wire;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::SystemClock;
use fake_cluster::Cluster;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use self::gateway::Gateway;
use self::wire::{Traffic, metered};
use crate::Failure;
use crate::hostile::tenant::Tenant;
use crate::hostile::way::Way;
use crate::observations::Observations;
use crate::process::Usage;
use crate::workload::Workload;
use crate::world::World;

/// The number of changes per resource type from which a watch can resume.
const HISTORY: usize = 2_000;
/// The same where a change can have megabytes.
const HISTORY_OF_LARGE: usize = 50;

/// Writes the file `kubeconfig` and serves a workload until the input ends.
pub(crate) async fn run(workload: &Workload, kubeconfig: &Path) -> Result<(), Failure> {
    let cluster = Cluster::new(Arc::new(SystemClock));
    cluster.requests().keep(0);
    cluster.keep_history(if matches!(workload.hostile, Some(Way::Large(..))) {
        HISTORY_OF_LARGE
    } else {
        HISTORY
    });
    let world = Arc::new(World::new(workload));
    world.build(&cluster);
    let tenant = Tenant::from_workload(workload, &cluster, &world);
    if let Some(tenant) = &tenant {
        tenant.prepare(workload);
    }
    cluster.compact();
    cluster.set_metrics(world.clone());
    let gateway = Arc::new(Gateway::new(workload, Arc::clone(&world)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (acceptor, text) = wire::identity(listener.local_addr()?)?;
    std::fs::write(kubeconfig, text)?;
    let traffic = Arc::new(Traffic::default());
    let (served, gateway_of_connection, counted) =
        (cluster.clone(), Arc::clone(&gateway), Arc::clone(&traffic));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, served, gateway_of_connection) =
                (acceptor.clone(), served.clone(), Arc::clone(&gateway_of_connection));
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                let stream = acceptor.accept(metered(stream, counted)).await?;
                served.serve_stream(stream, Some(gateway_of_connection)).await;
                Ok::<_, std::io::Error>(())
            });
        }
    });
    println!("ready {}", kubeconfig.display());

    while let Some(line) = spawn_blocking(|| std::io::stdin().lines().next().transpose()).await?? {
        let (command, seconds) = line.split_once(' ').ok_or_else(|| format!("unknown command {line:?}"))?;
        let (attacked, seconds) = (command == "attack", seconds.parse()?);
        let (before, received, sent) =
            (Usage::own()?, traffic.received.load(Ordering::Relaxed), traffic.sent.load(Ordering::Relaxed));
        gateway.start_measuring();
        let actions = AtomicU64::new(0);
        let attack = async {
            match &tenant {
                Some(tenant) if attacked => tenant.attack(&actions).await,
                _ => std::future::pending().await,
            }
        };
        let time = Duration::from_secs_f64(seconds);
        tokio::select! {
            biased;
            () = events::run(workload, &world, &cluster, &gateway, time) => {}
            () = attack => {}
        }
        let after = Usage::own()?;
        let seen = Observations {
            cpu: after.cpu - before.cpu,
            resident: after.resident,
            received: traffic.received.load(Ordering::Relaxed) - received,
            sent: traffic.sent.load(Ordering::Relaxed) - sent,
            actions: actions.into_inner(),
            ..gateway.finish()
        };
        println!("{}", serde_json::to_string(&seen)?);
    }
    Ok(())
}
