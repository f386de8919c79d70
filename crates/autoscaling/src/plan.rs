//! The first step of a sync: from the HPA and its Scale, what must be read, or that the matter is settled.

use std::sync::Arc;

use crate::condition::{SCALED_TO_ZERO, is_true};
use crate::explanation::Course;
use crate::query::Query;
use crate::selector::{LabelSelector, Selector};
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
    /// What it asks for.
    pub spec: &'a Spec,
    /// Its status as last seen.
    pub status: &'a Status,
}

/// The Scale of a target, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`.
    pub replicas: i32,
    /// `status.replicas`.
    pub status_replicas: i32,
    /// `status.selector`.
    pub selector: Arc<Selector>,
    /// The same, as canonical text.
    pub selector_text: Arc<str>,
}

/// The group of a target reference cannot be read from its `apiVersion`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {api_version}")]
pub struct ApiVersionError {
    /// The text as written.
    pub api_version: String,
}

/// What stands in the way of a Scale: the text for condition and event, and whether the spec itself is to blame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleFailure {
    /// The error, as the reference prints it.
    pub message: String,
    /// Whether this counts as `error="spec"` in the metrics.
    pub is_spec: bool,
}

/// Which other HPAs control pods of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlap {
    /// None.
    None,
    /// These, this HPA among them, as `namespace/name`, sorted.
    Shared(Vec<String>),
    /// This HPA is no longer known: it was deleted while the sync ran.
    Deleted,
}

/// What a sync will do next.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub(crate) scale: Option<Scale>,
    pub(crate) min: i32,
    pub(crate) case: Case,
}

/// The cases of a sync.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Case {
    /// The Scale cannot be had.
    NoScale(ScaleFailure),
    /// The target is at zero, and not by this controller.
    Disabled,
    /// More replicas than maxReplicas.
    AboveMax,
    /// Fewer replicas than minReplicas.
    BelowMin,
    /// The Scale has no selector.
    NoSelector,
    /// Other HPAs control the same pods.
    Ambiguous(Vec<String>),
    /// The HPA was deleted meanwhile.
    Deleted,
    /// Metrics decide.
    Metrics(Vec<PlannedMetric>),
}

impl Case {
    /// As the explanation names it.
    pub(crate) fn course(&self) -> Course {
        match self {
            Self::NoScale(_) => Course::NoScale,
            Self::Disabled => Course::Disabled,
            Self::AboveMax => Course::AboveMax,
            Self::BelowMin => Course::BelowMin,
            Self::NoSelector => Course::NoSelector,
            Self::Ambiguous(_) => Course::Ambiguous,
            Self::Deleted => Course::Deleted,
            Self::Metrics(_) => Course::Metrics,
        }
    }
}

/// What one metric needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PlannedMetric {
    /// An answer to this.
    Query(Query),
    /// Nothing: it fails with this text, its selector being wrong.
    BadSelector(String),
    /// Nothing: its source is invalid.
    Invalid,
}

/// The API group of a target reference: the part before the slash, or empty for the core group.
///
/// # Errors
/// More than one slash.
pub fn target_group(target: &CrossVersionObjectReference) -> Result<&str, ApiVersionError> {
    let version = target.api_version.as_str();
    match version.split_once('/') {
        None => Ok(""),
        Some((group, rest)) if !rest.contains('/') => Ok(group),
        Some(_) => Err(ApiVersionError { api_version: version.to_owned() }),
    }
}

impl Scale {
    /// A Scale from its counts and the text of its selector.
    ///
    /// # Errors
    /// The text that the reference prints for a selector it cannot take.
    pub fn new(replicas: i32, status_replicas: i32, selector: &str) -> Result<Self, String> {
        let selector = Selector::parse_scale(selector).map_err(|error| {
            format!(
                "received an object from a /scale endpoint which was not convertible to autoscaling Scale: \
                 failed to parse target selector: {error}"
            )
        })?;
        let selector_text = selector.to_string().into();
        Ok(Self { replicas, status_replicas, selector: Arc::new(selector), selector_text })
    }
}

impl Plan {
    /// For each metric that must be read, its place in the spec and what to ask.
    pub fn queries(&self) -> impl Iterator<Item = (usize, &Query)> {
        let metrics: &[PlannedMetric] = match &self.case {
            Case::Metrics(metrics) => metrics,
            _ => &[],
        };
        metrics.iter().enumerate().filter_map(|(place, metric)| match metric {
            PlannedMetric::Query(query) => Some((place, query)),
            PlannedMetric::BadSelector(_) | PlannedMetric::Invalid => None,
        })
    }

    /// Whether metrics decide, so that pods must be looked at.
    pub fn reads_metrics(&self) -> bool {
        matches!(self.case, Case::Metrics(_))
    }

    /// The Scale that it is based on.
    pub fn scale(&self) -> Option<&Scale> {
        self.scale.as_ref()
    }
}

/// Plans a sync.
///
/// `overlap` is asked at most once, and only by a sync that gets as far as its metrics; the caller remembers the
/// selector for this HPA then.
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

/// Whether the metrics may lift a workload that stands at zero: only where this controller put it there.
fn may_leave_zero(hpa: &Hpa<'_>, min: i32, settings: &Settings) -> bool {
    settings.scale_to_zero
        && is_true(&hpa.status.conditions, SCALED_TO_ZERO)
        && (min != 0 || has_object_or_external(hpa.spec))
}

/// Whether a metric exists that has a value without pods.
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
        // An absent selector selects no series, but its text is empty, and the servers read that as all.
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
