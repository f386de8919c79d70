//! Properties of any load.

use jiff::{Span, Timestamp};
use proptest::prelude::*;

use super::zone;
use crate::calendar::Calendar;
use crate::ledger::CANDIDATES;
use crate::stored::LONGEST;
use crate::{Mode, Observation, Settings, State};

const ZONES: [&str; 5] =
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"];

fn settings() -> impl Strategy<Value = Settings> {
    (0.0..0.2, 0.0..300.0, 0_i64..20, 0.0..1.2, 0..ZONES.len(), any::<bool>()).prop_map(
        |(budget, shortage_value, start_minutes, maximum_floor, zone_of, applies)| Settings {
            mode: if applies { Mode::Floor } else { Mode::Preview },
            budget,
            shortage_value,
            start_minutes,
            minimum_history: 1440,
            maximum_floor,
            calendar: Calendar { zone: zone(ZONES[zone_of]), ..Calendar::default() },
        },
    )
}

/// Two to four days of a noisy load with peaks, gaps and missing minutes, which start before a clock change.
fn minutes() -> impl Strategy<Value = Vec<Option<Observation>>> {
    let minute = (0.0..1.0, 0..40, any::<bool>()).prop_map(|(noise, kind, saturated)| {
        let load = match kind {
            0 => None,
            1 => Some(f64::NAN),
            2 => Some(60.0 * noise),
            _ => Some(3.0 + noise),
        };
        let observation = Observation { load, saturated, asked: 3, max_replicas: 50 };
        (kind != 3).then_some(observation)
    });
    proptest::collection::vec(minute, 2 * 1440..4 * 1440)
}

fn start() -> Timestamp {
    "2026-03-28T12:00:00Z".parse().unwrap()
}

fn learn(state: &mut State, minutes: &[Option<Observation>], from: usize, settings: &Settings) {
    for (minute, observed) in (0_i64..).zip(minutes).skip(from) {
        if let Some(observed) = observed {
            let _ = state.learn("a", start() + Span::new().minutes(minute + 1), observed, settings);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn floors_stay_within_the_cap(minutes in minutes(), settings in settings()) {
        let mut state = State::new("a");
        let cap = (settings.maximum_floor.min(1.0) * 50.0).floor();
        for (minute, observed) in (1_i64..).zip(&minutes) {
            let Some(observed) = observed else { continue };
            let now = start() + Span::new().minutes(minute);
            let _ = state.learn("a", now, observed, &settings);
            let outlook = state.outlook(now, &settings);
            prop_assert!(outlook.proposed.is_none_or(|floor| f64::from(floor) <= cap), "{:?}", outlook);
            prop_assert_eq!(outlook.proposed.is_some(), outlook.reason.pays());
            prop_assert_eq!(outlook.floor, outlook.proposed.filter(|_| settings.mode == Mode::Floor));
            let tally = outlook.tally;
            for candidate in 0..CANDIDATES {
                let (extra, avoided) = (tally.extra[candidate], tally.avoided[candidate]);
                prop_assert!(extra >= 0.0 && avoided >= 0.0 && avoided <= tally.short * 1.001 + 0.01, "{:?}", tally);
            }
        }
    }

    /// A state that is stored and restored at any minute forecasts the same as one that is not, as soon as a pod has
    /// started.
    #[test]
    fn restart_changes_no_forecast(minutes in minutes(), settings in settings(), at in 0_usize..2800) {
        let (mut whole, mut part) = (State::new("a"), State::new("a"));
        learn(&mut whole, &minutes, 0, &settings);
        learn(&mut part, &minutes[..at], 0, &settings);
        let encoded = part.encode();
        prop_assert!(encoded.len() <= LONGEST);
        let mut part = State::decode(&encoded, "a").unwrap();
        prop_assert_eq!(&part.encode(), &encoded);
        learn(&mut part, &minutes, at, &settings);
        prop_assert_eq!(&whole.peaks, &part.peaks);
        let now = start() + Span::new().minutes(i64::try_from(minutes.len()).unwrap());
        prop_assert_eq!(whole.floors(now), part.floors(now));
    }

    /// An observation without a load, and no observation, are the same gap.
    #[test]
    fn gap_is_a_gap(minutes in minutes(), settings in settings(), gaps in proptest::collection::vec(0_usize..2800, 0..50)) {
        let (mut without, mut missing) = (minutes.clone(), minutes);
        for gap in gaps {
            without[gap] = without[gap].map(|observed| Observation { load: None, ..observed });
            missing[gap] = None;
        }
        let (mut one, mut other) = (State::new("a"), State::new("a"));
        learn(&mut one, &without, 0, &settings);
        learn(&mut other, &missing, 0, &settings);
        prop_assert_eq!(&one.peaks, &other.peaks);
        let now = start() + Span::new().minutes(i64::try_from(missing.len()).unwrap());
        prop_assert_eq!(one.floors(now), other.floors(now));
    }

    /// The noisiest load fits, too.
    #[test]
    fn stored_form_is_bounded(loads in proptest::collection::vec(-3.0..10.0_f64, 15 * 288)) {
        let mut state = State::new("a");
        let settings = Settings::default();
        for (bucket, load) in (1_i64..).zip(&loads) {
            let observed = Observation { load: Some(load.exp()), saturated: false, asked: 5, max_replicas: 100 };
            let _ = state.learn("a", start() + Span::new().minutes(5 * bucket), &observed, &settings);
        }
        let encoded = state.encode();
        prop_assert!(encoded.len() <= LONGEST, "{}", encoded.len());
        let restored = State::decode(&encoded, "a").unwrap();
        prop_assert_eq!(restored.encode(), encoded);
    }

    #[test]
    fn any_bytes_decode_or_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = State::decode(&bytes, "a");
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        let _ = State::decode(&bytes, "a");
    }
}
