//! The controller's flags in a scenario, parsed like a command line.

use std::collections::BTreeMap;

use super::Sources;
use super::problem::Problem;
use super::reading::suggestion;
use super::values::FlagText;
use crate::process::{FlagError, Process, ResolvedFlags};

/// Resolves the flags to the controller's options.
pub(super) fn read(
    flags: &BTreeMap<String, FlagText>,
    sources: Sources<'_>,
    process: Process,
) -> Result<ResolvedFlags, Problem> {
    let word = |name: &str, value: &FlagText| format!("--{name}={}", value.0);
    // Each flag is first parsed alone, so that an error has the flag's line.
    for (name, value) in flags {
        let at = |message: String| sources.problem(&format!("flags.{name}"), message);
        match process.resolve(vec![word(name, value)]) {
            Ok(_) => {}
            Err(FlagError::Unknown(_)) => {
                let known = process.flags();
                let valid: Vec<_> = known.iter().map(|flag| flag.name.as_str()).collect();
                return Err(at(format!("unknown flag{}", suggestion(name, &valid))));
            }
            Err(error) => return Err(at(error.to_string())),
        }
    }
    let words = flags.iter().map(|(name, value)| word(name, value)).collect();
    process.resolve(words).map_err(|error| sources.problem("flags", error.to_string()))
}
