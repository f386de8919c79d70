//! Replays of a recorded load with one HPA: alone, with the floors of a [`forecast`], with a lower target, and with an
//! oracle.
//!
//! The crate has no clock: a replay is in the time of its series.
//!
//! | module | contents |
//! |---|---|
//! | [`series`] | a load per minute, read from a CSV file |
//! | [`replay`] | the HPA, its pods and its metrics in the time of a series |
//! | [`contest`] | the contestants, and the forecast for each minute |
//! | [`page`] | the report as an HTML page |

pub mod contest;
pub mod number;
pub mod page;
pub mod replay;
pub mod series;
#[cfg(test)]
mod tests;
