//! What the API server tells of HPAs: a watch, from which every write of a status is put down with its time.
//!
//! It asks for JSON, as one watcher more beside those of the controller; what that costs the API server is the same for
//! every controller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Uri};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use tokio::task::JoinHandle;

use crate::Failure;
use crate::observed::{Micros, now};
use crate::sightings::Sightings;

const PATH: &str =
    "/apis/autoscaling/v2/horizontalpodautoscalers?watch=1&resourceVersion=0&timeoutSeconds=36000";

/// HPAs as they are watched; ends with this.
#[derive(Debug)]
pub(super) struct Follower {
    known: Arc<Mutex<Known>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) sightings: Sightings,
    hpas: BTreeMap<String, State>,
    /// Why the watch has ended.
    end: Option<String>,
}

/// An HPA, as it was last seen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct State {
    generation: i64,
    wanted: i64,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: Hpa<'a>,
}

#[derive(Deserialize)]
struct Hpa<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Metadata<'a> {
    #[serde(default)]
    name: &'a str,
    #[serde(default)]
    namespace: &'a str,
    #[serde(default)]
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(default)]
    desired_replicas: i64,
}

impl Follower {
    /// Begins to watch.
    pub(super) async fn start(url: &str, token: &str) -> Result<Self, Failure> {
        let mut config = kube::Config::new(url.parse::<Uri>()?);
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(token.to_owned().into());
        config.read_timeout = None;
        let client = Client::try_from(config)?;
        let response = client.send(Request::get(PATH).body(Body::empty())?).await?;
        if !response.status().is_success() {
            return Err(format!("the watch of HPAs: {}", response.status()).into());
        }
        let known = Arc::new(Mutex::new(Known::default()));
        let kept = Arc::clone(&known);
        let task = tokio::spawn(async move {
            let mut body = response.into_body();
            let mut buffer = Vec::new();
            let end = loop {
                match body.frame().await {
                    None => break "the API server has ended the watch of HPAs".to_owned(),
                    Some(Err(error)) => break format!("the watch of HPAs: {error}"),
                    Some(Ok(frame)) => {
                        let Some(piece) = frame.data_ref() else { continue };
                        buffer.extend_from_slice(piece);
                        if let Err(error) = lock(&kept).pieces(&mut buffer, now()) {
                            break format!("the watch of HPAs: {error}");
                        }
                    }
                }
            };
            lock(&kept).end = Some(end);
        });
        Ok(Self { known, task })
    }

    /// What is known until now; none if the watch has ended.
    pub(super) fn known(&self) -> Result<MutexGuard<'_, Known>, Failure> {
        let known = lock(&self.known);
        match &known.end {
            None => Ok(known),
            Some(end) => Err(end.clone().into()),
        }
    }

    /// How many HPAs there are.
    pub(super) fn count(&self) -> Result<usize, Failure> {
        Ok(self.known()?.hpas.len())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Known {
    /// The generation of an HPA.
    pub(super) fn generation(&self, key: &str) -> Option<i64> {
        Some(self.hpas.get(key)?.generation)
    }

    /// Takes the whole lines from a buffer.
    fn pieces(&mut self, buffer: &mut Vec<u8>, at: Micros) -> Result<(), serde_json::Error> {
        let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let whole = buffer.drain(..=end).collect::<Vec<_>>();
        for line in whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.event(line, at)?;
        }
        Ok(())
    }

    fn event(&mut self, line: &[u8], at: Micros) -> Result<(), serde_json::Error> {
        let Event { kind, object: Hpa { metadata, status } } = serde_json::from_slice(line)?;
        let key = format!("{}/{}", metadata.namespace, metadata.name);
        if kind == "DELETED" {
            self.hpas.remove(&key);
            return Ok(());
        }
        let now = State { generation: metadata.generation, wanted: status.desired_replicas };
        let before = self.hpas.insert(key.clone(), now);
        // Whatever changes an HPA without its spec is its status.
        if let Some(before) =
            before.filter(|before| kind == "MODIFIED" && before.generation == now.generation)
        {
            self.sightings.status(&key, at, || status.observed_generation);
            if before.wanted != now.wanted {
                self.sightings.scaled(&key, at);
            }
        }
        Ok(())
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// That statuses are told from changes of a spec, in whatever pieces they come.
pub(super) fn check() -> Result<(), Failure> {
    let mut known = Known::default();
    let seen = crate::observed::Seen { special: true, ..crate::observed::Seen::default() };
    known.sightings.seen.hpas.insert("team-000/web".to_owned(), seen);
    let line = |kind: &str, generation: i64, observed: i64, wanted: i64| {
        format!(
            "{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":\"web\",\"namespace\":\"team-000\",\
             \"generation\":{generation}}},\"status\":{{\"observedGeneration\":{observed},\
             \"desiredReplicas\":{wanted}}}}}}}\n"
        )
    };
    known.sightings.await_generation("team-000/web", 5, 2);
    known.sightings.await_scales(vec!["team-000/web".to_owned()]);
    let text = [
        line("ADDED", 1, 0, 0),
        line("MODIFIED", 1, 1, 3),
        line("MODIFIED", 2, 1, 3),
        line("MODIFIED", 2, 2, 3),
    ];
    let (mut buffer, mut at) = (Vec::new(), 0);
    for byte in text.concat().bytes() {
        buffer.push(byte);
        at += 1;
        known.pieces(&mut buffer, at)?;
    }
    let ends: Vec<_> = text
        .iter()
        .scan(0, |end, line| {
            *end += Micros::try_from(line.len()).unwrap_or(0);
            Some(*end)
        })
        .collect();
    let statuses = known.sightings.seen.hpas.get("team-000/web").map(|seen| seen.statuses.clone());
    let [_, first, _, second] = ends.as_slice() else { return Err("four lines have four ends".into()) };
    let decided = known.sightings.seen.spec_changes.first().and_then(|it| it.until);
    let scaled = known.sightings.seen.reactions.first().and_then(|it| it.until);
    if statuses == Some(vec![*first, *second]) && decided == Some(*second) && scaled == Some(*first) {
        Ok(())
    } else {
        Err(format!(
            "statuses at {statuses:?}, decided at {decided:?}, scaled at {scaled:?}: expected {ends:?}"
        )
        .into())
    }
}
