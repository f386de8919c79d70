//! One autoscaler: its windows, its mode and its decisions.

use crate::delay::Delay;
use crate::explanation::{Clamp, Explanation, Limit, Mode, Proposal};
use crate::number::truncate_to_count;
use crate::settings::{InvalidSettings, Settings};
use crate::window::{Average, Window};

/// The load of one workload and the state of its decisions.
///
/// The memory is 8 bytes per second of each window, and at most 16 bytes per two seconds of the delay.
#[derive(Debug, Clone)]
pub struct Autoscaler {
    settings: Settings,
    stable: Window,
    panic: Window,
    delay: Option<Delay>,
    panicking: Option<Panic>,
    /// The highest count in panic mode. At first, the number of ready pods. 0 after a panic.
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
    /// Creates an autoscaler without samples. If `ready`, the number of ready pods, is above 1, it starts in panic
    /// mode: the count does not fall for at least the length of the stable window. To change the settings, create a new
    /// autoscaler.
    ///
    /// `now` is in seconds since the Unix epoch.
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

    /// Adds the load over all pods at `second`, in seconds since the Unix epoch. Loads of the same second add up. Not
    /// to be called for a failed scrape.
    pub fn record(&mut self, second: i64, load: f64) -> Result<(), InvalidSample> {
        if !load.is_finite() {
            return Err(InvalidSample(load));
        }
        self.stable.record(second, load);
        self.panic.record(second, load);
        Ok(())
    }

    /// Decides at `now`, in seconds since the Unix epoch, for `ready` pods. Returns `None` without a sample, or if the
    /// last sample is older than the stable window. The mode then stays unchanged.
    pub fn decide(&mut self, now: i64, ready: i32) -> Option<Explanation> {
        if self.stable.is_empty(now) {
            return None;
        }
        let ready = ready.max(1);
        let pods = f64::from(ready);
        let lowest = (pods / self.settings.max_scale_down_rate).floor();
        // Rounded up, so that a low rate cannot keep the count forever.
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
        // The stable window can propose more: after a peak, or while samples are missing.
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
