//! A run in front of the embedded cluster: three processes, of which this one starts and watches the two others.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, sleep_until};

use crate::Failure;
use crate::controller::{self, Controller, Places};
use crate::measure::{Report, Run};
use crate::observed::{Observed, now};
use crate::options::Simulated;
use crate::process::Usage;
use crate::workload::Workload;

/// How often the controller's memory is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The counter of syncs that kube-controller-manager has too.
const SYNCS: &str = "horizontal_pod_autoscaler_controller_reconciliations_total";
const LATENESS: &str = "concertina_sync_lateness_seconds";

/// The process of the server, which ends with this.
#[derive(Debug)]
struct Server {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Server {
    async fn start(workload: &Workload, kubeconfig: &Path) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("server")
            .arg(serde_json::to_string(workload)?)
            .arg(kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("the server has no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("the server has no output")?).lines();
        let mut server = Self { _child: child, input, output };
        server.line().await?;
        Ok(server)
    }

    async fn line(&mut self) -> Result<String, Failure> {
        Ok(self.output.next_line().await?.ok_or("the server has ended")?)
    }

    async fn measure(&mut self, time: Duration) -> Result<(), Failure> {
        Ok(self.input.write_all(format!("measure {}\n", time.as_secs_f64()).as_bytes()).await?)
    }

    async fn observed(&mut self) -> Result<Observed, Failure> {
        Ok(serde_json::from_str(&self.line().await?)?)
    }
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

/// Makes a run and says its figures.
pub(crate) async fn run(options: &Simulated) -> Result<Report, Failure> {
    let Simulated { workload, period, folder, .. } = options;
    std::fs::create_dir_all(folder)?;
    let place = std::fs::canonicalize(folder)?;
    let stem = format!("{}-{}", workload.name.to_lowercase(), std::process::id());
    let (kubeconfig, log) = (place.join(format!("{stem}.kubeconfig")), place.join(format!("{stem}.log")));

    eprintln!("{}: {} HPAs, {} pods each", workload.name, workload.all_hpas(), workload.pods);
    let mut server = Server::start(workload, &kubeconfig).await?;
    let begin = Instant::now();
    eprintln!("the server is ready; the controller begins and prints to {}", log.display());
    let places = Places { kubeconfig: &kubeconfig, folder: &place, period: *period };
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
    server.measure(time).await?;
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
    let instructions = if command.instructions { Some(controller::instructions(&place)?) } else { None };
    // Nobody else needs it.
    let _ = std::fs::remove_file(&kubeconfig);

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
    Ok(run.report("simulated"))
}
