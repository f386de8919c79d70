//! The options of a run, and the arguments that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::Failure;
use crate::controller::CommandLine;
use crate::workload::Workload;

/// The options of runs against a server.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) workload: Workload,
    pub(crate) controller: CommandLine,
    pub(crate) label: String,
    pub(crate) period: Duration,
    /// The number of periods before the measurement.
    pub(crate) warm_up: u32,
    /// The number of measured periods.
    pub(crate) periods: u32,
    /// The number of runs, for medians.
    pub(crate) runs: u32,
    /// The folder for reports.
    pub(crate) folder: PathBuf,
}

/// An argument with a value.
pub(crate) fn text(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help)
}

/// A flag without a value.
pub(crate) fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
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
    vec![
        text("workload", "W1 to W9, W3-policies, W5-slow, W5-distinct, W9-failover").default_value("W1"),
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
