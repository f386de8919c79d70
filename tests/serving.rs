//! The secure port over real TCP and TLS, with an embedded cluster that reviews.

#[path = "serving/access.rs"]
mod access;
#[path = "serving/certificates.rs"]
mod certificates;
#[path = "serving/rig.rs"]
mod rig;
#[path = "serving/strangers.rs"]
mod strangers;
