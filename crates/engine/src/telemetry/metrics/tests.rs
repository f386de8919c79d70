use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use policies::forecast::{ForecastReport, ForecastState};
use policies::guards::OwnedPodsStep;
use policies::steps::{PolicyEffect, Step};

use super::*;
use crate::telemetry::declarations::{Kind, all};
use cluster::platform::ProcessStatistics;
use jiff::Timestamp;
use sources::SourceObserver;

const HOST: &str = "10.0.0.1:443";

fn scale() -> Call {
    let path = ["apis", "apps", "v1", "namespaces", "shop", "deployments", "web", "scale"];
    Call::get(path).about("deployments", "web").subresource("scale")
}

/// Returns the metrics of a process in which every metric has been recorded once.
fn busy() -> Metrics {
    let metrics = Metrics::new();
    metrics.workqueue("horizontalpodautoscaler").handed_out(Duration::from_millis(20));
    metrics.sync_began(Duration::from_millis(300));
    metrics.reconciled(Action::ScaleUp, ErrorLabel::None, Duration::from_millis(3));
    metrics.computed("Resource", Action::None, ErrorLabel::Internal, Duration::from_secs(40));
    metrics.metrics_age(Api::Resource, Duration::from_secs(17));
    metrics.sync_failed("FailedGetScale");
    metrics.hpas(2);
    let states =
        [("ScalingLimited", "True", "TooManyReplicas"), ("ScalingActive", "False", "FailedGetScale")];
    metrics.conditions(
        &Key::new("shop", "web"),
        &states.map(|(kind, status, reason)| condition(kind, status, reason)),
    );
    metrics.stale_skip();
    metrics.request(&scale(), HOST, Some(200));
    metrics.request_duration(&Method::GET, HOST, Duration::from_millis(30));
    metrics.clock_skew(-2.5);
    metrics.cache_objects("pods", 7);
    metrics.watch_restarts("pods", "ended", 3);
    metrics.watch_age("pods", Duration::from_millis(1_500));
    metrics.events_dropped("spam", 4);
    metrics.leader("kube-controller-manager", true);
    metrics.desired(&Key::new("shop", "web"), 7);
    metrics.takeover([("observing", true), ("acting", false), ("holding", false)]);
    metrics.foreign_write();
    let counts = [("outside", 3), ("claiming", 0), ("in_charge", 0), ("contested", 0)];
    metrics.handover(counts, Some(Timestamp::UNIX_EPOCH));
    metrics.handover_refused("scales");
    metrics.handover_unanswered("late");
    metrics.handover_guard("webhook");
    metrics.decision_event();
    metrics.policy("shop", "web", Some(&policy()));
    metrics.source_age("main", Duration::from_secs(2));
    metrics.source_failed("main", "timeout");
    metrics.reloaded(true);
    SourceObserver::down(&metrics, "main", Some(false));
    metrics.shadow_decision("same");
    metrics.restored("checkpoint", 6);
    metrics.checkpoint_write("written");
    metrics.checkpoint(4096, 1);
    metrics
}

fn policy() -> PolicyEffect {
    let step = Step::OwnedPods(OwnedPodsStep { matched: 3, other: 1 });
    let forecast = ForecastReport {
        applies: false,
        state: ForecastState::Pays,
        floor: Some(3),
        candidate: "".into(),
        reason: "".into(),
        band: None,
        benefit: None,
    };
    PolicyEffect { steps: vec![step], forecast: Some(Arc::new(forecast)), ..PolicyEffect::default() }
}

/// A family as parsed by a scraper.
#[derive(Debug, Default)]
struct Scraped {
    kind: String,
    help: String,
    /// The name, labels and value of each sample, in the order of the text.
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// Parses a page. Panics on text that a scraper would refuse.
fn scrape(text: &str) -> BTreeMap<String, Scraped> {
    let mut families = BTreeMap::<String, Scraped>::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            let family = Scraped { help: help.to_owned(), ..Scraped::default() };
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} comes twice");
            name.clone_into(&mut current);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current);
            kind.clone_into(&mut families.get_mut(name).unwrap().kind);
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, read_labels(labels.strip_suffix('}').unwrap())),
                None => (series, BTreeMap::new()),
            };
            let family = families.get_mut(&current).unwrap();
            let suffix = name.strip_prefix(&*current).unwrap_or_else(|| panic!("{line} in {current}"));
            let suffixes: &[&str] = match &*family.kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                "counter" | "gauge" => &[""],
                kind => panic!("{kind} of {current}"),
            };
            assert!(suffixes.contains(&suffix), "{line}");
            assert!(
                name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'),
                "{line}"
            );
            family.samples.push((name.to_owned(), labels, value.parse().unwrap()));
        }
    }
    families
}

fn read_labels(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").unwrap();
        let mut escaped = false;
        let end = rest.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let (value, rest) = rest.split_at(end.unwrap());
        assert!(labels.insert(name.to_owned(), value.to_owned()).is_none(), "{name} comes twice");
        text = rest[1..].trim_start_matches(',');
    }
    labels
}

#[test]
fn exposed_metrics_match_the_declarations() {
    let families = scrape(&busy().render());
    let declared: BTreeSet<_> = all().map(|metric| metric.name).collect();
    assert_eq!(declared.len(), all().count(), "a name is declared twice");
    let shown: BTreeSet<_> = families.keys().map(String::as_str).collect();
    let missing: Vec<_> = declared.difference(&shown).filter(|name| !name.starts_with("process_")).collect();
    assert!(missing.is_empty() && shown.is_subset(&declared), "{missing:?} {shown:?}");
    for metric in all() {
        let Some(family) = families.get(metric.name) else { continue };
        assert_eq!((&*family.kind, &*family.help), (metric.kind.as_str(), metric.help), "{}", metric.name);
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        assert!(metric.labels.is_sorted() && metric.buckets.is_sorted(), "{}", metric.name);
        for (_, labels, _) in &family.samples {
            let shown: Vec<_> = labels.keys().map(String::as_str).filter(|name| *name != "le").collect();
            assert_eq!(shown, metric.labels, "{}", metric.name);
        }
        let mut bounds: Vec<f64> =
            family.samples.iter().filter_map(|(_, labels, _)| labels.get("le")?.parse().ok()).collect();
        bounds.dedup();
        bounds.truncate(metric.buckets.len());
        assert_eq!(bounds, metric.buckets, "{}", metric.name);
    }
}

#[test]
fn histograms_rise_to_their_count() {
    for (name, family) in &scrape(&busy().render()) {
        let mut last = 0.0;
        for (sample, labels, value) in &family.samples {
            if sample.ends_with("_bucket") {
                assert!(*value >= last, "{name}");
                last = if labels["le"] == "+Inf" { 0.0 } else { *value };
            }
        }
    }
}

#[test]
fn buckets_equal_those_that_upstream_computes() {
    let exponential = |start: f64, factor: f64, count| -> Vec<f64> {
        std::iter::successors(Some(start), |bound| Some(bound * factor)).take(count).collect()
    };
    let doubled = exponential(0.001, 2.0, 15);
    let tenfold = exponential(10e-9, 10.0, 10);
    for (name, expected) in [
        ("horizontal_pod_autoscaler_controller_reconciliation_duration_seconds", &doubled),
        ("horizontal_pod_autoscaler_controller_metric_computation_duration_seconds", &doubled),
        ("workqueue_queue_duration_seconds", &tenfold),
        ("workqueue_work_duration_seconds", &tenfold),
    ] {
        let declared = all().find(|metric| metric.name == name).unwrap();
        assert_eq!(declared.buckets, expected, "{name}");
    }
}

#[test]
fn upstream_series_have_upstreams_form() {
    let text = busy().render();
    let expected = [
        "# HELP workqueue_depth [BETA] Current depth of workqueue\n# TYPE workqueue_depth gauge\nworkqueue_depth{name=\"horizontalpodautoscaler\"} 0\n",
        "horizontal_pod_autoscaler_controller_reconciliations_total{action=\"scale_up\",error=\"none\"} 1\n",
        "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_bucket{action=\"scale_up\",error=\"none\",le=\"0.002\"} 0\n",
        "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_bucket{action=\"scale_up\",error=\"none\",le=\"0.004\"} 1\n",
        "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_bucket{action=\"none\",error=\"internal\",metric_type=\"Resource\",le=\"16.384\"} 0\n",
        "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_sum{action=\"none\",error=\"internal\",metric_type=\"Resource\"} 40\n",
        "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers 2\n",
        "horizontal_pod_autoscaler_controller_desired_replicas{hpa_name=\"web\",namespace=\"shop\"} 7\n",
        "horizontal_pod_autoscaler_controller_stale_sync_skips_total{group=\"autoscaling\",resource=\"horizontalpodautoscalers\"} 1\n",
        "workqueue_queue_duration_seconds_bucket{name=\"horizontalpodautoscaler\",le=\"1e-08\"} 0\n",
        "workqueue_queue_duration_seconds_bucket{name=\"horizontalpodautoscaler\",le=\"9.999999999999999e-06\"} 0\n",
        "workqueue_queue_duration_seconds_bucket{name=\"horizontalpodautoscaler\",le=\"0.1\"} 1\n",
        "rest_client_requests_total{code=\"200\",host=\"10.0.0.1:443\",method=\"GET\"} 1\n",
        "rest_client_request_duration_seconds_bucket{host=\"10.0.0.1:443\",verb=\"GET\",le=\"0.1\"} 1\n",
        "leader_election_master_status{name=\"kube-controller-manager\"} 1\n",
    ];
    for lines in expected {
        assert!(text.contains(lines), "{lines} in {text}");
    }
    assert!(!text.contains("# EOF") && !text.contains(".0\n"), "{text}");
}

#[test]
fn own_series_have_the_documented_form() {
    let metrics = busy();
    metrics.request(&scale(), HOST, None);
    let text = metrics.render();
    let expected = [
        "concertina_checkpoint_bytes 4096\n",
        "concertina_checkpoint_left_out_hpas 1\n",
        "concertina_checkpoint_writes_total{result=\"written\"} 1\n",
        "concertina_clock_skew_seconds -2.5\n",
        "concertina_events_dropped_total{reason=\"spam\"} 4\n",
        "concertina_history_restored_hpas{source=\"checkpoint\"} 6\n",
        "concertina_metrics_age_seconds_bucket{api=\"metrics.k8s.io\",le=\"15\"} 0\n",
        "concertina_metrics_age_seconds_bucket{api=\"metrics.k8s.io\",le=\"20\"} 1\n",
        "concertina_requests_total{code=\"200\",resource=\"deployments/scale\",verb=\"get\"} 1\n",
        "concertina_requests_total{code=\"<error>\",resource=\"deployments/scale\",verb=\"get\"} 1\n",
        "concertina_shadow_decisions_total{result=\"same\"} 1\n",
        "concertina_sync_lateness_seconds_bucket{le=\"0.25\"} 0\n",
        "concertina_sync_lateness_seconds_bucket{le=\"0.5\"} 1\n",
        "concertina_takeover_state{state=\"acting\"} 0\n",
        "concertina_takeover_state{state=\"observing\"} 1\n",
        "concertina_watch_age_seconds{resource=\"pods\"} 1.5\n",
        "concertina_watch_restarts_total{reason=\"ended\",resource=\"pods\"} 3\n",
    ];
    for line in expected {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn new_process_exposes_the_same_series_as_upstream() {
    let metrics = Metrics::new();
    let text = metrics.render();
    assert!(text.contains("\nhorizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers 0\n"));
    assert!(!text.contains("reconciliations_total") && !text.contains("workqueue_"), "{text}");
    metrics.workqueue("horizontalpodautoscaler");
    let text = metrics.render();
    assert!(text.contains("\nworkqueue_retries_total{name=\"horizontalpodautoscaler\"} 0\n"));
    assert!(text.contains("\nworkqueue_work_duration_seconds_count{name=\"horizontalpodautoscaler\"} 0\n"));
}

#[test]
fn desired_replicas_are_removed_with_their_hpa() {
    let metrics = busy();
    metrics.forget(&Key::new("shop", "web"));
    assert!(!metrics.render().contains("desired_replicas"));
}

fn condition(kind: &'static str, status: &'static str, reason: &'static str) -> Condition {
    Condition { kind: kind.into(), status: status.into(), reason: reason.into(), ..Condition::default() }
}

#[test]
fn hpas_have_a_series_while_at_their_maximum_or_not_active() {
    let metrics = Metrics::new();
    let states = |conditions: &[Condition]| {
        metrics.conditions(&Key::new("shop", "web"), conditions);
        let text = metrics.render();
        ["at_maximum", "not_active"].map(|state| {
            text.contains(&format!("concertina_hpa_{state}{{hpa_name=\"web\",namespace=\"shop\"}} 1\n"))
        })
    };
    let limited = |reason| condition("ScalingLimited", "True", reason);
    assert_eq!(states(&[]), [false, false]);
    assert_eq!(states(&[limited("TooManyReplicas")]), [true, false]);
    assert_eq!(states(&[limited("ScaleUpLimit")]), [false, false]);
    let failed = condition("ScalingActive", "False", "FailedGetResourceMetric");
    assert_eq!(states(&[failed, limited("TooManyReplicas")]), [true, true]);
    assert_eq!(states(&[condition("ScalingActive", "False", "ScalingDisabled")]), [false, false]);
    assert_eq!(states(&[condition("ScalingLimited", "False", "TooManyReplicas")]), [false, false]);

    assert_eq!(states(&[limited("TooManyReplicas")]), [true, false]);
    metrics.leader("concertina", false);
    assert!(!metrics.render().contains("concertina_hpa_"), "a standby exposes no HPA");
    metrics.leader("concertina", true);
    assert_eq!(states(&[limited("TooManyReplicas")]), [true, false]);
    metrics.forget(&Key::new("shop", "web"));
    assert!(!metrics.render().contains("concertina_hpa_"), "the HPA was deleted");
}

#[test]
fn hpas_with_equal_joined_names_have_their_own_series() {
    let metrics = busy();
    metrics.desired(&Key::new("hop", "webs"), 3);
    let text = metrics.render();
    assert!(text.contains("desired_replicas{hpa_name=\"web\",namespace=\"shop\"} 7\n"), "{text}");
    assert!(text.contains("desired_replicas{hpa_name=\"webs\",namespace=\"hop\"} 3\n"), "{text}");
}

#[test]
fn desired_replicas_are_exposed_unless_on_standby() {
    let metrics = Metrics::new();
    metrics.desired(&Key::new("shop", "web"), 7);
    assert!(metrics.render().contains("desired_replicas{"), "without election");
    metrics.leader("concertina", false);
    metrics.desired(&Key::new("shop", "api"), 3);
    assert!(!metrics.render().contains("desired_replicas"), "standing by");
    metrics.leader("concertina", true);
    assert!(!metrics.render().contains("desired_replicas"), "values of the previous term are outdated");
    metrics.desired(&Key::new("shop", "web"), 9);
    assert!(metrics.render().contains("desired_replicas{hpa_name=\"web\",namespace=\"shop\"} 9\n"));
    metrics.leader("concertina", false);
    assert!(!metrics.render().contains("desired_replicas"), "lost");
    // A sync in flight at the loss of the Lease sets its result afterwards.
    metrics.desired(&Key::new("shop", "web"), 9);
    assert!(!metrics.render().contains("desired_replicas"));
}

#[test]
fn gauges_are_updated_before_they_are_rendered() {
    let metrics = Metrics::new();
    let queue = metrics.workqueue("q");
    metrics.before_render(move || queue.depth(3));
    assert!(metrics.render().contains("workqueue_depth{name=\"q\"} 3\n"));
}

#[test]
fn process_metrics_have_the_names_of_prometheus_go_client() {
    let text = Metrics::new().render();
    let reported = ProcessStatistics::read().resident_bytes.is_some();
    assert_eq!(text.contains("# TYPE process_resident_memory_bytes gauge\n"), reported, "{text}");
    assert_eq!(text.contains("# TYPE process_cpu_seconds_total counter\n"), reported, "{text}");
}
