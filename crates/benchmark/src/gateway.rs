//! The gateway between the connections and the embedded cluster. It counts requests, delays requests if the workload
//! requires it, and applies scale writes to the world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fake_cluster::{Answer, Exchange, Link, Server};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::observations::{Micros, ObservationLog, Observations, RequestCount, now, request_title};
use crate::workload::{HOSTILE, Way};
use crate::workload::{POISONED, Workload};
use crate::world::World;

/// The gateway for the requests of all connections.
#[derive(Debug)]
pub(crate) struct Gateway {
    workload: Workload,
    world: Arc<World>,
    tally: Mutex<Tally>,
}

/// The observations until now.
#[derive(Debug, Default)]
struct Tally {
    /// Requests by User-Agent, verb and resource.
    counts: BTreeMap<(String, &'static str, String), RequestCount>,
    /// The number of requests in each second since the start of the measured time.
    seconds: BTreeMap<Micros, u64>,
    sightings: ObservationLog,
}

/// The parts of an API path. A part that the path lacks is empty.
#[derive(Debug, Default)]
struct Subject<'a> {
    group: &'a str,
    namespace: &'a str,
    resource: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl<'a> Subject<'a> {
    fn parse(path: &'a str) -> Self {
        let mut words = path.split('/').skip(1);
        let group = match words.next() {
            Some("apis") => words.next().unwrap_or(""),
            Some("api") => "",
            _ => return Self { resource: path, ..Self::default() },
        };
        let _version = words.next();
        let rest: Vec<_> = words.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let word = |index: usize| rest.get(index).copied().unwrap_or("");
        Self { group, namespace, resource: word(0), name: word(1), subresource: word(2) }
    }

    /// Returns the title, such as `deployments.apps/scale`. The title is only the group for a metrics API, and
    /// `discovery` for a path without a resource.
    fn title(&self) -> String {
        if self.resource.is_empty() {
            return "discovery".to_owned();
        }
        if self.group.ends_with("metrics.k8s.io") {
            return self.group.to_owned();
        }
        request_title(self.group, self.resource, self.subresource)
    }
}

impl Gateway {
    pub(crate) fn new(workload: &Workload, world: Arc<World>) -> Self {
        let tally = Tally { sightings: ObservationLog::new(workload, world.keys()), ..Tally::default() };
        Self { workload: workload.clone(), world, tally: Mutex::new(tally) }
    }

    /// Starts the measured time: clears the counts of requests and renewals.
    pub(crate) fn start_measuring(&self) {
        let mut tally = self.tally.lock();
        tally.counts.clear();
        tally.seconds.clear();
        tally.sightings.seen.begin = now();
        tally.sightings.seen.renewals.clear();
    }

    /// Ends the measured time, and returns all observations.
    pub(crate) fn finish(&self) -> Observations {
        let tally = self.tally.lock();
        let mut seen = tally.sightings.seen.clone();
        seen.end = now();
        seen.requests = tally.counts.values().cloned().collect();
        let seconds = (seen.end - seen.begin) / 1_000_000;
        seen.seconds = (0..seconds).map(|second| tally.seconds.get(&second).copied().unwrap_or(0)).collect();
        seen
    }

    /// Runs a function on the observations of HPAs.
    pub(crate) fn sightings<T>(&self, with: impl FnOnce(&mut ObservationLog) -> T) -> T {
        with(&mut self.tally.lock().sightings)
    }

    fn delay(&self, subject: &Subject<'_>) -> Duration {
        match subject.group {
            "external.metrics.k8s.io"
                if self.workload.hostile == Some(Way::Hanging) && subject.namespace == HOSTILE =>
            {
                Duration::MAX
            }
            "external.metrics.k8s.io" => self.workload.slowness,
            "metrics.k8s.io" if self.workload.poisoned && subject.namespace == POISONED => Duration::MAX,
            _ => Duration::ZERO,
        }
    }
}

impl Link for Gateway {
    fn carry(self: Arc<Self>, exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let arrived = now();
            let (path, body) = (exchange.path.clone(), exchange.body.clone());
            let subject = Subject::parse(&path);
            let agent = exchange.user_agent.split(' ').next().unwrap_or("").to_owned();
            let key = (agent, exchange.verb, subject.title());
            self.tally.lock().arrived(key.clone(), arrived, body.len());
            match self.delay(&subject) {
                Duration::ZERO => {}
                Duration::MAX => std::future::pending().await,
                pause => tokio::time::sleep(pause).await,
            }
            let answer = server.answer(exchange).await;
            let done = answer.code().is_some_and(|code| (200..300).contains(&code));
            self.tally.lock().answered(&key, &answer, done);
            if done && key.1 == "update" {
                match (subject.resource, subject.subresource) {
                    ("horizontalpodautoscalers", "status") => {
                        let hpa = format!("{}/{}", subject.namespace, subject.name);
                        let generation = || {
                            let body = serde_json::from_slice::<HpaBody>(&body).ok()?;
                            Some(body.status.observed_generation)
                        };
                        self.sightings(|it| it.status(&hpa, arrived, generation));
                    }
                    ("deployments", "scale") => {
                        let target = format!("{}/{}", subject.namespace, subject.name);
                        self.sightings(|it| it.scaled(&target, arrived));
                        let replicas =
                            serde_json::from_slice::<ScaleBody>(&body).map(|body| body.spec.replicas);
                        if let Ok(replicas) = replicas {
                            self.world.resize(server.cluster(), subject.namespace, subject.name, replicas);
                        }
                    }
                    ("leases", _) => self.sightings(|it| it.seen.renewals.push(now())),
                    _ => {}
                }
            }
            match answer {
                Answer::Pieces(pieces) => {
                    let counted = pieces.inspect(move |piece| {
                        if let Ok(piece) = piece {
                            self.tally.lock().sent(&key, piece.len());
                        }
                    });
                    Answer::Pieces(Box::pin(counted))
                }
                other => other,
            }
        })
    }
}

impl Tally {
    fn arrived(&mut self, key: (String, &'static str, String), at: Micros, bytes: usize) {
        let (agent, verb, resource) = key.clone();
        let counted = self.counts.entry(key).or_insert_with(|| RequestCount {
            agent,
            verb: verb.to_owned(),
            resource,
            ..RequestCount::default()
        });
        counted.count += 1;
        counted.received += length(bytes);
        *self.seconds.entry((at - self.sightings.seen.begin).div_euclid(1_000_000)).or_default() += 1;
    }

    fn answered(&mut self, key: &(String, &'static str, String), answer: &Answer, done: bool) {
        if let Some(counted) = self.counts.get_mut(key) {
            counted.failed += u64::from(!done);
            if let Answer::Whole(whole) = answer {
                counted.sent += length(whole.body.len());
            }
        }
    }

    fn sent(&mut self, key: &(String, &'static str, String), bytes: usize) {
        if let Some(counted) = self.counts.get_mut(key) {
            counted.sent += length(bytes);
        }
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[derive(Deserialize)]
struct ScaleBody {
    spec: ScaleSpec,
}

#[derive(Deserialize)]
struct ScaleSpec {
    #[serde(default)]
    replicas: usize,
}

#[derive(Deserialize)]
struct HpaBody {
    status: HpaStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HpaStatus {
    #[serde(default)]
    observed_generation: i64,
}
