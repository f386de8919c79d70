//! Concertina: a drop-in replacement for Kubernetes' HorizontalPodAutoscaler controller.
//!
//! This package contains the process: flags, configuration, permissions, serving, start and stop.
//! `docs/architecture.md` describes the other crates and the path of one sync.

pub mod app;
pub mod cli;
pub mod console;
mod exit;
pub mod handover;
pub mod invocation;
pub mod logging;
pub mod permissions;
pub mod process;
pub mod serve;
#[cfg(feature = "tools")]
pub mod tools;
#[cfg(not(feature = "tools"))]
#[path = "no_tools.rs"]
pub mod tools;
