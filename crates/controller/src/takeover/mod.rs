//! Takeover: keeps Concertina from acting on HPAs at the same time as another controller.
//!
//! Three signs show another controller:
//!
//! - A field manager other than Concertina's wrote the status of an HPA: its entry in `managedFields` moved.
//!   Only this sign counts. Every controller of HPAs writes statuses and therefore leaves this sign.
//! - A status write by Concertina conflicted although it was based on a fresh read. The conflict may come
//!   from a changed spec, so this sign only triggers a read of the HPA that bypasses the watch cache.
//! - A count that Concertina wrote was undone before the next sync, twice in a row. Controllers that manage a
//!   Deployment from a repository undo counts too, and the built-in controller ignores such changes. This sign
//!   therefore only triggers a read of the HPA and a log line. Otherwise a user with permission to scale one
//!   Deployment could stop all scaling in the cluster.
//!
//! `machine` decides. [`TakeOver`] observes, checks, reports, and opens and closes the write gate. `foreign`
//! recognizes foreign writes.

mod driver;
pub mod foreign;
pub mod machine;

pub use self::driver::{Parts, TakeOver};
