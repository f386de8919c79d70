//! Names of values in policies.

use serde::{Deserialize, Serialize};

use super::{Cause, Combine, RolloutGuard, Strategy, ZeroMetrics};

/// What the controller may do with the replica count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Mode {
    /// Everything.
    #[default]
    Auto,
    /// Nothing.
    Paused,
    /// Scale up only.
    ScaleUpOnly,
    /// Scale down only.
    ScaleDownOnly,
    /// Keep a fixed count.
    Pinned,
    /// Report decisions without applying them.
    DryRun,
}

/// An enumeration in policies.
pub(super) trait Named: Copy + 'static {
    /// All values, each with its name in policies.
    const NAMES: &'static [(&'static str, Self)];
}

impl Named for Mode {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("Auto", Self::Auto),
        ("Paused", Self::Paused),
        ("ScaleUpOnly", Self::ScaleUpOnly),
        ("ScaleDownOnly", Self::ScaleDownOnly),
        ("Pinned", Self::Pinned),
        ("DryRun", Self::DryRun),
    ];
}

impl Mode {
    /// The name in policies and conditions.
    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

impl Named for Cause {
    const NAMES: &'static [(&'static str, Self)] = &[("Error", Self::Error), ("Empty", Self::Empty)];
}

impl Named for Combine {
    const NAMES: &'static [(&'static str, Self)] = &[("Max", Self::Max), ("Min", Self::Min)];
}

impl Named for Strategy {
    const NAMES: &'static [(&'static str, Self)] =
        &[("Static", Self::Static), ("AtLeast", Self::AtLeast), ("AtMost", Self::AtMost)];
}

impl Named for RolloutGuard {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("Ignore", Self::Ignore),
        ("Hold", Self::Hold),
        ("HoldScaleUp", Self::HoldScaleUp),
        ("HoldScaleDown", Self::HoldScaleDown),
    ];
}

impl Named for ZeroMetrics {
    const NAMES: &'static [(&'static str, Self)] = &[("Ignore", Self::Ignore), ("Hold", Self::Hold)];
}
