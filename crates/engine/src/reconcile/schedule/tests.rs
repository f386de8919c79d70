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
    phases.offsets.as_ref().unwrap().position(at)
}

fn offset(phases: &SyncSchedule, key: &Key) -> u64 {
    phases.offsets.as_ref().unwrap().offset_of(key)
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
    for (hpas, apart) in [(10, 500_000_000), (1_929, 500_000_000), (1_930, 250_000_000), (15_360, 62_500_000)]
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
async fn slot_is_equal_after_a_restart_and_in_every_replica() {
    let mut keys = keys(7, 3);
    let before = spread(PERIOD, Some(AGE), &keys);
    let first: Vec<_> = keys.iter().map(|key| slot(&before, key, Instant::now())).collect();
    advance(Duration::from_secs(20)).await;
    keys.reverse();
    let after = SyncSchedule::spread(PERIOD, Some(AGE), "2030-01-01T00:00:27Z".parse().unwrap());
    for key in &keys {
        after.add(key);
    }
    for (key, first) in keys.iter().rev().zip(first) {
        let later = first + Duration::from_millis(15_075) * 2;
        assert_eq!(slot(&after, key, later), later, "{key}");
    }
}

/// Returns the first slot of a key at or after an instant.
fn slot(phases: &SyncSchedule, key: &Key, at: Instant) -> Instant {
    let lap = phases.offsets.as_ref().unwrap().lap;
    later(at, ahead(position(phases, at), offset(phases, key), lap))
}

/// Runs `syncs` syncs of a key, each `late` and `took` long. Returns the due times.
async fn run(phases: &SyncSchedule, key: &Key, syncs: usize, late: Duration, took: Duration) -> Vec<Instant> {
    let mut dues = Vec::new();
    for _ in 0..syncs {
        advance(late + took).await;
        let due = phases.next(key);
        dues.push(due);
        advance(due - Instant::now()).await;
    }
    dues
}

#[tokio::test(start_paused = true)]
async fn sync_is_due_at_least_a_period_after_the_end_of_the_last_one() {
    let keys = keys(30, 10);
    for phases in [spread(PERIOD, Some(AGE), &keys), SyncSchedule::without_slots(PERIOD)] {
        for (number, key) in keys.iter().enumerate() {
            advance(Duration::from_millis(u64::try_from(number).unwrap() * 37)).await;
            let after = phases.next(key) - Instant::now();
            assert!(after >= PERIOD && after <= PERIOD + PERIOD / 100, "{key}: {after:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn short_syncs_stay_in_their_slots() {
    let keys = keys(3, 3);
    let phases = spread(PERIOD, Some(AGE), &keys);
    for key in &keys {
        let dues = run(&phases, key, 300, Duration::from_millis(20), Duration::from_millis(30)).await;
        let last = &dues[250..];
        assert!(last.iter().all(|due| *due == slot(&phases, key, *due)), "{key} reaches its slot");
        assert!(last.windows(2).all(|two| two[1] - two[0] == Duration::from_millis(15_075)), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_sync_returns_to_its_slot() {
    let keys = keys(3, 3);
    let (phases, key) = (spread(PERIOD, Some(AGE), &keys), &keys[5]);
    run(&phases, key, 300, Duration::ZERO, Duration::from_millis(10)).await;
    for late in [1, 3, 7, 14] {
        run(&phases, key, 1, Duration::from_secs(late), Duration::from_secs(1)).await;
        let dues = run(&phases, key, 200, Duration::ZERO, Duration::from_millis(10)).await;
        let last = dues[199];
        assert_eq!(last, slot(&phases, key, last), "after a sync that was {late} s late");
        assert!(dues.windows(2).all(|two| two[1] - two[0] >= PERIOD), "{late}");
    }
}

#[tokio::test(start_paused = true)]
async fn due_times_do_not_leap_when_hpas_are_created_and_deleted() {
    let initial = keys(2, 5);
    let (phases, key) = (spread(PERIOD, Some(AGE), &initial), &initial[0]);
    run(&phases, key, 300, Duration::ZERO, Duration::from_millis(10)).await;
    for many in keys(40, 20).iter().skip(5) {
        phases.add(many);
    }
    let dues = run(&phases, key, 300, Duration::ZERO, Duration::from_millis(10)).await;
    for two in dues.windows(2) {
        let gap = two[1] - two[0];
        assert!(gap >= PERIOD && gap <= PERIOD * 102 / 100, "{gap:?}");
    }
    assert_eq!(dues[299], slot(&phases, key, dues[299]));
    for removed in keys(40, 20).iter().skip(5) {
        phases.remove(removed);
    }
    assert_eq!(offsets(&phases, &initial), offsets(&spread(PERIOD, Some(AGE), &initial), &initial));
}

#[tokio::test(start_paused = true)]
async fn hpas_that_share_a_number_sync_together() {
    let period = Duration::from_secs(1);
    // The number is requested by the first sync that finds it older than 0.9 s.
    let mut requested = Instant::now();
    let mut due: Vec<_> = (0..5).map(|hpa| Instant::now() + Duration::from_millis(hpa * 230)).collect();
    let mut ages = Vec::new();
    for _ in 0..300 {
        let (hpa, at) = due.iter().copied().enumerate().min_by_key(|(_, due)| *due).unwrap();
        advance(at.saturating_duration_since(Instant::now())).await;
        if requested.elapsed() >= period * 9 / 10 {
            requested = Instant::now();
        }
        ages.push(requested.elapsed());
        advance(Duration::from_millis(2)).await;
        due[hpa] = OwnPeriod { period, requested: Some(requested) }.next();
        assert!(due[hpa] >= Instant::now() + period);
    }
    assert!(ages[200..].iter().all(|age| *age <= Duration::from_millis(100)), "{:?}", &ages[200..]);
}

#[tokio::test(start_paused = true)]
async fn every_period_and_age_is_accepted() {
    let all = keys(3, 2);
    for period in [Duration::from_nanos(1), Duration::from_millis(3), Duration::from_hours(24 * 365 * 146)] {
        for age in [None, Some(Duration::ZERO), Some(Duration::MAX / 8)] {
            let phases = spread(period, age, &all);
            let now = Instant::now();
            for key in all.iter().chain(&keys(1, 1)) {
                let next = phases.next(key);
                assert!(next >= now && next - now <= period + period / 100, "{period:?} {age:?}");
            }
        }
    }
}
