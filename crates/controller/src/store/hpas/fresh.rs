//! HPAs that were read outside of the watch, because a status write failed or the watch has not delivered it.

use std::sync::Arc;
use std::time::Duration;

use super::{HpaRecord, Hpas, Key, Update, Wrote, is_older};

/// The reason why the stored record of an HPA is older than our last write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    /// The event of the write should arrive soon.
    Awaited,
    /// The event of the write may be lost. The HPA should be read.
    Late,
}

impl Hpas {
    /// Applies an HPA that was read after our last write. The stored object must have the given UID, because only the
    /// watch may add an HPA. The read must be newer than the stored record, or must lack the write, which the server
    /// has then lost. Older events from the watch then make the HPA stale until the watch has caught up. While a list
    /// is collected, the record is not applied, because the list will contain it.
    pub fn apply_fresh(&self, uid: &str, record: HpaRecord) -> Option<Update> {
        let mut state = self.state.write();
        let listing = state.listed.covers(&record.key.namespace);
        let cached = state.cached.get_mut(&record.key)?;
        let newer = is_older(&cached.record.resource_version, &record.resource_version);
        let lost_write = cached.wrote.as_ref().is_some_and(|wrote| wrote.is_missing(&record));
        if !(newer || lost_write) || *cached.record.uid != *uid {
            return None;
        }
        let (key, version) = (record.key.clone(), record.resource_version.clone());
        let update = (!listing).then(|| Update { lost_write, ..state.put(Arc::new(record)) });
        if let Some(cached) = state.cached.get_mut(&key) {
            cached.wrote = Some(Wrote::new(version));
            cached.is_read = true;
        }
        update
    }

    /// Whether the stored record of an HPA is older than our last write, in a controller with this period.
    pub fn staleness(&self, key: &Key, period: Duration) -> Option<Staleness> {
        let state = self.state.read();
        let cached = state.cached.get(key)?;
        let wrote = cached.wrote.as_ref().filter(|wrote| wrote.is_missing(&cached.record))?;
        let is_late = cached.is_read || wrote.at.elapsed() > period + period / 2;
        Some(if is_late { Staleness::Late } else { Staleness::Awaited })
    }
}
