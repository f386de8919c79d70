//! Histories that are decoded from bytes or rebuilt from cluster state. They are bounded, and equal after encoding and
//! decoding.

#![no_main]

mod plant;

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use autoscaling::history::{History, ObservedRescale, RECOMMENDATIONS, SCALE_EVENTS};
use autoscaling::status::Status;
use engine::reconcile::KeptHistory;
use jiff::Timestamp;
use journal::history::codec::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(kept) = decode(bytes) {
        let written = check(&kept);
        // The encoder uses the shortest encoding of every number.
        assert!(written.len() <= bytes.len(), "{} bytes became {}", bytes.len(), written.len());
    }
    let _ = rebuilt(&mut Unstructured::new(bytes));
});

fn check(kept: &KeptHistory) -> Vec<u8> {
    let history = &kept.history;
    let mut bounded = history.recommendations.len() <= RECOMMENDATIONS;
    bounded &= history.scale_ups.len() <= SCALE_EVENTS && history.scale_downs.len() <= SCALE_EVENTS;
    assert!(bounded, "{history:?}");
    assert!(history.scale_ups.iter().chain(&history.scale_downs).all(|event| event.change >= 0));
    let mut written = encode(kept);
    if plant::planted("history") && history.scale_ups.len() == 2 && history.unknown_down.is_some() {
        written.pop();
    }
    assert_eq!(decode(&written).as_ref(), Ok(kept));
    written
}

fn rebuilt(u: &mut Unstructured<'_>) -> Result<()> {
    let now = time(u)?;
    let last = if u.arbitrary()? { Some(time(u)?) } else { None };
    let status =
        Status { last_scale_time: last, desired_replicas: u.arbitrary::<u8>()?.into(), ..Status::default() };
    let apart = Duration::from_secs(u.arbitrary::<u8>()?.into());
    let rescales = (0..u.int_in_range(0..=20_u8)?)
        .map(|_| Ok(ObservedRescale { at: time(u)?, to: u.arbitrary::<u8>()?.into() }))
        .collect::<Result<Vec<_>>>()?;
    let history = History::rebuilt(&status, &rescales, apart, now);
    check(&history.clone().into());
    assert!(history.inherited.is_some() && history.recommendations.is_empty());
    for direction in [&history.scale_ups, &history.scale_downs] {
        for event in direction {
            assert!(event.at <= now && event.earliest() <= event.at, "{event:?} at {now}");
        }
    }
    assert!(history.unknown_up.is_none_or(|at| at <= now) && history.unknown_up == history.unknown_down);
    // A rebuilt history has a rescale or an unknown change only if the status has a last scale time.
    let has_rescale =
        history.unknown_up.is_some() || !history.scale_ups.is_empty() || !history.scale_downs.is_empty();
    assert!(!has_rescale || status.last_scale_time.is_some());
    let mut backwards = rescales;
    backwards.reverse();
    assert_eq!(History::rebuilt(&status, &backwards, apart, now), history);
    Ok(())
}

/// Generates a time, usually within 70 minutes after a fixed time.
fn time(u: &mut Unstructured<'_>) -> Result<Timestamp> {
    let second = match u.arbitrary::<u8>()? {
        0 => u.arbitrary::<i64>()?,
        _ => 1_795_262_400 + i64::from(u.arbitrary::<u16>()?) / 16,
    };
    Ok(Timestamp::from_second(second).unwrap_or(Timestamp::MAX))
}
