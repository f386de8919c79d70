//! Leader election on a Lease, by client-go's rules.

pub mod machine;
pub mod record;
