//! The last decisions of all HPAs, from the record of the leader, through one connection that stays open.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::console::decisions::{Decisions, LastDecision, Record};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::leaders::LeaderChanges;
use crate::forward::{Connection, ForwardError, WITHIN, Which};
use crate::options::why::Leader;
use cluster::call::Call;
use cluster::client::Clients;
use controller::record::wire::{API_VERSION, DecisionSummaryList};

/// Maximum number of pages of a read. A page has at most 500 HPAs.
const MAX_PAGES: usize = 40;

/// The reason why a record cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    /// The pod of the leader cannot be reached, or refuses the request.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// The response is not a record.
    #[error("failed to parse the controller's record: {0}: use the version of the controller")]
    Format(#[from] serde_json::Error),
    /// The record has another version.
    #[error("the controller's record has version {0}, not {API_VERSION}: use the version of the controller")]
    Version(String),
}

/// Reads the record of the first controller that has a leader.
#[derive(Debug, Clone)]
pub(super) struct LeaderRecord {
    clients: Clients,
    candidates: Vec<Which>,
    /// The namespace. `None` reads all namespaces.
    namespace: Option<String>,
    leaders: Vec<Leader>,
    changes: LeaderChanges,
    connection: Arc<Mutex<Option<Connection>>>,
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
        // The Lease is read even if the record cannot be read, because a change of the leader is often the reason.
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
