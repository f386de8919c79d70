//! The commands for a terminal: `why`, `console`, `policy`, `sources`, `handover`, `parity`, `simulate` and `demo`.
//!
//! Commands that decide run the controller's own code: `why`, `console` and
//! `simulate` run a controller with options from flags, and `demo` runs the whole process, which the program passes as
//! a function.

pub mod address;
pub mod console;
pub mod demo;
pub mod explain;
pub mod flag_use;
pub mod forward;
pub mod handover;
mod namespaces;
pub mod options;
pub mod parity;
pub mod policy;
pub mod simulate;
mod values;
pub mod why;
mod words;
