//! A run: a controller's process in front of a server that observes it, from its start to its figures.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::Failure;
use crate::controller::{self, Controller, Places};
use crate::measure::{Report, Run};
use crate::observed::{Observed, now};
use crate::options::Options;
use crate::process::Usage;

/// How often the controller's memory is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The counter of syncs that kube-controller-manager has too.
const SYNCS: &str = "horizontal_pod_autoscaler_controller_reconciliations_total";
const LATENESS: &str = "concertina_sync_lateness_seconds";

/// An API server with a workload in it, that is ready and observes who comes.
pub(crate) trait Surroundings {
    /// What it is, for the table.
    fn title(&self) -> String;

    /// How a controller finds it.
    fn kubeconfig(&self) -> &Path;

    /// Begins the measured time, in which the workload's happenings come to pass. `controller` is the id of its process.
    fn measure(&mut self, time: Duration, controller: u32) -> impl Future<Output = Result<(), Failure>>;

    /// What was seen, when the time is over.
    fn observed(&mut self) -> impl Future<Output = Result<Observed, Failure>>;
}

/// What a controller's process showed over the measured time.
#[derive(Debug, Default)]
struct Watched {
    resident: Vec<u64>,
    cpu: f64,
    syncs: f64,
    within_a_second: f64,
    judged: f64,
}

impl Watched {
    /// Adds what one process did from `first` to now.
    async fn add(&mut self, controller: &Controller, first: &Moment) -> Result<Usage, Failure> {
        let last = Moment::of(controller).await?;
        self.cpu += last.usage.cpu - first.usage.cpu;
        self.syncs += last.syncs - first.syncs;
        self.within_a_second += last.within_a_second - first.within_a_second;
        self.judged += last.judged - first.judged;
        Ok(last.usage)
    }
}

/// What a controller has done until now.
#[derive(Debug, Default)]
struct Moment {
    usage: Usage,
    syncs: f64,
    within_a_second: f64,
    judged: f64,
}

impl Moment {
    async fn of(controller: &Controller) -> Result<Self, Failure> {
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

/// Makes a run and says its figures. Files of the run go into the folder, which is there.
pub(crate) async fn run(
    options: &Options,
    server: &mut impl Surroundings,
    folder: &Path,
) -> Result<Report, Failure> {
    let Options { workload, period, .. } = options;
    let begin = Instant::now();
    let log = folder.join(format!("{}-{}.log", workload.name.to_lowercase(), std::process::id()));
    eprintln!("the server is ready; the controller begins and prints to {}", log.display());
    let kubeconfig = server.kubeconfig().to_owned();
    let places = Places { kubeconfig: &kubeconfig, folder, period: *period };
    let mut command = options.controller.clone();
    if workload.standby {
        command.flags.push("--leader-elect=true".to_owned());
    }
    let mut controller = command.start(&places, &log)?;
    let (started, called) = (controller.since, controller.called.clone());
    let mut standby = None;
    if workload.standby {
        // Second, so that the first one leads.
        sleep_until(begin + *period).await;
        standby = Some(command.start(&places, &log)?);
    }
    sleep_until(begin + *period * options.warm_up).await;

    let time = *period * options.periods;
    eprintln!("measuring for {} s", time.as_secs_f64());
    if command.instructions {
        controller.count(true).await?;
    }
    let mut first = Moment::of(&controller).await?;
    server.measure(time, controller.pid).await?;
    let (measuring, mut watched, mut restarted) = (Instant::now(), Watched::default(), None);
    while measuring.elapsed() + LOOK < time {
        sleep(LOOK).await;
        watched.resident.push(controller.usage()?.resident);
        if workload.restart && restarted.is_none() && measuring.elapsed() > time / 4 + *period / 2 {
            watched.add(&controller, &first).await?;
            controller.kill().await?;
            restarted = Some(now());
            controller = match standby.take() {
                Some(standby) => standby,
                None => command.start(&places, &log)?,
            };
            first = Moment::default();
        }
    }
    let observed = server.observed().await?;
    let last = watched.add(&controller, &first).await?;
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
        cpu: watched.cpu,
        instructions,
        resident: watched.resident,
        last,
        own_syncs: (watched.syncs > 0.0).then_some(watched.syncs),
        own_on_time: (watched.judged > 0.0).then(|| watched.within_a_second / watched.judged),
    };
    Ok(run.report(&server.title()))
}
