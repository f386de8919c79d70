//! Event correlation as in client-go. Similar events are combined, equal events are counted, and floods are dropped.
//!
//! The time is an argument. The order of the steps is that of client-go: combine, count, drop. Messages are stored as
//! digests, so that memory does not depend on their length.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::event::{EventIntent, EventKind};
use jiff::Timestamp;

use super::EventTarget;
use crate::cache::Lru;

/// Maximum number of entries of each of the three steps.
pub(super) const CACHE: usize = 4096;
/// The number of different messages per object, type and reason at which further messages are combined into one event.
const MAX_SIMILAR: usize = 10;
/// Maximum time between similar messages. After a longer pause, the count of different messages restarts.
const SIMILAR_FOR: Duration = Duration::from_mins(10);
/// Maximum burst of events per object and type.
const BURST: f64 = 25.0;
/// The interval at which one more event per object and type is permitted, in seconds.
const REFILL: f64 = 300.0;

/// The correlation state of one event source.
#[derive(Debug)]
pub struct Correlator {
    similar: Lru<GroupKey, SimilarEvents>,
    counts: Lru<(GroupKey, Option<Digest>), RepeatedEvent>,
    buckets: Lru<(ObjectKey, EventKind), Bucket>,
}

/// The result of correlation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Send nothing, because the object has too many events of this type.
    Drop,
    /// Create an event.
    Create(Correlated),
    /// Update the existing event of the same name.
    Update(Correlated),
}

/// The fields of an event in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correlated {
    /// `metadata.name`.
    pub name: String,
    /// `count`.
    pub count: i32,
    /// `firstTimestamp`.
    pub first: Timestamp,
    /// `lastTimestamp`.
    pub last: Timestamp,
    /// `message`.
    pub message: String,
    /// Whether the event combines several similar events.
    pub combined: bool,
}

/// The identity of the object of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectKey {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
}

/// The object, type and reason of an event. Events with equal keys are similar.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    object: ObjectKey,
    kind: EventKind,
    reason: &'static str,
}

/// The digest of a message. Events with equal digests and equal keys are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Digest(u64);

impl Digest {
    fn new(message: &str) -> Self {
        // The hasher has fixed keys, so that correlation is reproducible.
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        Self(hasher.finish())
    }
}

#[derive(Debug)]
struct SimilarEvents {
    messages: BTreeSet<Digest>,
    last: Timestamp,
}

#[derive(Debug)]
struct RepeatedEvent {
    name: String,
    count: i32,
    first: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Timestamp,
}

impl Default for Correlator {
    fn default() -> Self {
        Self { similar: Lru::new(CACHE), counts: Lru::new(CACHE), buckets: Lru::new(CACHE) }
    }
}

impl Correlator {
    /// Correlates an event at time `now`. `name` creates the name of a new event.
    pub fn correlate(
        &mut self,
        target: &EventTarget,
        intent: &EventIntent,
        now: Timestamp,
        name: impl FnOnce() -> String,
    ) -> Verdict {
        let object = target.object();
        let group = GroupKey { object: object.clone(), kind: intent.kind, reason: intent.reason };

        let similar = self
            .similar
            .get_or_insert_with(&group, || SimilarEvents { messages: BTreeSet::new(), last: now });
        if seconds_between(similar.last, now) > SIMILAR_FOR.as_secs_f64() {
            similar.messages.clear();
        }
        let digest = Digest::new(&intent.message);
        similar.messages.insert(digest);
        similar.last = now;
        let (identity, message) = if similar.messages.len() < MAX_SIMILAR {
            (Some(digest), intent.message.clone())
        } else {
            // client-go drops an arbitrary message of the set. Dropping the newest message keeps the counts of all
            // others.
            similar.messages.remove(&digest);
            (None, format!("(combined from similar events): {}", intent.message))
        };

        let counted = self.counts.get_or_insert_with(&(group, identity), || RepeatedEvent {
            name: String::new(),
            count: 0,
            first: now,
        });
        let new = counted.count == 0;
        if new {
            counted.name = name();
        }
        counted.count = counted.count.saturating_add(1);
        let event = Correlated {
            name: counted.name.clone(),
            count: counted.count,
            first: counted.first,
            last: now,
            message,
            combined: identity.is_none(),
        };

        let bucket =
            self.buckets.get_or_insert_with(&(object, intent.kind), || Bucket { tokens: BURST, at: now });
        if !bucket.take(now) {
            return Verdict::Drop;
        }
        if new { Verdict::Create(event) } else { Verdict::Update(event) }
    }

    /// Removes the entries of a deleted object.
    pub(super) fn forget(&mut self, object: &ObjectKey) {
        // The ranges to remove start at the lowest possible key of the object.
        let kind = EventKind::Normal;
        let group = GroupKey { object: object.clone(), kind, reason: "" };
        self.similar.remove_from(&group, |group| group.object == *object);
        self.counts.remove_from(&(group, None), |(group, _)| group.object == *object);
        self.buckets.remove_from(&(object.clone(), kind), |(key, _)| key == object);
    }

    /// Returns the number of entries in all three steps.
    pub(super) fn len(&self) -> usize {
        self.similar.len() + self.counts.len() + self.buckets.len()
    }
}

impl Bucket {
    fn take(&mut self, now: Timestamp) -> bool {
        let refilled = seconds_between(self.at, now).max(0.0) / REFILL;
        self.tokens = (self.tokens + refilled).min(BURST);
        self.at = self.at.max(now);
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.duration_since(earlier).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use serde_json::Value;

    use super::*;

    /// Returns a reason of the test table as a static string.
    fn reason(text: &str) -> &'static str {
        ["FailedGetResourceMetric", "FailedComputeMetricsReplicas", "SuccessfulRescale", "FailedGetScale"]
            .into_iter()
            .find(|reason| *reason == text)
            .unwrap_or_else(|| panic!("unknown reason in the table: {text}"))
    }

    #[test]
    fn every_row_of_the_table_is_correlated_as_in_client_go() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance/tables/event-correlation.jsonl.gz");
        let table = BufReader::new(flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()));
        let start = Timestamp::from_second(1_700_000_000).unwrap();
        let mut rows = 0;
        for line in table.lines() {
            let sequence: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let mut correlator = Correlator::default();
            for (n, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
                rows += 1;
                let at = step["at"].as_i64().unwrap();
                let now = start + Duration::from_secs(at.try_into().unwrap());
                let target = EventTarget {
                    namespace: "shop".into(),
                    name: step["object"].as_str().unwrap().into(),
                    uid: "".into(),
                    resource_version: "".into(),
                };
                let intent = EventIntent {
                    kind: if step["type"] == "Warning" { EventKind::Warning } else { EventKind::Normal },
                    reason: reason(step["reason"].as_str().unwrap()),
                    message: step["message"].as_str().unwrap().to_owned(),
                };
                let expected = &step["expect"];
                let verdict = correlator.correlate(&target, &intent, now, || format!("event.{n}"));
                if expected["any"] == true {
                    continue;
                }
                let (verb, event) = match verdict {
                    Verdict::Drop => ("none", None),
                    Verdict::Create(event) => ("POST", Some(event)),
                    Verdict::Update(event) => ("PATCH", Some(event)),
                };
                let at = format!("{} step {n}", sequence["name"]);
                assert_eq!(expected["verb"], verb, "{at}");
                if let Some(event) = event {
                    assert_eq!(expected["count"], event.count, "{at}");
                    assert_eq!(expected["message"], event.message, "{at}");
                    let first = event.first.duration_since(start).as_secs();
                    assert_eq!(expected["firstSeconds"], first, "{at}");
                }
            }
        }
        assert!(rows > 500, "{rows} rows");
    }

    #[test]
    fn removed_object_leaves_no_entries_and_others_stay() {
        let names = ["a", "b", "c"];
        let target = |name: &str| EventTarget {
            namespace: "shop".into(),
            name: name.into(),
            uid: name.into(),
            resource_version: "".into(),
        };
        let mut correlator = Correlator::default();
        let all = |correlator: &mut Correlator, name| {
            let mut counts = Vec::new();
            for (kind, reason) in [
                (EventKind::Normal, "SuccessfulRescale"),
                (EventKind::Warning, "FailedGetScale"),
                (EventKind::Warning, "FailedGetResourceMetric"),
            ] {
                // The last messages are combined into one event.
                for n in 0..12 {
                    let intent = EventIntent { kind, reason, message: n.to_string() };
                    let now = Timestamp::from_second(1_700_000_000).unwrap();
                    match correlator.correlate(&target(name), &intent, now, || name.to_owned()) {
                        Verdict::Create(event) | Verdict::Update(event) => counts.push(event.count),
                        Verdict::Drop => counts.push(0),
                    }
                }
            }
            counts
        };
        let first = names.map(|name| all(&mut correlator, name));
        let full = correlator.len();
        let object = |name: &str| ObjectKey { namespace: "shop".into(), name: name.into(), uid: name.into() };
        correlator.forget(&object("b"));
        assert_eq!(correlator.len(), full / 3 * 2);
        assert_eq!(all(&mut correlator, "b"), first[1], "b is correlated like a new object");
        assert_ne!(all(&mut correlator, "a"), first[0], "a keeps its state");
        for name in names {
            correlator.forget(&object(name));
        }
        assert_eq!(correlator.len(), 0);
    }
}
