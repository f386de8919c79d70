//! The HPA of a sync.

use crate::spec::Spec;
use crate::status::Status;

/// The HPA of a sync, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Hpa<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.generation`, if the server sets it.
    pub generation: Option<i64>,
    /// `spec`.
    pub spec: &'a Spec,
    /// `status`, as last read or written.
    pub status: &'a Status,
}
