//! What the controller keeps of its decisions.
//!
//! [`record`] contains the last decisions of each HPA, and serves them as JSON. [`decision_events`] reports changes of
//! decisions as events. [`history`] rebuilds the histories of HPAs, and keeps them in checkpoints across restarts.

pub mod decision_events;
pub mod history;
pub mod record;
