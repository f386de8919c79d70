//! The flags of the controller whose decision is explained: given, concluded, or assumed.

use std::time::Duration;

use autoscaling::settings::{Settings, Version};

use super::situation::{FlagOrigin, FlagUse};
use crate::cli::Config;
use crate::cli::decision::{
    CPU_INITIALIZATION_PERIOD, DOWNSCALE_STABILIZATION, DecisionFlags, EMULATED_VERSION, FEATURE_GATES,
    INITIAL_READINESS_DELAY, TOLERANCE,
};
use crate::cli::flags::FlagError;
use crate::duration::GoDuration;

/// What a decision is made with.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) config: Config,
    pub(super) uses: Vec<FlagUse>,
}

/// The configuration of a decision. Where no version is given it is that of the API server, if that can be emulated: the
/// built-in controller comes from the same release.
pub(super) fn resolve(flags: &DecisionFlags, server_minor: Option<u32>) -> Result<Resolved, FlagError> {
    let by_server = match server_minor {
        _ if flags.has(EMULATED_VERSION) => None,
        Some(36) => Some("1.36"),
        Some(37) => Some("1.37"),
        _ => None,
    };
    // Gates that the server's version does not have mean that the controller is of another one.
    let by_server = by_server.filter(|version| flags.config(Some(version)).is_ok());
    let config = flags.config(by_server)?;
    let uses = uses(&config.settings, |name| match by_server {
        _ if flags.has(name) => FlagOrigin::Given,
        Some(_) if name == EMULATED_VERSION => FlagOrigin::Server,
        _ => FlagOrigin::Assumed,
    });
    Ok(Resolved { config, uses })
}

/// The settings flag by flag.
pub(super) fn uses(settings: &Settings, origin: impl Fn(&'static str) -> FlagOrigin) -> Vec<FlagUse> {
    let duration =
        |duration: Duration| GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string();
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
        (DOWNSCALE_STABILIZATION, duration(settings.downscale_stabilization)),
        (CPU_INITIALIZATION_PERIOD, duration(settings.cpu_initialization_period)),
        (INITIAL_READINESS_DELAY, duration(settings.initial_readiness_delay)),
        (EMULATED_VERSION, version.to_owned()),
        (FEATURE_GATES, gates),
    ];
    values.into_iter().map(|(name, value)| FlagUse { name, value, origin: origin(name) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(given: &[(&'static str, &str)], minor: Option<u32>) -> Resolved {
        let given = given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        resolve(&DecisionFlags::new(given).unwrap(), minor).unwrap()
    }

    fn origin(resolved: &Resolved, name: &str) -> (String, FlagOrigin) {
        let found = resolved.uses.iter().find(|flag| flag.name == name).unwrap();
        (found.value.clone(), found.origin)
    }

    #[test]
    fn what_nobody_says_is_assumed_and_the_version_is_the_servers() {
        let by_server = resolved(&[], Some(36));
        assert_eq!(origin(&by_server, TOLERANCE), ("0.1".to_owned(), FlagOrigin::Assumed));
        assert_eq!(origin(&by_server, DOWNSCALE_STABILIZATION), ("5m0s".to_owned(), FlagOrigin::Assumed));
        assert_eq!(origin(&by_server, EMULATED_VERSION), ("1.36".to_owned(), FlagOrigin::Server));
        assert!(!by_server.config.settings.scale_to_zero);
        for minor in [None, Some(35), Some(99)] {
            let assumed = ("1.37".to_owned(), FlagOrigin::Assumed);
            assert_eq!(origin(&resolved(&[], minor), EMULATED_VERSION), assumed);
        }
    }

    #[test]
    fn what_is_given_holds() {
        let given = [(TOLERANCE, "0.05"), (EMULATED_VERSION, "1.36"), (FEATURE_GATES, "HPAScaleToZero=true")];
        let resolved = resolved(&given, Some(37));
        assert_eq!(origin(&resolved, TOLERANCE), ("0.05".to_owned(), FlagOrigin::Given));
        assert_eq!(origin(&resolved, EMULATED_VERSION), ("1.36".to_owned(), FlagOrigin::Given));
        let (gates, from) = origin(&resolved, FEATURE_GATES);
        assert!(gates.contains("HPAScaleToZero=true") && from == FlagOrigin::Given, "{gates}");
    }

    #[test]
    fn gates_that_the_servers_version_lacks_keep_the_default_version() {
        let resolved = resolved(&[(FEATURE_GATES, "HPAGeneration=true")], Some(36));
        assert_eq!(origin(&resolved, EMULATED_VERSION), ("1.37".to_owned(), FlagOrigin::Assumed));
    }
}
