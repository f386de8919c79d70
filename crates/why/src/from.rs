//! Explains the last decision of a Concertina controller without access to the cluster. The controller's record
//! contains the decision, the flags and the history.

use autoscaling::WriteOutcome;
use autoscaling::event::EventKind;
use autoscaling::settings::Settings;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;

use super::situation::{EventContent, HistoryEntry, Memory, Origin, Past, Situation, Source};
use super::{Scope, WhyError};
use clock::SharedClock;
use cluster::call::Call;
use cluster::client::{Client, Clients};
use cluster::error::ApiError;
use engine::store::Key;
use journal::record::wire::{ActionTaken, DecisionList, DecisionResult, DecisionSummaryList, Outcome};
use policies::steps::PolicyEffect;
use terminal::address::{AddressError, connect};
use terminal::flag_use::{FlagOrigin, uses};
use terminal::options::cluster::RecordSource as Address;

/// Maximum number of records to read concurrently.
const AT_ONCE: usize = 8;
/// Maximum size of a record, in bytes.
const LARGEST: usize = 32 << 20;

/// The reason why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The controller does not respond with a record.
    #[error("failed to read the record of {what} from {url}: {error}")]
    Unreadable {
        /// The URL of the controller.
        url: String,
        /// The HPA of the record, or `any HPA` for the list of records.
        what: String,
        /// The error of the controller or the connection.
        error: Box<ApiError>,
    },
    /// The controller has not made a decision for the HPA yet.
    #[error("{url} has no decision for {key} yet: the controller decides within one sync period")]
    Undecided {
        /// The URL of the controller.
        url: String,
        /// The HPA without a decision.
        key: Key,
    },
}

/// Reads the records of a controller.
#[derive(Debug)]
pub(super) struct Records {
    client: Client,
    url: String,
    scope: Scope,
    clock: SharedClock,
}

impl Records {
    /// Connects to the controller at an address.
    pub(super) async fn at(address: &Address, scope: Scope, clock: SharedClock) -> Result<Self, RecordError> {
        let (clients, url) = connect(address).await?;
        Ok(Self::over(&clients, url, scope, clock))
    }

    /// Creates a reader with existing clients.
    pub(super) fn over(clients: &Clients, url: String, scope: Scope, clock: SharedClock) -> Self {
        Self { client: clients.watch.clone(), url, scope, clock }
    }

    /// Returns the HPAs to explain.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the last decision for every requested HPA, in order of namespace and name.
    pub(super) async fn round(&self) -> Result<Vec<Situation>, WhyError> {
        let keys = match (&self.scope.namespace, &self.scope.name) {
            (Some(namespace), Some(name)) => vec![Key::new(namespace.as_str(), name.as_str())],
            _ => self.keys().await?,
        };
        let situations = stream::iter(keys).map(|key| self.situation(key)).buffered(AT_ONCE);
        Ok(situations.try_collect().await?)
    }

    /// Returns the HPAs with a decision, in the requested namespace.
    async fn keys(&self) -> Result<Vec<Key>, RecordError> {
        let (mut keys, mut next) = (Vec::new(), String::new());
        loop {
            let call = Call::get(["decisions"]).query("continue", &next).at_most(LARGEST);
            let page: DecisionSummaryList = self
                .client
                .json(&call)
                .await
                .map_err(|error| self.unreadable("any HPA".to_owned(), error))?;
            let here = page.items.into_iter().map(|item| Key::new(item.namespace, item.name));
            keys.extend(here.filter(|key| match &self.scope.namespace {
                Some(namespace) => **namespace == *key.namespace,
                None => true,
            }));
            match page.metadata.next {
                Some(following) if following != next => next = following,
                _ => return Ok(keys),
            }
        }
    }

    fn unreadable(&self, what: String, error: ApiError) -> RecordError {
        RecordError::Unreadable { url: self.url.clone(), what, error: Box::new(error) }
    }

    async fn situation(&self, key: Key) -> Result<Situation, RecordError> {
        let call = Call::get(["decisions", &key.namespace, &key.name]).at_most(LARGEST);
        let read = self.client.json::<DecisionList>(&call).await;
        let record = read.map_err(|error| self.unreadable(key.to_string(), error))?;
        let skew = record.now.duration_since(self.clock.now());
        situation(key, &record, &self.url, skew)
    }
}

/// Returns the situation of an HPA according to its record.
pub(super) fn situation(
    key: Key,
    record: &DecisionList,
    url: &str,
    skew: SignedDuration,
) -> Result<Situation, RecordError> {
    let Some(last) = record.decisions.first() else {
        return Err(RecordError::Undecided { url: url.to_owned(), key });
    };
    let past = past(record);
    let settings = Settings::from(record.controller.settings.clone());
    Ok(Situation {
        source: Source::Record {
            url: url.to_owned(),
            read_at: record.now,
            since: last.first_at,
            syncs: last.syncs,
            version: record.controller.version.clone(),
        },
        at: last.last_at,
        hpa: None,
        status_writer: None,
        in_charge: None,
        explanation: last.explanation.clone(),
        policy: last.policy.clone().map(PolicyEffect::from),
        sources: last.sources.clone(),
        rules: None,
        outcome: match last.result.outcome {
            Outcome::NotNeeded => WriteOutcome::NotNeeded,
            Outcome::Done => WriteOutcome::Done,
            Outcome::Failed => WriteOutcome::Failed(last.error.clone().unwrap_or_default()),
            Outcome::Withheld => WriteOutcome::Withheld,
        },
        events: last.events.iter().map(|reason| event(reason)).collect(),
        conditions: Vec::new(),
        metrics: Vec::new(),
        pods: Vec::new(),
        owners: std::collections::BTreeMap::new(),
        target: None,
        sharing: Vec::new(),
        recent_events: Vec::new(),
        past,
        flags: uses(&settings, |_| FlagOrigin::Record),
        settings,
        period: record.controller.sync_period,
        skew: Some(skew),
        refused: Vec::new(),
        missing_apis: Vec::new(),
        server_version: None,
        key,
    })
}

/// Creates an event from its reason. A record contains no messages.
fn event(reason: &str) -> EventContent {
    let kind = if reason == "SuccessfulRescale" { EventKind::Normal } else { EventKind::Warning };
    EventContent { kind, reason: reason.to_owned(), message: String::new() }
}

/// Returns the controller's history, and the rescales among its decisions.
pub(super) fn past(record: &DecisionList) -> Past {
    let history = autoscaling::history::History::from(record.history.clone());
    let entry = |at, what| HistoryEntry { at, earliest: None, what, origin: Origin::Record };
    let recommendations = history.recommendations.iter().map(|recommendation| {
        entry(recommendation.at, Memory::Recommendation { replicas: recommendation.replicas })
    });
    let rescales = record.decisions.iter().filter_map(|decision| {
        let DecisionResult { outcome: Outcome::Done, action, from, to: Some(to), .. } = decision.result
        else {
            return None;
        };
        (action != ActionTaken::None).then(|| entry(decision.last_at, Memory::Rescale { from, to }))
    });
    let mut unknown: Vec<_> = [history.unknown_up, history.unknown_down].into_iter().flatten().collect();
    unknown.dedup();
    let unknown = unknown.into_iter().map(|at| entry(at, Memory::UnknownRescale));
    let mut entries: Vec<_> = recommendations.chain(rescales).chain(unknown).collect();
    entries.sort_by_key(|entry| entry.at);
    Past { history, entries, complete: true }
}
