//! The connection between the processes of a run and the cluster. It counts every call and every watch
//! event, and injects the one fault of a plan. Planted bugs, which have no effect in a run
//! without a fault, show that the plans find bugs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fake_cluster::{Answer, Exchange, Link, Pieces, Server};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::world::{HPAS, World};

/// The fault of a plan. Calls and events are numbered over all processes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies just before the given call reaches the server.
    DiesBefore(usize),
    /// The process dies after the server has applied the given call and before the response arrives.
    DiesAfter(usize),
    /// The stream breaks before the given event.
    Lost(usize),
    /// The given event is delayed by the given duration. The later events of its stream wait for it.
    Late(usize, Duration),
}

/// A call of a process, or an event that a process received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) at: Duration,
    /// Process, verb, path and query of a call. Process, path, type, name and resourceVersion of an event.
    pub(crate) text: String,
}

/// A count that a process wrote and the server accepted.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) at: Duration,
    pub(crate) path: String,
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// The HPA of the target at the time of the write.
    pub(crate) hpa: Value,
}

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) calls: Vec<Call>,
    /// Every line of every watch.
    pub(crate) events: Vec<Call>,
    pub(crate) writes: Vec<Write>,
    /// Time of the fault.
    pub(crate) fault_time: Option<Instant>,
}

/// The shared state of all processes of a run.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) world: World,
    pub(crate) plant: Option<SeededBug>,
    fault: Option<Fault>,
    started: Instant,
    log: Mutex<Log>,
}

impl SharedState {
    pub(crate) fn new(world: World, fault: Option<Fault>, plant: Option<SeededBug>) -> Self {
        Self { world, plant, fault, started: Instant::now(), log: Mutex::default() }
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn hit(&self) {
        self.log().fault_time.get_or_insert_with(Instant::now);
    }

    /// Records a call and returns its number.
    fn called(&self, process: &str, exchange: &Exchange) -> usize {
        let Exchange { verb, path, query, .. } = exchange;
        let text = format!("{process} {verb} {path}?{query}");
        let mut log = self.log();
        log.calls.push(Call { at: self.now(), text });
        log.calls.len() - 1
    }

    /// Records an event and returns its number.
    fn delivered(&self, process: &str, path: &str, line: &[u8]) -> usize {
        let event: Value = serde_json::from_slice(line).unwrap_or_default();
        let meta = |field: &str| event["object"]["metadata"][field].as_str().unwrap_or_default().to_owned();
        let kind = event["type"].as_str().unwrap_or_default();
        let text = format!("{process} {path} {kind} {} at {}", meta("name"), meta("resourceVersion"));
        let mut log = self.log();
        log.events.push(Call { at: self.now(), text });
        log.events.len() - 1
    }

    /// Records a written count, and adapts pods and metrics to it.
    fn written(&self, exchange: &Exchange, before: Option<i64>) {
        let body: Value = serde_json::from_slice(&exchange.body).unwrap_or_default();
        let to = body["spec"]["replicas"].as_i64().unwrap_or(0);
        let mut parts = exchange.path.rsplit('/').skip(1);
        let (name, _, namespace) =
            (parts.next().unwrap_or_default(), parts.next(), parts.next().unwrap_or_default());
        let hpas = self.world.cluster.list(HPAS, Some(namespace));
        let hpa = hpas.into_iter().find(|hpa| hpa["spec"]["scaleTargetRef"]["name"] == name);
        let (at, path, from) = (self.now(), exchange.path.clone(), before.unwrap_or(-1));
        self.log().writes.push(Write { at, path, from, to, hpa: hpa.unwrap_or_default() });
        self.world.follow();
    }
}

/// The connection of one process.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    pub(crate) ground: Arc<SharedState>,
    pub(crate) process: String,
    /// Whether this is the first process of its replica.
    pub(crate) is_first: bool,
    pub(crate) dead: CancellationToken,
}

impl FaultInjector {
    fn cut_off(&self) {
        self.ground.hit();
        self.dead.cancel();
    }

    /// Forwards a request to the server. After a write of a Scale, pods and metrics follow the count.
    pub(crate) async fn forward(&self, exchange: Exchange, server: &Server) -> Answer {
        let scales = exchange.verb == "update" && exchange.path.ends_with("/scale");
        let before = if scales { self.ground.world.counts().get(&exchange.path).copied() } else { None };
        let answer = server.answer(exchange.clone()).await;
        if scales && answer.code() == Some(200) {
            self.ground.written(&exchange, before);
        }
        answer
    }

    /// Splits a watch into lines and injects the fault into the lines.
    fn pieces(self: Arc<Self>, path: &str, pieces: Pieces) -> Pieces {
        let path = path.to_owned();
        let lines = pieces.flat_map(|piece| {
            let lines = match piece {
                Ok(piece) => piece
                    .split_inclusive(|byte| *byte == b'\n')
                    .map(|line| Ok(piece.slice_ref(line)))
                    .collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(lines)
        });
        let state = (self, path, Box::pin(lines), false);
        Box::pin(stream::unfold(state, |(link, path, mut lines, broken)| async move {
            if broken {
                return None;
            }
            let line: Option<io::Result<Bytes>> = tokio::select! {
                biased;
                () = link.dead.cancelled() => Some(Err(io::ErrorKind::ConnectionReset.into())),
                line = lines.next() => line,
            };
            let mut line = line?;
            if let Ok(bytes) = &line {
                let number = link.ground.delivered(&link.process, &path, bytes);
                match link.ground.fault {
                    Some(Fault::Lost(lost)) if lost == number => {
                        link.ground.hit();
                        line = Err(io::ErrorKind::ConnectionReset.into());
                    }
                    Some(Fault::Late(late, delay)) if late == number => {
                        link.ground.hit();
                        tokio::time::sleep(delay).await;
                    }
                    _ => {}
                }
            }
            let broken = line.is_err();
            Some((line, (link, path, lines, broken)))
        }))
    }
}

impl Link for FaultInjector {
    fn carry(self: Arc<Self>, mut exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            if self.dead.is_cancelled() {
                return Answer::Broken;
            }
            let number = self.ground.called(&self.process, &exchange);
            if self.ground.fault == Some(Fault::DiesBefore(number)) {
                self.cut_off();
                return Answer::Broken;
            }
            let path = exchange.path.clone();
            let answer = match intercept(&self, &mut exchange) {
                Some(answer) => answer,
                None => self.forward(exchange.clone(), &server).await,
            };
            if self.ground.fault == Some(Fault::DiesAfter(number)) {
                self.cut_off();
                continue_after_death(&self, exchange, server);
                return Answer::Broken;
            }
            match answer {
                Answer::Pieces(pieces) => Answer::Pieces(self.pieces(&path, pieces)),
                answer => answer,
            }
        })
    }
}

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeededBug {
    /// A count without a response is written again 20 s later, over any newer state.
    RepeatsWrites,
    /// A reopened watch continues from the current resourceVersion, not from that at which the previous watch broke.
    SkipsEvents,
    /// Status writes of a successor process are confirmed and dropped.
    DropsStatuses,
}

/// Acts as the planted bug: returns a response in place of the server, or alters the request.
pub(crate) fn intercept(link: &FaultInjector, exchange: &mut Exchange) -> Option<Answer> {
    match link.ground.plant? {
        SeededBug::SkipsEvents if exchange.verb == "watch" && link.ground.log().fault_time.is_some() => {
            let newest = link.ground.world.cluster.resource_version();
            let fields = exchange.query.split('&').map(|field| match field.split_once('=') {
                Some(("resourceVersion", _)) => format!("resourceVersion={newest}"),
                _ => field.to_owned(),
            });
            exchange.query = fields.collect::<Vec<_>>().join("&");
            None
        }
        SeededBug::DropsStatuses
            if !link.is_first && exchange.verb == "update" && exchange.path.ends_with("/status") =>
        {
            Some(Answer::json(200, exchange.body.clone()))
        }
        _ => None,
    }
}

/// Acts as the planted bug after the process has died.
pub(crate) fn continue_after_death(link: &Arc<FaultInjector>, mut exchange: Exchange, server: Server) {
    let writes = exchange.verb == "update" && exchange.path.ends_with("/scale");
    if link.ground.plant != Some(SeededBug::RepeatsWrites) || !writes {
        return;
    }
    let link = Arc::clone(link);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let mut body: Value = serde_json::from_slice(&exchange.body).unwrap();
        body["metadata"]["resourceVersion"] = "".into();
        exchange.body = body.to_string().into();
        link.forward(exchange, &server).await;
    });
}
