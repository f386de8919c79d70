//! Curves of load over time, as data.

use std::f64::consts::TAU;
use std::time::Duration;

/// An amount that changes with time, never below zero.
///
/// The same curve gives the same values in every run: its noise comes from a seed and from the time alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    shape: Shape,
    /// How far noise may move a value, as a fraction of it.
    noise: f64,
    seed: u64,
    /// How far into the shape the curve begins.
    offset: Duration,
}

/// The shape of a curve.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Always the same.
    Constant(f64),
    /// From one value to another in a straight line, then staying.
    Ramp {
        /// The value at the start.
        from: f64,
        /// The value from the end of the ramp on.
        to: f64,
        /// How long it takes.
        over: Duration,
    },
    /// One value until an instant, another from then on.
    Step {
        /// The value until then.
        before: f64,
        /// The value from then on.
        after: f64,
        /// The instant.
        at: Duration,
    },
    /// Up and down around a mean, beginning at the mean and going up.
    Sine {
        /// The value in the middle.
        mean: f64,
        /// How far up and down.
        amplitude: f64,
        /// From one peak to the next.
        period: Duration,
    },
    /// A working day, again and again, beginning at midnight: quiet at night, a rise in the morning, a dip at noon, a second
    /// peak in the afternoon, a slow evening.
    BusinessDay {
        /// The value at night.
        night: f64,
        /// The value at the two peaks.
        peak: f64,
        /// How long a day takes; 24 hours unless time is compressed.
        day: Duration,
    },
    /// Low, with a high plateau at the beginning of each period.
    Spikes {
        /// The value between the spikes.
        base: f64,
        /// The value during a spike.
        peak: f64,
        /// From the start of one spike to the start of the next.
        every: Duration,
        /// How long a spike lasts.
        width: Duration,
    },
}

/// Share of the peak by hour of the day; straight lines in between are smoothed.
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

impl From<Shape> for Curve {
    fn from(shape: Shape) -> Self {
        Self { shape, noise: 0.0, seed: 0, offset: Duration::ZERO }
    }
}

impl Curve {
    /// A curve that is always the same.
    pub fn constant(value: f64) -> Self {
        Shape::Constant(value).into()
    }

    /// The curve with noise: each value is moved by up to `fraction` of itself, up or down, smoothly from second to second.
    #[must_use]
    pub fn with_noise(self, fraction: f64, seed: u64) -> Self {
        Self { noise: fraction, seed, ..self }
    }

    /// The curve without its first `offset`.
    #[must_use]
    pub fn starting_at(self, offset: Duration) -> Self {
        Self { offset, ..self }
    }

    /// The value at a time since the curve's beginning: finite and not negative.
    pub fn at(&self, time: Duration) -> f64 {
        let time = time.saturating_add(self.offset);
        let value = self.shape.at(time) * (1.0 + self.noise * noise(self.seed, time));
        if value.is_finite() { value.max(0.0) } else { 0.0 }
    }
}

impl Shape {
    fn at(&self, time: Duration) -> f64 {
        match *self {
            Self::Constant(value) => value,
            Self::Ramp { from, to, over } => from + (to - from) * ratio(time, over).min(1.0),
            Self::Step { before, after, at } => {
                if time < at {
                    before
                } else {
                    after
                }
            }
            Self::Sine { mean, amplitude, period } => mean + amplitude * (TAU * ratio(time, period)).sin(),
            Self::BusinessDay { night, peak, day } => {
                night + (peak - night) * share_of_peak(ratio(time, day).fract() * 24.0)
            }
            Self::Spikes { base, peak, every, width } => {
                let within = ratio(time, every).fract() * every.as_secs_f64();
                if within < width.as_secs_f64() { peak } else { base }
            }
        }
    }
}

/// How often `whole` fits into `time`; a period of zero never comes round.
fn ratio(time: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 1.0 } else { time.as_secs_f64() / whole.as_secs_f64() }
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

/// Between −1 and 1, by seed and time.
fn noise(seed: u64, time: Duration) -> f64 {
    let (this, next) = (level(seed, time.as_secs()), level(seed, time.as_secs().saturating_add(1)));
    this + (next - this) * smooth(f64::from(time.subsec_nanos()) / 1e9)
}

/// From 0 to 1 without a kink at either end.
fn smooth(share: f64) -> f64 {
    share * share * (3.0 - 2.0 * share)
}

fn level(seed: u64, second: u64) -> f64 {
    share(mix(seed ^ mix(second))) * 2.0 - 1.0
}

/// A number between 0 and 1 out of a hash.
pub(super) fn share(hash: u64) -> f64 {
    // 53 bits are what a float64 holds exactly.
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// The last step of splitmix64: every bit of the input changes half of the output.
pub(super) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Curve, Shape};

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn values(curve: &Curve, times: impl IntoIterator<Item = u64>) -> Vec<f64> {
        times.into_iter().map(|time| (curve.at(secs(time)) * 1_000.0).round() / 1_000.0).collect()
    }

    #[test]
    fn a_constant_stays() {
        assert_eq!(values(&Curve::constant(7.5), [0, 1, 1_000_000]), [7.5, 7.5, 7.5]);
    }

    #[test]
    fn a_ramp_goes_straight_and_then_stays() {
        let curve = Curve::from(Shape::Ramp { from: 10.0, to: 30.0, over: secs(20) });
        assert_eq!(values(&curve, [0, 5, 10, 20, 500]), [10.0, 15.0, 20.0, 30.0, 30.0]);
    }

    #[test]
    fn a_step_changes_at_its_instant() {
        let curve = Curve::from(Shape::Step { before: 1.0, after: 9.0, at: secs(60) });
        assert_eq!(values(&curve, [0, 59, 60, 61]), [1.0, 1.0, 9.0, 9.0]);
    }

    #[test]
    fn a_sine_swings_around_its_mean() {
        let curve = Curve::from(Shape::Sine { mean: 100.0, amplitude: 40.0, period: secs(60) });
        assert_eq!(values(&curve, [0, 15, 30, 45, 60]), [100.0, 140.0, 100.0, 60.0, 100.0]);
    }

    #[test]
    fn a_curve_never_goes_below_zero() {
        let curve = Curve::from(Shape::Sine { mean: 10.0, amplitude: 40.0, period: secs(60) });
        assert_eq!(values(&curve, [45]), [0.0]);
        assert_eq!(values(&Curve::constant(f64::NAN), [0]), [0.0]);
    }

    #[test]
    fn a_business_day_is_quiet_at_night_and_peaks_before_and_after_noon() {
        let hour = |hour: u64| secs(hour * 3_600);
        let curve = Curve::from(Shape::BusinessDay { night: 100.0, peak: 1_100.0, day: hour(24) });
        let at = |time: u64| curve.at(hour(time));
        assert_eq!((at(0), at(3), at(6)), (100.0, 100.0, 100.0));
        assert_eq!((at(11), at(15)), (1_100.0, 1_100.0));
        assert!(at(8) > 300.0 && at(8) < at(9));
        assert_eq!(at(13), 850.0);
        assert!(at(22) < 250.0);
        assert_eq!(at(11), at(24 + 11), "one day is like the other");
    }

    #[test]
    fn a_day_can_be_compressed_and_begin_in_the_morning() {
        let curve = Curve::from(Shape::BusinessDay { night: 0.0, peak: 10.0, day: secs(24) });
        assert_eq!(values(&curve.starting_at(secs(11)), [0, 4, 24]), [10.0, 10.0, 10.0]);
    }

    #[test]
    fn spikes_come_at_the_beginning_of_each_period() {
        let curve = Curve::from(Shape::Spikes { base: 1.0, peak: 50.0, every: secs(30), width: secs(5) });
        assert_eq!(values(&curve, [0, 4, 5, 29, 30, 34, 35]), [50.0, 50.0, 1.0, 1.0, 50.0, 50.0, 1.0]);
    }

    #[test]
    fn noise_stays_within_its_fraction_and_is_the_same_for_the_same_seed() {
        let noisy = |seed| values(&Curve::constant(100.0).with_noise(0.1, seed), 0..500);
        assert_eq!(noisy(1), noisy(1));
        assert_ne!(noisy(1), noisy(2));
        assert!(noisy(1).iter().all(|value| (90.0..=110.0).contains(value)));
        let mean = noisy(1).iter().sum::<f64>() / 500.0;
        assert!((98.0..=102.0).contains(&mean), "{mean}");
    }

    #[test]
    fn noise_moves_smoothly() {
        let curve = Curve::constant(100.0).with_noise(0.1, 1);
        let steps = (0..10_000).map(|step| Duration::from_millis(step * 10));
        let values: Vec<_> = steps.map(|time| curve.at(time)).collect();
        assert!(values.windows(2).all(|pair| (pair[1] - pair[0]).abs() < 0.5));
    }

    #[test]
    fn a_period_of_zero_is_no_reason_to_fail() {
        let day = Curve::from(Shape::BusinessDay { night: 5.0, peak: 10.0, day: Duration::ZERO });
        let ramp = Curve::from(Shape::Ramp { from: 1.0, to: 2.0, over: Duration::ZERO });
        assert_eq!((day.at(secs(3)), ramp.at(secs(3))), (5.0, 2.0));
    }
}
