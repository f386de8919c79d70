//! The controller's flags that change a decision, for those who decide without being the controller: the same names, the
//! same rules, the same errors.

use super::config::Config;
use super::flags::{Flag, FlagError, Raw, Table};
use super::{kcm, own};

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

/// All of them, in the order in which help lists them.
const NAMES: [&str; 7] = [
    TOLERANCE,
    DOWNSCALE_STABILIZATION,
    CPU_INITIALIZATION_PERIOD,
    INITIAL_READINESS_DELAY,
    SYNC_PERIOD,
    EMULATED_VERSION,
    FEATURE_GATES,
];

/// Those of the flags that were given, found valid.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionFlags {
    given: Vec<(&'static str, String)>,
}

/// The flags.
pub fn all() -> impl Iterator<Item = &'static Flag> {
    let table = table();
    NAMES.into_iter().filter_map(move |name| table.named(name))
}

fn table() -> Table {
    Table::new(&[kcm::FLAGS, own::FLAGS])
}

impl DecisionFlags {
    /// Checks flags by the controller's own rules. A list may be given more than once.
    pub fn new(given: Vec<(&'static str, String)>) -> Result<Self, FlagError> {
        let flags = Self { given };
        flags.config(None)?;
        Ok(flags)
    }

    /// Whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// What a controller would make of them, with this version if none was given. It would write nothing.
    pub fn config(&self, version: Option<&str>) -> Result<Config, FlagError> {
        let version = version.filter(|_| !self.has(EMULATED_VERSION));
        let version = version.map(|version| (EMULATED_VERSION, version.to_owned()));
        let words = self.given.iter().cloned().chain(version);
        let table = table();
        let raw = Raw::parse(words.map(|(name, value)| format!("--{name}={value}")), &table)?;
        Ok(Config { dry_run: true, ..Config::resolve(&raw, &table)? })
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
    fn every_flag_is_one_of_the_controllers() {
        assert_eq!(all().count(), NAMES.len());
    }

    #[test]
    fn a_wrong_value_is_told_as_the_controller_tells_it() {
        let error = flags(&[(TOLERANCE, "-1")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid argument \"-1\" for \"--horizontal-pod-autoscaler-tolerance\" flag: must be at least 0"
        );
    }

    #[test]
    fn a_version_that_is_given_holds() {
        let version = |given: &[_]| flags(given).unwrap().config(Some("1.36")).unwrap().settings.version;
        assert_eq!(version(&[]), Version::V1_36);
        assert_eq!(version(&[(EMULATED_VERSION, "1.37")]), Version::V1_37);
    }

    #[test]
    fn nothing_would_be_written() {
        assert!(flags(&[]).unwrap().config(None).unwrap().dry_run);
    }
}
