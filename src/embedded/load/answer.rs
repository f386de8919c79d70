//! Answers of the metrics APIs, written as text straight from the samples when somebody asks.

use std::io::Write;
use std::time::Duration;

use autoscaling::selector::Selector;
use jiff::Timestamp;

use super::ledger::{Ledger, Series};
use super::model::Shown;
use super::outages::Gaps;
use super::roster::{Group, IDLE_BYTES, IDLE_MILLICORES, Pod, Reading, Usage};
use crate::duration::GoDuration;
use crate::embedded::metrics::{CustomQuestion, bad_selector, metric_not_found, pod_not_found};
use crate::embedded::object::time_text;
use crate::embedded::{MetricsReply, MetricsRequest};

/// What the answers are made from.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    pub(super) groups: &'a [Group],
    pub(super) ledgers: &'a [Ledger],
    pub(super) gaps: Gaps<'a>,
    /// Since the beginning of the run, and the time of day at that instant.
    pub(super) now: Duration,
    pub(super) time: Timestamp,
}

impl Answers<'_> {
    /// metrics.k8s.io, for the pods of these groups.
    pub(super) fn resource(&self, request: &MetricsRequest<'_>, groups: &[usize]) -> MetricsReply {
        let pods = groups.iter().filter_map(|place| self.groups.get(*place)).flat_map(|group| {
            group.pods.values().filter_map(move |pod| {
                let usage = (*pod.usage.shown(self.now)?)?;
                (!self.gaps.swallow(&pod.name)).then_some((group, pod, usage))
            })
        });
        match request.path {
            [resource] if resource == "pods" => {
                let mut list = List::begin("PodMetrics", "metrics.k8s.io", request.version);
                let mut written: Option<(Usage, Stamps)> = None;
                for (group, pod, usage) in pods {
                    // Most samples of a list were taken at once.
                    let known = written
                        .take()
                        .filter(|(other, _)| (other.at, other.window) == (usage.at, usage.window));
                    let (_, stamps) = written.insert(known.unwrap_or_else(|| (usage, self.stamps(usage))));
                    write_usage(list.next(), "", group, pod, usage, stamps);
                }
                list.end()
            }
            [resource, name] if resource == "pods" => {
                let Some((group, pod, usage)) = pods.into_iter().find(|(_, pod, _)| pod.name == *name) else {
                    return pod_not_found(request.namespace, name);
                };
                let kind =
                    format!("\"kind\":\"PodMetrics\",\"apiVersion\":\"metrics.k8s.io/{}\",", request.version);
                let mut text = Vec::new();
                write_usage(&mut text, &kind, group, pod, usage, &self.stamps(usage));
                MetricsReply::Encoded(text.into())
            }
            _ => MetricsReply::Absent,
        }
    }

    /// custom.metrics.k8s.io; `groups` are those whose pods the request selects.
    pub(super) fn custom(&self, request: &MetricsRequest<'_>, groups: &[usize]) -> MetricsReply {
        let Some(question) = CustomQuestion::read(request.namespace, request.path) else {
            return MetricsReply::Absent;
        };
        let is_custom = |series: &&Series| !matches!(series.metric.shown, Shown::External { .. });
        let of_this_name = |series: &&Series| series.metric.name == question.metric;
        let mut all = self.ledgers.iter().flat_map(|ledger| &ledger.metrics);
        if !all.any(|series| is_custom(&series) && of_this_name(&series)) {
            return metric_not_found(question.metric, question.resource, question.object);
        }
        let mut list = List::begin("MetricValue", "custom.metrics.k8s.io", request.version);
        match Selector::parse(request.metric_label_selector) {
            Ok(selector) if selector.is_empty() => {}
            // The series here have no labels that a selector could match.
            Ok(_) => return list.end(),
            Err(error) => return bad_selector(&error),
        }
        if question.is_of("v1", "Pod") {
            for group in groups.iter().filter_map(|place| self.groups.get(*place)) {
                let series =
                    self.ledgers.get(group.load).map(|ledger| ledger.metrics.as_slice()).unwrap_or_default();
                for (place, series) in series.iter().enumerate().filter(|(_, series)| of_this_name(series)) {
                    let named = |pod: &&Pod| question.is_named(&pod.name) && !self.gaps.swallow(&pod.name);
                    for pod in group.pods.values().filter(named) {
                        let reading =
                            pod.metrics.get(place).and_then(|(_, readings)| *readings.shown(self.now)?);
                        if let Some(reading) = reading {
                            let object = ["v1", "Pod", &group.namespace, &pod.name];
                            self.write_value(
                                &mut list,
                                request.version,
                                object,
                                &series.metric.name,
                                reading,
                            );
                        }
                    }
                }
            }
        }
        for ledger in self.ledgers.iter().filter(|ledger| ledger.load.namespace == request.namespace) {
            for series in ledger.metrics.iter().filter(of_this_name) {
                if let Shown::Object { api_version, kind, name } = &series.metric.shown
                    && question.is_of(api_version, kind)
                    && question.is_named(name)
                    && !self.gaps.swallow(&series.metric.name)
                    && let Some(reading) = series.readings.shown(self.now)
                {
                    let object = [api_version.as_str(), kind, &ledger.load.namespace, name];
                    self.write_value(&mut list, request.version, object, &series.metric.name, *reading);
                }
            }
        }
        list.end()
    }

    /// external.metrics.k8s.io.
    pub(super) fn external(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let [metric] = request.path else {
            return MetricsReply::Absent;
        };
        let selector = match Selector::parse(request.label_selector) {
            Ok(selector) => selector,
            Err(error) => return bad_selector(&error),
        };
        let mut list = List::begin("ExternalMetricValue", "external.metrics.k8s.io", request.version);
        let all = self.ledgers.iter().flat_map(|ledger| &ledger.metrics);
        for series in all.filter(|series| series.metric.name == *metric && !self.gaps.swallow(metric)) {
            if let Shown::External { labels } = &series.metric.shown
                && selector.matches(labels)
                && let Some(reading) = series.readings.shown(self.now)
            {
                let text = list.next();
                put(text, b"{\"metricName\":");
                quote(text, metric);
                put(text, b",\"metricLabels\":");
                quote(text, labels);
                put(text, b",\"timestamp\":");
                quote(text, &self.time_text(reading.at));
                if !reading.window.is_zero() {
                    let _ = write!(text, ",\"window\":{}", reading.window.as_secs());
                }
                let _ = write!(text, ",\"value\":\"{}m\"}}", whole(reading.value * 1_000.0));
            }
        }
        list.end()
    }

    /// A MetricValue. v1beta1 names its fields otherwise.
    fn write_value(&self, list: &mut List, version: &str, object: [&str; 4], metric: &str, reading: Reading) {
        let [api_version, kind, namespace, name] = object;
        let text = list.next();
        put(text, b"{\"describedObject\":{\"kind\":");
        quote(text, kind);
        put(text, b",\"namespace\":");
        quote(text, namespace);
        put(text, b",\"name\":");
        quote(text, name);
        put(text, b",\"apiVersion\":");
        quote(text, api_version);
        let is_old = version == "v1beta1";
        put(text, if is_old { b"},\"metricName\":" } else { b"},\"metric\":{\"name\":" });
        quote(text, metric);
        put(
            text,
            if is_old { b",\"selector\":null,\"timestamp\":" } else { b",\"selector\":null},\"timestamp\":" },
        );
        quote(text, &self.time_text(reading.at));
        if !reading.window.is_zero() {
            let field = if is_old { "window" } else { "windowSeconds" };
            let _ = write!(text, ",\"{field}\":{}", reading.window.as_secs());
        }
        let _ = write!(text, ",\"value\":\"{}m\"}}", whole(reading.value * 1_000.0));
    }

    fn stamps(&self, usage: Usage) -> Stamps {
        let mut stamps = Stamps::default();
        quote(&mut stamps.time, &self.time_text(usage.at));
        quote(&mut stamps.window, &window_text(usage.window));
        stamps
    }

    fn time_text(&self, at: Duration) -> String {
        let ago = self.now.saturating_sub(at);
        time_text(self.time.checked_sub(ago).unwrap_or(self.time))
    }
}

/// When a sample was taken, and over what time it is a mean, as JSON.
#[derive(Debug, Default)]
struct Stamps {
    time: Vec<u8>,
    window: Vec<u8>,
}

/// A list that is being written.
#[derive(Debug)]
struct List {
    text: Vec<u8>,
    is_empty: bool,
}

impl List {
    fn begin(kind: &str, group: &str, version: &str) -> Self {
        let head = format!(
            "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{group}/{version}\",\"metadata\":{{}},\"items\":["
        );
        Self { text: head.into_bytes(), is_empty: true }
    }

    /// Where the next item is to be written.
    fn next(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.text.push(b',');
        }
        &mut self.text
    }

    fn end(mut self) -> MetricsReply {
        put(&mut self.text, b"]}");
        MetricsReply::Encoded(self.text.into())
    }
}

/// A PodMetrics: the work is in one container, the others idle.
fn write_usage(text: &mut Vec<u8>, kind: &str, group: &Group, pod: &Pod, usage: Usage, stamps: &Stamps) {
    put(text, b"{");
    put(text, kind.as_bytes());
    put(text, b"\"metadata\":{\"name\":");
    quote(text, &pod.name);
    put(text, b",\"namespace\":");
    quote(text, &group.namespace);
    put(text, b",\"creationTimestamp\":");
    put(text, &stamps.time);
    put(text, b",\"labels\":");
    put(text, &group.labels_text);
    put(text, b"},\"timestamp\":");
    put(text, &stamps.time);
    put(text, b",\"window\":");
    put(text, &stamps.window);
    put(text, b",\"containers\":[");
    for (place, container) in pod.containers.iter().enumerate() {
        let (millicores, bytes) = if place == pod.working {
            (usage.millicores, usage.bytes)
        } else {
            (IDLE_MILLICORES, IDLE_BYTES)
        };
        put(text, if place == 0 { b"{\"name\":" } else { b",{\"name\":" });
        quote(text, container);
        let (nanocores, kibibytes) = (whole(millicores * 1e6), whole(bytes / 1_024.0));
        let _ = write!(text, ",\"usage\":{{\"cpu\":\"{nanocores}n\",\"memory\":\"{kibibytes}Ki\"}}}}");
    }
    put(text, b"]}");
}

fn put(text: &mut Vec<u8>, more: &[u8]) {
    text.extend_from_slice(more);
}

/// Texts and maps of texts as JSON.
fn quote(text: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    // Neither can fail: the writer is memory, and the keys are texts.
    let _ = serde_json::to_writer(text, value);
}

/// `metav1.Duration`.
fn window_text(window: Duration) -> String {
    GoDuration(i64::try_from(window.as_nanos()).unwrap_or(i64::MAX)).to_string()
}

/// The whole part of an amount; negative and undefined ones are 0, one too large is the largest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturating, as the function's doc says"
)]
fn whole(amount: f64) -> u64 {
    amount as u64
}
