//! The command lines of the tools, one module per command.

pub mod answer;
pub mod cluster;
pub mod decision;
pub(crate) mod demo;
pub mod parity;
pub(crate) mod simulate;
pub mod why;

pub use self::answer::Logging;
pub use self::demo::DemoOptions;
pub use self::parity::ParityOptions;
pub use self::simulate::{Outputs as SimulateOutputs, SimulateOptions, Source as SimulateSource};
pub use self::why::WhyOptions;
