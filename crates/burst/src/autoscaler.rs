//! One autoscaler: its settings, its mode and its decisions.

use serde::{Deserialize, Serialize};

use crate::window::{Average, Delay, Window};

/// Maximum length of a window and of the scale-down delay, in seconds, as in Knative.
const MAX_SECONDS: u32 = 3_600;

/// The load of one workload and the state of its decisions.
///
/// Each second of a window takes 8 bytes. Every two seconds of the scale-down delay take at most 16 bytes.
#[derive(Debug, Clone)]
pub struct Autoscaler {
    settings: Settings,
    stable: Window,
    panic: Window,
    delay: Option<Delay>,
    panicking: Option<Panic>,
    /// The highest count since the start of the panic mode. Initially the number of ready pods, and 0 after a panic.
    highest: i32,
}

#[derive(Debug, Clone, Copy)]
struct Panic {
    since: i64,
    last_over: i64,
}

/// A sample that is not a finite number.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("sample of {0} is not a finite number: it was ignored, like a failed scrape")]
pub struct InvalidSample(pub f64);

impl Autoscaler {
    /// Creates an autoscaler without samples. `ready` is the number of ready pods. If it is above 1, the autoscaler
    /// starts in panic mode. The count then does not fall for at least the length of the stable window. `now` is in
    /// seconds since the Unix epoch.
    ///
    /// # Errors
    /// Returns an error if a setting is outside of its bounds.
    pub fn new(settings: Settings, ready: i32, now: i64) -> Result<Self, InvalidSettings> {
        settings.validate()?;
        Ok(Self {
            settings,
            stable: Window::new(settings.stable_window),
            panic: Window::new(settings.panic_window),
            delay: (settings.scale_down_delay > 0).then(|| Delay::new(settings.scale_down_delay)),
            panicking: (ready > 1).then_some(Panic { since: now, last_over: now }),
            highest: ready,
        })
    }

    /// Returns the settings in use.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds `load`, the sum over all pods. `second` is the time of the load, in seconds since the Unix epoch. Loads of
    /// the same second add up. After a failed scrape, do not call this function.
    ///
    /// # Errors
    /// Returns an error, and ignores the sample, if it is not a finite number.
    pub fn record(&mut self, second: i64, load: f64) -> Result<(), InvalidSample> {
        if !load.is_finite() {
            return Err(InvalidSample(load));
        }
        self.stable.record(second, load);
        self.panic.record(second, load);
        Ok(())
    }

    /// Decides at `now`, in seconds since the Unix epoch, for `ready` pods. Returns `None`, and keeps the mode, if the
    /// stable window has no sample.
    pub fn decide(&mut self, now: i64, ready: i32) -> Option<Explanation> {
        if self.stable.is_empty(now) {
            return None;
        }
        let ready = ready.max(1);
        let pods = f64::from(ready);
        let lowest = (pods / self.settings.max_scale_down_rate).floor();
        // The limit is rounded up, so that a rate close to 1 permits a step of one pod.
        let highest = (self.settings.max_scale_up_rate * pods).ceil();

        let stable = self.proposal(self.stable.average(now), lowest, highest);
        let panic_average = self.panic.average(now);
        let panic = self.proposal(panic_average, lowest, highest);
        let desired = (panic_average.value / self.settings.target).ceil();
        self.change_mode(now, desired / pods >= self.settings.panic_threshold);

        let (mode, proposed, mut limit) = self.apply_mode(&stable, &panic);
        let mut replicas = proposed;
        if let Some(delay) = &mut self.delay {
            replicas = delay.record(now, proposed);
            if replicas != proposed {
                limit = Limit::ScaleDownDelay;
            }
        }
        let limits = (truncate_to_count(lowest), truncate_to_count(highest));
        Some(Explanation { at: now, ready, limits, stable, panic, mode, proposed, limit, replicas })
    }

    fn proposal(&self, Average { value, seconds }: Average, lowest: f64, highest: f64) -> Proposal {
        let desired = (value / self.settings.target).ceil();
        let mut replicas = truncate_to_count(desired.max(lowest).min(highest));
        let mut clamp = if desired > highest {
            Clamp::ScaleUpRate
        } else if desired < lowest {
            Clamp::ScaleDownRate
        } else {
            Clamp::None
        };
        let activation = self.settings.activation_scale;
        if activation > 1 && desired > 0.0 && activation > replicas {
            replicas = activation;
            clamp = Clamp::ActivationScale;
        }
        Proposal { average: value, seconds, desired: truncate_to_count(desired), replicas, clamp }
    }

    fn change_mode(&mut self, now: i64, over_threshold: bool) {
        if over_threshold {
            let since = self.panicking.map_or(now, |panic| panic.since);
            self.panicking = Some(Panic { since, last_over: now });
        } else if self
            .panicking
            .is_some_and(|panic| now.saturating_sub(panic.last_over) > i64::from(self.settings.stable_window))
        {
            self.panicking = None;
            self.highest = 0;
        }
    }

    fn apply_mode(&mut self, stable: &Proposal, panic: &Proposal) -> (Mode, i32, Limit) {
        let Some(Panic { since, last_over }) = self.panicking else {
            return (Mode::Stable, stable.replicas, Limit::Stable(stable.clamp));
        };
        // The stable window can propose more than the panic window after a peak, or while samples are missing.
        let (higher, mut limit) = if panic.replicas > stable.replicas {
            (panic.replicas, Limit::Panic(panic.clamp))
        } else {
            (stable.replicas, Limit::Stable(stable.clamp))
        };
        if higher < self.highest {
            limit = Limit::PanicHighest;
        }
        self.highest = self.highest.max(higher);
        (Mode::Panic { since, last_over, highest: self.highest }, self.highest, limit)
    }
}

/// The settings of an [`Autoscaler`]. The defaults are those of Knative.
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
    /// The panic mode starts if the average of the panic window needs at least this multiple of the ready pods. At
    /// least 1. 2 means 200 %.
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

/// Returns `value` without its fraction, within the range of a replica count. NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
fn truncate_to_count(value: f64) -> i32 {
    value as i32
}

/// A decision and its steps, in the order of their computation. Times are in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The time of the decision.
    pub at: i64,
    /// The number of ready pods that the rates are relative to. At least 1.
    pub ready: i32,
    /// The lowest and the highest count that the rates permit.
    pub limits: (i32, i32),
    /// The proposal of the stable window.
    pub stable: Proposal,
    /// The proposal of the panic window. Used in panic mode only.
    pub panic: Proposal,
    /// The mode of the decision.
    pub mode: Mode,
    /// The count of the mode, before the scale-down delay.
    pub proposed: i32,
    /// The step that set [`Self::replicas`].
    pub limit: Limit,
    /// The decided count.
    pub replicas: i32,
}

/// The count that one window proposes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    /// The average over time of the load of all pods, in the unit of the samples, rounded to six decimal places.
    pub average: f64,
    /// The number of seconds that the average covers. 0 if the window has no sample.
    pub seconds: u32,
    /// The average divided by the target, rounded up.
    pub desired: i32,
    /// [`Self::desired`], limited by the rates, and raised to the activation scale.
    pub replicas: i32,
    /// The rule that changed [`Self::desired`].
    pub clamp: Clamp,
}

/// The rule that changed the proposal of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Clamp {
    /// No rule: the proposal is unchanged.
    None,
    /// The largest factor of a step up, which lowered the proposal.
    ScaleUpRate,
    /// The largest divisor of a step down, which raised the proposal.
    ScaleDownRate,
    /// The lowest count other than 0, which raised the proposal.
    ActivationScale,
}

/// The mode of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// The stable window decides.
    Stable,
    /// The higher proposal of both windows decides, and the count does not fall.
    #[serde(rename_all = "camelCase")]
    Panic {
        /// The start of the panic mode.
        since: i64,
        /// The last time at which the panic window reached the threshold, or the creation of an autoscaler that
        /// starts in panic mode. The mode ends once this time is older than the stable window.
        last_over: i64,
        /// The highest count since the start.
        highest: i32,
    },
}

/// The step that set the decided count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// The stable window, with the rule that changed its proposal.
    Stable(Clamp),
    /// The panic window, with the rule that changed its proposal.
    Panic(Clamp),
    /// The panic mode, which keeps the highest count since its start.
    PanicHighest,
    /// The scale-down delay, which keeps a higher earlier count.
    ScaleDownDelay,
}
