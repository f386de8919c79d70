//! Properties of decisions for any load and any settings.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use burst::{Autoscaler, Explanation, Limit, Mode, Settings};
use proptest::prelude::*;

/// One decision: the seconds since the previous decision, their loads, and the ready pods.
type Step = (i64, Vec<f64>, i32);

fn settings() -> impl Strategy<Value = Settings> {
    (
        0.01..200.0_f64,
        1..=120_u32,
        0.01..=1.0_f64,
        1.0..10.0_f64,
        1.01..50.0_f64,
        1.01..10.0_f64,
        0..=60_u32,
        0..=10_i32,
    )
        .prop_map(
            |(target, stable_window, share, panic_threshold, up, down, scale_down_delay, activation)| {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 1 and 120"
                )]
                let panic_window = (f64::from(stable_window) * share).ceil() as u32;
                Settings {
                    target,
                    stable_window,
                    panic_window,
                    panic_threshold,
                    max_scale_up_rate: up,
                    max_scale_down_rate: down,
                    scale_down_delay,
                    activation_scale: activation,
                }
            },
        )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let load = prop_oneof![3 => 0.0..500.0_f64, 1 => Just(0.0), 1 => 0.0..1e6_f64];
    let step = (1..=5_i64, prop::collection::vec(load, 0..=5), 0..=100_i32);
    prop::collection::vec(step, 1..80)
}

fn play(settings: Settings, steps: &[Step], scale: f64) -> Vec<Option<Explanation>> {
    let mut autoscaler = Autoscaler::new(settings, 1, 0).unwrap();
    let mut now = 0;
    let mut decisions = Vec::new();
    for (seconds, loads, ready) in steps {
        for (second, load) in (now + 1..=now + seconds).zip(loads) {
            autoscaler.record(second, load * scale).unwrap();
        }
        now += seconds;
        decisions.push(autoscaler.decide(now, *ready));
    }
    decisions
}

proptest! {
    #[test]
    fn result_follows_from_the_explanation(settings in settings(), steps in steps()) {
        for decision in play(settings, &steps, 1.0).into_iter().flatten() {
            let (lowest, highest) = decision.limits;
            for window in [decision.stable, decision.panic] {
                let bound = highest.max(settings.activation_scale);
                prop_assert!((lowest..=bound).contains(&window.replicas), "{decision:?}");
                prop_assert!(window.average >= 0.0 && window.average <= 5e6, "{decision:?}");
            }
            prop_assert!(decision.stable.seconds <= settings.stable_window);
            prop_assert!(decision.panic.seconds <= settings.panic_window);
            match decision.mode {
                Mode::Stable => prop_assert_eq!(decision.proposed, decision.stable.replicas),
                Mode::Panic { since, last_over, highest } => {
                    prop_assert!(since <= last_over && last_over <= decision.at);
                    prop_assert!(decision.at - last_over <= i64::from(settings.stable_window));
                    prop_assert_eq!(decision.proposed, highest);
                    prop_assert!(highest >= decision.stable.replicas.max(decision.panic.replicas));
                }
            }
            prop_assert!(decision.replicas >= decision.proposed);
            prop_assert_eq!(decision.limit == Limit::ScaleDownDelay, decision.replicas != decision.proposed);
            let json = serde_json::to_string(&decision).unwrap();
            prop_assert!(serde_json::from_str::<Explanation>(&json).is_ok(), "{}", json);
        }
    }

    #[test]
    fn count_does_not_fall_in_panic_mode(settings in settings(), steps in steps()) {
        let settings = Settings { scale_down_delay: 0, ..settings };
        let mut earlier: Option<(i64, i32)> = None;
        for decision in play(settings, &steps, 1.0).into_iter().flatten() {
            let Mode::Panic { since, .. } = decision.mode else { continue };
            if let Some((start, replicas)) = earlier && start == since {
                prop_assert!(decision.replicas >= replicas, "{:?} after {}", decision, replicas);
            }
            earlier = Some((since, decision.replicas));
        }
    }

    #[test]
    fn double_load_gives_no_fewer_replicas(settings in settings(), steps in steps()) {
        // Doubling a float is exact, so no rounding hides a difference.
        let (once, twice) = (play(settings, &steps, 1.0), play(settings, &steps, 2.0));
        for (once, twice) in once.into_iter().zip(twice) {
            prop_assert_eq!(once.is_some(), twice.is_some());
            if let (Some(once), Some(twice)) = (once, twice) {
                prop_assert!(once.stable.replicas <= twice.stable.replicas, "{:?} {:?}", once, twice);
                prop_assert!(once.panic.replicas <= twice.panic.replicas, "{:?} {:?}", once, twice);
            }
        }
    }

    #[test]
    fn scale_down_waits_for_the_delay(settings in settings(), steps in steps(), delay in 1..=60_u32) {
        let settings = Settings { scale_down_delay: delay, ..settings };
        let decisions: Vec<Explanation> = play(settings, &steps, 1.0).into_iter().flatten().collect();
        for (index, decision) in decisions.iter().enumerate() {
            // An interval has two seconds, so a result is kept for at least the delay minus one second.
            let recent = decisions.iter().take(index + 1);
            let recent = recent.filter(|earlier| decision.at - earlier.at < i64::from(delay) - 1);
            prop_assert!(recent.into_iter().all(|earlier| earlier.proposed <= decision.replicas), "{decision:?}");
        }
    }
}

#[test]
fn autoscaler_of_several_pods_starts_in_panic_mode() {
    let settings = Settings { target: 10.0, ..Settings::default() };
    let mut autoscaler = Autoscaler::new(settings, 7, 100).unwrap();
    assert!(autoscaler.decide(100, 7).is_none());
    for now in 101..=160 {
        autoscaler.record(now, 10.0).unwrap();
        let decision = autoscaler.decide(now, 7).unwrap();
        assert_eq!((decision.replicas, decision.limit), (7, Limit::PanicHighest), "at {now}");
    }
    autoscaler.record(161, 10.0).unwrap();
    let decision = autoscaler.decide(161, 7).unwrap();
    assert_eq!((decision.mode, decision.replicas), (Mode::Stable, 3));
}

#[test]
fn settings_out_of_bounds_are_refused_by_name() {
    let with = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        Autoscaler::new(settings, 0, 0).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(with(|_| ()), Ok(()));
    for (result, text) in [
        (with(|s| s.target = 0.0), "invalid target 0: must be a number above 0"),
        (with(|s| s.target = f64::NAN), "invalid target NaN: must be a number above 0"),
        (with(|s| s.stable_window = 0), "invalid stable window of 0 s: must be from 1 to 3600 s"),
        (with(|s| s.stable_window = 3_601), "invalid stable window of 3601 s: must be from 1 to 3600 s"),
        (
            with(|s| s.panic_window = 61),
            "invalid panic window of 61 s: must be from 1 s to the stable window of 60 s",
        ),
        (
            with(|s| s.panic_threshold = 0.9),
            "invalid panic threshold 0.9: must be a factor of at least 1 (100 %)",
        ),
        (with(|s| s.max_scale_up_rate = 1.0), "invalid maxScaleUpRate of 1: must be a factor above 1"),
        (
            with(|s| s.max_scale_down_rate = f64::INFINITY),
            "invalid maxScaleDownRate of inf: must be a factor above 1",
        ),
        (with(|s| s.scale_down_delay = 3_601), "invalid scale-down delay of 3601 s: must be at most 3600 s"),
        (with(|s| s.activation_scale = -1), "invalid activation scale -1: must be at least 0"),
    ] {
        assert_eq!(result, Err(text.to_owned()));
    }
}

#[test]
fn samples_that_are_no_numbers_change_nothing() {
    let mut autoscaler = Autoscaler::new(Settings::default(), 1, 0).unwrap();
    for load in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(autoscaler.record(1, load).is_err());
    }
    assert!(autoscaler.decide(1, 1).is_none());
}
