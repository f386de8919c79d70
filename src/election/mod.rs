//! Who leads: leader election on a Lease, by client-go's rules.
//!
//! `machine` decides and does nothing, `candidate` reads, writes and waits. Whoever leads may write until its renew
//! deadline and not a moment longer: the candidate moves the fence in the [write gate](crate::api::gate) with each
//! renewal, so that a process which slept, or whose renewal hangs, is stopped by its own clock before anybody else can
//! take the Lease.

mod candidate;
pub mod machine;
pub mod record;

pub use self::candidate::{Candidate, End, Parts, Standing, Timing, TimingError};
