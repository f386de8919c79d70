//! The controller's flags that change a decision, for subcommands that decide without running the controller.
//! The names, rules and errors are the same as on the controller's command line.

use crate::cli::config::Config;
use crate::cli::flags::{Flag, FlagError, Raw, Table};
use crate::cli::{kcm, own};

/// `--horizontal-pod-autoscaler-tolerance`
pub const TOLERANCE: &str = "horizontal-pod-autoscaler-tolerance";
/// `--horizontal-pod-autoscaler-downscale-stabilization`
pub const DOWNSCALE_STABILIZATION: &str = "horizontal-pod-autoscaler-downscale-stabilization";
/// `--horizontal-pod-autoscaler-cpu-initialization-period`
pub const CPU_INITIALIZATION_PERIOD: &str = "horizontal-pod-autoscaler-cpu-initialization-period";
/// `--horizontal-pod-autoscaler-initial-readiness-delay`
pub const INITIAL_READINESS_DELAY: &str = "horizontal-pod-autoscaler-initial-readiness-delay";
/// `--horizontal-pod-autoscaler-sync-period`
pub const SYNC_PERIOD: &str = "horizontal-pod-autoscaler-sync-period";
/// `--emulated-version`
pub const EMULATED_VERSION: &str = "emulated-version";
/// `--feature-gates`
pub const FEATURE_GATES: &str = "feature-gates";

/// The names of the flags, in the order of the help text.
const NAMES: [&str; 7] = [
    TOLERANCE,
    DOWNSCALE_STABILIZATION,
    CPU_INITIALIZATION_PERIOD,
    INITIAL_READINESS_DELAY,
    SYNC_PERIOD,
    EMULATED_VERSION,
    FEATURE_GATES,
];

/// The given flags, validated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionFlags {
    given: Vec<(&'static str, String)>,
}

/// Returns the flags that change a decision.
pub fn all() -> impl Iterator<Item = &'static Flag> {
    let table = table();
    NAMES.into_iter().filter_map(move |name| table.named(name))
}

fn table() -> Table {
    Table::new(&[kcm::FLAGS, own::FLAGS])
}

impl DecisionFlags {
    /// Validates flags by the controller's rules. A list flag may occur several times.
    ///
    /// # Errors
    /// Returns the controller's error for an invalid value.
    pub fn new(given: Vec<(&'static str, String)>) -> Result<Self, FlagError> {
        let flags = Self { given };
        flags.config(None)?;
        Ok(flags)
    }

    /// Returns whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// Returns the controller configuration that the flags define, as a dry run. `version` applies unless
    /// `--emulated-version` was given.
    ///
    /// # Errors
    /// Returns the controller's error if the gates do not exist at the version.
    pub fn config(&self, version: Option<&str>) -> Result<Config, FlagError> {
        let version = version.filter(|_| !self.has(EMULATED_VERSION));
        let version = version.map(|version| (EMULATED_VERSION, version.to_owned()));
        let words = self.given.iter().cloned().chain(version);
        let table = table();
        let raw = Raw::parse(words.map(|(name, value)| format!("--{name}={value}")), &table)?;
        let mut config = Config::resolve(&raw, &table)?;
        config.controller.dry_run = true;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use autoscaling::settings::Version;

    use super::*;

    fn flags(given: &[(&'static str, &str)]) -> Result<DecisionFlags, FlagError> {
        DecisionFlags::new(given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
    }

    #[test]
    fn every_flag_exists_in_the_controllers_tables() {
        assert_eq!(all().count(), NAMES.len());
    }

    #[test]
    fn invalid_value_has_the_controllers_error() {
        let error = flags(&[(TOLERANCE, "-1")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid argument \"-1\" for \"--horizontal-pod-autoscaler-tolerance\" flag: must be at least 0"
        );
    }

    #[test]
    fn given_version_overrides_the_servers() {
        let version =
            |given: &[_]| flags(given).unwrap().config(Some("1.36")).unwrap().controller.settings.version;
        assert_eq!(version(&[]), Version::V1_36);
        assert_eq!(version(&[(EMULATED_VERSION, "1.37")]), Version::V1_37);
    }

    #[test]
    fn config_is_a_dry_run() {
        assert!(flags(&[]).unwrap().config(None).unwrap().controller.dry_run);
    }
}
