//! A process without its command line, with several lifetimes in sequence. Its clock can jump and drift.
//! Panics are recorded, including panics that the process catches. The tasks of a run share one thread, so the records
//! of parallel runs stay separate.

use std::cell::RefCell;
use std::panic;
use std::sync::{Arc, Once};
use std::time::Duration;

use clock::{Clock, SharedClock};
use cluster::client::{ClientOptions, Clients};
use concertina::app::{AppError, ElectionRuntime, RunContext, client_options, run_with};
use controller::assembly::Phase;
use engine::reconcile::{ConcludedSync, Observer};
use engine::tasks::panic_message;
use engine::telemetry::metrics::Metrics;
use flags::Config;
use flags::config::{Election, TakeOver};
use flags::serving::Serving;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use journal::history::checkpoint::CheckpointPlace;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api_link::ApiLink;
use crate::run::{Life, Run};
use crate::seeded_bugs::SeededBug;

/// A process, with the state that all lifetimes share.
#[derive(Debug)]
pub(crate) struct Process {
    number: usize,
    lives: u32,
    pub(crate) clock: Arc<OwnClock>,
    pub(crate) telemetry: Metrics,
    running: Option<JoinHandle<Result<(), AppError>>>,
    /// Start of the next lifetime while the process is down.
    pub(crate) starts: Option<Duration>,
}

impl Process {
    pub(crate) fn new(run: &Run, number: usize, starts: Duration) -> Self {
        Self {
            number,
            lives: 0,
            clock: Arc::new(OwnClock::new(Arc::clone(&run.clock))),
            telemetry: Metrics::new(),
            running: None,
            starts: Some(starts),
        }
    }

    /// Starts a lifetime.
    pub(crate) fn start(&mut self, run: &Arc<Run>) {
        self.lives += 1;
        self.starts = None;
        let life = Life { number: self.lives, stop: CancellationToken::new(), cut: CancellationToken::new() };
        run.record_event(format!("process {} started, life {}", self.number, self.lives));
        run.judge.lock().life_started(self.number, self.lives, run.now());
        run.life_started(self.number, life.clone());
        let config = config(run);
        let telemetry = Metrics::new();
        self.telemetry = telemetry.clone();
        let options = client_options(&config, &telemetry);
        let link = ApiLink {
            run: Arc::clone(run),
            process: self.number,
            life: self.lives,
            cut: life.cut.clone(),
            hung: Mutex::default(),
            bug: Mutex::default(),
        };
        let clients = clients(run, link, &options);
        let clock: SharedClock = Arc::clone(&self.clock) as _;
        let witness = crate::ideal_history::IdealHistories::witness(run, self.number, self.lives);
        let mut observers = vec![witness];
        if run.plant == Some(SeededBug::SyncPanics) {
            observers.push(Arc::new(PanickingSync::default()));
        }
        let surroundings = RunContext {
            server: "http://embedded/".to_owned(),
            clock,
            identity: format!("p{}.{}", self.number, self.lives),
            observers,
            phase: Phase::Name,
            election: ElectionRuntime::Shared,
        };
        let running = async move { run_with(&config, &clients, surroundings, telemetry, life.stop).await };
        self.running = Some(tokio::spawn(running));
    }

    /// Whether this lifetime has started to act, with `--takeover=wait`.
    pub(crate) fn acts(&self) -> bool {
        self.telemetry.render().lines().any(|line| line == "concertina_takeover_state{state=\"acting\"} 1")
    }

    /// Number of watches that this lifetime replaced after a silence.
    pub(crate) fn silent_watches(&self) -> u64 {
        let text = self.telemetry.render();
        let lines = text.lines().filter(|line| {
            line.starts_with("concertina_watch_restarts_total") && line.contains("reason=\"silent\"")
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// Schedules the next lifetime after `pause` if the current lifetime has ended.
    pub(crate) async fn poll_exit(&mut self, run: &Run, pause: Duration) {
        let Some(running) = self.running.take_if(|running| running.is_finished()) else { return };
        let ended = running.await;
        run.ended(self.number, self.lives, matches!(ended, Ok(Ok(()))));
        if let Some(life) = run.life(self.number) {
            life.cut.cancel();
        }
        self.starts = Some(run.now() + pause);
        if let Ok(Err(error)) = ended {
            run.record_event(format!("process {} ended: {error}", self.number));
        }
    }
}

fn config(run: &Run) -> Config {
    let scene = &run.plan.scene;
    let mut config = Config {
        serving: Serving { port: 0, ..Serving::default() },
        takeover: if run.plant == Some(SeededBug::TakeoverIgnored) { TakeOver::Off } else { scene.takeover },
        election: scene.election.then(Election::default),
        history_checkpoint: scene.checkpoint.then(CheckpointPlace::default),
        ..Config::default()
    };
    config.controller.decisions_per_hpa = 1;
    if !scene.shares {
        config.controller.watch_targets = false;
        config.controller.metric_sharing = None;
    }
    config.controller.settings.tolerance =
        if run.plant == Some(SeededBug::ToleranceOff) { 0.25 } else { scene.tolerance };
    config.controller.settings.downscale_stabilization = scene.downscale;
    config
}

/// Clients with a separate simulated connection per dial.
fn clients(run: &Arc<Run>, link: ApiLink, options: &ClientOptions) -> Clients {
    let (cluster, link) = (run.cluster.clone(), Arc::new(link));
    let connector = tower::service_fn(move |_: http::Uri| {
        let near = cluster.dial_through(Arc::clone(&link) as _);
        std::future::ready(Ok::<_, std::io::Error>(TokioIo::new(near)))
    });
    Clients::over(connector, options).unwrap()
}

static HOOK: Once = Once::new();

thread_local! {
    static RECORDED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Starts to record the panics of this thread, and drops the panics of an earlier run.
pub(crate) fn start() {
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
            let text = format!("{}{place}", panic_message(info.payload()));
            RECORDED.with_borrow_mut(|recorded| recorded.push(text));
            previous(info);
        }));
    });
    RECORDED.with_borrow_mut(Vec::clear);
}

/// The first panic of this thread since [`start`].
pub(crate) fn first() -> Option<String> {
    RECORDED.with_borrow(|recorded| recorded.first().cloned())
}

/// A planted bug: the third sync of a lifetime panics.
#[derive(Debug, Default)]
pub(crate) struct PanickingSync(Mutex<u32>);

impl Observer for PanickingSync {
    fn concluded(&self, _: &ConcludedSync<'_>) {
        let mut syncs = self.0.lock();
        *syncs += 1;
        assert_ne!(*syncs, 3, "planted panic");
    }
}

/// A clock that deviates from the clock of the cluster.
#[derive(Debug)]
pub(crate) struct OwnClock {
    cluster: SharedClock,
    error: Mutex<Error>,
}

/// Deviation from the clock of the cluster.
#[derive(Debug, Clone, Copy)]
struct Error {
    ahead: SignedDuration,
    /// Rate at which the clock has gained time since `since`, in parts per million.
    drift: i64,
    since: Timestamp,
}

impl OwnClock {
    pub(crate) fn new(cluster: SharedClock) -> Self {
        let since = cluster.now();
        let error = Error { ahead: SignedDuration::ZERO, drift: 0, since };
        Self { cluster, error: Mutex::new(error) }
    }

    pub(crate) fn jump(&self, by: SignedDuration) {
        let mut error = self.error.lock();
        error.ahead += by;
    }

    /// Makes the clock too fast by `drift` parts per million from now on, or too slow if `drift` is negative.
    pub(crate) fn drift(&self, drift: i64) {
        let now = self.cluster.now();
        let mut error = self.error.lock();
        *error = Error { ahead: error.ahead_at(now), drift, since: now };
    }
}

impl Error {
    fn ahead_at(&self, now: Timestamp) -> SignedDuration {
        let micros = now.duration_since(self.since).as_micros() * i128::from(self.drift) / 1_000_000;
        self.ahead + SignedDuration::from_micros(i64::try_from(micros).unwrap())
    }
}

impl Clock for OwnClock {
    fn now(&self) -> Timestamp {
        let now = self.cluster.now();
        now + self.error.lock().ahead_at(now)
    }
}
