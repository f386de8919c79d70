//! The wire format of the spec, with every field optional.

use serde::Deserialize;

use super::{
    Behavior, CrossVersionObjectReference, InvalidMetric, MetricIdentifier, MetricSource, PolicyKind,
    Quantity, ResourceTarget, ScalingPolicy, ScalingRules, SelectPolicy, UNKNOWN_TYPE, ValueTarget,
};
use crate::selector::Selector;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    #[serde(default)]
    scale_target_ref: CrossVersionObjectReference,
    min_replicas: Option<i32>,
    #[serde(default)]
    max_replicas: i32,
    metrics: Option<Vec<Metric>>,
    behavior: Option<WireBehavior>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metric {
    r#type: String,
    resource: Option<Resource>,
    container_resource: Option<Resource>,
    pods: Option<Custom>,
    object: Option<Custom>,
    external: Option<Custom>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Resource {
    name: String,
    container: String,
    target: Target,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Custom {
    described_object: CrossVersionObjectReference,
    metric: MetricIdentifier,
    target: Target,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Target {
    r#type: String,
    value: Option<Quantity>,
    average_value: Option<Quantity>,
    average_utilization: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBehavior {
    scale_up: Option<Rules>,
    scale_down: Option<Rules>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rules {
    stabilization_window_seconds: Option<i32>,
    select_policy: Option<String>,
    policies: Option<Vec<Policy>>,
    tolerance: Option<Quantity>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Policy {
    r#type: String,
    value: i32,
    period_seconds: i32,
}

impl From<Spec> for super::Spec {
    fn from(wire: Spec) -> Self {
        Self {
            target: wire.scale_target_ref,
            min_replicas: wire.min_replicas,
            max_replicas: wire.max_replicas,
            metrics: wire.metrics.unwrap_or_default().into_iter().map(Metric::read).collect(),
            behavior: wire.behavior.map(|behavior| Behavior {
                scale_up: behavior.scale_up.map(Rules::read).unwrap_or_default(),
                scale_down: behavior.scale_down.map(Rules::read).unwrap_or_default(),
            }),
        }
    }
}

impl Metric {
    fn read(self) -> MetricSource {
        let kind = self.r#type;
        let missing = |field: &str| {
            invalid(&kind, format!("invalid {kind} metric source: the field {field} is missing"), &kind)
        };
        match kind.as_str() {
            "Resource" => self.resource.map_or_else(|| missing("resource"), |source| source.read(&kind)),
            "ContainerResource" => self
                .container_resource
                .map_or_else(|| missing("containerResource"), |source| source.read(&kind)),
            "Pods" => self.pods.map_or_else(|| missing("pods"), Custom::read_pods),
            "Object" => self.object.map_or_else(|| missing("object"), Custom::read_object),
            "External" => self.external.map_or_else(|| missing("external"), Custom::read_external),
            _ => MetricSource::Invalid(InvalidMetric {
                reason: UNKNOWN_TYPE,
                prefix: String::new(),
                message: format!("{} {}", crate::failure::UNKNOWN_METRIC_TYPE, crate::go::quote(&kind)),
                kind: kind.into(),
            }),
        }
    }
}

impl Resource {
    fn read(self, kind: &str) -> MetricSource {
        let is_container = kind == "ContainerResource";
        let Some(target) = self.target.resource() else {
            return invalid(
                kind,
                "invalid resource metric source: neither an average utilization target nor an average value \
                     (usage) target was set"
                    .to_owned(),
                if is_container { &self.container } else { &self.name },
            );
        };
        let (resource, container) = (self.name.into(), self.container.into());
        if is_container {
            MetricSource::ContainerResource { resource, container, target }
        } else {
            MetricSource::Resource { resource, target }
        }
    }
}

impl Target {
    fn resource(&self) -> Option<ResourceTarget> {
        match (self.average_value, self.average_utilization) {
            (Some(average), _) => Some(ResourceTarget::AverageValue(average)),
            (None, Some(percent)) => Some(ResourceTarget::Utilization(percent)),
            (None, None) => None,
        }
    }
}

impl Custom {
    fn read_pods(self) -> MetricSource {
        match self.target.average_value {
            Some(average) => MetricSource::Pods { metric: self.metric, average },
            None => invalid(
                "Pods",
                "invalid pods metric source: no average value target was set".to_owned(),
                &self.metric.name,
            ),
        }
    }

    fn read_object(self) -> MetricSource {
        let target = match (self.target.r#type.as_str(), self.target.value, self.target.average_value) {
            ("Value", Some(value), _) => ValueTarget::Value(value),
            ("AverageValue", _, Some(average)) => ValueTarget::AverageValue(average),
            _ => {
                // Upstream parses the selector before it reads the target.
                let selector = self.metric.selector.as_ref();
                let message = match selector.map(|selector| Selector::from_label_selector(Some(selector))) {
                        Some(Err(error)) => error.to_string(),
                        _ => "invalid object metric source: neither a value target nor an average value target was set"
                            .to_owned(),
                    };
                return invalid("Object", message, &self.metric.name);
            }
        };
        MetricSource::Object { described: self.described_object, metric: self.metric, target }
    }

    fn read_external(self) -> MetricSource {
        let target = match (self.target.average_value, self.target.value) {
            (Some(average), _) => ValueTarget::AverageValue(average),
            (None, Some(value)) => ValueTarget::Value(value),
            (None, None) => {
                return invalid(
                        "External",
                        "invalid external metric source: neither a value target nor an average value target was set"
                            .to_owned(),
                        &self.metric.name,
                    );
            }
        };
        MetricSource::External { metric: self.metric, target }
    }
}

impl Rules {
    fn read(self) -> ScalingRules {
        ScalingRules {
            stabilization_window_seconds: self.stabilization_window_seconds,
            select_policy: match self.select_policy.as_deref() {
                Some("Min") => SelectPolicy::Min,
                Some("Disabled") => SelectPolicy::Disabled,
                _ => SelectPolicy::Max,
            },
            policies: self
                .policies
                .unwrap_or_default()
                .into_iter()
                .map(|policy| ScalingPolicy {
                    kind: match policy.r#type.as_str() {
                        "Pods" => PolicyKind::Pods,
                        "Percent" => PolicyKind::Percent,
                        _ => PolicyKind::Unknown,
                    },
                    value: policy.value,
                    period_seconds: policy.period_seconds,
                })
                .collect(),
            tolerance: self.tolerance,
        }
    }
}

fn invalid(kind: &str, message: String, subject: &str) -> MetricSource {
    let (reason, prefix) = match kind {
        "Resource" => ("FailedGetResourceMetric", format!("failed to get {subject} resource metric value: ")),
        "ContainerResource" => {
            ("FailedGetContainerResourceMetric", format!("failed to get {subject} container metric value: "))
        }
        "Pods" => ("FailedGetPodsMetric", "failed to get pods metric value: ".to_owned()),
        "Object" => ("FailedGetObjectMetric", "failed to get object metric value: ".to_owned()),
        _ => ("FailedGetExternalMetric", format!("failed to get {subject} external metric value: ")),
    };
    MetricSource::Invalid(InvalidMetric { reason, prefix, message, kind: kind.into() })
}
