//! `concertina demo`: a cluster in this process, workloads under changing load, and the controller that scales them.
//!
//! The controller is the real one: it reads the kubeconfig that the demo writes and talks HTTP to the embedded API
//! server, as it would to any other. Whoever looks at the port with kubectl sees the same. Only time is short: HPAs sync
//! each second, and a day of traffic takes forty.
//!
//! `world` holds what is in the cluster, `observe` looks at it, `frame` and `plain` show it, on a terminal and
//! elsewhere.

mod files;
mod frame;
mod observe;
mod plain;
mod screen;
mod world;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{self, AppError};
use crate::cli::DemoOptions;
use crate::clock::SharedClock;
use crate::embedded::Status;

use self::files::Files;
use self::observe::{Observer, Snapshot, Syncs};
pub use self::screen::Screen;
pub(super) use self::screen::terminal_columns;
use self::world::DemoWorld;

/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long the cluster runs before the controller begins: a cpu sample counts once its window lies behind the moment in
/// which its pod became ready, both in whole seconds.
const HEAD_START: Duration = Duration::from_millis(2_100);
/// How long the controller may take to end.
const ENDING: Duration = Duration::from_secs(10);

/// Why the demo cannot run. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The port cannot be bound.
    #[error("cannot listen on {address} (--port): {source}; leave the flag out to take a free port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A file for kubectl cannot be written.
    #[error("cannot write {}: {source}; choose another place with --kubeconfig", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file that should be written is somebody's.
    #[error(
        "{} exists and is not the kubeconfig of an earlier demo; it is left alone, choose another file with --kubeconfig",
        path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The cluster does not take the demo's own objects.
    #[error("the workloads of the demo cannot be created: {0}")]
    World(#[from] Status),
    /// The controller did not start.
    #[error("the controller cannot run: {0}")]
    Controller(#[from] AppError),
    /// The controller ended although nobody asked it to.
    #[error("the controller ended unexpectedly: {0}")]
    Ended(String),
    /// Nothing can be shown.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Runs the demo until `--for` is over or `stop` is cancelled, then prints a summary.
pub async fn run(
    options: &DemoOptions,
    clock: SharedClock,
    screen: Screen,
    stop: CancellationToken,
) -> Result<(), DemoError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let listener =
        TcpListener::bind(address).await.map_err(|source| DemoError::Listen { address, source })?;
    let server = format!("http://{}", listener.local_addr()?);
    let files = Files::write(options.kubeconfig.as_deref(), &server)?;
    let world = DemoWorld::build(&clock)?;

    // The cluster outlives the controller, which still writes on its way down.
    let ending = CancellationToken::new();
    let tasks = TaskTracker::new();
    let (cluster, serving) = (world.cluster.clone(), ending.clone());
    tasks.spawn(async move { cluster.serve(listener, serving).await });
    world.start(&tasks, &ending);
    tasks.close();

    let config = world::controller_config(&files);
    let controlling = stop.child_token();
    let syncs = Arc::new(Syncs::default());
    let controller = {
        let (controlling, told) = (controlling.clone(), Arc::clone(&syncs) as Arc<_>);
        async move {
            tokio::time::sleep(HEAD_START).await;
            app::run(&config, clock, vec![told], controlling).await
        }
    };
    let intro = intro(&server, &files);
    let observer = Observer::new(world.cluster, syncs);
    let result = show(observer, options.duration, screen, &intro, controller, &controlling, &stop).await;
    ending.cancel();
    tasks.wait().await;
    result
}

/// Shows what `observer` sees while `controller` runs, then ends it by `controlling` and shows the summary.
async fn show<E>(
    mut observer: Observer,
    duration: Option<Duration>,
    mut screen: Screen,
    intro: &[String],
    controller: impl Future<Output = Result<(), E>> + Send + 'static,
    controlling: &CancellationToken,
    stop: &CancellationToken,
) -> Result<(), DemoError>
where
    DemoError: From<E>,
    E: Send + 'static,
{
    let mut controller = tokio::spawn(controller);
    let deadline = async {
        match duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(deadline);
    let mut looks = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    screen.begin(intro)?;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = &mut deadline => break,
            ended = &mut controller => {
                screen.end()?;
                return match ended {
                    Ok(Ok(())) => Err(DemoError::Ended("it says nothing about it".to_owned())),
                    Ok(Err(error)) => Err(error.into()),
                    Err(error) => Err(DemoError::Ended(error.to_string())),
                };
            }
            _ = looks.tick() => screen.show(intro, &observer.observe())?,
        }
    }
    let last = observer.observe();
    // Now, so that the terminal is as it was even if the rest takes a while.
    screen.end()?;
    controlling.cancel();
    let ended = tokio::time::timeout(ENDING, controller).await;
    screen.print(&summary(&last))?;
    match ended {
        Ok(Ok(Err(error))) => Err(error.into()),
        Ok(Err(error)) => Err(DemoError::Ended(error.to_string())),
        // One that needs longer is abandoned: nothing of the demo outlives the process.
        Ok(Ok(Ok(()))) | Err(_) => Ok(()),
    }
}

/// What a newcomer should know, and try.
fn intro(server: &str, files: &Files) -> Vec<String> {
    let kubeconfig = files.kubeconfig.display();
    vec![
        format!(
            "Concertina demo: a cluster in this process, at {server}, and the controller that scales it."
        ),
        "HPAs sync every second; a day of traffic takes 40 seconds. In another terminal, try:".to_owned(),
        String::new(),
        format!("  export KUBECONFIG={kubeconfig}"),
        "  kubectl get hpa,pods".to_owned(),
        "  kubectl describe hpa web".to_owned(),
        "  kubectl get events --watch".to_owned(),
        format!("  kubectl apply -f {}    # an HPA for the deployment cache", files.manifest.display()),
        r#"  kubectl patch hpa web --type merge -p '{"spec":{"maxReplicas":4}}'"#.to_owned(),
        String::new(),
    ]
}

/// What happened, in a few lines.
fn summary(last: &Snapshot) -> Vec<String> {
    let rescales: u32 = last.hpas.iter().map(|hpa| hpa.rescales).sum();
    let mut lines = vec![String::new()];
    lines.push(format!(
        "Concertina demo: {} seconds, {} syncs, {}.",
        last.elapsed.as_secs(),
        last.syncs,
        counted(rescales)
    ));
    let width = last.hpas.iter().map(|hpa| hpa.key().len()).max().unwrap_or(0);
    for hpa in &last.hpas {
        lines.push(format!(
            "  {:width$}  {} to {} replicas, {}",
            hpa.key(),
            hpa.lowest,
            hpa.highest,
            counted(hpa.rescales)
        ));
    }
    lines
}

fn counted(rescales: u32) -> String {
    if rescales == 1 { "1 rescale".to_owned() } else { format!("{rescales} rescales") }
}

#[cfg(test)]
mod tests;
