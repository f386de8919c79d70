//! The past of HPAs and of the leader. The recent past of an HPA comes from a situation of `why`, the controller's
//! record, the observations of the console, and the Prometheus servers that the scaling policy names. While pages are
//! open, the console repeatedly reads the leader's record and its Lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::row::{Decisions, LastDecision};
use crate::server::Record;
use crate::{Key, Observation, Subject, Unavailable};
use autoscaling::event::EventKind;
use autoscaling::spec::MetricSource;
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt as _, TryFutureExt as _};
use jiff::{SignedDuration, Timestamp};
use journal::record::wire::{API_VERSION, DecisionEntry, DecisionList, DecisionSummaryList, Outcome};
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use policies::spec::{MetricOrigin, MetricRule};
use sources::{Form, PastTarget, Sources, TimeRange};
use tokio::time::Instant;

use cluster::call::Call;
use cluster::client::{Client, Clients};
use cluster::typed;
use policies::steps::PolicyEffect;
use simulate::past::{Past, PastDecision, PastStatus};
use simulate::what_if::{PastError, SourceLoads};
use terminal::forward::{Connection, ForwardError, WITHIN, Which};
use terminal::options::leader::Leader;
use why::Situation;
use why::findings::occurrences;

/// The longest past to draw with a record.
const RECORDED: SignedDuration = SignedDuration::from_hours(24);
/// The longest past to draw without a record.
const SEEN: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of metrics whose past values are read for one question.
const MAX_METRICS: usize = 10;
/// The field managers of HPA controllers. Their writes of `spec.replicas` are rescales, not foreign writes.
const CONTROLLERS: [&str; 2] = ["kube-controller-manager", "concertina"];

/// Returns the longest past to draw.
pub(super) fn longest(record: Option<&DecisionList>) -> SignedDuration {
    if record.is_some_and(|record| !record.decisions.is_empty()) { RECORDED } else { SEEN }
}

/// Collects the recent past of an HPA. Returns `None` if the HPA itself was not read.
pub(super) fn past(
    situation: &Situation,
    record: Option<&DecisionList>,
    subject: &Subject,
    changes: &LeaderChanges,
) -> Option<Past> {
    let hpa = situation.hpa.as_ref()?;
    let reference = &hpa.spec.target;
    let entries = record.map(|record| record.decisions.as_slice()).unwrap_or_default();
    let current = PastDecision {
        first: situation.at,
        last: situation.at,
        syncs: 1,
        explanation: Arc::new(situation.explanation.clone()),
        policy: situation.policy.clone().map(Arc::new),
        wanted: Some(situation.explanation.current),
        ratios: Vec::new(),
    };
    let mut happenings = writers(situation);
    happenings.extend(changes.marks());
    happenings.sort();
    Some(Past {
        namespace: situation.key.namespace.to_string(),
        name: situation.key.name.to_string(),
        target: format!("{}/{}", reference.kind, reference.name),
        spec: Arc::clone(&hpa.spec),
        settings: situation.settings.clone(),
        period: situation.sync_period(),
        to: situation.at,
        decisions: entries.iter().rev().map(decision).collect(),
        current,
        observations: subject.observations.iter().map(status).collect(),
        counts: counts(situation, subject),
        events: events(situation),
        happenings,
    })
}

fn decision(entry: &DecisionEntry) -> PastDecision {
    let result = &entry.result;
    PastDecision {
        first: entry.first_at,
        last: entry.last_at,
        syncs: entry.syncs,
        explanation: Arc::new(entry.explanation.clone()),
        policy: entry.policy.clone().map(PolicyEffect::from).map(Arc::new),
        wanted: if result.outcome == Outcome::Done { result.to } else { result.from },
        ratios: entry
            .ratios
            .iter()
            .map(|range| (range.metric.clone(), range.lowest, range.highest))
            .collect(),
    }
}

fn status(observation: &Observation) -> PastStatus {
    let Observation { at, current, desired, values } = *observation;
    PastStatus { at, current, desired, values: values.to_vec() }
}

/// Returns the changes of the replica count, from the events and from the watch.
fn counts(situation: &Situation, subject: &Subject) -> Vec<(Timestamp, i32)> {
    let seen = subject.history.iter().map(|count| (count.at, count.replicas));
    let mut counts: Vec<_> = situation.recent_events.iter().flat_map(occurrences).chain(seen).collect();
    counts.sort_unstable();
    counts.dedup_by_key(|(_, count)| *count);
    counts
}

fn events(situation: &Situation) -> Vec<(Timestamp, bool, String, String)> {
    let events = situation.recent_events.iter().map(|event| {
        let content = &event.content;
        let is_warning = content.kind == EventKind::Warning;
        (event.last, is_warning, content.reason.clone(), content.message.clone())
    });
    let mut events: Vec<_> = events.collect();
    events.sort();
    events
}

/// Returns the last status write of each field manager, if several managers write the status. Also returns the last
/// write of the target's replicas by each manager that is not an HPA controller.
fn writers(situation: &Situation) -> Vec<(Timestamp, String)> {
    let statuses = situation.hpa.as_ref().map(|hpa| hpa.status_writers.as_slice()).unwrap_or_default();
    let of_status = statuses
        .iter()
        .filter(|_| statuses.len() > 1)
        .map(|writer| (writer.at, format!("status written by {}", writer.manager)));
    let object = situation.target.as_ref().and_then(|target| target.object.as_ref());
    let managers = object.map(|object| object.replicas_owners.as_slice()).unwrap_or_default();
    let is_controller = |manager: &str| {
        CONTROLLERS.contains(&manager) || statuses.iter().any(|writer| &*writer.manager == manager)
    };
    let of_replicas = managers.iter().filter(|manager| !is_controller(&manager.manager));
    let of_replicas = of_replicas
        .filter_map(|manager| Some((manager.time?, format!("spec.replicas written by {}", manager.manager))));
    of_status.chain(of_replicas).collect()
}

/// Reads past values of the metrics for which the scaling policy names a Prometheus server. `sources` has the servers
/// of `--metric-sources-file`. `range` is `None` if there is no past to simulate.
pub(super) async fn source_loads(
    situation: &Situation,
    sources: Option<&Sources>,
    range: Option<TimeRange>,
) -> SourceLoads {
    let (Some(hpa), Some(rules), Some(range)) = (&situation.hpa, &situation.rules, range) else {
        return SourceLoads::default();
    };
    let reference = &hpa.spec.target;
    let target =
        PastTarget { namespace: &situation.key.namespace, kind: &reference.kind, name: &reference.name };
    let rules = rules.policy.spec.metrics.as_deref().unwrap_or_default();
    let metrics = hpa.spec.metrics.iter().enumerate();
    let found = metrics.filter_map(|(index, metric)| Some((index, rule_of(rules, metric)?)));
    let reads = found.enumerate().map(async |(position, (index, (rule, form)))| {
        let read = match sources {
            None => Some(Err(PastError::NoFile(sources::described(&rule.origin)))),
            Some(_) if position >= MAX_METRICS => Some(Err(PastError::TooManyMetrics(MAX_METRICS))),
            Some(sources) => {
                let read = sources.past(&rule.origin, form, &target, range, range.step()).await;
                read.map(|read| read.map_err(PastError::from))
            }
        };
        Some((index, read?))
    });
    let by_metric: BTreeMap<_, _> = join_all(reads).await.into_iter().flatten().collect();
    SourceLoads { by_metric }
}

/// Returns the rule of the scaling policy that reads a metric from a Prometheus server, and the form of the metric's
/// numbers.
fn rule_of<'a>(rules: &'a [MetricRule], metric: &MetricSource) -> Option<(&'a MetricRule, Form)> {
    let (identifier, form) = match metric {
        MetricSource::Pods { metric, .. } => (metric, Form::PerPod),
        MetricSource::Object { metric, .. } | MetricSource::External { metric, .. } => (metric, Form::Single),
        _ => return None,
    };
    let rule = MetricRule::find(rules, &identifier.name)?;
    matches!(rule.origin, MetricOrigin::Prometheus { .. }).then_some((rule, form))
}

/// Maximum number of pages of a record to read. A page has at most 500 HPAs.
const MAX_PAGES: usize = 40;
/// Maximum difference between two times of the same change of the leader. A Lease has the time of its acquisition, and
/// a record has the time at which the leader restored the histories.
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
    /// The record has another API version.
    #[error("the controller's record has version {0}, not {API_VERSION}: use the version of the controller")]
    Version(String),
}

/// Reads the last decisions of all HPAs from the record of the leader, through one connection that stays open.
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
            candidates: Which::leaders(leaders),
            namespace: namespace.map(str::to_owned),
            leaders: leaders.to_vec(),
            changes,
            connection: Arc::default(),
        }
    }

    async fn read(self) -> Result<Option<Decisions>, ReadError> {
        if self.candidates.is_empty() || !Connection::is_possible(&self.clients) {
            return Ok(None);
        }
        // A change of the leader is often the reason why a record cannot be read, so the Lease is read in any case.
        self.changes.read(&self.clients.core.unobserved(), &self.leaders).await;
        self.pages().await.map(Some)
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
            let next_page = page.metadata.next.clone();
            by_key.extend(last_decisions(page));
            match next_page {
                Some(following) if following != next => next = following,
                _ => break,
            }
        }
        *kept = Some(connection);
        Ok(Decisions { by_key })
    }
}

/// Returns the decisions of a page of the record.
pub(super) fn last_decisions(page: DecisionSummaryList) -> impl Iterator<Item = (Key, LastDecision)> {
    let (now, period) = (page.now, page.controller.sync_period);
    page.items.into_iter().map(move |item| {
        let (sentence, period) = (&item.result.sentence, item.sync_period.unwrap_or(period));
        let decision = LastDecision::new(sentence, item.first_at, item.last_at, now, period);
        ((item.namespace, item.name), decision)
    })
}

impl Record for LeaderRecord {
    fn last_decisions(&self) -> BoxFuture<'static, Result<Option<Decisions>, Unavailable>> {
        self.clone().read().err_into().boxed()
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

    /// Adds the last change that the first existing Lease shows. An unreadable Lease is ignored, because the page of
    /// the controller shows the reason.
    pub(super) async fn read(&self, client: &Client, leaders: &[Leader]) {
        for Leader { namespace, lease, .. } in leaders {
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
