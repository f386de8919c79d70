//! The HorizontalPodAutoscaler controller without its process.
//!
//! [`assembly`] builds a controller from [`options`]: the [`engine`] with the [`rulebook`] of scaling policies, the
//! [`journal`] of decisions, and what lets it [`coexist`] with another controller. [`election`] decides which replica
//! acts, and [`page`] shows the handover.

pub mod assembly;
pub mod election;
pub mod options;
pub mod page;
