//! Classes of failures, and upstream's texts for them.
//!
//! A failure is classified where it occurs, and the [explanation](crate::explanation) contains the class. The statuses
//! and events of other controllers, and the records of earlier versions, contain only a text.
//! [`ScaleFailureClass::from_text`] and [`MetricFailureClass::from_text`] classify these texts. No decision depends on
//! the wording of an error. [`quote`] quotes values in texts, as Go's `%q` does.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// The error of upstream's `replica_calculator.go` if the selector matches no pod.
pub(crate) const NO_PODS: &str = "no pods returned by selector while calculating replica count";
/// The error of upstream's `replica_calculator.go` if no pod has a usable sample.
pub(crate) const NO_SAMPLES: &str = "did not receive metrics for targeted pods (pods might be unready)";
/// The start of the errors of upstream's `metrics/client.go` for an empty list.
pub(crate) const NO_VALUES: &str = "no metrics returned";
/// The start of the error of upstream's `replica_calculator.go` for a container without a request.
pub(crate) const MISSING_REQUEST: &str = "missing request for";
/// The start of the error of upstream's `replica_calculator.go` for a pod without a request.
pub(crate) const MISSING_POD_REQUEST: &str = "missing pod-level request for";
/// A part of the error of upstream's `replica_calculator.go` for an absent container.
pub(crate) const NO_CONTAINER: &str = "not found in Pod";
/// The start of the error of upstream's `horizontal.go` for an unknown type of metric.
pub(crate) const UNKNOWN_METRIC_TYPE: &str = "unknown metric source type";
/// The start of the errors of upstream's `horizontal.go` for a metric without a target.
const INVALID_METRIC: &str = "invalid ";
/// The start of the error of apimachinery's `schema.ParseGroupVersion`.
const INVALID_GROUP_VERSION: &str = "unexpected GroupVersion string";
/// The start of the text of apimachinery's `meta.NoKindMatchError`.
const NO_MATCH: &str = "no matches for kind";
/// The end of the text of apimachinery's `errors.NewNotFound`.
const NOT_FOUND: &str = "not found";
/// A part of the text of apimachinery's `errors.NewGenericServerResponse` for 404.
const NO_RESOURCE: &str = "could not find the requested resource";
/// A part of the text of apimachinery's `errors.NewForbidden`.
const FORBIDDEN: &str = "is forbidden";
/// A part of the text of apimachinery's `errors.NewGenericServerResponse` for 503.
const UNAVAILABLE: &str = "currently unable to handle the request";
/// Go's text of `syscall.ECONNREFUSED`, as in the errors of the API aggregator.
const REFUSED: &str = "connection refused";
/// A part of the text of custom-metrics-apiserver's `provider.NewMetricNotFoundError`.
const NO_METRIC: &str = "could not find the metric";
/// The error of `custom_metrics.NewAvailableAPIsGetter` in k8s.io/metrics for an absent group.
const NO_CUSTOM_API: &str = "no custom metrics API (custom.metrics.k8s.io) registered";
/// The error of `custom_metrics.NewAvailableAPIsGetter` in k8s.io/metrics for a group without a supported version.
const NO_CUSTOM_VERSION: &str = "no known available metric versions found";

/// The class of a failure to read a Scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScaleFailureClass {
    /// `apiVersion` of the target reference is invalid.
    InvalidReference,
    /// The cluster does not serve the kind.
    NoMatchForKind,
    /// The target does not exist, or has no Scale.
    NotFound,
    /// The controller lacks a permission (403).
    Forbidden,
    /// The HPA exceeds [`crate::spec::MAX_METRICS`] or [`crate::spec::MAX_SPEC_BYTES`], so no Scale is read.
    TooManyMetrics,
    /// Any other failure.
    Other,
}

impl ScaleFailureClass {
    /// Classifies the text of an error in the words of upstream.
    pub fn from_text(text: &str) -> Self {
        if text.contains(INVALID_GROUP_VERSION) {
            Self::InvalidReference
        } else if text.contains(NO_MATCH) {
            Self::NoMatchForKind
        } else if text.contains(FORBIDDEN) {
            Self::Forbidden
        } else if text.contains(NOT_FOUND) || text.contains(NO_RESOURCE) {
            Self::NotFound
        } else {
            Self::Other
        }
    }
}

/// The class of a failure to compute a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MetricFailureClass {
    /// A container does not request the resource.
    MissingRequest,
    /// The pod sets pod-level requests, but neither the pod nor a container requests the resource.
    MissingPodRequest,
    /// A pod lacks the container that the metric names.
    NoContainer,
    /// The metric in the spec is invalid.
    InvalidMetric,
    /// The cluster does not serve the metrics API.
    ApiNotServed,
    /// The metrics API is registered, but does not respond.
    ApiUnavailable,
    /// The controller lacks a permission (403).
    Forbidden,
    /// The metrics API has no value for the metric, or no value that matches the known pods.
    NoValues,
    /// No pod has a usable sample.
    NoSamples,
    /// The selector matches no pod.
    NoPods,
    /// Any other failure.
    Other,
}

impl MetricFailureClass {
    /// Classifies the text of an error in the words of upstream, without the prefixes that name the metric and its API.
    pub fn from_text(text: &str) -> Self {
        if text.starts_with(MISSING_REQUEST) {
            Self::MissingRequest
        } else if text.starts_with(MISSING_POD_REQUEST) {
            Self::MissingPodRequest
        } else if text.contains(NO_CONTAINER) {
            Self::NoContainer
        } else if text.starts_with(INVALID_METRIC) || text.starts_with(UNKNOWN_METRIC_TYPE) {
            Self::InvalidMetric
        } else if [NO_RESOURCE, NO_CUSTOM_API, NO_CUSTOM_VERSION].iter().any(|part| text.contains(part)) {
            Self::ApiNotServed
        } else if text.contains(UNAVAILABLE) || text.contains(REFUSED) {
            Self::ApiUnavailable
        } else if text.contains(FORBIDDEN) {
            Self::Forbidden
        } else if text.contains(NO_VALUES) || text.contains(NO_METRIC) {
            Self::NoValues
        } else if text.contains(NO_SAMPLES) {
            Self::NoSamples
        } else if text.contains(NO_PODS) {
            Self::NoPods
        } else {
            Self::Other
        }
    }
}

/// The failure of a metric, without the prefixes that name the metric and its API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) class: MetricFailureClass,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(class: MetricFailureClass, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }

    pub(crate) fn map(self, text: impl FnOnce(&str) -> String) -> Self {
        Self { class: self.class, text: text(&self.text) }
    }
}

/// Quotes a text like `strconv.Quote`: in double quotes, with Go's escapes for unprintable characters.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            printable if is_printable(printable) => quoted.push(printable),
            other => {
                let code = u32::from(other);
                // Writing to a String cannot fail.
                let _ = match code {
                    0..=0x7f => write!(quoted, "\\x{code:02x}"),
                    0x80..=0xffff => write!(quoted, "\\u{code:04x}"),
                    _ => write!(quoted, "\\U{code:08x}"),
                };
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Whether `strconv.IsPrint` accepts the character: a letter, mark, number, punctuation, symbol or the ASCII space.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return character == ' ' || character.is_ascii_graphic();
    }
    // `escape_debug` escapes unprintable characters, and a mark at the start of a text. A preceding letter avoids the
    // second case.
    let after_letter = ['a', character].iter().collect::<String>();
    after_letter.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_scale_failure_has_a_class() {
        for (text, class) in [
            ("unexpected GroupVersion string: a/b/c", ScaleFailureClass::InvalidReference),
            ("no matches for kind \"Deploymet\" in group \"apps\"", ScaleFailureClass::NoMatchForKind),
            ("deployments.apps \"web\" not found", ScaleFailureClass::NotFound),
            ("the server could not find the requested resource", ScaleFailureClass::NotFound),
            (
                "deployments.apps \"web\" is forbidden: User \"u\" cannot get resource",
                ScaleFailureClass::Forbidden,
            ),
            ("Timeout: request did not complete", ScaleFailureClass::Other),
        ] {
            assert_eq!(ScaleFailureClass::from_text(text), class, "{text}");
        }
    }

    #[test]
    fn text_of_a_metric_failure_has_a_class() {
        for (text, class) in [
            ("missing request for cpu in container app of Pod web-1", MetricFailureClass::MissingRequest),
            ("missing pod-level request for cpu in Pod web-1", MetricFailureClass::MissingPodRequest),
            ("container proxy not found in Pod web-1", MetricFailureClass::NoContainer),
            ("invalid resource metric source: neither an average", MetricFailureClass::InvalidMetric),
            ("unknown metric source type \"Resouce\"", MetricFailureClass::InvalidMetric),
            (
                "the server could not find the requested resource (get pods.metrics.k8s.io)",
                MetricFailureClass::ApiNotServed,
            ),
            ("no custom metrics API (custom.metrics.k8s.io) registered", MetricFailureClass::ApiNotServed),
            ("no known available metric versions found", MetricFailureClass::ApiNotServed),
            (
                "the server is currently unable to handle the request (get pods.metrics.k8s.io)",
                MetricFailureClass::ApiUnavailable,
            ),
            (
                "error trying to reach service: dial tcp 10.0.0.9:443: connect: connection refused",
                MetricFailureClass::ApiUnavailable,
            ),
            ("pods.metrics.k8s.io is forbidden: User \"u\" cannot list", MetricFailureClass::Forbidden),
            ("no metrics returned from resource metrics API", MetricFailureClass::NoValues),
            ("no metrics returned matched known pods", MetricFailureClass::NoValues),
            ("the server could not find the metric rps for pods", MetricFailureClass::NoValues),
            (NO_SAMPLES, MetricFailureClass::NoSamples),
            (NO_PODS, MetricFailureClass::NoPods),
            ("Internal error occurred", MetricFailureClass::Other),
        ] {
            assert_eq!(MetricFailureClass::from_text(text), class, "{text}");
        }
    }

    #[test]
    fn texts_are_quoted_as_in_go() {
        assert_eq!(quote("web"), r#""web""#);
        assert_eq!(quote("a\"b\\c'd"), r#""a\"b\\c'd""#);
        assert_eq!(quote("\u{0}\u{7}\u{8}\u{b}\u{c}\n\r\t\u{7f}"), r#""\x00\a\b\v\f\n\r\t\x7f""#);
        assert_eq!(quote("µ é e\u{301} 日本"), "\"µ é e\u{301} 日本\"");
        assert_eq!(quote("\u{a0}\u{200b}\u{feff}"), r#""\u00a0\u200b\ufeff""#);
        assert_eq!(quote("\u{e000}\u{10ffff}"), r#""\ue000\U0010ffff""#);
    }
}
