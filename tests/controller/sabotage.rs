//! Whether the tests of what survives a restart would notice: each saboteur between the processes and the cluster must make
//! a property fail that holds without it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use concertina::cli::Config;
use concertina::cli::config::{HistoryCheckpoint, TakeOver};
use concertina::embedded::{Answer, Exchange, Link, Server};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::support::Stage;
use crate::support::objects::{external, hpa};
use crate::support::process::Process;

/// What is wrong on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saboteur {
    /// Nothing.
    Nobody,
    /// Writes of ConfigMaps are answered and not done.
    WritesAreSwallowed,
    /// ConfigMaps hold what was written first.
    OldOnesAnswer,
    /// ConfigMaps hold nothing.
    MapsAreEmpty,
    /// All ConfigMaps are the last one.
    AnotherMapAnswers,
    /// There are no events.
    EventsAreHidden,
    /// No HPA was ever scaled, as its status tells.
    TimesAreHidden,
}

#[derive(Debug)]
struct Way {
    saboteur: Saboteur,
    /// What was written first, by the name of its ConfigMap.
    first: Mutex<BTreeMap<String, Value>>,
}

impl Link for Way {
    fn carry(self: Arc<Self>, mut exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let name = exchange.path.split_once("/configmaps/").map(|(_, name)| name.to_owned());
            let is_write = exchange.path.contains("/configmaps") && exchange.verb != "get";
            match (self.saboteur, name) {
                (Saboteur::WritesAreSwallowed, _) if is_write => {
                    let mut map: Value = serde_json::from_slice(&exchange.body).unwrap();
                    map["metadata"]["resourceVersion"] = "1".into();
                    Answer::json(200, map.to_string())
                }
                (Saboteur::OldOnesAnswer, _) if is_write => {
                    let map: Value = serde_json::from_slice(&exchange.body).unwrap();
                    let name = map["metadata"]["name"].as_str().unwrap().to_owned();
                    self.first.lock().unwrap().entry(name).or_insert_with(|| map["binaryData"].clone());
                    server.answer(exchange).await
                }
                (Saboteur::OldOnesAnswer, Some(name)) => {
                    let first = self.first.lock().unwrap().get(&name).cloned();
                    altered(server.answer(exchange).await, |map| map["binaryData"] = first.into())
                }
                (Saboteur::MapsAreEmpty, Some(_)) => {
                    altered(server.answer(exchange).await, |map| map["binaryData"] = Value::Null)
                }
                (Saboteur::AnotherMapAnswers, Some(name)) if !is_write => {
                    let last = HistoryCheckpoint::default().names().last().unwrap();
                    exchange.path = exchange.path.replace(&name, &last);
                    server.answer(exchange).await
                }
                (Saboteur::EventsAreHidden, _)
                    if exchange.verb == "list" && exchange.path.ends_with("/events") =>
                {
                    altered(server.answer(exchange).await, |list| list["items"] = json!([]))
                }
                (Saboteur::TimesAreHidden, _) if exchange.path.contains("/horizontalpodautoscalers") => {
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

/// An object as it does not stand in the cluster.
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

/// A watch event without `lastScaleTime`. They come in whole lines.
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

/// A world with two replicas, a load, and a saboteur before every process.
struct World {
    stage: Stage,
    way: Arc<Way>,
    config: Config,
}

impl World {
    /// `most`: how many pods may come within five minutes.
    fn new(saboteur: Saboteur, most: i32, load: &str, checkpoint: bool) -> Self {
        let stage = Stage::new();
        stage.target("web", 2);
        stage.external("queue", load);
        let mut hpa = hpa("web", &[external("queue", "10")]);
        hpa["spec"]["behavior"] = json!({
            "scaleUp": {"policies": [{"type": "Pods", "value": most, "periodSeconds": 300}]},
            "scaleDown": {"stabilizationWindowSeconds": 300},
        });
        stage.create(hpa);
        let way = Arc::new(Way { saboteur, first: Mutex::default() });
        let config = Config {
            takeover: TakeOver::Off,
            history_checkpoint: checkpoint.then(HistoryCheckpoint::default),
            ..Config::default()
        };
        Self { stage, way, config }
    }

    fn start(&self, identity: &str) -> Process {
        Process::start_behind(&self.stage, identity, self.config.clone(), Some(Arc::clone(&self.way) as _))
    }

    /// Lets time pass until this second since the beginning; the count then.
    async fn at(&self, second: u32) -> i64 {
        self.stage.pass(f64::from(second) - self.stage.now().as_secs_f64()).await;
        self.stage.replicas("web")
    }
}

/// A window that began before a restart ends when it would have ended without it.
async fn windows_go_on(saboteur: Saboteur) -> bool {
    let world = World::new(saboteur, 2, "80", true);
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

/// What a process did that crashed counts for the next one.
async fn rates_hold(saboteur: Saboteur) -> bool {
    let world = World::new(saboteur, 2, "80", false);
    let process = world.start("first");
    assert_eq!(world.at(60).await, 4);
    process.cut_off();
    let process = world.start("second");
    let before = world.at(295).await;
    assert!(world.at(330).await > 4, "it does scale");
    process.end().await;
    before == 4
}

/// Of a change that an event tells no more is taken from a rate than it was.
async fn events_are_believed(saboteur: Saboteur) -> bool {
    let world = World::new(saboteur, 4, "30", false);
    let process = world.start("first");
    assert_eq!(world.at(5).await, 3);
    world.stage.external("queue", "40");
    assert_eq!(world.at(20).await, 4);
    process.end().await;
    world.stage.external("queue", "80");
    let process = world.start("second");
    // How it came to three is not known, that it came from there to four is.
    let (before, after) = (world.at(295).await, world.at(313).await);
    assert_eq!(world.at(340).await, 8);
    process.end().await;
    (before, after) == (4, 7)
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_not_written_or_not_read_is_noticed() {
    assert!(windows_go_on(Saboteur::Nobody).await);
    for saboteur in [
        Saboteur::WritesAreSwallowed,
        Saboteur::OldOnesAnswer,
        Saboteur::MapsAreEmpty,
        Saboteur::AnotherMapAnswers,
    ] {
        assert!(!windows_go_on(saboteur).await, "{saboteur:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_not_looked_at_is_noticed() {
    assert!(rates_hold(Saboteur::Nobody).await);
    assert!(rates_hold(Saboteur::EventsAreHidden).await, "the status alone is enough");
    assert!(!rates_hold(Saboteur::TimesAreHidden).await);
}

#[tokio::test(start_paused = true)]
async fn events_that_are_not_looked_at_are_noticed() {
    assert!(events_are_believed(Saboteur::Nobody).await);
    for saboteur in [Saboteur::EventsAreHidden, Saboteur::TimesAreHidden] {
        assert!(!events_are_believed(saboteur).await, "{saboteur:?}");
    }
}
