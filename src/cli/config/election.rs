//! Who acts: leader election among replicas, and what is done about other controllers.

use std::str::FromStr;

use super::reader::Reader;
use crate::cli::flags::FlagError;
use crate::cli::values::Value;
use crate::election::{Timing, TimingError};

/// The name of the Lease, unless another is asked for.
const LEASE: &str = "concertina";
/// The Lease of kube-controller-manager: whoever held it would stop all its controllers.
const FOREIGN_LEASE: &str = "kube-controller-manager";

/// Leader election with a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// `--leader-elect-resource-name`, but never kube-controller-manager's.
    pub name: String,
    /// `--leader-elect-lease-duration`, `-renew-deadline` and `-retry-period`.
    pub timing: Timing,
}

impl Default for Election {
    fn default() -> Self {
        Self { namespace: "kube-system".to_owned(), name: LEASE.to_owned(), timing: Timing::default() }
    }
}

impl Election {
    /// What the flags ask for; none with `--leader-elect=false`.
    pub(super) fn read(read: &Reader<'_>, warnings: &mut Vec<String>) -> Result<Option<Self>, FlagError> {
        let wanted = read.checked("leader-elect", |value| Ok(*value == Value::Bool(true)))?;
        let timing = Timing {
            lease: read.duration("leader-elect-lease-duration")?,
            renew_deadline: read.duration("leader-elect-renew-deadline")?,
            retry: read.duration("leader-elect-retry-period")?,
        };
        if !wanted {
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
        let namespace =
            read.text("leader-elect-resource-namespace").unwrap_or_else(|| "kube-system".to_owned());
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

/// What to do about another controller that acts on the same HPAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TakeOver {
    /// Write nothing before it is known to have stopped.
    #[default]
    Wait,
    /// Say so and go on.
    Warn,
    /// Do not look.
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
