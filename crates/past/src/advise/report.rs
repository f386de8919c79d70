//! The answer as a document and as text, and the patches.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::findings::Finding;
use super::objects::Hpa;
use super::outcome::{Advised, Choice, Refusal};
use super::rates;
use super::recording::Load;
use super::search::Proposal;
use terminal::values::{set, text};
use terminal::words::{counted, number, percent, terminal};

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AdviceReport"))]
pub(crate) struct Report {
    api_version: &'static str,
    kind: &'static str,
    /// The start of the past.
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    from: Timestamp,
    /// The end of the past.
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    to: Timestamp,
    /// What could not be read, and what that prevents.
    lacked: Vec<String>,
    totals: Totals,
    /// The HPAs with an advice, the most valuable first, then the others by name.
    pub(crate) hpas: Vec<Row>,
}

/// The sums over all HPAs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AdviceTotals"))]
struct Totals {
    hpas: usize,
    /// The HPAs that need fewer pods.
    saved: Sum,
    /// The HPAs that need more pods for less unserved load. The hours are negative.
    spent: Sum,
}

/// The saved hours per week of some HPAs.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AdviceSum"))]
struct Sum {
    hpas: usize,
    /// Pod-hours in the fitted part.
    predicted_pod_hours: f64,
    /// Pod-hours in the judged part.
    judged_pod_hours: f64,
    /// Requested core-hours in the judged part.
    judged_core_hours: f64,
}

impl Sum {
    fn add(&mut self, row: &Row, advised: &Advised) {
        let judged = advised.judged.saved();
        self.hpas += 1;
        self.predicted_pod_hours += advised.fitted.saved();
        self.judged_pod_hours += judged;
        self.judged_core_hours += judged * row.request.unwrap_or_default();
    }

    fn rounded(self) -> Self {
        let rounded = |hours: f64| (hours * 10.0).round() / 10.0;
        Self {
            hpas: self.hpas,
            predicted_pod_hours: rounded(self.predicted_pod_hours),
            judged_pod_hours: rounded(self.judged_pod_hours),
            judged_core_hours: rounded(self.judged_core_hours),
        }
    }
}

/// An HPA.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AdvisedHpa"))]
pub(crate) struct Row {
    /// `metadata.namespace`.
    pub(crate) namespace: String,
    /// `metadata.name`.
    pub(crate) name: String,
    /// The scale target, as `Kind/name`.
    target: String,
    /// The settings of today. `None` if they cannot be replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) today: Option<Choice>,
    /// The advice. `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<Proposal>,
    /// The external metric. `None` for cpu.
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<String>,
    /// The `averageValue` of cpu in cores or of the external metric, if the target is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    average_value: Option<Changed>,
    /// The reason against an advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<Refusal>,
    /// The reason as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    findings: Vec<Finding>,
    /// The cpu request of a pod in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<f64>,
    /// The known days since the last rollout.
    days: f64,
}

/// A target per pod, as a quantity.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AdvisedAverageValue"))]
struct Changed {
    today: String,
    /// `None` without an advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    advised: Option<String>,
}

impl Changed {
    fn new(value: f64, advice: Option<&Proposal>, request: Option<f64>) -> Self {
        let quantity = |value: f64| match value {
            whole if whole.fract() == 0.0 => whole.to_string(),
            value => format!("{}m", (value * 1000.0).round()),
        };
        let advised = advice
            .zip(request)
            .map(|(advice, request)| quantity(f64::from(advice.advised.settings.target) / 100.0 * request));
        Self { today: quantity(value), advised }
    }
}

impl Row {
    pub(crate) fn new(
        hpa: &Hpa,
        outcome: Result<Proposal, Refusal>,
        findings: Vec<Finding>,
        load: Option<&Load>,
    ) -> Self {
        let (advice, refused) = match outcome {
            Ok(advice) => (Some(advice), None),
            Err(refusal) => (None, Some(refusal)),
        };
        let today = hpa.today.as_ref().ok();
        let average_value = today.and_then(|today| today.average_value);
        let request = load.map(|load| load.request);
        Self {
            namespace: hpa.namespace.clone(),
            name: hpa.name.clone(),
            target: format!("{}/{}", hpa.kind, hpa.target),
            // Without requests, a value has no target in percent.
            today: today.map(|today| today.choice).filter(|choice| choice.target > 0),
            metric: today.and_then(|today| today.external.as_ref()).map(|external| external.name.clone()),
            average_value: average_value.map(|value| Changed::new(value, advice.as_ref(), request)),
            advice,
            why: refused.as_ref().map(ToString::to_string),
            refused,
            findings,
            request: load.and_then(Load::cores).map(|request| (request * 1000.0).round() / 1000.0),
            days: load.map_or(0.0, |load| (load.days() * 10.0).round() / 10.0),
        }
    }

    /// The value of the advice in pod-hours per week: the saved pods, or the served load of an HPA that is short.
    pub(crate) fn value(&self) -> f64 {
        let Some(Proposal { advised: Advised { judged, .. }, .. }) = &self.advice else { return 0.0 };
        let served = judged.today.unserved_ppm - judged.advised.unserved_ppm;
        judged.saved() + served.max(0.0) * 1e-6 * 100.0 * judged.today.pod_hours_a_week
    }

    /// `namespace/name`, escaped.
    pub(crate) fn title(&self) -> String {
        terminal(&format!("{}/{}", self.namespace, self.name)).into_owned()
    }
}

impl Report {
    /// Creates the answer. The rows are sorted.
    pub(crate) fn new(from: Timestamp, to: Timestamp, lacked: Vec<String>, mut rows: Vec<Row>) -> Self {
        rows.sort_by(|a, b| {
            let is_refused = |row: &Row| row.advice.is_none();
            let by_value = b.value().total_cmp(&a.value());
            let by_name = (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name));
            is_refused(a).cmp(&is_refused(b)).then(by_value).then(by_name)
        });
        let (mut saved, mut spent) = (Sum::default(), Sum::default());
        for (row, advice) in rows.iter().filter_map(|row| Some((row, row.advice.as_ref()?))) {
            let sum = if advice.advised.fitted.saved() > 0.0 { &mut saved } else { &mut spent };
            sum.add(row, &advice.advised);
        }
        let totals = Totals { hpas: rows.len(), saved: saved.rounded(), spent: spent.rounded() };
        Self { api_version: "concertina/v1", kind: "AdviceReport", from, to, lacked, totals, hpas: rows }
    }

    /// The answer for a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let advised: Vec<(&Row, &Proposal)> =
            self.hpas.iter().filter_map(|row| Some((row, row.advice.as_ref()?))).collect();
        if !advised.is_empty() {
            let width = advised.iter().map(|(row, _)| row.title().chars().count()).max().unwrap_or(0).max(3);
            let _ = writeln!(
                text,
                "{:<width$}  {:>9}  {:>13}  {:>11}  {:>9}  {:>10}  {:>15}  {:<6}",
                "HPA", "target %", "replicas", "window s", "predicted", "judged", "unserved ppm", "sure"
            );
            for (row, advice) in &advised {
                let _ = writeln!(text, "{:<width$}  {}", row.title(), advice.cells(row));
            }
            text.push_str("predicted and judged: pod-hours saved per week in the first 70 % and the last 30 % of the time\n");
        }
        let Totals { hpas, saved, spent } = &self.totals;
        let _ = write!(
            text,
            "\nOf {}, {} can save {} pod-hours per week ({} core-hours; predicted {})",
            counted(*hpas, "HPA"),
            saved.hpas,
            number(saved.judged_pod_hours),
            number(saved.judged_core_hours),
            number(saved.predicted_pod_hours)
        );
        if spent.hpas > 0 {
            let _ = write!(
                text,
                ",\nand {} can serve better for {} pod-hours more (predicted {})",
                spent.hpas,
                number(-spent.judged_pod_hours),
                number(-spent.predicted_pod_hours)
            );
        }
        text.push('\n');
        self.refusals(&mut text);
        let found = self.hpas.iter().flat_map(|row| row.findings.iter().map(move |found| (row, found)));
        let found: Vec<String> = found
            .map(|(row, found)| format!("  {}: {}\n", row.title(), terminal(&found.to_string())))
            .collect();
        if !found.is_empty() {
            let _ = write!(text, "\nAlso seen:\n{}", found.concat());
        }
        for lacked in &self.lacked {
            let _ = writeln!(text, "\nLacked: {}", terminal(lacked));
        }
        text
    }

    /// The HPAs without an advice. Those that are right are only counted.
    fn refusals(&self, text: &mut String) {
        let refused = self.hpas.iter().filter_map(|row| Some((row, row.refused.as_ref()?)));
        let (right, others): (Vec<_>, Vec<_>) =
            refused.partition(|(_, refusal)| matches!(refusal, Refusal::AlreadyRight { .. }));
        if !right.is_empty() {
            let are = if right.len() == 1 { "has" } else { "have" };
            let _ = writeln!(text, "{} {are} the right settings", counted(right.len(), "HPA"));
        }
        if !others.is_empty() {
            let _ = writeln!(text, "\nNo advice for {}:", counted(others.len(), "HPA"));
        }
        for (row, refusal) in others {
            let _ = writeln!(text, "  {}: {}", row.title(), terminal(&refusal.to_string()));
        }
    }
}

/// An advice in words: settings as they are, or as `today→advised`.
struct Words {
    target: String,
    replicas: String,
    window: String,
    unserved: String,
    /// What the row of a table has after its cells: other rates, and what a floor saves.
    more: Vec<String>,
}

impl Words {
    fn new(row: &Row, advice: &Proposal) -> Self {
        let changed = |from: String, to: String| if from == to { from } else { format!("{from}→{to}") };
        let Advised { settings: to, judged, .. } = &advice.advised;
        let today = row.today.unwrap_or(*to);
        let replicas = |choice: &Choice| format!("{}-{}", choice.min_replicas, choice.max_replicas);
        let window = |choice: &Choice| choice.scale_down_window_seconds.to_string();
        let mut more = Vec::new();
        for (direction, rates) in [("scale-ups", to.scale_up_rates), ("scale-downs", to.scale_down_rates)] {
            if !rates.are_kept() {
                more.push(format!("{direction} at the default rates"));
            }
        }
        more.extend(advice.with_floor.as_ref().map(|floor| {
            format!(
                "with a floor: target {} %, {} saved",
                floor.settings.target,
                percent(floor.judged.saved_share())
            )
        }));
        Self {
            target: match &row.average_value {
                Some(Changed { today, advised: Some(advised) }) => changed(today.clone(), advised.clone()),
                _ => changed(today.target.to_string(), to.target.to_string()),
            },
            replicas: changed(replicas(&today), replicas(to)),
            window: changed(window(&today), window(to)),
            unserved: changed(number(judged.today.unserved_ppm), number(judged.advised.unserved_ppm)),
            more,
        }
    }
}

impl Proposal {
    /// The cells of a table.
    fn cells(&self, row: &Row) -> String {
        let Words { target, replicas, window, unserved, more } = Words::new(row, self);
        let Advised { fitted, judged, .. } = &self.advised;
        format!(
            "{target:>9}  {replicas:>13}  {window:>11}  {:>9}  {:>10}  {unserved:>15}  {:<6}{}",
            number(fitted.saved()),
            number(judged.saved()),
            self.sureness.as_str(),
            more.iter().flat_map(|more| ["  ", more.as_str()]).collect::<String>(),
        )
    }

    /// The advice as sentences.
    pub(crate) fn sentences(&self, row: &Row) -> String {
        let Words { target, replicas, window, unserved, more } = Words::new(row, self);
        let Advised { fitted, judged, .. } = &self.advised;
        let unit = if row.average_value.is_some() { "" } else { " %" };
        format!(
            "Target {target}{unit}, replicas {replicas}, window {window} s: {} {} pod-hours per week (predicted \
             {}), with {unserved} ppm of the load unserved. Sureness: {}{}. After the change, look at {}.",
            if judged.saved() < 0.0 { "costs" } else { "saves" },
            number(judged.saved().abs()),
            number(fitted.saved().abs()),
            self.sureness.as_str(),
            more.iter().flat_map(|more| ["; ", more.as_str()]).collect::<String>(),
            self.look_at
        )
    }
}

/// The file names and the texts of the patches.
pub(crate) fn patches(report: &Report, hpas: &[Hpa]) -> BTreeMap<String, String> {
    let patch = |row: &Row| {
        let advice = row.advice.as_ref()?;
        let hpa = hpas.iter().find(|hpa| hpa.namespace == row.namespace && hpa.name == row.name)?;
        let value = row.average_value.as_ref().and_then(|value| value.advised.as_deref());
        let patch = patch(&hpa.metrics, row.today?, advice.advised.settings, value);
        let patch = serde_saphyr::to_string(&patch).ok()?;
        let name = format!("{}_{}.yaml", row.namespace, row.name);
        let command =
            format!("kubectl patch hpa {} -n {} --type merge --patch-file {name}", row.name, row.namespace);
        Some((name, format!("# {command}\n# Then look at {}.\n{patch}", advice.look_at)))
    };
    report.hpas.iter().filter_map(patch).collect()
}

/// A merge patch with the changed fields. A merge patch replaces lists, so it has all metrics. `value` is the target if
/// it is a value.
fn patch(metrics: &Value, today: Choice, to: Choice, value: Option<&str>) -> Value {
    let mut patch = json!({});
    let mut change = |path: &str, is_changed: bool, value: Value| {
        if is_changed {
            set(&mut patch, path, Some(value));
        }
    };
    change("/spec/minReplicas", to.min_replicas != today.min_replicas, to.min_replicas.into());
    change("/spec/maxReplicas", to.max_replicas != today.max_replicas, to.max_replicas.into());
    let mut metrics = metrics.clone();
    let cpu = metrics.as_array_mut().into_iter().flatten();
    let cpu = cpu.filter(|metric| text(metric, "/resource/name") == "cpu");
    let field = if value.is_some() { "averageValue" } else { "averageUtilization" };
    let field = format!("/resource/target/{field}");
    for target in cpu.filter_map(|metric| metric.pointer_mut(&field)) {
        *target = value.map_or_else(|| to.target.into(), Value::from);
    }
    change("/spec/metrics", to.target != today.target, metrics);
    change(
        "/spec/behavior/scaleDown/stabilizationWindowSeconds",
        to.scale_down_window_seconds != today.scale_down_window_seconds,
        to.scale_down_window_seconds.into(),
    );
    let is_changed = to.scale_down_rates != today.scale_down_rates;
    change("/spec/behavior/scaleDown/selectPolicy", is_changed, "Max".into());
    change("/spec/behavior/scaleDown/policies", is_changed, rates::scale_down_policies_in_patch());
    let is_changed = to.scale_up_rates != today.scale_up_rates;
    change("/spec/behavior/scaleUp", is_changed, rates::scale_up_in_patch());
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::rates::Rates;

    #[test]
    fn patch_has_the_changed_fields_and_all_metrics() {
        let today = Choice {
            target: 60,
            min_replicas: 8,
            max_replicas: 20,
            scale_down_window_seconds: 300,
            scale_up_rates: Rates::Kept,
            scale_down_rates: Rates::Kept,
        };
        let metric = |name: &str, percent: i32| {
            json!({"type": "Resource", "resource": {
                "name": name, "target": {"type": "Utilization", "averageUtilization": percent}}})
        };
        let metrics = json!([metric("memory", 70), metric("cpu", 60)]);
        let to = Choice { target: 70, scale_down_window_seconds: 60, ..today };
        let spec = json!({
            "metrics": [metric("memory", 70), metric("cpu", 70)],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
        });
        assert_eq!(patch(&metrics, today, to, None), json!({ "spec": spec }));
        let to = Choice { min_replicas: 4, max_replicas: 40, ..today };
        let expected = json!({"spec": {"minReplicas": 4, "maxReplicas": 40}});
        assert_eq!(patch(&metrics, today, to, None), expected);
        let rates = Choice { scale_up_rates: Rates::Default, scale_down_rates: Rates::Default, ..today };
        let rate = |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 15});
        let expected = json!({"spec": {"behavior": {
            "scaleUp": {
                "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                "policies": [rate("Pods", 4), rate("Percent", 100)],
            },
            "scaleDown": {"selectPolicy": "Max", "policies": [rate("Percent", 100)]},
        }}});
        assert_eq!(patch(&metrics, today, rates, None), expected);
        let metric = |value: &str| {
            json!([{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "AverageValue", "averageValue": value}}}])
        };
        let to = Choice { target: 70, ..today };
        let expected = json!({"spec": {"metrics": metric("350m")}});
        assert_eq!(patch(&metric("300m"), today, to, Some("350m")), expected);
    }
}
