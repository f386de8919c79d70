//! The controller under test: any program, started by a command line with places to fill in.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::Failure;
use crate::observed::{Micros, now};
use crate::process::Usage;

/// The program of this repository with what a run needs; all else is at its defaults.
pub(crate) const OWN: &str = "{concertina} --kubeconfig={kubeconfig} --secure-port=0 --health-address={address} \
                              --leader-elect=false --takeover=off --horizontal-pod-autoscaler-sync-period={period}";
/// So long may an answer with metrics take, and the end of the process.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a controller is started.
#[derive(Debug, Clone)]
pub(crate) struct CommandLine {
    /// With `{concertina}`, `{kubeconfig}`, `{address}` (loopback address and port for its metrics), `{port}` (that port)
    /// and `{period}` to be filled in.
    pub(crate) template: String,
    /// Words that are added to it.
    pub(crate) flags: Vec<String>,
    /// Where its metrics are, `{address}` being filled in; empty: nowhere.
    pub(crate) metrics: String,
}

/// A controller that runs; it ends with this.
#[derive(Debug)]
pub(crate) struct Controller {
    child: Child,
    pid: u32,
    metrics: Option<SocketAddr>,
    path: String,
    /// When it was started.
    pub(crate) since: Micros,
    /// How it was called.
    pub(crate) called: String,
}

impl CommandLine {
    /// Starts the controller; what it prints goes to a file.
    pub(crate) fn start(
        &self,
        kubeconfig: &Path,
        period: Duration,
        log: PathBuf,
    ) -> Result<Controller, Failure> {
        // Free now: nobody else on the machine is likely to take it in the meantime.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut words = Vec::new();
        for word in self.template.split_whitespace().chain(self.flags.iter().map(String::as_str)) {
            words.push(
                word.replace("{concertina}", env!("CARGO_BIN_EXE_concertina"))
                    .replace("{kubeconfig}", &kubeconfig.display().to_string())
                    .replace("{address}", &address.to_string())
                    .replace("{port}", &address.port().to_string())
                    .replace("{period}", &format!("{}ms", period.as_millis())),
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
        let metrics = self.metrics.replace("{address}", &address.to_string());
        let (metrics, path) = match metrics.strip_prefix("http://").and_then(|rest| rest.split_once('/')) {
            Some((address, path)) => (Some(address.parse()?), format!("/{path}")),
            None => (None, String::new()),
        };
        let called = self.template.split_whitespace().chain(self.flags.iter().map(String::as_str));
        let called = called.collect::<Vec<_>>().join(" ");
        Ok(Controller { child, pid, metrics, path, since: now(), called })
    }
}

impl Controller {
    /// What its process has used.
    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        Usage::of(self.pid).map_err(|error| format!("the controller has ended, see its log ({error})").into())
    }

    /// Its own metrics, each with the sum of its series (those of buckets apart by `le`); empty if it shows none.
    pub(crate) async fn metrics(&self) -> Result<BTreeMap<String, f64>, Failure> {
        let Some(address) = self.metrics else { return Ok(BTreeMap::new()) };
        let mut text = String::new();
        let asking = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(format!("GET {} HTTP/1.0\r\n\r\n", self.path).as_bytes()).await?;
            stream.read_to_string(&mut text).await
        };
        timeout(PATIENCE, asking).await??;
        Ok(sums(&text))
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

/// Sums of the series of each metric in a page; `NAME{le="1"}` is kept apart from other buckets.
fn sums(page: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let bound = labels.split("le=\"").nth(1).and_then(|rest| rest.split('"').next());
        let name = bound.map_or_else(|| name.to_owned(), |bound| format!("{name} {bound}"));
        *sums.entry(name).or_insert(0.0) += value;
    }
    sums
}
