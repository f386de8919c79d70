//! Replicates the histories of the leader to standbys, so that the next leader decides as if nothing had
//! happened.
//!
//! The leader serves changes ([`Source`]). The Lease contains the leader's address and the fingerprint of its
//! certificate ([`crate::election::Peer`]). A standby fetches changes about once a second ([`Follower`]).
//! When the standby becomes leader, it continues with its copy. On shutdown the leader waits for a limited
//! time until its standbys are up to date.

mod follow;
mod page;
pub mod peers;
mod standby_history;
#[cfg(test)]
mod tests;
pub mod transport;
mod wire;

pub use self::follow::{Follower, Parts};
pub use self::page::Source;
pub use self::standby_history::Handover;
#[cfg(fuzzing)]
pub use self::wire::again;
