//! `concertina check`: whether a cluster is ready for Concertina, and whether each installation works.
//!
//! | module | contents |
//! |---|---|
//! | [`readings`] | what is read from the cluster, as values |
//! | [`rules`] | the items that follow from the readings; pure |
//! | [`report`] | the items as text and as a document |
//!
//! All requests go to the API server with the user's credentials, and none changes the cluster. Only the state of a
//! leader is read from its pod, which must be proven to be a controller ([`terminal::forward`]).

pub mod readings;
pub mod report;
pub mod rules;
