//! The HPA as YAML, and its fields that affected a decision.

use autoscaling::explanation::{DecisionPath, LimitingStep};
use controller::policy::ANNOTATION;
use serde::Serialize;
use serde_json::{Value, json};

use crate::pointer;
use crate::simulate::document::{Document, line};
use crate::why::Situation;

/// The kinds of metric sources, as fields.
const SOURCES: [&str; 5] = ["resource", "containerResource", "pods", "object", "external"];
/// The values of a target, as fields.
const VALUES: [&str; 3] = ["averageUtilization", "averageValue", "value"];

/// A field that affected the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Mark {
    /// The line in the YAML, counted from 1.
    pub(super) line: u64,
    /// The effect of the field.
    pub(super) why: String,
}

/// The object, without managedFields.
pub(super) fn object(situation: &Situation) -> Option<Value> {
    let hpa = situation.hpa.as_ref()?;
    let mut metadata = serde_json::from_str::<Value>(hpa.metadata.get()).ok()?;
    if let Some(fields) = metadata.as_object_mut() {
        fields.remove("managedFields");
    }
    Some(json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": serde_json::from_str::<Value>(hpa.spec_raw.get()).ok()?,
        "status": *hpa.status,
    }))
}

/// The pointer to the target value of a metric, in an object.
pub(super) fn target_of(object: &Value, index: usize) -> Option<String> {
    SOURCES.iter().find_map(|source| {
        let target = format!("/spec/metrics/{index}/{source}/target");
        let value =
            VALUES.iter().find(|value| !pointer::at(object, &format!("{target}/{value}")).is_null())?;
        Some(format!("{target}/{value}"))
    })
}

/// The fields that affected the decision, in order of their lines.
pub(super) fn marks(situation: &Situation, object: &Value, yaml: &str) -> Vec<Mark> {
    let Some(document) = Document::read(yaml) else { return Vec::new() };
    let mut marks: Vec<Mark> = Vec::new();
    for (path, why) in fields(situation, object) {
        if let Some(line) = line(&document, &path)
            && !marks.iter().any(|mark| mark.line == line)
        {
            marks.push(Mark { line, why });
        }
    }
    marks.sort_by_key(|mark| mark.line);
    marks
}

/// The pointers to the fields, each with the effect of the field.
fn fields(situation: &Situation, object: &Value) -> Vec<(String, String)> {
    let explanation = &situation.explanation;
    let mut fields = Vec::new();
    let mut field = |path: &str, why: String| fields.push((path.to_owned(), why));
    if let (Some(path), Some(proposal)) =
        (explanation.winner.and_then(|index| target_of(object, index)), explanation.proposal)
    {
        field(&path, format!("the metrics ask for {proposal}"));
    }
    if explanation.path == DecisionPath::NoScale {
        field("/spec/scaleTargetRef/name", "the scale of this target cannot be read".to_owned());
    }
    for (index, metric) in explanation.metrics.iter().enumerate() {
        if metric.reading().is_none()
            && let Some(path) = target_of(object, index)
        {
            field(&path, "this metric cannot be read".to_owned());
        }
    }
    let step = explanation.limiting_step();
    let held = |window: &str| format!("the {window} window holds the count");
    match step {
        Some(LimitingStep::ScaleUpWindow) => {
            field("/spec/behavior/scaleUp/stabilizationWindowSeconds", held("scale-up"));
        }
        Some(LimitingStep::ScaleDownWindow) => {
            field("/spec/behavior/scaleDown/stabilizationWindowSeconds", held("scale-down"));
        }
        Some(LimitingStep::Maximum) => {
            field("/spec/maxReplicas", format!("the count stops at {}", explanation.max));
        }
        Some(LimitingStep::Minimum) => {
            field("/spec/minReplicas", format!("the count stops at {}", explanation.min));
        }
        Some(LimitingStep::Tolerance) => {
            for rules in ["scaleUp", "scaleDown"] {
                let path = format!("/spec/behavior/{rules}/tolerance");
                field(&path, "the value is within tolerance".to_owned());
            }
        }
        Some(LimitingStep::ScaleUpPolicy | LimitingStep::ScaleDownPolicy) => {
            let rules = if step == Some(LimitingStep::ScaleUpPolicy) { "scaleUp" } else { "scaleDown" };
            let limit = explanation.limit.as_ref();
            let used = limit.map(|limit| limit.policies.as_slice()).unwrap_or_default();
            let allows = limit.and_then(|limit| limit.rate_allows);
            for (index, policy) in used.iter().enumerate() {
                if Some(policy.allows) == allows {
                    let path = format!("/spec/behavior/{rules}/policies/{index}/value");
                    field(&path, format!("this rate allows {}", policy.allows));
                }
            }
            field(&format!("/spec/behavior/{rules}/selectPolicy"), "selects among the rates".to_owned());
        }
        Some(LimitingStep::Failure | LimitingStep::MissingPods) | None => {}
    }
    if let Some(sentence) = situation.policy.as_ref().and_then(policies::steps::PolicyEffect::sentence) {
        let key = ANNOTATION.replace('~', "~0").replace('/', "~1");
        field(&format!("/metadata/annotations/{key}"), sentence);
    }
    fields
}

#[cfg(test)]
mod tests;
