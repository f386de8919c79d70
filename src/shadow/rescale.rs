//! A rescale by another controller, as the HPA's status shows it.

use jiff::Timestamp;

use crate::store::HpaRecord;

/// What another controller did to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rescale {
    /// `status.lastScaleTime`, by the other controller's clock; whole seconds.
    pub(super) at: Timestamp,
    /// `spec.replicas` before.
    pub(super) from: i32,
    /// `spec.replicas` after.
    pub(super) to: i32,
}

/// The rescale that one state of an HPA tells of and the one before it does not. Only a controller of HPAs moves
/// `status.lastScaleTime`: a person who sets a count leaves it alone.
pub(super) fn rescale(old: &HpaRecord, new: &HpaRecord) -> Option<Rescale> {
    let at = new.status.last_scale_time?;
    let moved = old.status.last_scale_time.is_none_or(|before| at > before);
    let (from, to) = (new.status.current_replicas, new.status.desired_replicas);
    (moved && from != to).then_some(Rescale { at, from, to })
}
