use super::super::{AddedEntry, Changes, RECOMMENDATIONS, SCALE_EVENTS};
use super::*;
use crate::stabilization;

/// Stores an entry as upstream does, without a bound: replaces the last outdated entry, or appends the new one.
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

/// Counts of a metric: around a level, rising, falling, a wave, or random.
fn counts(length: impl Into<collection::SizeRange>) -> impl Strategy<Value = Vec<i32>> {
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

/// Whether `count` lies between `current` and `other`.
fn is_between(current: i32, count: i32, other: i32) -> bool {
    (current.min(other)..=current.max(other)).contains(&count)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn entries_within_the_bounds_equal_upstreams(
        counts in counts(0..RECOMMENDATIONS), apart in 1..60_i64, window in 0..=3600_i64,
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
        counts in counts(600..1600),
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

    // Compares with a history of all rescales. As in upstream, a new event may replace an event that no
    // longer counts in its own direction, although the other direction still counts it. The order of the
    // slots determines which event is replaced.
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
    // All counts are equal, so only the newest entry can hold a count.
    assert_eq!(history.recommendations, [Recommendation { at: at(512), replicas: 7 }]);

    let mut history = History::default();
    for second in 0..512 {
        recommend(&mut history, Recommendation { at: at(second), replicas: 7 }, 4000);
    }
    recommend(&mut history, Recommendation { at: at(3999), replicas: 7 }, 3600);
    assert_eq!(history.recommendations.len(), 512, "the entry replaces an outdated one");
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
    // The counts fall, so each entry may hold a count. The first two are equal, so the older of the two
    // cannot.
    let mut history = History::default();
    for (second, replicas) in (0..).zip(std::iter::once(2000).chain((0..512).map(|below| 2000 - below))) {
        recommend(&mut history, Recommendation { at: at(second), replicas }, 3600);
    }
    assert_eq!(history.recommendations.len(), RECOMMENDATIONS);
    assert_eq!(history.recommendations[0], Recommendation { at: at(1), replicas: 2000 });

    // Two entries are out of reach. One is replaced, and the other is dropped. The others are not in order of
    // time.
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
