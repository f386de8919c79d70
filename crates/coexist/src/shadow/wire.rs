//! The types of the `/parity` response, for the controller and for `concertina parity`.
//!
//! `docs/reference/decisions-api.md` describes every field. Fields may be added. The meaning of a field does not change
//! within `concertina/v1`.

use std::ops::AddAssign;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use journal::record::wire::ControllerInfo;

/// `kind` of the response. Its `apiVersion` is that of the decisions API.
pub const SHADOW_REPORT: &str = "ShadowReport";

/// The comparisons of a controller in shadow mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowReport {
    /// `concertina/v1`.
    pub api_version: String,
    /// [`SHADOW_REPORT`].
    pub kind: String,
    /// The controller, with the flags that affect decisions.
    pub controller: ControllerInfo,
    /// The start of the comparison.
    pub since: Timestamp,
    /// The time of the response, by the controller's clock.
    pub now: Timestamp,
    /// The number of compared HPAs.
    pub hpas: usize,
    /// The time of the last observed write by the other controller. Absent without a write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sign: Option<Timestamp>,
    /// The counts of the last 48 hours by hour and HPA, oldest first.
    pub hours: Vec<Hour>,
    /// The last changes, newest first. A full record drops changes with the result `same` first.
    pub changes: Vec<Change>,
}

/// The counts of one HPA in one hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hour {
    /// The start of the hour.
    pub hour: Timestamp,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`. Empty for the HPAs of the namespace beyond the maximum number of rows.
    pub name: String,
    /// The number of changes by result.
    pub counts: Counts,
}

/// The number of changes by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Concertina would have made the same change.
    pub same: u64,
    /// Concertina would have made another change.
    pub different: u64,
    /// Concertina would have made a change, and the other controller made no change.
    pub only_concertina: u64,
    /// Concertina would have made no change.
    pub only_builtin: u64,
    /// The comparison is inconclusive.
    pub unknown: u64,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Concertina would have made the same change, at most one period earlier or later.
    Same,
    /// Concertina would have made another change.
    Different,
    /// Concertina would have made a change, and the other controller made no change.
    OnlyConcertina,
    /// Concertina would have made no change.
    OnlyBuiltin,
    /// The comparison is inconclusive.
    Unknown,
}

/// The reason why a comparison is inconclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InconclusiveReason {
    /// The other controller may have a longer history than Concertina, which started later.
    WarmUp,
    /// Concertina could not compute a count.
    Undecided,
    /// The metrics changed between two readings by Concertina, and the other controller read other values.
    MetricsMoved,
    /// The change was observed more than two periods late, so its metrics and pods may have changed in the meantime.
    SeenLate,
    /// The spec changed within the same period.
    SpecChanged,
    /// No write by the other controller was observed, neither of this HPA at the decision nor of any HPA since.
    NoSign,
}

/// A change by the other controller, or a missing change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The time of the observation, by Concertina's clock.
    pub at: Timestamp,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The result of the comparison.
    pub result: Verdict,
    /// The reason why the comparison is inconclusive. Absent with other results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<InconclusiveReason>,
    /// The other controller's change. Absent if the other controller made no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<Builtin>,
    /// Concertina's decision. Absent if Concertina made no decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<OwnSide>,
    /// A summary of the status that the other controller wrote.
    pub said: ForeignStatus,
}

/// A change by the other controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Builtin {
    /// `status.lastScaleTime`, by the other controller's clock.
    pub at: Timestamp,
    /// The previous count.
    pub from: i32,
    /// The new count.
    pub to: i32,
}

/// A decision of Concertina.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnSide {
    /// The time of the decision.
    pub at: Timestamp,
    /// The current count.
    pub from: i32,
    /// The desired count. `null` if no count could be computed.
    pub to: Option<i32>,
    /// The reason, as a sentence.
    pub sentence: String,
}

/// A summary of the status that another controller wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignStatus {
    /// `currentMetrics`, each in the form `cpu 130 % (260m)`.
    pub metrics: Vec<String>,
    /// The conditions, each in the form `type=status reason: message`.
    pub conditions: Vec<String>,
}

/// The result of a comparison of one HPA.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    pub(super) doubt: Option<InconclusiveReason>,
    pub(super) ours: OwnSide,
}

impl Verdict {
    /// Returns the value of the label `result` of the metric.
    pub fn as_label(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Different => "different",
            Self::OnlyConcertina => "only_concertina",
            Self::OnlyBuiltin => "only_builtin",
            Self::Unknown => "unknown",
        }
    }

    /// Returns whether the two controllers act differently.
    pub fn is_difference(self) -> bool {
        matches!(self, Self::Different | Self::OnlyConcertina | Self::OnlyBuiltin)
    }
}

impl Change {
    /// Returns the other controller's counts, as `3 to 5` or `none`.
    pub fn builtin_counts(&self) -> String {
        self.builtin
            .map_or_else(|| "none".to_owned(), |builtin| format!("{} to {}", builtin.from, builtin.to))
    }

    /// Returns Concertina's counts, as `3 to 5`, `3 to an unknown count` or `none`.
    pub fn our_counts(&self) -> String {
        match &self.ours {
            Some(OwnSide { from, to: Some(to), .. }) => format!("{from} to {to}"),
            Some(OwnSide { from, to: None, .. }) => format!("{from} to an unknown count"),
            None => "none".to_owned(),
        }
    }
}

impl InconclusiveReason {
    /// Returns the reason as a sentence without a full stop.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WarmUp => "the built-in controller may have a longer history than the dry run",
            Self::Undecided => "the dry run could compute no count",
            Self::MetricsMoved => "the metrics changed between the two readings",
            Self::SeenLate => "the change was observed too late, or the clocks differ",
            Self::SpecChanged => "the HPA was changed in the same period",
            Self::NoSign => "the built-in controller showed no activity",
        }
    }
}

impl Counts {
    /// Adds one change.
    pub fn add(&mut self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Same => &mut self.same,
            Verdict::Different => &mut self.different,
            Verdict::OnlyConcertina => &mut self.only_concertina,
            Verdict::OnlyBuiltin => &mut self.only_builtin,
            Verdict::Unknown => &mut self.unknown,
        };
        *count = count.saturating_add(1);
    }

    /// Returns the number of changes in which the two controllers differ.
    pub fn differences(&self) -> u64 {
        self.different.saturating_add(self.only_concertina).saturating_add(self.only_builtin)
    }

    /// Returns the number of all changes.
    pub fn total(&self) -> u64 {
        self.differences().saturating_add(self.same).saturating_add(self.unknown)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.same = self.same.saturating_add(other.same);
        self.different = self.different.saturating_add(other.different);
        self.only_concertina = self.only_concertina.saturating_add(other.only_concertina);
        self.only_builtin = self.only_builtin.saturating_add(other.only_builtin);
        self.unknown = self.unknown.saturating_add(other.unknown);
    }
}
