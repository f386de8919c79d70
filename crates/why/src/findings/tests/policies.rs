use ::policies::resolve::{ActiveMode, apply};
use ::policies::spec::Mode;
use ::policies::steps::{PolicyEffect, Step};

use super::*;

/// Adds a mode of a scaling policy to a situation.
fn under(mut situation: Situation, mode: Mode) -> Situation {
    let mode = ActiveMode { mode: Some(mode), replicas: 0, until: None };
    let (current, recommended) = (situation.explanation.current, situation.explanation.desired);
    let (applied, step) = apply(&mode, current, recommended);
    let steps = step.map(Step::Mode).into_iter().collect();
    situation.policy = Some(PolicyEffect { recommended, applied, steps, ..Default::default() });
    situation
}

#[test]
fn policy_that_withholds_pods_is_found() {
    let paused = under(Scene::cpu(5, 600).situation(), Mode::Paused);
    assert_eq!(paused.sentence(), "stays at 5: paused; the metrics ask for 8");
    check(vec![(
        paused,
        FindingId::PolicyHolds,
        Severity::Warning,
        "the scaling policy applies 5 instead of 8: paused; the metrics ask for 8",
    )]);
    let steady = under(Scene::cpu(5, 400).situation(), Mode::Paused);
    assert_eq!(steady.sentence(), "stays at 5: cpu is at its target of 80 %");
    assert_eq!(findings(&steady), []);
}

/// Adds a forecast to a situation.
fn with_forecast(mut situation: Situation, applies: bool, avoided: i64) -> Situation {
    let forecast = json!({
        "applies": applies, "state": "Pays", "floor": 12, "candidate": "", "reason": "", "band": null,
        "benefit": {"avoided": avoided, "short": 46, "addedPermille": 11},
    });
    let forecast = serde_json::from_value(forecast).unwrap();
    situation.policy = Some(PolicyEffect { forecast: Some(forecast), ..Default::default() });
    situation
}

#[test]
fn floor_that_pays_and_is_only_shown_is_found() {
    check(vec![(
        with_forecast(Scene::cpu(5, 400).situation(), false, 41),
        FindingId::ForecastPays,
        Severity::Info,
        "in the last eight days, the floor of the forecast would have avoided 41 of 46 pod-minutes of shortage for \
         1.1 % more pods, but the mode is Preview",
    )]);
    for (applies, avoided) in [(true, 41), (false, 0)] {
        assert_eq!(findings(&with_forecast(Scene::cpu(5, 400).situation(), applies, avoided)), []);
    }
}
