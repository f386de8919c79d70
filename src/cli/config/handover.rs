//! The handover of HPAs from the built-in controller: the scope, and the guard that refuses the built-in controller's
//! writes.

#![allow(clippy::needless_pass_by_value, reason = "a check consumes the value of its flag")]

use controller::handover::objects::BUILT_IN_USERS;
use controller::handover::scope::{ControllerName, Scope};

use crate::cli::error::Reason;

/// `--handover-guard`: the mechanism that keeps the built-in controller from writing the HPAs in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverGuard {
    /// A validating webhook that every replica serves. Only with `--scope=labelled`.
    Webhook,
    /// Validating admission policies. Only with `--scope=labelled`.
    Policy,
    /// The built-in controller's role binding without subjects. Only with `--scope=all`.
    Rbac,
    /// kube-controller-manager's flag `--controllers`. Only with `--scope=all`.
    Flag,
    /// No guard is configured.
    None,
}

/// Options of the handover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverOptions {
    /// `--handover-guard`.
    pub guard: HandoverGuard,
    /// `--built-in-users`: the users as which the built-in controller writes. Not empty with a guard that needs users.
    pub built_in_users: Vec<String>,
}

/// The default of `--built-in-users`, as pflag prints it.
pub(in crate::cli) const BUILT_IN_USERS_TEXT: &str = "[system:serviceaccount:kube-system:horizontal-pod-autoscaler,\
     system:kube-controller-manager,system:vpa-recommender]";

impl Default for HandoverOptions {
    fn default() -> Self {
        let built_in_users = BUILT_IN_USERS.map(str::to_owned).to_vec();
        Self { guard: HandoverGuard::None, built_in_users }
    }
}

impl HandoverGuard {
    /// The value of the flag.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Policy => "policy",
            Self::Rbac => "rbac",
            Self::Flag => "flag",
            Self::None => "none",
        }
    }

    /// Whether the guard refuses requests by their user.
    pub fn checks_users(self) -> bool {
        matches!(self, Self::Webhook | Self::Policy)
    }
}

pub(in crate::cli) fn scope(word: String) -> Result<Scope, Reason> {
    match word.as_str() {
        "all" => Ok(Scope::All),
        "labelled" => Ok(Scope::Labelled),
        _ => Err(Reason::MustBe("all or labelled")),
    }
}

pub(in crate::cli) fn controller_name(name: String) -> Result<ControllerName, Reason> {
    ControllerName::new(&name).map_err(|error| Reason::Text(error.to_string()))
}

pub(in crate::cli) fn built_in_users(users: Vec<String>) -> Result<Vec<String>, Reason> {
    if users.iter().any(String::is_empty) {
        return Err(Reason::MustBe("user names, such as system:kube-controller-manager"));
    }
    Ok(users)
}

/// Parses `--handover-guard`. Empty selects the guard by the scope.
pub(in crate::cli) fn guard(word: String) -> Result<Option<HandoverGuard>, Reason> {
    match word.as_str() {
        "" => Ok(None),
        "webhook" => Ok(Some(HandoverGuard::Webhook)),
        "policy" => Ok(Some(HandoverGuard::Policy)),
        "rbac" => Ok(Some(HandoverGuard::Rbac)),
        "flag" => Ok(Some(HandoverGuard::Flag)),
        "none" => Ok(Some(HandoverGuard::None)),
        _ => Err(Reason::MustBe("webhook, policy, rbac, flag or none")),
    }
}
