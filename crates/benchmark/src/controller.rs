//! The controller under test: any program with a command line template.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::Failure;
use crate::observations::{Micros, now};
use crate::scrape::{Page, Usage};

/// Time limit of a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// The command line of Concertina, with only the flags that a run needs.
const OWN: &str = "{concertina} --kubeconfig={kubeconfig} --secure-port=0 --health-address=127.0.0.1:{port} \
                   --leader-elect=false --takeover=off --horizontal-pod-autoscaler-sync-period={period}";
const OWN_METRICS: &str = "http://127.0.0.1:{port}/metrics";

/// The command line of kube-controller-manager with only the HPA controller.
const BUILT_IN: &str = "{built-in} --kubeconfig={kubeconfig} --controllers=horizontal-pod-autoscaler-controller \
                        --secure-port={port} --bind-address=127.0.0.1 --cert-dir={folder} \
                        --authentication-skip-lookup --authorization-always-allow-paths=/metrics \
                        --leader-elect=false \
                        --horizontal-pod-autoscaler-sync-period={period}";
/// The embedded API server supports only JSON, and no tokens of ServiceAccounts.
const FOR_EMBEDDED: &str = " --kube-api-content-type=application/json";
const FOR_REAL: &str = " --use-service-account-credentials=true";
const BUILT_IN_METRICS: &str = "https://127.0.0.1:{port}/metrics";

/// The command line of a controller, with options for the run.
#[derive(Debug, Clone)]
pub(crate) struct CommandLine {
    /// The command line with placeholders:
    /// - `{kubeconfig}`: the path of the kubeconfig
    /// - `{port}`: a free port for the metrics
    /// - `{period}`: the sync period
    /// - `{folder}`: the folder for files that the controller writes
    /// - `{concertina}`: the Concertina program
    /// - `{built-in}`: kube-controller-manager in the folder `KUBEBUILDER_ASSETS`
    pub(crate) template: String,
    /// Flags that are appended to the template.
    pub(crate) flags: Vec<String>,
    /// The URL of the controller's metrics with the placeholder `{port}`. Empty if the controller has no metrics.
    pub(crate) metrics: String,
    /// Whether valgrind counts the instructions of the process.
    pub(crate) instructions: bool,
    /// Whether the server is bound to the first core and the controller to the second.
    pub(crate) pin: bool,
}

/// The prefix of a command line that counts instructions. The count is exact even on a busy machine, but the program
/// runs many times slower. [`Controller::count`] starts the count.
const COUNTING_PREFIX: &str =
    "valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file={folder}/callgrind.out";

/// A process that can be bound to its own core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    Server,
    Controller,
}

/// Returns the prefix of a command line that binds the process to its core. Empty without `pin`.
pub(crate) fn pinned(pin: bool, core: Core) -> &'static [&'static str] {
    match (pin, core) {
        (false, _) => &[],
        (true, Core::Server) => &["taskset", "--cpu-list", "0"],
        (true, Core::Controller) => &["taskset", "--cpu-list", "1"],
    }
}

/// The values of the placeholders.
#[derive(Debug)]
pub(crate) struct Placeholders<'a> {
    pub(crate) kubeconfig: &'a Path,
    pub(crate) folder: &'a Path,
    pub(crate) period: Duration,
}

/// A running controller. A drop kills the process.
#[derive(Debug)]
pub(crate) struct Controller {
    child: Child,
    pub(crate) pid: u32,
    page: Option<Page>,
    /// The start time of the process.
    pub(crate) since: Micros,
    /// The command line with its placeholders, without the prefixes.
    pub(crate) called: String,
}

impl CommandLine {
    /// Returns the command line of Concertina with additional flags.
    pub(crate) fn own(flags: Vec<String>) -> Self {
        Self {
            template: OWN.to_owned(),
            flags,
            metrics: OWN_METRICS.to_owned(),
            instructions: false,
            pin: false,
        }
    }

    /// Returns the command line of kube-controller-manager for the embedded API server, with additional flags.
    pub(crate) fn built_in(flags: Vec<String>) -> Self {
        Self::built_in_with(FOR_EMBEDDED, flags)
    }

    /// Returns the command line of kube-controller-manager for a real API server, with additional flags.
    pub(crate) fn built_in_for_real(flags: Vec<String>) -> Self {
        Self::built_in_with(FOR_REAL, flags)
    }

    fn built_in_with(words: &str, flags: Vec<String>) -> Self {
        Self {
            template: BUILT_IN.to_owned() + words,
            flags,
            metrics: BUILT_IN_METRICS.to_owned(),
            instructions: false,
            pin: false,
        }
    }

    /// Starts the controller, and appends its output to the file `log`.
    pub(crate) fn start(&self, places: &Placeholders<'_>, log: &Path) -> Result<Controller, Failure> {
        // Another process is unlikely to bind this free port before the controller.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let called: Vec<_> =
            self.template.split_whitespace().chain(self.flags.iter().map(String::as_str)).collect();
        let mut words = Vec::new();
        let before = if self.instructions { COUNTING_PREFIX } else { "" };
        let pinned = pinned(self.pin, Core::Controller);
        for word in pinned.iter().copied().chain(before.split_whitespace()).chain(called.iter().copied()) {
            words.push(
                word.replace("{concertina}", &concertina().display().to_string())
                    .replace(
                        "{built-in}",
                        &if word.contains("{built-in}") { built_in()? } else { String::new() },
                    )
                    .replace("{kubeconfig}", &places.kubeconfig.display().to_string())
                    .replace("{folder}", &places.folder.display().to_string())
                    .replace("{port}", &port)
                    .replace("{period}", &format!("{}ms", places.period.as_millis())),
            );
        }
        let (program, rest) = words.split_first().ok_or("the command line of the controller is empty")?;
        let output = File::options().create(true).append(true).open(log)?;
        let child = Command::new(program)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("failed to start {program}: {error}"))?;
        let pid = child.id().ok_or("the controller exited immediately")?;
        let page = Page::parse(&self.metrics.replace("{port}", &port))?;
        Ok(Controller { child, pid, page, since: now(), called: called.join(" ") })
    }
}

/// The Concertina program that the bench target names.
static CONCERTINA: OnceLock<PathBuf> = OnceLock::new();

/// Sets the Concertina program. Later calls have no effect.
pub(crate) fn set_concertina(program: &Path) {
    CONCERTINA.get_or_init(|| program.to_owned());
}

/// Returns the Concertina program. The environment variable `CONCERTINA_BIN` overrides [`set_concertina`].
pub(crate) fn concertina() -> PathBuf {
    let set = || CONCERTINA.get().cloned().unwrap_or_else(|| "concertina".into());
    std::env::var_os("CONCERTINA_BIN").map_or_else(set, PathBuf::from)
}

fn built_in() -> Result<String, Failure> {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS").ok_or(
        "KUBEBUILDER_ASSETS is not set; set it to the folder with kube-controller-manager that tests/controlplane/build.sh prints",
    )?;
    Ok(PathBuf::from(folder).join("kube-controller-manager").display().to_string())
}

impl Controller {
    /// Returns the resource usage of the process. Returns an error if the process has exited.
    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        Usage::of_process(self.pid)
            .map_err(|error| format!("the controller has exited, see its log ({error})").into())
    }

    /// Scrapes the controller's metrics. The result is empty if the controller has no metrics.
    pub(crate) async fn metrics(&self) -> Result<BTreeMap<String, f64>, Failure> {
        match &self.page {
            Some(page) => page.read().await,
            None => Ok(BTreeMap::new()),
        }
    }

    /// Starts or stops the count of the controller's instructions.
    pub(crate) async fn count(&self, on: bool) -> Result<(), Failure> {
        let word = if on { "on" } else { "off" };
        let status = Command::new("callgrind_control")
            .args(["-i", word, &self.pid.to_string()])
            .stdout(Stdio::null())
            .status()
            .await
            .map_err(|error| format!("failed to start callgrind_control, install valgrind: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("callgrind_control -i {word}: {status}").into()) }
    }

    /// Kills the controller without a graceful shutdown, like the failure of a node.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// Sends SIGTERM, and SIGKILL after [`SHUTDOWN_TIMEOUT`].
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        Command::new("kill").arg(self.pid.to_string()).status().await?;
        if timeout(SHUTDOWN_TIMEOUT, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

/// Reads the number of counted instructions. The process must have exited.
pub(crate) fn instructions(folder: &Path) -> Result<f64, Failure> {
    let path = folder.join("callgrind.out");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    Ok(totals.ok_or_else(|| format!("no totals in {}", path.display()))?.trim().parse()?)
}
