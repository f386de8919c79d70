use proptest::collection;
use proptest::prelude::*;

use super::*;

fn times() -> impl Strategy<Value = Timestamp> {
    let any = Timestamp::MIN.as_nanosecond()..=Timestamp::MAX.as_nanosecond();
    let usual = 1_700_000_000_000_000_000_i128..1_700_010_000_000_000_000;
    prop_oneof![1 => any, 9 => usual].prop_map(|nanos| Timestamp::from_nanosecond(nanos).unwrap())
}

fn events() -> impl Strategy<Value = Vec<ScaleEvent>> {
    let event = (times(), 0..=i32::MAX, any::<bool>(), times()).prop_map(|(at, change, exact, other)| {
        ScaleEvent { at: at.max(other), change, earliest: (!exact).then(|| at.min(other)) }
    });
    collection::vec(event, 0..=20)
}

fn metrics() -> impl Strategy<Value = Option<PolicyHistory>> {
    let cause = prop_oneof![Just(Cause::Error), Just(Cause::Empty)];
    let metric = ("[a-z]{1,9}", proptest::option::of((times(), cause)), any::<Option<i32>>());
    let metric =
        (metric, proptest::option::of(times())).prop_map(|((name, failing, last_proposal), last_nonzero)| {
            MetricHistory { name: name.into(), failing, last_proposal, last_nonzero }
        });
    let metrics = collection::btree_map("[A-Z]{1,9}".prop_map(Arc::from), metric, 0..5);
    let policy = (metrics, proptest::option::of(times()));
    proptest::option::of(policy.prop_map(|(metrics, zero_since)| PolicyHistory { metrics, zero_since }))
}

fn kept_histories() -> impl Strategy<Value = KeptHistory> {
    (histories(), metrics())
        .prop_map(|(history, policy)| KeptHistory { policy: policy.map(Arc::new), ..history.into() })
}

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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_survives_a_round_trip(history in kept_histories()) {
        prop_assert_eq!(decode(&encode(&history)), Ok(history));
    }

    #[test]
    fn any_bytes_decode_to_a_bounded_history_or_an_error(
        mut bytes in collection::vec(any::<u8>(), 1..200), version in proptest::option::of(VERSION..=VERSION_WITH_POLICY),
    ) {
        if let Some(version) = version {
            bytes[0] = version;
        }
        if let Ok(kept) = decode(&bytes) {
            let history = &kept.history;
            prop_assert!(history.recommendations.len() <= RECOMMENDATIONS);
            prop_assert!(history.scale_ups.len().max(history.scale_downs.len()) <= SCALE_EVENTS);
            prop_assert!(history.scale_ups.iter().chain(&history.scale_downs).all(|event| event.change >= 0));
            prop_assert_eq!(decode(&encode(&kept)), Ok(kept));
        }
    }

    #[test]
    fn truncated_history_is_an_error(history in kept_histories(), cut: prop::sample::Index) {
        let bytes = encode(&history);
        let kept = &bytes[..cut.index(bytes.len())];
        prop_assert_eq!(decode(kept), Err(HistoryError::Invalid(postcard::Error::DeserializeUnexpectedEnd)));
    }
}

/// The bytes come from a release without scaling policies.
#[test]
fn history_of_an_earlier_release_is_read() {
    let at = Timestamp::from_second(1_700_000_000).unwrap();
    let recommendations = vec![Recommendation { at, replicas: 4 }];
    let history = History { recommendations, inherited: Some(at), ..History::default() };
    let bytes = [
        2, 1, 128, 128, 208, 226, 198, 191, 206, 151, 47, 8, 0, 0, 0, 0, 0, 1, 255, 255, 207, 226, 198, 191,
        206, 151, 47,
    ];
    assert_eq!(encode(&history.clone().into()), bytes);
    assert_eq!(decode(&bytes), Ok(history.into()));
}

#[test]
fn decode_errors_name_the_cause() {
    let error = |stored: &StoredHistory| decode(&append(stored, vec![VERSION])).unwrap_err();
    let none = || StoredHistory {
        recommendations: Vec::new(),
        scale_ups: Vec::new(),
        scale_downs: Vec::new(),
        unknown_up: None,
        unknown_down: None,
        unsettled: None,
        inherited: None,
    };
    let event = |at, change, uncertain| StoredEvent { at, change, uncertain };
    let events = |count| (0..count).map(|_| event(0, 1, None)).collect();

    assert_eq!(
        decode(&[1]).unwrap_err().to_string(),
        "history has format version 1, but this build reads versions 2 and 3"
    );
    assert_eq!(decode(&vec![0; MAX_BYTES + 1]), Err(HistoryError::TooLarge(MAX_BYTES + 1)));
    assert_eq!(
        decode(&[&encode(&KeptHistory::default())[..], &[7]].concat()),
        Err(HistoryError::Trailing(1))
    );
    assert_eq!(
        error(&StoredHistory { recommendations: vec![(0, 1); 513], ..none() }).to_string(),
        "history has 513 recommendations, but at most 512 are allowed"
    );
    assert_eq!(
        error(&StoredHistory { scale_downs: events(257), ..none() }).to_string(),
        "history has 257 scale events, but at most 256 are allowed"
    );
    let negative = StoredHistory { scale_ups: vec![event(0, -1, None)], ..none() };
    assert_eq!(error(&negative).to_string(), "history has a change out of range");
    for far in [i128::MAX, i128::MIN, Timestamp::MAX.as_nanosecond() + 1] {
        assert_eq!(error(&StoredHistory { inherited: Some(far), ..none() }), HistoryError::Range("time"));
    }
    for before in [u128::MAX, 1 << 100] {
        let early = StoredHistory { scale_ups: vec![event(0, 1, Some(before))], ..none() };
        assert_eq!(error(&early), HistoryError::Range("time"));
    }
}

#[test]
fn state_of_a_forecast_is_not_a_history() {
    let encoded = encode_forecast(&[7; 9]);
    assert_eq!(forecast(&encoded), Some(&[7; 9][..]));
    assert_eq!(decode(&encoded), Err(HistoryError::Version(FORECAST)));
    assert_eq!(forecast(&encode(&KeptHistory::default())), None);
    assert_eq!(forecast(&encode_forecast(&[7; LONGEST + 1])), None);
}

#[test]
fn announced_length_beyond_the_end_is_an_error() {
    let endless = [&[VERSION][..], &[0xff; 4], &[0x0f, 0, 0]].concat();
    assert_eq!(decode(&endless), Err(HistoryError::Invalid(postcard::Error::DeserializeUnexpectedEnd)));
}

/// Syncs are 15 s apart, with a few milliseconds of jitter. Every fourth sync is a rescale.
#[test]
fn history_takes_about_six_bytes_per_entry() {
    for (entries, most) in [(20_i64, 160), (240, 1700)] {
        let mut history = History::default();
        for sync in 0..entries {
            let nanos = 1_700_000_000_123_456_789 + sync * 15_000_000_000 + sync * 7_919_773 % 6_000_011;
            let at = Timestamp::from_nanosecond(nanos.into()).unwrap();
            let replicas = 20 + i32::try_from(sync * 37 % 11).unwrap() / 4;
            history.recommendations.push(Recommendation { at, replicas });
            if sync % 4 == 0 {
                history.scale_ups.push(ScaleEvent::new(at, 1));
            }
        }
        let bytes = encode(&history.into()).len();
        assert!(bytes <= most, "{bytes}");
    }
}
