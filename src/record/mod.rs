//! The record of decisions: the last ones of each HPA, kept small, served as JSON.

pub mod wire;
