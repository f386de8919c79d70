//! The answer as JSON or YAML documents in a stable format. `docs/reference/why.md` describes the format.

use autoscaling::WriteOutcome;
use autoscaling::explanation::Explanation;
use autoscaling::status::Condition;
use controller::reconcile::SourceReading;
use jiff::Timestamp;
use policies::steps::PolicyEffect;
use serde::Serialize;

use super::counterfactual::{Counterfactual, counterfactual};
use super::findings::{Finding, unknowns};
use super::situation::{EventContent, FlagUse, HistoryEntry, InCharge, Refused, Situation, Source, Target};

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
    /// Whether the server permitted every read that the decision needs.
    sound: bool,
    current: i32,
    desired: Option<i32>,
    source: &'a Source,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    explanation: &'a Explanation,
    /// The effect of the scaling policy. Absent for an HPA without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a PolicyEffect>,
    /// The readings of the sources that the policy names. Absent if the metrics APIs supplied the values.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sources: &'a [SourceReading],
    events: &'a [EventContent],
    conditions: &'a [Condition],
    findings: &'a [Finding],
    /// The changes that would give another result. Absent for a record, which contains only the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_change: Option<Counterfactual>,
    unknowns: Vec<UnknownDocument>,
    history: &'a [HistoryEntry],
    flags: &'a [FlagUse],
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a Target>,
    /// The names of the other HPAs that control the same pods.
    sharing: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_charge: Option<&'a InCharge>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_writer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_version: Option<&'a str>,
    /// The server's clock minus the local clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_skew_seconds: Option<i64>,
    refused: &'a [Refused],
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
struct UnknownDocument {
    code: &'static str,
    message: String,
}

/// Creates the answer about one HPA, or the list of all answers.
pub(crate) fn document<'a>(
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
            source: &situation.source,
            outcome,
            error,
            explanation,
            policy: situation.policy.as_ref(),
            sources: &situation.sources,
            events: &situation.events,
            conditions: &situation.conditions,
            findings,
            unknowns: unknowns(situation)
                .into_iter()
                .map(|unknown| UnknownDocument { code: unknown.code(), message: unknown.to_string() })
                .collect(),
            would_change: counterfactual(situation),
            history: &situation.past.entries,
            flags: &situation.flags,
            target: situation.target.as_ref(),
            sharing: situation.sharing.iter().map(|other| &*other.name).collect(),
            in_charge: situation.in_charge.as_ref(),
            status_writer: situation.status_writer.as_ref().map(|writer| writer.manager.as_str()),
            server_version: situation.server_version.as_deref(),
            clock_skew_seconds: situation.skew.map(|skew| skew.as_secs()),
            refused: &situation.refused,
        }
    }
}
