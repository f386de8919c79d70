//! The command lines of the tools, one module per command.

pub mod answer;
pub mod cluster;
pub(crate) mod console;
pub mod decision;
pub(crate) mod demo;
pub mod handover;
pub mod parity;
pub mod policy;
pub(crate) mod simulate;
pub mod why;

use std::time::Duration;

use autoscaling::duration::GoDuration;

pub use self::answer::Logging;
pub use self::console::ConsoleOptions;
pub use self::demo::DemoOptions;
pub use self::handover::HandoverOptions;
pub use self::parity::ParityOptions;
pub use self::policy::PolicyOptions;
pub use self::simulate::{
    Output as SimulateOutput, Outputs as SimulateOutputs, SimulateOptions, Source as SimulateSource,
};
pub use self::why::WhyOptions;

/// Parses a duration above zero.
fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<GoDuration>().map_err(|error| error.to_string())?;
    duration.unsigned().filter(|duration| !duration.is_zero()).ok_or_else(|| "must be above zero".to_owned())
}
