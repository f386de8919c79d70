//! The feature gates of the HPA controller, by emulated version.

use std::collections::BTreeMap;

use autoscaling::failure;
use autoscaling::settings::{Settings, Version};

use super::values::parse_bool;

/// The state of each gate of the HPA controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "gates are set one by one")]
pub struct Gates {
    /// `HPAScaleToZero`.
    pub scale_to_zero: bool,
    /// `HPAConfigurableTolerance`.
    pub configurable_tolerance: bool,
    /// `HPAGeneration`.
    pub generation: bool,
    /// `HPAOptimizedSelectorStore`.
    pub optimized_selector_store: bool,
    /// `PodLevelResources`.
    pub pod_level_resources: bool,
    /// `StaleControllerConsistencyHPA`.
    pub stale_consistency: bool,
}

/// An invalid feature gate or emulated version, with kube-controller-manager's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The component is not `kube`, the only registered component.
    #[error("component not registered: {0}")]
    Component(String),
    /// An item has no value.
    #[error("missing bool value for {0}")]
    NoValue(String),
    /// The value of a gate is not a boolean.
    #[error("invalid value of {gate}={value}, err: {error}")]
    Value {
        /// The name of the gate.
        gate: String,
        /// The text after `=`.
        value: String,
        /// The text of the parser's error.
        error: String,
    },
    /// The emulated version does not have the gate.
    #[error("cannot set feature gate {gate} to {on}, feature is PreAlpha at emulated version {version}")]
    PreAlpha {
        /// The name of the gate.
        gate: String,
        /// The requested value of the gate.
        on: bool,
        /// The emulated version, such as `1.36`.
        version: &'static str,
    },
    /// The gate is always on.
    #[error("cannot set feature gate {0} to false, feature is locked to true")]
    Locked(String),
    /// The version cannot be emulated.
    #[error("emulated version {} is none of {}", failure::quote(.0), Version::ALL.map(Version::name).join(", "))]
    Version(String),
    /// The flag names several versions.
    #[error("duplicate version flag: the flag names two versions")]
    TwoVersions,
}

/// The names of gates that were set without effect, without duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WithoutEffect {
    /// Gates that the HPA controller does not have.
    pub unknown: Vec<String>,
    /// Gates that are always on.
    pub locked: Vec<String>,
}

/// The stage of a gate at an emulated version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Undefined, and therefore off.
    PreAlpha,
    /// Off by default.
    Alpha,
    /// On by default.
    Beta,
    /// Always on.
    Locked,
}

const SCALE_TO_ZERO: &str = "HPAScaleToZero";
const CONFIGURABLE_TOLERANCE: &str = "HPAConfigurableTolerance";
const GENERATION: &str = "HPAGeneration";
const OPTIMIZED_SELECTOR_STORE: &str = "HPAOptimizedSelectorStore";
const POD_LEVEL_RESOURCES: &str = "PodLevelResources";
const STALE_CONSISTENCY: &str = "StaleControllerConsistencyHPA";

fn stage(gate: &str, version: Version) -> Option<Stage> {
    let (in_1_36, in_1_37, in_1_38) = match gate {
        SCALE_TO_ZERO => (Stage::Alpha, Stage::Beta, Stage::Beta),
        CONFIGURABLE_TOLERANCE => (Stage::Beta, Stage::Locked, Stage::Locked),
        GENERATION => (Stage::PreAlpha, Stage::Beta, Stage::Locked),
        OPTIMIZED_SELECTOR_STORE | STALE_CONSISTENCY => (Stage::PreAlpha, Stage::Beta, Stage::Beta),
        POD_LEVEL_RESOURCES => (Stage::Beta, Stage::Beta, Stage::Beta),
        _ => return None,
    };
    Some(match version {
        Version::V1_36 => in_1_36,
        Version::V1_37 => in_1_37,
        Version::V1_38 => in_1_38,
    })
}

impl Gates {
    /// Resolves items of the form `component:Gate=bool`. The component may be empty, omitted or `kube`.
    ///
    /// # Errors
    /// Returns the first invalid item.
    pub fn resolve(version: Version, items: &[String]) -> Result<(Self, WithoutEffect), GateError> {
        let mut set = BTreeMap::new();
        let mut without_effect = WithoutEffect::default();
        for item in items {
            let gate = match item.split_once(':').unwrap_or(("", item)) {
                ("" | "kube", "") => continue,
                ("" | "kube", gate) => gate,
                (component, _) => return Err(GateError::Component(component.to_owned())),
            };
            let (name, value) = gate.split_once('=').ok_or_else(|| GateError::NoValue(gate.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let on = parse_bool(value).map_err(|error| GateError::Value {
                gate: name.to_owned(),
                value: value.to_owned(),
                error: error.to_string(),
            })?;
            match stage(name, version) {
                Some(Stage::PreAlpha) => {
                    return Err(GateError::PreAlpha { gate: name.to_owned(), on, version: version.name() });
                }
                Some(Stage::Locked) if !on => return Err(GateError::Locked(name.to_owned())),
                Some(Stage::Locked) => add(&mut without_effect.locked, name),
                None if !matches!(name, "AllAlpha" | "AllBeta") => add(&mut without_effect.unknown, name),
                _ => {}
            }
            set.insert(name, on);
        }
        let on = |gate| {
            let by_stage = match stage(gate, version) {
                None | Some(Stage::PreAlpha) => return false,
                Some(Stage::Locked) => return true,
                Some(Stage::Alpha) => set.get("AllAlpha").copied().unwrap_or(false),
                Some(Stage::Beta) => set.get("AllBeta").copied().unwrap_or(true),
            };
            set.get(gate).copied().unwrap_or(by_stage)
        };
        let gates = Self {
            scale_to_zero: on(SCALE_TO_ZERO),
            configurable_tolerance: on(CONFIGURABLE_TOLERANCE),
            generation: on(GENERATION),
            optimized_selector_store: on(OPTIMIZED_SELECTOR_STORE),
            pod_level_resources: on(POD_LEVEL_RESOURCES),
            stale_consistency: on(STALE_CONSISTENCY),
        };
        Ok((gates, without_effect))
    }

    /// Sets the gates that affect decisions in the settings of the core.
    pub fn apply(self, settings: &mut Settings) {
        settings.scale_to_zero = self.scale_to_zero;
        settings.configurable_tolerance = self.configurable_tolerance;
        settings.optimized_selector_store = self.optimized_selector_store;
        settings.pod_level_resources = self.pod_level_resources;
        settings.generation = self.generation;
    }
}

fn add(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|other| other == name) {
        names.push(name.to_owned());
    }
}

/// Parses `--emulated-version`, such as `1.36`, `v1.37` or `kube=1.36`. All items must have the same version.
pub(super) fn parse_versions(items: &[String]) -> Result<Version, GateError> {
    let mut version = None;
    for item in items {
        let (component, text) = match item.split_once('=') {
            Some((component, text)) => (component.trim(), text.trim()),
            None => ("kube", item.trim()),
        };
        if component != "kube" {
            return Err(GateError::Component(component.to_owned()));
        }
        let name = text.strip_prefix('v').unwrap_or(text);
        let parsed = Version::named(name.strip_suffix(".0").unwrap_or(name))
            .ok_or_else(|| GateError::Version(text.to_owned()))?;
        if version.replace(parsed).is_some_and(|previous| previous != parsed) {
            return Err(GateError::TwoVersions);
        }
    }
    Ok(version.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(version: Version, items: &[&str]) -> Result<(Gates, WithoutEffect), String> {
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        Gates::resolve(version, &items).map_err(|error| error.to_string())
    }

    fn gates(version: Version, items: &[&str]) -> Gates {
        resolve(version, items).unwrap().0
    }

    #[test]
    fn defaults_equal_the_settings_of_the_version() {
        for version in Version::ALL {
            let mut settings = Settings::new(version);
            gates(version, &[]).apply(&mut settings);
            assert_eq!(settings, Settings::new(version));
        }
        assert!(gates(Version::V1_37, &[]).stale_consistency);
        assert!(gates(Version::V1_38, &[]).stale_consistency);
        assert!(!gates(Version::V1_36, &[]).stale_consistency);
    }

    #[test]
    fn gate_is_set_with_or_without_the_component() {
        assert!(!gates(Version::V1_37, &["HPAScaleToZero=false"]).scale_to_zero);
        assert!(!gates(Version::V1_37, &["kube:HPAScaleToZero=false"]).scale_to_zero);
        assert!(gates(Version::V1_36, &["HPAScaleToZero=true"]).scale_to_zero);
        assert!(gates(Version::V1_37, &["HPAScaleToZero=false", "HPAScaleToZero=true"]).scale_to_zero);
        assert_eq!(
            resolve(Version::V1_37, &["wardle:X=true"]).unwrap_err(),
            "component not registered: wardle"
        );
    }

    #[test]
    fn locked_gate_accepts_only_its_value() {
        let error = resolve(Version::V1_37, &["HPAConfigurableTolerance=false"]).unwrap_err();
        assert_eq!(
            error,
            "cannot set feature gate HPAConfigurableTolerance to false, feature is locked to true"
        );
        assert!(gates(Version::V1_37, &["HPAConfigurableTolerance=true"]).configurable_tolerance);
        let error = resolve(Version::V1_38, &["HPAGeneration=false"]).unwrap_err();
        assert_eq!(error, "cannot set feature gate HPAGeneration to false, feature is locked to true");
        assert!(gates(Version::V1_38, &["AllBeta=false"]).generation);
        assert!(!gates(Version::V1_37, &["HPAGeneration=false"]).generation);
        assert!(!gates(Version::V1_36, &["HPAConfigurableTolerance=false"]).configurable_tolerance);
    }

    #[test]
    fn locked_gates_that_are_set_are_reported_once() {
        let locked = |version| {
            let items = ["HPAGeneration=true", "HPAScaleToZero=true", "HPAGeneration=true"];
            resolve(version, &items).unwrap().1.locked
        };
        assert_eq!(locked(Version::V1_37), [""; 0]);
        assert_eq!(locked(Version::V1_38), ["HPAGeneration"]);
    }

    #[test]
    fn gate_of_a_later_version_cannot_be_set() {
        let error = resolve(Version::V1_36, &["HPAGeneration=true"]).unwrap_err();
        assert_eq!(
            error,
            "cannot set feature gate HPAGeneration to true, feature is PreAlpha at emulated version 1.36"
        );
    }

    #[test]
    fn all_alpha_and_all_beta_set_gates_that_are_not_named() {
        assert!(gates(Version::V1_36, &["AllAlpha=true"]).scale_to_zero);
        let some = gates(Version::V1_37, &["AllBeta=false", "HPAGeneration=true"]);
        assert!(!some.scale_to_zero && some.generation && some.configurable_tolerance);
    }

    #[test]
    fn gates_of_overlap_and_pod_requests_can_be_disabled() {
        let off = gates(Version::V1_37, &["HPAOptimizedSelectorStore=false", "PodLevelResources=false"]);
        assert!(!off.optimized_selector_store && !off.pod_level_resources);
        let old = gates(Version::V1_36, &[]);
        assert!(!old.optimized_selector_store && old.pod_level_resources);
        assert!(!gates(Version::V1_36, &["AllBeta=false"]).pod_level_resources);
    }

    #[test]
    fn unknown_gates_are_reported_once() {
        let (_, without_effect) = resolve(Version::V1_37, &["A=true", "B=false", "A=false"]).unwrap();
        assert_eq!(without_effect.unknown, ["A", "B"]);
        assert_eq!(resolve(Version::V1_37, &["A"]).unwrap_err(), "missing bool value for A");
        assert_eq!(
            resolve(Version::V1_37, &["A=on"]).unwrap_err(),
            "invalid value of A=on, err: strconv.ParseBool: parsing \"on\": invalid syntax"
        );
    }

    #[test]
    fn versions_are_parsed_in_every_spelling() {
        let parse =
            |items: &[&str]| parse_versions(&items.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parse(&[]), Ok(Version::V1_37));
        assert_eq!(parse(&["1.36"]), Ok(Version::V1_36));
        assert_eq!(parse(&["v1.37"]), Ok(Version::V1_37));
        assert_eq!(parse(&["kube=1.36"]), Ok(Version::V1_36));
        assert_eq!(parse(&["v1.38.0"]), Ok(Version::V1_38));
        assert_eq!(
            parse(&["1.35"]).unwrap_err().to_string(),
            "emulated version \"1.35\" is none of 1.36, 1.37, 1.38"
        );
        assert!(parse(&["1.36", "1.37"]).is_err());
        assert!(parse(&["wardle=1.36"]).is_err());
    }
}
