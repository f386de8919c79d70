//! The flags of the controller whose decision is explained: given, concluded, or assumed.

use autoscaling::settings::{Settings, Version};

use super::situation::{FlagOrigin, FlagUse};
use crate::cli::Config;
use crate::cli::config::OWN;
use crate::cli::flags::{FlagError, Raw, Table};
use crate::cli::kcm;
use crate::duration::GoDuration;

const TOLERANCE: &str = "horizontal-pod-autoscaler-tolerance";
const DOWNSCALE: &str = "horizontal-pod-autoscaler-downscale-stabilization";
const CPU_INITIALIZATION: &str = "horizontal-pod-autoscaler-cpu-initialization-period";
const READINESS_DELAY: &str = "horizontal-pod-autoscaler-initial-readiness-delay";
const SYNC_PERIOD: &str = "horizontal-pod-autoscaler-sync-period";
const VERSION: &str = "emulated-version";
const GATES: &str = "feature-gates";

/// The flags that can be given: those that change what is decided, and how often.
pub const NAMES: [&str; 7] =
    [TOLERANCE, DOWNSCALE, CPU_INITIALIZATION, READINESS_DELAY, SYNC_PERIOD, VERSION, GATES];

/// Flags of a controller as they were given, and found valid.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControllerFlags {
    given: Vec<(&'static str, String)>,
}

/// What a decision is made with.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) config: Config,
    pub(super) uses: Vec<FlagUse>,
}

impl ControllerFlags {
    /// Checks flags by the controller's own rules. A list may be given more than once.
    pub fn new(given: Vec<(&'static str, String)>) -> Result<Self, FlagError> {
        resolve(&given, None)?;
        Ok(Self { given })
    }

    fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// The decision's configuration. Where no version is given it is that of the API server, if that can be emulated:
    /// the built-in controller comes from the same release.
    pub(super) fn resolve(&self, server_minor: Option<u32>) -> Result<Resolved, FlagError> {
        let by_server = match server_minor {
            _ if self.has(VERSION) => None,
            Some(36) => Some("1.36"),
            Some(37) => Some("1.37"),
            _ => None,
        };
        // Gates of another version than the server's mean that the controller is not the server's.
        let by_server = by_server.filter(|version| resolve(&self.given, Some(version)).is_ok());
        let config = resolve(&self.given, by_server)?;
        let origin = |name| match by_server {
            _ if self.has(name) => FlagOrigin::Given,
            Some(_) if name == VERSION => FlagOrigin::Server,
            _ => FlagOrigin::Assumed,
        };
        let uses = uses(&config.settings, origin);
        Ok(Resolved { config, uses })
    }
}

fn resolve(given: &[(&'static str, String)], version: Option<&str>) -> Result<Config, FlagError> {
    let table = Table::new(&[kcm::FLAGS, OWN]);
    let version = version.map(|version| (VERSION, version.to_owned()));
    let words = given.iter().cloned().chain(version).map(|(name, value)| format!("--{name}={value}"));
    let config = Config::resolve(&Raw::parse(words, &table)?, &table)?;
    Ok(Config { dry_run: true, ..config })
}

/// The settings flag by flag.
pub(super) fn uses(settings: &Settings, origin: impl Fn(&'static str) -> FlagOrigin) -> Vec<FlagUse> {
    let duration = |duration: std::time::Duration| {
        GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
    };
    let version = match settings.version {
        Version::V1_36 => "1.36",
        Version::V1_37 => "1.37",
    };
    let gates = format!(
        "HPAConfigurableTolerance={},HPAGeneration={},HPAScaleToZero={}",
        settings.configurable_tolerance, settings.generation, settings.scale_to_zero
    );
    let values = [
        (TOLERANCE, settings.tolerance.to_string()),
        (DOWNSCALE, duration(settings.downscale_stabilization)),
        (CPU_INITIALIZATION, duration(settings.cpu_initialization_period)),
        (READINESS_DELAY, duration(settings.initial_readiness_delay)),
        (VERSION, version.to_owned()),
        (GATES, gates),
    ];
    values.into_iter().map(|(name, value)| FlagUse { name, value, origin: origin(name) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(given: &[(&'static str, &str)]) -> Result<ControllerFlags, FlagError> {
        ControllerFlags::new(given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
    }

    fn origin(resolved: &Resolved, name: &str) -> (String, FlagOrigin) {
        let found = resolved.uses.iter().find(|flag| flag.name == name).unwrap();
        (found.value.clone(), found.origin)
    }

    #[test]
    fn what_nobody_says_is_assumed_and_the_version_is_the_servers() {
        let resolved = flags(&[]).unwrap().resolve(Some(36)).unwrap();
        assert_eq!(origin(&resolved, TOLERANCE), ("0.1".to_owned(), FlagOrigin::Assumed));
        assert_eq!(origin(&resolved, DOWNSCALE), ("5m0s".to_owned(), FlagOrigin::Assumed));
        assert_eq!(origin(&resolved, VERSION), ("1.36".to_owned(), FlagOrigin::Server));
        assert!(!resolved.config.settings.scale_to_zero);
        for minor in [None, Some(35), Some(99)] {
            let resolved = flags(&[]).unwrap().resolve(minor).unwrap();
            assert_eq!(origin(&resolved, VERSION), ("1.37".to_owned(), FlagOrigin::Assumed));
        }
    }

    #[test]
    fn what_is_given_holds() {
        let given = flags(&[(TOLERANCE, "0.05"), (VERSION, "1.36"), (GATES, "HPAScaleToZero=true")]).unwrap();
        let resolved = given.resolve(Some(37)).unwrap();
        assert_eq!(origin(&resolved, TOLERANCE), ("0.05".to_owned(), FlagOrigin::Given));
        assert_eq!(origin(&resolved, VERSION), ("1.36".to_owned(), FlagOrigin::Given));
        let (gates, from) = origin(&resolved, GATES);
        assert!(gates.contains("HPAScaleToZero=true") && from == FlagOrigin::Given, "{gates}");
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
    fn gates_that_the_servers_version_lacks_keep_the_default_version() {
        let resolved = flags(&[(GATES, "HPAGeneration=true")]).unwrap().resolve(Some(36)).unwrap();
        assert_eq!(origin(&resolved, VERSION), ("1.37".to_owned(), FlagOrigin::Assumed));
    }
}
