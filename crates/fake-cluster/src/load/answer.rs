//! Responses of the metrics APIs, written as text directly from the samples on request.

use std::io::Write;
use std::time::Duration;

use autoscaling::selector::Selector;
use jiff::Timestamp;

use super::load_state::{Gaps, Series, TrackedLoad};
use super::model::Shown;
use super::pod_registry::{Group, IDLE_BYTES, IDLE_MILLICORES, Pod, Reading, Usage};
use crate::metrics::{CustomMetricQuery, bad_selector, metric_not_found, pod_not_found};
use crate::object::time_text;
use crate::{MetricsReply, MetricsRequest};
use autoscaling::duration::GoDuration;

/// The data for the responses.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    pub(super) groups: &'a [Group],
    pub(super) tracked_loads: &'a [TrackedLoad],
    pub(super) gaps: Gaps<'a>,
    /// Time since the start of the run.
    pub(super) now: Duration,
    /// The time whose samples are served.
    pub(super) served: Duration,
    /// The time of day at `now`.
    pub(super) time: Timestamp,
}

impl Answers<'_> {
    /// Serves metrics.k8s.io for the pods of `groups`.
    pub(super) fn resource(&self, request: &MetricsRequest<'_>, groups: &[usize]) -> MetricsReply {
        let pods = groups.iter().filter_map(|index| self.groups.get(*index)).flat_map(|group| {
            group.pods.values().filter_map(move |pod| {
                let usage = (*pod.usage.visible(self.served)?)?;
                (!self.gaps.hides(&pod.name)).then_some((group, pod, usage))
            })
        });
        match request.path {
            [resource] if resource == "pods" => {
                let mut list = List::start("PodMetrics", "metrics.k8s.io", request.version);
                let mut written: Option<(Usage, Stamps)> = None;
                for (group, pod, usage) in pods {
                    // Most samples of a list have the same time, so its text is reused.
                    let same_time = written
                        .take()
                        .filter(|(other, _)| (other.at, other.window) == (usage.at, usage.window));
                    let (_, stamps) =
                        written.insert(same_time.unwrap_or_else(|| (usage, self.stamps(usage))));
                    write_usage(list.next(), "", group, pod, usage, stamps);
                }
                list.finish()
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

    /// Serves custom.metrics.k8s.io. `groups` are the indexes of the groups that the request selects.
    pub(super) fn custom(&self, request: &MetricsRequest<'_>, groups: &[usize]) -> MetricsReply {
        let Some(query) = CustomMetricQuery::read(request.namespace, request.path) else {
            return MetricsReply::Absent;
        };
        let is_custom = |series: &&Series| !matches!(series.metric.shown, Shown::External { .. });
        let has_metric_name = |series: &&Series| series.metric.name == query.metric;
        let mut all = self.tracked_loads.iter().flat_map(|tracked| &tracked.metrics);
        if !all.any(|series| is_custom(&series) && has_metric_name(&series)) {
            return metric_not_found(query.metric, query.resource, query.object);
        }
        let mut list = List::start("MetricValue", "custom.metrics.k8s.io", request.version);
        match Selector::parse(request.metric_label_selector) {
            Ok(selector) if selector.is_empty() => {}
            // The series of a load have no labels, so only the empty selector matches them.
            Ok(_) => return list.finish(),
            Err(error) => return bad_selector(&error),
        }
        if query.matches_kind("v1", "Pod") {
            for group in groups.iter().filter_map(|index| self.groups.get(*index)) {
                let series = self
                    .tracked_loads
                    .get(group.load)
                    .map(|tracked| tracked.metrics.as_slice())
                    .unwrap_or_default();
                for (index, series) in series.iter().enumerate().filter(|(_, series)| has_metric_name(series))
                {
                    let named = |pod: &&Pod| query.matches_name(&pod.name) && !self.gaps.hides(&pod.name);
                    for pod in group.pods.values().filter(named) {
                        let reading = pod
                            .metrics
                            .get(index)
                            .and_then(|(_, readings)| *readings.visible(self.served)?);
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
        for tracked in self.tracked_loads.iter().filter(|tracked| tracked.load.namespace == request.namespace)
        {
            for series in tracked.metrics.iter().filter(has_metric_name) {
                if let Shown::Object { api_version, kind, name } = &series.metric.shown
                    && query.matches_kind(api_version, kind)
                    && query.matches_name(name)
                    && !self.gaps.hides(&series.metric.name)
                    && let Some(reading) = series.readings.visible(self.served)
                {
                    let object = [api_version.as_str(), kind, &tracked.load.namespace, name];
                    self.write_value(&mut list, request.version, object, &series.metric.name, *reading);
                }
            }
        }
        list.finish()
    }

    /// Serves external.metrics.k8s.io.
    pub(super) fn external(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let [metric] = request.path else {
            return MetricsReply::Absent;
        };
        let selector = match Selector::parse(request.label_selector) {
            Ok(selector) => selector,
            Err(error) => return bad_selector(&error),
        };
        let mut list = List::start("ExternalMetricValue", "external.metrics.k8s.io", request.version);
        let all = self.tracked_loads.iter().flat_map(|tracked| &tracked.metrics);
        // client-go lower-cases the name in the path.
        let named = |name: &str| name.eq_ignore_ascii_case(metric) && !self.gaps.hides(name);
        for series in all.filter(|series| named(&series.metric.name)) {
            if let Shown::External { labels } = &series.metric.shown
                && selector.matches(labels)
                && let Some(reading) = series.readings.visible(self.served)
            {
                let _ = write!(
                    list.next(),
                    r#"{{"metricName":{},"metricLabels":{},{}}}"#,
                    json(metric),
                    json(labels),
                    self.reading("window", *reading),
                );
            }
        }
        list.finish()
    }

    /// Writes a MetricValue. v1beta1 uses other field names.
    fn write_value(&self, list: &mut List, version: &str, object: [&str; 4], metric: &str, reading: Reading) {
        let [api_version, kind, namespace, name] = object;
        let [kind, namespace, name, api_version, metric] =
            [kind, namespace, name, api_version, metric].map(json);
        let (metric, window) = match version {
            "v1beta1" => (format!(r#""metricName":{metric},"selector":null"#), "window"),
            _ => (format!(r#""metric":{{"name":{metric},"selector":null}}"#), "windowSeconds"),
        };
        let _ = write!(
            list.next(),
            r#"{{"describedObject":{{"kind":{kind},"namespace":{namespace},"name":{name},"apiVersion":{api_version}}},{metric},{}}}"#,
            self.reading(window, reading),
        );
    }

    /// Formats the time, the window and the value of a reading as JSON fields.
    fn reading(&self, window: &str, reading: Reading) -> String {
        let window = match reading.window {
            Duration::ZERO => String::new(),
            length => format!(",\"{window}\":{}", length.as_secs()),
        };
        let time = json(&self.time_text(reading.at));
        format!(r#""timestamp":{time}{window},"value":"{}m""#, whole(reading.value * 1_000.0))
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

/// The JSON texts of a sample's time and averaging window.
#[derive(Debug, Default)]
struct Stamps {
    time: Vec<u8>,
    window: Vec<u8>,
}

/// The text of a list, which is written item by item.
#[derive(Debug)]
struct List {
    text: Vec<u8>,
    is_empty: bool,
}

impl List {
    fn start(kind: &str, group: &str, version: &str) -> Self {
        let head = format!(
            "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{group}/{version}\",\"metadata\":{{}},\"items\":["
        );
        Self { text: head.into_bytes(), is_empty: true }
    }

    /// Returns the buffer for the next item.
    fn next(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.text.push(b',');
        }
        &mut self.text
    }

    fn finish(mut self) -> MetricsReply {
        put(&mut self.text, b"]}");
        MetricsReply::Encoded(self.text.into())
    }
}

/// Writes a PodMetrics. One container does the work, and the other containers idle.
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
    for (index, container) in pod.containers.iter().enumerate() {
        let (millicores, bytes) = if index == pod.working {
            (usage.millicores, usage.bytes)
        } else {
            (IDLE_MILLICORES, IDLE_BYTES)
        };
        put(text, if index == 0 { b"{\"name\":" } else { b",{\"name\":" });
        quote(text, container);
        let (nanocores, kibibytes) = (whole(millicores * 1e6), whole(bytes / 1_024.0));
        let _ = write!(text, ",\"usage\":{{\"cpu\":\"{nanocores}n\",\"memory\":\"{kibibytes}Ki\"}}}}");
    }
    put(text, b"]}");
}

fn put(text: &mut Vec<u8>, more: &[u8]) {
    text.extend_from_slice(more);
}

/// Writes strings and maps of strings as JSON.
fn quote(text: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    // Writing to memory cannot fail, and all keys are strings.
    let _ = serde_json::to_writer(text, value);
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    // Strings and maps of strings always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

/// Formats a `metav1.Duration`.
fn window_text(window: Duration) -> String {
    GoDuration(i64::try_from(window.as_nanos()).unwrap_or(i64::MAX)).to_string()
}

/// Returns the integer part. Negative values and NaN become 0, and values beyond `u64` saturate.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates as documented"
)]
fn whole(amount: f64) -> u64 {
    amount as u64
}
