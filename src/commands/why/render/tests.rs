use serde_json::json;

use super::*;
use crate::commands::why::findings::findings;
use crate::commands::why::scene::{self, Scene, starting, usages};
use crate::commands::why::situation::{FieldManager, FlagUse};

fn berlin() -> Zone {
    Zone::new(jiff::tz::TimeZone::fixed(jiff::tz::offset(2)))
}

fn told(situation: &Situation, style: Style) -> String {
    let unknown =
        vec!["the flags of the running controller: the defaults are assumed where none is given".to_owned()];
    whole(situation, &findings(situation), &unknown, style, &berlin())
}
const NARROW: Style = Style { colours: false, width: Some(80) };

fn all() -> Vec<(&'static str, Situation)> {
    let behavior = || {
        json!({
            "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 100, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 300, "selectPolicy": "Min", "policies": [
                {"type": "Percent", "value": 10, "periodSeconds": 60}, {"type": "Pods", "value": 1, "periodSeconds": 300}]},
        })
    };
    let mut starting_pods = Scene::cpu(6, 500);
    for (place, name) in [(3, "web-4"), (4, "web-5")] {
        starting_pods.pods[place] = starting(name);
    }
    starting_pods.pods[5].terminating = true;
    starting_pods.answers = vec![Some(Ok(usages(&starting_pods.pods, 900)))];
    let mut missing = Scene::cpu(6, 200);
    missing.answers = vec![Some(Ok(usages(&missing.pods[..4], 200)))];
    let mut zero = Scene::cpu(0, 400);
    zero.scale = Ok((0, 0));
    let mut gone = Scene::cpu(5, 400);
    gone.scale = Err("deployments.apps \"web\" not found".to_owned());
    let mut norequest = Scene::cpu(5, 400);
    norequest.pods[1] = scene::pod("web-2", None);
    let above = Scene::cpu(12, 400);
    vec![
        ("steady", Scene::cpu(5, 410).situation()),
        ("window", Scene::cpu(5, 200).recommended(&[(290, 5), (250, 4), (200, 4), (10, 3)]).situation()),
        (
            "policy",
            Scene::cpu(5, 1200).behavior(behavior()).recommended(&[(400, 5)]).added(&[(40, 2)]).situation(),
        ),
        ("slow down", {
            let mut s = Scene::cpu(10, 100).behavior(behavior()).recommended(&[(400, 5)]);
            s.spec["maxReplicas"] = json!(40);
            s.situation()
        }),
        ("starting", starting_pods.situation()),
        ("missing", missing.situation()),
        (
            "two",
            Scene::cpu(5, 430)
                .and(
                    scene::external_metric("jobs", &json!({"type":"AverageValue","averageValue":"30"})),
                    Ok(scene::external("440")),
                )
                .situation(),
        ),
        (
            "fails",
            Scene::cpu(5, 200)
                .and(
                    scene::pods_metric("requests_per_second", "30"),
                    Err("the server could not find the metric requests_per_second for pods"),
                )
                .situation(),
        ),
        ("zero", zero.situation()),
        ("gone", gone.situation()),
        ("norequest", norequest.situation()),
        ("above", above.situation()),
        ("max", Scene::cpu(10, 600).situation()),
    ]
}

#[test]
fn look() {
    for (name, situation) in all() {
        println!("=================== {name}\n{}", told(&situation, NARROW));
    }
    let rows: Vec<(Situation, Vec<Finding>)> = all()
        .into_iter()
        .map(|(name, mut situation)| {
            situation.key.name = name.into();
            let found = findings(&situation);
            (situation, found)
        })
        .collect();
    println!("{}", table(&rows, NARROW));
}
