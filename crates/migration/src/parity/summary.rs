//! Aggregates a comparison: the verdict, the number of changes, the differences, and the changes that were not judged.

use std::collections::BTreeMap;
use std::time::Duration;

use autoscaling::explanation::Span;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use coexist::shadow::wire::{Change, Counts, InconclusiveReason, ShadowReport, Verdict};
use journal::record::wire::{API_VERSION, ControllerInfo};
use terminal::words;

/// The `kind` of the report as JSON.
pub const PARITY_REPORT: &str = "ParityReport";

/// The report of `concertina parity`, which summarizes a comparison over a time span.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ParityReport"))]
pub struct Summary {
    /// `concertina/v1`.
    pub api_version: &'static str,
    /// [`PARITY_REPORT`].
    pub kind: &'static str,
    /// Whether the controllers made the same changes.
    pub verdict: Answer,
    /// The verdict in a sentence.
    pub sentence: String,
    /// The version of the dry run, and its flags that affect decisions.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub controller: ControllerInfo,
    /// The namespace, if the summary covers only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The start of the time span: the requested start, or the start of the dry run if that is later.
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    pub from: Timestamp,
    /// The end of the time span, which is the time of the report.
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    pub until: Timestamp,
    /// Whether the requested time span starts before the dry run.
    pub is_younger: bool,
    /// Whether counts cover whole hours, because the dry run had more changes than it keeps.
    pub is_by_hours: bool,
    /// The time of the last observed write of the built-in controller.
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
    pub last_sign: Option<Timestamp>,
    /// The number of the dry run's HPAs.
    pub hpas: usize,
    /// The number of changes by result.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub counts: Counts,
    /// The number of changes in [`Self::not_judged`], by reason.
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, u64>"))]
    pub doubts: BTreeMap<InconclusiveReason, u64>,
    /// The namespaces and HPAs with changes.
    pub namespaces: Vec<Namespace>,
    /// The differences among the changes that the dry run keeps, newest first.
    #[cfg_attr(test, schemars(with = "Vec<crate::schemas::Object>"))]
    pub differences: Vec<Change>,
    /// The changes that the dry run keeps and did not judge, newest first.
    #[cfg_attr(test, schemars(with = "Vec<crate::schemas::Object>"))]
    pub not_judged: Vec<Change>,
}

/// The verdict of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Answer {
    /// At least one change was judged, and every judged change is the same.
    Same,
    /// At least one judged change differs.
    Different,
    /// No change was judged.
    Nothing,
}

/// The changes of one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Namespace {
    /// The name of the namespace.
    pub name: String,
    /// The number of changes by result.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub counts: Counts,
    /// The changes of each HPA.
    pub hpas: Vec<Hpa>,
}

/// The changes of one HPA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hpa {
    /// The name of the HPA. Empty for the sum of the namespace's HPAs beyond the maximum number of rows.
    pub name: String,
    /// The number of changes by result.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub counts: Counts,
}

impl Summary {
    /// Summarizes the last `since` of a comparison, for one namespace or for all.
    pub fn new(report: &ShadowReport, since: Duration, namespace: Option<&str>) -> Self {
        let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
        let asked = report.now.checked_sub(since).unwrap_or(Timestamp::MIN);
        let from = asked.max(report.since);
        let is_selected = |name: &str| namespace.is_none_or(|namespace| namespace == name);
        let kept = |change: &&Change| change.at >= from && is_selected(&change.namespace);
        let changes: Vec<&Change> = report.changes.iter().filter(kept).collect();
        let counted: u64 = report.hours.iter().map(|hour| hour.counts.total()).sum();
        let is_by_hours = usize::try_from(counted).is_ok_and(|counted| counted > report.changes.len());
        let mut by_hpa: BTreeMap<(&str, &str), Counts> = BTreeMap::new();
        if is_by_hours {
            let first = from.checked_sub(SignedDuration::from_hours(1)).unwrap_or(Timestamp::MIN);
            let hours = report.hours.iter().filter(|hour| hour.hour > first && is_selected(&hour.namespace));
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
        for ((namespace, name), own) in by_hpa {
            counts += own;
            if namespaces.last().is_none_or(|last| last.name != namespace) {
                let name = namespace.to_owned();
                namespaces.push(Namespace { name, counts: Counts::default(), hpas: Vec::new() });
            }
            if let Some(last) = namespaces.last_mut() {
                last.counts += own;
                last.hpas.push(Hpa { name: name.to_owned(), counts: own });
            }
        }
        let mut doubts = BTreeMap::new();
        for doubt in changes.iter().filter_map(|change| change.doubt) {
            *doubts.entry(doubt).or_default() += 1;
        }
        let changes_with = |is_kind: fn(&Change) -> bool| {
            changes.iter().filter(|change| is_kind(change)).map(|change| (*change).clone()).collect()
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
            differences: changes_with(|change| change.result.is_difference()),
            not_judged: changes_with(|change| change.result == Verdict::Unknown),
        }
    }

    /// Returns the length of the time span.
    pub fn span(&self) -> Span {
        Span::between(self.from, self.until)
    }
}

fn sentence(verdict: Answer, counts: Counts, has_sign: bool, span: Span) -> String {
    let changes = |count: u64| words::counted(count, "change");
    match verdict {
        Answer::Same if counts.same == 1 => {
            format!(
                "No differences: the built-in controller made 1 change in {span}, and Concertina would have made it too"
            )
        }
        Answer::Same => format!(
            "No differences: the built-in controller made {} in {span} that can be compared, and Concertina would have made \
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
            format!("Nothing to compare: no replica count changed in {span}")
        }
        Answer::Nothing => {
            format!("Nothing to compare: no write of a built-in controller was observed in {span}")
        }
    }
}

/// Formats the change of the built-in controller, such as `4 → 6`, and that of the dry run. `None` for no change.
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

/// Returns the reasons in the built-in controller's status: metrics, and conditions in an unusual state.
pub(super) fn builtin_reasons(change: &Change) -> Vec<String> {
    let is_unusual = |condition: &&String| {
        let usual = [
            "ScalingActive=True",
            "ScalingLimited=False",
            "ScaledToZero=False",
            "AbleToScale=True Succeeded",
        ];
        !usual.iter().any(|usual| condition.starts_with(usual))
    };
    change.said.metrics.iter().chain(change.said.conditions.iter().filter(is_unusual)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use autoscaling::settings::Settings;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::parity::{page, render};
    use coexist::shadow::wire::ShadowReport;
    use journal::record::wire::ControllerInfo;
    use terminal::explain::{Style, Zone};

    const DAY: Duration = Duration::from_hours(24);

    fn change(
        at: &str,
        name: &str,
        result: &str,
        builtin: &Value,
        ours: Option<i32>,
        sentence: &str,
    ) -> Value {
        json!({
            "at": format!("2030-01-02T{at}Z"), "namespace": "shop", "name": name, "uid": "u", "result": result,
            "builtin": builtin,
            "ours": {"at": format!("2030-01-02T{at}Z"), "from": 4, "to": ours, "sentence": sentence},
            "said": {"metrics": ["queue 13750m"], "conditions": [
                "AbleToScale=True SucceededRescale: the HPA controller was able to update the target scale to 6",
                "ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count",
            ]},
        })
    }

    fn report(changes: &[Value]) -> ShadowReport {
        let mut counts = BTreeMap::<String, serde_json::Map<String, Value>>::new();
        for change in changes {
            let results = counts.entry(change["name"].as_str().unwrap().to_owned()).or_default();
            let result = change["result"].as_str().unwrap();
            let count = results.get(result).and_then(Value::as_u64).unwrap_or(0);
            results.insert(result.to_owned(), json!(count + 1));
        }
        let hours: Vec<Value> = counts
        .into_iter()
        .map(|(name, counts)| {
            json!({"hour": "2030-01-02T11:00:00Z", "namespace": "shop", "name": name, "counts": counts})
        })
        .collect();
        let controller = ControllerInfo {
            version: "0.1.0".to_owned(),
            sync_period: Duration::from_secs(15),
            settings: (&Settings::default()).into(),
        };
        serde_json::from_value(json!({
            "apiVersion": "concertina/v1", "kind": "ShadowReport", "controller": controller,
            "since": "2030-01-01T18:00:00Z", "now": "2030-01-02T12:00:00Z", "hpas": 3,
            "lastSign": "2030-01-02T11:59:50Z", "hours": hours, "changes": changes,
        }))
        .unwrap()
    }

    fn went(to: i32) -> Value {
        json!({"at": "2030-01-02T11:00:00Z", "from": 4, "to": to})
    }

    /// Creates a report with two equal changes, one difference of each kind, and one change that was not judged.
    fn mixed() -> ShadowReport {
        let mut doubted =
            change("11:01:00", "api", "unknown", &went(5), None, "no count: nothing can be read");
        doubted["doubt"] = json!("undecided");
        report(&[
            change(
                "11:40:00",
                "web",
                "onlyBuiltin",
                &went(6),
                Some(4),
                "stays at 4: queue <is> within tolerance",
            ),
            change(
                "11:30:00",
                "web",
                "onlyConcertina",
                &Value::Null,
                Some(7),
                "goes from 4 to 7: queue is above",
            ),
            change("11:20:00", "api", "different", &went(6), Some(5), "goes from 4 to 5: queue is above"),
            change("11:10:00", "web", "same", &went(6), Some(6), "goes from 4 to 6"),
            doubted,
            change("11:00:30", "web", "same", &went(6), Some(6), "goes from 4 to 6"),
        ])
    }

    fn plain(summary: &Summary) -> String {
        render(summary, Style { colours: false, width: None }, &Zone::utc())
    }

    #[test]
    fn report_shows_each_difference_with_both_reasons() {
        let text = plain(&Summary::new(&mixed(), DAY, None));
        let expected = "\
Not the same: of 5 changes in 18 h, 3 differ
2030-01-01 18:00:00Z to 2030-01-02 12:00:00Z, 3 HPAs, Concertina 0.1.0; running for 18 h only

Differences
  11:40:00Z shop/web a change by the built-in controller only
    built-in   4 → 6: queue 13750m; ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count
    dry run    stays at 4: queue <is> within tolerance
  11:30:00Z shop/web a change by the dry run only
    built-in   changed nothing: queue 13750m; ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count
    dry run    goes from 4 to 7: queue is above
  11:20:00Z shop/api another count
    built-in   4 → 6: queue 13750m; ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count
    dry run    goes from 4 to 5: queue is above
  both controllers must run with the same --horizontal-pod-autoscaler-… flags; the dry run has sync-period=15s tolerance=0.1 downscale-stabilization=5m0s cpu-initialization-period=5m0s initial-readiness-delay=30s

Not judged
  1 × the dry run could compute no count

NAMESPACE  HPA  SAME  DIFFERENT  NOT JUDGED
shop       web     2          2           -
shop       api     -          1           1
";
        assert_eq!(text, expected);
    }

    #[test]
    fn report_without_differences_starts_with_the_verdict() {
        let same = change("11:10:00", "web", "same", &went(6), Some(6), "goes from 4 to 6");
        let summary = Summary::new(&report(&[same.clone(), same]), Duration::from_hours(1), None);
        assert_eq!(summary.verdict, Answer::Same);
        let expected = "No differences: the built-in controller made 2 changes in 1 h that can be compared, and Concertina \
                    would have made each of them\n";
        assert!(plain(&summary).starts_with(expected), "{}", plain(&summary));
        assert!(!summary.is_younger);
    }

    #[test]
    fn report_without_changes_is_not_a_pass() {
        let summary = Summary::new(&report(&[]), DAY, None);
        assert_eq!(summary.verdict, Answer::Nothing);
        assert!(plain(&summary).starts_with("Nothing to compare: no replica count changed in 18 h\n"));
        let silent = ShadowReport { last_sign: None, ..report(&[]) };
        assert!(
            Summary::new(&silent, DAY, None)
                .sentence
                .contains("no write of a built-in controller was observed")
        );
    }

    #[test]
    fn summary_covers_the_time_span_and_the_namespace() {
        let counts =
            |minutes, namespace| Summary::new(&mixed(), Duration::from_mins(minutes), namespace).counts;
        assert_eq!((counts(45, None).differences(), counts(45, None).same), (3, 0));
        assert_eq!(counts(25, None).only_builtin, 1);
        assert_eq!(counts(24 * 60, Some("other")).total(), 0);
    }

    #[test]
    fn dropped_changes_are_counted_by_hour() {
        let mut report = mixed();
        report.changes.pop();
        let summary = Summary::new(&report, DAY, None);
        assert!(summary.is_by_hours);
        assert_eq!(
            (summary.counts.same, summary.from),
            (2, "2030-01-01T18:00:00Z".parse::<Timestamp>().unwrap())
        );
    }

    #[test]
    fn page_has_no_scripts_and_escapes_its_text() {
        let html = page::render(&Summary::new(&mixed(), DAY, None), &Zone::utc());
        assert!(html.contains("queue &lt;is&gt; within tolerance") && !html.contains("<is>"));
        assert!(html.contains("default-src 'none'") && !html.contains("<script"));
        assert!(html.contains("<h1 class=\"different\">Not the same: of 5 changes in 18 h, 3 differ</h1>"));
    }

    #[test]
    fn report_has_a_published_schema() {
        crate::schemas::check::<Summary>("parity-report");
    }
}
