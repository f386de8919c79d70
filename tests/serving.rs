//! The secure port over real TCP and TLS, with an embedded API server for the reviews.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test may panic")]

#[path = "serving/access.rs"]
mod access;
#[path = "serving/certificates.rs"]
mod certificates;
#[path = "serving/console.rs"]
mod console_page;
#[path = "serving/harness.rs"]
mod harness;
#[path = "serving/hostile_clients.rs"]
mod hostile_clients;
#[path = "serving/replicas.rs"]
mod replicas;
#[path = "serving/webhook.rs"]
mod webhook;
