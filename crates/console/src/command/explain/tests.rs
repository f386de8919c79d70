use super::*;
use why::situation;

#[path = "../../../../why/src/scene.rs"]
#[expect(dead_code, reason = "some scenes are for the tests of `why`")]
mod scene;

use self::scene::Scene;

/// Returns the text of each marked line of a scene, and the effect of its field.
fn marked(scene: Scene) -> Vec<(String, String)> {
    let situation = scene.situation();
    let object = object(&situation).unwrap();
    let yaml = serde_saphyr::to_string(&object).unwrap();
    let lines: Vec<_> = yaml.lines().collect();
    let text = |mark: Mark| (lines[usize::try_from(mark.line).unwrap() - 1].trim().to_owned(), mark.why);
    marks(&situation, &object, &yaml).into_iter().map(text).collect()
}

fn texts(marked: &[(String, String)]) -> Vec<(&str, &str)> {
    marked.iter().map(|(line, why)| (line.as_str(), why.as_str())).collect()
}

#[test]
fn limits_of_the_decision_are_marked() {
    // 10 pods that use 900m of a request of 500m each, with a target of 80 %.
    let at_maximum = marked(Scene::cpu(10, 900));
    assert_eq!(
        texts(&at_maximum),
        [("maxReplicas: 10", "the count stops at 10"), ("averageUtilization: 80", "the metrics ask for 23")]
    );
    let window = json!({"scaleDown": {"stabilizationWindowSeconds": 300, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}});
    let held = marked(Scene::cpu(8, 200).recommended(&[(100, 8)]).behavior(window));
    assert_eq!(
        texts(&held),
        [
            ("stabilizationWindowSeconds: 300", "the scale-down window holds the count"),
            ("averageUtilization: 80", "the metrics ask for 4")
        ]
    );
    let rate = json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]}});
    let limited = marked(Scene::cpu(4, 800).behavior(rate));
    assert_eq!(
        texts(&limited),
        [
            ("value: 50", "this rate allows 6"),
            ("selectPolicy: Max", "selects among the rates"),
            ("averageUtilization: 80", "the metrics ask for 8")
        ]
    );
}

#[test]
fn unreadable_metric_and_scale_are_marked() {
    let mut failed = Scene::cpu(4, 400);
    failed.answers = vec![Some(Err(scene::query_error("no metrics known for pod")))];
    assert_eq!(texts(&marked(failed)), [("averageUtilization: 80", "this metric cannot be read")]);
    let mut missing = Scene::cpu(4, 400);
    missing.scale = Err("deployments.apps \"web\" not found".to_owned());
    assert_eq!(texts(&marked(missing)), [("name: web", "the scale of this target cannot be read")]);
}
