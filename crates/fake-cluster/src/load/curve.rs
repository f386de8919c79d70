//! Curves of load over time, as data.

use std::f64::consts::TAU;
use std::time::Duration;

use super::points::Points;
use crate::workload::model::Seed;

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
    /// A working day that repeats and starts at midnight of a Monday: a quiet night, a rise in the morning, a dip at
    /// noon, a second peak in the afternoon, a slow evening.
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
/// within the period. The result is a Poisson process that can be computed for any time without the earlier times.
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

/// Maps a uniform `share` to a number of events with the inverse distribution function of the Poisson distribution with
/// mean 1.
fn poisson(share: f64) -> u64 {
    let (mut count, mut probability, mut rest) = (0_u64, (-1.0_f64).exp(), share);
    while rest >= probability && count < 20 {
        rest -= probability;
        count += 1;
        probability /= count as f64;
    }
    count
}

/// Returns the noise between −1 and 1 at a time.
fn noise(seed: u64, time: Duration) -> f64 {
    let (this, next) = (level(seed, time.as_secs()), level(seed, time.as_secs().saturating_add(1)));
    this + (next - this) * smooth(f64::from(time.subsec_nanos()) / 1e9)
}

/// Interpolates from 0 to 1 with zero slope at both ends.
fn smooth(share: f64) -> f64 {
    share * share * (3.0 - 2.0 * share)
}

fn level(seed: u64, second: u64) -> f64 {
    Seed::new(seed).nth(second).share() * 2.0 - 1.0
}

#[cfg(test)]
mod tests;
