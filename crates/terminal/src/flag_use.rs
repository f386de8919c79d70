//! The settings of a controller as flags, each with its origin.

use autoscaling::settings::Settings;
use serde::Serialize;

use crate::words::duration;
use flags::decision::{
    CPU_INITIALIZATION_PERIOD, DOWNSCALE_STABILIZATION, EMULATED_VERSION, FEATURE_GATES,
    INITIAL_READINESS_DELAY, TOLERANCE,
};

/// A flag that affects decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlagUse {
    /// The name without dashes, such as `horizontal-pod-autoscaler-tolerance`.
    pub name: &'static str,
    /// The value as on a command line.
    pub value: String,
    /// The source of the value.
    pub origin: FlagOrigin,
}

/// The source of the value of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FlagOrigin {
    /// The command line of this command.
    Given,
    /// The value is unknown, and the default is assumed.
    Assumed,
    /// The version of the API server, from which the value is derived.
    Server,
    /// The controller's record.
    Record,
}

/// Returns the settings as flags, each with the origin that `origin` returns for its name.
pub fn uses(settings: &Settings, origin: impl Fn(&'static str) -> FlagOrigin) -> Vec<FlagUse> {
    let mut gates = format!(
        "HPAConfigurableTolerance={},HPAGeneration={},HPAScaleToZero={}",
        settings.configurable_tolerance, settings.generation, settings.scale_to_zero
    );
    if !settings.pod_level_resources {
        gates.push_str(",PodLevelResources=false");
    }
    let values = [
        (TOLERANCE, settings.tolerance.to_string()),
        (DOWNSCALE_STABILIZATION, duration(settings.downscale_stabilization)),
        (CPU_INITIALIZATION_PERIOD, duration(settings.cpu_initialization_period)),
        (INITIAL_READINESS_DELAY, duration(settings.initial_readiness_delay)),
        (EMULATED_VERSION, settings.version.name().to_owned()),
        (FEATURE_GATES, gates),
    ];
    values.into_iter().map(|(name, value)| FlagUse { name, value, origin: origin(name) }).collect()
}
