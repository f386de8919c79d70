//! Whether a target rolls out a new template.
//!
//! A rollout is in progress while the target has pods of an earlier template. Other differences between counts come
//! from scaling. A changed generation proves no rollout, because a changed `spec.replicas` changes it too.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A rollout in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// The number of pods of the new template.
    pub updated: i32,
    /// The number of all pods.
    pub total: i32,
}

/// A change that waits for the end of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStep {
    /// The rollout.
    pub rollout: Rollout,
    /// The count without the guard.
    pub from: i32,
    /// The count.
    pub to: i32,
}

impl fmt::Display for RolloutStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rollout: Rollout { updated, total }, from, to } = self;
        write!(
            f,
            "the target rolls out, {updated} of {total} pods are updated, so the count is {to} instead of {from}"
        )
    }
}

impl Rollout {
    /// Reads the rollout from an object: a Deployment or StatefulSet of `apps`, or a Rollout of `argoproj.io`. Returns
    /// `None` if no rollout is in progress, and for other kinds.
    pub fn from_object(kind: &str, object: &Value) -> Option<Self> {
        let status = object.get("status")?;
        let number = |field: &str| {
            status
                .get(field)
                .and_then(Value::as_i64)
                .and_then(|number| i32::try_from(number).ok())
                .unwrap_or(0)
        };
        let text = |field: &str| status.get(field).and_then(Value::as_str).unwrap_or_default();
        let (updated, total) = (number("updatedReplicas"), number("replicas"));
        let is_in_progress = match kind {
            "Deployment" => updated < total,
            // `currentRevision` becomes `updateRevision` when the last pod is updated. Partitions delay this change.
            "StatefulSet" => {
                text("currentRevision") != text("updateRevision") && !text("updateRevision").is_empty()
            }
            // Counts do not show a paused canary: all updated pods of its step exist.
            "Rollout" => !text("stableRS").is_empty() && text("currentPodHash") != text("stableRS"),
            _ => false,
        };
        is_in_progress.then_some(Self { updated, total })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rollout_is_in_progress_while_pods_of_two_templates_exist() {
        let some = |updated, total| Some(Rollout { updated, total });
        for (kind, status, expected) in [
            ("Deployment", json!({"replicas": 5, "updatedReplicas": 2}), some(2, 5)),
            ("Deployment", json!({"replicas": 5, "updatedReplicas": 5}), None),
            // A scale-up from 5 to 10: no pod of another template.
            ("Deployment", json!({"replicas": 6, "updatedReplicas": 6, "observedGeneration": 1}), None),
            ("Deployment", json!({}), None),
            ("Deployment", json!({"replicas": "5", "updatedReplicas": null}), None),
            (
                "StatefulSet",
                json!({"replicas": 3, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"}),
                some(1, 3),
            ),
            ("StatefulSet", json!({"replicas": 3, "currentRevision": "a", "updateRevision": "a"}), None),
            ("StatefulSet", json!({"replicas": 3, "currentRevision": "a"}), None),
            (
                "Rollout",
                json!({"replicas": 4, "updatedReplicas": 1, "stableRS": "a", "currentPodHash": "b"}),
                some(1, 4),
            ),
            ("Rollout", json!({"replicas": 4, "stableRS": "a", "currentPodHash": "a"}), None),
            ("Rollout", json!({"replicas": 4, "currentPodHash": "a"}), None),
            ("Other", json!({"replicas": 4, "updatedReplicas": 1}), None),
        ] {
            assert_eq!(Rollout::from_object(kind, &json!({"status": status})), expected, "{kind} {status}");
        }
        assert_eq!(Rollout::from_object("Deployment", &json!({})), None);
    }
}
