//! The record of the leader and the known changes of the leader. The console reads them again while pages are open.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::console::row::{Decisions, LastDecision};
use ::console::server::Record;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::forward::{Connection, ForwardError, WITHIN, Which};
use crate::options::why::Leader;
use cluster::call::Call;
use cluster::client::{Client, Clients};
use cluster::typed;
use controller::record::wire::{API_VERSION, DecisionSummaryList};

/// Maximum number of pages of a record to read. A page has at most 500 HPAs.
const MAX_PAGES: usize = 40;
/// Maximum difference between two times of one change of the leader: the acquisition in the Lease, and the restoration
/// of histories in a record.
const SAME: SignedDuration = SignedDuration::from_secs(60);
/// Maximum number of changes to keep. The oldest change is dropped first.
const MAX_CHANGES: usize = 200;

/// The reason why a record cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    /// The pod of the leader cannot be reached, or it refused the request.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// The response is not a record.
    #[error("failed to parse the controller's record: {0}: use the version of the controller")]
    Format(#[from] serde_json::Error),
    /// The record has another version.
    #[error("the controller's record has version {0}, not {API_VERSION}: use the version of the controller")]
    Version(String),
}

/// Reads the last decisions of all HPAs from the record of the first leader, through one connection that stays open.
#[derive(Debug, Clone)]
pub(super) struct LeaderRecord {
    clients: Clients,
    candidates: Vec<Which>,
    /// The namespace. `None` reads all namespaces.
    namespace: Option<String>,
    leaders: Vec<Leader>,
    changes: LeaderChanges,
    connection: Arc<tokio::sync::Mutex<Option<Connection>>>,
}

impl LeaderRecord {
    pub(super) fn new(
        clients: &Clients,
        leaders: &[Leader],
        namespace: Option<&str>,
        changes: LeaderChanges,
    ) -> Self {
        Self {
            clients: clients.clone(),
            candidates: leaders.iter().map(Which::leader).collect(),
            namespace: namespace.map(str::to_owned),
            leaders: leaders.to_vec(),
            changes,
            connection: Arc::default(),
        }
    }

    async fn read(self) -> Result<Option<Decisions>, String> {
        if self.candidates.is_empty() || !Connection::is_possible(&self.clients) {
            return Ok(None);
        }
        // A change of the leader is often the reason why a record cannot be read, so the Lease is read in any case.
        self.changes.read(&self.clients.core.unobserved(), &self.leaders).await;
        self.pages().await.map(Some).map_err(|error| error.to_string())
    }

    async fn pages(&self) -> Result<Decisions, ReadError> {
        let deadline = Instant::now() + WITHIN;
        let mut kept = self.connection.lock().await;
        // A failed read drops the connection, so that the next read finds the leader again.
        let mut connection = match kept.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => Connection::open_first(&self.clients, &self.candidates, deadline).await?,
        };
        let (mut by_key, mut next) = (BTreeMap::new(), String::new());
        for _ in 0..MAX_PAGES {
            let namespace = self.namespace.as_deref().unwrap_or_default();
            let call = Call::get(["decisions"]).query("namespace", namespace).query("continue", &next);
            let body = connection.get(call.path(), deadline).await?;
            let page: DecisionSummaryList = serde_json::from_slice(&body)?;
            if page.api_version != API_VERSION {
                return Err(ReadError::Version(page.api_version));
            }
            let (now, period) = (page.now, page.controller.sync_period);
            by_key.extend(page.items.into_iter().map(|item| {
                let sentence = &item.result.sentence;
                let decision = LastDecision::new(sentence, item.first_at, item.last_at, now, period);
                ((item.namespace, item.name), decision)
            }));
            match page.metadata.next {
                Some(following) if following != next => next = following,
                _ => break,
            }
        }
        *kept = Some(connection);
        Ok(Decisions { by_key })
    }
}

impl Record for LeaderRecord {
    fn last_decisions(&self) -> BoxFuture<'static, Result<Option<Decisions>, String>> {
        self.clone().read().boxed()
    }
}

/// A change of the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    at: Timestamp,
    /// The new leader, if it is known.
    leader: Option<String>,
}

/// The known changes of the leader. A Lease shows the last change, and a record shows the last failover. Clones share
/// the changes.
#[derive(Debug, Clone, Default)]
pub(super) struct LeaderChanges {
    /// The changes, oldest first.
    changes: Arc<Mutex<Vec<Change>>>,
}

impl LeaderChanges {
    /// Adds a change, unless it is known.
    pub(super) fn add(&self, at: Timestamp, leader: Option<&str>) {
        let mut changes = self.changes.lock();
        let leader = leader.filter(|leader| !leader.is_empty()).map(str::to_owned);
        let is_same = |change: &&mut Change| {
            let differ = change.leader.is_some() && leader.is_some() && change.leader != leader;
            change.at.duration_since(at).abs() <= SAME && !differ
        };
        if let Some(known) = changes.iter_mut().find(is_same) {
            // The Lease has the name of the leader and the exact time of the change. A record has neither.
            if known.leader.is_none() && leader.is_some() {
                *known = Change { at, leader };
            }
            return;
        }
        let index = changes.partition_point(|change| change.at <= at);
        changes.insert(index, Change { at, leader });
        if changes.len() > MAX_CHANGES {
            changes.remove(0);
        }
    }

    /// Adds the change in the first Lease that exists. An unreadable Lease is ignored, because the page of the
    /// controller shows the reason.
    pub(super) async fn read(&self, client: &Client, leaders: &[Leader]) {
        for Leader { namespace, lease } in leaders {
            let Ok(Some(found)) = typed::get(&client.namespaced::<Lease>(namespace), lease).await else {
                continue;
            };
            let Some(spec) = found.spec else { continue };
            if let Some(at) = spec.acquire_time {
                self.add(at.0, spec.holder_identity.as_deref());
            }
            return;
        }
    }

    /// Returns the times and descriptions of the changes.
    pub(super) fn marks(&self) -> Vec<(Timestamp, String)> {
        let text = |change: &Change| match &change.leader {
            Some(leader) => format!("leader change: {leader} leads"),
            None => "leader change".to_owned(),
        };
        self.changes.lock().iter().map(|change| (change.at, text(change))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn every_change_is_kept_once_and_in_order() {
        let changes = LeaderChanges::default();
        changes.add(at(5_000), None);
        changes.add(at(1_000), Some("a"));
        changes.add(at(1_000), Some("a"));
        // A record that was restored 20 s after the Lease was acquired shows the same change.
        changes.add(at(1_020), None);
        changes.add(at(4_990), Some("b"));
        changes.add(at(5_010), Some("c"));
        let marks: Vec<_> = changes.marks().into_iter().map(|(at, text)| (at.as_second(), text)).collect();
        let expected = [
            (1_000, "leader change: a leads".to_owned()),
            (4_990, "leader change: b leads".to_owned()),
            (5_010, "leader change: c leads".to_owned()),
        ];
        assert_eq!(marks, expected);
    }

    #[test]
    fn number_of_changes_is_bounded() {
        let changes = LeaderChanges::default();
        for number in 0..300 {
            changes.add(at(number * 100), None);
        }
        assert_eq!(changes.marks().len(), MAX_CHANGES);
        assert_eq!(changes.marks()[0].0, at(10_000));
    }
}
