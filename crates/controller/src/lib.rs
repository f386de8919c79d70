//! The HorizontalPodAutoscaler controller without its process: its state, its syncs, and the division of work
//! between replicas.
//!
//! [`assembly`] builds a controller. [`store`] contains the watched objects, [`reconcile`] syncs HPAs, and [`targets`]
//! reads replica counts. [`record`] and [`history`] contain past decisions. [`policy`] applies scaling policies to
//! HPAs. [`election`], [`takeover`] and [`handover`] decide which HPAs this controller may write. [`shadow`] compares
//! its decisions with those of another controller. [`tasks`] supervises background tasks.

pub mod assembly;
mod decision_events;
pub mod election;
pub mod handover;
pub mod history;
pub mod options;
pub mod page;
pub mod policy;
pub mod reconcile;
pub mod record;
pub mod shadow;
pub mod store;
pub mod takeover;
pub mod targets;
pub mod tasks;
pub mod telemetry;
