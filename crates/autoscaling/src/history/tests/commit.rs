use super::super::{AddedEntry, Changes, PendingWrite, RECOMMENDATIONS, Reconciliation, SCALE_EVENTS};
use super::*;
use crate::stabilization;

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
    // When the two changes were created, the only event was outdated.
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

/// Stores an entry as upstream does: replaces the last outdated entry, or appends the new entry.
fn keep_all<T>(entries: &mut Vec<T>, entry: T, outdated: impl Fn(&T) -> bool) {
    match entries.iter().rposition(outdated) {
        Some(slot) => entries[slot] = entry,
        None => entries.push(entry),
    }
}

fn recommend(history: &mut History, entry: Recommendation, window: i64) {
    let outdated_before = entry.at - seconds(window);
    let recommendation = Some(AddedEntry { entry, outdated_before });
    history.commit(&Changes { recommendation, ..Changes::default() });
}

/// Sequences of counts: around a level, rising, falling, in waves, or random.
fn shaped_counts(length: impl Into<collection::SizeRange>) -> impl Strategy<Value = Vec<i32>> {
    let shape = select(&["level", "rising", "falling", "wave", "any"][..]);
    (shape, collection::vec(0..2000, length)).prop_map(|(shape, counts)| {
        let number = |index: usize| i32::try_from(index).unwrap();
        let shaped = counts.iter().enumerate().map(|(index, count)| match shape {
            "level" => 20 + count % 7,
            "rising" => number(index),
            "falling" => 5000 - 2 * number(index) + count % 2,
            "wave" => (number(index) % 700 - 350).abs() * 3 + count % 2,
            _ => *count,
        });
        shaped.collect()
    })
}

fn is_between(current: i32, count: i32, other: i32) -> bool {
    (current.min(other)..=current.max(other)).contains(&count)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn entries_within_the_bounds_equal_upstreams(
        counts in shaped_counts(0..RECOMMENDATIONS), apart in 1..60_i64, window in 0..=3600_i64,
    ) {
        let mut history = History::default();
        let mut all = Vec::new();
        for (replicas, sync) in counts.into_iter().zip(0..) {
            let entry = Recommendation { at: at(sync * apart), replicas };
            let cutoff = entry.at - seconds(window);
            recommend(&mut history, entry, window);
            keep_all(&mut all, entry, |entry| entry.at < cutoff);
        }
        prop_assert_eq!(history.recommendations, all);
    }

    #[test]
    fn bounded_recommendations_allow_no_larger_change(
        counts in shaped_counts(600..1600),
        (up, down) in (0..=3600_i64, 0..=3600_i64),
        later in 0..4000_i64,
        (current, proposal) in (0..6000, 0..6000),
    ) {
        let window = up.max(down);
        let mut history = History::default();
        let mut all = Vec::new();
        for (replicas, sync) in counts.into_iter().zip(0..) {
            let entry = Recommendation { at: at(sync), replicas };
            let cutoff = entry.at - seconds(window);
            recommend(&mut history, entry, window);
            keep_all(&mut all, entry, |entry| entry.at < cutoff);
            prop_assert!(history.recommendations.len() <= RECOMMENDATIONS);
            if sync % 97 == 0 {
                let now = entry.at + seconds(1 + later % 500);
                let after = |entries: &[Recommendation]| {
                    stabilization::with_behavior(entries, current, proposal, up, down, now).step.after
                };
                let (safe, exact) = (after(&history.recommendations), after(&all));
                prop_assert!(is_between(current, safe, exact), "{} -> {} instead of {}", current, safe, exact);
                let down = std::time::Duration::from_secs(down.unsigned_abs());
                let after = |entries: &[Recommendation]| {
                    stabilization::without_behavior(entries, proposal, down, now).step.after
                };
                prop_assert!(after(&history.recommendations) >= after(&all));
            }
        }
    }

    #[test]
    fn condensed_history_stabilizes_alike(
        counts in shaped_counts(0..200), apart in 1..60_i64, (up, down) in (0..=3600_i64, 0..=3600_i64),
        later in 0..4000_i64, (current, proposal) in (0..6000, 0..6000),
    ) {
        let mut history = History::default();
        for (replicas, sync) in counts.into_iter().zip(0..) {
            recommend(&mut history, Recommendation { at: at(sync * apart), replicas }, up.max(down));
        }
        let condensed = history.condensed();
        let now = at(later);
        let with = |history: &History| {
            let step = stabilization::with_behavior(&history.recommendations, current, proposal, up, down, now).step;
            (step.after, step.held_by)
        };
        prop_assert_eq!(with(&history), with(&condensed));
        let window = std::time::Duration::from_secs(down.unsigned_abs());
        let without = |history: &History| {
            let step = stabilization::without_behavior(&history.recommendations, proposal, window, now).step;
            (step.after, step.held_by)
        };
        prop_assert_eq!(without(&history), without(&condensed));
        prop_assert_eq!(condensed.condensed(), condensed);
    }

    // Compares with a history of all rescales, because even without a bound, upstream may replace an event that
    // policies of the other direction still count.
    #[test]
    fn bounded_scale_events_allow_no_larger_change(
        rules in behaviors(),
        steps in collection::vec((1..4_i64, -40..40_i32), 600..900),
        later in 0..1900_i64,
    ) {
        let behavior = behavior_of(&rules);
        let (mut history, mut all) = (History::default(), History::default());
        let (mut now, mut replicas) = (at(0), 1000);
        for (step, (apart, change)) in steps.into_iter().enumerate() {
            now += seconds(apart);
            let to = (replicas + change).max(1);
            let changes = Changes::rescaled(&behavior, replicas, to, now);
            history.commit(&changes);
            let (direction, added) = changes.scale_event.unwrap();
            all.events_mut(direction).push(added.entry);
            replicas = to;
            prop_assert!(history.scale_ups.len().max(history.scale_downs.len()) <= SCALE_EVENTS);
            if step % 61 == 0 {
                let then = now + seconds(later % 300);
                prop_assert!(no_further(&behavior, &history, &all, replicas, then));
            }
        }
        prop_assert!(no_further(&behavior, &history, &all, replicas, now + seconds(later)));
    }
}

#[test]
fn entries_out_of_reach_of_any_window_are_dropped_first() {
    let mut history = History::default();
    for second in 0..=512 {
        recommend(&mut history, Recommendation { at: at(second), replicas: 7 }, 10_000);
    }
    // All counts are equal, so only the newest entry can determine the result of a window.
    assert_eq!(history.recommendations, [Recommendation { at: at(512), replicas: 7 }]);

    let mut history = History::default();
    for second in 0..512 {
        recommend(&mut history, Recommendation { at: at(second), replicas: 7 }, 4000);
    }
    recommend(&mut history, Recommendation { at: at(3999), replicas: 7 }, 3600);
    assert_eq!(history.recommendations.len(), 512, "the new entry replaces an outdated one");
    recommend(&mut history, Recommendation { at: at(4010), replicas: 7 }, 4000);
    recommend(&mut history, Recommendation { at: at(4011), replicas: 8 }, 4012);
    let times: Vec<Timestamp> = history.recommendations.iter().map(|entry| entry.at).collect();
    assert_eq!(
        times,
        [at(4010), at(4011)],
        "entries of a window longer than the API's are dropped when the history is full"
    );
}

#[test]
fn entries_that_just_fit_are_kept() {
    // The counts fall, so each entry may determine the result of a window. The first entry is an exception, because the
    // second entry has the same count.
    let mut history = History::default();
    for (second, replicas) in (0..).zip(std::iter::once(2000).chain((0..512).map(|below| 2000 - below))) {
        recommend(&mut history, Recommendation { at: at(second), replicas }, 3600);
    }
    assert_eq!(history.recommendations.len(), RECOMMENDATIONS);
    assert_eq!(history.recommendations[0], Recommendation { at: at(1), replicas: 2000 });

    // The entries at seconds 0 and 1 are too old for any policy. The new entry replaces the entry at second 1, and the
    // entry at second 0 is dropped. The entries are not sorted by time.
    let rescaled = |second| ScaleEvent::new(at(second), 1);
    let mut expected: Vec<_> = (2000..2255).rev().map(rescaled).collect();
    let mut scale_ups = expected.clone();
    scale_ups.insert(100, rescaled(1));
    scale_ups.insert(0, rescaled(0));
    expected.insert(100, rescaled(2300));
    let mut history = History { scale_ups, ..History::default() };
    let mut behavior = behavior_of(&one_per_minute());
    behavior.scale_up.policies[0].period_seconds = 600;
    history.commit(&Changes::rescaled(&behavior, 1, 2, at(2300)));
    assert_eq!(expected.len(), SCALE_EVENTS);
    assert!(history.scale_ups == expected);
}
