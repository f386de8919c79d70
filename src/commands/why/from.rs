//! The story of a Concertina controller's own last decision, from the record that it serves: its flags, its history, and
//! no access to the cluster.

use std::path::Path;

use autoscaling::WriteOutcome;
use autoscaling::event::EventKind;
use autoscaling::settings::Settings;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;
use kube::config::{AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig};
use kube::config::{NamedAuthInfo, NamedCluster, NamedContext};

use super::flags;
use super::situation::{FlagOrigin, Memory, Origin, Past, Remembered, Situation, Source, Told};
use super::{Scope, WhyError};
use crate::api::call::Call;
use crate::api::client::{Client, ClientOptions, Clients};
use crate::api::error::ApiError;
use crate::api::gate::{Gate, Refusal};
use crate::cli::why::From as Address;
use crate::clock::SharedClock;
use crate::record::wire::{ActionTaken, DecisionEntry, DecisionList, DecisionSummaryList, Outcome};
use crate::store::Key;

/// How many records are read at once.
const AT_ONCE: usize = 8;
/// The largest record that is read, in bytes: many decisions of an HPA with many metrics.
const LARGEST: usize = 32 << 20;

/// Why a record cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The address is none.
    #[error("--from: {0:?} is not an address: give one such as http://127.0.0.1:10257")]
    Address(String),
    /// The token would be sent in the clear.
    #[error("--token-file: a token is sent over https:// only, and {0} is not")]
    Clear(String),
    /// A file cannot be read.
    #[error("cannot read {path} ({flag}): {error}")]
    File {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: String,
        /// Why.
        error: String,
    },
    /// The way to the controller cannot be used.
    #[error("--from: {0}")]
    Way(String),
    /// The controller does not answer, or not with a record.
    #[error("{url} gives no record of {what}: {error}")]
    Unreadable {
        /// Where.
        url: String,
        /// Of what.
        what: String,
        /// What it said.
        error: Box<ApiError>,
    },
    /// The controller knows the HPA and has not decided yet.
    #[error("{url} has no decision for {key} yet: it is made within one sync period")]
    Undecided {
        /// Where.
        url: String,
        /// Which HPA.
        key: Key,
    },
}

/// Reads records.
#[derive(Debug)]
pub(super) struct Records {
    client: Client,
    url: String,
    scope: Scope,
    clock: SharedClock,
}

impl Records {
    /// The way to the controller at an address.
    pub(super) async fn at(address: &Address, scope: Scope, clock: SharedClock) -> Result<Self, RecordError> {
        let (clients, url) = way(address).await?;
        Ok(Self::over(&clients, url, scope, clock))
    }

    /// The same over clients that exist already.
    pub(super) fn over(clients: &Clients, url: String, scope: Scope, clock: SharedClock) -> Self {
        Self { client: clients.watch.clone(), url, scope, clock }
    }

    /// The last decision of every HPA that is asked for, by namespace and name.
    pub(super) async fn round(&self) -> Result<Vec<Situation>, WhyError> {
        let keys = match (&self.scope.namespace, &self.scope.name) {
            (Some(namespace), Some(name)) => vec![Key::new(namespace.as_str(), name.as_str())],
            _ => self.keys().await?,
        };
        let situations = stream::iter(keys).map(|key| self.situation(key)).buffered(AT_ONCE);
        Ok(situations.try_collect().await?)
    }

    /// The HPAs that the controller has decided for, in the namespace that is asked for.
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
        situation(key, record, &self.url, skew)
    }
}

/// The way to the controller at an address, and the address as answers call it. No credentials are sent but a token that
/// was given for it.
pub(in crate::commands) async fn way(address: &Address) -> Result<(Clients, String), RecordError> {
    let url = address.url.trim_end_matches('/').to_owned();
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(RecordError::Address(address.url.clone()));
    }
    if address.token_file.is_some() && !url.starts_with("https://") {
        return Err(RecordError::Clear(url));
    }
    let text = |flag, path: Option<&Path>| match path {
        None => Ok(None),
        Some(path) => match std::fs::File::open(path) {
            Ok(_) => Ok(Some(path.display().to_string())),
            Err(error) => {
                let (path, error) = (path.display().to_string(), error.to_string());
                Err(RecordError::File { flag, path, error })
            }
        },
    };
    let cluster = Cluster {
        server: Some(url.clone()),
        certificate_authority: text("--certificate-authority", address.certificate_authority.as_deref())?,
        insecure_skip_tls_verify: Some(address.insecure_skip_tls_verify),
        ..Cluster::default()
    };
    let user =
        AuthInfo { token_file: text("--token-file", address.token_file.as_deref())?, ..AuthInfo::default() };
    let name = "from".to_owned();
    let context = Context { cluster: name.clone(), user: Some(name.clone()), ..Context::default() };
    let config = Kubeconfig {
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some(name),
        ..Kubeconfig::default()
    };
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let config = config.map_err(|error| RecordError::Way(error.to_string()))?;
    let options = ClientOptions { gate: Gate::refusing(Refusal::DryRun), ..ClientOptions::default() };
    let clients = Clients::new(&config, &options).map_err(|error| RecordError::Way(error.to_string()))?;
    Ok((clients, url))
}

/// What a record tells of an HPA.
fn situation(
    key: Key,
    record: DecisionList,
    url: &str,
    skew: SignedDuration,
) -> Result<Situation, RecordError> {
    let Some(last) = record.decisions.first() else {
        return Err(RecordError::Undecided { url: url.to_owned(), key });
    };
    let past = past(&record);
    let settings = Settings::from(record.controller.settings);
    Ok(Situation {
        source: Source::Record {
            url: url.to_owned(),
            read_at: record.now,
            since: last.first_at,
            syncs: last.syncs,
            version: record.controller.version,
        },
        at: last.last_at,
        hpa: None,
        status_writer: None,
        explanation: last.explanation.clone(),
        outcome: match last.outcome {
            Outcome::NotNeeded => WriteOutcome::NotNeeded,
            Outcome::Done => WriteOutcome::Done,
            Outcome::Failed => WriteOutcome::Failed(last.error.clone().unwrap_or_default()),
            Outcome::Withheld => WriteOutcome::Withheld,
        },
        events: last.events.iter().map(|reason| told(reason)).collect(),
        conditions: Vec::new(),
        metrics: Vec::new(),
        pods: Vec::new(),
        owners: std::collections::BTreeMap::new(),
        target: None,
        sharing: Vec::new(),
        recent_events: Vec::new(),
        past,
        flags: flags::uses(&settings, |_| FlagOrigin::Record),
        settings,
        period: record.controller.sync_period,
        skew: Some(skew),
        refused: Vec::new(),
        missing_apis: Vec::new(),
        server_version: None,
        key,
    })
}

/// A record keeps no more of an event than its reason.
fn told(reason: &str) -> Told {
    let kind = if reason == "SuccessfulRescale" { EventKind::Normal } else { EventKind::Warning };
    Told { kind, reason: reason.to_owned(), message: String::new() }
}

/// The controller's history, and the rescales among its decisions.
pub(super) fn past(record: &DecisionList) -> Past {
    let history = autoscaling::history::History::from(record.history.clone());
    let remembered = |at, what| Remembered { at, earliest: None, what, origin: Origin::Record };
    let recommendations = history.recommendations.iter().map(|recommendation| {
        remembered(recommendation.at, Memory::Recommendation { replicas: recommendation.replicas })
    });
    let rescales = record.decisions.iter().filter_map(|decision| {
        let DecisionEntry { outcome: Outcome::Done, action, from, to: Some(to), last_at, .. } = decision
        else {
            return None;
        };
        let scaled = *action != ActionTaken::None;
        scaled.then(|| remembered(*last_at, Memory::Rescale { from: *from, to: *to }))
    });
    let mut unknown: Vec<_> = [history.unknown_up, history.unknown_down].into_iter().flatten().collect();
    unknown.dedup();
    let unknown = unknown.into_iter().map(|at| remembered(at, Memory::UnknownRescale));
    let mut entries: Vec<_> = recommendations.chain(rescales).chain(unknown).collect();
    entries.sort_by_key(|entry| entry.at);
    Past { history, entries, complete: true }
}
