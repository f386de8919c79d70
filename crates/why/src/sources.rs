//! What only the controller knows: the readings of a sync from the sources that a scaling policy names, and forecasts.

use engine::reconcile::{NO_SOURCES, SourceReading, SourceValue};
use journal::record::wire::DecisionList;

use super::Situation;
use super::from;
use policies::steps::CONDITION as ACTIVE;
use terminal::explain::{Line, Step};

/// Returns the situation from the controller's record if the controller read sources, which this command cannot reach,
/// or applied the floor of a forecast, whose history this command does not have. Otherwise returns `own`, with the
/// forecast of the record. `from` is the pod of the controller.
pub(super) fn of_controller(mut own: Situation, record: Option<&DecisionList>, from: &str) -> Situation {
    let last = record.and_then(|record| record.decisions.first());
    let forecast = last.and_then(|last| last.policy.as_ref()?.forecast.as_ref());
    let has_floor = forecast.is_some_and(|forecast| forecast.applies && forecast.floor.is_some());
    let reads = |_: &&DecisionList| {
        has_floor
            || last.is_some_and(|last| {
                last.sources.iter().any(|reading| reading.reason.as_deref() != Some(NO_SOURCES))
            })
    };
    if let Some(policy) = own.policy.as_mut().filter(|policy| policy.forecast.is_some()) {
        policy.forecast = forecast.cloned();
        // The condition of this command's own decision describes a forecast without a history.
        let status = own.hpa.as_ref().map(|hpa| hpa.status.conditions.as_slice()).unwrap_or_default();
        own.conditions.retain(|condition| condition.kind != ACTIVE);
        own.conditions.extend(status.iter().filter(|condition| condition.kind == ACTIVE).cloned());
    }
    let Some(record) = record.filter(reads) else { return own };
    let skew = own.skew.unwrap_or_default();
    let Ok(recorded) = from::situation(own.key.clone(), record, from, skew) else { return own };
    Situation {
        hpa: own.hpa,
        rules: own.rules,
        pods: own.pods,
        owners: own.owners,
        status_writer: own.status_writer,
        in_charge: own.in_charge,
        target: own.target,
        sharing: own.sharing,
        recent_events: own.recent_events,
        server_version: own.server_version,
        skew: own.skew,
        ..recorded
    }
}

/// Renders the source, the age and the numbers of each reading.
pub(super) fn step(situation: &Situation) -> Option<Step> {
    if situation.sources.is_empty() {
        return None;
    }
    let mut step = Step::new("Metric sources");
    for reading in &situation.sources {
        step.push(Line::new(reading.metric.clone()).plain(reading.source.as_str()));
        if let Some(age) = reading.age_seconds {
            step.push(Line::new("age").plain(format!("{age:.1} s, {}", numbers(reading))));
        }
        if let Some(problem) = &reading.problem {
            let line = Line::new("problem");
            step.push(if reading.age_seconds.is_some() {
                line.warn(problem.as_str())
            } else {
                line.bad(problem.as_str())
            });
        }
    }
    Some(step)
}

/// Formats the numbers of a reading: `3 numbers: web-1 2, web-2 4.5, …`.
fn numbers(reading: &SourceReading) -> String {
    let shown = |SourceValue { pod, value }: &SourceValue| match pod {
        Some(pod) => format!("{pod} {value}"),
        None => value.to_string(),
    };
    let mut values: Vec<String> = reading.values.iter().map(shown).collect();
    if reading.numbers > values.len() {
        values.push("…".to_owned());
    }
    match reading.numbers {
        0 => "no number".to_owned(),
        1 => format!("1 number: {}", values.join(", ")),
        count => format!("{count} numbers: {}", values.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use policies::steps::PolicyEffect;
    use serde_json::json;

    use super::*;
    use crate::findings::findings;
    use crate::render;
    use crate::scene::{Scene, pods_metric};
    use crate::situation::{Recorded, Situation, Source};
    use terminal::explain::Style;

    fn reading(age_seconds: Option<f64>, reason: Option<&str>, problem: Option<&str>) -> SourceReading {
        let values = age_seconds.map(|_| SourceValue { pod: Some("web-1".to_owned()), value: 2.5 });
        SourceReading {
            metric: "waiting".to_owned(),
            source: "prometheus \"main\", query \"sum(waiting)\"".to_owned(),
            age_seconds,
            numbers: values.iter().len() * 12,
            values: values.into_iter().collect(),
            reason: reason.map(str::to_owned),
            problem: problem.map(str::to_owned),
        }
    }

    fn situation(reading: SourceReading) -> Situation {
        let mut situation = Scene::cpu(5, 400).situation();
        situation.sources = vec![reading];
        situation
    }

    fn codes(reading: SourceReading) -> Vec<&'static str> {
        findings(&situation(reading)).iter().map(|finding| finding.code.as_str()).collect()
    }

    #[test]
    fn each_state_of_a_source_has_its_finding() {
        for (age, reason, problem, expected) in [
            (Some(0.4), None, None, None),
            (Some(90.0), None, None, Some("stale-source")),
            (Some(0.4), Some("Timeout"), Some("pod web-2: no complete response"), Some("incomplete-source")),
            (None, Some("TooOld"), Some("the number is 40 s old"), Some("stale-source")),
            (None, Some("Request"), Some("the server answers 503"), Some("failed-source")),
            (None, Some("NotAllowed"), Some("no such server"), Some("absent-source")),
            (None, Some(NO_SOURCES), Some("--metric-sources is not set"), Some("absent-source")),
        ] {
            assert_eq!(codes(reading(age, reason, problem)), Vec::from_iter(expected), "{reason:?} {age:?}");
        }
    }

    #[test]
    fn source_with_query_age_and_numbers_is_shown() {
        let mut shown = situation(reading(Some(0.42), Some("Timeout"), Some("pod web-2: late")));
        shown.source = Source::Cluster { watching_since: None, record: Recorded::NotRequested };
        let text = render::whole(&shown, &[], Style::default(), &terminal::explain::Zone::local(true), true);
        for line in [
            "Metric sources",
            "prometheus \"main\", query \"sum(waiting)\"",
            "0.4 s, 12 numbers: web-1 2.5, …",
            "pod web-2: late",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    /// Returns the record of a decision about [`Scene::cpu`] with fields.
    fn record(own: &Situation, fields: &serde_json::Value) -> DecisionList {
        let controller = json!({
            "version": "0.1.0", "syncPeriod": "15s",
            "settings": {"emulatedVersion": "1.37", "tolerance": 0.1, "downscaleStabilization": "5m0s",
                "cpuInitializationPeriod": "5m0s", "initialReadinessDelay": "30s",
                "featureGates": {"HPAScaleToZero": true, "HPAGeneration": true, "HPAConfigurableTolerance": true}},
        });
        let mut entry = json!({
            "firstAt": own.at, "lastAt": own.at, "syncs": 1, "sentence": "stays", "action": "none",
            "limitingStep": null, "winner": null, "from": 5, "to": 5, "outcome": "notNeeded",
            "explanation": own.explanation,
        });
        entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "concertina/v1", "kind": "DecisionList", "controller": controller, "now": own.at,
            "metadata": {"namespace": "shop", "name": "web", "uid": "a"},
            "history": {"recommendations": [], "scaleUps": [], "scaleDowns": []}, "decisions": [entry],
        }))
        .unwrap()
    }

    #[test]
    fn forecast_is_that_of_the_controller() {
        let report = |applies: bool, floor: Option<i32>| {
            json!({"applies": applies, "state": "Pays", "floor": floor, "candidate": "", "reason": "", "band": null,
                "benefit": null})
        };
        let mut own = Scene::cpu(5, 400).situation();
        let without_history = serde_json::from_value(report(false, None)).unwrap();
        own.policy = Some(PolicyEffect { forecast: Some(without_history), ..PolicyEffect::default() });
        let of = |record: Option<&DecisionList>| of_controller(own.clone(), record, "pod x");
        let recorded = |applies| {
            let policy = json!({"recommended": 5, "applied": 5, "steps": [], "problems": "",
                "forecast": report(applies, Some(9))});
            record(&own, &json!({"sources": [], "policy": policy}))
        };
        let floor = |situation: &Situation| {
            situation.policy.as_ref().and_then(|policy| policy.forecast.as_ref()?.floor)
        };
        let preview = of(Some(&recorded(false)));
        assert_eq!(floor(&preview), Some(9));
        assert!(matches!(preview.source, Source::Cluster { .. }), "a floor in preview decides nothing");
        let applied = of(Some(&recorded(true)));
        assert_eq!(floor(&applied), Some(9));
        assert!(matches!(applied.source, Source::Record { .. }));
        assert!(of(None).policy.is_some_and(|policy| policy.forecast.is_none()));
    }

    #[test]
    fn record_of_a_controller_that_reads_sources_keeps_the_object_as_read() {
        let own = Scene::cpu(5, 400).situation();
        let record = |sources: serde_json::Value| record(&own, &json!({"sources": sources}));
        let read = record(json!([reading(Some(0.4), None, None)]));
        let situation = of_controller(own.clone(), Some(&read), "pod x");
        assert!(matches!(situation.source, Source::Record { .. }));
        assert_eq!(situation.hpa.map(|hpa| hpa.key.clone()), Some(own.key.clone()));
        assert_eq!((situation.pods.len(), situation.sources.len()), (own.pods.len(), 1));
        let absent = record(json!([reading(None, Some(NO_SOURCES), Some("--metric-sources is not set"))]));
        assert!(matches!(of_controller(own.clone(), Some(&absent), "pod x").source, Source::Cluster { .. }));
    }

    #[test]
    fn failed_source_is_reported_once() {
        let failed = reading(None, Some("Request"), Some("the server answers 503"));
        let mut shown = Scene::cpu(5, 200).and(pods_metric("waiting", "30"), Err("prometheus")).situation();
        shown.sources = vec![failed];
        let codes: Vec<_> = findings(&shown).iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(codes, ["failed-source"]);
    }
}
