use autoscaling::explanation::Course;
use serde_json::json;

use super::*;
use crate::commands::story::{Style, Zone, steps, terminal};
use crate::commands::why::scene::{self, Scene};

fn told(scene: Scene) -> Vec<String> {
    let situation = scene.situation();
    let found = counterfactual(&situation).unwrap();
    let step = found.step(&situation.explanation, situation.at, &Zone::utc());
    step.map(|step| step.lines.iter().map(|line| format!("{}: {}", line.label, line.text())).collect())
        .unwrap_or_default()
}

#[test]
fn look() {
    let scenes = vec![
        Scene::cpu(5, 430),
        Scene::cpu(5, 200),
        Scene::cpu(5, 600),
        Scene::cpu(10, 600),
        Scene::cpu(2, 10),
        Scene::cpu(2, 0),
        Scene::cpu(5, 200).recommended(&[(290, 5), (250, 4), (200,4), (10, 3)]),
        Scene::cpu(5, 900).behavior(json!({"scaleUp": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}, "scaleDown": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}})).recommended(&[(400, 5)]).added(&[(40, 2)]),
        Scene::cpu(5, 300).behavior(json!({"scaleDown": {"selectPolicy": "Disabled", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}, "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]}})).recommended(&[(400, 5)]),
        Scene::cpu(5, 430).and(scene::external_metric("jobs", &json!({"type":"AverageValue","averageValue":"30"})), Ok(scene::external("140"))),
        Scene::cpu(5, 200).and(scene::external_metric("jobs", &json!({"type":"AverageValue","averageValue":"30"})), Err("the server could not find the metric jobs for ")),
        Scene::jobs(5, &json!({"type":"Value","value":"100"}), "104"),
        Scene::jobs(5, &json!({"type":"AverageValue","averageValue":"30"}), "160"),
    ];
    for scene in scenes {
        let situation = scene.situation();
        println!("\n== web {}", situation.sentence());
        let zone = Zone::utc();
        let mut all = steps(&situation.explanation, situation.at, &zone);
        all.extend(counterfactual(&situation).unwrap().step(&situation.explanation, situation.at, &zone));
        println!("{}", terminal(&all, Style { colours: false, width: Some(100) }));
    }
}
