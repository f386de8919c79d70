//! The windows of `burst` as a step of the answer.

use policies::burst::{BurstStep, BurstWindow};
use policies::steps::Step as PolicyStep;

use super::Situation;
use crate::explain::{Line, Step};

/// Renders both windows and the step that set the proposal.
pub(super) fn step(situation: &Situation) -> Option<Step> {
    let steps = situation.policy.iter().flat_map(|policy| &policy.steps);
    let burst = steps.into_iter().find_map(|step| match step {
        PolicyStep::Burst(burst) => Some(burst),
        _ => None,
    })?;
    let BurstStep { metric, target_milli, ready, stable, panic, reference, replicas, .. } = burst;
    let mut step = Step::new("Burst");
    let (target, mode) = (unit(*target_milli), if burst.is_panic() { "panic" } else { "stable" });
    step.push(Line::new("metric").plain(format!("{metric}, {target} for each of {ready} ready pods")));
    for (name, window) in [("stable", stable), ("panic", panic)] {
        let BurstWindow { average_milli, seconds, replicas } = window;
        let average = unit(*average_milli);
        step.push(Line::new(name).plain(format!("{average} over {seconds} s asks for {replicas}")));
    }
    let instead = if reference == replicas { String::new() } else { format!(" instead of {reference}") };
    step.push(
        Line::new("proposal")
            .strong(format!("{replicas}{instead}"))
            .plain(format!(", in {mode} mode, by {}", burst.limit_text())),
    );
    Some(step)
}

/// An amount in milli-units, as a number of units.
fn unit(milli: i64) -> f64 {
    milli as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{Style, Zone};
    use crate::why::render;
    use crate::why::scene::Scene;
    use policies::steps::PolicyEffect;

    #[test]
    fn windows_of_a_burst_are_shown() {
        let step: BurstStep = serde_json::from_value(serde_json::json!({
            "metric": "queue", "targetMilli": 10_000, "ready": 4, "reference": 9, "replicas": 12,
            "stable": {"averageMilli": 42_500, "seconds": 60, "replicas": 5},
            "panic": {"averageMilli": 120_000, "seconds": 6, "replicas": 12},
            "mode": {"panic": {"since": 1, "lastOver": 2, "highest": 12}}, "limit": {"panic": "none"},
        }))
        .unwrap();
        let mut situation = Scene::cpu(4, 400).situation();
        let steps = vec![PolicyStep::Burst(step)];
        situation.policy = Some(PolicyEffect { steps, ..PolicyEffect::default() });
        let text = render::whole(&situation, &[], Style::default(), &Zone::local(true));
        for line in [
            "queue, 10 for each of 4 ready pods",
            "42.5 over 60 s asks for 5",
            "120 over 6 s asks for 12",
            "12 instead of 9, in panic mode, by the panic window",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
