//! The first step of a sync. Determines from the HPA and its Scale whether metrics are needed, and the
//! queries for these metrics.

use std::sync::Arc;

use crate::condition::{SCALED_TO_ZERO, is_true};
use crate::explanation::DecisionPath;
use crate::failure::ScaleFailureClass;
use crate::query::Query;
use crate::selector::{LabelSelector, Selector, SelectorError};
use crate::settings::Settings;
use crate::spec::{MetricSource, Spec};
use crate::status::{CrossVersionObjectReference, Status};

/// The HPA of a sync.
#[derive(Debug, Clone, Copy)]
pub struct Hpa<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.generation`, if the server sets it.
    pub generation: Option<i64>,
    /// The spec.
    pub spec: &'a Spec,
    /// The last known status.
    pub status: &'a Status,
}

/// The Scale of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`.
    pub replicas: i32,
    /// `status.replicas`.
    pub status_replicas: i32,
    /// `status.selector`.
    pub selector: Arc<Selector>,
    /// The selector as canonical text.
    pub selector_text: Arc<str>,
}

/// The error for a target reference with an invalid `apiVersion`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {api_version}")]
pub struct ApiVersionError {
    /// The `apiVersion` as written.
    pub api_version: String,
}

/// The reason why a Scale is unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleFailure {
    /// The class. An invalid reference counts as `error="spec"` in the metrics.
    pub class: ScaleFailureClass,
    /// The text for condition and event, in upstream's words.
    pub message: String,
}

/// Other HPAs that control the same pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlap {
    /// No other HPA.
    None,
    /// The HPAs that control the same pods, including this one, as sorted `namespace/name`.
    Shared(Vec<String>),
    /// This HPA was deleted during the sync.
    Deleted,
}

/// The next action of a sync.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub(crate) scale: Option<Scale>,
    pub(crate) min: i32,
    pub(crate) case: Case,
}

/// The case that determines the next action of a sync.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Case {
    /// The Scale is unavailable.
    NoScale(ScaleFailure),
    /// The target has zero replicas, and metrics may not scale it up.
    Disabled,
    /// The target has more replicas than maxReplicas.
    AboveMax,
    /// The target has fewer replicas than minReplicas.
    BelowMin,
    /// The Scale has no selector.
    NoSelector,
    /// Other HPAs control the same pods.
    Ambiguous(Vec<String>),
    /// The HPA was deleted during the sync.
    Deleted,
    /// Metrics determine the count.
    Metrics(Vec<PlannedMetric>),
}

impl Case {
    /// The path for the explanation.
    pub(crate) fn path(&self) -> DecisionPath {
        match self {
            Self::NoScale(_) => DecisionPath::NoScale,
            Self::Disabled => DecisionPath::Disabled,
            Self::AboveMax => DecisionPath::AboveMax,
            Self::BelowMin => DecisionPath::BelowMin,
            Self::NoSelector => DecisionPath::NoSelector,
            Self::Ambiguous(_) => DecisionPath::Ambiguous,
            Self::Deleted => DecisionPath::Deleted,
            Self::Metrics(_) => DecisionPath::Metrics,
        }
    }
}

/// The requirements of one metric.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PlannedMetric {
    /// The metric needs the answer to a query.
    Query(Query),
    /// The metric fails, because its selector is invalid. Contains the text of the error.
    BadSelector(String),
    /// The metric fails, because its source is invalid.
    Invalid,
}

/// The API group of a target reference: the part before the slash, or empty for the core group.
///
/// # Errors
/// Fails if the `apiVersion` contains more than one slash.
pub fn target_group(target: &CrossVersionObjectReference) -> Result<&str, ApiVersionError> {
    let version = target.api_version.as_str();
    match version.split_once('/') {
        None => Ok(""),
        Some((group, rest)) if !rest.contains('/') => Ok(group),
        Some(_) => Err(ApiVersionError { api_version: version.to_owned() }),
    }
}

/// The error for a Scale with an invalid selector, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "received an object from a /scale endpoint which was not convertible to autoscaling Scale: failed to parse \
     target selector: {0}"
)]
pub struct ScaleError(#[from] SelectorError);

impl Scale {
    /// Creates a Scale from its counts and the text of its selector.
    ///
    /// # Errors
    /// Fails if the selector is invalid.
    pub fn new(replicas: i32, status_replicas: i32, selector: &str) -> Result<Self, ScaleError> {
        let selector = Selector::parse_scale(selector)?;
        let selector_text = selector.to_string().into();
        Ok(Self { replicas, status_replicas, selector: Arc::new(selector), selector_text })
    }
}

impl Plan {
    /// The planned queries, each with the index of its metric in the spec.
    pub fn queries(&self) -> impl Iterator<Item = (usize, &Query)> {
        let metrics: &[PlannedMetric] = match &self.case {
            Case::Metrics(metrics) => metrics,
            _ => &[],
        };
        metrics.iter().enumerate().filter_map(|(index, metric)| match metric {
            PlannedMetric::Query(query) => Some((index, query)),
            PlannedMetric::BadSelector(_) | PlannedMetric::Invalid => None,
        })
    }

    /// Whether metrics determine the count. If so, the caller must provide the pods.
    pub fn reads_metrics(&self) -> bool {
        matches!(self.case, Case::Metrics(_))
    }

    /// The Scale on which the plan is based.
    pub fn scale(&self) -> Option<&Scale> {
        self.scale.as_ref()
    }
}

/// Plans a sync.
///
/// `overlap` is called at most once, after all other checks have passed. The callback also stores the selector of the
/// HPA.
pub fn plan(
    hpa: &Hpa<'_>,
    scale: Result<Scale, ScaleFailure>,
    overlap: impl FnOnce(&Arc<Selector>) -> Overlap,
    settings: &Settings,
) -> Plan {
    let min = hpa.spec.min_replicas.unwrap_or(1);
    let scale = match scale {
        Ok(scale) => scale,
        Err(failure) => {
            return Plan { scale: None, min, case: Case::NoScale(failure) };
        }
    };
    let case = case_of(hpa, &scale, min, overlap, settings);
    Plan { scale: Some(scale), min, case }
}

fn case_of(
    hpa: &Hpa<'_>,
    scale: &Scale,
    min: i32,
    overlap: impl FnOnce(&Arc<Selector>) -> Overlap,
    settings: &Settings,
) -> Case {
    let current = scale.replicas;
    let from_zero = current == 0;
    if from_zero && !may_leave_zero(hpa, min, settings) {
        return Case::Disabled;
    }
    if current > hpa.spec.max_replicas {
        return Case::AboveMax;
    }
    if current < min && !from_zero {
        return Case::BelowMin;
    }
    if scale.selector.is_empty() {
        return Case::NoSelector;
    }
    match overlap(&scale.selector) {
        Overlap::None => {}
        Overlap::Shared(others) => return Case::Ambiguous(others),
        Overlap::Deleted => return Case::Deleted,
    }
    Case::Metrics(hpa.spec.metrics.iter().map(|metric| planned(hpa, metric, &scale.selector_text)).collect())
}

/// Whether metrics may scale a workload up from zero. This requires that this controller scaled the workload
/// to zero.
fn may_leave_zero(hpa: &Hpa<'_>, min: i32, settings: &Settings) -> bool {
    settings.scale_to_zero
        && is_true(&hpa.status.conditions, SCALED_TO_ZERO)
        && (min != 0 || has_object_or_external(hpa.spec))
}

/// Whether any metric has a value without pods.
pub(crate) fn has_object_or_external(spec: &Spec) -> bool {
    spec.metrics.iter().any(|metric| match metric {
        MetricSource::Object { .. } | MetricSource::External { .. } => true,
        MetricSource::Invalid(invalid) => matches!(&*invalid.kind, "Object" | "External"),
        MetricSource::Resource { .. }
        | MetricSource::ContainerResource { .. }
        | MetricSource::Pods { .. } => false,
    })
}

fn planned(hpa: &Hpa<'_>, metric: &MetricSource, selector: &Arc<str>) -> PlannedMetric {
    let namespace: Arc<str> = hpa.namespace.into();
    let selected = |metric: &crate::status::MetricIdentifier| {
        // Upstream converts an absent selector to one that selects nothing, with an empty text. The servers interpret
        // this text as all series.
        let everything = LabelSelector::default();
        Selector::from_label_selector(Some(metric.selector.as_ref().unwrap_or(&everything)))
            .map(|selector| Arc::<str>::from(selector.to_string()))
            .map_err(|error| error.to_string())
    };
    let query = match metric {
        MetricSource::Resource { .. } | MetricSource::ContainerResource { .. } => {
            Ok(Query::Resource { namespace, selector: Arc::clone(selector) })
        }
        MetricSource::Pods { metric, .. } => selected(metric).map(|metric_selector| Query::Pods {
            namespace,
            metric: metric.name.as_str().into(),
            selector: Arc::clone(selector),
            metric_selector,
        }),
        MetricSource::Object { described, metric, .. } => {
            selected(metric).map(|metric_selector| Query::Object {
                namespace,
                group: target_group(described).unwrap_or_default().into(),
                kind: described.kind.as_str().into(),
                name: described.name.as_str().into(),
                metric: metric.name.as_str().into(),
                metric_selector,
            })
        }
        MetricSource::External { metric, .. } => selected(metric).map(|selector| Query::External {
            namespace,
            metric: metric.name.as_str().into(),
            selector,
        }),
        MetricSource::Invalid(_) => return PlannedMetric::Invalid,
    };
    query.map_or_else(PlannedMetric::BadSelector, PlannedMetric::Query)
}
