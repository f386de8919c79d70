//! Computes the proposal and the status of one metric from its answer, or a failure in upstream's words.

mod resource;

use std::sync::Arc;

use self::resource::ResourceSource;
use crate::explanation::{Measure, MetricReading, Subject};
use crate::failure::{Failure, MetricFailureClass, NO_VALUES};
use crate::hpa::Hpa;
use crate::plan::PlannedMetric;
use crate::quantity::{Format, Quantity};
use crate::query::{Answer, CustomValue, ExternalValue, QueryError};
use crate::readiness::Sample;
use crate::replicas::Calculator;
use crate::selector::go_print;
use crate::settings::{Settings, Version};
use crate::spec::{MetricSource, UNKNOWN_TYPE, ValueTarget};
use crate::status::{
    CrossVersionObjectReference, MetricIdentifier, MetricStatus, MetricValueStatus, ObjectMetricStatus,
    PodsMetricStatus,
};

#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) status: MetricStatus,
    pub(crate) reading: MetricReading,
}

#[derive(Debug)]
pub(crate) struct MetricFailure {
    pub(crate) class: MetricFailureClass,
    /// The reason of the event and of the condition.
    pub(crate) reason: &'static str,
    /// The message of the event.
    pub(crate) error: String,
    /// The text before `error` in the message about all metrics.
    pub(crate) prefix: String,
    /// Whether the failure has the label `error="spec"`.
    pub(crate) is_spec: bool,
}

/// The answer or the error for one metric. `None` if the metric has no query, or if it was not read.
pub(crate) type Reply<'a> = Option<&'a Result<Answer, QueryError>>;

impl MetricSource {
    /// The `type` of the source, as in the spec.
    pub fn kind(&self) -> &str {
        match self {
            Self::Resource { .. } => "Resource",
            Self::ContainerResource { .. } => "ContainerResource",
            Self::Pods { .. } => "Pods",
            Self::Object { .. } => "Object",
            Self::External { .. } => "External",
            Self::Invalid(invalid) => &invalid.kind,
        }
    }

    /// The short name of the metric, for explanations. `namespace` is that of the HPA, whose value the API returns for
    /// any described namespace.
    pub fn subject(&self, namespace: &str) -> Subject {
        let mut subject = Subject { kind: self.kind().into(), ..Subject::default() };
        match self {
            Self::Resource { resource, .. } => subject.name = Arc::clone(resource),
            Self::ContainerResource { resource, container, .. } => {
                subject.name = Arc::clone(resource);
                subject.container = Some(Arc::clone(container));
            }
            Self::Pods { metric, .. } | Self::External { metric, .. } => {
                subject.name = metric.name.as_str().into();
            }
            Self::Object { described, metric, .. } => {
                subject.name = metric.name.as_str().into();
                let name = if described.is_namespace() { namespace } else { &described.name };
                subject.object = Some(format!("{}/{name}", described.kind).into());
            }
            Self::Invalid(invalid) => subject.name = format!("a metric of type {:?}", &*invalid.kind).into(),
        }
        subject
    }
}

pub(crate) fn compute(
    hpa: &Hpa<'_>,
    metric: &MetricSource,
    planned: &PlannedMetric,
    reply: Reply<'_>,
    calculator: &Calculator<'_>,
    settings: &Settings,
) -> Result<Proposal, MetricFailure> {
    let answer = match (planned, reply) {
        (PlannedMetric::BadSelector(error), _) => Err(Unread::Query(error.clone())),
        (_, Some(Ok(answer))) => Ok(answer),
        (_, Some(Err(error))) => Err(Unread::Fetch(Failure::new(error.class, &*error.message))),
        (_, None) => Err(Unread::Fetch(Failure::new(MetricFailureClass::Other, "the metric was not read"))),
    };
    let measured = match metric {
        MetricSource::Resource { resource, target } => {
            let source = ResourceSource { resource, container: None, target: *target };
            source.compute(answer, calculator)
        }
        MetricSource::ContainerResource { resource, container, target } => {
            let source = ResourceSource { resource, container: Some(container), target: *target };
            source.compute(answer, calculator)
        }
        MetricSource::Pods { metric, average } => pods(metric, *average, answer, calculator),
        MetricSource::Object { described, metric, target } => {
            object(hpa, described, metric, *target, answer, calculator, settings)
        }
        MetricSource::External { metric, target } => external(hpa, metric, *target, answer, calculator),
        MetricSource::Invalid(invalid) => Err(MetricFailure {
            class: MetricFailureClass::InvalidMetric,
            reason: invalid.reason,
            error: invalid.message.clone(),
            prefix: invalid.prefix.clone(),
            is_spec: invalid.reason == UNKNOWN_TYPE,
        }),
    }?;
    let Measured { status, name, reading } = measured;
    Ok(Proposal {
        status,
        reading: MetricReading { subject: metric.subject(hpa.namespace), name: name.into(), ..reading },
    })
}

/// The result of one type of metric. The subject and the name of the reading are empty.
#[derive(Debug)]
struct Measured {
    status: MetricStatus,
    /// The name of the metric in conditions.
    name: String,
    reading: MetricReading,
}

/// The reason why an answer is missing.
enum Unread {
    /// The request failed. The text is that of the response, without a prefix.
    Fetch(Failure),
    /// The selector of the metric is invalid. The text is the whole error.
    Query(String),
}

impl Unread {
    /// Converts the reason to a failure, with prefixes for the metric and its API if the request failed.
    fn failure(self, unable: impl Fn(&str) -> String, api: &str) -> Failure {
        match self {
            Self::Fetch(failure) => failure
                .map(|error| unable(&format!("unable to fetch metrics from {api} metrics API: {error}"))),
            Self::Query(error) => Failure::new(MetricFailureClass::InvalidMetric, error),
        }
    }
}

fn no_values(unable: impl Fn(&str) -> String, api: &str) -> Failure {
    let text = unable(&format!("{NO_VALUES} from {api} metrics API"));
    Failure::new(MetricFailureClass::NoValues, text)
}

fn wrong_answer(unable: impl Fn(&str) -> String) -> Failure {
    Failure::new(MetricFailureClass::Other, unable(WRONG_ANSWER))
}

fn pods(
    metric: &MetricIdentifier,
    average: Quantity,
    answer: Result<&Answer, Unread>,
    calculator: &Calculator<'_>,
) -> Result<Measured, MetricFailure> {
    let unable = |error: &str| format!("unable to get metric {}: {error}", metric.name);
    let values: Result<&[CustomValue], Failure> = match answer {
        Ok(Answer::Custom(values)) if values.is_empty() => Err(no_values(unable, "custom")),
        Ok(Answer::Custom(values)) => Ok(values),
        Ok(_) => Err(wrong_answer(unable)),
        Err(unread) => Err(unread.failure(unable, "custom")),
    };
    let reading = values
        .and_then(|values| {
            let samples = values
                .iter()
                .map(|value| Sample {
                    pod: &value.object,
                    value: value.value.milli_value(),
                    timestamp: value.timestamp,
                    window_nanos: 0,
                })
                .collect();
            calculator.per_pod(samples, average.milli_value())
        })
        .map_err(|failure| MetricFailure {
            class: failure.class,
            reason: "FailedGetPodsMetric",
            error: failure.text,
            prefix: "failed to get pods metric value: ".to_owned(),
            is_spec: false,
        })?;
    let status = MetricStatus {
        kind: "Pods".to_owned(),
        pods: Some(Box::new(PodsMetricStatus { metric: metric.clone(), current: current(reading.value) })),
        ..MetricStatus::default()
    };
    Ok(Measured { status, name: format!("pods metric {}", metric.name), reading })
}

fn object(
    hpa: &Hpa<'_>,
    described: &CrossVersionObjectReference,
    metric: &MetricIdentifier,
    target: ValueTarget,
    answer: Result<&Answer, Unread>,
    calculator: &Calculator<'_>,
    settings: &Settings,
) -> Result<Measured, MetricFailure> {
    let unable = |error: &str| {
        let (metric, kind, namespace, name) = (&metric.name, &described.kind, hpa.namespace, &described.name);
        match settings.version {
            Version::V1_36 => format!("unable to get metric {metric}: {kind} on {namespace} {name}/{error}"),
            Version::V1_37 | Version::V1_38 => {
                format!("unable to get metric {metric} on {kind} {namespace}/{name}: {error}")
            }
        }
    };
    let value = match answer {
        Ok(Answer::Custom(values)) => match &values[..] {
            [one] => Ok(one.value.milli_value()),
            several => Err(Unread::Fetch(Failure::new(
                MetricFailureClass::Other,
                format!(
                    "the custom metrics API server returned {} results when we asked for exactly one",
                    several.len()
                ),
            ))),
        },
        Ok(_) => Err(Unread::Fetch(Failure::new(MetricFailureClass::Other, WRONG_ANSWER))),
        Err(Unread::Query(error)) => {
            return Err(object_failure("", Failure::new(MetricFailureClass::InvalidMetric, error)));
        }
        Err(unread) => Err(unread),
    };
    let value = value.map_err(|unread| unread.failure(unable, "custom"));
    let reading = value.and_then(|value| calculator.object(value, target)).map_err(|failure| {
        let detail = match target {
            ValueTarget::Value(_) => String::new(),
            ValueTarget::AverageValue(_) => format!("failed to get {} object metric: ", metric.name),
        };
        object_failure(&detail, failure)
    })?;
    let name = match target {
        ValueTarget::AverageValue(_) if !settings.version.names_object_averages_by_kind() => {
            external_name(metric)
        }
        ValueTarget::AverageValue(_) | ValueTarget::Value(_) => {
            format!("{} metric {}", described.kind, metric.name)
        }
    };
    let status = MetricStatus {
        kind: "Object".to_owned(),
        object: Some(Box::new(ObjectMetricStatus {
            metric: metric.clone(),
            current: current(reading.value),
            described_object: described.clone(),
        })),
        ..MetricStatus::default()
    };
    Ok(Measured { status, name, reading })
}

fn object_failure(detail: &str, failure: Failure) -> MetricFailure {
    let prefix = format!("failed to get object metric value: {detail}");
    let Failure { class, text: error } = failure;
    MetricFailure { class, reason: "FailedGetObjectMetric", error, prefix, is_spec: false }
}

fn external(
    hpa: &Hpa<'_>,
    metric: &MetricIdentifier,
    target: ValueTarget,
    answer: Result<&Answer, Unread>,
    calculator: &Calculator<'_>,
) -> Result<Measured, MetricFailure> {
    let unable = |error: &str| {
        let selector = go_print(metric.selector.as_ref());
        format!("unable to get external metric {}/{}/{selector}: {error}", hpa.namespace, metric.name)
    };
    let values: Result<&[ExternalValue], Failure> = match answer {
        Ok(Answer::External(values)) if values.is_empty() => Err(no_values(unable, "external")),
        Ok(Answer::External(values)) => Ok(values),
        Ok(_) => Err(wrong_answer(unable)),
        Err(unread) => Err(unread.failure(unable, "external")),
    };
    let reading = values.and_then(|values| calculator.external(sum_to_overflow(values), target)).map_err(
        |failure| {
            let name = &metric.name;
            let detail = match target {
                ValueTarget::Value(_) => format!("failed to get external metric {name}: "),
                ValueTarget::AverageValue(_) => format!("failed to get {name} external metric: "),
            };
            let prefix = format!("failed to get {name} external metric value: {detail}");
            let Failure { class, text: error } = failure;
            MetricFailure { class, reason: "FailedGetExternalMetric", error, prefix, is_spec: false }
        },
    )?;
    let status = MetricStatus {
        kind: "External".to_owned(),
        external: Some(Box::new(PodsMetricStatus {
            metric: metric.clone(),
            current: current(reading.value),
        })),
        ..MetricStatus::default()
    };
    Ok(Measured { status, name: external_name(metric), reading })
}

/// The sum of all series in milli-units. As in upstream, a sum that exceeds `i64::MAX` stays there, even if negative
/// values follow.
fn sum_to_overflow(values: &[ExternalValue]) -> i64 {
    let mut sum = 0_i64;
    for value in values {
        match sum.checked_add(value.value.milli_value()) {
            Some(next) => sum = next,
            None if sum > 0 => return i64::MAX,
            None => sum = i64::MIN,
        }
    }
    sum
}

/// An amount in the format in which the API server stores it: whole Ki of memory in binary units, all other amounts in
/// decimal units.
fn amount(resource: &str, milli: i64) -> Quantity {
    let binary = resource == "memory" && milli % KIBI_IN_MILLI == 0;
    Quantity::from_milli(milli, if binary { Format::BinarySi } else { Format::DecimalSi })
}

const KIBI_IN_MILLI: i64 = 1024 * 1000;

const WRONG_ANSWER: &str = "the metrics API returned another kind of answer than requested";

fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, go_print(metric.selector.as_ref()))
}

fn current(value: Measure) -> MetricValueStatus {
    let mut current = MetricValueStatus::default();
    match value {
        Measure::Milli(value) => current.value = Some(Quantity::from_milli(value, Format::DecimalSi)),
        Measure::MilliPerPod(value) => {
            current.average_value = Some(Quantity::from_milli(value, Format::DecimalSi));
        }
        Measure::Percent(percent) => current.average_utilization = Some(percent),
    }
    current
}
