//! Whole controllers in virtual time: the assembled controller, the embedded server and its HTTP, with drawn latencies.
//! The run records the facts that upstream's queue would meet: the durations of syncs, and the arrivals of changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::WriteOutcome;
use autoscaling::settings::Settings;
use clock::{Clock, SharedClock, VirtualClock};
use cluster::client::{ClientOptions, Clients};
use controller::assembly::{Assembly, Parts, Phase};
use controller::options::Options;
use engine::reconcile::queue::Queue;
use engine::reconcile::{ConcludedSync, KeptHistory, Observer};
use engine::store::{HpaRecord, Key};
use engine::telemetry::metrics::Metrics;
use fake_cluster::{
    Answer, BareScale, Cluster, Exchange, Latency, Link, MetricsBackend, MetricsReply, MetricsRequest,
    ScalePath, Server,
};
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use journal::history::codec;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::core::{PODS, spec};
use crate::draw::{Plan, WholeEvent};
use crate::replay::{Facts, Life, Seen, SyncFacts};

/// The namespace of all HPAs.
const NAMESPACE: &str = "shop";
/// The wall clock at the start.
const EPOCH: i64 = 60 * 365 * 24 * 3600;

/// A clock whose wall time jumps.
#[derive(Debug)]
struct JumpingClock {
    steady: VirtualClock,
    ahead: Mutex<SignedDuration>,
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        self.steady.now() + *self.ahead.lock()
    }
}

/// A request of a sync.
#[derive(Debug, Clone, Copy)]
struct Exchanged {
    sent: u64,
    answered: u64,
    /// The `resourceVersion` of a written status.
    wrote: Option<u64>,
    kind: Kind,
}

/// The kind of a request of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ReadScale,
    ReadHpa,
    Other,
}

/// A decision.
#[derive(Debug, Clone, Copy)]
struct Decided {
    at: u64,
    ended: u64,
    proposal: i32,
    replicas: i32,
}

/// What happened to one HPA in the current life of the controller.
#[derive(Debug, Default)]
struct Track {
    seen: Vec<Seen>,
    exchanges: Vec<Exchanged>,
    decisions: Vec<Decided>,
}

impl Track {
    fn last_start(&self) -> Option<u64> {
        let starts = self.exchanges.iter().filter(|exchange| exchange.kind == Kind::ReadScale);
        starts.map(|exchange| exchange.sent).max()
    }
}

/// The recorded events of all HPAs, by number.
#[derive(Debug)]
struct Log {
    origin: Instant,
    tracks: Mutex<BTreeMap<usize, Track>>,
    /// The times of requests for the API's resources, which several syncs share: sent, and answered.
    discoveries: Mutex<Vec<(u64, u64)>>,
    /// With the planted bug: the queue. An HPA is due one period after the start of its sync.
    bug: Option<Mutex<Option<Arc<Queue>>>>,
    plan: Arc<Plan>,
}

impl Log {
    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap()
    }

    fn note(&self, hpa: usize, note: impl FnOnce(&mut Track)) {
        note(self.tracks.lock().entry(hpa).or_default());
    }
}

fn name(hpa: usize) -> String {
    format!("web-{hpa}")
}

fn number(name: &str) -> Option<usize> {
    name.strip_prefix("web-")?.parse().ok()
}

impl Observer for Log {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let explanation = &sync.conclusion.explanation;
        let has_rescaled = *sync.outcome == WriteOutcome::Done;
        let ended = self.now();
        let took = sync.ended.duration_since(sync.at).as_millis();
        let decided = Decided {
            at: ended - u64::try_from(took).unwrap(),
            ended,
            proposal: explanation.proposal.unwrap(),
            replicas: explanation.desired.filter(|_| has_rescaled).unwrap_or(explanation.current),
        };
        let hpa = number(&sync.hpa.key.name).unwrap();
        self.note(hpa, |track| track.decisions.push(decided));
        if let Some(queue) = self.bug.as_ref().and_then(|queue| queue.lock().clone()) {
            let started = self.tracks.lock().get(&hpa).and_then(Track::last_start).unwrap();
            let period = self.plan.hpas[hpa].own_period.map_or(self.plan.period, |seconds| seconds * 1000);
            queue.add_at(&sync.hpa.key, self.origin + Duration::from_millis(started + period));
        }
    }

    fn seen(&self, _: Option<&HpaRecord>, new: &HpaRecord) {
        let seen = Seen {
            at: self.now(),
            generation: new.generation.unwrap(),
            version: new.resource_version.as_str().parse().unwrap(),
        };
        self.note(number(&new.key.name).unwrap(), |track| track.seen.push(seen));
    }
}

/// The connection of the controller, which records the requests of syncs.
#[derive(Debug)]
struct Recorded(Arc<Log>);

impl Link for Recorded {
    fn carry(self: Arc<Self>, exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let path = exchange.path.clone();
            let (is_read, is_status) = (exchange.verb == "get", path.ends_with("/status"));
            // A controller reads one HPA as a list, because its role permits no other read.
            let listed =
                exchange.query.split_once("metadata.name%3D").filter(|_| path.ends_with("autoscalers"));
            let kind = match (is_read && path.ends_with("/scale"), listed) {
                (true, _) => Kind::ReadScale,
                (_, Some(_)) => Kind::ReadHpa,
                _ => Kind::Other,
            };
            let hpa = match listed {
                Some((_, rest)) => number(rest.split('&').next().unwrap()),
                None => path.rsplit('/').find_map(number),
            };
            let sent = self.0.now();
            let answer = server.answer(exchange).await;
            if let Some(hpa) = hpa {
                let wrote = match &answer {
                    Answer::Whole(whole) if is_status && whole.code == 200 => {
                        let object: Value = serde_json::from_slice(&whole.body).unwrap();
                        object["metadata"]["resourceVersion"]
                            .as_str()
                            .and_then(|version| version.parse().ok())
                    }
                    _ => None,
                };
                let exchanged = Exchanged { sent, answered: self.0.now(), wrote, kind };
                self.0.note(hpa, |track| track.exchanges.push(exchanged));
            } else if is_read {
                self.0.discoveries.lock().push((sent, self.0.now()));
            }
            answer
        })
    }
}

/// External metrics: the n-th request for the metric of an HPA gets its n-th proposal.
#[derive(Debug)]
struct Proposals {
    plan: Arc<Plan>,
    requests: Mutex<BTreeMap<usize, usize>>,
}

impl MetricsBackend for Proposals {
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let metric = request.path.last().unwrap();
        let hpa = number(metric).unwrap();
        let mut requests = self.requests.lock();
        let count = requests.entry(hpa).or_default();
        let value = self.plan.hpas[hpa].proposal(*count);
        *count += 1;
        let item = json!({
            "metricName": metric, "metricLabels": {}, "timestamp": "2030-01-01T00:00:00Z",
            "value": value.to_string(),
        });
        MetricsReply::Json(json!({
            "kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {},
            "items": [item],
        }))
    }
}

/// The cluster of a run.
struct World {
    plan: Arc<Plan>,
    cluster: Cluster,
    clock: Arc<JumpingClock>,
    log: Arc<Log>,
    facts: Vec<Facts>,
}

/// A running controller.
struct Running {
    assembly: Assembly,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    begins: u64,
}

/// Runs a plan. Returns the facts of each HPA.
pub(crate) async fn play(plan: Arc<Plan>, has_bug: bool) -> Vec<Facts> {
    let epoch = Timestamp::from_second(EPOCH).unwrap();
    let clock = JumpingClock { steady: VirtualClock::starting_at(epoch), ahead: Mutex::default() };
    let clock = Arc::new(clock);
    let cluster = Cluster::new(Arc::clone(&clock) as SharedClock);
    cluster.requests().keep(0);
    let millis =
        |range: &std::ops::Range<u64>| Duration::from_millis(range.start)..Duration::from_millis(range.end);
    let [api, metrics] = [&plan.api, &plan.metrics].map(millis);
    cluster.set_latency(Latency { api, metrics, seed: plan.seed });
    cluster.set_metrics(Arc::new(Proposals { plan: Arc::clone(&plan), requests: Mutex::default() }));
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        .unwrap();
    let bug = has_bug.then(Mutex::default);
    let log = Arc::new(Log {
        origin: Instant::now(),
        tracks: Mutex::default(),
        discoveries: Mutex::default(),
        bug,
        plan: Arc::clone(&plan),
    });
    let facts = plan.hpas.iter().map(|_| Facts::default()).collect();
    let mut world = World { plan, cluster, clock, log, facts };
    world.run().await;
    world.facts
}

impl World {
    async fn run(&mut self) {
        let plan = Arc::clone(&self.plan);
        let mut running = self.start(BTreeMap::new()).await;
        for (at, event) in &plan.events {
            sleep_until(self.log.origin + Duration::from_millis(*at)).await;
            match event {
                WholeEvent::Create(hpa) => self.create(*hpa),
                WholeEvent::Edit(hpa, version) => self.edit(*hpa, *version),
                WholeEvent::Jump(by) => *self.clock.ahead.lock() += SignedDuration::from_millis(*by),
                WholeEvent::Failover(after) => {
                    let kept = self.end(running).await;
                    sleep(Duration::from_millis(*after)).await;
                    running = self.start(kept).await;
                }
            }
        }
        sleep_until(self.log.origin + Duration::from_millis(plan.end)).await;
        self.end(running).await;
    }

    fn create(&self, hpa: usize) {
        let plan = &self.plan.hpas[hpa];
        let path = ScalePath {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: name(hpa),
        };
        let spec_replicas = plan.versions[0].replicas.into();
        let scale =
            BareScale { spec_replicas, status_replicas: PODS.into(), selector: format!("app=web-{hpa}") };
        self.cluster.put_scale(&path, scale);
        let mut metadata = json!({"namespace": NAMESPACE, "name": name(hpa)});
        if let Some(seconds) = plan.own_period {
            let policy = json!({ "syncPeriodSeconds": seconds }).to_string();
            metadata["annotations"] = json!({ "concertina.dev/policy": policy });
        }
        let object = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata,
            "spec": spec(&plan.versions[0], &name(hpa), &name(hpa)),
        });
        self.cluster.create(object).unwrap();
    }

    fn edit(&self, hpa: usize, version: usize) {
        let resource = "autoscaling/horizontalpodautoscalers";
        let mut object = self.cluster.get(resource, NAMESPACE, &name(hpa)).unwrap();
        object["spec"] = spec(&self.plan.hpas[hpa].versions[version], &name(hpa), &name(hpa));
        self.cluster.update(object).unwrap();
    }

    /// Starts a controller with the histories of its predecessor, by UID.
    async fn start(&mut self, histories: BTreeMap<String, KeptHistory>) -> Running {
        let downscale_stabilization = Duration::from_secs(self.plan.downscale);
        let settings = Settings { downscale_stabilization, ..Settings::default() };
        let options = Options {
            sync_period: Duration::from_millis(self.plan.period),
            qps: None,
            concurrent_syncs: 500,
            decisions_per_hpa: 0,
            settings,
            ..Options::default()
        };
        let (cluster, link) = (self.cluster.clone(), Arc::new(Recorded(Arc::clone(&self.log))));
        let connector = tower::service_fn(move |_: http::Uri| {
            let stream = cluster.dial_through(Arc::clone(&link) as _);
            async move { Ok::<_, std::io::Error>(TokioIo::new(stream)) }
        });
        let client_options = ClientOptions { qps: 0.0, ..ClientOptions::default() };
        let clients = Clients::over(connector, &client_options).unwrap();
        let stop = CancellationToken::new();
        let parts = Parts {
            clients: &clients,
            options: &options,
            clock: Arc::clone(&self.clock) as SharedClock,
            telemetry: Metrics::new(),
            observers: vec![Arc::clone(&self.log) as _],
            seed: self.plan.seed,
            phase: Phase::FirstSync,
        };
        let assembly = Assembly::start(parts, &stop);
        assembly.synced().await;
        for (uid, kept) in histories {
            assembly.controller.stores.histories.seed(&uid.as_str().into(), kept.inherit(self.clock.now()));
        }
        if let Some(queue) = &self.log.bug {
            *queue.lock() = Some(Arc::clone(&assembly.controller.runtime.queue));
        }
        let begins = self.log.now();
        let task = tokio::spawn(Arc::clone(&assembly.controller).run(stop.clone()));
        Running { assembly, stop, task, begins }
    }

    /// Ends a controller, adds its facts, and returns its histories by UID, as a checkpoint or a replica has them.
    async fn end(&mut self, running: Running) -> BTreeMap<String, KeptHistory> {
        let Running { assembly, stop, task, begins } = running;
        let ends = self.log.now();
        stop.cancel();
        task.await.unwrap();
        let mut kept = BTreeMap::new();
        let discoveries = std::mem::take(&mut *self.log.discoveries.lock());
        for (hpa, facts) in self.facts.iter_mut().enumerate() {
            if let Some(record) = assembly.controller.stores.hpas.get(&Key::new(NAMESPACE, name(hpa))) {
                let history = KeptHistory::from(assembly.controller.stores.histories.get(&record.uid));
                kept.insert(record.uid.to_string(), codec::decode(&codec::encode(&history)).unwrap());
            }
            let track = self.log.tracks.lock().remove(&hpa).unwrap_or_default();
            facts.lives.push(life(track, &discoveries, begins, ends));
        }
        kept
    }
}

/// Groups the requests of a life by sync. A sync starts with the read of its Scale, or waits for discovery before.
fn life(track: Track, discoveries: &[(u64, u64)], begins: u64, ends: u64) -> Life {
    let Track { seen, mut exchanges, decisions } = track;
    exchanges.sort_by_key(|exchange| exchange.sent);
    let mut groups: Vec<(bool, Vec<Exchanged>)> = Vec::new();
    let mut is_refreshed = false;
    for exchange in exchanges {
        let last = groups.last_mut().and_then(|(_, group)| group.last().copied());
        match exchange.kind {
            Kind::ReadScale => groups.push((std::mem::take(&mut is_refreshed), vec![exchange])),
            // A read that does not follow a failed write of the status precedes the next sync.
            Kind::ReadHpa if last.is_none_or(|last| last.answered < exchange.sent) => is_refreshed = true,
            Kind::ReadHpa | Kind::Other => {
                groups.last_mut().unwrap().1.push(exchange);
            }
        }
    }
    // A shutdown abandons only the last sync.
    assert!(groups.len() <= decisions.len() + 1, "each sync decides");
    let sync = |((is_refreshed, group), decided): ((bool, Vec<Exchanged>), Decided)| {
        let start = group[0].sent;
        let end = group.iter().map(|exchange| exchange.answered).max().unwrap();
        let mut earliest = start;
        while let Some((sent, _)) = discoveries.iter().find(|(sent, end)| *end == earliest && sent < end) {
            earliest = *sent;
        }
        SyncFacts {
            earliest,
            start,
            decided: decided.at,
            scale: decided.ended - decided.at,
            status: end.max(decided.ended) - decided.ended,
            proposal: decided.proposal,
            replicas: decided.replicas,
            wrote: group.iter().find_map(|exchange| exchange.wrote),
            is_refreshed,
        }
    };
    Life { begins, ends, seen, syncs: groups.into_iter().zip(decisions).map(sync).collect() }
}
