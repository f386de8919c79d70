use super::super::{HistoryError, PendingWrite, RECOMMENDATIONS, SCALE_EVENTS};
use super::*;

fn histories() -> impl Strategy<Value = History> {
    let recommendation = (times(), any::<i32>()).prop_map(|(at, replicas)| Recommendation { at, replicas });
    let unsettled =
        (times(), any::<i32>(), any::<i32>()).prop_map(|(at, from, to)| PendingWrite { at, from, to });
    let doubts = (
        proptest::option::of(times()),
        proptest::option::of(times()),
        proptest::option::of(unsettled),
        proptest::option::of(times()),
    );
    (collection::vec(recommendation, 0..=20), events(), events(), doubts).prop_map(
        |(recommendations, scale_ups, scale_downs, (unknown_up, unknown_down, unsettled, inherited))| {
            History {
                recommendations,
                scale_ups,
                scale_downs,
                unknown_up,
                unknown_down,
                unsettled,
                inherited,
            }
        },
    )
}

/// Random syncs: the time since the previous sync, the metric's count, and the outcome of the write.
fn syncs() -> impl Strategy<Value = Vec<(i64, i32, WriteOutcome)>> {
    let outcome = prop_oneof![
        6 => Just(WriteOutcome::Done),
        1 => Just(WriteOutcome::Failed("no".to_owned())),
        1 => Just(WriteOutcome::Unknown("gone".to_owned())),
        1 => Just(WriteOutcome::Withheld),
    ];
    collection::vec((1..=60_000_000_000_i64, 0..=120, outcome), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_survives_a_round_trip(history in histories()) {
        prop_assert_eq!(History::decode(&history.encode()), Ok(history));
    }

    #[test]
    fn history_of_any_run_survives_a_round_trip(rules in behaviors(), syncs in syncs(), inherited in proptest::option::of(times())) {
        let mut run = Run::new(spec(Some(rules)), 5);
        run.history.inherited = inherited;
        let mut now = at(1_700_000_000);
        for (later, wanted, outcome) in syncs {
            now = now.checked_add(SignedDuration::from_nanos(later)).unwrap();
            run.sync(wanted, outcome, now);
            prop_assert_eq!(History::decode(&run.history.encode()), Ok(run.history.clone()));
        }
    }

    #[test]
    fn any_bytes_decode_to_a_bounded_history_or_an_error(
        mut bytes in collection::vec(any::<u8>(), 0..200), valid_header: bool,
    ) {
        if valid_header && bytes.len() > 1 {
            (bytes[0], bytes[1]) = (1, bytes[1] & 15);
        }
        if let Ok(history) = History::decode(&bytes) {
            prop_assert!(history.recommendations.len() <= RECOMMENDATIONS);
            prop_assert!(history.scale_ups.len().max(history.scale_downs.len()) <= SCALE_EVENTS);
            prop_assert!(history.scale_ups.iter().chain(&history.scale_downs).all(|event| event.change >= 0));
            prop_assert_eq!(History::decode(&history.encode()), Ok(history));
        }
    }

    #[test]
    fn truncated_history_is_an_error(history in histories(), cut in 0.0..1.0) {
        let bytes = history.encode();
        let most = f64::from(u32::try_from(bytes.len()).unwrap());
        let kept = crate::number::truncate_to_count(most * cut).unsigned_abs() as usize;
        prop_assert_eq!(History::decode(&bytes[..kept]), Err(HistoryError::Truncated(kept)));
    }
}

#[test]
fn decode_errors_name_the_cause() {
    let error = |bytes: &[u8]| History::decode(bytes).unwrap_err().to_string();
    assert_eq!(error(&[]), "history is truncated after 0 bytes");
    assert_eq!(error(&[9]), "history has format version 9, but this build reads version 1");
    assert_eq!(error(&[1, 16]), "history has unknown flags 0b00010000");
    assert_eq!(error(&[1, 0, 0, 0, 0, 7]), "history has 1 trailing bytes");
    assert_eq!(error(&[1, 0, 0x81, 4]), "history has 513 recommendations, but at most 512 are allowed");
    assert_eq!(error(&[1, 0, 0, 0x81, 2]), "history has 257 scale events, but at most 256 are allowed");
    // A change of 2³¹ pods, and a number of more than 128 bits.
    assert_eq!(error(&[1, 0, 0, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x10]), "history has a change out of range");
    assert_eq!(error(&[&[1, 0][..], &[0xff; 19]].concat()), "history has a number out of range");
    // A first count of 2³¹, and a time after the last timestamp.
    assert_eq!(error(&[1, 0, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x10]), "history has a count out of range");
    let far = [&[1, 0, 1][..], &[0xff; 17], &[0x7f, 0]].concat();
    assert_eq!(error(&far), "history has a time out of range");
    // A scale event with an earliest time long before the first timestamp.
    for most in [0x7f, 3] {
        let before = vec![0xff; if most == 3 { 18 } else { 17 }];
        let event = [&[1, 0, 0, 1, 0, 1][..], &before, &[most, 0]].concat();
        assert_eq!(error(&event), "history has a time out of range");
    }
}

/// The history of an HPA that changes occasionally, from syncs 15 s apart with a few milliseconds of jitter.
/// The HPA has a `behavior`, so the history stores rescales too.
fn usual(window: i64, syncs: i64) -> History {
    let rules = json!({
        "scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]},
        "scaleDown": {
            "stabilizationWindowSeconds": window,
            "policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}],
        },
    });
    let mut run = Run::new(spec(Some(rules)), 20);
    for sync in 0..syncs {
        let jitter = sync * 7_919_773 % 6_000_011;
        let now = Timestamp::from_nanosecond(i128::from(
            1_700_000_000_123_456_789 + sync * 15_000_000_000 + jitter,
        ));
        let wanted = 20 + i32::try_from(sync * 37 % 11).unwrap() / 4;
        run.done(wanted, now.unwrap());
    }
    run.history
}

#[test]
fn history_takes_about_six_bytes_per_entry() {
    for (window, syncs, entries, most) in [(300, 400, 20, 180), (3600, 800, 240, 1500)] {
        let history = usual(window, syncs);
        let bytes = history.encode().len();
        println!(
            "{} recommendations, {} scale events: {bytes} bytes",
            history.recommendations.len(),
            history.scale_ups.len() + history.scale_downs.len()
        );
        assert!(history.recommendations.len().abs_diff(entries) <= 2, "{history:?}");
        assert!(bytes <= most, "{bytes}");
    }
}
