//! Drives the syncs.

pub mod queue;
