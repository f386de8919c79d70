//! Histories copied from the leader by replicas that stand by, so that whoever leads next decides as if nothing had
//! happened.
//!
//! The leader serves what has changed ([`Source`]); the Lease tells where, and by which certificate it is known
//! ([`link::Peer`]). A standby asks about once a second ([`Follower`]) and makes what it has its own when it leads. On the
//! way down the leader waits until those who follow it have everything, for a moment.

mod copy;
mod follow;
pub mod link;
mod page;
#[cfg(all(test, feature = "tools"))]
mod tests;
mod wire;

pub use self::copy::Inheritance;
pub use self::follow::{Follower, Parts};
pub use self::page::Source;
#[cfg(fuzzing)]
pub use self::wire::again;

/// Where a leader's histories are served.
pub const HISTORY: &str = "/history";
