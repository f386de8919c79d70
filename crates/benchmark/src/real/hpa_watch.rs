//! A watch of HPAs that records every status write with its time.
//!
//! The API server encodes each HPA as JSON for this watch, in addition to the watch of the controller. This cost is
//! equal for every controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Request, Uri};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use tokio::task::JoinHandle;

use crate::Failure;
use crate::observations::{Micros, ObservationLog, now};

/// The path of the watch, without the value of the last parameter.
const PATH: &str =
    "/apis/autoscaling/v2/horizontalpodautoscalers?watch=1&timeoutSeconds=36000&resourceVersion=";

/// A running watch of all HPAs. A drop stops the watch.
#[derive(Debug)]
pub(super) struct Follower {
    known: Arc<Mutex<WatchState>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
pub(super) struct WatchState {
    pub(super) sightings: ObservationLog,
    hpas: BTreeMap<String, State>,
    /// The last observed resourceVersion.
    version: String,
    /// The error that stopped the watch.
    end: Option<String>,
}

/// The last observed state of an HPA.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct State {
    generation: i64,
    desired: i64,
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
    #[serde(default, rename = "resourceVersion")]
    version: &'a str,
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
    pub(super) async fn start(url: &str, token: &str) -> Result<Self, Failure> {
        let mut config = kube::Config::new(url.parse::<Uri>()?);
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(token.to_owned().into());
        config.read_timeout = None;
        let client = Client::try_from(config)?;
        let known = Arc::new(Mutex::new(WatchState { version: "0".to_owned(), ..WatchState::default() }));
        let kept = Arc::clone(&known);
        let mut body = watch(&client, "0").await?;
        let task = tokio::spawn(async move {
            loop {
                if let Err(end) = Self::read_events(body, &kept).await {
                    break kept.lock().end = Some(end.to_string());
                }
                let version = kept.lock().version.clone();
                // The API server ends a watch whose client reads too slowly.
                body = match watch(&client, &version).await {
                    Ok(body) => body,
                    Err(error) => break kept.lock().end = Some(error.to_string()),
                };
            }
        });
        Ok(Self { known, task })
    }

    /// Processes the events of a watch until the API server ends it.
    async fn read_events(mut body: Body, known: &Mutex<WatchState>) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| format!("the watch of HPAs failed: {error}"))?;
            let Some(piece) = frame.data_ref() else { continue };
            buffer.extend_from_slice(piece);
            let pieces = known.lock().pieces(&mut buffer, now());
            pieces.map_err(|error| format!("the watch of HPAs failed: {error}"))?;
        }
        Ok(())
    }

    /// Returns the current state, or the error that stopped the watch.
    pub(super) fn state(&self) -> Result<MutexGuard<'_, WatchState>, Failure> {
        let known = self.known.lock();
        match &known.end {
            None => Ok(known),
            Some(end) => Err(end.clone().into()),
        }
    }

    /// Returns the number of existing HPAs.
    pub(super) fn count(&self) -> Result<usize, Failure> {
        Ok(self.state()?.hpas.len())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl WatchState {
    pub(super) fn generation(&self, key: &str) -> Option<i64> {
        Some(self.hpas.get(key)?.generation)
    }

    /// Removes all complete lines from the buffer and processes them. Each line contains one event.
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
        if kind == "ERROR" {
            return Err(serde::de::Error::custom("the API server sent an ERROR event"));
        }
        metadata.version.clone_into(&mut self.version);
        let key = format!("{}/{}", metadata.namespace, metadata.name);
        if kind == "DELETED" {
            self.hpas.remove(&key);
            return Ok(());
        }
        let now = State { generation: metadata.generation, desired: status.desired_replicas };
        let before = self.hpas.insert(key.clone(), now);
        // A status write changes no generation, in contrast to a spec change.
        if let Some(before) =
            before.filter(|before| kind == "MODIFIED" && before.generation == now.generation)
        {
            self.sightings.status(&key, at, || status.observed_generation);
            if before.desired != now.desired {
                self.sightings.scaled(&key, at);
            }
        }
        Ok(())
    }
}

/// Starts a watch from a resourceVersion. Returns the body of the response.
async fn watch(client: &Client, version: &str) -> Result<Body, Failure> {
    let response = client.send(Request::get(format!("{PATH}{version}")).body(Body::empty())?).await?;
    if response.status().is_success() {
        Ok(response.into_body())
    } else {
        Err(format!("the watch of HPAs failed: {}", response.status()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observations::HpaObservations;

    #[test]
    fn status_writes_differ_from_spec_changes_wherever_the_stream_is_split() {
        let mut known = WatchState::default();
        let seen = HpaObservations { special: true, ..HpaObservations::default() };
        known.sightings.seen.hpas.insert("team-000/web".to_owned(), seen);
        known.sightings.await_generation("team-000/web", 5, 2);
        known.sightings.await_scales(vec!["team-000/web".to_owned()]);
        let (mut buffer, mut at) = (Vec::new(), 0);
        let mut send = |kind: &str, generation: i64, observed: i64, desired: i64| {
            let line = format!(
                "{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":\"web\",\"namespace\":\"team-000\",\
                 \"generation\":{generation}}},\"status\":{{\"observedGeneration\":{observed},\
                 \"desiredReplicas\":{desired}}}}}}}\n"
            );
            for byte in line.bytes() {
                buffer.push(byte);
                at += 1;
                known.pieces(&mut buffer, at).unwrap();
            }
            at
        };
        send("ADDED", 1, 0, 0);
        let first = send("MODIFIED", 1, 1, 3);
        send("MODIFIED", 2, 1, 3);
        let second = send("MODIFIED", 2, 2, 3);
        let seen = &known.sightings.seen;
        assert_eq!(seen.hpas.get("team-000/web").unwrap().statuses, [first, second]);
        assert_eq!(seen.spec_changes.first().unwrap().until, Some(second));
        assert_eq!(seen.reactions.first().unwrap().until, Some(first));
    }
}
