//! Subcommands: one file each.

pub mod demo;
pub mod parity;
pub mod simulate;
pub mod story;
pub mod why;
