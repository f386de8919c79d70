//! The choice among the proposals of metrics: corrections, fallbacks, then `combine`.
//!
//! If no rule changes the result, the reference decides.

use std::fmt;
use std::sync::Arc;

use autoscaling::Choice;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::{PolicyHistory, matching};
use crate::metrics::{MetricState, Outcome};
use crate::spec::{Cause, Combine, Fallback, FallbackAction, PolicySpec, Strategy};

/// The choice among the proposals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chosen {
    /// The choice. `None` leaves it to the reference.
    pub choice: Option<Choice>,
    /// The fallbacks that apply.
    pub fallbacks: Vec<FallbackStep>,
    /// The corrected proposals.
    pub corrections: Vec<CorrectionStep>,
    /// The effect of `combine: Min`.
    pub combined: Option<CombineStep>,
}

/// A fallback that applies to a failed metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FallbackStep {
    /// The metric.
    pub metric: Arc<str>,
    /// The cause.
    pub cause: Cause,
    /// The time of the first failure.
    pub since: Timestamp,
    /// The action.
    pub action: FallbackAction,
    /// The count that the metric proposes. `None` if the metric is ignored.
    pub proposal: Option<i32>,
}

/// A proposal that differs from the reference's proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CorrectionStep {
    /// The metric.
    pub metric: Arc<str>,
    /// The proposal of the reference.
    pub from: i32,
    /// The corrected proposal.
    pub to: i32,
}

/// The effect of `combine: Min`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CombineStep {
    /// The highest proposal.
    pub highest: i32,
    /// The chosen proposal.
    pub chosen: i32,
    /// A failed metric, whose proposal might have been the lowest. The count stays.
    pub failed: Option<Arc<str>>,
}

impl fmt::Display for FallbackStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { metric, cause, since, action, proposal } = self;
        let state = match cause {
            Cause::Error => "has failed",
            Cause::Empty => "has had no value",
        };
        write!(f, "{metric} {state} since {since}, so ")?;
        match (action, proposal) {
            (FallbackAction::Ignore, _) | (_, None) => write!(f, "the other metrics decide"),
            (FallbackAction::Hold, Some(count)) => write!(f, "it proposes the current count {count}"),
            (FallbackAction::LastValue, Some(count)) => write!(f, "it proposes {count} as before"),
            (FallbackAction::Replicas(..), Some(count)) => write!(f, "it proposes {count}"),
        }
    }
}

impl fmt::Display for CorrectionStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { metric, from, to } = self;
        write!(f, "{metric} is within tolerance, so it proposes spec.replicas {to} instead of {from}")
    }
}

impl fmt::Display for CombineStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { highest, chosen, failed } = self;
        match failed {
            None => write!(f, "the lowest proposal {chosen} is chosen, the highest is {highest}"),
            Some(metric) => {
                write!(f, "{metric} failed and may propose the lowest count, so the count stays at {chosen}")
            }
        }
    }
}

/// A proposal, with the index of its metric unless it comes from a fallback.
struct Proposal {
    replicas: i32,
    winner: Option<usize>,
    name: Arc<str>,
}

/// Chooses among the proposals of the metrics. `history` contains this sync ([`PolicyHistory::observe`]).
pub fn choose(
    policy: &PolicySpec,
    current: i32,
    states: &[MetricState],
    history: &PolicyHistory,
    now: Timestamp,
) -> Chosen {
    let fallbacks = policy.fallback.as_deref().unwrap_or_default();
    let corrects = policy.corrections.average_value_within_tolerance.unwrap_or(false);
    let mut chosen = Chosen::default();
    let mut proposals = Vec::new();
    let mut failed = None;
    for (index, state) in states.iter().enumerate() {
        match state.outcome {
            Outcome::Proposal { replicas, .. } => {
                let mut to = replicas;
                if corrects && state.keeps_status_replicas && replicas != current {
                    to = current;
                    let metric = Arc::clone(&state.subject);
                    chosen.corrections.push(CorrectionStep { metric, from: replicas, to });
                }
                let name = Arc::clone(&state.label);
                proposals.push(Proposal { replicas: to, winner: Some(index), name });
            }
            Outcome::Failed(cause) => match fallback(fallbacks, state, cause, current, history, now) {
                None => failed = failed.or(Some(&state.subject)),
                Some(step) => {
                    if let Some(replicas) = step.proposal {
                        let name = format!("the fallback of {}", state.subject).into();
                        proposals.push(Proposal { replicas, winner: None, name });
                    }
                    chosen.fallbacks.push(step);
                }
            },
        }
    }
    let Some(highest) = proposals.iter().map(|proposal| proposal.replicas).max() else {
        // Failed and ignored metrics alone determine no count.
        return chosen;
    };
    let is_lowest = policy.combine.unwrap_or_default() == Combine::Min;
    if is_lowest && let Some(metric) = failed {
        let step = CombineStep { highest, chosen: current, failed: Some(Arc::clone(metric)) };
        let name = "combine: Min".into();
        chosen.combined = Some(step);
        chosen.choice = Some(Choice { replicas: current, winner: None, name });
        return chosen;
    }
    let best = if is_lowest {
        proposals.iter().min_by_key(|proposal| proposal.replicas)
    } else {
        // The first of equal proposals wins, as in the reference.
        proposals.iter().rev().max_by_key(|proposal| proposal.replicas)
    };
    let Some(Proposal { replicas, winner, name }) = best else { return chosen };
    if is_lowest && *replicas != highest {
        chosen.combined = Some(CombineStep { highest, chosen: *replicas, failed: None });
    }
    // As in the reference, a failed metric without a fallback prevents a scale-down.
    let is_prevented = failed.is_some() && *replicas < current;
    let is_changed = !chosen.fallbacks.is_empty()
        || !chosen.corrections.is_empty()
        || chosen.combined.is_some()
        || states.iter().any(|state| state.is_replaced);
    if is_changed && !is_prevented {
        let name = Arc::clone(name);
        chosen.choice = Some(Choice { replicas: *replicas, winner: *winner, name });
    }
    chosen
}

/// The effect of the fallback of a failed metric. `None` before the duration of the fallback has elapsed.
fn fallback(
    fallbacks: &[Fallback],
    state: &MetricState,
    cause: Cause,
    current: i32,
    history: &PolicyHistory,
    now: Timestamp,
) -> Option<FallbackStep> {
    let fallback = matching(fallbacks, &state.name, cause)?;
    let metric = history.metrics.get(&state.key);
    let since = metric.and_then(|metric| metric.failing).map_or(now, |(since, _)| since);
    if now.duration_since(since) < SignedDuration::from_secs(fallback.failure_duration_seconds.into()) {
        return None;
    }
    let proposal = match fallback.action {
        FallbackAction::Hold => Some(current),
        FallbackAction::Ignore => None,
        FallbackAction::Replicas(replicas, Strategy::Static) => Some(replicas),
        FallbackAction::Replicas(replicas, Strategy::AtLeast) => Some(replicas.max(current)),
        FallbackAction::Replicas(replicas, Strategy::AtMost) => Some(replicas.min(current)),
        // Without an earlier proposal the count stays, as with Hold.
        FallbackAction::LastValue => Some(metric.and_then(|metric| metric.last_proposal).unwrap_or(current)),
    };
    let metric = Arc::clone(&state.subject);
    Some(FallbackStep { metric, cause, since, action: fallback.action, proposal })
}

#[cfg(test)]
mod tests;
