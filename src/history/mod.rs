//! Histories that survive the process that made them.

pub mod checkpoint;
pub mod rebuild;
pub mod replica;
mod restore;

pub use self::restore::{Restored, restore};
