//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::Failure;
use crate::controller::CommandLine;
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
    /// The server's process: a workload as JSON, and where the kubeconfig goes.
    Server(String, PathBuf),
    /// Stored reports side by side.
    Table(Vec<PathBuf>),
    /// The same as an SVG.
    Chart(Vec<PathBuf>),
    /// One short run, as a test.
    Smoke,
}

fn command() -> Command {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_parser(value_parser!(usize)).help(help)
    };
    let text = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    let files = Arg::new("report").required(true).num_args(1..).value_parser(value_parser!(PathBuf));
    let simulated = Command::new("simulated")
        .about("Measures a controller in front of the embedded API server, over TCP and TLS")
        .arg(text("workload", "W1 to W9, W5-slow, W5-distinct, W9-failover").default_value("W1"))
        .arg(number("hpas", "HPAs, instead of the workload's"))
        .arg(number("pods", "Pods of each HPA"))
        .arg(number("namespaces", "Namespaces that they are spread over"))
        .arg(number(
            "probes",
            "HPAs that are created, and as many whose spec is changed, while it is measured",
        ))
        .arg(
            Arg::new("unchanged")
                .long("unchanged")
                .action(ArgAction::SetTrue)
                .help("Metrics stay as they are, so that no status changes"),
        )
        .arg(text("period", "Seconds between two syncs of an HPA").default_value("15"))
        .arg(text("warm-up", "Periods before measuring").default_value("2"))
        .arg(text("periods", "Periods to measure").default_value("10"))
        .arg(text("runs", "Runs, of whose figures the medians are told").default_value("1"))
        .arg(
            Arg::new("pin")
                .long("pin")
                .action(ArgAction::SetTrue)
                .help("Bind the server to the first core and the controller to the second"),
        )
        .arg(Arg::new("built-in").long("built-in").action(ArgAction::SetTrue).help(
            "Measure kube-controller-manager, from the folder KUBEBUILDER_ASSETS, instead of concertina",
        ))
        .arg(text("controller", "The command line of another controller, with places like {kubeconfig}"))
        .arg(
            Arg::new("flag")
                .long("flag")
                .action(ArgAction::Append)
                .allow_hyphen_values(true)
                .help("A word to add to it; may be given often"),
        )
        .arg(text("metrics", "Where its metrics are, such as http://127.0.0.1:{port}/metrics"))
        .arg(
            Arg::new("instructions")
                .long("instructions")
                .action(ArgAction::SetTrue)
                .help("Count its instructions with valgrind: for few HPAs; no other figure counts then"),
        )
        .arg(text("label", "What the column is called"))
        .arg(text("out", "The folder for reports").default_value("target/scale"));
    Command::new("scale")
        .about("What an HPA controller costs, and whether it is on time")
        .arg(Arg::new("bench").long("bench").action(ArgAction::SetTrue).hide(true).global(true))
        .subcommand(simulated)
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

fn simulated(matches: &ArgMatches) -> Result<Options, Failure> {
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
    let flags: Vec<_> = matches.get_many::<String>("flag").into_iter().flatten().cloned().collect();
    let label = match text("label") {
        "" => {
            let program = if matches.get_flag("built-in") { "built-in" } else { "concertina" };
            let flags = if flags.is_empty() { "default flags".to_owned() } else { flags.join(" ") };
            format!("{program}, {flags}")
        }
        label => label.to_owned(),
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
    controller.pin = matches.get_flag("pin");
    Ok(Options {
        workload,
        controller,
        label,
        period: Duration::try_from_secs_f64(text("period").parse()?)?,
        warm_up: text("warm-up").parse()?,
        periods: text("periods").parse()?,
        runs: text("runs").parse()?,
        folder: text("out").into(),
    })
}
