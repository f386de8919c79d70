//! The handover of single HPAs between the built-in loop and this instance, for `--scope=labelled`.
//!
//! A label on an HPA or on its namespace puts the HPA in scope. [`scope`] decides by the labels, [`machine`]
//! decides when an HPA in scope may be written, and [`charges`] holds the machines and answers for every write
//! whether it may be sent.

pub mod charges;
pub mod machine;
pub mod scope;
