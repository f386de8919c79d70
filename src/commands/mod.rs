//! The subcommands, one file each.

pub mod demo;
pub mod forward;
pub mod options;
pub mod parity;
pub mod simulate;
pub mod story;
pub mod why;
