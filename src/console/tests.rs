use std::sync::Arc;

use autoscaling::explanation::{DecisionPath, Explanation};
use controller::election::Holder;
use controller::record::wire::{ActionTaken, DecisionResult};
use findings::FindingId;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use clock::SystemClock;

fn record(uid: &str, max: i32, metrics: usize) -> HpaRecord {
    let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
    let object = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": uid, "resourceVersion": "1"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": max, "metrics": vec![metric; metrics]},
    });
    HpaRecord::from(cluster::decode::hpa(object.to_string().as_bytes()).unwrap())
}

#[test]
fn recreated_hpa_keeps_its_row_when_the_previous_one_ends() {
    let rows = Rows::new(Arc::new(SystemClock));
    let shown = || rows.store.since(None).rows.iter().map(|row| row.max).collect::<Vec<_>>();
    let (first, second) = (record("a", 3, 1), record("b", 5, 1));
    rows.seen(None, &first);
    rows.seen(None, &second);
    rows.forgotten(&first.key, &first.uid);
    assert_eq!(shown(), [5]);
    rows.forgotten(&second.key, &second.uid);
    assert_eq!(shown(), [0; 0]);
}

#[test]
fn row_of_a_large_hpa_has_its_metrics() {
    let rows = Rows::new(Arc::new(SystemClock));
    let large = record("a", 3, 4_000);
    assert!(large.packed.is_some());
    rows.seen(None, &large);
    assert_eq!(rows.store.since(None).rows.first().unwrap().metrics.len(), 64);
}

fn small_record() -> HpaRecord {
    let object = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "a", "resourceVersion": "1"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 9},
    });
    HpaRecord::from(cluster::decode::hpa(object.to_string().as_bytes()).unwrap())
}

/// Returns a decision that rescaled the target, `minutes` before a fixed time.
fn decision(minutes: i64, from: i32, to: i32) -> DecisionEntry {
    let at = Timestamp::from_second(1_900_000_000).unwrap() - SignedDuration::from_mins(minutes);
    DecisionEntry {
        first_at: at,
        last_at: at,
        syncs: 1,
        generation: None,
        result: DecisionResult {
            sentence: format!("scales to {to}"),
            action: if to > from { ActionTaken::ScaleUp } else { ActionTaken::ScaleDown },
            limiting_step: None,
            winner: None,
            from: Some(from),
            to: Some(to),
            outcome: Outcome::Done,
        },
        error: None,
        events: Vec::new(),
        ratios: Vec::new(),
        policy: None,
        sources: Vec::new(),
        explanation: Explanation { min: 2, max: 9, ..Explanation::default() },
    }
}

fn codes(decisions: &[DecisionEntry]) -> Vec<FindingId> {
    found(&small_record(), decisions, &Settings::default()).iter().map(|finding| finding.code).collect()
}

#[test]
fn last_decision_has_findings_with_the_fix() {
    assert_eq!(codes(&[]), []);
    let mut last = decision(0, 2, 3);
    assert_eq!(codes(&[last.clone()]), []);
    last.explanation = Explanation { path: DecisionPath::Disabled, ..last.explanation };
    let found = found(&small_record(), &[last], &Settings::default());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].message, "Deployment/web is set to 0 replicas, which disables autoscaling");
    assert_eq!(found[0].advice, "To enable it again: kubectl -n shop scale Deployment/web --replicas=2.");
}

#[test]
fn rescales_of_the_record_show_a_flapping_count() {
    let mut decisions: Vec<_> = (0..6)
        .map(|number| if number % 2 == 0 { decision(number * 5, 3, 7) } else { decision(number * 5, 7, 3) })
        .collect();
    assert_eq!(codes(&decisions), [FindingId::Flapping]);
    // A failed write is not a rescale.
    for decision in &mut decisions {
        decision.result.outcome = Outcome::Failed;
    }
    assert_eq!(codes(&decisions), []);
}

#[test]
fn standby_names_the_leader_in_place_of_decisions() {
    let holder = Holder { identity: "concertina-7d9f8-abcde".to_owned(), term: 3, peer: None };
    let text = standby(&LeaderState::Standby(Some(holder))).unwrap();
    assert!(text.contains("The leader, concertina-7d9f8-abcde, has the decisions"), "{text}");
    assert!(standby(&LeaderState::Standby(None)).unwrap().contains("no leader is known"));
    assert_eq!(standby(&LeaderState::Leader { after: None, since_others: None, term: 1 }), None);
}

#[test]
fn text_has_the_decisions_and_says_why_there_is_no_what_if() {
    let subject = Subject {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        history: Vec::new(),
        observations: Vec::new(),
    };
    let text = text(&subject, &[decision(0, 3, 7)]);
    assert!(text.contains("3 -> 7: scales to 7"), "{text}");
    assert!(text.contains("it would delay the syncs of the leader"), "{text}");
    assert!(text.ends_with("concertina why web -n shop"), "{text}");
}
