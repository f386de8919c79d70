//! The pages of a controller: `/handover` with its scope, its guard and the state of each HPA in scope, and `/parity`
//! with the comparisons of shadow mode.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use cluster::call::Call;
use cluster::client::{Client, Clients};
use cluster::error::ApiError;
use coexist::shadow::wire::{Counts, ShadowReport};
use engine::store::Key;
use terminal::forward::{Connection, ForwardError, WITHIN, Which};
use terminal::options::leader::Leader;
use terminal::words::counted;

/// Maximum size of the page `/handover`, in bytes. The limit admits 10,000 rows.
const LARGEST: usize = 8 << 20;
/// Maximum size of the page `/parity`, in bytes.
const LARGEST_REPORT: usize = 64 << 20;

/// The page `/handover`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Page {
    /// `all` or `labelled`.
    pub(super) scope: String,
    /// `--controller-name`. Empty with the scope `all`.
    pub(super) controller: String,
    pub(super) guard: GuardState,
    /// Whether the controller is the leader. Only the leader has the states of HPAs. `None` with the scope `all`.
    pub(super) leads: Option<bool>,
    pub(super) hpas: Vec<Row>,
}

impl Page {
    /// Returns the row of an HPA.
    pub(super) fn row(&self, key: &Key) -> Option<&Row> {
        self.hpas.iter().find(|row| row.namespace == *key.namespace && row.name == *key.name)
    }
}

/// The state of the guard, as the controller reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct GuardState {
    /// `webhook`, `policy` or `none`. Empty with the scope `all`, and from older controllers, which do not report the
    /// kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) kind: String,
    /// `proven`, `broken` or `unknown`. Empty with the scope `all`.
    pub(super) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ForeignWrite {
    pub(super) manager: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Time>"))]
    pub(super) at: Option<Timestamp>,
}

/// The reason why a page is unavailable.
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
    /// The response cannot be parsed.
    #[error("failed to parse the controller's page: {0}: use the version of the controller")]
    Format(#[from] serde_json::Error),
    /// The controller is a standby, so it does not have the states of HPAs.
    #[error("{0} is not the leader: pass the address of the leader")]
    Standby(String),
}

/// Reads the pages. The connection to the leader's pod stays open between reads.
#[derive(Debug)]
pub(super) enum PageReader {
    /// From the leader's pod, by port-forward.
    Leader {
        clients: Box<Clients>,
        candidates: Vec<Which>,
        /// The pods of dry runs.
        shadows: Vec<Which>,
        connection: Option<Connection>,
    },
    /// From an address.
    Address { client: Client, url: String },
}

impl PageReader {
    /// Creates a reader for the leader's pod.
    pub(super) fn leader(clients: &Clients, leader: Option<&Leader>) -> Self {
        let leaders = Leader::candidates(leader);
        Self::Leader {
            clients: Box::new(clients.clone()),
            candidates: Which::leaders(&leaders),
            shadows: Which::shadows(&leaders),
            connection: None,
        }
    }

    /// Reads the page `/handover` of the leader.
    pub(super) async fn read(&mut self) -> Result<Page, PageError> {
        let call = Call::get(["handover"]).at_most(LARGEST);
        let (body, from) = match self {
            Self::Address { client, url } => {
                let failed = |error| PageError::Address { url: format!("{url}/handover"), error };
                (client.bytes(&call).await.map_err(failed)?, url.clone())
            }
            Self::Leader { clients, candidates, connection, .. } => {
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

    /// Reads the page `/parity`: from the leader with `--shadow-others`, or else from the pod of a dry run.
    async fn read_comparisons(&mut self) -> Result<ShadowReport, PageError> {
        let call = Call::get(["parity"]).at_most(LARGEST_REPORT);
        let body = match self {
            Self::Address { client, url } => {
                let url = format!("{url}/parity");
                client.bytes(&call).await.map_err(|error| PageError::Address { url, error })?
            }
            Self::Leader { clients, shadows, connection, .. } => {
                let deadline = Instant::now() + WITHIN;
                let from_leader = match connection.as_mut().filter(|connection| connection.is_open()) {
                    Some(leader) => leader.get(call.path(), deadline).await.ok(),
                    None => None,
                };
                if let Some(body) = from_leader {
                    body
                } else {
                    let mut shadow = Connection::open_first(clients, shadows, deadline).await?;
                    shadow.get(call.path(), deadline).await?
                }
            }
        };
        Ok(serde_json::from_slice(&body)?)
    }
}

/// The comparisons of shadow mode before a handover.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    /// The counts by HPA. `None` if no comparison is available.
    by_hpa: Option<BTreeMap<Key, Counts>>,
}

/// The comparisons of one HPA, in a document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HpaComparison {
    namespace: String,
    name: String,
    /// The number of changes of the built-in controller that Concertina would also have made.
    same: u64,
    /// The number of changes that only one of the controllers made or that led to different counts.
    different: u64,
    /// The number of inconclusive comparisons.
    unknown: u64,
}

impl Comparisons {
    /// Reads the comparisons of the last 48 hours. Adds a note with the number of HPAs that have a difference, or with
    /// the reason why no comparison is available.
    pub(super) async fn read(page: &mut PageReader, notes: &mut Vec<String>) -> Self {
        match page.read_comparisons().await {
            Ok(report) => {
                let comparisons = Self::new(&report);
                let differs = |counts: &&Counts| counts.differences() > 0;
                let differing = comparisons.by_hpa.iter().flat_map(BTreeMap::values).filter(differs).count();
                if differing > 0 {
                    notes.push(format!(
                        "in shadow mode {} of the cluster differed from the built-in controller: concertina parity lists \
                         each difference",
                        counted(differing, "HPA")
                    ));
                }
                comparisons
            }
            Err(error) => {
                notes.push(format!(
                    "no comparison with the built-in controller: {error}; run a shadow or --shadow-others first to \
                     compare"
                ));
                Self::default()
            }
        }
    }

    fn new(report: &ShadowReport) -> Self {
        let mut by_hpa = BTreeMap::<_, Counts>::new();
        // A row without a name has the sum of all HPAs beyond the maximum number of rows.
        for hour in report.hours.iter().filter(|hour| !hour.name.is_empty()) {
            *by_hpa.entry(Key::new(hour.namespace.as_str(), hour.name.as_str())).or_default() += hour.counts;
        }
        Self { by_hpa: Some(by_hpa) }
    }

    /// Formats the counts of an HPA: `12 same`, `3 same, 1 different`. Empty without comparisons.
    pub(super) fn text(&self, key: &Key) -> String {
        let counts = self.by_hpa.as_ref().and_then(|by_hpa| by_hpa.get(key)).copied().unwrap_or_default();
        let parts = [(counts.same, "same"), (counts.differences(), "different"), (counts.unknown, "unknown")];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        parts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    }

    /// Returns the counts of the given HPAs. Empty if no comparison is available.
    pub(super) fn rows(&self, keys: &[Key]) -> Vec<HpaComparison> {
        let Some(by_hpa) = &self.by_hpa else { return Vec::new() };
        let row = |key: &Key| {
            let counts = by_hpa.get(key).copied().unwrap_or_default();
            HpaComparison {
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                same: counts.same,
                different: counts.differences(),
                unknown: counts.unknown,
            }
        };
        keys.iter().map(row).collect()
    }
}
