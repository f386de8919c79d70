//! Resource and ContainerResource metrics.

use std::sync::Arc;

use super::{Measured, MetricFailure, Unread, amount, current, no_values, wrong_answer};
use crate::failure::Failure;
use crate::number::saturate_to_i64;
use crate::query::{Answer, PodUsage};
use crate::readiness::Sample;
use crate::replicas::Calculator;
use crate::spec::ResourceTarget;
use crate::status::{ContainerResourceMetricStatus, MetricStatus, MetricValueStatus, ResourceMetricStatus};

pub(super) struct ResourceSource<'a> {
    pub(super) resource: &'a Arc<str>,
    /// `None` for a metric of type Resource.
    pub(super) container: Option<&'a Arc<str>>,
    pub(super) target: ResourceTarget,
}

impl ResourceSource<'_> {
    pub(super) fn compute(
        &self,
        answer: Result<&Answer, Unread>,
        calculator: &Calculator<'_>,
    ) -> Result<Measured, MetricFailure> {
        let (reading, average) = self
            .usages(answer)
            .and_then(|usages| {
                let samples = samples_of(usages, self.resource, self.container.map(|name| &**name));
                calculator.resource(samples, self.resource, self.container.map(|name| &**name), self.target)
            })
            .map_err(|failure| self.failure(&failure))?;
        let resource = self.resource;
        let name = match (self.target, self.container) {
            (ResourceTarget::Utilization(_), None) => {
                format!("{resource} resource utilization (percentage of request)")
            }
            (ResourceTarget::Utilization(_), Some(_)) => {
                format!("{resource} container resource utilization (percentage of request)")
            }
            (ResourceTarget::AverageValue(_), _) => format!("{resource} resource"),
        };
        let current =
            MetricValueStatus { average_value: Some(amount(resource, average)), ..current(reading.value) };
        let status = match self.container {
            None => MetricStatus {
                kind: "Resource".to_owned(),
                resource: Some(Box::new(ResourceMetricStatus { name: resource.to_string(), current })),
                ..MetricStatus::default()
            },
            Some(container) => MetricStatus {
                kind: "ContainerResource".to_owned(),
                container_resource: Some(Box::new(ContainerResourceMetricStatus {
                    name: resource.to_string(),
                    current,
                    container: container.to_string(),
                })),
                ..MetricStatus::default()
            },
        };
        Ok(Measured { status, name, reading })
    }

    fn usages<'r>(&self, answer: Result<&'r Answer, Unread>) -> Result<&'r [PodUsage], Failure> {
        let resource = self.resource;
        let unable = |error: &str| format!("unable to get metrics for resource {resource}: {error}");
        match answer {
            Ok(Answer::Resource(usages)) if usages.is_empty() => Err(no_values(unable, "resource")),
            Ok(Answer::Resource(usages)) => Ok(usages),
            Ok(_) => Err(wrong_answer(unable)),
            Err(unread) => Err(unread.failure(unable, "resource")),
        }
    }

    fn failure(&self, failure: &Failure) -> MetricFailure {
        let resource = self.resource;
        let what = match self.target {
            ResourceTarget::Utilization(_) => "utilization",
            ResourceTarget::AverageValue(_) => "usage",
        };
        let (reason, prefix) = match self.container {
            None => ("FailedGetResourceMetric", format!("failed to get {resource} resource metric value: ")),
            Some(name) => {
                ("FailedGetContainerResourceMetric", format!("failed to get {name} container metric value: "))
            }
        };
        MetricFailure {
            class: failure.class,
            reason,
            error: format!("failed to get {resource} {what}: {}", failure.text),
            prefix,
            is_spec: false,
        }
    }
}

/// Returns each pod's sample of a resource: the usage of the container, or the sum over all containers. The usage of
/// each container is rounded up to milli-units. Pods without the container, without any container, or with a container
/// that lacks the resource have no sample.
fn samples_of<'a>(usages: &'a [PodUsage], resource: &str, container: Option<&str>) -> Vec<Sample<'a>> {
    usages
        .iter()
        .filter_map(|usage| {
            let value = match container {
                Some(name) => {
                    let container = usage.containers.iter().find(|container| &*container.name == name)?;
                    container.usage.get(resource)?.milli_value()
                }
                None if usage.containers.is_empty() => return None,
                None => {
                    let mut sum = 0i128;
                    for container in &usage.containers {
                        sum += i128::from(container.usage.get(resource)?.milli_value());
                    }
                    saturate_to_i64(sum)
                }
            };
            Some(Sample {
                pod: &usage.pod,
                value,
                timestamp: usage.timestamp,
                window_nanos: usage.window_nanos,
            })
        })
        .collect()
}
