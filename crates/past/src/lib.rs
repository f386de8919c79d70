//! The commands that read a recorded load. No cluster is read or written.

pub mod forecast;
