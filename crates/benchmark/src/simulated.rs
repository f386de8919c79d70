//! The embedded cluster as the server, in a separate process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Failure;
use crate::controller::{Core, pinned};
use crate::measure::Report;
use crate::observations::Observations;
use crate::options::Options;
use crate::run::{self, ServerUnderLoad};
use crate::workload::Workload;

/// The name of the embedded server in reports.
pub(crate) const SERVER: &str = "embedded";

/// The server process, which is killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    kubeconfig: PathBuf,
}

impl Server {
    /// Starts the server of a workload. `pin` binds it to its own core.
    pub(crate) async fn start(workload: &Workload, pin: bool, kubeconfig: PathBuf) -> Result<Self, Failure> {
        let executable = std::env::current_exe()?.display().to_string();
        let before = pinned(pin, Core::Server).iter().copied();
        let command_line: Vec<_> = before.chain([executable.as_str()]).collect();
        let (program, rest) = command_line.split_first().ok_or("the path of this program is empty")?;
        let mut child = Command::new(program)
            .args(rest)
            .arg("server")
            .arg(serde_json::to_string(workload)?)
            .arg(&kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("the server has no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("the server has no output")?).lines();
        let mut server = Self { _child: child, input, output, kubeconfig };
        server.line().await?;
        Ok(server)
    }

    /// Starts the measured time like [`ServerUnderLoad::measure`], with the hostile tenant.
    pub(crate) async fn attack(&mut self, time: Duration) -> Result<(), Failure> {
        Ok(self.input.write_all(format!("attack {}\n", time.as_secs_f64()).as_bytes()).await?)
    }

    async fn line(&mut self) -> Result<String, Failure> {
        Ok(self.output.next_line().await?.ok_or("the server has exited")?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The kubeconfig is not needed any more, so a failure is ignored.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

impl ServerUnderLoad for Server {
    fn title(&self) -> String {
        SERVER.to_owned()
    }

    fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    async fn measure(&mut self, time: Duration, _: u32) -> Result<(), Failure> {
        Ok(self.input.write_all(format!("measure {}\n", time.as_secs_f64()).as_bytes()).await?)
    }

    async fn observed(&mut self) -> Result<Observations, Failure> {
        Ok(serde_json::from_str(&self.line().await?)?)
    }
}

/// Makes all runs, each with a new server, and returns their reports.
pub(crate) async fn run(options: &Options) -> Result<Vec<Report>, Failure> {
    let Options { workload, folder, .. } = options;
    std::fs::create_dir_all(folder)?;
    let folder = std::fs::canonicalize(folder)?;
    let mut reports = Vec::new();
    for number in 1..=options.runs {
        eprintln!(
            "{}, run {number} of {}: {} HPAs, {} pods each",
            workload.name,
            options.runs,
            workload.all_hpas(),
            workload.pods
        );
        let kubeconfig = folder.join(format!("{}.kubeconfig", std::process::id()));
        let mut server = Server::start(workload, options.controller.pin, kubeconfig).await?;
        reports.push(run::run(options, &mut server, &folder).await?);
    }
    Ok(reports)
}
