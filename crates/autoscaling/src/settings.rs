//! The flags and feature gates of kube-controller-manager that affect a decision.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The flags and feature gates of one controller. Their names and defaults are those of Kubernetes.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "gates are set one by one")]
pub struct Settings {
    /// `--horizontal-pod-autoscaler-tolerance`, a fraction.
    pub tolerance: f64,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    pub downscale_stabilization: Duration,
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`.
    pub cpu_initialization_period: Duration,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`.
    pub initial_readiness_delay: Duration,
    /// `--emulated-version`.
    pub version: Version,
    /// Gate HPAScaleToZero: the controller sets the condition `ScaledToZero`, and scales a target up from zero replicas
    /// if the condition is `True`.
    pub scale_to_zero: bool,
    /// Gate HPAGeneration: the status contains `observedGeneration`.
    pub generation: bool,
    /// Gate HPAConfigurableTolerance: `behavior.*.tolerance` has an effect.
    pub configurable_tolerance: bool,
    /// Gate HPAOptimizedSelectorStore: the message about HPAs that control the same pods names only two of them.
    pub optimized_selector_store: bool,
    /// Gate PodLevelResources: for Resource metrics, pod-level requests take precedence over those of containers.
    pub pod_level_resources: bool,
    /// `--status-precision` of this controller. Affects no decision.
    pub status_precision: StatusPrecision,
}

/// The largest change of a metric that needs no status write, in percent of its target. The default is 0: every changed
/// status is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatusPrecision(pub(crate) u8);

/// The error for a text that is not a [`StatusPrecision`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a percentage from 0% to 100%")]
pub struct StatusPrecisionError;

impl FromStr for StatusPrecision {
    type Err = StatusPrecisionError;

    /// Parses a whole number of percent: `10%`, or `0`.
    fn from_str(text: &str) -> Result<Self, StatusPrecisionError> {
        let number =
            text.strip_suffix('%').or_else(|| (text == "0").then_some(text)).ok_or(StatusPrecisionError)?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let percent = number.parse().ok().filter(|percent| digits && *percent <= 100);
        percent.map(Self).ok_or(StatusPrecisionError)
    }
}

/// The minor version of Kubernetes whose rules and texts apply. In JSON, this is [`Version::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Version {
    /// Kubernetes 1.36.
    #[serde(rename = "1.36")]
    V1_36,
    /// Kubernetes 1.37, the default.
    #[default]
    #[serde(rename = "1.37")]
    V1_37,
    /// Kubernetes 1.38, as of its first beta.
    #[serde(rename = "1.38")]
    V1_38,
}

impl Version {
    /// All versions, from the oldest to the newest.
    pub const ALL: [Self; 3] = [Self::V1_36, Self::V1_37, Self::V1_38];

    /// The name of the version in flags and texts, such as `1.37`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
            Self::V1_38 => "1.38",
        }
    }

    /// Returns the version with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Whether the label `error` shows that the type of a metric is unknown. 1.36 loses the class of the error.
    pub(crate) fn labels_unknown_types(self) -> bool {
        self >= Self::V1_37
    }

    /// Whether the selector of a Scale may contain `key!=value`.
    pub(crate) fn allows_scale_not_equals(self) -> bool {
        self >= Self::V1_38
    }

    /// Whether conditions name an Object metric with a target per pod by its kind. Before, they name it like an
    /// External metric.
    pub(crate) fn names_object_averages_by_kind(self) -> bool {
        self >= Self::V1_38
    }

    /// Whether the status shows a saturated Object value undivided, like a saturated External sum.
    pub(crate) fn shows_saturated_objects_undivided(self) -> bool {
        self >= Self::V1_38
    }

    /// Whether the error about a missing request names sidecars before containers.
    pub(crate) fn checks_sidecars_first(self) -> bool {
        self >= Self::V1_38
    }
}

impl Settings {
    /// The default flags and gates of a version.
    pub fn new(version: Version) -> Self {
        let since_1_37 = version >= Version::V1_37;
        Self {
            tolerance: 0.1,
            downscale_stabilization: Duration::from_mins(5),
            cpu_initialization_period: Duration::from_mins(5),
            initial_readiness_delay: Duration::from_secs(30),
            version,
            scale_to_zero: since_1_37,
            generation: since_1_37,
            configurable_tolerance: true,
            optimized_selector_store: since_1_37,
            pod_level_resources: true,
            status_precision: StatusPrecision::default(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(Version::default())
    }
}
