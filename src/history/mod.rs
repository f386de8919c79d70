//! What is remembered of HPAs, beyond the life of one process.

pub mod checkpoint;
pub mod rebuild;
mod restore;

pub use self::restore::{Restored, restore};
