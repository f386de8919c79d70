//! The HorizontalPodAutoscaler controller without its process: its construction from the [`engine`] and its guests, and
//! the division of work between replicas.
//!
//! [`assembly`] builds a controller from [`options`]. [`policy`] applies scaling policies to HPAs. [`election`] decides
//! which replica acts, and [`page`] has the paths of the pages.

pub mod assembly;
pub mod election;
pub mod options;
pub mod page;
pub mod policy;
