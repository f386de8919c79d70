//! Logs and metrics.

pub mod declarations;
mod exposition;
mod histogram;
mod labels;
pub mod metrics;
mod negotiation;
mod process;
mod requests;

pub use self::requests::RequestMetrics;
