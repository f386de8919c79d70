//! `concertina console`: a page with all HPAs of a cluster, served on a loopback address.
//!
//! One watch of HPAs fills a [`store::Store`] with [`row::Row`]s. They are computed from the objects alone, so the page
//! works with any HPA controller. If a [`decisions::Record`] can be read, a row also has the controller's last
//! decision. The [`server`] sends the rows and their changes as server-sent events. The explanation of a single HPA
//! comes from an [`Explain`], the state of the controller from a [`controller::Inspect`], and the simulation of an HPA
//! with other fields from a [`whatif::WhatIf`]. The caller implements these traits.
//!
//! The controller itself serves the same [`pages`] on its secure port. It fills the store from its own watch, and a
//! [`Review`] limits the rows to the HPAs that the client may list.
//!
//! The page is plain HTML, CSS and JavaScript in `assets/`, compiled into the program.

pub mod access;
pub mod controller;
pub mod decisions;
pub mod observations;
pub mod pages;
pub mod row;
pub mod server;
pub mod store;
mod stream;
pub mod whatif;

use std::collections::BTreeSet;
use std::fmt::Debug;

use futures::future::BoxFuture;

use self::observations::Observation;
use self::row::Count;

/// Maximum number of namespaces in which the access of one client is reviewed.
pub const MAX_NAMESPACES: usize = 100;

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

/// The HPAs that a client may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Visible {
    /// All HPAs.
    #[default]
    All,
    /// The HPAs of some namespaces.
    Namespaces {
        /// The names of the namespaces.
        names: BTreeSet<String>,
        /// The number of namespaces beyond [`MAX_NAMESPACES`], which were not reviewed.
        unreviewed: usize,
    },
}

/// Reviews the access of a client, at the start of its stream and then every 30 s.
pub trait Review: Debug + Send + Sync + 'static {
    /// Returns the HPAs that the client may see. `namespaces` are those that have HPAs. `None` ends the stream.
    fn review(&self, namespaces: BTreeSet<String>) -> BoxFuture<'static, Option<Visible>>;
}

impl Visible {
    /// Returns whether the client may see the HPAs of a namespace.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces { names, .. } => names.contains(namespace),
        }
    }
}
