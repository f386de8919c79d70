//! The metrics APIs of a world. Responses are assembled from prepared texts, with current times and
//! amounts.

use std::fmt::Write as _;

use autoscaling::selector::Selector;
use clock::{Clock as _, SystemClock};
use fake_cluster::metrics::ObjectLabels;
use fake_cluster::{MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use serde_json::Value;

use super::objects::{QUEUE_PER_POD, REQUESTS, labels, queue};
use super::{App, State, World};
use crate::hostile::way::{ABSENT_METRIC, HOSTILE};

/// The label by which Deployments select their pods.
const APP_LABEL: &str = "app.kubernetes.io/name";
/// Period of the amounts in seconds. The period is a prime, so that syncs at usual periods do not read the same amount
/// twice in succession.
const CYCLE: i64 = 23;
/// Constant usage of the second container, in millicores and MiB.
const SIDECAR_USAGE: (u64, u64) = (50, 64);

/// A pod with its prepared metrics text.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    /// The PodMetrics JSON up to the value of `creationTimestamp`.
    head: String,
}

impl Pod {
    pub(super) fn new(namespace: &str, name: String) -> Self {
        let head =
            format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","creationTimestamp":""#);
        Self { name, head }
    }
}

/// The PodMetrics JSON between the values of `creationTimestamp` and `timestamp`.
pub(super) fn labels_text(app: &str) -> String {
    format!(r#"","labels":{}}},"timestamp":""#, labels(app))
}

impl MetricsBackend for World {
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let second = SystemClock.now().as_second();
        let moved = if self.workload.unchanged { 0 } else { second.rem_euclid(CYCLE).unsigned_abs() };
        let mut state = self.state.lock();
        if state.stamp.0 != second {
            let time = jiff::Timestamp::from_second(second).unwrap_or_default();
            state.stamp = (second, time.to_string());
        }
        match (request.api, request.path) {
            (MetricsApi::Resource, [pods]) if pods == "pods" => state.pods(request, moved),
            (MetricsApi::External, [metric]) => state.external(request, metric, moved),
            _ => MetricsReply::Absent,
        }
    }
}

impl State {
    fn pods(&self, request: &MetricsRequest<'_>, moved: u64) -> MetricsReply {
        let mut text = format!(
            r#"{{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/{}","metadata":{{}},"items":["#,
            request.version
        );
        let head = text.len();
        let in_namespace = self
            .indexes
            .iter()
            .filter(|(namespace, _)| request.namespace.is_empty() || namespace.as_str() == request.namespace);
        let one = request.label_selector.strip_prefix(APP_LABEL).and_then(|rest| rest.strip_prefix('='));
        if let Some(name) = one.filter(|name| !name.contains([',', '='])) {
            let indexes = in_namespace.filter_map(|(_, names)| names.get(name));
            indexes
                .filter_map(|index| self.apps.get(*index))
                .for_each(|app| self.write(app, moved, &mut text));
        } else {
            let Ok(selector) = Selector::parse(request.label_selector) else { return MetricsReply::Absent };
            let apps = in_namespace.flat_map(|(_, names)| names.values());
            let apps = apps.filter_map(|index| self.apps.get(*index));
            text.reserve(if request.namespace.is_empty() { 1 << 26 } else { 1 << 20 });
            for app in
                apps.filter(|app| selector.is_empty() || selector.matches(&ObjectLabels(&labels(&app.name))))
            {
                self.write(app, moved, &mut text);
            }
        }
        if text.len() > head {
            text.pop();
        }
        text.push_str("]}");
        MetricsReply::Encoded(text.into())
    }

    /// Writes the PodMetrics of an app, each followed by a comma.
    fn write(&self, app: &App, moved: u64, text: &mut String) {
        let time = &self.stamp.1;
        let pods = u64::try_from(app.pods.len()).unwrap_or(1).max(1);
        let usual = u64::try_from(app.usual).unwrap_or(1);
        let share = |amount: u64| amount * usual * app.factor / pods;
        let [(cpu, memory), _] = REQUESTS;
        // The HPA's target is half of the request. cpu varies around it by 4.4 %, memory exceeds it by
        // at most 8.6 %.
        let millicores = (share(cpu / 2) + moved).saturating_sub(CYCLE.unsigned_abs() / 2);
        let kibibytes = (share(memory / 2) + moved) * 1024;
        for (index, pod) in app.pods.iter().enumerate() {
            // Pods differ, but the sum over five of them is constant.
            let spread = 4 * (u64::try_from(index % 5).unwrap_or(0));
            let nanocores = (millicores + spread).saturating_sub(8) * 1_000_000;
            text.push_str(&pod.head);
            text.push_str(time);
            text.push_str(&app.labels);
            text.push_str(time);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                r#"","window":"15s","containers":[{{"name":"app","usage":{{"cpu":"{nanocores}n","memory":"{kibibytes}Ki"}}}},{{"name":"proxy","usage":{{"cpu":"{}m","memory":"{}Mi"}}}}]}},"#,
                SIDECAR_USAGE.0, SIDECAR_USAGE.1
            );
        }
    }

    fn external(&self, request: &MetricsRequest<'_>, metric: &str, moved: u64) -> MetricsReply {
        if request.namespace == HOSTILE {
            return if metric == ABSENT_METRIC {
                MetricsReply::Absent
            } else {
                self.value(request, metric, "", 10_000)
            };
        }
        let queried = request.label_selector.strip_prefix("queue=").unwrap_or("");
        let number = queried.rsplit('-').next().and_then(|number| number.parse::<usize>().ok()).unwrap_or(0);
        if queried != queue(number) {
            return MetricsReply::Absent;
        }
        let (usual, factor) = self.apps.get(number).map_or((1, 1), |app| (app.usual, app.factor));
        let whole = u64::try_from(usual).unwrap_or(1) * factor * QUEUE_PER_POD * 1000;
        // At most 4.4 % above the HPA's target.
        let value = whole + whole * moved / 500;
        self.value(request, metric, queried, value)
    }

    /// The response with one value, in thousandths.
    fn value(&self, request: &MetricsRequest<'_>, metric: &str, queue: &str, value: u64) -> MetricsReply {
        let item = serde_json::json!({
            "metricName": metric, "metricLabels": {"queue": queue}, "timestamp": self.stamp.1,
            "value": format!("{value}m"),
        });
        MetricsReply::Json(serde_json::json!({
            "kind": "ExternalMetricValueList", "apiVersion": format!("external.metrics.k8s.io/{}", request.version),
            "metadata": {}, "items": Value::Array(vec![item]),
        }))
    }
}
