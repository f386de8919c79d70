//! The command line.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::Failure;
use crate::controller::CommandLine;
use crate::hostile::{self, Hostile};
use crate::options::{Options, flag, measured, read_measured, switch, text};
use crate::real::minimum_cost::Floor;
use crate::real::options::Rounds;
use crate::real::{self, Real};

/// The selected task.
#[derive(Debug)]
pub(crate) enum Task {
    /// Runs against the embedded cluster.
    Simulated(Box<Options>),
    /// Runs against a real API server.
    Real(Box<Real>),
    /// Runs with hostile tenants and clients.
    Hostile(Box<Hostile>),
    /// The process of the hostile clients: the attack as JSON, the server's address, the duration in seconds,
    /// and the folder of the certificates.
    Flood([String; 4]),
    /// Status writes without a controller.
    Floor(Floor),
    /// Lists with and without compression.
    Lists(Rounds),
    /// The server process: a workload as JSON, and the path of the kubeconfig to write.
    Server(String, PathBuf),
    /// A table of stored reports.
    Table(Vec<PathBuf>),
    /// A chart of stored reports, as an SVG.
    Chart(Vec<PathBuf>),
    /// One short run, as a test.
    Smoke,
}

fn command() -> Command {
    let files = Arg::new("report").required(true).num_args(1..).value_parser(value_parser!(PathBuf));
    let simulated = Command::new("simulated")
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
        .arg(text("label", "Title of the column"));
    Command::new("scale")
        .about("Measures the cost and the punctuality of an HPA controller")
        .arg(Arg::new("bench").long("bench").action(ArgAction::SetTrue).hide(true).global(true))
        .subcommand(simulated)
        .subcommand(real::command())
        .subcommand(hostile::command())
        .subcommand(hostile::flood_command())
        .subcommand(real::minimum_cost::command())
        .subcommand(real::lists::command())
        .subcommand(Command::new("server").hide(true).args(["workload", "kubeconfig"].map(Arg::new)))
        .subcommand(Command::new("table").about("Prints stored reports as a table").arg(files.clone()))
        .subcommand(Command::new("chart").about("Prints stored reports as an SVG").arg(files))
}

/// Reads the command line. Exits on help requests and usage errors.
pub(crate) fn read() -> Result<Task, Failure> {
    let matches = command().get_matches();
    let texts = |matches: &ArgMatches, name: &str| {
        matches.get_many::<PathBuf>(name).into_iter().flatten().cloned().collect::<Vec<_>>()
    };
    Ok(match matches.subcommand() {
        Some(("simulated", matches)) => Task::Simulated(Box::new(simulated(matches)?)),
        Some(("real", matches)) => Task::Real(Box::new(real::read(matches)?)),
        Some(("hostile", matches)) => Task::Hostile(Box::new(hostile::read(matches)?)),
        Some(("flood", matches)) => {
            let word = |name| matches.get_one::<String>(name).cloned().unwrap_or_default();
            Task::Flood(["way", "address", "seconds", "folder"].map(word))
        }
        Some(("floor", matches)) => Task::Floor(real::minimum_cost::read(matches)?),
        Some(("lists", matches)) => Task::Lists(Rounds::read(matches)?),
        Some(("server", matches)) => {
            let word = |name| matches.get_one::<String>(name).cloned().unwrap_or_default();
            Task::Server(word("workload"), word("kubeconfig").into())
        }
        Some(("table", matches)) => Task::Table(texts(matches, "report")),
        Some(("chart", matches)) => Task::Chart(texts(matches, "report")),
        // `cargo bench` without arguments runs the first workload. `cargo test` makes a short run.
        _ if matches.get_flag("bench") => {
            let words = ["scale", "simulated"];
            let matches = command().get_matches_from(words);
            let simulated_ = matches.subcommand_matches("simulated").ok_or("no subcommand")?;
            Task::Simulated(Box::new(simulated(simulated_)?))
        }
        _ => Task::Smoke,
    })
}

fn simulated(matches: &ArgMatches) -> Result<Options, Failure> {
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
