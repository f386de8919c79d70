//! The past of an HPA's metrics in the Prometheus servers that its scaling policy names.

use std::collections::BTreeMap;

use autoscaling::spec::MetricSource;
use futures::future::join_all;
use policies::spec::{MetricOrigin, MetricRule};
use sources::{Form, PastTarget, Sources, TimeRange};

use crate::simulate::what_if::{PastError, SourceLoads};
use crate::why::Situation;

/// Maximum number of metrics whose past is read for one question.
const MAX_METRICS: usize = 10;

/// Reads the past of the metrics for which the scaling policy names a Prometheus server. `sources`: the servers of
/// `--metric-sources-file`. `range`: the time range, or `None` without a past to simulate.
pub(super) async fn past(
    situation: &Situation,
    sources: Option<&Sources>,
    range: Option<TimeRange>,
) -> SourceLoads {
    let (Some(hpa), Some(rules), Some(range)) = (&situation.hpa, &situation.rules, range) else {
        return SourceLoads::default();
    };
    let reference = &hpa.spec.target;
    let target =
        PastTarget { namespace: &situation.key.namespace, kind: &reference.kind, name: &reference.name };
    let rules = rules.policy.spec.metrics.as_deref().unwrap_or_default();
    let metrics = hpa.spec.metrics.iter().enumerate();
    let found = metrics.filter_map(|(index, metric)| Some((index, rule_of(rules, metric)?)));
    let reads = found.enumerate().map(async |(position, (index, (rule, form)))| {
        let read = match sources {
            None => Some(Err(PastError::NoFile(sources::described(&rule.origin)))),
            Some(_) if position >= MAX_METRICS => Some(Err(PastError::TooManyMetrics(MAX_METRICS))),
            Some(sources) => {
                let read = sources.past(rule, form, &target, range).await;
                read.map(|read| read.map_err(PastError::from))
            }
        };
        Some((index, read?))
    });
    let by_metric: BTreeMap<_, _> = join_all(reads).await.into_iter().flatten().collect();
    SourceLoads { by_metric }
}

/// The rule with a Prometheus server for a metric, and the form of the metric's numbers.
fn rule_of<'a>(rules: &'a [MetricRule], metric: &MetricSource) -> Option<(&'a MetricRule, Form)> {
    let (identifier, form) = match metric {
        MetricSource::Pods { metric, .. } => (metric, Form::PerPod),
        MetricSource::Object { metric, .. } | MetricSource::External { metric, .. } => (metric, Form::Single),
        _ => return None,
    };
    let rule = MetricRule::find(rules, &identifier.name)?;
    matches!(rule.origin, MetricOrigin::Prometheus { .. }).then_some((rule, form))
}
