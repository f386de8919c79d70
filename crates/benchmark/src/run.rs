//! A run of one controller process against a server that observes it, and the options of runs.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use tokio::time::{Instant, sleep, sleep_until};

use crate::Failure;
use crate::controller::{self, CommandLine, Controller, Placeholders};
use crate::measure::{Report, Run};
use crate::observations::{Observations, Usage, now};
use crate::workload::Workload;

/// The options of runs against a server.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) workload: Workload,
    pub(crate) controller: CommandLine,
    /// The title of the column in tables.
    pub(crate) label: String,
    /// The sync period of the controller.
    pub(crate) period: Duration,
    /// The number of periods before the measurement.
    pub(crate) warm_up: u32,
    /// The number of measured periods.
    pub(crate) periods: u32,
    /// The number of runs. The reports have the medians.
    pub(crate) runs: u32,
    /// The folder for reports.
    pub(crate) folder: PathBuf,
}

/// Builds a flag with a value.
pub(crate) fn text(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help)
}

/// Builds a flag without a value.
pub(crate) fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Builds the repeatable argument `--flag`, which passes a flag to the controller.
pub(crate) fn flag(help: &'static str) -> Arg {
    Arg::new("flag").long("flag").action(ArgAction::Append).allow_hyphen_values(true).help(help)
}

/// Builds the arguments that `simulated` and `real` share: workload, times, and the folder for reports.
pub(crate) fn measured() -> Vec<Arg> {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_parser(value_parser!(usize)).help(help)
    };
    vec![
        text("workload", "W1 to W9, W3-policies, W5-slow, W5-distinct, W6-all, W9-failover")
            .default_value("W1"),
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

/// Reads the arguments of [`measured`]. The controller is Concertina without flags, and the label is empty.
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

/// The sampling interval of the controller's memory.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The counter of syncs in Concertina and in kube-controller-manager.
const SYNCS: &str = "horizontal_pod_autoscaler_controller_reconciliations_total";
const LATENESS: &str = "concertina_sync_lateness_seconds";

/// A running API server with a workload, which observes its clients.
pub(crate) trait ServerUnderLoad {
    /// Returns the name of the server in tables.
    fn title(&self) -> String;

    /// Returns the path of the kubeconfig for the controller.
    fn kubeconfig(&self) -> &Path;

    /// Starts the measured time and the events of the workload. `controller` is the process id of the controller.
    fn measure(&mut self, time: Duration, controller: u32) -> impl Future<Output = Result<(), Failure>>;

    /// Waits for the end of the measured time, and returns the observations.
    fn observed(&mut self) -> impl Future<Output = Result<Observations, Failure>>;
}

/// The usage and metrics of all controller processes in the measured time.
#[derive(Debug, Default)]
struct ControllerTotals {
    /// Samples of the resident bytes.
    resident: Vec<u64>,
    cpu: f64,
    syncs: f64,
    /// The number of syncs that were at most a second late.
    within_a_second: f64,
    /// The number of syncs with a known lateness.
    judged: f64,
}

impl ControllerTotals {
    /// Adds the usage and metrics of one process since `first`. Returns the usage of the process until now.
    async fn add(&mut self, controller: &Controller, first: &Snapshot) -> Result<Usage, Failure> {
        let last = Snapshot::read(controller).await?;
        self.cpu += last.usage.cpu - first.usage.cpu;
        self.syncs += last.syncs - first.syncs;
        self.within_a_second += last.within_a_second - first.within_a_second;
        self.judged += last.judged - first.judged;
        Ok(last.usage)
    }
}

/// The usage and metrics of a controller process since its start.
#[derive(Debug, Default)]
struct Snapshot {
    usage: Usage,
    syncs: f64,
    within_a_second: f64,
    judged: f64,
}

impl Snapshot {
    async fn read(controller: &Controller) -> Result<Self, Failure> {
        let metrics = controller.metrics().await?;
        let metric = |name: &str| metrics.get(name).copied().unwrap_or(0.0);
        Ok(Self {
            usage: controller.usage()?,
            syncs: metric(SYNCS),
            within_a_second: metric(&format!("{LATENESS}_bucket 1"))
                + metric(&format!("{LATENESS}_bucket 1.0")),
            judged: metric(&format!("{LATENESS}_count")),
        })
    }
}

/// Makes a run and computes its report. Writes the log of the controller to `folder`, which must exist.
pub(crate) async fn run(
    options: &Options,
    server: &mut impl ServerUnderLoad,
    folder: &Path,
) -> Result<Report, Failure> {
    let Options { workload, period, .. } = options;
    let start = Instant::now();
    let log = folder.join(format!("{}-{}.log", workload.name.to_lowercase(), std::process::id()));
    eprintln!("the server is ready; starting the controller with its output in {}", log.display());
    let kubeconfig = server.kubeconfig().to_owned();
    let places = Placeholders { kubeconfig: &kubeconfig, folder, period: *period };
    let mut command = options.controller.clone();
    if workload.policies > 0 {
        command.flags.push("--watch-scaling-policies=true".to_owned());
    }
    if workload.standby {
        command.flags.push("--leader-elect=true".to_owned());
    }
    let mut controller = command.start(&places, &log)?;
    let (started, called) = (controller.since, controller.called.clone());
    let mut standby = None;
    if workload.standby {
        // The standby starts one period later, so that the first replica becomes the leader.
        sleep_until(start + *period).await;
        standby = Some(command.start(&places, &log)?);
    }
    sleep_until(start + *period * options.warm_up).await;

    let time = *period * options.periods;
    eprintln!("measuring for {} s", time.as_secs_f64());
    if command.instructions {
        controller.count(true).await?;
    }
    let mut first = Snapshot::read(&controller).await?;
    server.measure(time, controller.pid).await?;
    let (measuring, mut totals, mut restarted) = (Instant::now(), ControllerTotals::default(), None);
    while measuring.elapsed() + SAMPLE_INTERVAL < time {
        sleep(SAMPLE_INTERVAL).await;
        totals.resident.push(controller.usage()?.resident);
        if workload.restart && restarted.is_none() && measuring.elapsed() > time / 4 + *period / 2 {
            totals.add(&controller, &first).await?;
            controller.kill().await?;
            restarted = Some(now());
            controller = match standby.take() {
                Some(standby) => standby,
                None => command.start(&places, &log)?,
            };
            first = Snapshot::default();
        }
    }
    let observed = server.observed().await?;
    let last = totals.add(&controller, &first).await?;
    if command.instructions {
        controller.count(false).await?;
    }
    controller.stop().await?;
    let instructions = if command.instructions { Some(controller::instructions(folder)?) } else { None };

    let run = Run {
        workload,
        label: options.label.clone(),
        controller: called,
        period: period.as_secs_f64(),
        started,
        restarted,
        observed: &observed,
        cpu: totals.cpu,
        instructions,
        resident: totals.resident,
        last,
        own_syncs: (totals.syncs > 0.0).then_some(totals.syncs),
        own_on_time: (totals.judged > 0.0).then(|| totals.within_a_second / totals.judged),
    };
    Ok(run.report(&server.title()))
}
