//! Reads a cluster and decides for its HPAs with the controller's code. A [`Controller`] runs without watches: lists
//! fill its stores, its history is read or rebuilt, and the gate of the clients refuses every write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::history::Changes;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, Api, QueryError};
use autoscaling::spec::MetricSource;
use autoscaling::{Conclusion, WriteOutcome};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::explained_controller::{self, Leader, LeaderRecords, Resolved};
use super::history::{self, Evidence};
use super::objects::{ExtraMetadata, Lists, Objects};
use super::responses::Refusals;
use super::situation::{EventContent, HistoryEntry, Memory, Origin, Past, SKEW, Situation, Source};
use super::targets::ListedTargets;
use super::{Scope, WhyError, from, sources};
use clock::{SharedClock, ShiftedClock};
use cluster::call::Call;
use cluster::client::{ClientOptions, Clients};
use cluster::server::{self, Server};
use controller::assembly::{Parts, Phase};
use controller::options::Options;
use engine::reconcile::{ApiClients, ConcludedSync, Controller, Observer, SourceReading, WorkerPermit};
use engine::store::{HpaRecord, Key};
use engine::telemetry::metrics::Metrics as Telemetry;
use flags::DecisionFlags;
use journal::record::wire::{ControllerInfo, DecisionList};
use policies::resolve::Rules;
use policies::steps::PolicyEffect;
use terminal::flag_use::FlagUse;
use terminal::options::cluster::reads_only;
use terminal::options::leader::Leader as Lease;

/// Maximum number of concurrent decisions.
const AT_ONCE: usize = 8;

/// Returns client options for reads only. Their rate has no limit, because few requests are in flight at once, and
/// the API server gives each user a fair share.
pub fn client_options(refusals: &Arc<Refusals>) -> ClientOptions {
    ClientOptions { observer: Some(Arc::clone(refusals) as _), qps: 0.0, ..reads_only() }
}

/// Reads a cluster and decides for its HPAs, once per round.
#[derive(Debug)]
pub struct Reader {
    clients: Clients,
    refusals: Arc<Refusals>,
    controller: Arc<Controller>,
    lists: Lists,
    targets: Arc<ListedTargets>,
    captured: Arc<Captured>,
    server: Server,
    /// The controller's flags that the user gave.
    given: DecisionFlags,
    /// All flags that affect decisions.
    flags: Vec<FlagUse>,
    clock: SharedClock,
    scope: Scope,
    /// The reader of the leader's record. `None` if no record is read.
    leader: Option<Leader>,
    /// The records of the last round.
    records: LeaderRecords,
    /// The recommendations of earlier rounds. `None` without `--watch`.
    memory: Option<Memories>,
}

/// The recommendations that this command has kept.
#[derive(Debug)]
struct Memories {
    /// The time of the first round.
    since: Timestamp,
    by_uid: BTreeMap<Arc<str>, Vec<HistoryEntry>>,
}

/// The input of an explanation.
#[derive(Debug)]
pub struct Question<'a> {
    /// Clients created with [`client_options`] of `refusals`.
    pub clients: &'a Clients,
    /// The collection of reads that the server refuses.
    pub refusals: Arc<Refusals>,
    /// The HPAs to explain.
    pub scope: Scope,
    /// The controller's flags that the user gave.
    pub flags: &'a DecisionFlags,
    /// Whether the explanation is repeated (`--watch`).
    pub watch: bool,
    /// The Leases of controllers that may serve the record, in the order of the search. If empty, no record is read.
    pub leaders: Vec<Lease>,
    /// The local clock.
    pub clock: SharedClock,
}

impl Reader {
    /// Connects to the server, and reads its version and clock. Both affect the decisions.
    pub async fn connect(question: Question<'_>) -> Result<Self, WhyError> {
        let Question { clients, refusals, scope, flags: given, watch, leaders, clock } = question;
        let server = match server::read(&clients.discovery, &*clock).await {
            Ok(server) => server,
            // The server is reachable, because it returned an error response.
            Err(error) if error.code().is_some() => Server::default(),
            Err(error) => {
                return Err(WhyError::Unreadable {
                    what: "the API server's version",
                    error: Box::new(error),
                });
            }
        };
        let Resolved { options, warnings, uses } = explained_controller::resolve(given, server.minor)?;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let clock: SharedClock = match server.ahead {
            Some(ahead) if ahead.abs() > SKEW => Arc::new(ShiftedClock { clock, ahead }),
            _ => clock,
        };
        let captured = Arc::new(Captured::default());
        let memory = watch.then(|| Memories { since: clock.now(), by_uid: BTreeMap::new() });
        let targets = Arc::new(ListedTargets::default());
        let controller = controller(clients, options, &clock, &captured, &targets);
        let lists = Lists::new(clients.clone(), &controller);
        Ok(Self {
            clients: clients.clone(),
            refusals,
            controller,
            lists,
            targets,
            captured,
            server,
            given: given.clone(),
            flags: uses,
            clock,
            scope,
            leader: Leader::new(clients, &leaders),
            records: LeaderRecords::default(),
            memory,
        })
    }

    /// Returns the HPAs to explain.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Adopts the leader's flags. Returns whether they differ from the previous flags.
    fn adopt_flags(&mut self, info: ControllerInfo) -> Result<bool, WhyError> {
        let Resolved { options, uses, .. } = explained_controller::recorded(&self.given, info)?;
        self.flags = uses;
        let same =
            options.settings == self.controller.settings && options.sync_period == self.controller.period;
        if !same {
            self.controller = controller(&self.clients, options, &self.clock, &self.captured, &self.targets);
            self.lists = Lists::new(self.clients.clone(), &self.controller);
        }
        Ok(!same)
    }

    /// Reads all objects again, and decides for every requested HPA, in order of namespace and name.
    pub async fn round(&mut self) -> Result<Vec<Situation>, WhyError> {
        self.refusals.clear();
        let mut extras = self.lists.read(&self.scope).await?;
        let all = self.controller.stores.hpas.keys();
        let requested: Vec<Key> =
            if let (Some(namespace), Some(name)) = (&self.scope.namespace, &self.scope.name) {
                let key = Key::new(namespace.as_str(), name.as_str());
                if !all.contains(&key) {
                    let there = all.iter().map(|key| key.name.to_string()).collect();
                    return Err(WhyError::NotFound { key, there });
                }
                vec![key]
            } else {
                let selected = |key: &&Key| {
                    self.scope.selector.as_ref().is_none_or(|selector| extras.selected(key, selector))
                };
                all.iter().filter(selected).cloned().collect()
            };
        let records = match &mut self.leader {
            Some(leader) => leader.read(&requested).await,
            None => LeaderRecords::default(),
        };
        if let Some(info) = records.controller()
            && self.adopt_flags(info.clone())?
        {
            // The flags have changed, so the controller was replaced and its stores are empty.
            extras = self.lists.read(&self.scope).await?;
        }
        let pasts = self.remember(&requested, &extras, &records);
        self.list_targets().await;
        // All HPAs must claim their pods before the syncs. A single requested HPA claims its pods in its sync.
        let controller = &self.controller;
        let others = all.iter().filter(|key| requested != [Key::clone(key)]);
        stream::iter(others).for_each_concurrent(AT_ONCE, |key| controller.claim(key)).await;
        let apis = OnceCell::new();
        let reader = &*self;
        let (extras, from, apis) = (&extras, &records, &apis);
        let decided = stream::iter(requested.into_iter().zip(pasts))
            .map(|(key, past)| reader.decide(key, past, extras, from, apis))
            .buffered(AT_ONCE);
        let decided: Vec<_> = decided.filter_map(std::future::ready).collect().await;
        let mut situations = Vec::with_capacity(decided.len());
        for (situation, changes) in decided {
            self.keep(&situation, &changes);
            situations.push(situation);
        }
        self.records = records;
        Ok(situations)
    }

    async fn list_targets(&self) {
        let ApiClients { mapper, .. } = &self.controller.clients;
        // A refused list does not affect the decisions, so this client has no observer.
        let client = self.clients.core.unobserved();
        let namespace = self.scope.namespace.as_deref();
        self.targets.read(&client, mapper, &self.controller.stores.hpas, namespace).await;
    }

    /// Returns the controller's record of an HPA from the last round. `None` if the record was not read.
    pub fn record(&self, situation: &Situation) -> Option<&DecisionList> {
        self.records.record(&situation.key, &situation.hpa.as_ref()?.uid)
    }

    /// Returns the history of each requested HPA, from the controller's record if available, otherwise rebuilt. Seeds
    /// the controller with these histories.
    fn remember(&self, requested: &[Key], extras: &ExtraMetadata, records: &LeaderRecords) -> Vec<Past> {
        let controller = &self.controller;
        let now = controller.clock.now();
        let pasts = requested.iter().map(|key| {
            let Some(record) = controller.stores.hpas.get(key) else { return Past::default() };
            if let Some(own) = records.record(key, &record.uid) {
                let past = from::past(own);
                controller.stores.histories.seed(&record.uid, past.history.clone());
                return past;
            }
            let memory = self.memory.as_ref();
            let kept = memory.and_then(|memory| memory.by_uid.get(&record.uid));
            let mut past = history::rebuild(&Evidence {
                record: &record,
                events: &extras.events(key, &record.uid),
                settings: &controller.settings,
                period: controller.period,
                now,
                kept: kept.map(Vec::as_slice).unwrap_or_default(),
            });
            let window = history::longest_window(&record, &controller.settings);
            past.complete = memory.is_some_and(|memory| now.duration_since(memory.since) >= window);
            controller.stores.histories.seed(&record.uid, past.history.clone());
            past
        });
        pasts.collect()
    }

    /// Keeps the recommendations of one round for the next round.
    fn keep(&mut self, situation: &Situation, changes: &Changes) {
        let (Some(memory), Some(record)) = (&mut self.memory, &situation.hpa) else { return };
        let window = history::longest_window(record, &self.controller.settings);
        let since = situation.at.checked_sub(window).unwrap_or(Timestamp::MIN);
        let recommendation = changes.recommendation.map(|added| added.entry);
        // The sync of an HPA without history adds the current count as the initial recommendation.
        let initial = changes.initial.filter(|initial| Some(*initial) != recommendation);
        let own = [initial, recommendation];
        let own = own.into_iter().flatten().map(|recommendation| HistoryEntry {
            at: recommendation.at,
            earliest: None,
            what: Memory::Recommendation { replicas: recommendation.replicas },
            origin: Origin::Here,
        });
        let before = situation
            .past
            .entries
            .iter()
            .filter(|entry| matches!(entry.what, Memory::Recommendation { .. }) && entry.at >= since);
        memory.by_uid.insert(Arc::clone(&record.uid), before.cloned().chain(own).collect());
    }

    /// Decides for one HPA and reads the related objects. Returns `None` if the HPA has been deleted in the meantime.
    async fn decide(
        &self,
        key: Key,
        past: Past,
        extras: &ExtraMetadata,
        records: &LeaderRecords,
        apis: &OnceCell<BTreeSet<String>>,
    ) -> Option<(Situation, Changes)> {
        let controller = &self.controller;
        let mut permit = WorkerPermit::new(&controller.runtime.workers.any).await;
        controller.sync(&key, &mut permit).await;
        drop(permit);
        let Decided { record, at, outcome, conclusion, metrics, pods, policy, sources, rules } =
            self.captured.take(&key)?;
        let objects =
            Objects { client: &self.clients.core, mapper: &controller.clients.mapper, listed: &self.targets };
        let target = objects.target(&key.namespace, &record.spec.target).await;
        let owners = objects.owners(&key.namespace, &pods, extras, &target).await;
        let missing_apis = self.missing_apis(&record, &metrics, apis).await;
        let mut sharing = controller.stores.overlap.sharing(&key, &controller.stores.pods);
        sharing.retain(|other| *other != key);
        let Conclusion { status, events, last_event, changes, explanation, .. } = conclusion;
        let events = events.into_iter().chain(last_event).map(|event| EventContent {
            kind: event.kind,
            reason: event.reason.to_owned(),
            message: event.message,
        });
        let conditions = status.as_ref().unwrap_or(&record.status).conditions.clone();
        let situation = Situation {
            source: Source::Cluster {
                watching_since: self.memory.as_ref().map(|memory| memory.since),
                record: records.about(&key, &record.uid),
            },
            at,
            in_charge: extras.in_charge(&key),
            status_writer: extras.hpas.get(&key).and_then(super::responses::Meta::status_writer),
            explanation,
            settings: rules.as_ref().map_or_else(
                || controller.settings.clone(),
                |rules| policies::bounds::settings(&rules.policy.spec, &controller.settings),
            ),
            policy,
            sources,
            rules,
            outcome,
            events: events.collect(),
            conditions,
            metrics,
            pods,
            owners,
            target: Some(target),
            sharing,
            recent_events: extras.events(&key, &record.uid),
            past,
            flags: self.flags.clone(),
            period: controller.period,
            skew: self.server.ahead,
            refused: self.refusals.about(&record),
            missing_apis,
            server_version: Some(self.server.version.clone()).filter(|version| !version.is_empty()),
            hpa: Some(record),
            key,
        };
        let recorded = situation.hpa.as_ref().and_then(|hpa| records.record(&situation.key, &hpa.uid));
        Some((sources::of_controller(situation, recorded, records.pod()), changes))
    }

    /// Returns the metrics APIs that failed for an HPA because the cluster does not serve them.
    async fn missing_apis(
        &self,
        record: &HpaRecord,
        metrics: &[Option<Result<Answer, QueryError>>],
        apis: &OnceCell<BTreeSet<String>>,
    ) -> Vec<Api> {
        let failed = record.spec.metrics.iter().zip(metrics);
        let failed = failed.filter(|(_, answer)| matches!(answer, Some(Err(_))));
        let mut failed: Vec<_> = failed.filter_map(|(metric, _)| api(metric)).collect();
        failed.sort_unstable();
        failed.dedup();
        if failed.is_empty() {
            return failed;
        }
        let groups = apis.get_or_init(|| self.groups()).await;
        // Every cluster serves some groups, so an empty set means that the groups could not be read.
        failed.retain(|api| !groups.is_empty() && !groups.contains(api.group()));
        failed
    }

    async fn groups(&self) -> BTreeSet<String> {
        let groups = self.clients.discovery.json::<APIGroupList>(&Call::get(["apis"])).await;
        groups.map(|groups| groups.groups.into_iter().map(|group| group.name).collect()).unwrap_or_default()
    }
}

/// Creates a controller without watches.
fn controller(
    clients: &Clients,
    options: Options,
    clock: &SharedClock,
    captured: &Arc<Captured>,
    targets: &Arc<ListedTargets>,
) -> Arc<Controller> {
    let parts = Parts {
        clients,
        options: &Options { concurrent_syncs: AT_ONCE, ..options },
        clock: Arc::clone(clock),
        telemetry: Telemetry::new(),
        observers: vec![Arc::clone(captured) as _],
        seed: 0,
        phase: Phase::FirstSync,
    };
    parts.controller(Arc::clone(targets) as _)
}

/// Returns the API that serves a metric.
fn api(metric: &MetricSource) -> Option<Api> {
    match metric {
        MetricSource::Resource { .. } | MetricSource::ContainerResource { .. } => Some(Api::Resource),
        MetricSource::Pods { .. } | MetricSource::Object { .. } => Some(Api::Custom),
        MetricSource::External { .. } => Some(Api::External),
        MetricSource::Invalid(_) => None,
    }
}

/// Captures the conclusion of each sync.
#[derive(Debug, Default)]
struct Captured {
    by_key: Mutex<BTreeMap<Key, Decided>>,
}

/// The conclusion of one sync.
#[derive(Debug)]
struct Decided {
    record: Arc<HpaRecord>,
    at: Timestamp,
    outcome: WriteOutcome,
    conclusion: Conclusion,
    metrics: Vec<Option<Result<Answer, QueryError>>>,
    pods: Vec<Arc<Pod>>,
    policy: Option<PolicyEffect>,
    sources: Vec<SourceReading>,
    rules: Option<Arc<Rules>>,
}

impl Captured {
    fn take(&self, key: &Key) -> Option<Decided> {
        self.by_key.lock().remove(key)
    }
}

impl Observer for Captured {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let decided = Decided {
            record: Arc::new(sync.hpa.clone()),
            at: sync.at,
            outcome: sync.outcome.clone(),
            conclusion: sync.conclusion.clone(),
            metrics: sync.answers.metrics.clone(),
            pods: sync.answers.pods.to_vec(),
            policy: sync.policy.cloned(),
            sources: sync.sources.to_vec(),
            rules: sync.rules.cloned(),
        };
        let mut by_key = self.by_key.lock();
        by_key.insert(sync.hpa.key.clone(), decided);
    }
}
