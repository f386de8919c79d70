//! Curves, as they are written in a scenario file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::either::either;
use super::format::{DistributionFile, DrawnFile};
use super::values::{Amount, Length, Share};

/// An amount over time: a quantity that stays, or a shape.
#[derive(Debug, Clone)]
pub(crate) enum CurveFile {
    Constant(Amount),
    Shaped(Box<ShapedFile>),
}

/// A shape, exactly one, and what is done to it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Shape")]
pub(crate) struct ShapedFile {
    /// Always the same.
    pub(crate) constant: Option<Amount>,
    /// From one value to another in a straight line, then staying.
    pub(crate) ramp: Option<RampFile>,
    /// One value until an instant, another from then on.
    pub(crate) step: Option<StepFile>,
    /// Up and down around a mean, beginning there and going up.
    pub(crate) sine: Option<SineFile>,
    /// A working day by the time of day: quiet at night, two peaks, a dip at noon.
    pub(crate) business_day: Option<BusinessDayFile>,
    /// Low, with a high plateau at the beginning of each period.
    pub(crate) spikes: Option<SpikesFile>,
    /// Low, with high plateaus that begin at random.
    pub(crate) random_spikes: Option<SpikesFile>,
    /// Straight lines between points of time and value.
    pub(crate) points: Option<Vec<PointFile>>,
    /// A CSV file of time and value, by its path from the scenario's folder. Times are seconds, durations or dates.
    pub(crate) csv: Option<String>,
    /// Several curves on top of each other.
    pub(crate) sum: Option<Vec<CurveFile>>,
    /// Whether values of `points` and `csv` hold until the next, instead of straight lines between them.
    pub(crate) steps: bool,
    /// By which part of itself a value may be moved up or down, at random.
    pub(crate) noise: Option<Share>,
    /// Decides the noise; drawn from the scenario's seed if left out.
    pub(crate) noise_seed: Option<u64>,
    /// How far into the shape the scenario begins.
    pub(crate) offset: Option<Length>,
    /// What values are multiplied by.
    pub(crate) scale: Option<Amount>,
    /// After which time the shape begins anew.
    pub(crate) repeat: Option<Length>,
}

/// A ramp.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Ramp")]
pub(crate) struct RampFile {
    /// The value at its start.
    pub(crate) from: Amount,
    /// The value from its end on.
    pub(crate) to: Amount,
    /// When it starts, since the start of the scenario.
    #[serde(default)]
    pub(crate) at: Length,
    /// How long it takes.
    pub(crate) over: Length,
}

/// A step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Step")]
pub(crate) struct StepFile {
    /// The value until then.
    pub(crate) from: Amount,
    /// The value from then on.
    pub(crate) to: Amount,
    /// The instant, since the start.
    pub(crate) at: Length,
}

/// A sine.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Sine")]
pub(crate) struct SineFile {
    /// The value in the middle.
    pub(crate) mean: Amount,
    /// How far up and down.
    pub(crate) amplitude: Amount,
    /// From one peak to the next.
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
    /// How much of the rise Saturday and Sunday have; none if left out.
    #[serde(default)]
    pub(crate) weekend: Share,
    /// How long a day takes; 24h if left out. Another day begins at midnight when the scenario begins.
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
    /// From the start of one spike to the start of the next, for random ones on average.
    pub(crate) every: Length,
    /// How long a spike lasts.
    pub(crate) width: Length,
}

/// A point.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Point")]
pub(crate) struct PointFile {
    /// When, since the start.
    pub(crate) at: Length,
    /// How much.
    pub(crate) value: Amount,
}

either!(CurveFile, "Curve", "a quantity, or a curve such as {ramp: {from: 1, to: 5, over: 10m}}",
    scalar: Constant(Amount), map: Shaped(ShapedFile), with: Box::new);
either!(DistributionFile, "Distribution", "a duration, or a distribution such as {normal: {mean: 20s, deviation: 4s}}",
    scalar: Fixed(Length), map: Drawn(DrawnFile), with: std::convert::identity);
