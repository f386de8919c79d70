mod tried;

use serde_json::json;

use super::*;
use crate::scene::{Scene, external, external_metric, pods_metric, starting, usage, usages};
use crate::situation::Source;
use terminal::explain::Zone;

fn lines(situation: &Situation) -> Vec<String> {
    let found = counterfactual(situation).unwrap();
    let step = found.step(&situation.explanation, situation.at, &Zone::utc());
    let lines = step.map(|step| step.lines).unwrap_or_default();
    lines.iter().map(|line| format!("{}: {}", line.label, line.text())).collect()
}

/// Creates a situation in which all recommendations have expired.
fn free(scene: Scene) -> Situation {
    scene.recommended(&[(1000, 1)]).situation()
}

fn rules() -> serde_json::Value {
    json!([{"type": "Percent", "value": 100, "periodSeconds": 15}, {"type": "Pods", "value": 4, "periodSeconds": 15}])
}

#[test]
fn metric_within_tolerance_has_two_thresholds() {
    assert_eq!(
        lines(&Scene::cpu(5, 430).situation()),
        [
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 86 %)",
            // 65 % is below the tolerance, but the proposal is rounded up to 5.
            "for 4: cpu at most 64 % of request (320m of 500m per pod; now 86 %) for 5 min",
        ]
    );
}

#[test]
fn threshold_has_no_duration_without_a_window() {
    let lines = lines(&free(Scene::cpu(5, 430)));
    assert_eq!(lines[1], "for 4: cpu at most 64 % of request (320m of 500m per pod; now 86 %)");
}

#[test]
fn window_expires_at_a_time() {
    let scene = Scene::cpu(5, 200).recommended(&[(290, 5), (200, 4), (10, 3)]);
    assert_eq!(
        lines(&scene.situation()),
        [
            "for 4: wait until 12:01:20Z (in 10 s), when the scale-down window expires, if the metrics stay as they are",
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 40 %)",
        ]
    );
}

#[test]
fn scale_up_window_requires_a_duration() {
    let behavior = json!({"scaleUp": {"stabilizationWindowSeconds": 120, "policies": rules()}, "scaleDown": {"policies": rules()}});
    let steady = Scene::cpu(5, 400).behavior(behavior.clone()).recommended(&[(100, 5), (50, 5)]);
    assert_eq!(
        lines(&steady.situation())[0],
        "for 6: cpu above 88 % of request (440m of 500m per pod; now 80 %) for 2 min"
    );
    let held = Scene::cpu(5, 600).behavior(behavior).recommended(&[(100, 5), (50, 8)]).situation();
    assert_eq!(
        lines(&held)[0],
        "for 8: wait until 12:01:30Z (in 20 s), when the scale-up window expires, if the metrics stay as they are"
    );
    assert!(lines(&held).iter().all(|line| !line.contains("above")), "{:?}", lines(&held));
}

#[test]
fn exhausted_policy_allows_more_at_a_time() {
    let policy = json!([{"type": "Pods", "value": 2, "periodSeconds": 60}]);
    let behavior = json!({"scaleUp": {"policies": policy}, "scaleDown": {"policies": rules()}});
    let scene = Scene::cpu(5, 900).behavior(behavior).recommended(&[(400, 5)]).added(&[(40, 2)]);
    assert_eq!(
        lines(&scene.situation())[0],
        "for 7: wait until 12:01:30Z (in 20 s), when the scale-up policies allow more, if the metrics stay as they are"
    );
}

#[test]
fn bound_is_a_field_to_change() {
    assert_eq!(
        lines(&Scene::cpu(10, 600).situation()),
        [
            "for 9: cpu at most 71 % of request (355m of 500m per pod; now 120 %) for 5 min",
            "for 15: spec.maxReplicas 15 or more (it is 10)",
        ]
    );
    assert_eq!(
        lines(&free(Scene::cpu(2, 100))),
        [
            "for 3: cpu above 88 % of request (440m of 500m per pod; now 20 %)",
            "for 1: spec.minReplicas 1 or less (it is 2)",
        ]
    );
    assert_eq!(
        lines(&Scene::cpu(10, 400).situation())[0],
        "for 9: cpu at most 71 % of request (355m of 500m per pod; now 80 %) for 5 min"
    );
    assert_eq!(
        lines(&Scene::cpu(10, 400).situation())[1],
        "for more: no metric value adds a pod: maxReplicas is 10"
    );
}

#[test]
fn disabled_direction_can_be_enabled() {
    let down = json!({"selectPolicy": "Disabled", "policies": rules()});
    let behavior = json!({"scaleUp": {"policies": rules()}, "scaleDown": down});
    assert_eq!(
        lines(&free(Scene::cpu(5, 300).behavior(behavior))),
        [
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 60 %)",
            "for 4: spec.behavior.scaleDown.selectPolicy Max or Min (it is Disabled)",
        ]
    );
}

#[test]
fn one_metric_adds_pods_but_all_must_agree_to_remove_one() {
    let jobs = || external_metric("jobs", &json!({"type": "AverageValue", "averageValue": "30"}));
    assert_eq!(
        lines(&Scene::cpu(5, 430).and(jobs(), Ok(external("140"))).situation()),
        [
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 86 %)",
            "for 6: jobs above 165 in total, that is 33 per pod (now 28 per pod)",
            "for 4: cpu at most 64 % of request (320m of 500m per pod; now 86 %) and jobs at most 120 in total, that is 24 \
             per pod (now 28 per pod), both for 5 min",
        ]
    );
    // A metric with a lower proposal does not prevent the change.
    assert_eq!(
        lines(&free(Scene::cpu(5, 430).and(jobs(), Ok(external("20")))))[2],
        "for 4: cpu at most 64 % of request (320m of 500m per pod; now 86 %)"
    );
}

#[test]
fn failed_metric_must_be_readable() {
    let scene = Scene::cpu(5, 200).and(pods_metric("requests", "30"), Err("no such metric"));
    assert_eq!(
        lines(&scene.situation()),
        [
            "needed: requests must be readable",
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 40 %)",
            "for fewer: no metric value removes a pod: while a metric cannot be read, nothing is scaled down",
        ]
    );
}

#[test]
fn change_of_the_count_has_values_that_would_keep_it() {
    assert_eq!(
        lines(&Scene::cpu(5, 600).situation()),
        ["to stay 5: cpu at most 88 % of request (440m of 500m per pod; now 120 %)"]
    );
    assert_eq!(
        lines(&free(Scene::cpu(5, 200))),
        ["to stay 5: cpu at least 65 % of request (325m of 500m per pod; now 40 %), but at most 88 %"]
    );
}

#[test]
fn metric_at_zero_has_a_threshold() {
    assert_eq!(
        lines(&free(Scene::cpu(2, 0)))[0],
        "for 3: cpu above 88 % of request (440m of 500m per pod; now 0 %)"
    );
    let jobs = Scene::jobs(2, &json!({"type": "Value", "value": "100"}), "0");
    assert_eq!(lines(&free(jobs))[0], "for 3: jobs above 110 (now 0)");
}

#[test]
fn decisions_without_metrics_have_their_own_changes() {
    let mut missing = Scene::cpu(5, 400);
    missing.scale = Err("not found".to_owned());
    assert_eq!(
        lines(&missing.situation()),
        ["needed: the target must exist, and its scale must be readable"]
    );
    assert_eq!(lines(&Scene::cpu(12, 400).situation()), ["for 12: spec.maxReplicas 12 or more (it is 10)"]);
    assert_eq!(lines(&Scene::cpu(1, 400).situation()), ["for 1: spec.minReplicas 1 or less (it is 2)"]);
}

#[test]
fn missing_inputs_have_no_counterfactual() {
    let mut recorded = Scene::cpu(5, 430).situation();
    recorded.hpa = None;
    recorded.metrics.clear();
    assert_eq!(counterfactual(&recorded), None);
    // A record has no samples, even if the HPA was read.
    let mut recorded = Scene::cpu(5, 430).situation();
    recorded.source = Source::Record {
        url: "pod x".to_owned(),
        read_at: recorded.at,
        since: recorded.at,
        syncs: 1,
        version: "0.1.0".to_owned(),
    };
    assert_eq!(counterfactual(&recorded), None);
    // Samples from another time do not reproduce this decision.
    let mut other = Scene::cpu(5, 900).situation();
    other.explanation.desired = Some(5);
    assert_eq!(counterfactual(&other), None);
}

/// Decides at each threshold: `last` keeps the result, and `first` gives the announced count.
#[test]
fn every_threshold_gives_the_announced_count() {
    let at = |replicas: usize, percent: i32, missing: usize| {
        let mut scene = Scene::cpu(replicas, i64::from(percent) * 5);
        scene.spec["maxReplicas"] = json!(20);
        let with_sample = scene.pods.len() - missing;
        scene.answers = vec![Some(Ok(usages(&scene.pods[..with_sample], i64::from(percent) * 5)))];
        free(scene)
    };
    let mut tried = 0;
    for replicas in 2..12 {
        for percent in [1, 30, 64, 70, 79, 80, 81, 88, 89, 130, 400] {
            for missing in [0, 1] {
                let situation = at(replicas, percent, missing);
                let now = situation.explanation.desired;
                for change in counterfactual(&situation).unwrap().changes {
                    let (Change::Metrics { direction, thresholds, to, .. }
                    | Change::Keep { direction, thresholds, to }) = change
                    else {
                        continue;
                    };
                    let [Threshold { last: Measure::Percent(last), first: Measure::Percent(first), .. }] =
                        thresholds[..]
                    else {
                        panic!("one metric in percent: {thresholds:?}");
                    };
                    // If both values have the same percentage, the result differs at the next percentage.
                    let onwards = if direction == Direction::Up { 1 } else { -1 };
                    let aside = if last == first { onwards } else { 0 };
                    let desired = |percent| at(replicas, percent, missing).explanation.desired;
                    let case = (replicas, percent, missing, last, first);
                    assert_eq!(desired(first + aside), Some(to), "{case:?}");
                    assert_eq!(desired(last - aside) == Some(to), now == Some(to), "{case:?}");
                    assert!(last == first || last + onwards == first, "{case:?}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 250, "{tried}");
}

#[test]
fn threshold_includes_unready_pods() {
    // An unready pod is assumed to use nothing, so the ready pods must use more.
    let mut scene = Scene::cpu(3, 400);
    scene.pods[2] = starting("web-3");
    scene.answers = vec![Some(Ok(autoscaling::query::Answer::Resource(
        ["web-1", "web-2", "web-3"].map(|name| usage(name, 400)).into(),
    )))];
    assert_eq!(
        lines(&free(scene))[0],
        "for 4: cpu at least 668m of 500m per pod, that is 133 % of request (now 80 %)"
    );
}

/// Adds the policy of an annotation with the value `text`, and its effect with `steps`, to a situation.
fn with_policy(mut situation: Situation, text: &str, steps: Vec<policies::steps::Step>) -> Situation {
    let parsed = policies::spec::parse(text, policies::spec::Level::Annotation);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let source = policies::merge::Source {
        level: policies::spec::Level::Annotation,
        name: "".into(),
        created: None,
        parsed: std::sync::Arc::new(parsed),
    };
    let policy = std::sync::Arc::new(policies::merge::Policy::merge(vec![source]));
    let rules = policies::resolve::resolve(&policy, situation.at);
    let next = rules.next_change(&policies::history::PolicyHistory::default(), situation.at);
    let recommended = situation.explanation.desired;
    let (applied, mode) = policies::resolve::apply(&rules.mode, situation.explanation.current, recommended);
    let steps = mode.map(policies::steps::Step::Mode).into_iter().chain(steps).collect();
    situation.rules = Some(std::sync::Arc::new(rules));
    let problems = String::new();
    situation.policy =
        Some(policies::steps::PolicyEffect { recommended, applied, steps, problems, next, forecast: None });
    situation
}

#[test]
fn next_change_of_a_policy_states_the_count_after_it() {
    let situation = Scene::cpu(5, 900).situation();
    let desired = situation.explanation.desired;
    let at = situation.at + jiff::SignedDuration::from_hours(1);
    let last = |situation: &Situation| counterfactual(situation).unwrap().changes.pop().unwrap();
    let change = |what: &str, to| Change::Policy { at, what: what.to_owned(), to };
    let until = with_policy(situation.clone(), &format!("{{mode: Paused, until: {at}}}"), Vec::new());
    assert_eq!(last(&until), change("the mode Paused ends", desired));
    let ceiling =
        format!("schedules: [{{name: night, from: {at}, to: 2100-01-01T00:00:00Z, maxReplicas: 3}}]");
    let ceiling = with_policy(situation.clone(), &ceiling, Vec::new());
    assert_eq!(last(&ceiling), change("a schedule changes the bounds", Some(3)));
    // The later effect of steps other than modes and schedules is unknown.
    let step =
        policies::choice::IgnoredContainersStep { resource: "cpu".into(), containers: Vec::new(), pods: 5 };
    let guarded = format!("{{mode: Paused, until: {at}}}");
    let guarded = with_policy(situation, &guarded, vec![policies::steps::Step::IgnoredContainers(step)]);
    assert_eq!(last(&guarded), change("the mode Paused ends", None));
}

#[test]
fn paused_hpa_has_no_thresholds() {
    let paused = with_policy(Scene::cpu(5, 600).situation(), "{mode: Paused}", Vec::new());
    assert_eq!(paused.decided().count(), Some(5));
    assert_eq!(
        lines(&paused),
        [
            "for more: no metric value adds a pod: the scaling policy prevents it",
            "for fewer: no metric value removes a pod: the scaling policy prevents it",
        ]
    );
    let upwards = with_policy(free(Scene::cpu(5, 400)), "{mode: ScaleUpOnly}", Vec::new());
    assert_eq!(
        lines(&upwards),
        [
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 80 %)",
            "for fewer: no metric value removes a pod: the scaling policy prevents it",
        ]
    );
}

#[test]
fn unready_pods_hold_the_count_of_a_value_target() {
    let mut scene = Scene::jobs(6, &json!({"type": "Value", "value": "100"}), "300");
    scene.pods = (1..=6).map(|number| starting(&format!("web-{number}"))).collect();
    let scene = scene.recommended(&[(100, 6)]);
    let lines = lines(&scene.situation());
    assert!(
        lines.iter().any(|line| line
            == "for more: no metric value adds a pod: too many pods have no sample or are not ready"),
        "{lines:?}"
    );
}

/// A cpu near zero, which the printed percentage shows as 0 %.
#[test]
fn idle_cpu_has_the_threshold_of_its_tolerance() {
    for milli in [0, 1, 2, 4, 5] {
        let lines = lines(&free(Scene::cpu(2, milli)));
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("for 3: cpu above 88 % of request (440m of 500m per pod")),
            "{milli}: {lines:?}"
        );
    }
}

/// Moves the usage to each threshold: the count changes at the threshold, and not one milli-unit before it.
#[test]
fn count_changes_at_each_threshold_and_not_before() {
    let at = |replicas: usize, milli: i64, missing: usize, unready: usize| {
        let mut scene = Scene::cpu(replicas, milli);
        scene.spec["maxReplicas"] = json!(30);
        for number in 0..unready {
            scene.pods[number] = starting(&format!("web-{}", number + 1));
        }
        let with_sample = scene.pods.len() - missing;
        scene.answers = vec![Some(Ok(usages(&scene.pods[..with_sample], milli)))];
        free(scene)
    };
    let (mut tried, mut exact) = (0, 0);
    for replicas in 3..9 {
        for milli in [0, 1, 2, 4, 7, 150, 263, 322, 399, 401, 447, 631, 1203] {
            for (missing, unready) in [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (1, 1)] {
                let situation = at(replicas, milli, missing, unready);
                let now = situation.explanation.desired;
                for change in counterfactual(&situation).unwrap().changes {
                    let (Change::Metrics { direction, thresholds, to, .. }
                    | Change::Keep { direction, thresholds, to }) = change
                    else {
                        continue;
                    };
                    let [
                        Threshold {
                            last: Measure::Percent(last), first: Measure::Percent(first), usage, ..
                        },
                    ] = thresholds[..]
                    else {
                        panic!("one metric in percent: {thresholds:?}");
                    };
                    let desired = |milli| at(replicas, milli, missing, unready).explanation.desired;
                    let of = |percent: i32| i64::from(percent) * 5;
                    let (there, before) = match (usage, direction) {
                        (Some(usage), Direction::Up) => (usage, usage - 1),
                        (Some(usage), Direction::Down) => (usage, usage + 1),
                        // Utilization is rounded down to whole percent.
                        (None, Direction::Up) => (of(first), of(last) + 4),
                        (None, Direction::Down) => (of(first) + 4, of(last)),
                    };
                    let case = (replicas, milli, missing, unready, direction, there, before);
                    assert_eq!(desired(there), Some(to), "{case:?}");
                    assert_eq!(desired(before) == Some(to), now == Some(to), "{case:?}");
                    tried += 1;
                    exact += usize::from(usage.is_some());
                }
            }
        }
    }
    println!("{tried} thresholds, {exact} of them within one percent");
    assert!(tried > 400 && exact > 20, "{tried} {exact}");
}

/// Twice as many pods count as `spec.replicas`, so the count rises below the tolerance and stays within it.
#[test]
fn pods_beyond_the_replicas_make_the_count_turn() {
    let at = |percent: i64| {
        let mut scene = Scene::cpu(8, percent * 5);
        scene.scale = Ok((4, 8));
        scene.spec["maxReplicas"] = json!(40);
        lines(&free(scene))
    };
    assert_eq!(
        at(60),
        [
            "to stay 4: cpu at most 40 % of request (200m of 500m per pod; now 60 %), but at least 31 %",
            "to stay 4: cpu at least 72 % of request (360m of 500m per pod; now 60 %), but at most 88 %",
        ]
    );
    assert_eq!(
        at(80),
        [
            "for 8: cpu above 88 % of request (440m of 500m per pod; now 80 %)",
            "for 8: cpu at most 71 % of request (355m of 500m per pod; now 80 %), but at least 41 %",
            "for 3: cpu at most 30 % of request (150m of 500m per pod; now 80 %)",
        ]
    );
}
