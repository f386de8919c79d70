//! `metrics`: the sources of an HPA's metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::query::Api;
use limits::policy::LABELS as MAX_LABELS;
use limits::query::BYTES as MAX_QUERY;
use serde_json::Value;

use super::reader::Reader;
use super::transport::{self, PodTransport};
use super::{Named, Problem, ProblemReason};

/// Maximum bytes of a name, a path or a label.
const MAX_TEXT: usize = 1024;
/// Maximum bytes of an API group.
const MAX_GROUP: usize = 253;

/// The resources that a kubelet measures.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// An entry of `metrics`: the source of the metrics with one name, of type Pods, Object or External. A rule with
/// `kubelet` applies to all metrics of type Resource or ContainerResource of the HPA, whether it names cpu or memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricRule {
    /// `metric`: the name in `spec.metrics`. With `kubelet`, `cpu` or `memory`.
    pub metric: Arc<str>,
    /// `maxAgeSeconds`: the maximum age of a value. With an older value, the metric fails. `None` for no maximum.
    pub max_age_seconds: Option<u32>,
    /// `prometheus`, `pods`, `source` or `kubelet`.
    pub origin: MetricOrigin,
}

impl MetricRule {
    /// Returns the rule for a metric of type Pods, Object or External: the first rule with its name.
    pub fn find<'a>(rules: &'a [Self], metric: &str) -> Option<&'a Self> {
        rules.iter().find(|rule| *rule.metric == *metric && rule.origin != MetricOrigin::Kubelet)
    }
}

/// The source of a metric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricOrigin {
    /// `prometheus`: an instant query.
    Prometheus {
        /// `server`: the name in the source file.
        server: Arc<str>,
        /// `query`: PromQL with the variables `$pods`, `$namespace` and `$name`.
        query: Arc<str>,
    },
    /// `pods`: a page of metrics that each pod serves.
    Pods(Arc<PodSeries>),
    /// `kubelet`: the kubelets of the pods' nodes.
    Kubelet,
    /// `source.apiGroup`: a metrics adapter with an API group other than the default groups.
    ApiGroup(Arc<str>),
}

/// `pods`: the page of a pod, and the series that yield its value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSeries {
    /// `port`.
    pub port: PodPort,
    /// `path`, `/metrics` by default.
    pub path: Arc<str>,
    /// `scheme`, `tlsConfig` and `authorization`. `None` for a request without TLS.
    pub transport: Option<Arc<PodTransport>>,
    /// `series`: the name of the series.
    pub series: Arc<str>,
    /// `labels`: the labels that a series must have, sorted by name.
    pub labels: Arc<[(String, String)]>,
    /// `reduce`: the function that combines several series into one value.
    pub reduce: Reduction,
    /// `rateSeconds`: the window of the rate of a counter. `None` for a gauge.
    pub rate_seconds: Option<u16>,
    /// `intervalSeconds`: the time between two scrapes.
    pub interval_seconds: u16,
}

/// `port`: a port that a container of the pod declares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPort {
    /// `containerPort` of the port.
    Number(u16),
    /// `name` of the port.
    Name(Arc<str>),
}

/// `reduce`: the function that combines several series of a pod into one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Reduction {
    /// The sum of the values.
    #[default]
    Sum,
    /// The average of the values.
    Average,
    /// The highest value.
    Max,
}

impl Named for Reduction {
    const NAMES: &'static [(&'static str, Self)] =
        &[("Sum", Self::Sum), ("Average", Self::Average), ("Max", Self::Max)];
}

/// Reads an entry of `metrics`.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<MetricRule> {
    let metric = required(reader, "metric", MAX_TEXT);
    let max_age_seconds = reader.integer("maxAgeSeconds", 1..=3600);
    let origins = ["prometheus", "pods", "source", "kubelet"];
    let origins = origins.into_iter().filter(|origin| reader.has(origin)).count();
    let prometheus = reader.unit("prometheus", prometheus);
    let pods = reader.unit("pods", pods).map(|series| MetricOrigin::Pods(Arc::new(series)));
    let group = reader.unit("source", api_group).map(MetricOrigin::ApiGroup);
    let kubelet = reader.unit("kubelet", |_| Some(MetricOrigin::Kubelet));
    if origins != 1 {
        reader.report_whole(ProblemReason::Conflict("needs one of prometheus, pods, source and kubelet"));
    }
    let (metric, origin) = (metric?, prometheus.or(pods).or(group).or(kubelet)?);
    if origin == MetricOrigin::Kubelet && !RESOURCES.contains(&&*metric) {
        reader.report("metric", ProblemReason::Conflict("must be cpu or memory, which kubelets measure"));
        return None;
    }
    Some(MetricRule { metric: metric.into(), max_age_seconds, origin })
}

/// Returns a problem for each rule whose metric has an earlier rule.
pub(super) fn duplicates(rules: &[MetricRule]) -> Vec<Problem> {
    let earlier = |index: usize, rule: &MetricRule| {
        rules.iter().take(index).any(|earlier| earlier.metric == rule.metric)
    };
    let repeated = rules.iter().enumerate().filter(|(index, rule)| earlier(*index, rule));
    repeated
        .map(|(_, rule)| Problem {
            path: format!("metrics.{}", rule.metric),
            reason: ProblemReason::Conflict("is set twice; the first entry applies"),
        })
        .collect()
}

pub(super) fn required(reader: &mut Reader<'_>, field: &'static str, maximum: usize) -> Option<String> {
    reader.require(field);
    reader.text(field, maximum)
}

/// Reads the fields of `prometheus`.
pub(super) fn prometheus(reader: &mut Reader<'_>) -> Option<MetricOrigin> {
    let server = required(reader, "server", MAX_TEXT);
    let query = required(reader, "query", MAX_QUERY);
    Some(MetricOrigin::Prometheus { server: server?.into(), query: query?.into() })
}

fn api_group(reader: &mut Reader<'_>) -> Option<Arc<str>> {
    reader.require("apiGroup");
    let expected =
        || "an API group such as external.metrics.example.com, and none of the default ones".to_owned();
    reader.convert("apiGroup", expected, |value| {
        value.as_str().filter(|group| is_api_group(group)).map(Into::into)
    })
}

/// Whether a text is a valid API group of a metrics adapter: a DNS subdomain with a dot, other than the default groups.
pub fn is_api_group(group: &str) -> bool {
    group.len() <= MAX_GROUP && group.contains('.') && is_subdomain(group) && Api::from_group(group).is_none()
}

/// Whether a text is a DNS subdomain of any length.
pub fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(allowed) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.split('.').all(is_label)
}

fn pods(reader: &mut Reader<'_>) -> Option<PodSeries> {
    reader.require("port");
    let port = reader.convert("port", || "the number or the name of a port".to_owned(), port);
    let path = reader.convert("path", || "a path such as /metrics".to_owned(), path);
    let transport = transport::read(reader);
    let series = required(reader, "series", MAX_TEXT);
    let labels = reader.convert("labels", || "a mapping of at most 30 labels to texts".to_owned(), labels);
    let reduce = reader.choice("reduce").unwrap_or_default();
    let rate_seconds = reader.integer("rateSeconds", 1..=3600);
    let interval_seconds = reader.integer("intervalSeconds", 1..=300);
    // A rate needs two scrapes in its window, and a scrape may be late.
    let default_interval = rate_seconds.map_or(5, |rate: u16| (rate / 4).clamp(1, 5));
    let interval_seconds = interval_seconds.unwrap_or(default_interval);
    if rate_seconds.is_some_and(|rate| rate < interval_seconds.saturating_mul(2)) {
        let reason = "must be at least twice intervalSeconds, because a rate needs two scrapes";
        reader.report("rateSeconds", ProblemReason::Conflict(reason));
    }
    Some(PodSeries {
        port: port?,
        path: path.unwrap_or_else(|| "/metrics".into()),
        transport,
        series: series?.into(),
        labels: labels.unwrap_or_default(),
        reduce,
        rate_seconds,
        interval_seconds,
    })
}

fn port(value: &Value) -> Option<PodPort> {
    match value {
        Value::String(name) => {
            let is_name = (1..=15).contains(&name.len())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            is_name.then(|| PodPort::Name(name.as_str().into()))
        }
        value => {
            let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
            number.filter(|number| *number > 0).map(PodPort::Number)
        }
    }
}

/// Converts a path with an optional query. The allowed characters cannot change the authority of the URL.
fn path(value: &Value) -> Option<Arc<str>> {
    let path = value.as_str().filter(|path| path.starts_with('/') && path.len() <= MAX_TEXT)?;
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte));
    is_plain.then(|| path.into())
}

fn labels(value: &Value) -> Option<Arc<[(String, String)]>> {
    let labels = value.as_object().filter(|labels| labels.len() <= MAX_LABELS)?;
    let texts: Option<BTreeMap<String, String>> =
        labels.iter().map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
    let fits = |text: &String| text.len() <= MAX_TEXT;
    let texts = texts?;
    texts.iter().all(|(name, value)| fits(name) && fits(value)).then(|| texts.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use crate::spec::{Level, parse};

    use super::*;

    fn problems(metric: &str) -> String {
        let parsed = parse(&format!("metrics: [{metric}]"), Level::Annotation);
        parsed.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn metrics_name_their_origin() {
        let text = r#"
            metrics:
            - metric: http_requests
              prometheus: {server: main, query: 'sum(rate(http_requests_total{pod=~"$pods"}[30s])) by (pod)'}
              maxAgeSeconds: 30
            - metric: waiting
              pods: {port: http, series: 'vllm:num_requests_waiting', labels: {model: llama}, reduce: Max, intervalSeconds: 1}
            - metric: requests_per_second
              pods: {port: 9090, path: /stats/prometheus?usedonly, series: http_requests_total, rateSeconds: 10}
            - metric: others
              pods: {port: 9090, series: http_requests_total, rateSeconds: 12}
            - {metric: cpu, kubelet: {}}
            - {metric: queue_length, source: {apiGroup: external.metrics.example.com}}
        "#;
        let parsed = parse(text, Level::Annotation);
        assert_eq!(parsed.problems, []);
        let rules = parsed.spec.metrics.unwrap();
        assert_eq!(rules[0].max_age_seconds, Some(30));
        assert!(matches!(&rules[0].origin, MetricOrigin::Prometheus { server, .. } if &**server == "main"));
        let series = |index: usize| match &rules[index].origin {
            MetricOrigin::Pods(series) => Arc::clone(series),
            origin => panic!("not a series of pods: {origin:?}"),
        };
        assert_eq!(series(1).port, PodPort::Name("http".into()));
        assert_eq!(series(1).labels[..], [("model".to_owned(), "llama".to_owned())]);
        assert_eq!((series(1).reduce, series(1).interval_seconds), (Reduction::Max, 1));
        assert_eq!((&*series(1).path, &*series(2).path), ("/metrics", "/stats/prometheus?usedonly"));
        assert_eq!((series(2).rate_seconds, series(2).interval_seconds), (Some(10), 2));
        assert_eq!((series(3).rate_seconds, series(3).interval_seconds), (Some(12), 3));
        assert_eq!((&*rules[4].metric, &rules[4].origin), ("cpu", &MetricOrigin::Kubelet));
        assert_eq!(rules[5].origin, MetricOrigin::ApiGroup("external.metrics.example.com".into()));
    }

    #[test]
    fn invalid_metric_is_reported_with_its_path() {
        for (metric, expected) in [
            ("{metric: a}", "metrics[0]: needs one of prometheus, pods, source and kubelet"),
            (
                "{metric: cpu, kubelet: {}, prometheus: {server: m, query: up}}",
                "metrics[0]: needs one of prometheus, pods, source and kubelet",
            ),
            (
                "{metric: disk, kubelet: {}}",
                "metrics[0].metric: must be cpu or memory, which kubelets measure",
            ),
            (
                "{metric: a, source: {apiGroup: b.c}, pods: {port: 1, series: b}}",
                "metrics[0]: needs one of prometheus, pods, source and kubelet",
            ),
            ("{metric: a, source: {}}", "metrics[0].source.apiGroup: is required"),
            (
                "{metric: a, source: {apiGroup: external.metrics.k8s.io}}",
                "metrics[0].source.apiGroup: must be an API group such as external.metrics.example.com, and none of \
                 the default ones, not \"external.metrics.k8s.io\"",
            ),
            (
                "{metric: a, source: {apiGroup: example.com/v1}}",
                "metrics[0].source.apiGroup: must be an API group such as external.metrics.example.com, and none of \
                 the default ones, not \"example.com/v1\"",
            ),
            ("{metric: a, prometheus: {server: m}}", "metrics[0].prometheus.query: is required"),
            (
                "{metric: a, pods: {port: 0, series: b}}",
                "metrics[0].pods.port: must be the number or the name of a port, not 0",
            ),
            ("{metric: a, pods: {port: http, series: b, path: '//evil@host/'}}", ""),
            ("{metric: a, pods: {port: http-2, series: b, rateSeconds: 6, intervalSeconds: 3}}", ""),
            (
                &format!(
                    "{{metric: a, pods: {{port: http, series: b, labels: {{c: {}}}}}}}",
                    "x".repeat(MAX_TEXT + 1)
                ),
                "metrics[0].pods.labels: must be a mapping of at most 30 labels to texts, not a mapping",
            ),
            (
                "{metric: a, pods: {port: Http, series: b}}",
                "metrics[0].pods.port: must be the number or the name of a port, not \"Http\"",
            ),
            (
                "{metric: a, pods: {port: http, series: b, path: 'evil/'}}",
                "metrics[0].pods.path: must be a path such as /metrics, not \"evil/\"",
            ),
            (
                "{metric: a, pods: {port: http, series: b, rateSeconds: 5, intervalSeconds: 3}}",
                "metrics[0].pods.rateSeconds: must be at least twice intervalSeconds, because a rate needs two scrapes",
            ),
            (
                "{metric: a, prometheus: {server: m, query: up}}, {metric: a, prometheus: {server: m, query: up}}",
                "metrics.a: is set twice; the first entry applies",
            ),
        ] {
            assert_eq!(problems(metric), expected, "{metric}");
        }
    }
}
