//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::Failure;
use crate::controller::CommandLine;
use crate::real::minimum_cost::Floor;
use crate::real::rounds::Rounds;
use crate::real::{self, Real};
use crate::workload::Workload;

/// The options of runs against a server.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) workload: Workload,
    pub(crate) controller: CommandLine,
    pub(crate) label: String,
    pub(crate) period: Duration,
    /// The number of periods before the measurement, followed by the number of measured periods.
    pub(crate) warm_up: u32,
    pub(crate) periods: u32,
    /// The number of runs, for medians.
    pub(crate) runs: u32,
    /// The folder for reports.
    pub(crate) folder: PathBuf,
}

/// The selected task.
#[derive(Debug)]
pub(crate) enum Task {
    /// Runs against the embedded cluster.
    Simulated(Box<Options>),
    /// Runs against a real API server.
    Real(Box<Real>),
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

/// An argument with a value.
pub(crate) fn text(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help)
}

/// A flag for the controller.
pub(crate) fn flag(help: &'static str) -> Arg {
    Arg::new("flag").long("flag").action(ArgAction::Append).allow_hyphen_values(true).help(help)
}

/// The arguments that `simulated` and `real` share: workload, times, and the folder for reports.
pub(crate) fn measured() -> Vec<Arg> {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_parser(value_parser!(usize)).help(help)
    };
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    vec![
        text("workload", "W1 to W9, W5-slow, W5-distinct, W9-failover").default_value("W1"),
        number("hpas", "Number of HPAs, overrides the workload's"),
        number("pods", "Pods per HPA"),
        number("namespaces", "Number of namespaces"),
        number("probes", "Number of HPAs created, and of HPAs changed, during the measurement"),
        switch("unchanged", "Keep metrics constant, so that no status changes"),
        text("period", "Sync period in seconds").default_value("15"),
        text("warm-up", "Periods before the measurement").default_value("2"),
        text("periods", "Periods to measure").default_value("10"),
        text("runs", "Number of runs; reports have the medians").visible_alias("repeat").default_value("1"),
        switch("pin", "Bind the server to the first core and the controller to the second"),
        text("out", "Folder for reports").default_value("target/scale"),
    ]
}

fn command() -> Command {
    let files = Arg::new("report").required(true).num_args(1..).value_parser(value_parser!(PathBuf));
    let simulated = Command::new("simulated")
        .about("Measures a controller in front of the embedded API server, over TCP and TLS")
        .args(measured())
        .arg(
            Arg::new("built-in").long("built-in").action(ArgAction::SetTrue).help(
                "Measure kube-controller-manager from the folder KUBEBUILDER_ASSETS instead of Concertina",
            ),
        )
        .arg(text("controller", "Command line of another controller, with placeholders such as {kubeconfig}"))
        .arg(flag("Flag to append to the command line; repeatable"))
        .arg(text("metrics", "URL of its metrics, such as http://127.0.0.1:{port}/metrics"))
        .arg(
            Arg::new("instructions")
                .long("instructions")
                .action(ArgAction::SetTrue)
                .help("Count instructions with valgrind, for few HPAs only; invalidates the other figures"),
        )
        .arg(text("label", "Title of the column"));
    Command::new("scale")
        .about("Measures the cost and the punctuality of an HPA controller")
        .arg(Arg::new("bench").long("bench").action(ArgAction::SetTrue).hide(true).global(true))
        .subcommand(simulated)
        .subcommand(real::command())
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

/// Reads the shared arguments. The controller is this repository's, and the label is empty.
pub(crate) fn read_measured(matches: &ArgMatches) -> Result<Options, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let number = |name: &str, target: &mut usize| {
        if let Some(number) = matches.get_one::<usize>(name) {
            *target = *number;
        }
    };
    let name = text("workload");
    let mut workload = Workload::named(name).ok_or_else(|| format!("unknown workload {name:?}"))?;
    number("hpas", &mut workload.hpas);
    number("pods", &mut workload.pods);
    number("namespaces", &mut workload.namespaces);
    number("probes", &mut workload.probes);
    workload.unchanged |= matches.get_flag("unchanged");
    let mut controller = CommandLine::own(Vec::new());
    controller.pin = matches.get_flag("pin");
    Ok(Options {
        workload,
        controller,
        label: String::new(),
        period: Duration::try_from_secs_f64(text("period").parse()?)?,
        warm_up: text("warm-up").parse()?,
        periods: text("periods").parse()?,
        runs: text("runs").parse()?,
        folder: text("out").into(),
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
