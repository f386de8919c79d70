//! The metrics of the process and their exposition.

mod coordination;
pub mod declarations;
mod exposition;
pub mod metrics;
mod requests;
mod series;

pub use self::requests::RequestMetrics;
