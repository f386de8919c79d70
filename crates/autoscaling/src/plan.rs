//! The first step of a sync: determines whether metrics are needed, and their queries.

use std::sync::Arc;

use crate::explanation::DecisionPath;
use crate::failure::ScaleFailureClass;
use crate::hpa::Hpa;
use crate::query::Query;
use crate::selector::{LabelSelector, Selector, SelectorError};
use crate::settings::{Settings, Version};
use crate::spec::{MAX_METRICS, MAX_SPEC_BYTES, MetricSource, Spec};
use crate::status::{CrossVersionObjectReference, SCALED_TO_ZERO, is_true};

/// The `autoscaling/v1` Scale of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`.
    pub replicas: i32,
    /// `status.replicas`.
    pub status_replicas: i32,
    /// `status.selector`, parsed.
    pub selector: Arc<Selector>,
    /// The canonical text of the selector.
    pub selector_text: Arc<str>,
}

/// The error for a target reference with an invalid `apiVersion`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {api_version}")]
pub struct ApiVersionError {
    /// `apiVersion`, as in the reference.
    pub api_version: String,
}

/// The reason why a Scale is unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleFailure {
    /// The class of the failure. [`ScaleFailureClass::InvalidReference`] and [`ScaleFailureClass::TooManyMetrics`] have
    /// the label `error="spec"`, and all other classes have `error="internal"`.
    pub class: ScaleFailureClass,
    /// The text for the condition and the event, in upstream's words.
    pub message: String,
}

impl ScaleFailure {
    /// The reason why the Scale of an HPA whose spec [is too large](Spec::is_too_large) is not read.
    pub fn too_many_metrics() -> Self {
        let message = format!("the spec has more than {MAX_METRICS} metrics or {MAX_SPEC_BYTES} bytes");
        Self { class: ScaleFailureClass::TooManyMetrics, message }
    }
}

/// The result of the search for other HPAs that control the same pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlap {
    /// No other HPA controls any of the pods.
    None,
    /// All HPAs that control any of the pods, including this HPA, as sorted `namespace/name`.
    Shared(Vec<String>),
    /// This HPA was deleted during the sync.
    Deleted,
}

/// The result of [`plan()`]: the Scale, and the action that follows from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub(crate) scale: Option<Scale>,
    pub(crate) min: i32,
    pub(crate) case: Case,
}

/// The [`DecisionPath`] of a sync, with its inputs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Case {
    NoScale(ScaleFailure),
    Disabled,
    AboveMax,
    BelowMin,
    NoSelector,
    /// The HPAs that control the same pods, as sorted `namespace/name`.
    Ambiguous(Vec<String>),
    Deleted,
    /// The metrics in the order of the spec.
    Metrics(Vec<PlannedMetric>),
}

impl Case {
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

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PlannedMetric {
    Query(Query),
    /// The selector of the metric is invalid, so the metric fails with this text.
    BadSelector(String),
    /// The metric fails, because its source is invalid.
    Invalid,
}

/// Returns the API group of a target reference: the part of `apiVersion` before the slash, or an empty text for the
/// core group.
///
/// # Errors
/// Fails if `apiVersion` contains more than one slash.
pub fn target_group(target: &CrossVersionObjectReference) -> Result<&str, ApiVersionError> {
    let version = target.api_version.as_str();
    match version.split_once('/') {
        None => Ok(""),
        Some((group, rest)) if !rest.contains('/') => Ok(group),
        Some(_) => Err(ApiVersionError { api_version: version.to_owned() }),
    }
}

impl CrossVersionObjectReference {
    /// Whether the object is a namespace of the core group. The custom metrics API then returns the value of the HPA's
    /// own namespace, whatever the name in the reference.
    pub fn is_namespace(&self) -> bool {
        self.kind == "Namespace" && target_group(self).unwrap_or_default().is_empty()
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
    /// Creates a Scale from `spec.replicas`, `status.replicas` and `status.selector`, which `version` reads.
    ///
    /// # Errors
    /// Fails like [`Selector::parse_scale`].
    pub fn new(
        replicas: i32,
        status_replicas: i32,
        selector: &str,
        version: Version,
    ) -> Result<Self, ScaleError> {
        let selector = Selector::parse_scale(selector, version)?;
        let selector_text = selector.to_string().into();
        Ok(Self { replicas, status_replicas, selector: Arc::new(selector), selector_text })
    }
}

impl Plan {
    /// The queries to the metrics APIs, each with the index of its metric in the spec.
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

    /// Whether metrics determine the count. If so, [`crate::decide()`] needs the pods that the Scale's selector
    /// matches.
    pub fn reads_metrics(&self) -> bool {
        matches!(self.case, Case::Metrics(_))
    }

    /// The Scale. `None` if it is unavailable.
    pub fn scale(&self) -> Option<&Scale> {
        self.scale.as_ref()
    }
}

/// Plans a sync, from the HPA and its Scale. An HPA whose spec [is too large](Spec::is_too_large) needs no Scale.
///
/// `overlap` searches for other HPAs that control pods of the selector. It is called at most once, as the last check
/// before metrics are planned. As in upstream, it should store the selector of this HPA for the checks of other HPAs.
pub fn plan(
    hpa: &Hpa<'_>,
    scale: Result<Scale, ScaleFailure>,
    overlap: impl FnOnce(&Arc<Selector>) -> Overlap,
    settings: &Settings,
) -> Plan {
    let min = hpa.spec.min_replicas.unwrap_or(1);
    let scale = if hpa.spec.is_too_large { Err(ScaleFailure::too_many_metrics()) } else { scale };
    let scale = match scale {
        Ok(scale) => scale,
        Err(failure) => return Plan { scale: None, min, case: Case::NoScale(failure) },
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

/// Whether metrics may scale the target up from zero replicas, which requires that this controller scaled it to zero.
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
        // Upstream converts an absent selector to a selector that matches nothing. The text of that selector is empty,
        // so the servers return all series.
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
