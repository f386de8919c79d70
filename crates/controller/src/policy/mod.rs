//! Scaling policies: user-defined rules for single HPAs, in addition to the HPA algorithm.
//!
//! A policy comes from the annotation [`ANNOTATION`] of an HPA, from a `ScalingPolicy` of its namespace, or from a
//! `ClusterScalingPolicy`, in this order of precedence. The crate [`policies`] reads, merges and applies the fields.
//! `store` finds the policies of an HPA. The sync of an HPA without a policy is unchanged.

mod objects;
mod resolved;
mod status;
mod store;
mod watches;

pub use self::objects::{ANNOTATION, GROUP, Kind, VERSION};
pub use self::resolved::{ACTIVE, INVALID, read_object};
pub(crate) use self::resolved::{Resolved, find, publish};
pub(crate) use self::status::run as write_statuses;
pub use self::store::Policies;
pub(crate) use self::store::{Applicable, PolicyDue};
pub(crate) use self::watches::PolicyWatches;
