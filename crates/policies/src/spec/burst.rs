//! The field `burst`.

use burst::Settings;

/// `burst` of a policy. The defaults are those of Knative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstSpec {
    /// `windowSeconds`: the length of the panic window.
    pub window_seconds: u32,
    /// `stableWindowSeconds`: the length of the stable window.
    pub stable_window_seconds: u32,
    /// `thresholdPercent`: the panic mode starts if the proposal of the panic window is at least this percentage of the
    /// ready pods.
    pub threshold_percent: u32,
    /// `scaleDownDelaySeconds`: the time for which a higher proposal stays in effect.
    pub scale_down_delay_seconds: u32,
    /// `activationReplicas`: the lowest proposal other than 0.
    pub activation_replicas: i32,
}

impl Default for BurstSpec {
    fn default() -> Self {
        let Settings { stable_window, panic_window, scale_down_delay, activation_scale, .. } =
            Settings::default();
        Self {
            window_seconds: panic_window,
            stable_window_seconds: stable_window,
            threshold_percent: 200,
            scale_down_delay_seconds: scale_down_delay,
            activation_replicas: activation_scale,
        }
    }
}

impl BurstSpec {
    /// The settings for a metric whose target per pod is `target` units.
    pub(crate) fn settings(&self, target: f64) -> Settings {
        Settings {
            target,
            stable_window: self.stable_window_seconds,
            panic_window: self.window_seconds,
            panic_threshold: f64::from(self.threshold_percent) / 100.0,
            scale_down_delay: self.scale_down_delay_seconds,
            activation_scale: self.activation_replicas,
            ..Settings::default()
        }
    }
}
