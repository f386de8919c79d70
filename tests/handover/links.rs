//! The connections of the replicas and of the built-in loop to the cluster. They add latency, write the journal, and
//! consult the model of the webhook. Planted bugs, which the schedules must find, change the exchange on these
//! connections so that a correct replica acts like an incorrect one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fake_cluster::{Answer, Exchange, Link, Server, Status};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use crate::guard::{Admission, BUILT_IN, Guard, wait};
use crate::invariants::{Fact, Journal, Writer};
use crate::many_seeds::{bugs, change_objects};
use crate::plan::NAMES;
use crate::rig::{LABEL, OTHER};

/// The connection of a replica.
#[derive(Debug)]
pub(crate) struct ReplicaLink {
    pub(crate) number: usize,
    pub(crate) journal: Arc<Journal>,
    pub(crate) watch_delay: Duration,
    pub(crate) request: Duration,
    pub(crate) bug: Option<PlantedBug>,
}

/// The connection of the built-in loop.
#[derive(Debug)]
pub(crate) struct LoopLink {
    pub(crate) journal: Arc<Journal>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) request: Duration,
    pub(crate) unreached: Duration,
    /// The number of the API server to which the loop is connected.
    pub(crate) server: AtomicUsize,
    /// Whether the loop writes as the user that the webhook configuration names.
    pub(crate) is_known: AtomicBool,
    /// True until a standby must have acquired an expired Lease.
    pub(crate) is_led: AtomicBool,
    pub(crate) bug: Option<PlantedBug>,
}

impl Link for ReplicaLink {
    fn carry(self: Arc<Self>, exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let late = PlantedBug::delay(self.bug, &exchange);
            if late.is_zero() {
                return self.send(exchange, server).await;
            }
            // The write is sent even if the replica drops the request.
            let sent = async move {
                sleep(late).await;
                self.send(exchange, server).await
            };
            tokio::spawn(sent).await.unwrap_or(Answer::Broken)
        })
    }
}

impl ReplicaLink {
    async fn send(self: Arc<Self>, exchange: Exchange, server: Server) -> Answer {
        if PlantedBug::fails(self.bug, &exchange) {
            return Status::new(500, "InternalError", "planted").into();
        }
        let sent = self.journal.now();
        pause(self.request / 2).await;
        let answer = server.answer(exchange.clone()).await;
        if answer.code() == Some(200) {
            self.journal.wrote(&exchange, Writer::Own(self.number), sent);
        }
        pause(self.request / 2).await;
        let answer = PlantedBug::alter(self.bug, &exchange, answer);
        match answer {
            Answer::Pieces(pieces) if !self.watch_delay.is_zero() => {
                let delay = self.watch_delay;
                // All events have the same delay, so they keep their order.
                let late = pieces.map(move |piece| {
                    let at = Instant::now() + delay;
                    async move {
                        sleep_until(at).await;
                        piece
                    }
                });
                Answer::Pieces(Box::pin(late.buffered(64)))
            }
            answer => answer,
        }
    }
}

impl Link for LoopLink {
    fn carry(self: Arc<Self>, exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            if matches!(exchange.verb, "get" | "list" | "watch") {
                return server.answer(exchange).await;
            }
            let sent = self.journal.now();
            pause(self.request / 2).await;
            let user = if self.is_known.load(Ordering::Relaxed) { BUILT_IN } else { "system:new-loop" };
            let (server_number, proves_nothing) =
                (self.server.load(Ordering::Relaxed), PlantedBug::proves_nothing(self.bug));
            let admission = self.guard.admit(server_number, user, &exchange, proves_nothing);
            pause(wait(admission, self.unreached)).await;
            if admission == Admission::Refused {
                if let Some(hpa) = subject(&exchange).or_else(|| event_subject(&exchange)) {
                    self.journal.add(Fact::Refused { hpa, is_led: self.is_led.load(Ordering::Relaxed) });
                }
                pause(self.request / 2).await;
                let message = "admission webhook \"status.handover.concertina.dev\" denied the request";
                return Status::new(403, "Forbidden", message).into();
            }
            let answer = server.answer(exchange.clone()).await;
            if answer.code() == Some(200) {
                self.journal.wrote(&exchange, Writer::BuiltIn, sent);
            }
            pause(self.request / 2).await;
            answer
        })
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

impl Journal {
    /// Records a successful request if it writes a Scale or a status.
    fn wrote(&self, exchange: &Exchange, writer: Writer, sent: Duration) {
        if let Some(hpa) = subject(exchange) {
            let is_status = exchange.path.ends_with("/status");
            self.add(Fact::Wrote { hpa, writer, is_status, sent });
        }
    }
}

/// The number of the HPA whose Scale or status a request writes. Targets have the names of their HPAs.
fn subject(exchange: &Exchange) -> Option<usize> {
    if exchange.verb != "update" {
        return None;
    }
    let path = exchange.path.strip_suffix("/scale").or_else(|| exchange.path.strip_suffix("/status"))?;
    let (_, name) = path.rsplit_once('/')?;
    NAMES.iter().position(|known| *known == name)
}

/// The number of the HPA that a new event is about. A refused event proves the guard like any other write.
fn event_subject(exchange: &Exchange) -> Option<usize> {
    let event: Value = serde_json::from_slice(&exchange.body).ok()?;
    let about = event.get("involvedObject").or_else(|| event.get("regarding"))?;
    NAMES.iter().position(|known| about["name"] == *known)
}

bugs! { PlantedBug:
    /// A replica ignores the removal of a label.
    RemovalIgnored: "removal-ignored",
    /// A replica ignores the label that excludes an HPA from its namespace.
    ExclusionIgnored: "exclusion-ignored",
    /// A refused dry run proves the guard.
    DryRunProves: "dry-run-proves",
    /// A replica refuses writes while no replica leads.
    RefusesWithoutLeader: "refuses-without-leader",
    /// The check before the end of a contest always fails, and refused writes do not prove the guard.
    ContestedForever: "contested-forever",
    /// A write is sent long after it has passed the gate.
    LateWrite: "late-write",
    /// The writes of the built-in loop appear as writes of this controller.
    ForeignWritesUnseen: "foreign-writes-unseen",
    /// A standby is in charge without the Lease.
    StandbyLeads: "standby-leads",
    /// The check of the guard's objects always succeeds.
    BrokenGuardUnseen: "broken-guard-unseen",
}

/// Delay of a write with [`PlantedBug::LateWrite`].
const LATE: Duration = Duration::from_secs(13);

impl PlantedBug {
    /// The time that a write waits after it has passed the gate.
    pub(crate) fn delay(bug: Option<Self>, exchange: &Exchange) -> Duration {
        let is_late = bug == Some(Self::LateWrite) && exchange.verb == "update";
        if is_late && exchange.path.ends_with("/scale") { LATE } else { Duration::ZERO }
    }

    /// Whether the built-in loop sends its writes as dry runs, so that a refusal proves nothing.
    pub(crate) fn proves_nothing(bug: Option<Self>) -> bool {
        bug == Some(Self::ContestedForever)
    }

    /// Whether a request of a replica fails.
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
        change_objects(answer, move |kind, object| !matches!(kind, "LIST" | "MODIFIED") || bug.object(object))
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
}
