//! The Lease of a controller whose record a command reads, and the flags about it.

use std::str::FromStr;

use clap::{Arg, ArgMatches};

use super::{choice, option};

/// The Lease of a controller's replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The namespace of the Lease and of the controller's pods.
    pub namespace: String,
    /// The name of the Lease.
    pub lease: String,
    /// Whether the user named the Lease, with `--leader`. If not, its holder gets the user's credentials only if it is
    /// proven to be a controller.
    pub named: bool,
}

/// The namespaces of the default installations, in the order of the search for a Lease.
pub const NAMESPACES: [&str; 2] = ["concertina-system", "kube-system"];
/// The name of the Lease of the default installations.
const LEASE: &str = "concertina";

impl Leader {
    /// Returns the given Lease, or else the Leases of the default installations in the order of the search.
    pub fn candidates(given: Option<&Self>) -> Vec<Self> {
        let default =
            |namespace: &str| Self { namespace: namespace.to_owned(), lease: LEASE.to_owned(), named: false };
        given.map_or_else(|| NAMESPACES.map(default).into(), |given| vec![given.clone()])
    }
}

/// A text that names no Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be NAMESPACE/NAME of a Lease, such as {}/{LEASE}", NAMESPACES[0])]
pub struct LeaderError;

impl FromStr for Leader {
    type Err = LeaderError;

    fn from_str(text: &str) -> Result<Self, LeaderError> {
        let is_name = |name: &str| {
            let allowed =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
            !name.is_empty() && name.bytes().all(allowed)
        };
        match text.split_once('/') {
            Some((namespace, lease)) if is_name(namespace) && is_name(lease) => {
                Ok(Self { namespace: namespace.to_owned(), lease: lease.to_owned(), named: true })
            }
            _ => Err(LeaderError),
        }
    }
}

/// The heading of the flags about the record of a controller.
pub const RECORD: &str = "Record of a Concertina controller, which has its flags and its history";

/// Creates `--record`.
pub fn record() -> Arg {
    choice(
        "record",
        &["auto", "off"],
        "Whether to read the leader's record, by port-forward with your credentials; if it is unavailable, the \
         answer states the reason",
    )
    .help_heading(RECORD)
}

/// Creates `--leader`.
pub fn leader() -> Arg {
    option(
        "leader",
        "namespace/lease",
        "Lease of the controller; default: concertina-system/concertina, then kube-system/concertina",
    )
    .value_parser(|text: &str| text.parse::<Leader>())
}

/// Returns the Leases to search, in order. Empty with `--record=off`.
pub fn leaders(matches: &ArgMatches) -> Vec<Leader> {
    if matches.get_one::<String>("record").is_some_and(|record| record == "off") {
        return Vec::new();
    }
    Leader::candidates(matches.get_one::<Leader>("leader"))
}
