//! The writes of the audit log about one HPA or its target, by writer.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::audit::AUTOSCALER;
use crate::fixture::Fixture;
use crate::outcome::{Failure, Outcome, ensure, eventually};
use crate::world::SOON;

/// The accounts of the replicas.
const REPLICAS: &str = "system:serviceaccount:replicas:";

/// The writer of the status or the scale of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Writer {
    BuiltIn,
    /// The name of the replica's account.
    Replica(String),
}

impl Writer {
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Replica(_))
    }
}

/// The successful and the refused writes, by time.
pub(crate) struct Log {
    pub(crate) writes: Vec<(Timestamp, Writer)>,
    /// Refused writes of the built-in controller.
    pub(crate) refused: Vec<Timestamp>,
    /// Refused events of the built-in controller about the HPA.
    pub(crate) refused_events: usize,
}

/// What happened in a time in which one writer was expected.
pub(crate) struct Figures {
    pub(crate) title: String,
    /// Writes by the other side.
    pub(crate) double_writes: usize,
    /// The longest time between two successive writes by any writer.
    pub(crate) longest_gap: Duration,
    /// Number of writes.
    pub(crate) writes: usize,
    pub(crate) refused: usize,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, double_writes, longest_gap, writes, refused } = self;
        let gap = longest_gap.as_secs_f32();
        write!(
            f,
            "    {title}: {double_writes} double writes, at most {gap:.1} s without a writer \
             ({writes} writes, {refused} refused)"
        )
    }
}

impl Log {
    /// Reads the writes of the status or the scale of `name` in `namespace`.
    pub(crate) fn read(stage: &Fixture, namespace: &str, name: &str) -> Outcome<Self> {
        let mut log = Self { writes: Vec::new(), refused: Vec::new(), refused_events: 0 };
        for entry in stage.plane.audit_log()?.lines() {
            // The last line may be incomplete while the API server writes it.
            let Ok(entry) = serde_json::from_str::<Value>(entry) else { continue };
            let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let is_about = text("/objectRef/namespace") == namespace && text("/objectRef/name") == name;
            let is_event = text("/objectRef/namespace") == namespace
                && text("/objectRef/resource") == "events"
                && text("/objectRef/name").split_once('.').is_some_and(|(about, _)| about == name);
            let is_refused = entry.pointer("/responseStatus/code").and_then(Value::as_i64) == Some(403);
            if is_event && is_refused && text("/user/username") == AUTOSCALER {
                log.refused_events += 1;
            }
            let is_autoscaling = matches!(text("/objectRef/subresource"), "status" | "scale");
            if !is_about || text("/verb") != "update" || !is_autoscaling {
                continue;
            }
            let writer = match text("/user/username") {
                AUTOSCALER => Writer::BuiltIn,
                user => match user.strip_prefix(REPLICAS) {
                    Some(replica) => Writer::Replica(replica.to_owned()),
                    None => continue,
                },
            };
            let at = text("/requestReceivedTimestamp").parse()?;
            match entry.pointer("/responseStatus/code").and_then(Value::as_i64) {
                Some(200..=299) => log.writes.push((at, writer)),
                Some(403) if writer == Writer::BuiltIn => log.refused.push(at),
                _ => {}
            }
        }
        log.writes.sort_by_key(|(at, _)| *at);
        log.refused.sort();
        Ok(log)
    }

    /// The writes of one side after a time.
    pub(crate) fn by(&self, ours: bool, after: Timestamp) -> Vec<Timestamp> {
        let same = self.writes.iter().filter(|(at, writer)| *at > after && writer.is_ours() == ours);
        same.map(|(at, _)| *at).collect()
    }

    /// The last writer.
    pub(crate) fn last(&self) -> Option<&Writer> {
        self.writes.last().map(|(_, writer)| writer)
    }

    /// The figures of a time in which `ours` is the side that may write. The gap starts with the last write before
    /// `from` and ends at the latest at `to`.
    pub(crate) fn figures(&self, title: &str, ours: bool, from: Timestamp, to: Timestamp) -> Figures {
        let within: Vec<_> = self.writes.iter().filter(|(at, _)| *at >= from && *at <= to).collect();
        let before = self.writes.iter().rev().find(|(at, _)| *at < from).map_or(from, |(at, _)| *at);
        let mut last = before;
        let mut longest_gap = Duration::ZERO;
        for at in within.iter().map(|(at, _)| *at).chain([to]) {
            longest_gap = longest_gap.max(at.duration_since(last).unsigned_abs());
            last = at;
        }
        Figures {
            title: title.to_owned(),
            double_writes: within.iter().filter(|(_, writer)| writer.is_ours() != ours).count(),
            longest_gap,
            writes: within.len(),
            refused: self.refused.iter().filter(|at| **at >= from && **at <= to).count(),
        }
    }

    /// Number of times that one replica follows another one.
    pub(crate) fn changes_of_the_replica(&self, from: Timestamp) -> usize {
        let replicas: Vec<_> =
            self.writes.iter().filter(|(at, writer)| *at >= from && writer.is_ours()).collect();
        replicas.windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
    }
}

/// Waits for the first write of one side after a time.
pub(crate) async fn first_write(
    stage: &Fixture,
    ours: bool,
    (namespace, name): (&str, &str),
    after: Timestamp,
) -> Outcome<Timestamp> {
    let side = if ours { "Concertina" } else { "the built-in controller" };
    eventually(SOON, &format!("{side} writes {name}"), async || {
        let writes = Log::read(stage, namespace, name)?.by(ours, after);
        writes.first().copied().ok_or_else(|| Failure("no write".to_owned()))
    })
    .await
}

/// Fails unless there are no double writes and no longer gap.
pub(crate) fn judge(figures: &Figures, longest_gap: Duration) -> Outcome {
    eprintln!("{figures}");
    ensure(figures.double_writes == 0 && figures.longest_gap <= longest_gap, || {
        format!("{figures}; allowed: 0 double writes, {longest_gap:?} without a writer")
    })
}
