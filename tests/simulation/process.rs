//! A process: everything except the command line, with several lifetimes in sequence.

use std::sync::Arc;
use std::time::Duration;

use clock::SharedClock;
use cluster::client::{ClientOptions, Clients};
use concertina::app::{AppError, ElectionRuntime, RunContext, client_options, run_with};
use concertina::cli::Config;
use concertina::cli::config::{Election, TakeOver};
use concertina::serve::options::Serving;
use controller::assembly::Phase;
use controller::history::checkpoint::CheckpointPlace;
use controller::options::ScaleSource;
use controller::telemetry::metrics::Metrics;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api_link::ApiLink;
use crate::clock::OwnClock;
use crate::panics::PanickingSync;
use crate::peer_link::PeerLink;
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
        let life = Life {
            number: self.lives,
            started: run.now(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        };
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
        let tie = PeerLink { run: Arc::clone(run), process: self.number, link: run.network.join(&life.cut) };
        let clock: SharedClock = Arc::clone(&self.clock) as _;
        let witness = crate::ideal_history::IdealHistories::witness(run, self.number, self.lives);
        let mut observers = vec![witness];
        if run.plant == Some(SeededBug::SyncPanics) {
            observers.push(Arc::new(PanickingSync::default()));
        }
        let surroundings = RunContext {
            link: Some(Arc::new(tie)),
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

    /// Whether this lifetime acts with `--takeover=wait`.
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

    /// Checks whether the lifetime has ended and schedules the next one after `pause`.
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
        config.controller.scale_source = ScaleSource::Get;
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
