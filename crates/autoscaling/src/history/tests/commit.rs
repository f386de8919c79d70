use super::super::{AddedEntry, Changes, PendingWrite, Reconciliation};
use super::*;

fn recommended(second: i64, replicas: i32, outdated_before: i64) -> Changes {
    let entry = Recommendation { at: at(second), replicas };
    let added = AddedEntry { entry, outdated_before: at(outdated_before) };
    Changes { recommendation: Some(added), ..Changes::default() }
}

fn counts(history: &History) -> Vec<i32> {
    history.recommendations.iter().map(|entry| entry.replicas).collect()
}

#[test]
fn new_entry_replaces_the_last_outdated_one() {
    let mut history = History::default();
    for (second, replicas) in [(0, 1), (10, 2), (20, 3)] {
        history.commit(&recommended(second, replicas, 0));
    }
    history.commit(&recommended(30, 4, 20));
    assert_eq!(counts(&history), [1, 4, 3]);
    history.commit(&recommended(40, 5, 20));
    assert_eq!(counts(&history), [5, 4, 3]);
    history.commit(&recommended(50, 6, 20));
    assert_eq!(counts(&history), [5, 4, 3, 6]);
}

#[test]
fn initial_recommendation_is_first_and_added_only_when_none_exists() {
    let mut history = History::default();
    let initial = Some(Recommendation { at: at(1), replicas: 3 });
    let changes = Changes { initial, ..recommended(1, 5, 0) };
    history.commit(&changes);
    assert_eq!(counts(&history), [3, 5]);
    history.commit(&changes);
    assert_eq!(counts(&history), [3, 5, 5]);
}

#[test]
fn slot_is_chosen_when_the_entry_is_committed() {
    let behavior = behavior_of(&one_per_minute());
    let mut history = History { scale_ups: vec![ScaleEvent::new(at(0), 1)], ..History::default() };
    // Both changes were created while the first slot was outdated.
    let (ours, theirs) =
        (Changes::rescaled(&behavior, 2, 4, at(100)), Changes::rescaled(&behavior, 4, 7, at(100)));
    history.commit(&ours);
    history.commit(&theirs);
    assert_eq!(history.scale_ups, [ScaleEvent::new(at(100), 2), ScaleEvent::new(at(100), 3)]);
}

#[test]
fn rescale_before_the_first_sync_does_not_replace_the_initial_entry() {
    let mut run = Run::new(spec(Some(one_per_minute())), 5);
    run.history.commit(&Changes::rescaled(run.spec.behavior.as_ref().unwrap(), 4, 5, at(90)));
    let conclusion = run.done(5, at(100));
    assert_eq!(conclusion.changes.initial, Some(Recommendation { at: at(100), replicas: 5 }));
    assert_eq!(counts(&run.history), [5, 5]);
}

#[test]
fn unknown_rescale_is_dropped_when_no_period_reaches_it() {
    let mut history =
        History { unknown_up: Some(at(100)), unknown_down: Some(at(101)), ..History::default() };
    history.commit(&recommended(1899, 1, 0));
    assert_eq!((history.unknown_up, history.unknown_down), (Some(at(100)), Some(at(101))));
    history.commit(&recommended(1900, 1, 0));
    assert_eq!((history.unknown_up, history.unknown_down), (None, Some(at(101))));
    history.commit(&Changes::rescaled(&behavior_of(&one_per_minute()), 1, 2, at(1901)));
    assert_eq!(history.unknown_down, None);
}

#[test]
fn history_with_any_content_is_not_empty() {
    assert!(History::default().is_empty());
    assert!(!History::default().inherit(at(1)).is_empty());
    assert!(!History { unknown_down: Some(at(1)), ..History::default() }.is_empty());
}

#[test]
fn clock_jump_shifts_the_history_and_its_changes() {
    let recommendation = |second| Recommendation { at: at(second), replicas: 3 };
    let event = |second| ScaleEvent { at: at(second), change: 2, earliest: Some(at(second - 1)) };
    let unsettled = |second| Some(PendingWrite { at: at(second), from: 1, to: 2 });
    let remembered = |second| History {
        recommendations: vec![recommendation(second)],
        scale_ups: vec![event(second)],
        scale_downs: vec![event(second + 1)],
        unknown_up: Some(at(second + 2)),
        unknown_down: Some(at(second + 3)),
        unsettled: unsettled(second + 4),
        inherited: Some(at(second + 5)),
    };
    let added_event = |second| AddedEntry { entry: event(second), outdated_before: at(second - 60) };
    let added = |second| Changes {
        found: Some(Reconciliation {
            settled: unsettled(second),
            owned: true,
            scale_event: Some((Direction::Down, added_event(second + 1))),
            unknown: Some(at(second + 2)),
        }),
        initial: Some(recommendation(second + 3)),
        recommendation: Some(AddedEntry {
            entry: recommendation(second + 4),
            outdated_before: at(second - 300),
        }),
        scale_event: Some((Direction::Up, added_event(second + 5))),
        unsettled: unsettled(second + 6),
    };
    for by in [3600, -50] {
        let (mut history, mut changes) = (remembered(100), added(100));
        history.shift(seconds(by));
        changes.shift(seconds(by));
        assert_eq!((history, changes), (remembered(100 + by), added(100 + by)));
    }
    let mut first = History { unknown_up: Some(Timestamp::MIN), ..History::default() };
    first.shift(seconds(-1));
    assert_eq!(first.unknown_up, Some(Timestamp::MIN));
    let mut last = History { unknown_up: Some(Timestamp::MAX), ..History::default() };
    last.shift(seconds(1));
    assert_eq!(last.unknown_up, Some(Timestamp::MAX));
}
