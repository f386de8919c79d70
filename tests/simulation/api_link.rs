//! The connection between one lifetime of a process and the cluster. It adds latency, injects faults, records requests
//! in the ledger, and applies the planted bug, if any.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fake_cluster::{Answer, Exchange, Link, Pieces, Server, Status, Whole};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::faults::FaultHit;
use crate::many_seeds::hash;
use crate::plan::{Class, FaultKind};
use crate::request_log::{Entry, Subject};
use crate::run::Run;
use crate::tenants::{self, Response};

/// Time after which a hanging metrics API closes the connection. It exceeds the timeout of a request.
const NO_ANSWER: Duration = Duration::from_mins(2);

/// The connection of one lifetime of a process.
#[derive(Debug)]
pub(crate) struct ApiLink {
    pub(crate) run: Arc<Run>,
    pub(crate) process: usize,
    pub(crate) life: u32,
    /// Cancelled when the process is disconnected at the end of its lifetime.
    pub(crate) cut: CancellationToken,
    /// Classes of the watches that have hung.
    pub(crate) hung: Mutex<BTreeSet<Class>>,
    /// State of the planted bug.
    pub(crate) bug: Mutex<Bug>,
}

/// State of a planted bug in one lifetime of a process.
#[derive(Debug, Default)]
pub(crate) struct Bug {
    /// The HPA whose failure stopped all others. Empty before such a failure.
    stopped_by: Vec<Option<usize>>,
    scales: BTreeMap<Option<usize>, Whole>,
    has_written: bool,
}

impl Link for ApiLink {
    fn carry(self: Arc<Self>, exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let passed = Arc::clone(&self).send(exchange, server);
            tokio::select! {
                biased;
                () = self.cut.cancelled() => Answer::Broken,
                answer = passed => answer,
            }
        })
    }
}

impl ApiLink {
    /// Sends a request from the process. A planted bug intercepts the request here, and makes a correct process act
    /// like an incorrect one.
    async fn send(self: Arc<Self>, exchange: Exchange, server: Server) -> Answer {
        match self.run.plant {
            None => self.forward(exchange, server).await,
            Some(plant) => plant.intercept(self, exchange, server).await,
        }
    }

    /// Stops the syncs of all HPAs except `hpa`.
    pub(crate) fn stop_others(&self, hpa: Option<usize>) {
        self.bug.lock().stopped_by = vec![hpa];
    }

    pub(crate) fn is_stopped(&self, hpa: Option<usize>) -> bool {
        self.bug.lock().stopped_by.iter().any(|by| *by != hpa)
    }

    /// Whether this method was called before.
    pub(crate) fn has_written(&self) -> bool {
        std::mem::replace(&mut self.bug.lock().has_written, true)
    }

    /// Replaces a successful `answer` by the first successful answer for the same HPA.
    pub(crate) fn first_scale(&self, hpa: Option<usize>, answer: Answer) -> Answer {
        let Answer::Whole(whole) = answer else { return answer };
        if whole.code != 200 {
            return Answer::Whole(whole);
        }
        Answer::Whole(self.bug.lock().scales.entry(hpa).or_insert(whole).clone())
    }

    fn hit(&self, kinds: &[FaultKind], subject: Subject) -> Option<FaultHit> {
        self.run.faults.lock().hit(kinds, self.process, subject)
    }

    /// Waits for the latency of one direction, which is never zero, because a sync always takes time.
    async fn wait_latency(&self, number: u64) {
        let draw =
            hash(self.run.plan.seed ^ 0x1a7e, number.wrapping_mul(16).wrapping_add(self.process as u64));
        sleep(Duration::from_millis(1 + draw % self.run.plan.scene.latency)).await;
    }

    /// Waits for the `amount` of a fault in milliseconds, but at most until the fault ends.
    async fn delay(&self, strike: &FaultHit) {
        let over = self.run.sleep_until(strike.until);
        let _ = tokio::time::timeout(Duration::from_millis(strike.amount), over).await;
    }

    /// Forwards a request over the network to the API server, with latency and faults.
    pub(crate) async fn forward(self: Arc<Self>, exchange: Exchange, server: Server) -> Answer {
        let subject = Subject::from_exchange(&exchange);
        let number = self.run.sent(Entry::new(&exchange, subject, self.process, self.life, self.run.now()));
        let draw = number as u64 * 2;
        if self.run.is_dead(self.process, self.life) {
            return Answer::Broken;
        }
        self.wait_latency(draw).await;
        let early = match self.before(subject).await {
            None => answer_tenant(&exchange).await,
            early => early,
        };
        if let Some(early) = early {
            let answer = early;
            self.run.answered(number, answer.code(), false);
            return answer;
        }
        let before =
            (subject.class == Class::ScalePut).then(|| subject.hpa.and_then(|hpa| self.run.replicas(hpa)));
        let answer = server.answer(exchange).await;
        self.run.applied(number, before.flatten(), &answer);
        let (answer, intact) = self.after(subject, answer);
        self.wait_latency(draw + 1).await;
        self.run.answered(number, answer.code(), intact);
        if let (Answer::Whole(whole), Class::ListHpas) = (&answer, subject.class) {
            self.run.received(self.process, self.life, &whole.body);
        }
        match answer {
            Answer::Pieces(pieces) => Answer::Pieces(self.watch(subject, number as u64, pieces)),
            answer => answer,
        }
    }

    /// Applies faults to a request before it reaches the server. Returns a response if the request never
    /// reaches the server.
    async fn before(&self, subject: Subject) -> Option<Answer> {
        use FaultKind as K;
        if self.hit(&[K::CrashBefore], subject).is_some() {
            self.run.crash(self.process, self.life);
            return Some(Answer::Broken);
        }
        if let Some(strike) = self.hit(&[K::Partition, K::Hang], subject) {
            self.run.sleep_until(strike.until).await;
            return Some(Answer::Broken);
        }
        if let Some(strike) = self.hit(&[K::Slow], subject) {
            self.delay(&strike).await;
        }
        if subject.class == Class::Metrics {
            match self.hit(&[K::MetricsDown, K::MetricsSlow], subject) {
                Some(FaultHit { kind: K::MetricsDown, amount, .. }) => {
                    return Some(match amount % 3 {
                        0 => Answer::text(503, "service unavailable"),
                        1 => {
                            Answer::status(&Status::new(500, "InternalError", "the adapter is out of order"))
                        }
                        _ => Answer::text(404, "404 page not found\n"),
                    });
                }
                Some(strike) => self.delay(&strike).await,
                None => {}
            }
        }
        if subject.is_list() && self.hit(&[K::ListGone], subject).is_some() {
            let expired = Status::expired("The provided continue parameter is too old");
            return Some(Answer::status(&expired));
        }
        if matches!(subject.class, Class::ScalePut | Class::StatusPut)
            && self.hit(&[K::Conflict], subject).is_some()
        {
            return Some(Answer::status(&Status::conflict("", "things", "thing")));
        }
        let strike = self.hit(&[K::ResetBefore, K::Throttle, K::Storm, K::Unauthorized], subject)?;
        Some(match strike.kind {
            K::Unauthorized => Answer::status(&Status::new(401, "Unauthorized", "Unauthorized")),
            K::Throttle => {
                Answer::status(&Status::too_many_requests(u32::try_from(strike.amount % 4).unwrap()))
            }
            K::Storm => match strike.amount % 3 {
                0 => Answer::text(503, "no endpoints available"),
                1 => Answer::status(&Status::internal("etcdserver: request timed out")),
                _ => Answer::text(502, "<html>bad gateway</html>"),
            },
            _ => Answer::Broken,
        })
    }

    /// Applies faults to a response. The returned flag is false if the process can recognise that the response is lost
    /// or broken.
    fn after(&self, subject: Subject, answer: Answer) -> (Answer, bool) {
        use FaultKind as K;
        if self.hit(&[K::CrashAfter], subject).is_some() {
            self.run.crash(self.process, self.life);
            return (Answer::Broken, false);
        }
        if self.hit(&[K::ResetAfter], subject).is_some() {
            return (Answer::Broken, false);
        }
        let Answer::Whole(whole) = answer else { return (answer, true) };
        if matches!(subject.class, Class::ListHpas | Class::ListPods)
            && self.hit(&[K::ListCut], subject).is_some()
        {
            let half = whole.body.len() / 2;
            return (Answer::Cut(whole, half), false);
        }
        if subject.class != Class::Metrics || whole.code != 200 {
            return (Answer::Whole(whole), true);
        }
        let kinds = [
            K::MetricsPartial,
            K::MetricsStale,
            K::MetricsCut,
            K::MetricsKind,
            K::MetricsEmpty,
            K::MetricsHuge,
        ];
        match self.hit(&kinds, subject) {
            Some(strike) => {
                let broken = matches!(strike.kind, K::MetricsCut | K::MetricsKind | K::MetricsEmpty);
                (corrupt(&strike, whole), !broken)
            }
            None => (Answer::Whole(whole), true),
        }
    }

    /// Applies faults to a watch, piece by piece.
    fn watch(self: Arc<Self>, subject: Subject, number: u64, pieces: Pieces) -> Pieces {
        let lines = Lines {
            link: self,
            subject,
            pieces,
            number,
            pieces_read: 0,
            waiting: VecDeque::new(),
            end: None,
            bookmarked: false,
        };
        Box::pin(futures::stream::unfold(lines, |mut lines| async move {
            let piece = lines.next().await?;
            if let (Ok(piece), Class::WatchHpas) = (&piece, lines.subject.class) {
                lines.link.run.received(lines.link.process, lines.link.life, piece);
            }
            Some((piece, lines))
        }))
    }
}

/// Returns the response to the query of a hostile tenant if the query does not reach the backend. `None` for all other
/// queries.
async fn answer_tenant(exchange: &Exchange) -> Option<Answer> {
    let metric = exchange.path.rsplit('/').next().filter(|_| tenants::owns(&exchange.path))?;
    match tenants::response(metric)? {
        Response::Value => None,
        Response::None => {
            sleep(NO_ANSWER).await;
            Some(Answer::Broken)
        }
        Response::Error => Some(Answer::text(500, "no such series: ".repeat(100))),
    }
}

/// A metrics response in the form that a broken adapter sends.
fn corrupt(strike: &FaultHit, whole: Whole) -> Answer {
    let Ok(mut body) = serde_json::from_slice::<Value>(&whole.body) else { return Answer::Whole(whole) };
    let items = body["items"].as_array_mut();
    match strike.kind {
        FaultKind::MetricsCut => {
            let half = whole.body.len() / 2;
            return match strike.amount % 2 {
                0 => Answer::Cut(whole, half),
                _ => Answer::json(200, whole.body.slice(..half)),
            };
        }
        FaultKind::MetricsKind => {
            body = serde_json::json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}});
        }
        FaultKind::MetricsEmpty => {
            if let Some(items) = items {
                items.clear();
            }
        }
        FaultKind::MetricsPartial => {
            if let Some(items) = items {
                items.truncate(items.len() / 2);
            }
        }
        FaultKind::MetricsStale => {
            for item in items.into_iter().flatten() {
                item["timestamp"] = "2029-12-31T00:00:00Z".into();
            }
        }
        FaultKind::MetricsHuge => {
            for item in items.into_iter().flatten() {
                if item.get("value").is_some() {
                    item["value"] = "9223372036854775807".into();
                } else {
                    item["containers"][0]["usage"]["cpu"] = "9223372036854775807".into();
                }
            }
        }
        _ => {}
    }
    Answer::json(200, body.to_string())
}

/// A watch with its pending lines.
struct Lines {
    link: Arc<ApiLink>,
    subject: Subject,
    pieces: Pieces,
    number: u64,
    pieces_read: u64,
    waiting: VecDeque<Bytes>,
    /// Set while events are lost: the fault, and the time at which the connection breaks or the watch ends with a 410.
    end: Option<(FaultKind, Instant)>,
    /// Whether the process has received a periodic bookmark.
    bookmarked: bool,
}

impl Lines {
    async fn next(&mut self) -> Option<std::io::Result<Bytes>> {
        use FaultKind as K;
        let broken = || Some(Err(std::io::ErrorKind::ConnectionReset.into()));
        let link = Arc::clone(&self.link);
        loop {
            // `Notify` wakes watches in the order in which they started to wait. A `watch` channel wakes
            // its receivers in an order that differs between runs.
            let changed = link.run.faults_changed.notified();
            if let Some((kind, at)) = self.end {
                tokio::select! {
                    biased;
                    () = link.cut.cancelled() => return broken(),
                    () = sleep_until(at) => {}
                    // Drop the piece.
                    piece = self.pieces.next() => {
                        if piece.is_none() {
                            self.pieces = Box::pin(futures::stream::pending());
                        }
                        continue;
                    }
                }
                if kind == K::WatchCut {
                    return broken();
                }
                self.end = None;
                self.pieces = Box::pin(futures::stream::empty());
                self.waiting.clear();
                return Some(Ok(expired_event()));
            }
            if let Some(strike) = link.hit(&[K::WatchSilent, K::Partition], self.subject) {
                // A process that has never received a bookmark treats the second silence as the normal state.
                if strike.hangs() && (link.hung.lock().insert(self.subject.class) || self.bookmarked) {
                    link.cut.cancelled().await;
                    return broken();
                }
                let over = link.run.sleep_until(strike.until);
                tokio::select! {
                    biased;
                    () = link.cut.cancelled() => return broken(),
                    () = over => {}
                }
                if strike.kind == K::Partition {
                    return broken();
                }
                continue;
            }
            if link.hit(&[K::WatchGone], self.subject).is_some() {
                self.pieces = Box::pin(futures::stream::empty());
                self.waiting.clear();
                return Some(Ok(expired_event()));
            }
            if !self.waiting.is_empty() && link.run.is_fault_free() {
                let lines: Vec<_> = self.waiting.drain(..).collect();
                return Some(Ok(if let [line] = lines.as_slice() {
                    line.clone()
                } else {
                    lines.concat().into()
                }));
            }
            if let Some(line) = self.waiting.pop_front() {
                match link.hit(
                    &[K::WatchCut, K::WatchHole, K::WatchTwice, K::WatchReorder, K::WatchLate],
                    self.subject,
                ) {
                    None => return Some(Ok(line)),
                    Some(strike) => match strike.kind {
                        K::WatchTwice => return Some(Ok([line.clone(), line].concat().into())),
                        K::WatchLate => {
                            sleep(Duration::from_millis(strike.amount)).await;
                            return Some(Ok(line));
                        }
                        K::WatchReorder => {
                            let Some(other) = self.waiting.pop_front() else {
                                return Some(Ok(line));
                            };
                            let differ =
                                matches!((names(&line), names(&other)), (Some(one), Some(two)) if one != two);
                            let pair = if differ { [other, line] } else { [line, other] };
                            return Some(Ok(pair.concat().into()));
                        }
                        kind => {
                            self.end = Some((kind, link.run.instant(strike.until)));
                            continue;
                        }
                    },
                }
            }
            let piece = tokio::select! {
                biased;
                () = link.cut.cancelled() => return broken(),
                () = changed => continue,
                piece = self.pieces.next() => piece,
            };
            match piece {
                None => return None,
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(piece)) => {
                    self.pieces_read += 1;
                    link.wait_latency(self.number.wrapping_mul(7919).wrapping_add(self.pieces_read)).await;
                    let mut rest = piece;
                    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                        let event = rest.split_to(end + 1);
                        self.bookmarked |= is_bookmark(&event);
                        self.waiting.push_back(event);
                    }
                }
            }
        }
    }
}

/// An ERROR event for a resource version that the server no longer has.
fn expired_event() -> Bytes {
    let status = Status::expired("too old resource version: 1 (2)").to_json();
    format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into()
}

/// Whether an event is a bookmark other than the one at the end of a streamed list.
fn is_bookmark(line: &[u8]) -> bool {
    let text = std::str::from_utf8(line).unwrap_or_default();
    text.starts_with("{\"type\":\"BOOKMARK\"") && !text.contains("initial-events-end")
}

/// The namespace and name of the object of an event.
fn names(line: &[u8]) -> Option<(String, String)> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let meta = &event["object"]["metadata"];
    Some((meta["namespace"].as_str()?.to_owned(), meta["name"].as_str()?.to_owned()))
}
