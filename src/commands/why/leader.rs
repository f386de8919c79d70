//! The record of the controller that leads, asked for at its pod: its flags, its memory, its own last decisions.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::situation::{LastDecision, Recorded, Recorder};
use crate::api::call::Call;
use crate::api::client::Clients;
use crate::api::forward::{Connection, ForwardError, WITHIN, Which};
use crate::cli::why::Leader as Lease;
use crate::record::wire::{API_VERSION, ControllerInfo, DecisionList};
use crate::store::Key;

/// The controller that leads.
#[derive(Debug)]
pub(super) struct Leader {
    clients: Clients,
    which: Which,
    /// Who is asked if nobody leads: a dry run.
    shadow: Which,
    /// Kept from one round to the next.
    connection: Option<Connection>,
}

/// What a controller told of some HPAs.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Where it runs; none if nobody was asked or answered.
    from: String,
    /// By HPA: its record, or why there is none.
    records: BTreeMap<Key, Result<Box<DecisionList>, String>>,
    /// Why there is none of any other.
    otherwise: Option<Recorded>,
}

impl Leader {
    /// None if these clients have no user as whom a controller could be asked.
    pub(super) fn new(clients: &Clients, Lease { namespace, lease }: Lease) -> Option<Self> {
        let selector = "app.kubernetes.io/name=concertina,app.kubernetes.io/instance=concertina-shadow";
        let shadow = Which::Labelled { namespace: namespace.clone(), selector: selector.to_owned() };
        let which = Which::Leader { namespace, lease };
        Connection::is_possible(clients).then(|| Self {
            clients: clients.clone(),
            which,
            shadow,
            connection: None,
        })
    }

    /// Asks about these HPAs, in this order, as far as the time of one question goes.
    pub(super) async fn ask(&mut self, keys: &[Key]) -> Told {
        let deadline = Instant::now() + WITHIN;
        let mut told = Told::default();
        // A kept connection may lead to a pod that has ended, or leads no more: then the next is asked.
        let kept = self.connection.take().filter(Connection::is_open);
        let asked = match kept {
            Some(connection) => match self.all(connection, keys, deadline, &mut told).await {
                Err(ForwardError::Http(_)) => self.anew(keys, deadline, &mut told).await,
                asked => asked,
            },
            None => self.anew(keys, deadline, &mut told).await,
        };
        if let Err(error) = asked {
            told.otherwise = Some(match error {
                ForwardError::NoLease { .. } => Recorded::NobodyLeads(error.to_string()),
                error => Recorded::Missing(error.to_string()),
            });
        }
        told
    }

    async fn anew(&mut self, keys: &[Key], deadline: Instant, told: &mut Told) -> Result<(), ForwardError> {
        let connection = match Connection::open(&self.clients, &self.which, deadline).await {
            // Nobody leads, but a dry run may be beside the controller that acts.
            Err(nobody @ ForwardError::NoLease { .. }) => {
                Connection::open(&self.clients, &self.shadow, deadline).await.map_err(|_| nobody)?
            }
            opened => opened?,
        };
        self.all(connection, keys, deadline, told).await
    }

    async fn all(
        &mut self,
        mut connection: Connection,
        keys: &[Key],
        deadline: Instant,
        told: &mut Told,
    ) -> Result<(), ForwardError> {
        told.from = connection.peer.to_string();
        for key in keys {
            let call = Call::get(["decisions", &key.namespace, &key.name]);
            let record = match connection.get(call.path(), deadline).await {
                Ok(body) => read(&body),
                Err(error @ ForwardError::Status { .. }) => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            told.records.insert(key.clone(), record);
        }
        self.connection = Some(connection);
        Ok(())
    }
}

fn read(body: &[u8]) -> Result<Box<DecisionList>, String> {
    let record: DecisionList = serde_json::from_slice(body).map_err(|error| {
        format!("the controller's record cannot be read, it may be of another version: {error}")
    })?;
    if record.api_version != API_VERSION {
        return Err(format!(
            "the controller's record is of version {}, not {API_VERSION}",
            record.api_version
        ));
    }
    Ok(Box::new(record))
}

impl Told {
    /// The record of an HPA: of this very object, not of an earlier one of its name.
    pub(super) fn record(&self, key: &Key, uid: &str) -> Option<&DecisionList> {
        let record = self.records.get(key)?.as_deref().ok()?;
        (record.metadata.uid == uid).then_some(record)
    }

    /// What the controller is, from whichever record there is.
    pub(super) fn controller(&self) -> Option<&ControllerInfo> {
        self.records.values().find_map(|record| record.as_ref().ok()).map(|record| &record.controller)
    }

    /// What the record had to do with the decision for an HPA.
    pub(super) fn about(&self, key: &Key, uid: &str) -> Recorded {
        match self.records.get(key) {
            Some(Ok(record)) if record.metadata.uid == uid => Recorded::Read(self.recorder(record)),
            Some(Ok(_)) => {
                Recorded::Missing("the controller's record is of an earlier HPA of that name".to_owned())
            }
            Some(Err(reason)) => Recorded::Missing(reason.clone()),
            None => self.otherwise.clone().unwrap_or(Recorded::NotAsked),
        }
    }

    fn recorder(&self, record: &DecisionList) -> Recorder {
        let last = record.decisions.first().map(|last| LastDecision {
            sentence: last.sentence.clone(),
            at: last.last_at,
            syncs: last.syncs,
            since: last.first_at,
        });
        let comparison = record.comparison.clone();
        Recorder { from: self.from.clone(), version: record.controller.version.clone(), last, comparison }
    }
}
