//! Leader election among replicas, and the reaction to other controllers.

use controller::election::Timing;

/// The default name of the Lease.
pub(super) const LEASE: &str = "concertina";
/// The Lease of kube-controller-manager. Holding it would stop all controllers of kube-controller-manager.
pub(super) const FOREIGN_LEASE: &str = "kube-controller-manager";

/// Leader election with a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// `--leader-elect-resource-name`. Never the name of kube-controller-manager's Lease.
    pub name: String,
    /// `--leader-elect-lease-duration`, `--leader-elect-renew-deadline` and `--leader-elect-retry-period`.
    pub timing: Timing,
}

impl Default for Election {
    fn default() -> Self {
        Self { namespace: "kube-system".to_owned(), name: LEASE.to_owned(), timing: Timing::default() }
    }
}

/// `--takeover`: the reaction to another controller that acts on the same HPAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TakeOver {
    /// Write nothing until the other controller has stopped.
    #[default]
    Wait,
    /// Warn, and still act.
    Warn,
    /// Do not check.
    Off,
}
