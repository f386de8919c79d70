//! The settings of an autoscaler and their bounds.

use serde::{Deserialize, Serialize};

/// Maximum length of a window and of the scale-down delay, in seconds, as in Knative.
const MAX_SECONDS: u32 = 3_600;

/// The settings of an [`Autoscaler`](crate::Autoscaler). The defaults are those of Knative.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The target load of each pod, in the unit of the samples. Above 0.
    pub target: f64,
    /// The length of the stable window, in seconds, from 1 to 3600. Also the time for which the panic mode lasts after
    /// the load last reached the threshold.
    pub stable_window: u32,
    /// The length of the panic window, in seconds, from 1 to the stable window.
    pub panic_window: u32,
    /// The multiple of the ready pods that starts the panic mode, if the average of the panic window needs at least
    /// that number of pods. At least 1. 2 means 200 %.
    pub panic_threshold: f64,
    /// The largest factor of a step up, relative to the ready pods. Above 1.
    pub max_scale_up_rate: f64,
    /// The largest divisor of a step down, relative to the ready pods. Above 1.
    pub max_scale_down_rate: f64,
    /// The scale-down delay, in seconds, at most 3600: the count is the highest result within this time. 0 disables the
    /// delay.
    pub scale_down_delay: u32,
    /// The lowest count other than 0. 0 and 1 have no effect.
    pub activation_scale: i32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            target: 100.0,
            stable_window: 60,
            panic_window: 6,
            panic_threshold: 2.0,
            max_scale_up_rate: 1_000.0,
            max_scale_down_rate: 2.0,
            scale_down_delay: 0,
            activation_scale: 1,
        }
    }
}

impl Settings {
    /// Checks the bounds of each setting.
    ///
    /// # Errors
    /// Returns the first setting outside of its bounds.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        use InvalidSettings as Invalid;

        let above = |value: f64, bound: f64| value.is_finite() && value > bound;
        if !above(self.target, 0.0) {
            return Err(Invalid::Target(self.target));
        }
        if !(1..=MAX_SECONDS).contains(&self.stable_window) {
            return Err(Invalid::StableWindow(self.stable_window));
        }
        if !(1..=self.stable_window).contains(&self.panic_window) {
            return Err(Invalid::PanicWindow(self.panic_window, self.stable_window));
        }
        if !self.panic_threshold.is_finite() || self.panic_threshold < 1.0 {
            return Err(Invalid::PanicThreshold(self.panic_threshold));
        }
        for (name, rate) in
            [("maxScaleUpRate", self.max_scale_up_rate), ("maxScaleDownRate", self.max_scale_down_rate)]
        {
            if !above(rate, 1.0) {
                return Err(Invalid::Rate(name, rate));
            }
        }
        if self.scale_down_delay > MAX_SECONDS {
            return Err(Invalid::ScaleDownDelay(self.scale_down_delay));
        }
        if self.activation_scale < 0 {
            return Err(Invalid::ActivationScale(self.activation_scale));
        }
        Ok(())
    }
}

/// A setting outside of its bounds.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidSettings {
    /// The target is 0, negative or not finite.
    #[error("invalid target {0}: must be a number above 0")]
    Target(f64),
    /// The length of the stable window is 0 or too large.
    #[error("invalid stable window of {0} s: must be from 1 to 3600 s")]
    StableWindow(u32),
    /// The length of the panic window is 0 or larger than that of the stable window. Contains the lengths of both
    /// windows.
    #[error("invalid panic window of {0} s: must be from 1 s to the stable window of {1} s")]
    PanicWindow(u32, u32),
    /// The threshold is below 1 or not finite.
    #[error("invalid panic threshold {0}: must be a factor of at least 1 (100 %)")]
    PanicThreshold(f64),
    /// A rate is not above 1, or not finite. Contains its name and value.
    #[error("invalid {0} of {1}: must be a factor above 1")]
    Rate(&'static str, f64),
    /// The scale-down delay is above 3600 s.
    #[error("invalid scale-down delay of {0} s: must be at most 3600 s")]
    ScaleDownDelay(u32),
    /// The activation scale is negative.
    #[error("invalid activation scale {0}: must be at least 0")]
    ActivationScale(i32),
}
