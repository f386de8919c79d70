//! The memory of large request bodies. The clients of the webhook are unknown, so each source address gets a part of it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The maximum size of all bodies in memory, in KiB.
const MAX: usize = 16 << 10;
/// The part that the connections of one source address get together, in KiB. A body of the maximum size fits.
const PER_SOURCE: usize = MAX / 4;
/// The part that is left for connections with an answered review, in KiB.
const RESERVE: usize = MAX / 4;

/// The memory in use by all connections.
#[derive(Debug, Default)]
pub(super) struct Bodies(Mutex<InUse>);

#[derive(Debug, Default)]
struct InUse {
    total: usize,
    by_source: BTreeMap<IpAddr, usize>,
}

/// The memory of one body. A drop releases it.
#[derive(Debug)]
pub(super) struct Body {
    bodies: Arc<Bodies>,
    source: IpAddr,
    /// In KiB.
    held: usize,
}

impl Body {
    pub(super) fn new(bodies: &Arc<Bodies>, source: IpAddr) -> Self {
        Self { bodies: Arc::clone(bodies), source, held: 0 }
    }

    /// Grows to `size`, in KiB. `is_proven` is whether the connection had an answered review. Returns whether the memory
    /// is available.
    pub(super) fn grow(&mut self, size: usize, is_proven: bool) -> bool {
        let missing = size.saturating_sub(self.held);
        if missing == 0 {
            return true;
        }
        let mut in_use = self.bodies.0.lock();
        let total = in_use.total + missing;
        let of_source = in_use.by_source.get(&self.source).copied().unwrap_or_default() + missing;
        let max = if is_proven { MAX } else { MAX - RESERVE };
        if total > max || of_source > PER_SOURCE {
            return false;
        }
        in_use.total = total;
        in_use.by_source.insert(self.source, of_source);
        self.held = size;
        true
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if self.held == 0 {
            return;
        }
        let mut in_use = self.bodies.0.lock();
        in_use.total -= self.held;
        if let Some(of_source) = in_use.by_source.get_mut(&self.source) {
            *of_source -= self.held;
            if *of_source == 0 {
                in_use.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn one_address_gets_a_quarter_and_the_last_quarter_needs_an_answered_review() {
        let bodies = Arc::<Bodies>::default();
        let body = |host| Body::new(&bodies, Ipv4Addr::new(10, 0, 0, host).into());
        let (mut one, mut other) = (body(1), body(1));
        assert!(one.grow(3 << 10, false) && one.grow(3 << 10, false) && other.grow(1 << 10, false));
        assert!(!other.grow((1 << 10) + 1, true));
        let mut more: Vec<_> = (2..4).map(body).collect();
        assert!(more.iter_mut().all(|body| body.grow(PER_SOURCE, false)));
        let mut last = body(4);
        assert!(!last.grow(1, false) && last.grow(PER_SOURCE, true));
        assert!(!body(5).grow(1, true));
        drop(one);
        assert!(body(5).grow(3 << 10, true) && !body(1).grow(PER_SOURCE, true));
        drop((other, more, last));
        let in_use = bodies.0.lock();
        assert!(in_use.total == 0 && in_use.by_source.is_empty());
    }
}
