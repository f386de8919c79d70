use super::super::{HistoryError, RECOMMENDATIONS, SCALE_EVENTS, Unsettled};
use super::*;

fn histories() -> impl Strategy<Value = History> {
    let recommendation = (times(), any::<i32>()).prop_map(|(at, replicas)| Recommendation { at, replicas });
    let unsettled =
        (times(), any::<i32>(), any::<i32>()).prop_map(|(at, from, to)| Unsettled { at, from, to });
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

/// What a sync may meet: how long after the one before, what the metric wants, how the write ends.
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
    fn whatever_is_written_reads_as_the_same(history in histories()) {
        prop_assert_eq!(History::decode(&history.encode()), Ok(history));
    }

    #[test]
    fn whatever_a_run_remembers_reads_as_the_same(rules in behaviors(), syncs in syncs(), inherited in proptest::option::of(times())) {
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
    fn any_bytes_are_a_history_within_the_bounds_or_an_error(
        mut bytes in collection::vec(any::<u8>(), 0..200), known: bool,
    ) {
        if known && bytes.len() > 1 {
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
    fn a_part_of_a_history_is_an_error(history in histories(), cut in 0.0..1.0) {
        let bytes = history.encode();
        let most = f64::from(u32::try_from(bytes.len()).unwrap());
        let kept = crate::number::truncate_to_count(most * cut).unsigned_abs() as usize;
        prop_assert_eq!(History::decode(&bytes[..kept]), Err(HistoryError::Truncated(kept)));
    }
}

#[test]
fn what_is_wrong_with_bytes_is_told() {
    let told = |bytes: &[u8]| History::decode(bytes).unwrap_err().to_string();
    assert_eq!(told(&[]), "a history cut off after 0 bytes");
    assert_eq!(told(&[9]), "a history of format version 9, where this build reads version 1");
    assert_eq!(told(&[1, 16]), "a history with unknown flags 0b00010000");
    assert_eq!(told(&[1, 0, 0, 0, 0, 7]), "a history with 1 bytes too many at its end");
    assert_eq!(told(&[1, 0, 0x81, 4]), "a history with 513 recommendations, where at most 512 are kept");
    assert_eq!(told(&[1, 0, 0, 0x81, 2]), "a history with 257 scale events, where at most 256 are kept");
    // A change of 2³¹ pods, and a number of more than 128 bits.
    assert_eq!(told(&[1, 0, 0, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x10]), "a history with a change out of range");
    assert_eq!(told(&[&[1, 0][..], &[0xff; 19]].concat()), "a history with a number out of range");
    // The first count is 2³¹; and a time after the last one there is.
    assert_eq!(told(&[1, 0, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x10]), "a history with a count out of range");
    let far = [&[1, 0, 1][..], &[0xff; 17], &[0x7f, 0]].concat();
    assert_eq!(told(&far), "a history with a time out of range");
    // A scale event that is not known to be later than long before the first time there is.
    for most in [0x7f, 3] {
        let before = vec![0xff; if most == 3 { 18 } else { 17 }];
        let event = [&[1, 0, 0, 1, 0, 1][..], &before, &[most, 0]].concat();
        assert_eq!(told(&event), "a history with a time out of range");
    }
}

/// Syncs 15 s apart, give or take a few milliseconds, of an HPA that moves now and then; with behavior, which keeps the
/// rescales too.
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
fn a_history_takes_about_six_bytes_per_entry() {
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
