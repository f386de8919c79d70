//! Histories that outlive their process.

pub mod checkpoint;
pub mod codec;
pub mod rebuild;
pub mod replica;
mod restore;

pub use self::restore::{RestoreCounts, restore};
