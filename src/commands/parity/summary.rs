//! What people ask of a comparison: are they the same, how many changes, which differ, what could not be judged.

use std::collections::BTreeMap;
use std::time::Duration;

use autoscaling::explanation::Span;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::record::wire::{API_VERSION, ControllerInfo};
use crate::shadow::wire::{Change, Counts, Doubt, ShadowReport, Verdict};

/// `kind` of the report as JSON.
pub const PARITY_REPORT: &str = "ParityReport";

/// A comparison, summed up.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// `concertina/v1`.
    pub api_version: &'static str,
    /// [`PARITY_REPORT`].
    pub kind: &'static str,
    /// The answer.
    pub verdict: Answer,
    /// The answer in a sentence.
    pub sentence: String,
    /// The dry run, with its flags.
    pub controller: ControllerInfo,
    /// Of which namespace alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// From when on it was compared.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// It was asked for more than the dry run has lived.
    pub is_younger: bool,
    /// There were too many changes to keep: the counts are of whole hours.
    pub is_by_hours: bool,
    /// When the built-in controller was last seen to write anything.
    pub last_sign: Option<Timestamp>,
    /// How many HPAs the dry run knows.
    pub hpas: usize,
    /// All changes, by result.
    pub counts: Counts,
    /// Why some could not be judged, and how many.
    pub doubts: BTreeMap<Doubt, u64>,
    /// By namespace and HPA, those with changes.
    pub namespaces: Vec<Namespace>,
    /// Every difference that is kept, newest first.
    pub differences: Vec<Change>,
    /// What could not be judged, newest first.
    pub not_judged: Vec<Change>,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// Every change that could be judged is the same.
    Same,
    /// There are differences.
    Different,
    /// There was nothing to judge.
    Nothing,
}

/// The changes of one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// All of its changes.
    pub counts: Counts,
    /// By HPA.
    pub hpas: Vec<Hpa>,
}

/// The changes of one HPA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hpa {
    /// Its name; empty for those of the namespace for which the dry run had no room.
    pub name: String,
    /// Its changes.
    pub counts: Counts,
}

impl Summary {
    /// Of the last `since` of what was compared, of one namespace or of all.
    pub fn of(report: &ShadowReport, since: Duration, namespace: Option<&str>) -> Self {
        let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
        let asked = report.now.checked_sub(since).unwrap_or(Timestamp::MIN);
        let from = asked.max(report.since);
        let is_wanted = |of: &str| namespace.is_none_or(|namespace| namespace == of);
        let kept = |change: &&Change| change.at >= from && is_wanted(&change.namespace);
        let changes: Vec<&Change> = report.changes.iter().filter(kept).collect();
        let counted: u64 = report.hours.iter().map(|hour| hour.counts.total()).sum();
        let is_by_hours = usize::try_from(counted).is_ok_and(|counted| counted > report.changes.len());
        let mut by_hpa: BTreeMap<(&str, &str), Counts> = BTreeMap::new();
        if is_by_hours {
            let first = from.checked_sub(SignedDuration::from_hours(1)).unwrap_or(Timestamp::MIN);
            let hours = report.hours.iter().filter(|hour| hour.hour > first && is_wanted(&hour.namespace));
            for hour in hours {
                *by_hpa.entry((&hour.namespace, &hour.name)).or_default() += hour.counts;
            }
        } else {
            for change in &changes {
                by_hpa.entry((&change.namespace, &change.name)).or_default().add(change.result);
            }
        }
        let mut counts = Counts::default();
        let mut namespaces: Vec<Namespace> = Vec::new();
        for ((namespace, name), of) in by_hpa {
            counts += of;
            if namespaces.last().is_none_or(|last| last.name != namespace) {
                let name = namespace.to_owned();
                namespaces.push(Namespace { name, counts: Counts::default(), hpas: Vec::new() });
            }
            if let Some(last) = namespaces.last_mut() {
                last.counts += of;
                last.hpas.push(Hpa { name: name.to_owned(), counts: of });
            }
        }
        let mut doubts = BTreeMap::new();
        for doubt in changes.iter().filter_map(|change| change.doubt) {
            *doubts.entry(doubt).or_default() += 1;
        }
        let of = |wanted: fn(&Change) -> bool| {
            changes.iter().filter(|change| wanted(change)).map(|change| (*change).clone()).collect()
        };
        let verdict = match (counts.differences(), counts.same) {
            (0, 0) => Answer::Nothing,
            (0, _) => Answer::Same,
            _ => Answer::Different,
        };
        let sentence = sentence(verdict, counts, report.last_sign.is_some(), Span::between(from, report.now));
        Self {
            api_version: API_VERSION,
            kind: PARITY_REPORT,
            verdict,
            sentence,
            controller: report.controller.clone(),
            namespace: namespace.map(str::to_owned),
            from,
            until: report.now,
            is_younger: asked < report.since,
            is_by_hours,
            last_sign: report.last_sign,
            hpas: report.hpas,
            counts,
            doubts,
            namespaces,
            differences: of(|change| change.result.is_difference()),
            not_judged: of(|change| change.result == Verdict::Unknown),
        }
    }

    /// How long it was compared.
    pub fn span(&self) -> Span {
        Span::between(self.from, self.until)
    }
}

fn sentence(verdict: Answer, counts: Counts, has_sign: bool, span: Span) -> String {
    let changes = |count: u64| if count == 1 { "1 change".to_owned() } else { format!("{count} changes") };
    match verdict {
        Answer::Same if counts.same == 1 => {
            format!(
                "The same: the built-in controller made 1 change in {span}, and Concertina would have made it too"
            )
        }
        Answer::Same => format!(
            "The same: the built-in controller made {} in {span} that can be compared, and Concertina would have made \
             each of them",
            changes(counts.same)
        ),
        Answer::Different => {
            let judged = counts.differences().saturating_add(counts.same);
            let differences = counts.differences();
            let they =
                if differences == 1 { "1 differs".to_owned() } else { format!("{differences} differ") };
            format!("Not the same: of {} in {span}, {they}", changes(judged))
        }
        Answer::Nothing if counts.unknown > 0 => {
            format!("Nothing to compare: none of {} in {span} could be judged", changes(counts.unknown))
        }
        Answer::Nothing if has_sign => {
            format!("Nothing to compare: no count was changed in {span}")
        }
        Answer::Nothing => {
            format!("Nothing to compare: there was no sign of a built-in controller in {span}")
        }
    }
}

/// What was changed, as both would have it: `4 → 6`.
pub(super) fn counts(change: &Change) -> [Option<String>; 2] {
    let shown = |from: i32, to: Option<i32>| match to {
        Some(to) if to == from => format!("stays at {from}"),
        Some(to) => format!("{from} → {to}"),
        None => format!("{from} → ?"),
    };
    let builtin = change.builtin.map(|change| shown(change.from, Some(change.to)));
    let ours = change.ours.as_ref().map(|ours| shown(ours.from, ours.to));
    [builtin, ours]
}

/// What the built-in controller's status said in a change's place: metrics, and conditions that are not as usual.
pub(super) fn said(change: &Change) -> Vec<String> {
    let is_telling = |condition: &&String| {
        let usual = [
            "ScalingActive=True",
            "ScalingLimited=False",
            "ScaledToZero=False",
            "AbleToScale=True Succeeded",
        ];
        !usual.iter().any(|usual| condition.starts_with(usual))
    };
    change.said.metrics.iter().chain(change.said.conditions.iter().filter(is_telling)).cloned().collect()
}

/// The flags that must equal those of the built-in controller, with what they are.
pub(super) fn flags(controller: &ControllerInfo) -> Vec<(&'static str, String)> {
    use crate::duration::GoDuration;
    let duration =
        |duration: Duration| GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string();
    let settings = &controller.settings;
    vec![
        ("sync-period", duration(controller.sync_period)),
        ("tolerance", settings.tolerance.to_string()),
        ("downscale-stabilization", duration(settings.downscale_stabilization)),
        ("cpu-initialization-period", duration(settings.cpu_initialization_period)),
        ("initial-readiness-delay", duration(settings.initial_readiness_delay)),
    ]
}
