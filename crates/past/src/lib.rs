//! The commands that look at the past of a load. None changes a cluster.

pub mod advise;
pub mod forecast;
#[cfg(test)]
#[expect(dead_code, reason = "no document here has an object of another crate")]
#[path = "../../../tests/support/schemas.rs"]
mod schemas;
