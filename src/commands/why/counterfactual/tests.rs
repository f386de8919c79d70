use serde_json::json;

use super::*;
use crate::commands::story::Zone;
use crate::commands::why::scene::{Scene, external, external_metric, pods_metric, starting, usage, usages};

fn told(situation: &Situation) -> Vec<String> {
    let found = counterfactual(situation).unwrap();
    let step = found.step(&situation.explanation, situation.at, &Zone::utc());
    let lines = step.map(|step| step.lines).unwrap_or_default();
    lines.iter().map(|line| format!("{}: {}", line.label, line.text())).collect()
}

/// The same for a past in which everything that was wanted is long gone.
fn free(scene: Scene) -> Situation {
    scene.recommended(&[(1000, 1)]).situation()
}

fn rules() -> serde_json::Value {
    json!([{"type": "Percent", "value": 100, "periodSeconds": 15}, {"type": "Pods", "value": 4, "periodSeconds": 15}])
}

#[test]
fn a_metric_within_tolerance_has_a_value_above_and_one_below() {
    assert_eq!(
        told(&Scene::cpu(5, 430).situation()),
        [
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 86 %)",
            // 65 % is below the tolerance, but rounded up still asks for 5.
            "for 4: cpu at most 64 % of request (320m of 500m per pod; now 86 %) for 5 min",
        ]
    );
}

#[test]
fn a_value_is_told_without_a_wait_if_no_window_holds() {
    let lines = told(&free(Scene::cpu(5, 430)));
    assert_eq!(lines[1], "for 4: cpu at most 64 % of request (320m of 500m per pod; now 86 %)");
}

#[test]
fn a_window_that_holds_lets_go_at_a_time() {
    let scene = Scene::cpu(5, 200).recommended(&[(290, 5), (200, 4), (10, 3)]);
    assert_eq!(
        told(&scene.situation()),
        [
            "for 4: wait until 12:01:20Z (in 10 s), when the scale-down window lets go, if the metrics stay as they are",
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 40 %)",
        ]
    );
}

#[test]
fn a_window_for_growing_asks_for_patience() {
    let behavior = json!({"scaleUp": {"stabilizationWindowSeconds": 120, "policies": rules()}, "scaleDown": {"policies": rules()}});
    let steady = Scene::cpu(5, 400).behavior(behavior.clone()).recommended(&[(100, 5), (50, 5)]);
    assert_eq!(
        told(&steady.situation())[0],
        "for 6: cpu above 88 % of request (440m of 500m per pod; now 80 %) for 2 min"
    );
    let held = Scene::cpu(5, 600).behavior(behavior).recommended(&[(100, 5), (50, 8)]).situation();
    assert_eq!(
        told(&held)[0],
        "for 8: wait until 12:01:30Z (in 20 s), when the scale-up window lets go, if the metrics stay as they are"
    );
    assert!(told(&held).iter().all(|line| !line.contains("above")), "{:?}", told(&held));
}

#[test]
fn a_policy_that_is_used_up_frees_at_a_time() {
    let policy = json!([{"type": "Pods", "value": 2, "periodSeconds": 60}]);
    let behavior = json!({"scaleUp": {"policies": policy}, "scaleDown": {"policies": rules()}});
    let scene = Scene::cpu(5, 900).behavior(behavior).recommended(&[(400, 5)]).added(&[(40, 2)]);
    assert_eq!(
        told(&scene.situation())[0],
        "for 7: wait until 12:01:30Z (in 20 s), when the scale-up policies allow more, if the metrics stay as they are"
    );
}

#[test]
fn a_bound_is_a_field_to_be_changed() {
    assert_eq!(
        told(&Scene::cpu(10, 600).situation()),
        [
            "for 9: cpu at most 71 % of request (355m of 500m per pod; now 120 %) for 5 min",
            "for 15: spec.maxReplicas 15 or more (it is 10)",
        ]
    );
    assert_eq!(
        told(&free(Scene::cpu(2, 100))),
        [
            "for 3: cpu above 88 % of request (440m of 500m per pod; now 20 %)",
            "for 1: spec.minReplicas 1 or less (it is 2)",
        ]
    );
    assert_eq!(
        told(&Scene::cpu(10, 400).situation())[0],
        "for 9: cpu at most 71 % of request (355m of 500m per pod; now 80 %) for 5 min"
    );
    assert_eq!(
        told(&Scene::cpu(10, 400).situation())[1],
        "for more: no value of a metric adds a pod: maxReplicas is 10"
    );
}

#[test]
fn a_direction_that_is_switched_off_can_be_switched_on() {
    let down = json!({"selectPolicy": "Disabled", "policies": rules()});
    let behavior = json!({"scaleUp": {"policies": rules()}, "scaleDown": down});
    assert_eq!(
        told(&free(Scene::cpu(5, 300).behavior(behavior))),
        [
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 60 %)",
            "for 4: spec.behavior.scaleDown.selectPolicy Max or Min (it is Disabled)",
        ]
    );
}

#[test]
fn any_metric_adds_pods_but_all_must_agree_to_remove_one() {
    let jobs = || external_metric("jobs", &json!({"type": "AverageValue", "averageValue": "30"}));
    assert_eq!(
        told(&Scene::cpu(5, 430).and(jobs(), Ok(external("140"))).situation()),
        [
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 86 %)",
            "for 6: jobs above 165 in all, that is 33 per pod (now 28 per pod)",
            "for 4: cpu at most 64 % of request (320m of 500m per pod; now 86 %) and jobs at most 120 in all, that is 24 \
             per pod (now 28 per pod), both for 5 min",
        ]
    );
    // The one that asks for less already is in nobody's way.
    assert_eq!(
        told(&free(Scene::cpu(5, 430).and(jobs(), Ok(external("20")))))[2],
        "for 4: cpu at most 64 % of request (320m of 500m per pod; now 86 %)"
    );
}

#[test]
fn a_metric_that_fails_must_be_readable_again() {
    let scene = Scene::cpu(5, 200).and(pods_metric("requests", "30"), Err("no such metric"));
    assert_eq!(
        told(&scene.situation()),
        [
            "needed: requests must be readable",
            "for 6: cpu above 88 % of request (440m of 500m per pod; now 40 %)",
            "for fewer: no value of a metric removes a pod: while a metric cannot be read, nothing is scaled down",
        ]
    );
}

#[test]
fn a_decision_that_changes_the_count_says_what_would_have_kept_it() {
    assert_eq!(
        told(&Scene::cpu(5, 600).situation()),
        ["to stay 5: cpu at most 88 % of request (440m of 500m per pod; now 120 %)"]
    );
    assert_eq!(
        told(&free(Scene::cpu(5, 200))),
        ["to stay 5: cpu at least 65 % of request (325m of 500m per pod; now 40 %)"]
    );
}

#[test]
fn a_metric_that_shows_nothing_has_a_value_above_all_the_same() {
    assert_eq!(
        told(&free(Scene::cpu(2, 0)))[0],
        "for 3: cpu above 88 % of request (440m of 500m per pod; now 0 %)"
    );
    let jobs = Scene::jobs(2, &json!({"type": "Value", "value": "100"}), "0");
    assert_eq!(told(&free(jobs))[0], "for 3: jobs above 110 (now 0)");
}

#[test]
fn courses_without_metrics_have_their_own_changes() {
    let mut missing = Scene::cpu(5, 400);
    missing.scale = Err("not found".to_owned());
    assert_eq!(told(&missing.situation()), ["needed: the target must exist, and its scale be readable"]);
    assert_eq!(told(&Scene::cpu(12, 400).situation()), ["for 12: spec.maxReplicas 12 or more (it is 10)"]);
    assert_eq!(told(&Scene::cpu(1, 400).situation()), ["for 1: spec.minReplicas 1 or less (it is 2)"]);
}

#[test]
fn what_was_not_decided_from_is_not_guessed() {
    let mut recorded = Scene::cpu(5, 430).situation();
    recorded.hpa = None;
    recorded.metrics.clear();
    assert_eq!(counterfactual(&recorded), None);
    // Samples of another moment do not give this decision.
    let mut other = Scene::cpu(5, 900).situation();
    other.explanation.desired = Some(5);
    assert_eq!(counterfactual(&other), None);
}

/// Each value is tried: at the last of the same result nothing changes, at the first of another everything is as told.
#[test]
fn every_value_holds_when_it_comes_true() {
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
                    // Where the change lies within one percent, the next percent is beyond it in any case.
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
fn a_value_counts_the_pods_that_do_not_count() {
    // A pod that is not ready counts with nothing: the others must show more.
    let mut scene = Scene::cpu(3, 400);
    scene.pods[2] = starting("web-3");
    scene.answers = vec![Some(Ok(autoscaling::query::Answer::Resource(
        ["web-1", "web-2", "web-3"].map(|name| usage(name, 400)).into(),
    )))];
    assert_eq!(told(&free(scene))[0], "for 4: cpu above 133 % of request (665m of 500m per pod; now 80 %)");
}
