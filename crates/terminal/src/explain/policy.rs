//! The step of a scaling policy.

use policies::steps::PolicyEffect;

use super::{Line, Step};

/// Renders the effect of the scaling policy: its steps, the count that is applied, the next change, and fields without
/// effect.
pub fn policy_step(effect: &PolicyEffect) -> Step {
    let PolicyEffect { recommended, applied, steps, problems, next, forecast } = effect;
    let mut step = Step::new("Scaling policy");
    if steps.is_empty() {
        step.push(Line::new("").plain("changes nothing at the moment"));
    }
    step.lines.extend(steps.iter().map(|step| Line::new(step.reason().as_str()).plain(step.to_string())));
    if let Some(applied) = applied.filter(|_| applied != recommended) {
        let instead = recommended.map(|count| format!(" instead of {count}")).unwrap_or_default();
        step.push(Line::new("applied").strong(format!("{applied}{instead}")));
    }
    if let Some(forecast) = forecast {
        let mode = if forecast.applies { "" } else { "preview, " };
        step.push(Line::new("forecast").plain(format!("{mode}{}", forecast.reason)));
    }
    if let Some(next) = next {
        step.push(Line::new("next change").plain(format!("{next} at {}", next.at)));
    }
    if !problems.is_empty() {
        step.push(Line::new("no effect").warn(problems.as_str()));
    }
    step
}
