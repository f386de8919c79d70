//! Histories that survive the process that made them.

pub mod replica;
