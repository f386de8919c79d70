//! The findings about an HPA, the unknown facts of its decision, and the answer as a JSON or YAML document. The crate
//! `findings` determines the findings. The format of the document is stable, and `docs/reference/why.md` describes it.

use std::fmt;

pub use ::findings::occurrences;
pub use ::findings::{Finding, FindingId, Severity};
use autoscaling::WriteOutcome;
use autoscaling::explanation::Explanation;
use autoscaling::status::Condition;
use engine::reconcile::SourceReading;
use jiff::Timestamp;
use policies::steps::PolicyEffect;
use serde::Serialize;

use super::counterfactual::{Counterfactual, counterfactual};
use super::situation::{EventContent, HistoryEntry, InCharge, Refused, Situation, Source, Target};
use flags::decision::EMULATED_VERSION;
use terminal::flag_use::{FlagOrigin, FlagUse};

/// Returns all findings, the most severe first.
pub fn findings(situation: &Situation) -> Vec<Finding> {
    ::findings::findings(&situation.facts())
}

/// The state of an HPA in a list, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// A finding is an error.
    Error,
    /// A finding is a warning.
    Warning,
    /// No finding needs attention.
    Ok,
}

impl State {
    /// All states, in order.
    pub const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Ok];

    /// Returns the state of an HPA with these findings.
    pub fn of(findings: &[Finding]) -> Self {
        match findings.iter().map(|finding| finding.severity).min() {
            Some(Severity::Error) => Self::Error,
            Some(Severity::Warning) => Self::Warning,
            Some(Severity::Info) | None => Self::Ok,
        }
    }

    /// Returns the name in lists and in `--state`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Ok => "ok",
        }
    }
}

/// A kind of unknown fact on which the controller's decision may depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The recommendations between the entries of the history.
    Recommendations,
    /// The size of a rescale that counts for a policy.
    Amounts,
    /// The flags of the controller.
    Flags,
    /// The version of the controller.
    Version,
    /// Objects that the user is not allowed to read.
    Reads,
}

impl Unknown {
    /// Returns the code in kebab-case, stable across versions.
    pub fn code(self) -> &'static str {
        match self {
            Self::Recommendations => "recommendations",
            Self::Amounts => "amounts",
            Self::Flags => "flags",
            Self::Version => "version",
            Self::Reads => "reads",
        }
    }
}

impl Unknown {
    /// Returns the fact in a few words, for a list of facts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Recommendations => "older recommendations",
            Self::Amounts => "the size of some rescales",
            Self::Flags => "the flags of the controller",
            Self::Version => "its version",
            Self::Reads => "objects that you may not read",
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recommendations => {
                "the controller's recommendations between the entries of the history: a stabilization window may hold \
                 other counts, or expire at another time"
            }
            Self::Amounts => "the size of some rescales: each counts as the full allowance of its policies",
            Self::Flags => "the flags of the running controller: defaults are assumed for flags that are not given",
            Self::Version => "the version of the running controller",
            Self::Reads => "the objects that you may not read: the controller may decide otherwise",
        })
    }
}

/// Returns the unknown facts of a decision, the most severe first.
pub fn unknowns(situation: &Situation) -> Vec<Unknown> {
    let mut found = Vec::new();
    if situation.blind().next().is_some() {
        found.push(Unknown::Reads);
    }
    if matches!(situation.source, Source::Record { .. }) {
        return found;
    }
    let behaves = situation.hpa.as_ref().is_some_and(|hpa| hpa.spec.behavior.is_some());
    if !situation.past.complete {
        found.push(Unknown::Recommendations);
    }
    if behaves && situation.past.entries.iter().any(HistoryEntry::lacks_amount) {
        found.push(Unknown::Amounts);
    }
    let assumed = |version: bool| {
        let mut flags = situation.flags.iter().filter(|flag| (flag.name == EMULATED_VERSION) == version);
        flags.any(|flag| matches!(flag.origin, FlagOrigin::Assumed | FlagOrigin::Server))
    };
    if assumed(false) {
        found.push(Unknown::Flags);
    }
    if assumed(true) {
        found.push(Unknown::Version);
    }
    found
}

const API_VERSION: &str = "concertina/v1";

/// The answer about one HPA.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Why"))]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    /// The time of the decision.
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    at: Timestamp,
    /// The decision in one sentence.
    sentence: String,
    /// Whether the server permitted every read that the decision needs.
    sound: bool,
    /// `null` if the Scale could not be read.
    current: Option<i32>,
    /// The count that is applied, with the effect of the scaling policy.
    desired: Option<i32>,
    source: &'a Source,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    explanation: &'a Explanation,
    /// The effect of the scaling policy. Absent without a scaling policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Object>"))]
    policy: Option<&'a PolicyEffect>,
    /// The readings of the sources that the policy names. Absent if the metrics APIs supplied the values.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[cfg_attr(test, schemars(with = "Vec<crate::schemas::Object>"))]
    sources: &'a [SourceReading],
    #[cfg_attr(test, schemars(with = "Vec<crate::schemas::Object>"))]
    events: &'a [EventContent],
    #[cfg_attr(test, schemars(with = "Vec<crate::schemas::Object>"))]
    conditions: &'a [Condition],
    #[cfg_attr(test, schemars(with = "Vec<schemas::FindingSchema>"))]
    findings: &'a [Finding],
    /// The changes that would give another result. Absent if [`counterfactual`] returns `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_change: Option<Counterfactual>,
    unknowns: Vec<UnknownDocument>,
    history: &'a [HistoryEntry],
    #[cfg_attr(test, schemars(with = "Vec<crate::schemas::Object>"))]
    flags: &'a [FlagUse],
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Object>"))]
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
    #[cfg_attr(test, schemars(with = "Vec<crate::schemas::Object>"))]
    refused: &'a [Refused],
}

/// The answers about several HPAs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "WhyList"))]
struct List<'a> {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<Document<'a>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Metadata<'a> {
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UnknownDocument {
    code: &'static str,
    message: String,
}

/// Creates the answer about one HPA, or the list of all answers.
pub fn document<'a>(
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
            current: situation.current(),
            desired: situation.decided().count(),
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

#[cfg(test)]
mod schemas;
#[cfg(test)]
mod tests;
