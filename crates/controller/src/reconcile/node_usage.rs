//! The usage of pods from the kubelets of their nodes, for an HPA whose policy names kubelets.
//!
//! A query for resource metrics covers cpu and memory of all containers, so one rule of the policy applies to all
//! resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::failure::MetricFailureClass;
use autoscaling::query::{Answer, PodUsage, QueryError};
use policies::spec::{MetricOrigin, MetricRule};
use sources::{SourceError, Target, described, name_of};

use super::sources::{Arrival, SourceReading, SyncMetrics, shown};

/// The first rule that names kubelets.
pub(super) fn rule(rules: &[MetricRule]) -> Option<&MetricRule> {
    rules.iter().find(|rule| rule.origin == MetricOrigin::Kubelet)
}

/// The lowest `maxAgeSeconds` of the rules that name kubelets.
fn max_age_seconds(rules: &[MetricRule]) -> Option<u32> {
    let rules = rules.iter().filter(|rule| rule.origin == MetricOrigin::Kubelet);
    rules.filter_map(|rule| rule.max_age_seconds).min()
}

impl SyncMetrics {
    /// The usage of the pods of the target, as metrics.k8s.io would return it.
    pub(super) async fn node_usage(&self) -> Result<Answer, QueryError> {
        let target =
            Target { namespace: &self.key.namespace, name: &self.target, pods: &self.pods, secrets: None };
        let limit = max_age_seconds(&self.rules);
        let source = name_of(&MetricOrigin::Kubelet);
        match self.reader.sources.usage(limit, &target, self.clock.now()).await {
            Err(error) => {
                self.telemetry.source_failed(source, error.reason());
                for resource in &self.resources {
                    self.note(None, reading(resource, None, &[], Some((None, &error))));
                }
                let message = format!("{}: {error}", described(&MetricOrigin::Kubelet));
                Err(QueryError::new(MetricFailureClass::Other, message))
            }
            Ok(usage) => {
                let age = usage.oldest.elapsed();
                self.telemetry.source_age(source, age);
                if let Some((_, error)) = &usage.missing {
                    self.telemetry.source_failed(source, error.reason());
                }
                let arrival = Arrival::new(usage.scraped, usage.interval);
                let missing = usage.missing.as_ref().map(|(pod, error)| (Some(&**pod), error));
                for resource in &self.resources {
                    let reading = reading(resource, Some(age.as_secs_f64()), &usage.pods, missing);
                    self.note(Some(arrival), reading);
                }
                Ok(Answer::Resource(usage.pods.into()))
            }
        }
    }
}

/// The reading of one resource: cores or bytes by pod.
fn reading(
    resource: &Arc<str>,
    age_seconds: Option<f64>,
    pods: &[PodUsage],
    problem: Option<(Option<&str>, &SourceError)>,
) -> SourceReading {
    let value = |pod: &PodUsage| {
        let containers = pod.containers.iter();
        let amounts: Vec<f64> =
            containers.filter_map(|container| Some(container.usage.get(resource)?.as_f64())).collect();
        (!amounts.is_empty()).then(|| (Arc::clone(&pod.pod), amounts.iter().sum()))
    };
    let values: BTreeMap<Arc<str>, f64> = pods.iter().filter_map(value).collect();
    SourceReading {
        metric: resource.to_string(),
        source: described(&MetricOrigin::Kubelet),
        age_seconds: age_seconds.filter(|_| !values.is_empty()),
        numbers: values.len(),
        values: shown(&values),
        reason: problem.map(|(_, error)| error.reason().to_owned()),
        problem: problem.map(|(pod, error)| match pod {
            Some(pod) => format!("pod {pod}: {error}"),
            None => error.to_string(),
        }),
    }
}
