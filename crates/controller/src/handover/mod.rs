//! The handover of single HPAs between the built-in controller and this instance, for `--scope=labelled`.
//!
//! A label on an HPA or on its namespace puts the HPA in scope. [`scope`] decides by the labels, [`machine`] decides
//! when an HPA in scope may be written, and [`charges`] holds the machines and decides for every write whether it may
//! be sent. `outside` keeps the data of HPAs out of scope that the detection of shared pods needs. `moves` moves HPAs
//! between the store and `outside`, `namespaces` watches the labels of namespaces, and [`Handover`] drives the
//! machines and reports.

pub mod admission;
pub mod charges;
mod driver;
pub mod machine;
mod moves;
mod namespaces;
pub mod objects;
mod outside;
pub mod page;
pub mod proof;
pub mod scope;

pub use self::driver::{Handover, Parts};
pub use self::namespaces::{NamespaceIntake, Namespaces};
