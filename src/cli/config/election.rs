//! Leader election among replicas, history checkpoints, and the reaction to other controllers.

use std::str::FromStr;

use super::reader::Reader;
use crate::cli::flags::FlagError;
use crate::cli::values::Value;
use controller::election::{Timing, TimingError};
use controller::history::checkpoint::CheckpointPlace;

/// The default name of the Lease.
const LEASE: &str = "concertina";
/// The Lease of kube-controller-manager. Holding it would stop all controllers of kube-controller-manager.
const FOREIGN_LEASE: &str = "kube-controller-manager";

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

impl Election {
    /// Reads the election flags. Returns `None` for `--leader-elect=false`.
    pub(super) fn read(read: &Reader<'_>, warnings: &mut Vec<String>) -> Result<Option<Self>, FlagError> {
        let elects = read.checked("leader-elect", |value| Ok(*value == Value::Bool(true)))?;
        let timing = Timing {
            lease: read.duration("leader-elect-lease-duration")?,
            renew_deadline: read.duration("leader-elect-renew-deadline")?,
            retry: read.duration("leader-elect-retry-period")?,
        };
        if !elects {
            return Ok(None);
        }
        read.checked("leader-elect-resource-lock", |value| match value {
            Value::Text(kind) if kind == "leases" => Ok(()),
            _ => Err("must be leases".to_owned()),
        })?;
        timing.validate().map_err(|error| {
            let flag = match error {
                TimingError::Lease | TimingError::TooShort => "leader-elect-lease-duration",
                TimingError::RenewDeadline => "leader-elect-renew-deadline",
                TimingError::Retry => "leader-elect-retry-period",
            };
            read.invalid(flag, error.to_string())
        })?;
        let namespace = namespace(read);
        let name = match read.text("leader-elect-resource-name") {
            None => LEASE.to_owned(),
            Some(name) if name == FOREIGN_LEASE => {
                warnings.push(format!(
                    "--leader-elect-resource-name={FOREIGN_LEASE} is not used: that Lease belongs to \
                     kube-controller-manager; {namespace}/{LEASE} is used instead"
                ));
                LEASE.to_owned()
            }
            Some(name) => name,
        };
        Ok(Some(Self { namespace, name, timing }))
    }
}

/// Returns the location of the histories for `--history-checkpoint`, or `None` without the flag.
pub(super) fn history_checkpoint(read: &Reader<'_>) -> Result<Option<CheckpointPlace>, FlagError> {
    let enabled = read.checked("history-checkpoint", |value| Ok(*value == Value::Bool(true)))?;
    let name = read.text("leader-elect-resource-name").filter(|name| name != FOREIGN_LEASE);
    let name = name.unwrap_or_else(|| LEASE.to_owned());
    Ok(enabled.then(|| CheckpointPlace { namespace: namespace(read), name }))
}

fn namespace(read: &Reader<'_>) -> String {
    read.text("leader-elect-resource-namespace").unwrap_or_else(|| "kube-system".to_owned())
}

/// `--takeover`: the reaction to another controller that acts on the same HPAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TakeOver {
    /// Write nothing until the other controller has stopped.
    #[default]
    Wait,
    /// Warn, and act nevertheless.
    Warn,
    /// Do not check.
    Off,
}

impl FromStr for TakeOver {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "wait" => Ok(Self::Wait),
            "warn" => Ok(Self::Warn),
            "off" => Ok(Self::Off),
            _ => Err("must be wait, warn or off".to_owned()),
        }
    }
}
