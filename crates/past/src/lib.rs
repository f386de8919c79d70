//! The commands that look at the past of a load. None changes a cluster.
//!
//! | module | commands |
//! |---|---|
//! | [`advise`] | `concertina advise`: better settings for the HPAs of a cluster, from Prometheus |
//! | [`forecast`] | `concertina forecast`: tries floors on a recorded load |

pub mod advise;
pub mod forecast;
#[cfg(test)]
#[expect(dead_code, reason = "no document here has an object of another crate")]
#[path = "../../../tests/support/schemas.rs"]
mod schemas;
