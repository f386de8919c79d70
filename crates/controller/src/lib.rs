//! The HorizontalPodAutoscaler controller without its process: its state, its syncs, and the division of work
//! between replicas.
//!
//! [`assembly`] builds a controller. [`store`] holds the watched objects, [`reconcile`] syncs HPAs, and [`targets`]
//! reads replica counts. [`record`] and [`history`] keep past decisions. [`policy`] applies user-defined rules for
//! single HPAs. [`election`], [`takeover`] and [`handover`] decide whether this controller acts. [`shadow`] compares it
//! with another controller. [`tasks`] supervises the tasks that feed a controller.

pub mod assembly;
mod codec;
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
