//! Concertina: a drop-in replacement for Kubernetes' HorizontalPodAutoscaler controller.
//!
//! The map of the modules and the path of one sync through them: `docs/architecture.md`.

pub mod api;
pub mod app;
pub mod cli;
pub mod clock;
#[cfg(feature = "tools")]
pub mod commands;
pub mod controller;
pub mod duration;
pub mod election;
#[cfg(feature = "tools")]
pub mod embedded;
pub mod history;
pub mod permissions;
mod platform;
pub mod process;
pub mod record;
pub mod serve;
pub mod shadow;
pub mod store;
pub mod takeover;
pub mod targets;
pub mod telemetry;
