//! `concertina console`: serves a page with all HPAs on a loopback address, with the user's kubeconfig.
//!
//! This module connects the server to a cluster and to the explanations of `why`, and opens the page in the user's
//! browser.

mod advice;
mod explain;
mod form;
mod inspect;
pub mod options;
mod past;
#[cfg(test)]
mod tests;
mod what_if;

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::access::Access;
use crate::server::{Console, Providers};
use crate::store::Store;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::explain::Explainer;
pub use self::inspect::Inspector;
use self::past::{LeaderChanges, LeaderRecord};
use crate::command::options::ConsoleOptions;
use clock::SharedClock;
use cluster::client::{ClientError, Clients};
use cluster::kubeconfig::{self, KubeconfigError};
use cluster::platform;
use flags::{DecisionFlags, FlagError};
use sources::{FileError, Sources};
use terminal::options::leader::Leader;
use terminal::words::html;
use why::{Refusals, client_options};

/// The reason why the console failed. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the cluster cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Explanations assume an invalid flag of the controller.
    #[error(transparent)]
    Flags(#[from] FlagError),
    /// The file of `--metric-sources-file` cannot be used.
    #[error("--metric-sources-file: {0}")]
    Sources(#[from] FileError),
    /// The port cannot be bound.
    #[error("cannot listen on {address} (--port): {source}; omit the flag to use a free port")]
    Listen {
        /// The loopback address with the port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The system has no random numbers for the token.
    #[error("cannot create the token of the console: the system provides no random numbers")]
    Random,
    /// The write to standard output failed.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// The cluster that a console shows, and the inputs of its explanations.
#[derive(Debug)]
pub struct Scene<'a> {
    /// Clients created with [`client_options`] of `refusals`.
    pub clients: &'a Clients,
    /// The reads that the server refuses.
    pub refusals: Arc<Refusals>,
    /// The namespace to show. `None` shows all namespaces.
    pub namespace: Option<&'a str>,
    /// The Leases of controllers whose records are read. If empty, no record is read.
    pub leaders: Vec<Leader>,
    /// The flags of the controller that explanations assume.
    pub flags: DecisionFlags,
    /// The Prometheus servers of `--metric-sources-file`, from which *What if* reads past values.
    pub sources: Option<Arc<Sources>>,
    /// `--advice`: the file with the output of `concertina advise -o json`.
    pub advice: Option<PathBuf>,
    /// The local clock.
    pub clock: SharedClock,
}

/// A console whose port is bound.
#[expect(missing_debug_implementations, reason = "its watch is a future")]
pub struct Listening {
    console: Console,
    listener: TcpListener,
    watch: BoxFuture<'static, ()>,
    /// The address of the page, with its token.
    pub url: String,
}

impl Listening {
    /// Binds a port of the loopback address. 0 selects a free port.
    pub async fn start(scene: Scene<'_>, port: u16) -> Result<Self, ConsoleError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let failed = |source| ConsoleError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let mut random = [0; 16];
        SystemRandom::new().fill(&mut random).map_err(|_| ConsoleError::Random)?;
        let access = Access::new(listener.local_addr().map_err(failed)?.port(), random);
        let url = access.url();
        // The observer collects refused reads of explanations, and the watch of HPAs is not part of an explanation.
        let watching = scene.clients.watch.unobserved();
        let (store, namespace) = (Store::new(Arc::clone(&scene.clock)), scene.namespace);
        let file = scene.advice.clone();
        let inspect = Arc::new(Inspector::new(scene.clients.clone(), scene.leaders.clone()));
        let changes = LeaderChanges::default();
        let record = Arc::new(LeaderRecord::new(scene.clients, &scene.leaders, namespace, changes.clone()));
        let explain = Arc::new(Explainer::new(scene, changes));
        let what_if = Arc::clone(&explain) as _;
        let providers = Providers { explain, inspect, what_if, record };
        let (console, watch) = Console::new(access, &store, watching, namespace, providers);
        let watch = match file {
            Some(path) => futures::future::join(watch, advice::follow(store, path)).map(|_| ()).boxed(),
            None => watch,
        };
        Ok(Self { console, listener, watch, url })
    }

    /// Serves the page until `stop`.
    pub async fn serve(self, stop: CancellationToken) {
        let watching = stop.clone().run_until_cancelled_owned(self.watch);
        let serving = self.console.serve(self.listener, stop);
        futures::join!(watching, serving);
    }
}

/// Serves the page until `stop`. Also opens the browser, unless an option prevents it or standard output is not a
/// terminal.
///
/// # Errors
/// Returns a [`ConsoleError`] if the page cannot be served.
pub async fn run(
    options: &ConsoleOptions,
    clock: SharedClock,
    stop: CancellationToken,
) -> Result<(), ConsoleError> {
    let user = kubeconfig::load_for_user(&options.cluster)?;
    let sources = options.metric_sources_file.clone().map(|path| Sources::new(path, None)).transpose()?;
    let sources = sources.map(Arc::new);
    let refusals = Refusals::new();
    let clients = terminal::options::cluster::clients(&user, client_options(&refusals))?;
    let scene = Scene {
        clients: &clients,
        refusals,
        namespace: options.cluster.namespace.as_deref(),
        leaders: options.leaders.clone(),
        flags: DecisionFlags::default(),
        sources,
        advice: options.advice.clone(),
        clock,
    };
    let listening = Listening::start(scene, options.port).await?;
    let mut out = io::stdout();
    writeln!(out, "Serving the console of this cluster until Ctrl+C:\n\n  {}", listening.url)?;
    out.flush()?;
    // The file for the browser must exist until the console stops.
    let browser = (options.opens_browser && out.is_terminal()).then(|| Browser::open(&listening.url));
    if let Some(Err(error)) = &browser {
        eprintln!("{error}");
    }
    listening.serve(stop).await;
    Ok(())
}

/// The user's browser, which shows the page. Dropping this value removes the file for the browser.
///
/// Other users of the machine can read the arguments of programs. The browser therefore receives the path of a file
/// that only the user can read, and the file contains the address with its token.
#[derive(Debug)]
struct Browser {
    directory: PathBuf,
}

/// The reason why the browser cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open a browser: {0}; open the address above")]
struct BrowserError(#[from] io::Error);

impl Browser {
    fn open(url: &str) -> Result<Self, BrowserError> {
        let (program, arguments) = opener();
        Self::open_with(directory(""), url, program, arguments)
    }

    fn open_with(
        directory: PathBuf,
        url: &str,
        program: &str,
        arguments: &[&str],
    ) -> Result<Self, BrowserError> {
        let browser = Self::write(directory, url)?;
        let started = Command::new(program)
            .args(arguments)
            .arg(browser.file())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // The process is not awaited, because it exits on its own or with the browser.
        started.map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        Ok(browser)
    }

    fn write(directory: PathBuf, url: &str) -> io::Result<Self> {
        platform::create_private_directory(&directory)?;
        let browser = Self { directory };
        let url = html(url);
        fs::write(
            browser.file(),
            format!(
                "<!doctype html>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"refresh\" content=\"0; url={url}\">\n\
                 <title>Concertina</title>\n<a href=\"{url}\">Open the console</a>\n"
            ),
        )?;
        Ok(browser)
    }

    fn file(&self) -> PathBuf {
        self.directory.join("console.html")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // If the removal fails, the system's cleanup of temporary directories removes the file.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the temporary directory for the file of this process.
fn directory(suffix: &str) -> PathBuf {
    std::env::temp_dir().join(format!("concertina-console-{}{suffix}", std::process::id()))
}

/// Returns the program that opens a file with the user's browser, and its first arguments.
fn opener() -> (&'static str, &'static [&'static str]) {
    if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        ("rundll32", &["url.dll,FileProtocolHandler"])
    } else {
        ("xdg-open", &[])
    }
}
