//! The flags of the controller that change a decision. A command that decides itself has these flags, too, with the same
//! names, rules and errors as on the controller's command line.

use crate::{Config, FlagError, FlagSet};

/// Name of the flag for the tolerance: the difference between a ratio and 1 up to which the count does not change.
pub const TOLERANCE: &str = "horizontal-pod-autoscaler-tolerance";
/// Name of the flag for the default stabilization window of scale-downs.
pub const DOWNSCALE_STABILIZATION: &str = "horizontal-pod-autoscaler-downscale-stabilization";
/// Name of the flag for the period after the start of a pod in which its cpu samples may be skipped.
pub const CPU_INITIALIZATION_PERIOD: &str = "horizontal-pod-autoscaler-cpu-initialization-period";
/// Name of the flag for the period after the start of a pod in which a change of readiness is its initial readiness.
pub const INITIAL_READINESS_DELAY: &str = "horizontal-pod-autoscaler-initial-readiness-delay";
/// Name of the flag for the time between two syncs of an HPA.
pub const SYNC_PERIOD: &str = "horizontal-pod-autoscaler-sync-period";
/// Name of the flag for the Kubernetes version whose behavior the controller emulates.
pub const EMULATED_VERSION: &str = "emulated-version";
/// Name of the flag that enables or disables features.
pub const FEATURE_GATES: &str = "feature-gates";

/// The names of the flags that change a decision, in the order of the help text.
pub const NAMES: [&str; 7] = [
    TOLERANCE,
    DOWNSCALE_STABILIZATION,
    CPU_INITIALIZATION_PERIOD,
    INITIAL_READINESS_DELAY,
    SYNC_PERIOD,
    EMULATED_VERSION,
    FEATURE_GATES,
];

/// The given flags that change a decision, validated by the controller's rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionFlags {
    given: Vec<(&'static str, String)>,
}

impl DecisionFlags {
    /// Validates flags by the controller's rules. A list flag may occur several times.
    ///
    /// # Errors
    /// Returns the controller's error for an invalid value.
    pub fn new(given: Vec<(&'static str, String)>) -> Result<Self, FlagError> {
        let flags = Self { given };
        flags.resolve(None)?;
        Ok(flags)
    }

    /// Returns whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// Returns the controller's configuration that the flags define, for a dry run. `version` applies unless
    /// `--emulated-version` was given.
    ///
    /// # Errors
    /// Returns the controller's error if the gates do not exist at the version.
    pub fn resolve(&self, version: Option<&str>) -> Result<Config, FlagError> {
        let version = version.filter(|_| !self.has(EMULATED_VERSION));
        let version = version.map(|version| (EMULATED_VERSION, version.to_owned()));
        let words = self.given.iter().cloned().chain(version);
        let words = words.map(|(name, value)| format!("--{name}={value}"));
        let mut config = FlagSet::controller().resolve(words)?;
        config.controller.dry_run = true;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use autoscaling::settings::Version;

    use super::*;

    fn resolved(given: &[(&'static str, &str)], version: Option<&str>) -> Config {
        let given = given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        DecisionFlags::new(given).unwrap().resolve(version).unwrap()
    }

    #[test]
    fn given_version_overrides_the_servers() {
        let version = |given: &[_]| resolved(given, Some("1.36")).controller.settings.version;
        assert_eq!(version(&[]), Version::V1_36);
        assert_eq!(version(&[(EMULATED_VERSION, "1.37")]), Version::V1_37);
    }

    #[test]
    fn options_are_a_dry_run() {
        assert!(resolved(&[], None).controller.dry_run);
    }

    #[test]
    fn every_decision_flag_exists() {
        let flags = FlagSet::controller();
        for name in NAMES {
            assert!(flags.effective().any(|flag| flag.name == name && !flag.usage().is_empty()), "{name}");
        }
    }

    #[test]
    fn invalid_value_has_the_controllers_error() {
        let error = DecisionFlags::new(vec![(TOLERANCE, "ten".to_owned())]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid argument \"ten\" for \"--horizontal-pod-autoscaler-tolerance\" flag: strconv.ParseFloat: parsing \"ten\": invalid syntax"
        );
    }
}
