//! Plays a scenario with whole processes in virtual time, without a fault or with one.

use std::sync::Arc;
use std::time::Duration;

use concertina::api::client::{ClientOptions, Clients};
use concertina::app::{Phase, Surroundings, client_options, run_with};
use concertina::cli::Config;
use concertina::cli::config::{Election, HistoryCheckpoint, Serving, TakeOver};
use concertina::clock::{SharedClock, VirtualClock};
use concertina::telemetry::metrics::Metrics;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::compare::Outcome;
use super::plant::Plant;
use super::scenario::{Change, Scenario};
use super::way::{Fault, Ground, Log, Way};
use super::world::{EPOCH, World};

/// So much later than their round seconds steps come: between the syncs, which are at round seconds.
const ASIDE: Duration = Duration::from_millis(2500);
/// How long a new process takes to be there.
const RESTART: Duration = Duration::from_secs(2);
/// Until another replica leads: the Lease runs out, and is tried for again.
const TAKE_OVER: Duration = Duration::from_secs(17);

/// A run, and how the world was at its end.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) log: Log,
    pub(crate) outcome: Outcome,
}

/// Plays a scenario. `longer`: how much longer than it is meant to take.
pub(crate) fn play(
    scenario: &Scenario,
    fault: Option<Fault>,
    plant: Option<Plant>,
    longer: Duration,
) -> Played {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(perform(scenario, fault, plant, longer))
}

async fn perform(
    scenario: &Scenario,
    fault: Option<Fault>,
    plant: Option<Plant>,
    longer: Duration,
) -> Played {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(EPOCH.parse().unwrap()));
    let ground = Arc::new(Ground::new(World::new(Arc::clone(&clock)), fault, plant));
    for change in &scenario.begin {
        ground.world.apply(change);
    }
    let config = config(scenario);
    let replicas: Vec<Replica> = (0..scenario.replicas)
        .map(|number| Replica::start(&ground, &clock, &config, format!("replica-{number}")))
        .collect();
    let healing = Healing { ground: &ground, takes: healing(scenario, fault), done: false };
    direct(scenario, &ground, &replicas, healing, longer).await;
    let outcome = Outcome::of(&ground.world);
    let log = std::mem::take(&mut *ground.log());
    Played { log, outcome }
}

/// Lets happen what the scenario says.
async fn direct(
    scenario: &Scenario,
    ground: &Ground,
    replicas: &[Replica],
    mut healing: Healing<'_>,
    longer: Duration,
) {
    sleep(ASIDE).await;
    for step in &scenario.steps {
        sleep(Duration::from_secs(step.after)).await;
        if !step.abrupt {
            healing.wait().await;
        }
        for change in &step.changes {
            ground.world.apply(change);
            if let Change::End(replica) = change {
                replicas[*replica].end();
            }
        }
    }
    sleep(Duration::from_secs(scenario.rest) + longer).await;
    healing.wait().await;
}

/// Gives the controller the time that it needs after a fault, before the next step.
struct Healing<'a> {
    ground: &'a Ground,
    takes: Duration,
    done: bool,
}

impl Healing<'_> {
    async fn wait(&mut self) {
        let struck = self.ground.log().struck;
        if let Some(struck) = struck.filter(|_| !self.done) {
            self.done = true;
            sleep_until(struck + self.takes).await;
        }
    }
}

/// How long a fault's effects may last: until there is a process again, or the event has come; the longest window or
/// policy period of the scenario, which may begin anew in a new process, and up to a period until a sync finds it over; and
/// the two periods within which all must be as without the fault.
fn healing(scenario: &Scenario, fault: Option<Fault>) -> Duration {
    let gone = match fault {
        None => return Duration::ZERO,
        Some(Fault::DiesBefore(_) | Fault::DiesAfter(_)) if scenario.replicas > 1 => TAKE_OVER,
        Some(Fault::DiesBefore(_) | Fault::DiesAfter(_)) => RESTART,
        Some(Fault::Lost(_)) => Duration::from_secs(2),
        Some(Fault::Late(_, delay)) => delay,
    };
    let period = Config::default().sync_period;
    // A new process that looks for another controller first writes later: what has not changed since it began proves only
    // after twenty periods that nobody else cares.
    let looks = if scenario.takeover == TakeOver::Wait { 22 * period } else { Duration::ZERO };
    gone + looks + 3 * period + Duration::from_secs(longest(scenario))
}

/// The longest window or policy period, in seconds.
fn longest(scenario: &Scenario) -> u64 {
    let changes = scenario.begin.iter().chain(scenario.steps.iter().flat_map(|step| &step.changes));
    let asked = changes.filter_map(|change| match change {
        Change::Hpa(hpa) | Change::Edit(_, hpa) | Change::Force(_, hpa) => Some(&hpa["spec"]["behavior"]),
        _ => None,
    });
    asked.map(longest_of).max().unwrap_or(0).max(scenario.window)
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
        history_checkpoint: scenario.checkpoint.then(HistoryCheckpoint::default),
        ..Config::default()
    };
    config.settings.downscale_stabilization = Duration::from_secs(scenario.window);
    config
}

/// One replica of the controller: a process, and another when that has ended.
struct Replica {
    stop: Arc<std::sync::Mutex<CancellationToken>>,
}

impl Replica {
    fn start(ground: &Arc<Ground>, clock: &SharedClock, config: &Config, name: String) -> Self {
        let stop = Arc::new(std::sync::Mutex::new(CancellationToken::new()));
        let (current, ground) = (Arc::clone(&stop), Arc::clone(ground));
        let (clock, config) = (Arc::clone(clock), config.clone());
        tokio::spawn(async move {
            for generation in 0.. {
                let token = CancellationToken::new();
                *current.lock().unwrap() = token.clone();
                let way = Arc::new(Way {
                    ground: Arc::clone(&ground),
                    process: format!("{name}-{generation}"),
                    is_first: generation == 0,
                    dead: CancellationToken::new(),
                });
                live(way, &clock, config.clone(), token).await;
                sleep(RESTART).await;
            }
        });
        Self { stop }
    }

    /// Asks the process to end.
    fn end(&self) {
        self.stop.lock().unwrap().cancel();
    }
}

/// A process until it ends or dies. What is left of a dead one reaches nobody, and ends soon.
async fn live(way: Arc<Way>, clock: &SharedClock, config: Config, stop: CancellationToken) {
    let telemetry = Metrics::new();
    let clients = clients(&way, &client_options(&config, &telemetry));
    let surroundings = Surroundings {
        server: "http://embedded/".to_owned(),
        clock: Arc::clone(clock),
        identity: way.process.clone(),
        observers: Vec::new(),
        phase: Phase::FirstSync,
        link: Some(way.ground.network.join(&way.dead)),
    };
    let stopped = stop.clone();
    let running =
        tokio::spawn(
            async move { Box::pin(run_with(&config, &clients, surroundings, telemetry, stopped)).await },
        );
    tokio::select! {
        biased;
        () = way.dead.cancelled() => stop.cancel(),
        // How it ended does not matter: like any other end it is followed by a new process.
        _ = running => {}
    }
}

/// Clients of a process: once it is dead no connection can be made.
fn clients(way: &Arc<Way>, options: &ClientOptions) -> Clients {
    let way = Arc::clone(way);
    let connector = tower::service_fn(move |_: http::Uri| {
        let answer = if way.dead.is_cancelled() {
            Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
        } else {
            Ok(TokioIo::new(way.ground.world.cluster.dial_through(Arc::clone(&way) as _)))
        };
        std::future::ready(answer)
    });
    Clients::over(connector, options).unwrap()
}
