//! A run of one controller process against a server that observes it, from the start of the process to
//! the report.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::Failure;
use crate::controller::{self, Controller, Placeholders};
use crate::measure::{Report, Run};
use crate::observations::{Observations, now};
use crate::options::Options;
use crate::scrape::Usage;

/// The sampling interval of the controller's memory.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The sync counter of both Concertina and kube-controller-manager.
const SYNCS: &str = "horizontal_pod_autoscaler_controller_reconciliations_total";
const LATENESS: &str = "concertina_sync_lateness_seconds";

/// A ready API server with a workload. The server observes its clients.
pub(crate) trait ServerUnderLoad {
    /// The name of the server in the table.
    fn title(&self) -> String;

    fn kubeconfig(&self) -> &Path;

    /// Starts the measured time, in which the workload's events occur. `controller` is the process id of the
    /// controller.
    fn measure(&mut self, time: Duration, controller: u32) -> impl Future<Output = Result<(), Failure>>;

    /// The observations, available when the measured time is over.
    fn observed(&mut self) -> impl Future<Output = Result<Observations, Failure>>;
}

/// The usage and metrics of the controller over the measured time.
#[derive(Debug, Default)]
struct ControllerTotals {
    resident: Vec<u64>,
    cpu: f64,
    syncs: f64,
    within_a_second: f64,
    judged: f64,
}

impl ControllerTotals {
    /// Adds the usage of one process since `first`.
    async fn add(&mut self, controller: &Controller, first: &Snapshot) -> Result<Usage, Failure> {
        let last = Snapshot::read(controller).await?;
        self.cpu += last.usage.cpu - first.usage.cpu;
        self.syncs += last.syncs - first.syncs;
        self.within_a_second += last.within_a_second - first.within_a_second;
        self.judged += last.judged - first.judged;
        Ok(last.usage)
    }
}

/// The usage and metrics of a controller until now.
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

/// Makes a run and computes its report. Writes the files of the run to `folder`, which must exist.
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
        // The standby starts later, so that the first replica becomes the leader.
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
