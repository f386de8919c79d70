//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::Failure;
use crate::controller::CommandLine;
use crate::real::floor::Floor;
use crate::real::rounds::Rounds;
use crate::real::{self, Real};
use crate::workload::Workload;

/// Runs in front of a server.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) workload: Workload,
    pub(crate) controller: CommandLine,
    pub(crate) label: String,
    pub(crate) period: Duration,
    /// Periods before anything is measured, and those that are.
    pub(crate) warm_up: u32,
    pub(crate) periods: u32,
    /// How often all of it is done, for medians.
    pub(crate) runs: u32,
    /// Where reports go.
    pub(crate) folder: PathBuf,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Task {
    /// In front of the embedded cluster.
    Simulated(Box<Options>),
    /// In front of a real API server.
    Real(Box<Real>),
    /// Status writes and nothing else.
    Floor(Floor),
    /// Lists with and without compression.
    Lists(Rounds),
    /// The server's process: a workload as JSON, and where the kubeconfig goes.
    Server(String, PathBuf),
    /// Stored reports side by side.
    Table(Vec<PathBuf>),
    /// The same as an SVG.
    Chart(Vec<PathBuf>),
    /// One short run, as a test.
    Smoke,
}

/// An argument with a value.
pub(crate) fn text(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help)
}

/// A word for the controller.
pub(crate) fn flag(help: &'static str) -> Arg {
    Arg::new("flag").long("flag").action(ArgAction::Append).allow_hyphen_values(true).help(help)
}

/// What both halves have: the workload, the times, where reports go.
pub(crate) fn measured() -> Vec<Arg> {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_parser(value_parser!(usize)).help(help)
    };
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    vec![
        text("workload", "W1 to W9, W5-slow, W5-distinct, W9-failover").default_value("W1"),
        number("hpas", "HPAs, instead of the workload's"),
        number("pods", "Pods of each HPA"),
        number("namespaces", "Namespaces that they are spread over"),
        number("probes", "HPAs that are created, and as many whose spec is changed, while it is measured"),
        switch("unchanged", "Metrics stay as they are, so that no status changes"),
        text("period", "Seconds between two syncs of an HPA").default_value("15"),
        text("warm-up", "Periods before measuring").default_value("2"),
        text("periods", "Periods to measure").default_value("10"),
        text("runs", "Runs, of whose figures the medians are told")
            .visible_alias("repeat")
            .default_value("1"),
        switch("pin", "Bind the server to the first core and the controller to the second"),
        text("out", "The folder for reports").default_value("target/scale"),
    ]
}

fn command() -> Command {
    let files = Arg::new("report").required(true).num_args(1..).value_parser(value_parser!(PathBuf));
    let simulated = Command::new("simulated")
        .about("Measures a controller in front of the embedded API server, over TCP and TLS")
        .args(measured())
        .arg(Arg::new("built-in").long("built-in").action(ArgAction::SetTrue).help(
            "Measure kube-controller-manager, from the folder KUBEBUILDER_ASSETS, instead of concertina",
        ))
        .arg(text("controller", "The command line of another controller, with places like {kubeconfig}"))
        .arg(flag("A word to add to it; may be given often"))
        .arg(text("metrics", "Where its metrics are, such as http://127.0.0.1:{port}/metrics"))
        .arg(
            Arg::new("instructions")
                .long("instructions")
                .action(ArgAction::SetTrue)
                .help("Count its instructions with valgrind: for few HPAs; no other figure counts then"),
        )
        .arg(text("label", "What the column is called"));
    Command::new("scale")
        .about("What an HPA controller costs, and whether it is on time")
        .arg(Arg::new("bench").long("bench").action(ArgAction::SetTrue).hide(true).global(true))
        .subcommand(simulated)
        .subcommand(real::command())
        .subcommand(real::floor::command())
        .subcommand(real::lists::command())
        .subcommand(Command::new("server").hide(true).args(["workload", "kubeconfig"].map(Arg::new)))
        .subcommand(Command::new("table").about("Stored reports side by side").arg(files.clone()))
        .subcommand(Command::new("chart").about("Stored reports as an SVG").arg(files))
}

/// Reads the command line; ends the process for help and for what is wrong with it.
pub(crate) fn read() -> Result<Task, Failure> {
    let matches = command().get_matches();
    let texts = |matches: &ArgMatches, name: &str| {
        matches.get_many::<PathBuf>(name).into_iter().flatten().cloned().collect::<Vec<_>>()
    };
    Ok(match matches.subcommand() {
        Some(("simulated", matches)) => Task::Simulated(Box::new(simulated(matches)?)),
        Some(("real", matches)) => Task::Real(Box::new(real::read(matches)?)),
        Some(("floor", matches)) => Task::Floor(real::floor::read(matches)?),
        Some(("lists", matches)) => Task::Lists(Rounds::read(matches)?),
        Some(("server", matches)) => {
            let word = |name| matches.get_one::<String>(name).cloned().unwrap_or_default();
            Task::Server(word("workload"), word("kubeconfig").into())
        }
        Some(("table", matches)) => Task::Table(texts(matches, "report")),
        Some(("chart", matches)) => Task::Chart(texts(matches, "report")),
        // `cargo bench` without a word: the first workload. `cargo test`: a short run.
        _ if matches.get_flag("bench") => {
            let words = ["scale", "simulated"];
            let matches = command().get_matches_from(words);
            let simulated_ = matches.subcommand_matches("simulated").ok_or("no subcommand")?;
            Task::Simulated(Box::new(simulated(simulated_)?))
        }
        _ => Task::Smoke,
    })
}

/// Reads what both halves have; the controller is that of this repository, and the label is empty.
pub(crate) fn read_measured(matches: &ArgMatches) -> Result<Options, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let number = |name: &str, place: &mut usize| {
        if let Some(number) = matches.get_one::<usize>(name) {
            *place = *number;
        }
    };
    let name = text("workload");
    let mut workload = Workload::named(name).ok_or_else(|| format!("there is no workload {name:?}"))?;
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
