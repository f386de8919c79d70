//! Reads a cluster and decides for its HPAs, with the controller's own code: a real [`Controller`] without watches,
//! whose stores are filled by lists, whose memory is rebuilt, and whose every write is refused at the gate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use autoscaling::history::Changes;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, Api, QueryError};
use autoscaling::spec::MetricSource;
use autoscaling::{Conclusion, WriteOutcome};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::flags::{self, Resolved};
use super::from;
use super::history::{self, Evidence};
use super::leader::{self, Leader};
use super::lists::{Beside, Lists};
use super::objects::Objects;
use super::refusals::Refusals;
use super::situation::{FlagUse, Memory, Origin, Past, Remembered, SKEW, Situation, Source, Told};
use super::{Scope, WhyError};
use crate::api::call::Call;
use crate::api::client::{ClientOptions, Clients};
use crate::api::gate::{Gate, Refusal};
use crate::api::server::{self, Server};
use crate::app::{Parts, Phase};
use crate::cli::Config;
use crate::cli::decision::DecisionFlags;
use crate::cli::why::Leader as Lease;
use crate::clock::{SharedClock, ShiftedClock};
use crate::controller::{Concluded, Controller, Observer, WorkerPermit};
use crate::record::wire::ControllerInfo;
use crate::store::{HpaRecord, Key};
use crate::telemetry::metrics::Metrics as Telemetry;

/// How many HPAs are read for at once.
const AT_ONCE: usize = 8;
/// kubectl's rate of requests.
const QPS: f32 = 50.0;
const BURST: u32 = 300;

/// How requests are made: reads alone, at kubectl's rate.
pub fn client_options(refusals: &Arc<Refusals>) -> ClientOptions {
    ClientOptions {
        qps: QPS,
        burst: BURST,
        gate: Gate::refusing(Refusal::DryRun),
        observer: Some(Arc::clone(refusals) as _),
        ..ClientOptions::default()
    }
}

/// Reads and decides, once or again and again.
#[derive(Debug)]
pub struct Reader {
    clients: Clients,
    refusals: Arc<Refusals>,
    controller: Arc<Controller>,
    lists: Lists,
    captured: Arc<Captured>,
    server: Server,
    /// The flags that were given.
    given: DecisionFlags,
    /// All that decide.
    flags: Vec<FlagUse>,
    clock: SharedClock,
    scope: Scope,
    /// The controller whose record is asked for.
    leader: Option<Leader>,
    /// With `--watch`: what is remembered of each HPA, by UID, and since when.
    memory: Option<Memories>,
}

#[derive(Debug)]
struct Memories {
    since: Timestamp,
    by_uid: BTreeMap<Arc<str>, Vec<Remembered>>,
}

/// What is asked of one cluster.
#[derive(Debug)]
pub struct Question<'a> {
    /// Made with [`client_options`] of these refusals.
    pub clients: &'a Clients,
    /// What may not be read.
    pub refusals: Arc<Refusals>,
    /// Which HPAs.
    pub scope: Scope,
    /// The flags of the controller.
    pub flags: &'a DecisionFlags,
    /// Whether it is asked again and again.
    pub watch: bool,
    /// Whose record is asked for; none: nobody's.
    pub leader: Option<Lease>,
    /// The local time of day.
    pub clock: SharedClock,
}

impl Reader {
    /// Meets the server, by whose version and time of day the decisions are made.
    pub async fn connect(question: Question<'_>) -> Result<Self, WhyError> {
        let Question { clients, refusals, scope, flags: given, watch, leader, clock } = question;
        let server = match server::ask(&clients.discovery, &*clock).await {
            Ok(server) => server,
            // Whoever answers with an error is there.
            Err(error) if error.code().is_some() => Server::default(),
            Err(error) => {
                return Err(WhyError::Unreadable {
                    what: "the API server's version",
                    error: Box::new(error),
                });
            }
        };
        let Resolved { config, uses } =
            flags::resolve(given, server.minor).map_err(|error| WhyError::Flags(error.to_string()))?;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let clock: SharedClock = match server.ahead {
            Some(ahead) if ahead.abs() > SKEW => Arc::new(ShiftedClock { clock, ahead }),
            _ => clock,
        };
        let captured = Arc::new(Captured::default());
        let memory = watch.then(|| Memories { since: clock.now(), by_uid: BTreeMap::new() });
        let controller = controller(clients, &config, &clock, &captured);
        let lists = Lists::new(clients.clone(), &controller);
        Ok(Self {
            clients: clients.clone(),
            refusals,
            controller,
            lists,
            captured,
            server,
            given: given.clone(),
            flags: uses,
            clock,
            scope,
            leader: leader.and_then(|lease| Leader::new(clients, lease)),
            memory,
        })
    }

    /// Takes over the flags of the controller that leads. Whether it decides with others than before.
    fn take_over(&mut self, info: ControllerInfo) -> Result<bool, WhyError> {
        let Resolved { config, uses } =
            flags::recorded(&self.given, info).map_err(|error| WhyError::Flags(error.to_string()))?;
        self.flags = uses;
        let same =
            config.settings == self.controller.settings && config.sync_period == self.controller.period;
        if !same {
            self.controller = controller(&self.clients, &config, &self.clock, &self.captured);
            self.lists = Lists::new(self.clients.clone(), &self.controller);
        }
        Ok(!same)
    }

    /// Reads everything anew and decides for every HPA that is asked for, by namespace and name.
    pub async fn round(&mut self) -> Result<Vec<Situation>, WhyError> {
        self.refusals.clear();
        let mut beside = self.lists.read(&self.scope).await?;
        let known = self.controller.hpas.keys();
        let wanted: Vec<Key> = match (&self.scope.namespace, &self.scope.name) {
            (Some(namespace), Some(name)) => {
                let key = Key::new(namespace.as_str(), name.as_str());
                if !known.contains(&key) {
                    let there = known.iter().map(|key| key.name.to_string()).collect();
                    return Err(WhyError::NotFound { key, there });
                }
                vec![key]
            }
            _ => known.clone(),
        };
        let told = match &mut self.leader {
            Some(leader) => leader.ask(&wanted).await,
            None => leader::Told::default(),
        };
        if let Some(info) = told.controller()
            && self.take_over(info.clone())?
        {
            // Other flags are those of another controller, whose stores are empty.
            beside = self.lists.read(&self.scope).await?;
        }
        let pasts = self.remember(&wanted, &beside, &told);
        // Whoever else controls the same pods must have said so before. One alone says it in its own sync.
        let controller = &self.controller;
        let others = known.iter().filter(|key| wanted != [Key::clone(key)]);
        stream::iter(others).for_each_concurrent(AT_ONCE, |key| controller.claim(key)).await;
        let apis = OnceCell::new();
        let reader = &*self;
        let (beside, told, apis) = (&beside, &told, &apis);
        let decided = stream::iter(wanted.into_iter().zip(pasts))
            .map(|(key, past)| reader.decide(key, past, beside, told, apis))
            .buffered(AT_ONCE);
        let decided: Vec<_> = decided.filter_map(std::future::ready).collect().await;
        let mut situations = Vec::with_capacity(decided.len());
        for (situation, changes) in decided {
            self.keep(&situation, &changes);
            situations.push(situation);
        }
        Ok(situations)
    }

    /// What the controller remembers of each HPA, or what one would, rebuilt.
    fn remember(&self, wanted: &[Key], beside: &Beside, told: &leader::Told) -> Vec<Past> {
        let controller = &self.controller;
        let now = controller.clock.now();
        let pasts = wanted.iter().map(|key| {
            let Some(record) = controller.hpas.get(key) else { return Past::default() };
            if let Some(own) = told.record(key, &record.uid) {
                let past = from::past(own);
                controller.histories.seed(&record.uid, past.history.clone());
                return past;
            }
            let memory = self.memory.as_ref();
            let kept = memory.and_then(|memory| memory.by_uid.get(&record.uid));
            let mut past = history::rebuild(&Evidence {
                record: &record,
                events: &beside.events(key, &record.uid),
                settings: &controller.settings,
                period: controller.period,
                now,
                kept: kept.map(Vec::as_slice).unwrap_or_default(),
            });
            let window = history::longest_window(&record, &controller.settings);
            past.complete = memory.is_some_and(|memory| now.duration_since(memory.since) >= window);
            controller.histories.seed(&record.uid, past.history.clone());
            past
        });
        pasts.collect()
    }

    /// Keeps what one round recommended for the next.
    fn keep(&mut self, situation: &Situation, changes: &Changes) {
        let (Some(memory), Some(record)) = (&mut self.memory, &situation.hpa) else { return };
        let window = history::longest_window(record, &self.controller.settings);
        let since = situation.at.checked_sub(window).unwrap_or(Timestamp::MIN);
        let recommendation = changes.recommendation.map(|added| added.entry);
        // The first one of an HPA without history is the current count, made up in the same moment.
        let initial = changes.initial.filter(|initial| Some(*initial) != recommendation);
        let own = [initial, recommendation];
        let own = own.into_iter().flatten().map(|recommendation| Remembered {
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

    /// Decides for one HPA and reads what else there is to know of it. None if it is gone meanwhile.
    async fn decide(
        &self,
        key: Key,
        past: Past,
        beside: &Beside,
        told: &leader::Told,
        apis: &OnceCell<BTreeSet<String>>,
    ) -> Option<(Situation, Changes)> {
        let controller = &self.controller;
        let mut permit = WorkerPermit::new(&controller.workers.any).await;
        controller.sync(&key, &mut permit).await;
        drop(permit);
        let Decided { record, at, outcome, conclusion, metrics, pods } = self.captured.take(&key)?;
        let objects = Objects { client: &self.clients.core, mapper: &controller.mapper };
        let target = objects.target(&key.namespace, &record.spec.target).await;
        let owners = objects.owners(&key.namespace, &pods, beside, &target).await;
        let missing_apis = self.missing_apis(&record, &metrics, apis).await;
        let mut sharing = controller.overlap.sharing(&key, &controller.pods);
        sharing.retain(|other| *other != key);
        let Conclusion { status, events, last_event, changes, explanation, .. } = conclusion;
        let events = events.into_iter().chain(last_event).map(|event| Told {
            kind: event.kind,
            reason: event.reason.to_owned(),
            message: event.message,
        });
        let conditions = status.as_ref().unwrap_or(&record.status).conditions.clone();
        let situation = Situation {
            source: Source::Cluster {
                watching_since: self.memory.as_ref().map(|memory| memory.since),
                record: told.about(&key, &record.uid),
            },
            at,
            status_writer: beside.hpas.get(&key).and_then(super::wire::Meta::status_writer),
            explanation,
            outcome,
            events: events.collect(),
            conditions,
            metrics,
            pods,
            owners,
            target: Some(target),
            sharing,
            recent_events: beside.events(&key, &record.uid),
            past,
            settings: controller.settings.clone(),
            flags: self.flags.clone(),
            period: controller.period,
            skew: self.server.ahead,
            refused: self.refusals.about(&record),
            missing_apis,
            server_version: Some(self.server.version.clone()).filter(|version| !version.is_empty()),
            hpa: Some(record),
            key,
        };
        Some((situation, changes))
    }

    /// The metrics APIs that failed an HPA because the cluster does not have them.
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
        // Without any group, they could not be read: every cluster has some.
        failed.retain(|api| !groups.is_empty() && !groups.contains(group(*api)));
        failed
    }

    async fn groups(&self) -> BTreeSet<String> {
        #[derive(Deserialize)]
        struct Groups {
            groups: Vec<Group>,
        }
        #[derive(Deserialize)]
        struct Group {
            name: String,
        }
        let groups = self.clients.discovery.json::<Groups>(&Call::get(["apis"])).await;
        groups.map(|groups| groups.groups.into_iter().map(|group| group.name).collect()).unwrap_or_default()
    }
}

/// A controller without watches.
fn controller(
    clients: &Clients,
    config: &Config,
    clock: &SharedClock,
    captured: &Arc<Captured>,
) -> Arc<Controller> {
    let parts = Parts {
        clients,
        config: &Config { concurrent_syncs: AT_ONCE, ..config.clone() },
        clock: Arc::clone(clock),
        telemetry: Telemetry::new(),
        observers: vec![Arc::clone(captured) as _],
        seed: 0,
        phase: Phase::FirstSync,
    };
    parts.controller()
}

/// The API that a metric is read from.
fn api(metric: &MetricSource) -> Option<Api> {
    match metric {
        MetricSource::Resource { .. } | MetricSource::ContainerResource { .. } => Some(Api::Resource),
        MetricSource::Pods { .. } | MetricSource::Object { .. } => Some(Api::Custom),
        MetricSource::External { .. } => Some(Api::External),
        MetricSource::Invalid(_) => None,
    }
}

fn group(api: Api) -> &'static str {
    match api {
        Api::Resource => super::refusals::RESOURCE_METRICS,
        Api::Custom => super::refusals::CUSTOM_METRICS,
        Api::External => super::refusals::EXTERNAL_METRICS,
    }
}

/// Takes hold of what each sync concluded.
#[derive(Debug, Default)]
struct Captured {
    by_key: Mutex<BTreeMap<Key, Decided>>,
}

/// What one sync concluded.
#[derive(Debug)]
struct Decided {
    record: Arc<HpaRecord>,
    at: Timestamp,
    outcome: WriteOutcome,
    conclusion: Conclusion,
    metrics: Vec<Option<Result<Answer, QueryError>>>,
    pods: Vec<Arc<Pod>>,
}

impl Captured {
    fn take(&self, key: &Key) -> Option<Decided> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}

impl Observer for Captured {
    fn concluded(&self, sync: &Concluded<'_>) {
        let decided = Decided {
            record: Arc::new(sync.hpa.clone()),
            at: sync.at,
            outcome: sync.outcome.clone(),
            conclusion: sync.conclusion.clone(),
            metrics: sync.answers.metrics.clone(),
            pods: sync.answers.pods.to_vec(),
        };
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        by_key.insert(sync.hpa.key.clone(), decided);
    }
}
