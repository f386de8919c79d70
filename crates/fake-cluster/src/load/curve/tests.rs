use std::time::Duration;

use super::{Curve, Shape};
use crate::load::{Interpolation, Points};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn values(curve: &Curve, times: impl IntoIterator<Item = u64>) -> Vec<f64> {
    times.into_iter().map(|time| (curve.at(secs(time)) * 1_000.0).round() / 1_000.0).collect()
}

#[test]
fn constant_curve_keeps_its_value() {
    assert_eq!(values(&Curve::constant(7.5), [0, 1, 1_000_000]), [7.5, 7.5, 7.5]);
}

#[test]
fn delayed_curve_has_the_given_value_before_its_start() {
    let curve = Curve::from(Shape::Step { before: 1.0, after: 9.0, at: secs(60) }).after(secs(100), 4.0);
    assert_eq!(values(&curve, [0, 99, 100, 159, 160]), [4.0, 4.0, 1.0, 1.0, 9.0]);
}

#[test]
fn step_changes_at_its_instant() {
    let curve = Curve::from(Shape::Step { before: 1.0, after: 9.0, at: secs(60) });
    assert_eq!(values(&curve, [0, 59, 60, 61]), [1.0, 1.0, 9.0, 9.0]);
}

#[test]
fn sine_oscillates_around_its_mean() {
    let curve = Curve::from(Shape::Sine { mean: 100.0, amplitude: 40.0, period: secs(60) });
    assert_eq!(values(&curve, [0, 15, 30, 45, 60]), [100.0, 140.0, 100.0, 60.0, 100.0]);
}

#[test]
fn curve_is_never_negative() {
    let curve = Curve::from(Shape::Sine { mean: 10.0, amplitude: 40.0, period: secs(60) });
    assert_eq!(values(&curve, [45]), [0.0]);
    assert_eq!(values(&Curve::constant(f64::NAN), [0]), [0.0]);
}

#[test]
fn business_day_is_quiet_at_night_and_peaks_around_noon() {
    let hour = |hour: u64| secs(hour * 3_600);
    let curve = Curve::from(Shape::BusinessDay { night: 100.0, peak: 1_100.0, day: hour(24), weekend: 1.0 });
    let at = |time: u64| curve.at(hour(time));
    assert_eq!((at(0), at(3), at(6)), (100.0, 100.0, 100.0));
    assert_eq!((at(11), at(15)), (1_100.0, 1_100.0));
    assert!(at(8) > 300.0 && at(8) < at(9));
    assert_eq!(at(13), 850.0);
    assert!(at(22) < 250.0);
    assert_eq!(at(11), at(24 + 11), "all days are equal");
}

#[test]
fn business_day_can_be_compressed_and_start_in_the_morning() {
    let curve = Curve::from(Shape::BusinessDay { night: 0.0, peak: 10.0, day: secs(24), weekend: 1.0 });
    assert_eq!(values(&curve.starting_at(secs(11)), [0, 4, 24]), [10.0, 10.0, 10.0]);
}

#[test]
fn spikes_occur_at_the_start_of_each_period() {
    let curve = Curve::from(Shape::Spikes { base: 1.0, peak: 50.0, every: secs(30), width: secs(5) });
    assert_eq!(values(&curve, [0, 4, 5, 29, 30, 34, 35]), [50.0, 50.0, 1.0, 1.0, 50.0, 50.0, 1.0]);
}

#[test]
fn noise_stays_within_its_fraction_and_repeats_for_a_seed() {
    let noisy = |seed| values(&Curve::constant(100.0).with_noise(0.1, seed), 0..500);
    assert_eq!(noisy(1), noisy(1));
    assert_ne!(noisy(1), noisy(2));
    assert!(noisy(1).iter().all(|value| (90.0..=110.0).contains(value)));
    let mean = noisy(1).iter().sum::<f64>() / 500.0;
    assert!((98.0..=102.0).contains(&mean), "{mean}");
}

#[test]
fn noise_changes_smoothly() {
    let curve = Curve::constant(100.0).with_noise(0.1, 1);
    let steps = (0..10_000).map(|step| Duration::from_millis(step * 10));
    let values: Vec<_> = steps.map(|time| curve.at(time)).collect();
    assert!(values.windows(2).all(|pair| (pair[1] - pair[0]).abs() < 0.5));
}

#[test]
fn curve_accepts_a_period_of_zero() {
    let day = Curve::from(Shape::BusinessDay { night: 5.0, peak: 10.0, day: Duration::ZERO, weekend: 0.0 });
    assert_eq!(day.at(secs(3)), 5.0);
}

#[test]
fn business_day_is_lower_on_weekends() {
    let day = Shape::BusinessDay { night: 100.0, peak: 1_100.0, day: secs(24), weekend: 0.2 };
    let peaks = values(&day.into(), (0..8).map(|day| day * 24 + 11));
    assert_eq!(peaks, [1_100.0, 1_100.0, 1_100.0, 1_100.0, 1_100.0, 300.0, 300.0, 1_100.0]);
}

#[test]
fn curves_can_be_added_scaled_and_repeated() {
    let ramp = Points::new([(secs(0), 0.0), (secs(10), 10.0)], Interpolation::Linear).expect("points");
    let ramp = Curve::from(ramp);
    let sum = Curve::sum([Curve::constant(100.0), ramp.clone().scaled_by(2.0).repeating(secs(10))]);
    assert_eq!(values(&sum, [0, 5, 9, 10, 25]), [100.0, 110.0, 118.0, 100.0, 110.0]);
    assert_eq!(values(&ramp.repeating(Duration::ZERO), [5, 50]), [5.0, 10.0]);
}

#[test]
fn measured_points_can_be_repeated_and_offset() {
    let points = Points::new([(secs(0), 10.0), (secs(10), 20.0)], Interpolation::Linear).expect("points");
    let period = points.length();
    let curve = Curve::from(points).repeating(period).starting_at(secs(5));
    assert_eq!(values(&curve, [0, 4, 5, 10]), [15.0, 19.0, 10.0, 15.0]);
}

#[test]
fn random_spikes_have_the_mean_rate_and_repeat_for_a_seed() {
    let spikes = |seed| {
        Curve::from(Shape::RandomSpikes { base: 0.0, peak: 1.0, every: secs(100), width: secs(10), seed })
    };
    let curve = spikes(1);
    let values = values(&curve, 0..40_000);
    // A time is outside of all spikes if none started in the 10 s before it. The probability is exp(-0.1).
    let covered = values.iter().sum::<f64>() / 40_000.0;
    assert!((0.08..0.11).contains(&covered), "{covered}");
    assert_eq!(values[..5_000], self::values(&spikes(1), 0..5_000));
    assert_ne!(values[..5_000], self::values(&spikes(2), 0..5_000));
}

#[test]
fn random_spikes_longer_than_their_mean_distance_overlap() {
    let shape = Shape::RandomSpikes { base: 0.0, peak: 1.0, every: secs(10), width: secs(50), seed: 1 };
    let values = values(&shape.into(), 50..20_050);
    let covered = values.iter().sum::<f64>() / 20_000.0;
    assert!((0.98..1.0).contains(&covered), "{covered}");
}
