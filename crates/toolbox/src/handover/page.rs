//! The page `/handover` of a controller: its scope, its guard, and the state of each HPA in scope.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::forward::{Connection, ForwardError, WITHIN, Which};
use crate::options::why::{Leader, NAMESPACES};
use cluster::call::Call;
use cluster::client::{Client, Clients};
use cluster::error::ApiError;
use controller::shadow::wire::ShadowReport;

/// Maximum size of the page, in bytes. The limit admits 10,000 rows.
const LARGEST: usize = 8 << 20;

/// Maximum size of the comparisons, in bytes. The bounds of their record keep them several times smaller.
const LARGEST_REPORT: usize = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Page {
    /// `all` or `labelled`.
    pub(super) scope: String,
    /// `--controller-name`. Empty with the scope `all`.
    pub(super) controller: String,
    pub(super) guard: GuardState,
    /// Whether the controller is the leader. Only the leader has states. `None` with the scope `all`.
    pub(super) leads: Option<bool>,
    pub(super) hpas: Vec<Row>,
}

/// The state of the guard, as the controller reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GuardState {
    /// `webhook`, `policy` or `none`. Empty from older controllers, which do not report the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) kind: String,
    /// `proven`, `broken` or `unknown`.
    pub(super) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Timestamp>,
}

/// One HPA in scope.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Row {
    pub(super) namespace: String,
    pub(super) name: String,
    /// `claiming`, `in_charge` or `contested`.
    pub(super) state: String,
    pub(super) since: Option<Timestamp>,
    pub(super) last_foreign_write: Option<ForeignWrite>,
    pub(super) last_refused_write: Option<Timestamp>,
}

/// A write of another controller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ForeignWrite {
    pub(super) manager: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
}

/// The reason why the page is unavailable.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    /// The leader is unknown, its pod cannot be reached, or the leader refused the request.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// The controller at an address does not respond with the page.
    #[error("failed to read {url}: {error}")]
    Address {
        /// The URL of the page.
        url: String,
        /// The error of the controller or the connection.
        error: ApiError,
    },
    /// The response is not the page.
    #[error("failed to parse the controller's page: {0}: use the version of the controller")]
    Format(#[from] serde_json::Error),
    /// The controller is a standby, whose states are not current.
    #[error("{0} is not the leader: pass the address of the leader")]
    Standby(String),
}

/// Reads the page, and keeps the connection.
#[derive(Debug)]
pub(super) enum PageReader {
    /// From the leader's pod, by port-forward.
    Leader { clients: Box<Clients>, candidates: Vec<Which>, connection: Option<Connection> },
    /// From an address.
    Address { client: Client, url: String },
}

impl PageReader {
    /// Creates the reader of the leader's page.
    pub(super) fn leader(clients: &Clients, leader: Option<&Leader>) -> Self {
        let candidates = Leader::candidates(leader).iter().map(Which::leader).collect();
        Self::Leader { clients: Box::new(clients.clone()), candidates, connection: None }
    }

    pub(super) async fn read(&mut self) -> Result<Page, PageError> {
        let call = Call::get(["handover"]).at_most(LARGEST);
        let (body, from) = match self {
            Self::Address { client, url } => {
                let failed = |error| PageError::Address { url: format!("{url}/handover"), error };
                (client.bytes(&call).await.map_err(failed)?, url.clone())
            }
            Self::Leader { clients, candidates, connection } => {
                let deadline = Instant::now() + WITHIN;
                let mut open = match connection.take().filter(Connection::is_open) {
                    Some(kept) => kept,
                    None => Connection::open_first(clients, candidates, deadline).await?,
                };
                let body = open.get(call.path(), deadline).await?;
                let from = open.peer.to_string();
                *connection = Some(open);
                (body, from)
            }
        };
        let page: Page = serde_json::from_slice(&body)?;
        if page.leads == Some(false) { Err(PageError::Standby(from)) } else { Ok(page) }
    }

    /// Reads the comparisons with the built-in controller: from the leader, or else from the pod of a dry run.
    pub(super) async fn read_comparisons(&mut self) -> Result<ShadowReport, PageError> {
        let call = Call::get(["parity"]).at_most(LARGEST_REPORT);
        let body = match self {
            Self::Address { client, url } => {
                let url = format!("{url}/parity");
                client.bytes(&call).await.map_err(|error| PageError::Address { url, error })?
            }
            Self::Leader { clients, connection, .. } => {
                let deadline = Instant::now() + WITHIN;
                let from_leader = match connection.as_mut().filter(|connection| connection.is_open()) {
                    Some(leader) => leader.get(call.path(), deadline).await.ok(),
                    None => None,
                };
                if let Some(body) = from_leader {
                    body
                } else {
                    let shadows = NAMESPACES.map(Which::shadow);
                    let mut shadow = Connection::open_first(clients, &shadows, deadline).await?;
                    shadow.get(call.path(), deadline).await?
                }
            }
        };
        Ok(serde_json::from_slice(&body)?)
    }
}
