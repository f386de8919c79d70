//! Settings of the controller that a policy replaces for one HPA.

use std::time::Duration;

use autoscaling::settings::Settings;

use crate::spec::PolicySpec;

/// The settings for an HPA. `behavior` of the HPA takes precedence over `tolerance` and
/// `downscaleStabilizationSeconds`, as it does over the flags.
pub fn settings(policy: &PolicySpec, settings: &Settings) -> Settings {
    let seconds = |seconds: Option<u32>, default| {
        seconds.map_or(default, |seconds| Duration::from_secs(seconds.into()))
    };
    Settings {
        tolerance: policy.tolerance.unwrap_or(settings.tolerance),
        downscale_stabilization: seconds(
            policy.downscale_stabilization_seconds,
            settings.downscale_stabilization,
        ),
        cpu_initialization_period: seconds(
            policy.cpu_initialization_period_seconds,
            settings.cpu_initialization_period,
        ),
        initial_readiness_delay: seconds(
            policy.initial_readiness_delay_seconds,
            settings.initial_readiness_delay,
        ),
        ..settings.clone()
    }
}

/// The time from one sync to the next. `None` means the period of the controller.
pub fn sync_period(policy: &PolicySpec) -> Option<Duration> {
    policy.sync_period_seconds.map(|seconds| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Level, parse};

    #[test]
    fn settings_replace_the_flags_that_the_policy_sets() {
        let flags = Settings::default();
        assert_eq!(settings(&PolicySpec::default(), &flags), flags);
        assert_eq!(sync_period(&PolicySpec::default()), None);
        let parsed = parse(
            "{syncPeriodSeconds: 5, tolerance: 50m, cpuInitializationPeriodSeconds: 1, \
             initialReadinessDelaySeconds: 2, downscaleStabilizationSeconds: 0}",
            Level::Annotation,
        );
        assert!(parsed.problems.is_empty());
        let expected = Settings {
            tolerance: 0.05,
            downscale_stabilization: Duration::ZERO,
            cpu_initialization_period: Duration::from_secs(1),
            initial_readiness_delay: Duration::from_secs(2),
            ..flags
        };
        assert_eq!(settings(&parsed.spec, &Settings::default()), expected);
        assert_eq!(sync_period(&parsed.spec), Some(Duration::from_secs(5)));
    }
}
