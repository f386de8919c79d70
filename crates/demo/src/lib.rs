//! `concertina demo`: a cluster in this process, workloads under changing load, and the controller that scales them.
//!
//! The controller is the same as in production. It reads the kubeconfig that the demo writes, and sends HTTP requests
//! to the embedded API server. kubectl reads the same state at the same port. The controller holds a Lease and has a pod,
//! so `why` finds its record by a port-forward. The periods are short: the controller syncs each HPA every second, and a
//! day of traffic takes 40 seconds.
//!
//! `world` creates the content of the cluster, `files` writes the files for its users, and `observe` reads the content.
//! `screen` shows the state. On a terminal, `frame` renders the state as frames.

mod files;
mod frame;
mod observe;
pub mod options;
mod screen;
mod world;

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::options::DemoOptions;
use clock::SharedClock;
use cluster::kubeconfig::{self, ClusterOptions};
use console::command::{ConsoleError, Listening, Scene};
use controller::options::MetricSources;
use engine::reconcile::Observers;
use fake_cluster::Status;
use flags::{Config, DecisionFlags, FlagSet};
use sources::FileError;
use terminal::options::leader::Leader;
use terminal::words::counted;
use why::{Refusals, client_options};

use self::files::Files;
use self::observe::{Observer, Snapshot, Syncs};
pub use self::screen::Screen;
use self::world::DemoWorld;

/// The namespace of the workloads.
const NAMESPACE: &str = "shop";
/// The interval between snapshots of the cluster.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(250);
/// The time between the start of the cluster and the start of the controller. For a new pod, the controller uses a cpu
/// sample only if the window of the sample starts after the pod became ready. These times have a resolution of one
/// second.
const HEAD_START: Duration = Duration::from_millis(2_100);
/// The time limit for the controller's shutdown.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// The reason why the demo failed. The exit code is 1.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The port cannot be bound.
    #[error("cannot listen on {address} (--port): {source}; omit the flag to use a free port")]
    Listen {
        /// The loopback address with the port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file of the demo or its temporary directory cannot be written.
    #[error("cannot write {}: {source}; choose another path with --write-kubeconfig", path.display())]
    Write {
        /// The file or the directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file at the path of the kubeconfig exists, and no earlier demo wrote it.
    #[error(
        "{} exists and was not written by an earlier demo, so it is not overwritten; choose another file with --write-kubeconfig",
        path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The certificate of the kubeconfig's user cannot be created.
    #[error("failed to create the certificate of the demo's user: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The embedded cluster refuses the demo's own objects.
    #[error("failed to create the demo's workloads: {0}")]
    World(#[from] Status),
    /// The demo's own file with metric sources cannot be read.
    #[error("failed to read the demo's metric sources: {0}")]
    Sources(#[from] FileError),
    /// The console cannot be started.
    #[error("failed to start the console of the demo: {0}")]
    Console(#[from] ConsoleError),
    /// The controller failed.
    #[error("the controller failed: {0}")]
    Controller(Box<dyn Error + Send + Sync>),
    /// The controller stopped without a request from the demo.
    #[error("the controller stopped unexpectedly: {0}")]
    Ended(String),
    /// Writing to standard output failed.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Runs the controller with a configuration until the token is cancelled. The observers receive its concluded syncs.
pub type RunController = fn(
    Config,
    SharedClock,
    Observers,
    CancellationToken,
) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>>;

/// Runs the demo until `options.duration` has elapsed or `stop` is cancelled, then prints a summary.
///
/// # Errors
///
/// Returns a [`DemoError`] if the demo cannot start, the controller fails or stops early, or writing to standard output
/// fails.
pub async fn run(
    options: &DemoOptions,
    controller: RunController,
    clock: SharedClock,
    screen: Screen,
    stop: CancellationToken,
) -> Result<(), DemoError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let listener =
        TcpListener::bind(address).await.map_err(|source| DemoError::Listen { address, source })?;
    let server = format!("http://{}", listener.local_addr()?);
    let files = Files::write(options.kubeconfig.as_deref(), &server)?;
    let secure_port = free_port()?;
    let world = DemoWorld::build(&clock, secure_port)?;

    // The cluster stops after the controller, which still writes during its shutdown.
    let cluster_stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let (cluster, serving) = (world.cluster.clone(), cluster_stop.clone());
    tasks.spawn(async move { cluster.serve(listener, serving).await });
    world.start(&tasks, &cluster_stop);
    let console = console(&files, Arc::clone(&clock)).await?;
    let program = std::env::args().next().unwrap_or_else(|| "concertina".to_owned());
    let intro = intro(&program, &server, &files, &console.url, options.metrics_port);
    tasks.spawn(console.serve(cluster_stop.clone()));
    tasks.close();

    let flags = world::controller_flags(&files, secure_port, options.metrics_port);
    let config = FlagSet::controller().resolve(flags);
    let mut config = config.map_err(|error| DemoError::Controller(error.into()))?;
    config.controller.metric_sources = Some(MetricSources(world::sources(&world, files.sources.clone())?));
    let controlling = stop.child_token();
    let syncs = Arc::new(Syncs::default());
    let controller = {
        let (controlling, observer) = (controlling.clone(), Arc::clone(&syncs) as Arc<_>);
        async move {
            tokio::time::sleep(HEAD_START).await;
            controller(config, clock, vec![observer], controlling).await
        }
    };
    let observer = Observer::new(world.cluster, syncs);
    let result = show(observer, options.duration, screen, &intro, controller, &controlling, &stop).await;
    cluster_stop.cancel();
    tasks.wait().await;
    result
}

/// Shows the snapshots of `observer` while `controller` runs, then stops the controller through `controlling` and
/// prints the summary.
async fn show(
    mut observer: Observer,
    duration: Option<Duration>,
    mut screen: Screen,
    intro: &[String],
    controller: impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send + 'static,
    controlling: &CancellationToken,
    stop: &CancellationToken,
) -> Result<(), DemoError> {
    let mut controller = tokio::spawn(controller);
    let deadline = async {
        match duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(deadline);
    let mut ticks = tokio::time::interval_at(Instant::now() + SNAPSHOT_INTERVAL, SNAPSHOT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    screen.start(intro)?;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = &mut deadline => break,
            ended = &mut controller => {
                screen.stop()?;
                return match ended {
                    Ok(Ok(())) => Err(DemoError::Ended("no error was reported".to_owned())),
                    Ok(Err(error)) => Err(DemoError::Controller(error)),
                    Err(error) => Err(DemoError::Ended(error.to_string())),
                };
            }
            _ = ticks.tick() => screen.show(intro, &observer.observe())?,
        }
    }
    let last = observer.observe();
    // The screen is restored first, because the shutdown may take a while.
    screen.stop()?;
    controlling.cancel();
    let ended = tokio::time::timeout(SHUTDOWN_LIMIT, controller).await;
    screen.print(&summary(&last))?;
    match ended {
        Ok(Ok(Err(error))) => Err(DemoError::Controller(error)),
        Ok(Err(error)) => Err(DemoError::Ended(error.to_string())),
        // A shutdown that exceeds the limit is abandoned, because the process exits after the demo.
        Ok(Ok(Ok(()))) | Err(_) => Ok(()),
    }
}

/// Returns a port of the loopback address that no process uses now.
fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Starts the console of the demo's cluster. The console uses the same kubeconfig as kubectl.
async fn console(files: &Files, clock: SharedClock) -> Result<Listening, ConsoleError> {
    let options = ClusterOptions { kubeconfig: Some(files.kubeconfig.clone()), ..ClusterOptions::default() };
    let user = kubeconfig::load_for_user(&options)?;
    let refusals = Refusals::new();
    let clients = terminal::options::cluster::clients(&user, client_options(&refusals))?;
    let scene = Scene {
        clients: &clients,
        refusals,
        namespace: None,
        leaders: Leader::candidates(None),
        flags: DecisionFlags::default(),
        sources: None,
        advice: None,
        clock,
    };
    Listening::start(scene, 0).await
}

/// Returns the lines of the introduction, with commands to try. `program` is the command that started this process.
fn intro(
    program: &str,
    server: &str,
    files: &Files,
    console: &str,
    metrics_port: Option<u16>,
) -> Vec<String> {
    let mut lines = vec![
        format!(
            "Concertina demo: a cluster in this process, at {server}, and the controller that scales it."
        ),
        format!("All HPAs on a page: {console}"),
        "HPAs sync every second; a day of traffic takes 40 seconds. In another terminal, try:".to_owned(),
        String::new(),
        format!("  export KUBECONFIG={}", files.kubeconfig.display()),
        format!("  {program} why web"),
        "  kubectl get hpa,pods".to_owned(),
        "  kubectl describe hpa burst".to_owned(),
        r#"  kubectl patch hpa burst --type merge -p '{"spec":{"maxReplicas":15}}'"#.to_owned(),
        "  kubectl annotate hpa worker concertina.dev/policy-    # ends the pause".to_owned(),
        format!("  kubectl apply -f {}    # an HPA for the deployment cache", files.manifest.display()),
        String::new(),
    ];
    if let Some(port) = metrics_port {
        let text = format!(
            "Metrics: http://{0}:{port}/metrics, decisions: http://{0}:{port}/decisions",
            Ipv4Addr::LOCALHOST
        );
        lines.insert(2, text);
    }
    lines
}

/// Returns the lines of the summary: the totals, followed by one line per HPA.
fn summary(last: &Snapshot) -> Vec<String> {
    let rescales: u32 = last.hpas.iter().map(|hpa| hpa.rescales).sum();
    let (seconds, rescales) = (last.elapsed.as_secs(), counted(rescales, "rescale"));
    let total = format!("Concertina demo: {seconds} seconds, {} syncs, {rescales}.", last.syncs);
    let mut lines = vec![String::new(), total];
    let width = last.hpas.iter().map(|hpa| hpa.key().len()).max().unwrap_or(0);
    lines.extend(last.hpas.iter().map(|hpa| {
        let rescales = counted(hpa.rescales, "rescale");
        format!("  {:width$}  {} to {} replicas, {rescales}", hpa.key(), hpa.lowest, hpa.highest)
    }));
    lines
}

#[cfg(test)]
mod tests;
