//! Histories copied from the leader by replicas that stand by, so that whoever leads next decides as if nothing had
//! happened.

pub mod link;
