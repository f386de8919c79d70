//! `--console`: the page with all HPAs on the secure port.
//!
//! The rows come from the controller's own watch, the explanation of an HPA from the record of decisions, and the
//! state of the controller from its own metrics. `crate::serve` authorizes the clients.

mod explain;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ::console::pages::Pages;
use ::console::store::Store;
use parking_lot::Mutex;
use tokio::sync::watch;

use self::explain::RecordExplain;
use self::state::OwnState;
use clock::SharedClock;
use cluster::decode::HpaObject;
use controller::assembly::Assembly;
use controller::election::LeaderState;
use controller::page::JsonPage;
use controller::reconcile::{ConcludedSync, Observer};
use controller::store::{HpaRecord, Key};
use controller::telemetry::metrics::Metrics;

/// Fills the rows from the controller's watch. Clones share the rows.
#[derive(Debug, Clone)]
pub struct Rows {
    store: Store,
    /// The UID of each row, because the watch may report a recreated HPA before the deletion of its predecessor.
    uids: Arc<Mutex<BTreeMap<Key, Arc<str>>>>,
}

/// The parts of the process that the console shows.
pub struct Shown<'a> {
    /// The controller.
    pub assembly: &'a Assembly,
    /// The metrics of the process.
    pub telemetry: Metrics,
    /// The page of the handover.
    pub handover: JsonPage,
    /// The page of the comparison.
    pub parity: JsonPage,
    /// The identity of this replica.
    pub identity: String,
    /// The Lease, and the state of the election. `None` without an election.
    pub election: Option<(String, Arc<str>, watch::Receiver<LeaderState>)>,
}

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Rows {
    /// Creates an empty list of rows.
    pub fn new(clock: SharedClock) -> Self {
        Self { store: Store::new(clock), uids: Arc::default() }
    }

    /// Creates the pages.
    pub fn pages(self, shown: Shown<'_>) -> Pages {
        let assembly = shown.assembly;
        let explain = RecordExplain {
            controller: Arc::clone(&assembly.controller),
            decisions: assembly.decisions.clone(),
            election: shown.election.as_ref().map(|(.., election)| election.clone()),
        };
        let watches = assembly.hpas.clone();
        Pages::new(self.store, watches, Arc::new(explain), Arc::new(OwnState::new(shown)))
    }
}

impl Observer for Rows {
    fn concluded(&self, _: &ConcludedSync<'_>) {}

    fn seen(&self, _: Option<&HpaRecord>, new: &HpaRecord) {
        // A record of a large spec is stored without its metrics.
        let whole = new.packed.as_ref().map(|_| Arc::new(new.clone()).unpack());
        let whole = whole.and_then(Result::ok);
        self.uids.lock().insert(new.key.clone(), Arc::clone(&new.uid));
        self.store.put(&object(whole.as_deref().unwrap_or(new)));
    }

    fn forgotten(&self, key: &Key, uid: &str) {
        let mut uids = self.uids.lock();
        if uids.get(key).is_some_and(|shown| **shown == *uid) {
            uids.remove(key);
            self.store.remove(&key.namespace, &key.name);
        }
    }
}

/// The record as an object of the watch.
fn object(record: &HpaRecord) -> HpaObject {
    let writers = record.status_writers.iter().map(|writer| (writer.manager.to_string(), writer.at));
    HpaObject {
        namespace: record.key.namespace.to_string(),
        name: record.key.name.to_string(),
        uid: record.uid.to_string(),
        resource_version: record.resource_version.clone(),
        generation: record.generation,
        metadata: record.metadata.clone(),
        status_writers: writers.collect(),
        spec_raw: Arc::clone(&record.spec_raw),
        spec: Arc::clone(&record.spec),
        status: Arc::clone(&record.status),
    }
}
