//! Subcommands: one file each.

pub mod demo;
pub mod simulate;
pub mod story;
pub mod why;
