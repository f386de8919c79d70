use autoscaling::history::Recommendation;
use autoscaling::spec::{PolicyKind, ScalingPolicy, ScalingRules};

use std::time::Duration;

use super::*;

fn at(text: &str) -> Timestamp {
    format!("2030-01-01T00:{text}Z").parse().unwrap()
}

fn recommends(replicas: i32) -> Changes {
    let entry = Recommendation { at: at("01:00"), replicas };
    let added = AddedEntry { entry, outdated_before: Timestamp::MIN };
    Changes { recommendation: Some(added), ..Changes::default() }
}

/// Creates a `behavior` with a policy of ten minutes in both directions.
fn behavior() -> Behavior {
    let policy = ScalingPolicy { kind: PolicyKind::Pods, value: 4, period_seconds: 600 };
    let rules = ScalingRules { policies: [policy].into(), ..ScalingRules::default() };
    Behavior { scale_up: rules.clone(), scale_down: rules }
}

fn ups(events: &[ScaleEvent]) -> History {
    History { scale_ups: events.to_vec(), ..History::default() }
}

fn event(time: &str, change: i32) -> ScaleEvent {
    ScaleEvent::new(at(time), change)
}

/// Creates the event of a rescale from the watch, for a second that has ended.
fn observed(time: &str, change: i32) -> ScaleEvent {
    ScaleEvent { earliest: Some(at(time)), ..event(&format!("{time}.999999999"), change) }
}

#[tokio::test(start_paused = true)]
async fn clock_jump_keeps_the_age_of_every_entry() {
    let (histories, uid) = (Histories::new(), Arc::from("a"));
    let before = histories.correct_clock(at("01:00"));
    histories.commit(&uid, &recommends(3), before);
    tokio::time::advance(Duration::from_secs(30)).await;
    let back = histories.correct_clock(at("01:30") - SignedDuration::from_hours(1));
    let age = |moment: ClockReading| moment.at.duration_since(histories.get("a").recommendations[0].at);
    assert_eq!(age(back), SignedDuration::from_secs(30));
    // The sync started before the jump.
    histories.commit(&uid, &recommends(4), before);
    assert_eq!(histories.get("a").recommendations[1].at, histories.get("a").recommendations[0].at);
    tokio::time::advance(Duration::from_secs(30)).await;
    let ahead = histories.correct_clock(at("02:00") + SignedDuration::from_hours(5));
    assert_eq!(age(ahead), SignedDuration::from_mins(1));
    // A jump changes the histories.
    let changes = histories.changes();
    let again = histories.correct_clock(ahead.at - SignedDuration::from_hours(5));
    assert_eq!(histories.changes(), changes + 1);
    // The clock is set back by less than a second, for example by a leap second.
    let back = histories.correct_clock(again.at - SignedDuration::from_millis(128));
    assert_eq!(age(back), SignedDuration::from_mins(1));
    // A small correction of the clock causes no shift.
    let kept = histories.get("a");
    histories.correct_clock(back.at + SignedDuration::from_millis(99));
    assert_eq!(histories.get("a"), kept);
}

#[test]
fn copy_does_not_change_and_every_change_is_counted() {
    let (histories, uid) = (Histories::new(), Arc::from("a"));
    histories.add(&uid, &recommends(1));
    let copy = histories.all();
    assert_eq!((copy.len(), histories.changes()), (1, 1));
    histories.add(&uid, &recommends(2));
    histories.add(&uid, &Changes::default());
    assert_eq!(histories.changes(), 2);
    assert_eq!(copy[0].1.history.recommendations.len(), 1);
    assert_eq!(histories.all()[0].1.history.recommendations.len(), 2);
}

#[test]
fn forget_leaves_no_trace() {
    let histories = Histories::new();
    histories.add(&"a".into(), &recommends(1));
    histories.forget("a");
    assert!(histories.is_empty());
    assert!(histories.all().is_empty());
}

#[test]
fn rescale_that_is_recorded_already_is_not_counted_again() {
    let rescale = |from, to| WatchedRescale { at: at("01:00"), from, to };
    let (before, recorded) = (event("00:05.25", 2), event("01:00.75", 3));
    let cases = [
        ("new", vec![before], rescale(1, 4), vec![before, observed("01:00", 3)]),
        ("recorded", vec![recorded], rescale(1, 4), vec![recorded]),
        ("recorded in part", vec![recorded], rescale(1, 6), vec![recorded, observed("01:00", 2)]),
    ];
    for (what, recorded, rescale, expected) in cases {
        let (histories, uid) = (Histories::new(), Arc::from("a"));
        histories.seed(&uid, ups(&recorded));
        let changes = histories.changes();
        histories.remember(&uid, &behavior(), rescale, at("02:00"));
        assert_eq!(histories.get("a"), ups(&expected), "{what}");
        assert_eq!(histories.changes() == changes, recorded.len() == expected.len(), "{what}");
    }
}

#[test]
fn rescale_of_the_current_second_is_not_in_the_future() {
    let (histories, uid) = (Histories::new(), Arc::from("a"));
    let rescale = WatchedRescale { at: at("01:00"), from: 1, to: 4 };
    histories.remember(&uid, &behavior(), rescale, at("01:00.25"));
    let expected = ScaleEvent { earliest: Some(at("01:00")), ..event("01:00.25", 3) };
    assert_eq!(histories.get("a"), ups(&[expected]));
}

#[test]
fn rescale_by_a_clock_that_is_ahead_counts_from_now_on() {
    let (histories, uid) = (Histories::new(), Arc::from("a"));
    let rescale = WatchedRescale { at: at("59:00"), from: 1, to: 4 };
    histories.remember(&uid, &behavior(), rescale, at("01:00.25"));
    let expected = ScaleEvent { earliest: Some(at("01:00.25")), ..event("01:00.25", 3) };
    assert_eq!(histories.get("a"), ups(&[expected]));
}

#[test]
fn inherited_history_keeps_rescales_from_the_watch_once() {
    let (histories, uid) = (Histories::new(), Arc::from("a"));
    for (time, to) in [("01:00", 4), ("02:00", 3)] {
        let rescale = WatchedRescale { at: at(time), from: 1, to };
        histories.remember(&uid, &behavior(), rescale, at("05:00"));
    }
    let theirs = [event("00:30.5", 1), event("01:00.25", 3)];
    histories.inherit(&uid, ups(&theirs));
    assert_eq!(histories.get("a"), ups(&[theirs[0], theirs[1], observed("02:00", 2)]));
}
