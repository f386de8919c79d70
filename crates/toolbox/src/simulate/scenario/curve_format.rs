//! The format of curves in a scenario file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::either::either;
use super::format::{DistributionFile, DrawnFile};
use super::values::{Amount, Length, Share};

/// An amount over time: a constant quantity, or a shape.
#[derive(Debug, Clone)]
pub(crate) enum CurveFile {
    Constant(Amount),
    Shaped(Box<ShapedFile>),
}

/// Exactly one shape, and its transformations.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Shape")]
pub(crate) struct ShapedFile {
    /// A constant value.
    pub(crate) constant: Option<Amount>,
    /// A straight line from one value to another, then constant.
    pub(crate) ramp: Option<RampFile>,
    /// One value until an instant, another value from then on.
    pub(crate) step: Option<StepFile>,
    /// A sine wave around a mean, which starts at the mean and rises.
    pub(crate) sine: Option<SineFile>,
    /// A working day by the time of day: quiet at night, two peaks, a dip at noon.
    pub(crate) business_day: Option<BusinessDayFile>,
    /// A low value, with a high plateau at the start of each period.
    pub(crate) spikes: Option<SpikesFile>,
    /// A low value, with high plateaus at random times.
    pub(crate) random_spikes: Option<SpikesFile>,
    /// Straight lines between points of time and value.
    pub(crate) points: Option<Vec<PointFile>>,
    /// A CSV file of time and value: its path, relative to the folder of the scenario. Times are seconds,
    /// durations or dates.
    pub(crate) csv: Option<String>,
    /// The sum of several curves.
    pub(crate) sum: Option<Vec<CurveFile>>,
    /// Whether values of `points` and `csv` hold until the next point, instead of straight lines between
    /// them.
    pub(crate) steps: bool,
    /// The maximum random deviation of a value, as a fraction of it.
    pub(crate) noise: Option<Share>,
    /// The seed of the noise; derived from the scenario's seed by default.
    pub(crate) noise_seed: Option<u64>,
    /// The time within the shape at which the scenario starts.
    pub(crate) offset: Option<Length>,
    /// The factor by which values are multiplied.
    pub(crate) scale: Option<Amount>,
    /// The period after which the shape repeats.
    pub(crate) repeat: Option<Length>,
}

/// A ramp.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Ramp")]
pub(crate) struct RampFile {
    /// The value before the ramp.
    pub(crate) from: Amount,
    /// The value after the ramp.
    pub(crate) to: Amount,
    /// The start of the ramp, since the start of the scenario.
    #[serde(default)]
    pub(crate) at: Length,
    /// The length of the ramp.
    pub(crate) over: Length,
}

/// A step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Step")]
pub(crate) struct StepFile {
    /// The value before the step.
    pub(crate) from: Amount,
    /// The value after the step.
    pub(crate) to: Amount,
    /// The time of the step, since the start of the scenario.
    pub(crate) at: Length,
}

/// A sine.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Sine")]
pub(crate) struct SineFile {
    /// The mean value.
    pub(crate) mean: Amount,
    /// The largest deviation from the mean.
    pub(crate) amplitude: Amount,
    /// The period, from one peak to the next.
    pub(crate) period: Length,
}

/// A working day.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "BusinessDay")]
pub(crate) struct BusinessDayFile {
    /// The value at night.
    pub(crate) night: Amount,
    /// The value at the two peaks.
    pub(crate) peak: Amount,
    /// The part of the rise that remains on Saturday and Sunday; none by default.
    #[serde(default)]
    pub(crate) weekend: Share,
    /// The length of a day; 24h by default. With any other length, the scenario starts at midnight.
    #[serde(default)]
    pub(crate) day: Option<Length>,
}

/// Spikes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Spikes")]
pub(crate) struct SpikesFile {
    /// The value between spikes.
    pub(crate) base: Amount,
    /// The value during a spike.
    pub(crate) peak: Amount,
    /// The time from the start of one spike to the start of the next; for random spikes, the average.
    pub(crate) every: Length,
    /// The length of a spike.
    pub(crate) width: Length,
}

/// A point.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Point")]
pub(crate) struct PointFile {
    /// The time, since the start of the scenario.
    pub(crate) at: Length,
    /// The value.
    pub(crate) value: Amount,
}

either!(CurveFile, "Curve", "a quantity, or a curve such as {ramp: {from: 1, to: 5, over: 10m}}",
    scalar: Constant(Amount), map: Shaped(ShapedFile), with: Box::new);
either!(DistributionFile, "Distribution", "a duration, or a distribution such as {normal: {mean: 20s, deviation: 4s}}",
    scalar: Fixed(Length), map: Drawn(DrawnFile), with: std::convert::identity);
