//! The HorizontalPodAutoscaler controller without its process: its construction from the [`engine`] and its guests, and
//! the division of work between replicas.
//!
//! [`assembly`] builds a controller. [`record`] and [`history`] contain past decisions. [`policy`] applies scaling
//! policies to HPAs. [`election`], [`takeover`] and [`handover`] decide which HPAs this controller may write. [`shadow`]
//! compares its decisions with those of another controller.

pub mod assembly;
pub mod election;
pub mod handover;
pub mod options;
pub mod page;
pub mod policy;
pub mod shadow;
pub mod takeover;
