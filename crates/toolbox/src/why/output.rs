//! The answer as JSON or YAML documents in a stable format. `docs/reference/why.md` describes the format.

use autoscaling::WriteOutcome;
use autoscaling::explanation::Explanation;
use autoscaling::status::Condition;
use jiff::Timestamp;
use serde::Serialize;

use super::counterfactual::{Counterfactual, counterfactual};
use super::findings::Finding;
use super::situation::{FlagOrigin, LastDecision, Memory, Origin, Recorded, Recorder, Situation, Source};
use super::unknown::unknowns;
use controller::record::wire::Comparison;

const API_VERSION: &str = "concertina/v1";

/// The answer about one HPA.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    /// The time of the decision.
    at: Timestamp,
    /// The decision in one sentence.
    sentence: String,
    /// Whether every read that the decision needs succeeded.
    sound: bool,
    current: i32,
    desired: Option<i32>,
    source: SourceDocument<'a>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    explanation: &'a Explanation,
    events: Vec<EventDocument<'a>>,
    conditions: &'a [Condition],
    findings: &'a [Finding],
    /// The changes that would give another result. Absent for a record, which contains only the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_change: Option<Counterfactual>,
    unknowns: Vec<UnknownDocument>,
    history: Vec<Entry<'a>>,
    flags: Vec<Flag<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<TargetDocument<'a>>,
    /// The names of the other HPAs that control the same pods.
    sharing: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_writer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_version: Option<&'a str>,
    /// The server's clock minus the local clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_skew_seconds: Option<i64>,
    refused: Vec<RefusedDocument<'a>>,
}

/// The answers about several HPAs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List<'a> {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<Document<'a>>,
}

#[derive(Debug, Serialize)]
struct Metadata<'a> {
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum SourceDocument<'a> {
    Cluster {
        #[serde(skip_serializing_if = "Option::is_none")]
        watching_since: Option<Timestamp>,
        /// The leader's record, from which flags and history were taken.
        #[serde(skip_serializing_if = "Option::is_none")]
        record: Option<RecorderDocument<'a>>,
        /// The reason why no record is available.
        #[serde(skip_serializing_if = "Option::is_none")]
        no_record: Option<&'a str>,
    },
    Record {
        url: &'a str,
        read_at: Timestamp,
        since: Timestamp,
        syncs: u32,
        version: &'a str,
    },
}

#[derive(Debug, Serialize)]
struct RecorderDocument<'a> {
    from: &'a str,
    version: &'a str,
    /// The controller's last decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<LastDocument<'a>>,
    /// The comparison of a dry run with the active controller. Absent for other controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a Comparison>,
}

#[derive(Debug, Serialize)]
struct LastDocument<'a> {
    sentence: &'a str,
    at: Timestamp,
    since: Timestamp,
    syncs: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TargetDocument<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
}

#[derive(Debug, Serialize)]
struct EventDocument<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct UnknownDocument {
    code: &'static str,
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest: Option<Timestamp>,
    #[serde(flatten)]
    what: What,
    origin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum What {
    Recommendation { replicas: i32 },
    Rescale { from: Option<i32>, to: i32 },
    UnknownRescale {},
}

#[derive(Debug, Serialize)]
struct Flag<'a> {
    name: &'a str,
    value: &'a str,
    origin: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RefusedDocument<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    message: &'a str,
    decides: bool,
}

/// Creates the answer about one HPA, or the list of all answers.
pub(super) fn document<'a>(
    answers: impl Iterator<Item = (&'a Situation, &'a [Finding])>,
    one: bool,
) -> Result<serde_json::Value, serde_json::Error> {
    let mut items: Vec<_> = answers.map(|(situation, findings)| Document::new(situation, findings)).collect();
    match items.pop() {
        Some(only) if one => serde_json::to_value(only),
        last => {
            items.extend(last);
            serde_json::to_value(List { api_version: API_VERSION, kind: "WhyList", items })
        }
    }
}

impl<'a> Document<'a> {
    fn new(situation: &'a Situation, findings: &'a [Finding]) -> Self {
        let explanation = &situation.explanation;
        let (outcome, error) = match &situation.outcome {
            WriteOutcome::NotNeeded => ("notNeeded", None),
            WriteOutcome::Done => ("done", None),
            WriteOutcome::Failed(error) | WriteOutcome::Unknown(error) => ("failed", Some(error.as_str())),
            WriteOutcome::Withheld => ("withheld", None),
        };
        let events = situation.events.iter().map(|event| EventDocument {
            kind: event.kind.as_str(),
            reason: &event.reason,
            message: &event.message,
        });
        let unknowns = unknowns(situation).into_iter();
        let flags = situation.flags.iter().map(|flag| Flag {
            name: flag.name,
            value: &flag.value,
            origin: match flag.origin {
                FlagOrigin::Given => "given",
                FlagOrigin::Assumed => "assumed",
                FlagOrigin::Server => "server",
                FlagOrigin::Record => "record",
            },
        });
        let refused = situation.refused.iter().map(|refused| RefusedDocument {
            verb: refused.verb,
            group: &refused.group,
            resource: &refused.resource,
            namespace: refused.namespace.as_deref(),
            name: refused.name.as_deref(),
            message: &refused.text,
            decides: refused.decides,
        });
        Self {
            api_version: API_VERSION,
            kind: "Why",
            metadata: Metadata {
                namespace: &situation.key.namespace,
                name: &situation.key.name,
                uid: situation.hpa.as_ref().map(|hpa| &*hpa.uid),
            },
            at: situation.at,
            sentence: situation.sentence(),
            sound: situation.blind().next().is_none(),
            current: explanation.current,
            desired: explanation.desired,
            source: SourceDocument::new(&situation.source),
            outcome,
            error,
            explanation,
            events: events.collect(),
            conditions: &situation.conditions,
            findings,
            unknowns: unknowns
                .map(|unknown| UnknownDocument { code: unknown.code(), message: unknown.to_string() })
                .collect(),
            would_change: counterfactual(situation),
            history: history(situation),
            flags: flags.collect(),
            target: situation.target.as_ref().map(|target| TargetDocument {
                api_version: &target.api_version,
                kind: &target.kind,
                name: &target.name,
            }),
            sharing: situation.sharing.iter().map(|other| &*other.name).collect(),
            status_writer: situation.status_writer.as_ref().map(|writer| writer.manager.as_str()),
            server_version: situation.server_version.as_deref(),
            clock_skew_seconds: situation.skew.map(|skew| skew.as_secs()),
            refused: refused.collect(),
        }
    }
}

impl<'a> SourceDocument<'a> {
    fn new(source: &'a Source) -> Self {
        match source {
            Source::Cluster { watching_since, record } => {
                let (record, no_record) = match record {
                    Recorded::NotRequested => (None, None),
                    Recorded::NoLeader(reason) | Recorded::Missing(reason) => (None, Some(reason.as_str())),
                    Recorded::Read(recorder) => (Some(RecorderDocument::new(recorder)), None),
                };
                Self::Cluster { watching_since: *watching_since, record, no_record }
            }
            Source::Record { url, read_at, since, syncs, version } => {
                Self::Record { url, read_at: *read_at, since: *since, syncs: *syncs, version }
            }
        }
    }
}

impl<'a> RecorderDocument<'a> {
    fn new(Recorder { from, version, last, comparison }: &'a Recorder) -> Self {
        let last = last.as_ref().map(|LastDecision { sentence, at, since, syncs }| LastDocument {
            sentence,
            at: *at,
            since: *since,
            syncs: *syncs,
        });
        Self { from, version, last, comparison: comparison.as_ref() }
    }
}

fn history(situation: &Situation) -> Vec<Entry<'_>> {
    let entries = situation.past.entries.iter().map(|entry| {
        let (origin, reason) = match &entry.origin {
            Origin::LastScaleTime => ("lastScaleTime", None),
            Origin::Event => ("event", None),
            Origin::Condition(reason) => ("condition", Some(reason.as_str())),
            Origin::Record => ("record", None),
            Origin::Here => ("here", None),
        };
        let what = match entry.what {
            Memory::Recommendation { replicas } => What::Recommendation { replicas },
            Memory::Rescale { from, to } => What::Rescale { from, to },
            Memory::UnknownRescale => What::UnknownRescale {},
        };
        Entry { at: entry.at, earliest: entry.earliest, what, origin, reason }
    });
    entries.collect()
}
