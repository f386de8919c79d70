use std::collections::{BTreeMap, BTreeSet};

use tokio::time::advance;

use super::*;

const PERIOD: Duration = Duration::from_secs(15);
const AGE: Duration = Duration::from_secs(5);

fn of(period: Duration, shared: Option<Duration>, keys: &[Key]) -> Phases {
    let phases = Phases::spread(period, shared, "2030-01-01T00:00:07Z".parse().unwrap());
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

fn position(phases: &Phases, at: Instant) -> u64 {
    phases.places.as_ref().unwrap().position(at, phases.period)
}

fn place(phases: &Phases, key: &Key) -> u64 {
    phases.places.as_ref().unwrap().of(key, phases.period)
}

/// Seconds into the period, in the order of the keys.
fn places(phases: &Phases, keys: &[Key]) -> Vec<f64> {
    keys.iter().map(|key| Duration::from_nanos(place(phases, key)).as_secs_f64()).collect()
}

/// The busiest second of a period as so many times the mean.
fn busiest(places: &[f64]) -> f64 {
    // In steps of a tenth of a second, over the end of the period.
    let within = |from: f64| {
        let to = from + 1.0;
        places.iter().filter(|at| (from..to).contains(*at) || (from..to).contains(&(**at + 15.0))).count()
    };
    let most = (0..150).map(|tenth| within(f64::from(tenth) / 10.0)).max().unwrap();
    let mean = f64::from(u32::try_from(places.len()).unwrap()) / 15.0;
    f64::from(u32::try_from(most).unwrap()) / mean
}

/// How many lists of metrics one period takes, if each serves for 5 s.
fn lists(keys: &[Key], places: &[f64]) -> BTreeMap<String, usize> {
    let mut by_namespace = BTreeMap::<_, Vec<f64>>::new();
    for (key, at) in keys.iter().zip(places) {
        by_namespace.entry(key.namespace.to_string()).or_default().push(*at);
    }
    let count = |mut places: Vec<f64>| {
        places.sort_by(f64::total_cmp);
        let (mut lists, mut since) = (0, f64::NEG_INFINITY);
        for at in places {
            if at > since + 5.0 {
                (lists, since) = (lists + 1, at);
            }
        }
        lists
    };
    by_namespace.into_iter().map(|(namespace, places)| (namespace, count(places))).collect()
}

#[tokio::test(start_paused = true)]
async fn every_second_has_as_many_syncs_and_every_namespace_one_list() {
    for (namespaces, each) in [(50, 20), (10, 100), (1_000, 1), (100, 100), (4, 250)] {
        let keys = keys(namespaces, each);
        let places = places(&of(PERIOD, Some(AGE), &keys), &keys);
        let (busiest, lists) = (busiest(&places), lists(&keys, &places));
        assert!(busiest <= 1.5, "{namespaces} × {each}: {busiest}");
        assert!(lists.values().all(|count| *count == 1), "{namespaces} × {each}: {lists:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_namespace_with_all_hpas_takes_a_few_lists_and_no_second_is_busy() {
    let keys = keys(1, 1_000);
    let places = places(&of(PERIOD, Some(AGE), &keys), &keys);
    assert!(busiest(&places) <= 1.35, "{}", busiest(&places));
    assert_eq!(lists(&keys, &places)["team-0"], 3);
}

#[tokio::test(start_paused = true)]
async fn few_hpas_of_a_namespace_lie_within_one_list_however_few_namespaces_there_are() {
    for each in [2, 10, 60] {
        let keys = keys(2, each);
        let places = places(&of(PERIOD, Some(AGE), &keys), &keys);
        assert!(lists(&keys, &places).values().all(|count| *count == 1), "{each}: {places:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn places_lie_on_beats_which_are_the_closer_the_more_hpas_there_are() {
    // A beat every 500 ms, and with 64 or more on each beat every 250 ms, and so on.
    for (hpas, apart) in [(10, 500_000_000), (1_920, 500_000_000), (1_921, 250_000_000), (15_360, 62_500_000)]
    {
        let keys = keys(hpas / 10 + 1, 10);
        let keys = &keys[..hpas];
        let phases = of(PERIOD, Some(AGE), keys);
        let places: BTreeSet<u64> = keys.iter().map(|key| place(&phases, key)).collect();
        assert!(places.iter().all(|place| place % apart == 0), "{hpas}");
        assert!(places.iter().any(|place| place % (apart * 2) != 0), "{hpas}: as far apart as they may be");
    }
}

#[tokio::test(start_paused = true)]
async fn without_shared_answers_hpas_lie_over_the_whole_period() {
    let keys = keys(1, 40);
    let places = places(&of(PERIOD, None, &keys), &keys);
    assert!(busiest(&places) < 3.0, "{places:?}");
    assert!(places.iter().any(|at| *at < 2.0) && places.iter().any(|at| *at > 13.0), "{places:?}");
}

#[tokio::test(start_paused = true)]
async fn the_place_is_the_same_after_a_restart_and_in_every_replica() {
    let mut keys = keys(7, 3);
    let before = of(PERIOD, Some(AGE), &keys);
    let at = before.next(&keys[4], None, Instant::now());
    advance(Duration::from_secs(20)).await;
    keys.reverse();
    let after = Phases::spread(PERIOD, Some(AGE), "2030-01-01T00:00:27Z".parse().unwrap());
    for key in &keys {
        after.add(key);
    }
    let again = after.next(&keys[keys.len() - 5], None, at);
    assert_eq!(again, at + PERIOD);
}

#[tokio::test(start_paused = true)]
async fn the_second_sync_follows_at_its_place_half_a_period_later_or_more() {
    let keys = keys(30, 10);
    let phases = of(PERIOD, Some(AGE), &keys);
    let began = Instant::now();
    let mut nexts = BTreeSet::new();
    for key in &keys {
        let next = phases.next(key, None, began);
        let after = next - began;
        assert!(after >= PERIOD / 2 && after < PERIOD * 3 / 2, "{key}: {after:?}");
        assert_eq!(position(&phases, next), place(&phases, key), "{key}");
        nexts.insert(next);
    }
    assert_eq!(nexts.len(), 30, "they do not come at once again, but on every beat of a period");
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_was_late_or_long_moves_no_due_time() {
    let keys = keys(3, 3);
    let (phases, key) = (of(PERIOD, Some(AGE), &keys), &keys[5]);
    let due = phases.next(key, None, Instant::now());
    // In an order in which time goes on.
    for (late, took, periods) in
        [(0, 0, 1), (3, 4, 1), (7, 1, 1), (8, 1, 2), (0, 14, 1), (0, 16, 2), (40, 1, 4)]
    {
        let began = due + Duration::from_secs(late);
        advance((began + Duration::from_secs(took)).saturating_duration_since(Instant::now())).await;
        assert_eq!(
            phases.next(key, Some(due), began),
            due + PERIOD * periods,
            "{late} s late, {took} s long"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn hpas_that_come_and_go_make_no_due_time_leap_and_the_places_are_reached() {
    let known = keys(2, 5);
    let (phases, key) = (of(PERIOD, Some(AGE), &known), &known[0]);
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
    assert_eq!(position(&phases, due), place(&phases, key));
    for gone in keys(40, 20).iter().skip(5) {
        phases.remove(gone);
    }
    assert_eq!(places(&phases, &known), places(&of(PERIOD, Some(AGE), &known), &known));
}

#[tokio::test(start_paused = true)]
async fn without_places_the_phase_is_that_of_the_first_sync() {
    let (phases, key) = (Phases::of_first_syncs(PERIOD), &keys(1, 1)[0]);
    let began = Instant::now();
    advance(Duration::from_secs(4)).await;
    let next = phases.next(key, None, began);
    assert_eq!(next, began + PERIOD);
    advance(Duration::from_secs(14)).await;
    assert_eq!(phases.next(key, Some(next), next + Duration::from_secs(2)), next + PERIOD);
}

#[tokio::test(start_paused = true)]
async fn any_period_and_any_age_will_do() {
    let all = keys(3, 2);
    for period in [Duration::from_nanos(1), Duration::from_millis(3), Duration::from_hours(24 * 365 * 292)] {
        for age in [None, Some(Duration::ZERO), Some(Duration::MAX / 8)] {
            let phases = of(period, age, &all);
            let began = Instant::now();
            for key in all.iter().chain(&keys(1, 1)) {
                let next = phases.next(key, None, began);
                assert!(next >= began && next - began <= period + period / 2, "{period:?} {age:?}");
                assert!(phases.next(key, Some(began), began) >= began);
            }
        }
    }
}
