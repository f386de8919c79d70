//! Curves of load over time, as data.

use std::f64::consts::TAU;
use std::time::Duration;

use super::points::{Points, smooth};
use crate::workload::model::{Seed, poisson};

/// A non-negative amount that changes with time.
///
/// A curve has the same values in every run: randomness depends only on seeds and on the time.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    shape: Shape,
    /// The maximum deviation by noise, as a fraction of the value.
    noise: f64,
    seed: u64,
    /// The offset into the shape at the start of the curve.
    offset: Duration,
    /// The factor of the values of the shape.
    scale: f64,
    /// The period after which the shape repeats.
    period: Option<Duration>,
    /// The start time, and the value before the start.
    start: (Duration, f64),
}

/// The shape of a curve.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A constant value.
    Constant(f64),
    /// A value that changes once.
    Step {
        /// The value before the instant.
        before: f64,
        /// The value at and after the instant.
        after: f64,
        /// The instant of the change.
        at: Duration,
    },
    /// A sine wave that starts at its mean and rises.
    Sine {
        /// The mean value.
        mean: f64,
        /// The maximum deviation from the mean.
        amplitude: f64,
        /// The time between two peaks.
        period: Duration,
    },
    /// A week of days that starts at midnight on Monday and repeats. After a quiet night, the value rises to a peak in
    /// the morning. It dips at noon, reaches a second peak in the afternoon, and falls slowly in the evening.
    BusinessDay {
        /// The value at night.
        night: f64,
        /// The value at the two peaks.
        peak: f64,
        /// The length of a day: 24 hours unless time is compressed.
        day: Duration,
        /// The fraction of the daily rise on days six and seven. 1 makes them working days.
        weekend: f64,
    },
    /// A low base, with a high plateau at the start of each period.
    Spikes {
        /// The value between the spikes.
        base: f64,
        /// The value during a spike.
        peak: f64,
        /// The time between the starts of two spikes.
        every: Duration,
        /// The length of a spike.
        width: Duration,
    },
    /// A low base, with high plateaus that start independently at random (a Poisson process).
    RandomSpikes {
        /// The value between the spikes.
        base: f64,
        /// The value during one or several spikes.
        peak: f64,
        /// The mean time between the starts of two spikes.
        every: Duration,
        /// The length of a spike.
        width: Duration,
        /// Random seed of the start times.
        seed: u64,
    },
    /// Measured values.
    Points(Points),
    /// The sum of several curves.
    Sum(Vec<Curve>),
}

/// The share of the rise from night to peak, by hour of the day. Values between these hours are interpolated smoothly.
const BUSINESS_DAY: [(f64, f64); 9] = [
    (0.0, 0.0),
    (6.0, 0.0),
    (9.0, 0.8),
    (11.0, 1.0),
    (13.0, 0.75),
    (15.0, 1.0),
    (18.0, 0.6),
    (21.0, 0.15),
    (24.0, 0.0),
];

/// Maximum length of a spike in periods. Longer spikes are truncated.
const PERIODS_PER_SPIKE: u32 = 100;

impl From<Shape> for Curve {
    fn from(shape: Shape) -> Self {
        Self {
            shape,
            noise: 0.0,
            seed: 0,
            offset: Duration::ZERO,
            scale: 1.0,
            period: None,
            start: (Duration::ZERO, 0.0),
        }
    }
}

impl From<Points> for Curve {
    fn from(points: Points) -> Self {
        Shape::Points(points).into()
    }
}

impl Curve {
    /// Creates a constant curve.
    pub fn constant(value: f64) -> Self {
        Shape::Constant(value).into()
    }

    /// Creates the sum of several curves, such as a base load and spikes.
    pub fn sum(curves: impl IntoIterator<Item = Self>) -> Self {
        Shape::Sum(curves.into_iter().collect()).into()
    }

    /// Adds noise, which changes each value by up to `fraction` of itself, up or down. The noise varies smoothly from
    /// second to second.
    #[must_use]
    pub fn with_noise(self, fraction: f64, seed: u64) -> Self {
        Self { noise: fraction, seed, ..self }
    }

    /// Drops the first `offset` of the curve.
    #[must_use]
    pub fn starting_at(self, offset: Duration) -> Self {
        Self { offset, ..self }
    }

    /// Multiplies all values by `factor`.
    #[must_use]
    pub fn scaled_by(self, factor: f64) -> Self {
        Self { scale: self.scale * factor, ..self }
    }

    /// Repeats the first `period` of the curve. Noise does not repeat. A period of zero has no effect.
    #[must_use]
    pub fn repeating(self, period: Duration) -> Self {
        Self { period: Some(period).filter(|period| !period.is_zero()), ..self }
    }

    /// Delays the curve by `delay`. The value is `before` during the delay.
    #[must_use]
    pub fn after(self, delay: Duration, before: f64) -> Self {
        Self { start: (delay, before), ..self }
    }

    /// Returns the value at `time` since the curve's start. The value is finite and not negative.
    pub fn at(&self, time: Duration) -> f64 {
        let (start, before) = self.start;
        let Some(time) = time.checked_sub(start) else { return before.max(0.0) };
        let time = time.saturating_add(self.offset);
        let within = self.period.map_or(time, |period| remainder(time, period));
        let noise = if self.noise == 0.0 { 0.0 } else { self.noise * noise(self.seed, time) };
        let value = self.shape.at(within) * self.scale * (1.0 + noise);
        if value.is_finite() { value.max(0.0) } else { 0.0 }
    }
}

impl Shape {
    fn at(&self, time: Duration) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Step { before, after, at } => *if time < *at { before } else { after },
            Self::Sine { mean, amplitude, period } => mean + amplitude * (TAU * ratio(time, *period)).sin(),
            Self::BusinessDay { night, peak, day, weekend } => {
                let days = ratio(time, *day);
                let rise = if days % 7.0 < 5.0 { 1.0 } else { *weekend };
                night + (peak - night) * rise * share_of_peak(days.fract() * 24.0)
            }
            Self::Spikes { base, peak, every, width } => {
                let within = ratio(time, *every).fract() * every.as_secs_f64();
                *if within < width.as_secs_f64() { peak } else { base }
            }
            Self::RandomSpikes { base, peak, every, width, seed } => {
                *if is_in_spike(time, *every, *width, *seed) { peak } else { base }
            }
            Self::Points(points) => points.at(time),
            Self::Sum(curves) => curves.iter().map(|curve| curve.at(time)).sum(),
        }
    }
}

/// Returns `time / whole`. A `whole` of zero yields 1, so that a period of zero gives a constant value.
fn ratio(time: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 1.0 } else { time.as_secs_f64() / whole.as_secs_f64() }
}

/// Returns the remainder of `time` after whole periods.
fn remainder(time: Duration, period: Duration) -> Duration {
    let nanos = time.as_nanos().checked_rem(period.as_nanos()).unwrap_or(0);
    Duration::from_nanos_u128(nanos)
}

fn share_of_peak(hour: f64) -> f64 {
    let next = BUSINESS_DAY.iter().position(|(at, _)| *at > hour).unwrap_or(BUSINESS_DAY.len() - 1);
    let (Some((from, low)), Some((to, high))) =
        (BUSINESS_DAY.get(next.saturating_sub(1)), BUSINESS_DAY.get(next))
    else {
        return 0.0;
    };
    low + (high - low) * smooth((hour - from) / (to - from))
}

/// Returns whether `time` is within a random spike.
///
/// The number of starts in each period is Poisson-distributed with mean 1, and their times are uniformly distributed
/// within the period. The result is a Poisson process. Its value at any time can be computed without its values at
/// earlier times.
fn is_in_spike(time: Duration, every: Duration, width: Duration, seed: u64) -> bool {
    let (now, width) = (ratio(time, every), ratio(width, every).min(f64::from(PERIODS_PER_SPIKE)));
    let this = now.floor();
    (0..=PERIODS_PER_SPIKE + 1)
        .map(|back| this - f64::from(back))
        .take_while(|from| now - from < width + 1.0)
        .any(|from| {
            let seed = Seed::new(seed).nth(from.to_bits());
            let start_of = |number: u64| from + seed.nth(number).share();
            from >= 0.0
                && (0..poisson(seed.for_name("count").share()))
                    .map(start_of)
                    .any(|start| start <= now && now < start + width)
        })
}

/// Returns the noise between −1 and 1 at a time.
fn noise(seed: u64, time: Duration) -> f64 {
    let (this, next) = (level(seed, time.as_secs()), level(seed, time.as_secs().saturating_add(1)));
    this + (next - this) * smooth(f64::from(time.subsec_nanos()) / 1e9)
}

fn level(seed: u64, second: u64) -> f64 {
    Seed::new(seed).nth(second).share() * 2.0 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Interpolation;

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
        let curve =
            Curve::from(Shape::BusinessDay { night: 100.0, peak: 1_100.0, day: hour(24), weekend: 1.0 });
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
        let day =
            Curve::from(Shape::BusinessDay { night: 5.0, peak: 10.0, day: Duration::ZERO, weekend: 0.0 });
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
}
