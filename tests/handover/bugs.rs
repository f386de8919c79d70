//! Bugs that the schedules must find. They act on the links of a replica and in the model of the webhook, where a
//! replica could behave in the same way.

use std::time::Duration;

use bytes::Bytes;
use fake_cluster::{Answer, Exchange, Pieces};
use futures::StreamExt as _;
use serde_json::Value;

use crate::many_seeds::bugs;
use crate::rig::{LABEL, OTHER};

bugs! { PlantedBug:
    /// A replica ignores the removal of a label.
    RemovalIgnored: "removal-ignored",
    /// A replica ignores the label that excludes an HPA from its namespace.
    ExclusionIgnored: "exclusion-ignored",
    /// A refused dry run proves the guard.
    DryRunProves: "dry-run-proves",
    /// A replica refuses writes while no replica leads.
    RefusesWithoutLeader: "refuses-without-leader",
    /// The check before the end of a contest always fails, and refused writes do not count.
    ContestedForever: "contested-forever",
    /// A write is sent long after it passed the gate.
    LateWrite: "late-write",
    /// The writes of the built-in loop look like own writes.
    ForeignWritesUnseen: "foreign-writes-unseen",
    /// A standby is in charge without the Lease.
    StandbyLeads: "standby-leads",
    /// The check of the guard's objects always succeeds.
    BrokenGuardUnseen: "broken-guard-unseen",
}

/// The wait of a late write.
const LATE: Duration = Duration::from_secs(13);

impl PlantedBug {
    /// How long a write waits below the gate.
    pub(crate) fn delay(bug: Option<Self>, exchange: &Exchange) -> Duration {
        let is_late = bug == Some(Self::LateWrite) && exchange.verb == "update";
        if is_late && exchange.path.ends_with("/scale") { LATE } else { Duration::ZERO }
    }

    /// Whether a refused write of the built-in loop does not count, like a refused dry run.
    pub(crate) fn proves_nothing(bug: Option<Self>) -> bool {
        bug == Some(Self::ContestedForever)
    }

    /// Whether the server's response to a request of a replica is an error.
    pub(crate) fn fails(bug: Option<Self>, exchange: &Exchange) -> bool {
        // A replica reads one HPA by a list, because its role permits no GET.
        let is_hpa = exchange.path.ends_with("/horizontalpodautoscalers")
            && exchange.verb == "list"
            && exchange.query.contains("fieldSelector=metadata.name");
        bug == Some(Self::ContestedForever) && is_hpa
    }

    /// Changes the response to a request of a replica.
    pub(crate) fn alter(bug: Option<Self>, exchange: &Exchange, answer: Answer) -> Answer {
        let Some(bug) = bug.filter(|bug| bug.alters_hpas()) else { return answer };
        if !exchange.path.ends_with("/horizontalpodautoscalers") {
            return answer;
        }
        match answer {
            Answer::Pieces(pieces) => Answer::Pieces(bug.lines(pieces)),
            Answer::Whole(whole) if whole.code == 200 => {
                let Ok(mut list) = serde_json::from_slice::<Value>(&whole.body) else {
                    return Answer::Whole(whole);
                };
                for item in list["items"].as_array_mut().into_iter().flatten() {
                    bug.object(item);
                }
                Answer::json(200, list.to_string())
            }
            answer => answer,
        }
    }

    fn alters_hpas(self) -> bool {
        matches!(self, Self::RemovalIgnored | Self::ExclusionIgnored | Self::ForeignWritesUnseen)
    }

    /// Changes an HPA. Returns whether the replica receives the event.
    fn object(self, object: &mut Value) -> bool {
        match self {
            Self::RemovalIgnored => !object["metadata"]["labels"][LABEL].is_null(),
            Self::ExclusionIgnored => {
                if object["metadata"]["labels"][LABEL] == "built-in" {
                    object["metadata"]["labels"] = Value::Object(serde_json::Map::new());
                }
                true
            }
            _ => {
                for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
                    if entry["manager"] == OTHER {
                        entry["manager"] = "concertina".into();
                    }
                }
                true
            }
        }
    }

    /// Changes the events of a watch.
    fn lines(self, pieces: Pieces) -> Pieces {
        Box::pin(pieces.map(move |piece| {
            let piece = piece?;
            let mut altered = Vec::new();
            for line in piece.split_inclusive(|byte| *byte == b'\n') {
                let Ok(mut event) = serde_json::from_slice::<Value>(line) else {
                    altered.extend_from_slice(line);
                    continue;
                };
                if event["type"] != "MODIFIED" || self.object(&mut event["object"]) {
                    altered.extend_from_slice(format!("{event}\n").as_bytes());
                }
            }
            Ok(Bytes::from(altered))
        }))
    }
}
