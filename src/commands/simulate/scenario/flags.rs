//! The controller's flags in a scenario, parsed like a command line.

use std::collections::BTreeMap;

use super::Sources;
use super::problem::Problem;
use super::reading::suggestion;
use super::values::FlagText;
use crate::cli::config::Config;
use crate::cli::flags::{FlagError, Purpose, Raw, Table};
use crate::cli::{kcm, own};

/// Resolves the flags to the controller's configuration.
pub(super) fn read(flags: &BTreeMap<String, FlagText>, sources: Sources<'_>) -> Result<Config, Problem> {
    let table = Table::new(&[kcm::FLAGS, kcm::REMOVED_FLAGS, own::FLAGS]);
    let word = |name: &str, value: &FlagText| format!("--{name}={}", value.0);
    // Each flag is first parsed alone, so that an error has the flag's line.
    for (name, value) in flags {
        let at = |message: String| sources.problem(&format!("flags.{name}"), message);
        let one = Raw::parse([word(name, value)], &table).and_then(|raw| Config::resolve(&raw, &table));
        match one {
            Ok(_) => {}
            Err(FlagError::Unknown(_)) => {
                let valid: Vec<_> = table
                    .flags()
                    .filter(|flag| matches!(flag.purpose, Purpose::Here { .. }))
                    .map(|flag| flag.name)
                    .collect();
                return Err(at(format!("unknown flag{}", suggestion(name, &valid))));
            }
            Err(error) => return Err(at(error.to_string())),
        }
    }
    let words = flags.iter().map(|(name, value)| word(name, value));
    Raw::parse(words, &table)
        .and_then(|raw| Config::resolve(&raw, &table))
        .map_err(|error| sources.problem("flags", error.to_string()))
}
