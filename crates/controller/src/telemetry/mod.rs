//! Logs and metrics.

pub mod declarations;
mod exposition;
pub mod metrics;
mod negotiation;
mod process;
mod requests;
mod series;

pub use self::requests::RequestMetrics;
