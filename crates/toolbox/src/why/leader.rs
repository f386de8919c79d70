//! Reads the record from the leader's pod. The record contains flags, history and the last decisions.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::situation::{LastDecision, Recorded, Recorder};
use crate::forward::{Connection, ForwardError, WITHIN, Which};
use crate::options::why::Leader as Lease;
use cluster::call::Call;
use cluster::client::Clients;
use controller::record::wire::{API_VERSION, ControllerInfo, DecisionList};
use controller::store::Key;

/// Reads the records of HPAs from the leader's pod, through one connection that stays open.
#[derive(Debug)]
pub(super) struct Leader {
    clients: Clients,
    /// The Leases, in the order of the search.
    candidates: Vec<Which>,
    /// The pods of a dry run, which are read if no Lease of a leader exists.
    shadows: Vec<Which>,
    connection: Option<Connection>,
}

/// The reason why the record of an HPA is missing.
#[derive(Debug, thiserror::Error)]
enum MissingRecord {
    /// The controller responded with an error.
    #[error(transparent)]
    Refused(ForwardError),
    /// The response is not a record.
    #[error("failed to parse the controller's record: {0}: use the version of the controller")]
    Format(#[from] serde_json::Error),
    /// The record has another version.
    #[error("the controller's record has version {0}, not {API_VERSION}: use the version of the controller")]
    Version(String),
}

/// The records of the requested HPAs that the controller's pod returned.
#[derive(Debug, Default)]
pub(super) struct LeaderRecords {
    /// The pod of the controller. Empty if no controller responded.
    from: String,
    /// The record of each HPA, or the reason why it is missing.
    records: BTreeMap<Key, Result<Box<DecisionList>, MissingRecord>>,
    /// The reason why an HPA has no entry in `records`.
    otherwise: Option<Recorded>,
}

impl Leader {
    /// Creates the reader for the first of `leases` that exists. Returns `None` if `leases` is empty, or if the clients
    /// have no user credentials.
    pub(super) fn new(clients: &Clients, leases: &[Lease]) -> Option<Self> {
        (!leases.is_empty() && Connection::is_possible(clients)).then(|| Self {
            clients: clients.clone(),
            candidates: leases.iter().map(Which::leader).collect(),
            shadows: leases.iter().map(|lease| Which::shadow(&lease.namespace)).collect(),
            connection: None,
        })
    }

    /// Reads the records of `keys`, in the given order, for at most [`WITHIN`].
    pub(super) async fn read(&mut self, keys: &[Key]) -> LeaderRecords {
        let deadline = Instant::now() + WITHIN;
        let mut records = LeaderRecords::default();
        // An open connection may break, for example because its pod has stopped, and is then replaced.
        let kept = self.connection.take().filter(Connection::is_open);
        let result = match kept {
            Some(connection) => match self.all(connection, keys, deadline, &mut records).await {
                Err(ForwardError::Http(_)) => self.reconnect(keys, deadline, &mut records).await,
                result => result,
            },
            None => self.reconnect(keys, deadline, &mut records).await,
        };
        if let Err(error) = result {
            records.otherwise = Some(match error {
                ForwardError::NoLease { .. } => Recorded::NoLeader(error.to_string()),
                error => Recorded::Missing(error.to_string()),
            });
        }
        records
    }

    async fn reconnect(
        &mut self,
        keys: &[Key],
        deadline: Instant,
        records: &mut LeaderRecords,
    ) -> Result<(), ForwardError> {
        let connection = match Connection::open_first(&self.clients, &self.candidates, deadline).await {
            // No Concertina controller is the leader, but a dry run may exist in addition to another controller.
            Err(no_leader @ ForwardError::NoLease { .. }) => {
                Connection::open_first(&self.clients, &self.shadows, deadline).await.map_err(|_| no_leader)?
            }
            opened => opened?,
        };
        self.all(connection, keys, deadline, records).await
    }

    async fn all(
        &mut self,
        mut connection: Connection,
        keys: &[Key],
        deadline: Instant,
        records: &mut LeaderRecords,
    ) -> Result<(), ForwardError> {
        records.from = connection.peer.to_string();
        for key in keys {
            let call = Call::get(["decisions", &key.namespace, &key.name]);
            let record = match connection.get(call.path(), deadline).await {
                Ok(body) => read(&body),
                Err(error @ ForwardError::Status { .. }) => Err(MissingRecord::Refused(error)),
                Err(error) => return Err(error),
            };
            records.records.insert(key.clone(), record);
        }
        self.connection = Some(connection);
        Ok(())
    }
}

fn read(body: &[u8]) -> Result<Box<DecisionList>, MissingRecord> {
    let record: DecisionList = serde_json::from_slice(body)?;
    if record.api_version != API_VERSION {
        return Err(MissingRecord::Version(record.api_version));
    }
    Ok(Box::new(record))
}

impl LeaderRecords {
    /// Returns the record of an HPA with the UID `uid`. A record of an earlier HPA with the same name is ignored.
    pub(super) fn record(&self, key: &Key, uid: &str) -> Option<&DecisionList> {
        let record = self.records.get(key)?.as_deref().ok()?;
        (record.metadata.uid == uid).then_some(record)
    }

    /// Returns the pod of the controller, such as `pod kube-system/concertina-7d9c5`.
    pub(super) fn pod(&self) -> &str {
        &self.from
    }

    /// Returns the controller's version, period and settings, from any record.
    pub(super) fn controller(&self) -> Option<&ControllerInfo> {
        self.records.values().find_map(|record| record.as_ref().ok()).map(|record| &record.controller)
    }

    /// Returns the controller that recorded an HPA, or the reason why the record is missing.
    pub(super) fn about(&self, key: &Key, uid: &str) -> Recorded {
        match self.records.get(key) {
            Some(Ok(record)) if record.metadata.uid == uid => Recorded::Read(self.recorder(record)),
            Some(Ok(_)) => Recorded::Missing(
                "the controller's record belongs to an earlier HPA with this name".to_owned(),
            ),
            Some(Err(reason)) => Recorded::Missing(reason.to_string()),
            None => self.otherwise.clone().unwrap_or(Recorded::NotRequested),
        }
    }

    fn recorder(&self, record: &DecisionList) -> Recorder {
        let last = record.decisions.first().map(|last| LastDecision {
            sentence: last.result.sentence.clone(),
            at: last.last_at,
            syncs: last.syncs,
            since: last.first_at,
        });
        let comparison = record.comparison.clone();
        Recorder { from: self.from.clone(), version: record.controller.version.clone(), last, comparison }
    }
}
