#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::json;

use super::*;

const PAGE: &str = r#"
# TYPE concertina_build_info gauge
concertina_build_info{platform="linux/x86_64",version="0.1.0"} 1
# TYPE concertina_sync_lateness_seconds histogram
concertina_sync_lateness_seconds_bucket{le="0.05"} 90
concertina_sync_lateness_seconds_bucket{le="1"} 98
concertina_sync_lateness_seconds_bucket{le="2.5"} 99
concertina_sync_lateness_seconds_bucket{le="+Inf"} 100
concertina_sync_lateness_seconds_sum 12.5
concertina_sync_lateness_seconds_count 100
# TYPE concertina_requests_total counter
concertina_requests_total{code="200",resource="pods",verb="list"} 3
concertina_requests_total{code="403",resource="pods",verb="list"} 2
concertina_requests_total{code="<error>",resource="pods",verb="watch"} 1
# TYPE concertina_metrics_api_down gauge
concertina_metrics_api_down{api="metrics.k8s.io"} 0
concertina_metrics_api_down{api="external.metrics.k8s.io"} 1
# TYPE concertina_metric_source_down gauge
concertina_metric_source_down{source="main"} 1
# TYPE concertina_metric_source_errors_total counter
concertina_metric_source_errors_total{reason="Timeout",source="main"} 4
# TYPE concertina_watch_restarts_total counter
concertina_watch_restarts_total{reason="ended",resource="pods"} 7
concertina_watch_restarts_total{reason="silent",resource="pods"} 1
# TYPE leader_election_master_status gauge
leader_election_master_status{name="concertina"} 1
# TYPE concertina_takeover_state gauge
concertina_takeover_state{state="active"} 0
concertina_takeover_state{state="holding"} 1
unknown_metric 5
"#;

#[test]
fn numbers_come_from_the_page_of_metrics() {
    let numbers = Numbers::parse(PAGE.as_bytes()).unwrap();
    assert_eq!(numbers.version.as_deref(), Some("0.1.0"));
    let lateness = numbers.lateness.unwrap();
    assert_eq!((lateness.count, lateness.in_time, lateness.p99), (100.0, 98.0, Some(2.5)));
    let [list, watch] = &numbers.requests[..] else { panic!("{:?}", numbers.requests) };
    assert_eq!((list.count, &list.failed), (5.0, &BTreeMap::from([("403".to_owned(), 2.0)])));
    assert_eq!(watch.failed, BTreeMap::from([("<error>".to_owned(), 1.0)]));
    assert!(numbers.breakers["external.metrics.k8s.io"] && !numbers.breakers["metrics.k8s.io"]);
    let main = &numbers.sources["main"];
    assert_eq!((main.down, main.errors["Timeout"]), (Some(true), 4.0));
    assert_eq!(numbers.watches["pods"].restarts, BTreeMap::from([("silent".to_owned(), 1.0)]));
    assert_eq!(numbers.leads, BTreeMap::from([("concertina".to_owned(), true)]));
    assert_eq!(numbers.takeover.as_deref(), Some("holding"));
    assert_eq!(numbers.hpas, None);
}

#[test]
fn page_without_an_end_or_with_garbage_is_an_error() {
    assert!(Numbers::parse(b"<html>").is_err());
    assert_eq!(Numbers::parse(b"").unwrap(), Numbers::default());
}

#[test]
fn entries_of_a_page_are_bounded() {
    let lines = (0..2 * MAX_ENTRIES)
        .map(|n| format!("concertina_metrics_api_down{{api=\"{n}\"}} 1\nconcertina_requests_total{{verb=\"get\",resource=\"{n}\",code=\"200\"}} 1\n"));
    let numbers = Numbers::parse(lines.collect::<String>().as_bytes()).unwrap();
    assert_eq!((numbers.breakers.len(), numbers.requests.len()), (MAX_ENTRIES, MAX_ENTRIES));
}

#[test]
fn handover_is_counted_by_namespace_with_the_last_foreign_write() {
    let row = |namespace: &str, state: &str, at: Option<&str>| {
        let write = at.map(|at| json!({"manager": "kcm", "at": at}));
        json!({"namespace": namespace, "name": "x", "by": "hpa", "state": state, "lastForeignWrite": write, "new": 1})
    };
    let page = json!({
        "scope": "labelled", "controller": "blue", "leads": true, "added": {},
        "guard": {"kind": "webhook", "state": "proven", "since": "2030-01-01T00:00:00Z"},
        "hpas": [
            row("shop", "in_charge", Some("2030-01-01T00:00:02Z")),
            row("shop", "in_charge", Some("2030-01-01T00:00:01Z")),
            row("shop", "contested", None),
            row("bank", "claiming", None),
        ],
    });
    let view = Handover::parse(page.to_string().as_bytes()).unwrap();
    assert_eq!((view.scope.as_str(), view.controller.as_deref()), ("labelled", Some("blue")));
    assert_eq!(view.guard.unwrap().state, "proven");
    let shop = &view.namespaces["shop"];
    assert_eq!((shop.states["in_charge"], shop.states["contested"]), (2, 1));
    let at = shop.last_foreign_write.as_ref().unwrap().at;
    assert_eq!(at, Some("2030-01-01T00:00:02Z".parse().unwrap()));
    assert_eq!(view.namespaces["bank"].states["claiming"], 1);
    assert_eq!(Handover::parse(br#"{"scope":"all","hpas":[]}"#).unwrap().scope, "all");
    assert!(Handover::parse(b"[]").is_err());
}

#[test]
fn parity_is_summed_by_namespace_and_keeps_differences() {
    let page = json!({
        "apiVersion": "concertina/v1", "kind": "ShadowReport", "since": "2030-01-01T00:00:00Z", "hpas": 3,
        "hours": [
            {"hour": "2030-01-01T00:00:00Z", "namespace": "shop", "name": "web", "counts": {"same": 3, "different": 1}},
            {"hour": "2030-01-01T01:00:00Z", "namespace": "shop", "name": "web", "counts": {"same": 2, "onlyOurs": 1}},
            {"hour": "2030-01-01T01:00:00Z", "namespace": "bank", "name": "", "counts": {"unknown": 1}},
        ],
        "changes": [
            {"at": "2030-01-01T01:10:00Z", "namespace": "shop", "name": "web", "result": "different",
                "builtin": {"from": 2, "to": 4}, "ours": {"from": 2, "to": 5, "sentence": "cpu asks for 5"}},
            {"at": "2030-01-01T01:00:00Z", "namespace": "shop", "name": "web", "result": "same"},
        ],
    });
    let view = Parity::parse(page.to_string().as_bytes()).unwrap();
    assert_eq!(view.total, Counts { same: 5, different: 1, only_ours: 1, only_builtin: 0, unknown: 1 });
    assert_eq!(view.namespaces["shop"].same, 5);
    let [difference] = &view.differences[..] else { panic!("{:?}", view.differences) };
    assert_eq!((difference.builtin, difference.ours), (Some(4), Some(5)));
    assert_eq!(difference.sentence, "cpu asks for 5");
    assert!(Parity::parse(br#"{"kind":"Status"}"#).is_err());
}
