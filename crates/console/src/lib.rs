//! `concertina console`: a page with all HPAs of a cluster, served on a loopback address.
//!
//! One watch of HPAs fills a [`store::Store`] with [`row::Row`]s, which are computed from the object, so the page works
//! with any HPA controller. If a [`decisions::Record`] can be read, a row also has the controller's last decision. The
//! [`server`] sends the rows and their changes as server-sent events. The explanation of a single HPA comes from an
//! [`Explain`], the state of the controller from a [`controller::Inspect`], and the simulation of other fields from a
//! [`whatif::WhatIf`]. The caller implements these traits.
//!
//! The controller itself serves the same [`pages`] on its secure port. It fills the store from its own watch, and a
//! [`visibility::Review`] limits the rows to what the client may list.
//!
//! Views are pure: [`row`] computes values from values. The page itself is plain HTML, CSS and JavaScript in
//! `assets/`, compiled into the program.

pub mod access;
mod assets;
pub mod controller;
pub mod decisions;
mod headers;
pub mod observations;
pub mod pages;
pub mod row;
pub mod server;
mod simulation;
pub mod store;
mod stream;
pub mod visibility;
pub mod whatif;

use std::fmt::Debug;

use futures::future::BoxFuture;

use self::observations::Observation;
use self::row::Count;

/// The namespace and name of an HPA.
pub type Key = (String, String);

/// The HPA to explain.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The counts that the console has observed in the last hour, oldest first.
    pub history: Vec<Count>,
    /// The counts and metric values that the console has observed in the last hour, oldest first.
    pub observations: Vec<Observation>,
}

/// Explains a single HPA.
pub trait Explain: Debug + Send + Sync + 'static {
    /// Returns the explanation as a JSON document, or the reason why no explanation is available.
    fn explain(&self, subject: Subject) -> BoxFuture<'static, Result<Vec<u8>, String>>;

    /// Returns the style sheet of the drawings in explanations.
    fn style(&self) -> String;
}
