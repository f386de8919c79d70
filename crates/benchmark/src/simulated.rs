//! The subcommand `simulated`: runs against the embedded cluster in a separate process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::{ArgMatches, Command};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command as Process};

use crate::Failure;
use crate::controller::{CommandLine, Core, pinned};
use crate::measure::Report;
use crate::observations::Observations;
use crate::run::{self, Options, ServerUnderLoad, flag, measured, read_measured, switch, text};
use crate::workload::Workload;

/// The name of the embedded server in reports.
pub(crate) const SERVER: &str = "embedded";

pub(crate) fn command() -> Command {
    Command::new("simulated")
        .about("Measures a controller in front of the embedded API server, over TCP and TLS")
        .args(measured())
        .arg(switch(
            "built-in",
            "Measure kube-controller-manager from the folder KUBEBUILDER_ASSETS instead of Concertina",
        ))
        .arg(text("controller", "Command line of another controller, with placeholders such as {kubeconfig}"))
        .arg(flag("Flag to append to the command line; repeatable"))
        .arg(text("metrics", "URL of its metrics, such as http://127.0.0.1:{port}/metrics"))
        .arg(switch(
            "instructions",
            "Count instructions with valgrind, for few HPAs only; invalidates the other figures",
        ))
        .arg(text("label", "Title of the column"))
}

/// Reads the arguments of the subcommand.
pub(crate) fn read(matches: &ArgMatches) -> Result<Options, Failure> {
    let mut options = read_measured(matches)?;
    let flags: Vec<_> = matches.get_many::<String>("flag").into_iter().flatten().cloned().collect();
    let label = match matches.get_one::<String>("label").map(String::as_str) {
        None => {
            let program = if matches.get_flag("built-in") { "built-in" } else { "concertina" };
            let flags = if flags.is_empty() { "default flags".to_owned() } else { flags.join(" ") };
            format!("{program}, {flags}")
        }
        Some(label) => label.to_owned(),
    };
    let mut controller =
        if matches.get_flag("built-in") { CommandLine::built_in(flags) } else { CommandLine::own(flags) };
    if let Some(template) = matches.get_one::<String>("controller") {
        controller.template.clone_from(template);
        controller.metrics.clear();
    }
    if let Some(url) = matches.get_one::<String>("metrics") {
        controller.metrics.clone_from(url);
    }
    controller.instructions = matches.get_flag("instructions");
    controller.pin = options.controller.pin;
    (options.controller, options.label) = (controller, label);
    Ok(options)
}

/// The server process. A drop kills it.
#[derive(Debug)]
pub(crate) struct Server {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    kubeconfig: PathBuf,
}

impl Server {
    /// Starts a server with a workload, and waits until it is ready. `pin` binds the process to the first core.
    pub(crate) async fn start(workload: &Workload, pin: bool, kubeconfig: PathBuf) -> Result<Self, Failure> {
        let executable = std::env::current_exe()?.display().to_string();
        let before = pinned(pin, Core::Server).iter().copied();
        let command_line: Vec<_> = before.chain([executable.as_str()]).collect();
        let (program, rest) = command_line.split_first().ok_or("the path of this program is empty")?;
        let mut child = Process::new(program)
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

    /// Like [`ServerUnderLoad::measure`], and also starts the attack of the hostile tenant.
    pub(crate) async fn attack(&mut self, time: Duration) -> Result<(), Failure> {
        Ok(self.input.write_all(format!("attack {}\n", time.as_secs_f64()).as_bytes()).await?)
    }

    async fn line(&mut self) -> Result<String, Failure> {
        Ok(self.output.next_line().await?.ok_or("the server has exited")?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A remaining kubeconfig does no harm, so a failure is ignored.
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

/// Makes all runs, each with a new server. Returns one report per run.
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
