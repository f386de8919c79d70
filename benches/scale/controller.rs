//! The controller under test: any program, started by a command line with places to fill in.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::Failure;
use crate::observed::{Micros, now};
use crate::process::Usage;
use crate::scrape::Page;

/// So long may a process take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program of this repository with what a run needs; all else is at its defaults.
const OWN: &str = "{concertina} --kubeconfig={kubeconfig} --secure-port=0 --health-address=127.0.0.1:{port} \
                   --leader-elect=false --takeover=off --horizontal-pod-autoscaler-sync-period={period}";
const OWN_METRICS: &str = "http://127.0.0.1:{port}/metrics";

/// kube-controller-manager with this controller alone, likewise.
const BUILT_IN: &str = "{built-in} --kubeconfig={kubeconfig} --controllers=horizontal-pod-autoscaler-controller \
                        --secure-port={port} --bind-address=127.0.0.1 --cert-dir={folder} \
                        --authentication-skip-lookup --authorization-always-allow-paths=/metrics \
                        --leader-elect=false \
                        --horizontal-pod-autoscaler-sync-period={period}";
/// The embedded API server has no protobuf; a real one has, and accounts.
const FOR_EMBEDDED: &str = " --kube-api-content-type=application/json";
const FOR_REAL: &str = " --use-service-account-credentials=true";
const BUILT_IN_METRICS: &str = "https://127.0.0.1:{port}/metrics";

/// How a controller is started.
#[derive(Debug, Clone)]
pub(crate) struct CommandLine {
    /// With places to fill in: `{kubeconfig}`; `{port}`, a free one, for its metrics; `{period}`; `{folder}` for whatever it
    /// writes; `{concertina}`, the program of this repository; `{built-in}`, kube-controller-manager in the folder that
    /// `KUBEBUILDER_ASSETS` names.
    pub(crate) template: String,
    /// Words that are added to it.
    pub(crate) flags: Vec<String>,
    /// Where its metrics are, `{port}` being filled in; empty: nowhere.
    pub(crate) metrics: String,
    /// Count the instructions of the process.
    pub(crate) instructions: bool,
    /// Bind it to the second core, and the server to the first.
    pub(crate) pin: bool,
}

/// What goes before it to count its instructions: exact however busy the machine is, but many times slower. None are
/// counted until [`Controller::count`].
const COUNTED: &str =
    "valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file={folder}/callgrind.out";

/// Which of two processes is bound to a core of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    Server,
    Controller,
}

/// What goes before a command line to bind it to its core.
pub(crate) fn pinned(pin: bool, core: Core) -> &'static [&'static str] {
    match (pin, core) {
        (false, _) => &[],
        (true, Core::Server) => &["taskset", "--cpu-list", "0"],
        (true, Core::Controller) => &["taskset", "--cpu-list", "1"],
    }
}

/// What is filled in.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    pub(crate) kubeconfig: &'a Path,
    pub(crate) folder: &'a Path,
    pub(crate) period: Duration,
}

/// A controller that runs; it ends with this.
#[derive(Debug)]
pub(crate) struct Controller {
    child: Child,
    pub(crate) pid: u32,
    page: Option<Page>,
    /// When it was started.
    pub(crate) since: Micros,
    /// How it was called, with nothing filled in.
    pub(crate) called: String,
}

impl CommandLine {
    /// The program of this repository, with more words.
    pub(crate) fn own(flags: Vec<String>) -> Self {
        Self {
            template: OWN.to_owned(),
            flags,
            metrics: OWN_METRICS.to_owned(),
            instructions: false,
            pin: false,
        }
    }

    /// kube-controller-manager's in front of the embedded API server, with more words.
    pub(crate) fn built_in(flags: Vec<String>) -> Self {
        Self::built_in_with(FOR_EMBEDDED, flags)
    }

    /// The same in front of a real one.
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

    /// Starts the controller; what it prints goes to a file.
    pub(crate) fn start(&self, places: &Places<'_>, log: &Path) -> Result<Controller, Failure> {
        // Free now: nobody else on the machine is likely to take it in the meantime.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let called: Vec<_> =
            self.template.split_whitespace().chain(self.flags.iter().map(String::as_str)).collect();
        let mut words = Vec::new();
        let before = if self.instructions { COUNTED } else { "" };
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
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let pid = child.id().ok_or("the controller ended at once")?;
        let page = Page::at(&self.metrics.replace("{port}", &port))?;
        Ok(Controller { child, pid, page, since: now(), called: called.join(" ") })
    }
}

/// The program of this repository, or another build of it that `CONCERTINA_BIN` names.
pub(crate) fn concertina() -> PathBuf {
    std::env::var_os("CONCERTINA_BIN").map_or_else(|| env!("CARGO_BIN_EXE_concertina").into(), PathBuf::from)
}

fn built_in() -> Result<String, Failure> {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS").ok_or(
        "KUBEBUILDER_ASSETS is not set; it is the folder with kube-controller-manager that tests/controlplane/build.sh makes",
    )?;
    Ok(PathBuf::from(folder).join("kube-controller-manager").display().to_string())
}

impl Controller {
    /// What its process has used.
    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        Usage::of(self.pid).map_err(|error| format!("the controller has ended, see its log ({error})").into())
    }

    /// Its own metrics; empty if it shows none.
    pub(crate) async fn metrics(&self) -> Result<BTreeMap<String, f64>, Failure> {
        match &self.page {
            Some(page) => page.read().await,
            None => Ok(BTreeMap::new()),
        }
    }

    /// From now on its instructions are counted, or not any more.
    pub(crate) async fn count(&self, on: bool) -> Result<(), Failure> {
        let word = if on { "on" } else { "off" };
        let status = Command::new("callgrind_control")
            .args(["-i", word, &self.pid.to_string()])
            .stdout(Stdio::null())
            .status()
            .await
            .map_err(|error| format!("cannot start callgrind_control, which comes with valgrind: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("callgrind_control -i {word}: {status}").into()) }
    }

    /// Kills it, as a node that fails does.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// Asks it to end, and kills it if it does not.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        Command::new("kill").arg(self.pid.to_string()).status().await?;
        if timeout(PATIENCE, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

/// How many instructions were counted, once the process has ended.
pub(crate) fn instructions(folder: &Path) -> Result<f64, Failure> {
    let path = folder.join("callgrind.out");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    Ok(totals.ok_or_else(|| format!("no totals in {}", path.display()))?.trim().parse()?)
}
