//! How a decision came about, as steps of labelled lines.

use autoscaling::explanation::{Explanation, MetricExplanation};

use super::super::text;

/// One step: its title and lines, each with a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) title: String,
    pub(super) lines: Vec<(String, String)>,
}

/// The steps of a decision.
pub(super) fn steps(explanation: &Explanation) -> Vec<Step> {
    let mut steps = Vec::new();
    for metric in &explanation.metrics {
        let lines = match metric {
            MetricExplanation::Valid(reading) => vec![
                (
                    "ratio".to_owned(),
                    format!(
                        "{}, tolerated {} to {}",
                        text::number(reading.ratio),
                        text::number(reading.lowest_tolerated),
                        text::number(reading.highest_tolerated)
                    ),
                ),
                ("asks for".to_owned(), reading.proposal.to_string()),
            ],
            MetricExplanation::Failed(failed) => vec![("failed".to_owned(), failed.error.to_string())],
        };
        steps.push(Step { title: metric.subject().to_string(), lines });
    }
    if let Some(step) = &explanation.stabilization {
        let window = ("window".to_owned(), format!("{} s for shrinking", step.down_window_seconds));
        let lines = vec![window, ("count".to_owned(), format!("{} → {}", step.before, step.after))];
        steps.push(Step { title: "Stabilization".to_owned(), lines });
    }
    if let Some(step) = &explanation.limit {
        let lines = vec![("count".to_owned(), format!("{} → {}", step.before, step.after))];
        steps.push(Step { title: "Rate and bounds".to_owned(), lines });
    }
    steps
}
