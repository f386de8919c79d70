//! Logs and metrics.

pub mod exposition;
pub mod metrics;
mod process;
pub mod logging;
