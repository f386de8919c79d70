//! What `/parity` answers, as types: for the controller that writes it and for `concertina parity`, which reads it.
//!
//! `docs/shadow.md` describes every field. Fields may be added; none changes its meaning within `concertina/v1`.

use std::ops::AddAssign;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::record::wire::ControllerInfo;

/// `kind` of the answer; `apiVersion` is the one of the record of decisions.
pub const SHADOW_REPORT: &str = "ShadowReport";

/// What a dry run has compared since it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowReport {
    /// `concertina/v1`.
    pub api_version: String,
    /// [`SHADOW_REPORT`].
    pub kind: String,
    /// Who compares, with the flags that change a decision.
    pub controller: ControllerInfo,
    /// Since when it compares.
    pub since: Timestamp,
    /// The controller's time of day when it answered.
    pub now: Timestamp,
    /// How many HPAs it knows now.
    pub hpas: usize,
    /// When the other controller was last seen to write anything; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sign: Option<Timestamp>,
    /// All changes by the hour and by HPA, of the last 48 hours, oldest first.
    pub hours: Vec<Hour>,
    /// The last changes, newest first. Changes that are the same may be missing where there were too many.
    pub changes: Vec<Change>,
}

/// How many changes of one HPA began in an hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hour {
    /// When the hour began.
    pub hour: Timestamp,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`; empty for those of the namespace for which there was no room.
    pub name: String,
    /// By result.
    pub counts: Counts,
}

/// Changes by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// We would have made the same change.
    pub same: u64,
    /// We would have made another one.
    pub different: u64,
    /// We would have made one where there was none.
    pub only_ours: u64,
    /// We would have made none.
    pub only_builtin: u64,
    /// It cannot be said.
    pub unknown: u64,
}

/// What came of comparing one change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// We would have made the same change, at most one period earlier or later.
    Same,
    /// We would have made another one.
    Different,
    /// We would have made one where there was none.
    OnlyOurs,
    /// We would have made none.
    OnlyBuiltin,
    /// It cannot be said.
    Unknown,
}

/// Why it cannot be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Doubt {
    /// The dry run is younger than what the other controller may remember.
    WarmUp,
    /// The dry run could compute no count.
    Undecided,
    /// The metrics moved between our readings, and the other one read something else.
    MetricsMoved,
    /// The change was seen too late to read what it was made from.
    SeenLate,
    /// The spec changed within the same period.
    SpecChanged,
    /// The other controller was not seen to look at this HPA, or at any.
    NoSign,
}

/// One change, or one that was missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// When it was seen, by our clock.
    pub at: Timestamp,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// What came of it.
    pub result: Verdict,
    /// Why it cannot be said. Absent with other results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
    /// What the other controller did; absent if it did nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<Builtin>,
    /// What we decided; absent if we had not decided at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Ours>,
    /// What the other controller's status said.
    pub said: Said,
}

/// A change by the other controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Builtin {
    /// `status.lastScaleTime`, by its clock.
    pub at: Timestamp,
    /// The count before.
    pub from: i32,
    /// The count after.
    pub to: i32,
}

/// Our decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ours {
    /// When.
    pub at: Timestamp,
    /// The count before.
    pub from: i32,
    /// The count that should stand; `null` if there was none to be had.
    pub to: Option<i32>,
    /// Why.
    pub sentence: String,
}

/// What the other controller's status said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Said {
    /// `currentMetrics`, each in short: `cpu 130 % (260m)`.
    pub metrics: Vec<String>,
    /// The conditions: `type=status reason: message`.
    pub conditions: Vec<String>,
}

/// What came of comparing, before it is known of which HPA.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    pub(super) doubt: Option<Doubt>,
    pub(super) ours: Option<Ours>,
}

impl Verdict {
    /// As the metric's label has it.
    pub fn as_label(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Different => "different",
            Self::OnlyOurs => "only_ours",
            Self::OnlyBuiltin => "only_builtin",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the two controllers act differently.
    pub fn is_difference(self) -> bool {
        matches!(self, Self::Different | Self::OnlyOurs | Self::OnlyBuiltin)
    }
}

impl Change {
    /// From which count to which the other controller went: `3 to 5`, or `none`.
    pub fn builtin_counts(&self) -> String {
        self.builtin
            .map_or_else(|| "none".to_owned(), |builtin| format!("{} to {}", builtin.from, builtin.to))
    }

    /// The same of our decision.
    pub fn our_counts(&self) -> String {
        match &self.ours {
            Some(Ours { from, to: Some(to), .. }) => format!("{from} to {to}"),
            Some(Ours { from, to: None, .. }) => format!("{from} to an unknown count"),
            None => "none".to_owned(),
        }
    }
}

impl Doubt {
    /// In words, after "cannot be said: ".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WarmUp => "the dry run is younger than what the built-in controller may remember",
            Self::Undecided => "the dry run could compute no count",
            Self::MetricsMoved => "the metrics moved while both looked",
            Self::SeenLate => "the change was seen too late, or the clocks differ",
            Self::SpecChanged => "the HPA was changed in the same period",
            Self::NoSign => "there was no sign of the built-in controller",
        }
    }
}

impl Counts {
    /// One more.
    pub fn add(&mut self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Same => &mut self.same,
            Verdict::Different => &mut self.different,
            Verdict::OnlyOurs => &mut self.only_ours,
            Verdict::OnlyBuiltin => &mut self.only_builtin,
            Verdict::Unknown => &mut self.unknown,
        };
        *count = count.saturating_add(1);
    }

    /// How many the two controllers differ in.
    pub fn differences(&self) -> u64 {
        self.different.saturating_add(self.only_ours).saturating_add(self.only_builtin)
    }

    /// All.
    pub fn total(&self) -> u64 {
        self.differences().saturating_add(self.same).saturating_add(self.unknown)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.same = self.same.saturating_add(other.same);
        self.different = self.different.saturating_add(other.different);
        self.only_ours = self.only_ours.saturating_add(other.only_ours);
        self.only_builtin = self.only_builtin.saturating_add(other.only_builtin);
        self.unknown = self.unknown.saturating_add(other.unknown);
    }
}
