//! Who acts: leader election among replicas, and what is done about other controllers.

use std::str::FromStr;

use super::reader::Reader;
use crate::cli::flags::FlagError;
use crate::cli::values::Value;
use crate::election::{Timing, TimingError};
use crate::history::checkpoint::MOST_SHARDS;

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

/// Where `--history-checkpoint` keeps histories: beside the Lease, also where nobody is elected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryCheckpoint {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// What the names of the ConfigMaps begin with: that of the Lease, so that two that do not share a Lease do not
    /// share these either.
    pub name: String,
}

impl Default for HistoryCheckpoint {
    fn default() -> Self {
        Self { namespace: "kube-system".to_owned(), name: LEASE.to_owned() }
    }
}

impl HistoryCheckpoint {
    /// What the flags ask for.
    pub(super) fn read(read: &Reader<'_>) -> Result<Option<Self>, FlagError> {
        let wanted = read.checked("history-checkpoint", |value| Ok(*value == Value::Bool(true)))?;
        let name = read.text("leader-elect-resource-name").filter(|name| name != FOREIGN_LEASE);
        let name = name.unwrap_or_else(|| LEASE.to_owned());
        Ok(wanted.then(|| Self { namespace: namespace(read), name }))
    }

    /// The names of all its ConfigMaps: `concertina-history-0` and so on.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..MOST_SHARDS).map(|number| format!("{}-history-{number}", self.name))
    }
}

fn namespace(read: &Reader<'_>) -> String {
    read.text("leader-elect-resource-namespace").unwrap_or_else(|| "kube-system".to_owned())
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
