//! The handover of single HPAs between the built-in controller and this instance, for `--scope=labelled`.
//!
//! A label on an HPA or on its namespace puts the HPA in scope. [`scope`] reads the labels, and [`machine`] decides
//! when this instance may write an HPA in scope. [`charges`] contains the machines, issues the permits for writes, and
//! keeps the data of HPAs out of scope that the detection of shared pods needs. `moves` moves HPAs in and out of the
//! store and watches the labels of namespaces. [`Handover`] drives the machines and reports.

pub mod admission;
pub mod charges;
mod driver;
pub mod machine;
mod moves;
pub mod objects;
pub mod page;
pub mod proof;
pub mod scope;

pub use self::driver::{Handover, Parts};
pub use self::moves::{NamespaceIntake, Namespaces};
