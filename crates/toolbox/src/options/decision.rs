//! The flags of the controller that change a decision, for commands that decide without the controller process. Names,
//! rules and errors are the same as on the command line of the controller.

use crate::process::{FlagError, FlagHelp, Process, ResolvedFlags};

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
pub const NAMES: [&str; 7] = [
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

/// Returns the help of the flags, in the order of [`NAMES`].
pub(super) fn help(process: Process) -> Vec<FlagHelp> {
    let all = process.flags();
    NAMES.into_iter().filter_map(|name| all.iter().find(|flag| flag.name == name).cloned()).collect()
}

impl DecisionFlags {
    /// Validates flags by the controller's rules. A list flag may occur several times.
    ///
    /// # Errors
    /// Returns the controller's error for an invalid value.
    pub fn new(given: Vec<(&'static str, String)>, process: Process) -> Result<Self, FlagError> {
        let flags = Self { given };
        flags.resolve(None, process)?;
        Ok(flags)
    }

    /// Returns whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// Returns the controller's options that the flags define, for a dry run. `version` applies unless
    /// `--emulated-version` was given.
    ///
    /// # Errors
    /// Returns the controller's error if the gates do not exist at the version.
    pub fn resolve(&self, version: Option<&str>, process: Process) -> Result<ResolvedFlags, FlagError> {
        let version = version.filter(|_| !self.has(EMULATED_VERSION));
        let version = version.map(|version| (EMULATED_VERSION, version.to_owned()));
        let words = self.given.iter().cloned().chain(version);
        let mut resolved =
            process.resolve(words.map(|(name, value)| format!("--{name}={value}")).collect())?;
        resolved.options.dry_run = true;
        Ok(resolved)
    }
}

#[cfg(test)]
mod tests {
    use autoscaling::settings::Version;

    use super::*;
    use crate::process::fake::FAKE;

    fn resolved(given: &[(&'static str, &str)], version: Option<&str>) -> ResolvedFlags {
        let given = given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        DecisionFlags::new(given, FAKE).unwrap().resolve(version, FAKE).unwrap()
    }

    #[test]
    fn given_version_overrides_the_servers() {
        let version = |given: &[_]| resolved(given, Some("1.36")).options.settings.version;
        assert_eq!(version(&[]), Version::V1_36);
        assert_eq!(version(&[(EMULATED_VERSION, "1.37")]), Version::V1_37);
    }

    #[test]
    fn options_are_a_dry_run() {
        assert!(resolved(&[], None).options.dry_run);
    }
}
