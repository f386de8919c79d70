//! Checks the tests of state that survives a restart. Each fault between the processes and the cluster must break a
//! property that holds without the fault.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fake_cluster::{Answer, Exchange, Link, Server};
use flags::Config;
use flags::config::TakeOver;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use journal::history::checkpoint::CheckpointPlace;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Process};

/// A fault between the processes and the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InjectedFault {
    /// No fault.
    Inactive,
    /// Writes of ConfigMaps are confirmed and dropped.
    WritesAreDropped,
    /// Reads of ConfigMaps return the first write.
    ReadsAreStale,
    /// Reads of ConfigMaps return no data.
    MapsAreEmpty,
    /// Reads of every ConfigMap return the ConfigMap with the last name.
    MapsAreSwapped,
    /// Lists of events are empty.
    EventsAreHidden,
    /// Statuses have no `lastScaleTime`.
    TimesAreHidden,
}

#[derive(Debug)]
struct FaultyLink {
    fault: InjectedFault,
    /// The first write of each ConfigMap, by its name.
    first: Mutex<BTreeMap<String, Value>>,
}

impl Link for FaultyLink {
    fn carry(self: Arc<Self>, mut exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let name = exchange.path.split_once("/configmaps/").map(|(_, name)| name.to_owned());
            let is_write = exchange.path.contains("/configmaps") && exchange.verb != "get";
            match (self.fault, name) {
                (InjectedFault::WritesAreDropped, _) if is_write => {
                    let mut map: Value = serde_json::from_slice(&exchange.body).unwrap();
                    map["metadata"]["resourceVersion"] = "1".into();
                    Answer::json(200, map.to_string())
                }
                (InjectedFault::ReadsAreStale, _) if is_write => {
                    let map: Value = serde_json::from_slice(&exchange.body).unwrap();
                    let name = map["metadata"]["name"].as_str().unwrap().to_owned();
                    self.first.lock().entry(name).or_insert_with(|| map["binaryData"].clone());
                    server.answer(exchange).await
                }
                (InjectedFault::ReadsAreStale, Some(name)) => {
                    let first = self.first.lock().get(&name).cloned();
                    altered(server.answer(exchange).await, |map| map["binaryData"] = first.into())
                }
                (InjectedFault::MapsAreEmpty, Some(_)) => {
                    altered(server.answer(exchange).await, |map| map["binaryData"] = Value::Null)
                }
                (InjectedFault::MapsAreSwapped, Some(name)) if !is_write => {
                    let last = CheckpointPlace::default().names().last().unwrap();
                    exchange.path = exchange.path.replace(&name, &last);
                    server.answer(exchange).await
                }
                (InjectedFault::EventsAreHidden, _)
                    if exchange.verb == "list" && exchange.path.ends_with("/events") =>
                {
                    altered(server.answer(exchange).await, |list| list["items"] = json!([]))
                }
                (InjectedFault::TimesAreHidden, _) if exchange.path.contains("/horizontalpodautoscalers") => {
                    match server.answer(exchange).await {
                        Answer::Pieces(pieces) => Answer::Pieces(Box::pin(pieces.map(|piece| {
                            let lines = piece?;
                            let lines = lines.split_inclusive(|byte| *byte == b'\n');
                            Ok(lines.flat_map(untimed).collect::<Bytes>())
                        }))),
                        answer => altered(answer, hide),
                    }
                }
                _ => server.answer(exchange).await,
            }
        })
    }
}

/// Alters the object of a successful response.
fn altered(answer: Answer, alter: impl FnOnce(&mut Value)) -> Answer {
    match answer {
        Answer::Whole(whole) if whole.code == 200 => {
            let mut body = serde_json::from_slice(&whole.body).unwrap();
            alter(&mut body);
            Answer::json(200, body.to_string())
        }
        answer => answer,
    }
}

/// Removes `lastScaleTime` from a watch event. Events come in whole lines.
fn untimed(line: &[u8]) -> Vec<u8> {
    let mut event: Value = serde_json::from_slice(line).unwrap();
    hide(&mut event["object"]);
    format!("{event}\n").into_bytes()
}

fn hide(object: &mut Value) {
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("lastScaleTime");
    }
    object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(hide);
}

/// A cluster with a target of two replicas, a load, and a fault between every process and the API server.
struct World {
    stage: Fixture,
    link: Arc<FaultyLink>,
    config: Config,
}

impl World {
    /// Creates a world. `most` is the maximum number of pods to add within five minutes.
    fn new(fault: InjectedFault, most: i32, load: &str, checkpoint: bool) -> Self {
        let stage = Fixture::new();
        stage.target("web", 2);
        stage.external("queue", load);
        let mut hpa = hpa("web", &[external("queue", "10")]);
        hpa["spec"]["behavior"] = json!({
            "scaleUp": {"policies": [{"type": "Pods", "value": most, "periodSeconds": 300}]},
            "scaleDown": {"stabilizationWindowSeconds": 300},
        });
        stage.create(hpa);
        let link = Arc::new(FaultyLink { fault, first: Mutex::default() });
        let config = Config {
            takeover: TakeOver::Off,
            history_checkpoint: checkpoint.then(CheckpointPlace::default),
            ..Config::default()
        };
        Self { stage, link, config }
    }

    fn start(&self, identity: &str) -> Process {
        Process::start_behind(&self.stage, identity, self.config.clone(), Some(Arc::clone(&self.link) as _))
    }

    /// Waits until `second` seconds after the start of the test. Returns the count.
    async fn at(&self, second: u32) -> i64 {
        self.stage.pass(f64::from(second) - self.stage.now().as_secs_f64()).await;
        self.stage.replicas("web")
    }
}

/// Whether a window that started before a restart ends at the same time as without the restart.
async fn windows_survive_a_restart(fault: InjectedFault) -> bool {
    let world = World::new(fault, 2, "80", true);
    let process = world.start("first");
    for (second, load) in [(20, "20"), (200, "80"), (230, "20")] {
        assert_eq!(world.at(second).await, 4);
        world.stage.external("queue", load);
    }
    assert_eq!(world.at(260).await, 4);
    process.end().await;
    let process = world.start("second");
    let (before, after) = (world.at(500).await, world.at(550).await);
    process.end().await;
    before == 4 && after < 4
}

/// Whether rescales of a crashed process count for the next process.
async fn rates_survive_a_crash(fault: InjectedFault) -> bool {
    let world = World::new(fault, 2, "80", false);
    let process = world.start("first");
    assert_eq!(world.at(60).await, 4);
    process.cut_off();
    let process = world.start("second");
    let before = world.at(295).await;
    assert!(world.at(330).await > 4, "the target scales");
    process.end().await;
    before == 4
}

/// Whether a rescale that an event reports reduces the allowance of a rate policy by its exact size.
async fn events_reduce_the_rate_exactly(fault: InjectedFault) -> bool {
    let world = World::new(fault, 4, "30", false);
    let process = world.start("first");
    assert_eq!(world.at(5).await, 3);
    world.stage.external("queue", "40");
    assert_eq!(world.at(20).await, 4);
    process.end().await;
    world.stage.external("queue", "80");
    let process = world.start("second");
    // The next process can determine the size of the rescale from 3 to 4, but not that of the rescale to 3.
    let (before, after) = (world.at(295).await, world.at(313).await);
    assert_eq!(world.at(340).await, 8);
    process.end().await;
    (before, after) == (4, 7)
}

#[tokio::test(start_paused = true)]
async fn tests_detect_an_unwritten_or_unread_checkpoint() {
    assert!(windows_survive_a_restart(InjectedFault::Inactive).await);
    for fault in [
        InjectedFault::WritesAreDropped,
        InjectedFault::ReadsAreStale,
        InjectedFault::MapsAreEmpty,
        InjectedFault::MapsAreSwapped,
    ] {
        assert!(!windows_survive_a_restart(fault).await, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tests_detect_an_ignored_status() {
    assert!(rates_survive_a_crash(InjectedFault::Inactive).await);
    assert!(rates_survive_a_crash(InjectedFault::EventsAreHidden).await, "the status suffices");
    assert!(!rates_survive_a_crash(InjectedFault::TimesAreHidden).await);
}

#[tokio::test(start_paused = true)]
async fn tests_detect_ignored_events() {
    assert!(events_reduce_the_rate_exactly(InjectedFault::Inactive).await);
    for fault in [InjectedFault::EventsAreHidden, InjectedFault::TimesAreHidden] {
        assert!(!events_reduce_the_rate_exactly(fault).await, "{fault:?}");
    }
}
