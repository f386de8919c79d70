//! Runs a scenario with whole processes in virtual time, with or without a fault.

use std::sync::Arc;
use std::time::Duration;

use clock::{SharedClock, VirtualClock};
use cluster::client::{ClientOptions, Clients};
use concertina::app::{ElectionRuntime, RunContext, client_options, run_with};
use controller::assembly::Phase;
use engine::telemetry::metrics::Metrics;
use flags::Config;
use flags::config::{Election, TakeOver};
use flags::serving::Serving;
use hyper_util::rt::TokioIo;
use journal::history::checkpoint::CheckpointPlace;
use serde_json::Value;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::compare::Outcome;
use super::fault_injector::{Fault, FaultInjector, Log, SeededBug, SharedState};
use super::world::{Change, EPOCH, Scenario, World};
use crate::process;

/// Offset of steps from round seconds, so that they fall between syncs, which run at round seconds.
const STEP_OFFSET: Duration = Duration::from_millis(2500);
/// Time until a new process runs.
const RESTART: Duration = Duration::from_secs(2);
/// Time until another replica leads: the Lease expires, and the next attempt acquires it.
const FAILOVER: Duration = Duration::from_secs(17);

/// The log of a run and the final state of the cluster.
#[derive(Debug)]
pub(crate) struct RunOutcome {
    pub(crate) log: Log,
    pub(crate) outcome: Outcome,
}

/// Runs a scenario. `longer` extends its planned duration.
pub(crate) fn play(
    scenario: &Scenario,
    fault: Option<Fault>,
    plant: Option<SeededBug>,
    longer: Duration,
) -> RunOutcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(perform(scenario, fault, plant, longer))
}

async fn perform(
    scenario: &Scenario,
    fault: Option<Fault>,
    plant: Option<SeededBug>,
    longer: Duration,
) -> RunOutcome {
    process::start();
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(EPOCH.parse().unwrap()));
    let ground = Arc::new(SharedState::new(World::new(Arc::clone(&clock)), fault, plant));
    for change in &scenario.initial {
        ground.world.apply(change);
    }
    let config = config(scenario);
    let replicas: Vec<Replica> = (0..scenario.replicas)
        .map(|number| Replica::start(&ground, &clock, &config, format!("replica-{number}")))
        .collect();
    let recovery = Recovery { ground: &ground, duration: recovery(scenario, fault), done: false };
    perform_steps(scenario, &ground, &replicas, recovery, longer).await;
    assert_eq!(process::first(), None, "nothing panics");
    let outcome = Outcome::from_world(&ground.world);
    let log = std::mem::take(&mut *ground.log());
    RunOutcome { log, outcome }
}

async fn perform_steps(
    scenario: &Scenario,
    ground: &SharedState,
    replicas: &[Replica],
    mut recovery: Recovery<'_>,
    longer: Duration,
) {
    sleep(STEP_OFFSET).await;
    for step in &scenario.steps {
        sleep(Duration::from_secs(step.after)).await;
        if !step.abrupt {
            recovery.wait().await;
        }
        for change in &step.changes {
            ground.world.apply(change);
            if let Change::End(replica) = change {
                replicas[*replica].shut_down();
            }
        }
    }
    sleep(Duration::from_secs(scenario.rest) + longer).await;
    recovery.wait().await;
}

/// The wait before the next step until the controller has recovered from the fault.
struct Recovery<'a> {
    ground: &'a SharedState,
    duration: Duration,
    done: bool,
}

impl Recovery<'_> {
    async fn wait(&mut self) {
        let fault_time = self.ground.log().fault_time;
        if let Some(fault_time) = fault_time.filter(|_| !self.done) {
            self.done = true;
            sleep_until(fault_time + self.duration).await;
        }
    }
}

/// Maximum duration of a fault's effects. It is the sum of:
/// - the time until a process runs again or the event arrives
/// - the longest window or policy period of the scenario, which may restart in a new process
/// - one period until the next sync
/// - two periods within which the state must become equal to that of the run without the fault
fn recovery(scenario: &Scenario, fault: Option<Fault>) -> Duration {
    let outage = match fault {
        None => return Duration::ZERO,
        Some(Fault::DiesBefore(_) | Fault::DiesAfter(_)) if scenario.replicas > 1 => FAILOVER,
        Some(Fault::DiesBefore(_) | Fault::DiesAfter(_)) => RESTART,
        Some(Fault::Lost(_)) => Duration::from_secs(2),
        Some(Fault::Late(_, delay)) => delay,
    };
    let period = Config::default().controller.sync_period;
    // A new process that first checks for another controller writes later. An object that has not changed
    // since the start proves only after twenty periods that no other controller is active.
    let takeover_wait = if scenario.takeover == TakeOver::Wait { 22 * period } else { Duration::ZERO };
    outage + takeover_wait + 3 * period + Duration::from_secs(longest(scenario))
}

/// The longest window or policy period, in seconds.
fn longest(scenario: &Scenario) -> u64 {
    let changes = scenario.initial.iter().chain(scenario.steps.iter().flat_map(|step| &step.changes));
    let behaviors = changes.filter_map(|change| match change {
        Change::Hpa(hpa) | Change::Edit(_, hpa) | Change::Force(_, hpa) => Some(&hpa["spec"]["behavior"]),
        _ => None,
    });
    behaviors.map(longest_of).max().unwrap_or(0).max(scenario.window)
}

fn longest_of(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => {
            let seconds = fields.iter().map(|(name, value)| match name.as_str() {
                "stabilizationWindowSeconds" | "periodSeconds" => value.as_u64().unwrap_or(0),
                _ => longest_of(value),
            });
            seconds.max().unwrap_or(0)
        }
        Value::Array(items) => items.iter().map(longest_of).max().unwrap_or(0),
        _ => 0,
    }
}

fn config(scenario: &Scenario) -> Config {
    let mut config = Config {
        serving: Serving { port: 0, ..Serving::default() },
        election: (scenario.replicas > 1).then(Election::default),
        takeover: scenario.takeover,
        history_checkpoint: scenario.checkpoint.then(CheckpointPlace::default),
        ..Config::default()
    };
    config.controller.settings.downscale_stabilization = Duration::from_secs(scenario.window);
    config
}

/// One replica of the controller. A new process follows each process that exits or dies.
struct Replica {
    stop: Arc<parking_lot::Mutex<CancellationToken>>,
}

impl Replica {
    fn start(ground: &Arc<SharedState>, clock: &SharedClock, config: &Config, name: String) -> Self {
        let stop = Arc::new(parking_lot::Mutex::new(CancellationToken::new()));
        let (current, ground) = (Arc::clone(&stop), Arc::clone(ground));
        let (clock, config) = (Arc::clone(clock), config.clone());
        tokio::spawn(async move {
            for generation in 0.. {
                let token = CancellationToken::new();
                *current.lock() = token.clone();
                let link = Arc::new(FaultInjector {
                    ground: Arc::clone(&ground),
                    process: format!("{name}-{generation}"),
                    is_first: generation == 0,
                    dead: CancellationToken::new(),
                });
                run_process(link, &clock, config.clone(), token).await;
                sleep(RESTART).await;
            }
        });
        Self { stop }
    }

    /// Requests an orderly shutdown of the process.
    fn shut_down(&self) {
        self.stop.lock().cancel();
    }
}

/// Runs a process until it exits or dies. The remaining tasks of a dead process have no effect and stop soon.
async fn run_process(link: Arc<FaultInjector>, clock: &SharedClock, config: Config, stop: CancellationToken) {
    let telemetry = Metrics::new();
    let clients = clients(&link, &client_options(&config, &telemetry));
    let surroundings = RunContext {
        server: "http://embedded/".to_owned(),
        clock: Arc::clone(clock),
        identity: link.process.clone(),
        observers: Vec::new(),
        phase: Phase::FirstSync,
        election: ElectionRuntime::Shared,
    };
    let stopped = stop.clone();
    let running =
        tokio::spawn(
            async move { Box::pin(run_with(&config, &clients, surroundings, telemetry, stopped)).await },
        );
    tokio::select! {
        biased;
        () = link.dead.cancelled() => stop.cancel(),
        // A new process follows every exit, regardless of its cause.
        _ = running => {}
    }
}

/// Clients of a process. A dead process cannot connect.
fn clients(link: &Arc<FaultInjector>, options: &ClientOptions) -> Clients {
    let link = Arc::clone(link);
    let connector = tower::service_fn(move |_: http::Uri| {
        let answer = if link.dead.is_cancelled() {
            Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
        } else {
            Ok(TokioIo::new(link.ground.world.cluster.dial_through(Arc::clone(&link) as _)))
        };
        std::future::ready(answer)
    });
    Clients::over(connector, options).unwrap()
}
