//! The condition and the events of a policy.

use std::sync::Arc;

use autoscaling::condition::ConditionUpdate;
use autoscaling::event::{EventIntent, EventKind};
use autoscaling::status::{Condition, Status};
use autoscaling::{Conclusion, Hpa};
use jiff::Timestamp;

pub use policies::steps::CONDITION as ACTIVE;
use policies::steps::PolicyEffect;

/// The reason of the event about fields without effect.
pub const INVALID: &str = "InvalidScalingPolicy";
/// The reason of the condition if no step has an effect.
const INACTIVE: &str = "NoEffect";
/// The reason of the event if no step has an effect any more.
const ENDED: &str = "ScalingPolicyInactive";
/// Maximum bytes of a message.
const MAX_MESSAGE: usize = 1024;

/// Adds the condition and the events of a policy to a conclusion. `effect`: `None` after the end of the last policy
/// of the HPA. `reports_problems`: whether the problems are new.
pub(crate) fn publish(
    conclusion: &mut Conclusion,
    hpa: &Hpa<'_>,
    effect: Option<&PolicyEffect>,
    reports_problems: bool,
    now: Timestamp,
) {
    let before = find(&hpa.status.conditions);
    let previous = conclusion.status.clone();
    let mut status: Status = previous.map_or_else(|| hpa.status.clone(), |status| (*status).clone());
    let mut event = |kind, reason: &'static str, message: String| {
        conclusion.events.push(EventIntent { kind, reason, message: cut(message) });
    };
    match effect {
        None => {
            status.conditions.retain(|condition| condition.kind != ACTIVE);
            if before.is_some_and(|condition| condition.status == "True") {
                event(EventKind::Normal, ENDED, "the HPA has no scaling policy any more".to_owned());
            }
        }
        Some(effect) => {
            let first = effect.steps.first();
            let reason = first.map_or(INACTIVE, |step| step.reason().as_str());
            let mut message = effect
                .sentence()
                .unwrap_or_else(|| "the scaling policy changes nothing at the moment".to_owned());
            if !effect.problems.is_empty() {
                message.push_str("; without effect: ");
                message.push_str(&effect.problems);
            }
            let was_active = before.is_some_and(|condition| condition.status == "True");
            if before.is_none_or(|condition| condition.reason != reason) && (first.is_some() || was_active) {
                let event_reason = first.map_or(ENDED, |step| step.reason().as_str());
                event(EventKind::Normal, event_reason, message.clone());
            }
            if reports_problems && !effect.problems.is_empty() {
                event(EventKind::Warning, INVALID, effect.problems.clone());
            }
            let update = ConditionUpdate {
                kind: ACTIVE,
                status: first.is_some(),
                reason,
                message: cut(message).into(),
            };
            update.set(&mut status.conditions, now);
        }
    }
    conclusion.status = (status != *hpa.status).then(|| Arc::new(status));
}

/// The condition of a policy in a status, if present.
pub(crate) fn find(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.kind == ACTIVE)
}

fn cut(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
    message
}
