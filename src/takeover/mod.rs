//! Take-over: never at work at the same time as another controller of the same HPAs.
//!
//! Three signs tell of another controller:
//!
//! - The status of an HPA was written by a field manager that is not ours: its entry in `managedFields` moved. That
//!   is the sign that counts; every controller of HPAs leaves it, because every one writes statuses.
//! - A status write of ours met a conflict although it was based on what was just read. Somebody wrote the HPA, but
//!   it may have been a person changing the spec: it makes us look at the HPA at once, past the watch.
//! - A count that we wrote was undone before our next sync, twice in a row. So do controllers that manage a
//!   Deployment from a repository, and the built-in loop goes on all the same: it makes us look and say so, no more.
//!   Otherwise whoever may scale one Deployment could stop all scaling in the cluster.
//!
//! `machine` decides, [`TakeOver`] sees, looks, tells and moves the write gate. `foreign` reads the signs.

mod driver;
pub mod foreign;
pub mod machine;
mod undone;

pub use self::driver::{Parts, TakeOver};
