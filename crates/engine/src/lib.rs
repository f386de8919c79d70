//! The engine of the controller: it stores the watched objects, and syncs the HPAs.
//!
//! [`store`] contains the watched objects, [`reconcile`] syncs HPAs, and [`targets`] reads replica counts.
//! [`telemetry`] counts and measures, and [`tasks`] supervises background tasks. The guests of a sync, such as
//! scaling policies or the handover, are in other crates, behind the traits of [`reconcile`].

pub mod reconcile;
pub mod store;
pub mod targets;
pub mod tasks;
pub mod telemetry;
