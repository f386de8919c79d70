//! The permissions of writes about HPAs in scope.

use std::fmt;
use std::sync::Arc;

use super::Charges;
use crate::store::Key;
use cluster::gate::{Permission, Permits, WritePermit};

/// Gives the permissions of writes from the registry.
#[derive(Debug, Clone)]
pub struct ChargePermits(pub Arc<Charges>);

impl Permits for ChargePermits {
    fn permit(&self, namespace: &Arc<str>, name: &Arc<str>) -> WritePermit {
        let key = Key { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        let term = self.0.term(&key);
        WritePermit(Arc::new(TermPermit { charges: Arc::clone(&self.0), key, term }))
    }
}

/// Permits the writes about an HPA for the time in charge in which they were decided.
struct TermPermit {
    charges: Arc<Charges>,
    key: Key,
    term: Option<u64>,
}

impl Permission for TermPermit {
    fn may_write(&self) -> bool {
        self.term.is_some() && self.charges.term(&self.key) == self.term
    }
}

impl fmt::Debug for TermPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermPermit").field("key", &self.key).field("term", &self.term).finish_non_exhaustive()
    }
}
