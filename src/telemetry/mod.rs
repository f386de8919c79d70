//! Logs and metrics.

pub mod exposition;
pub mod logging;
pub mod metrics;
mod process;
