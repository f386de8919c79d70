//! Concertina: a drop-in replacement for Kubernetes' HorizontalPodAutoscaler controller.
//!
//! This package is the process: flags, configuration, permissions, serving, start and stop.
//! `docs/architecture.md` describes the crates below it and the path of one sync.

pub mod app;
pub mod cli;
#[cfg(feature = "tools")]
pub mod commands;
pub mod invocation;
pub mod logging;
pub mod permissions;
pub mod process;
pub mod serve;
