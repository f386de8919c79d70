use std::collections::{BTreeMap, BTreeSet};

use tokio::time::advance;

use super::*;

const PERIOD: Duration = Duration::from_secs(15);
const AGE: Duration = Duration::from_secs(5);

fn spread(period: Duration, shared: Option<Duration>, keys: &[Key]) -> SyncSchedule {
    let phases = SyncSchedule::spread(period, shared, "2030-01-01T00:00:07Z".parse().unwrap());
    for key in keys {
        phases.add(key);
    }
    phases
}

fn keys(namespaces: usize, each: usize) -> Vec<Key> {
    let in_one = |namespace| {
        (0..each).map(move |n| Key::new(format!("team-{namespace}").as_str(), format!("web-{n}").as_str()))
    };
    (0..namespaces).flat_map(in_one).collect()
}

fn position(phases: &SyncSchedule, at: Instant) -> u64 {
    phases.offsets.as_ref().unwrap().position(at, phases.period)
}

fn offset(phases: &SyncSchedule, key: &Key) -> u64 {
    phases.offsets.as_ref().unwrap().offset_of(key, phases.period)
}

/// Returns the offsets in seconds, in the order of the keys.
fn offsets(phases: &SyncSchedule, keys: &[Key]) -> Vec<f64> {
    keys.iter().map(|key| Duration::from_nanos(offset(phases, key)).as_secs_f64()).collect()
}

/// Returns the number of syncs in the busiest second of a period, as a multiple of the mean.
fn busiest(offsets: &[f64]) -> f64 {
    // The second moves in steps of 0.1 s, also across the end of the period.
    let within = |from: f64| {
        let to = from + 1.0;
        offsets.iter().filter(|at| (from..to).contains(*at) || (from..to).contains(&(**at + 15.0))).count()
    };
    let most = (0..150).map(|tenth| within(f64::from(tenth) / 10.0)).max().unwrap();
    let mean = f64::from(u32::try_from(offsets.len()).unwrap()) / 15.0;
    f64::from(u32::try_from(most).unwrap()) / mean
}

/// Returns the number of metrics lists of each namespace in one period, if each list is used for 5 s.
fn lists(keys: &[Key], offsets: &[f64]) -> BTreeMap<String, usize> {
    let mut by_namespace = BTreeMap::<_, Vec<f64>>::new();
    for (key, at) in keys.iter().zip(offsets) {
        by_namespace.entry(key.namespace.to_string()).or_default().push(*at);
    }
    let count = |mut offsets: Vec<f64>| {
        offsets.sort_by(f64::total_cmp);
        let (mut lists, mut since) = (0, f64::NEG_INFINITY);
        for at in offsets {
            if at > since + 5.0 {
                (lists, since) = (lists + 1, at);
            }
        }
        lists
    };
    by_namespace.into_iter().map(|(namespace, offsets)| (namespace, count(offsets))).collect()
}

#[tokio::test(start_paused = true)]
async fn seconds_have_equal_load_and_namespaces_share_one_list() {
    for (namespaces, each) in [(50, 20), (10, 100), (1_000, 1), (100, 100), (4, 250)] {
        let keys = keys(namespaces, each);
        let offsets = offsets(&spread(PERIOD, Some(AGE), &keys), &keys);
        let (busiest, lists) = (busiest(&offsets), lists(&keys, &offsets));
        assert!(busiest <= 1.5, "{namespaces} × {each}: {busiest}");
        assert!(lists.values().all(|count| *count == 1), "{namespaces} × {each}: {lists:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_large_namespace_takes_three_lists_with_equal_load() {
    let keys = keys(1, 1_000);
    let offsets = offsets(&spread(PERIOD, Some(AGE), &keys), &keys);
    assert!(busiest(&offsets) <= 1.35, "{}", busiest(&offsets));
    assert_eq!(lists(&keys, &offsets)["team-0"], 3);
}

#[tokio::test(start_paused = true)]
async fn small_namespaces_share_one_list_each() {
    for each in [2, 10, 60] {
        let keys = keys(2, each);
        let offsets = offsets(&spread(PERIOD, Some(AGE), &keys), &keys);
        assert!(lists(&keys, &offsets).values().all(|count| *count == 1), "{each}: {offsets:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ticks_are_closer_with_more_hpas() {
    // Ticks are 500 ms apart. The distance is halved if there are more than 64 syncs per tick.
    for (hpas, apart) in [(10, 500_000_000), (1_920, 500_000_000), (1_921, 250_000_000), (15_360, 62_500_000)]
    {
        let keys = keys(hpas / 10 + 1, 10);
        let keys = &keys[..hpas];
        let phases = spread(PERIOD, Some(AGE), keys);
        let offsets: BTreeSet<u64> = keys.iter().map(|key| offset(&phases, key)).collect();
        assert!(offsets.iter().all(|offset| offset % apart == 0), "{hpas}");
        assert!(
            offsets.iter().any(|offset| offset % (apart * 2) != 0),
            "{hpas}: ticks are closer than needed"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn hpas_spread_over_the_period_without_shared_answers() {
    let keys = keys(1, 40);
    let offsets = offsets(&spread(PERIOD, None, &keys), &keys);
    assert!(busiest(&offsets) < 3.0, "{offsets:?}");
    assert!(offsets.iter().any(|at| *at < 2.0) && offsets.iter().any(|at| *at > 13.0), "{offsets:?}");
}

#[tokio::test(start_paused = true)]
async fn offset_is_equal_after_a_restart_and_in_every_replica() {
    let mut keys = keys(7, 3);
    let before = spread(PERIOD, Some(AGE), &keys);
    let at = before.next(&keys[4], None, Instant::now());
    advance(Duration::from_secs(20)).await;
    keys.reverse();
    let after = SyncSchedule::spread(PERIOD, Some(AGE), "2030-01-01T00:00:27Z".parse().unwrap());
    for key in &keys {
        after.add(key);
    }
    let again = after.next(&keys[keys.len() - 5], None, at);
    assert_eq!(again, at + PERIOD);
}

#[tokio::test(start_paused = true)]
async fn second_sync_follows_at_its_offset_after_half_a_period() {
    let keys = keys(30, 10);
    let phases = spread(PERIOD, Some(AGE), &keys);
    let started = Instant::now();
    let mut nexts = BTreeSet::new();
    for key in &keys {
        let next = phases.next(key, None, started);
        let after = next - started;
        assert!(after >= PERIOD / 2 && after < PERIOD * 3 / 2, "{key}: {after:?}");
        assert_eq!(position(&phases, next), offset(&phases, key), "{key}");
        nexts.insert(next);
    }
    assert_eq!(nexts.len(), 30, "the second syncs spread over every tick of a period");
}

#[tokio::test(start_paused = true)]
async fn late_or_long_sync_moves_no_due_time() {
    let keys = keys(3, 3);
    let (phases, key) = (spread(PERIOD, Some(AGE), &keys), &keys[5]);
    let due = phases.next(key, None, Instant::now());
    // The cases are ordered by time.
    for (late, took, periods) in
        [(0, 0, 1), (3, 4, 1), (7, 1, 1), (8, 1, 2), (0, 14, 1), (0, 16, 2), (40, 1, 4)]
    {
        let started = due + Duration::from_secs(late);
        advance((started + Duration::from_secs(took)).saturating_duration_since(Instant::now())).await;
        assert_eq!(
            phases.next(key, Some(due), started),
            due + PERIOD * periods,
            "{late} s late, {took} s long"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn due_times_do_not_leap_when_hpas_are_created_and_deleted() {
    let initial = keys(2, 5);
    let (phases, key) = (spread(PERIOD, Some(AGE), &initial), &initial[0]);
    let mut due = phases.next(key, None, Instant::now());
    for many in keys(40, 20).iter().skip(5) {
        phases.add(many);
    }
    for _ in 0..10 {
        advance(due.saturating_duration_since(Instant::now())).await;
        let next = phases.next(key, Some(due), due);
        let gap = next - due;
        assert!(gap >= PERIOD * 19 / 20 && gap <= PERIOD * 21 / 20, "{gap:?}");
        due = next;
    }
    assert_eq!(position(&phases, due), offset(&phases, key));
    for removed in keys(40, 20).iter().skip(5) {
        phases.remove(removed);
    }
    assert_eq!(offsets(&phases, &initial), offsets(&spread(PERIOD, Some(AGE), &initial), &initial));
}

#[tokio::test(start_paused = true)]
async fn phase_follows_the_first_sync_without_offsets() {
    let (phases, key) = (SyncSchedule::from_first_syncs(PERIOD), &keys(1, 1)[0]);
    let started = Instant::now();
    advance(Duration::from_secs(4)).await;
    let next = phases.next(key, None, started);
    assert_eq!(next, started + PERIOD);
    advance(Duration::from_secs(14)).await;
    assert_eq!(phases.next(key, Some(next), next + Duration::from_secs(2)), next + PERIOD);
}

#[tokio::test(start_paused = true)]
async fn every_period_and_age_is_accepted() {
    let all = keys(3, 2);
    for period in [Duration::from_nanos(1), Duration::from_millis(3), Duration::from_hours(24 * 365 * 292)] {
        for age in [None, Some(Duration::ZERO), Some(Duration::MAX / 8)] {
            let phases = spread(period, age, &all);
            let started = Instant::now();
            for key in all.iter().chain(&keys(1, 1)) {
                let next = phases.next(key, None, started);
                assert!(next >= started && next - started <= period + period / 2, "{period:?} {age:?}");
                assert!(phases.next(key, Some(started), started) >= started);
            }
        }
    }
}
