//! One sync of one HPA: plan, gather, decide, write, conclude, in the reference's order.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::condition::FAILED_UPDATE_SCALE;
use autoscaling::event::EventKind;
use autoscaling::explanation::LimitingStep;
use autoscaling::history::History;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, Api};
use autoscaling::{
    Answers, Conclusion, Decision, Hpa, Overlap, Plan, Scale, ScaleFailure, Verdict, WriteOutcome, conclude,
    decide, failed_update_status, plan,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::beside::{Before, Compared};
use super::gather::{Gathered, gather};
use super::histories::Moment;
use super::observe::Concluded;
use super::permit::WorkerPermit;
use super::rescale::Target;
use super::scale::Reading;
use super::{Controller, event_target};
use crate::api::status::StatusTarget;
use crate::store::{HpaRecord, Key};

/// What a sync knows when it has decided, and from what.
struct Weighed {
    plan: Plan,
    gathered: Gathered,
    pods: Vec<Arc<Pod>>,
    moment: Moment,
    /// When it was decided.
    decided: Instant,
    history: History,
    decision: Decision,
}

/// What becomes of a key after its sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It comes back one period later.
    Period,
    /// Its HPA is gone: it does not come back by itself.
    Gone,
}

impl Controller {
    /// Syncs one HPA. The worker is given back while metrics are awaited, and when the status is sent.
    pub async fn sync(&self, key: &Key, permit: &mut WorkerPermit) -> Next {
        let Some(record) = self.hpas.get(key) else {
            self.forget_key(key);
            return Next::Gone;
        };
        if self.stale_guard && self.hpas.is_stale(key) {
            self.telemetry.stale_skip();
            return Next::Period;
        }
        let started = Instant::now();
        let hpa = view(&record);
        let before = self.beside.as_ref().and_then(|beside| beside.before(&record));
        let Reading { scale, mut target, seen } = self.look_at_scale(key, &hpa).await;
        let (record, before) = (&*record, before.as_ref());
        let Some(mut weighed) = self.weigh(record, before, scale, None, permit).await else {
            return Next::Gone;
        };
        if seen && before.is_none() && matches!(weighed.decision.verdict(), Verdict::Rescale { .. }) {
            // Nothing is written over what was only seen: read afresh, and if that differs, decided again.
            let fresh = self.read_scale(key, &hpa).await;
            target = fresh.target;
            if fresh.scale.as_ref().ok() != weighed.plan.scale() {
                weighed = match self.weigh(record, before, fresh.scale, Some(weighed), permit).await {
                    Some(weighed) => weighed,
                    None => return Next::Gone,
                };
            }
        }
        let Weighed { plan, gathered: Gathered { answers, took }, pods, moment, decided, history, decision } =
            weighed;
        let (target, at) = (target.filter(|_| before.is_none()), moment.at);
        let answers = Answers { metrics: answers, pods: &pods };
        self.count_ages(&answers, at);
        let outcome = self.rescale(key, &decision, target).await;
        // By the same setting of the clock as the decision.
        let ended = at.checked_add(decided.elapsed()).unwrap_or(at);
        let mut conclusion = conclude(&hpa, decision, &outcome, &self.settings, ended);
        if let Some(before) = before {
            before.remember(&record.spec, &mut conclusion.changes);
        }
        log(key, &conclusion, &outcome, at);
        let concluded = Concluded {
            hpa: record,
            at,
            ended,
            set: moment.set,
            answers: &answers,
            outcome: &outcome,
            conclusion: &conclusion,
        };
        for observer in &self.observers {
            observer.concluded(&concluded);
            observer.weighed(&concluded, &plan, &history);
        }
        if let Some(beside) = &self.beside {
            beside.compared(&Compared { sync: &concluded, scale: plan.scale(), history: &history, before });
        }
        self.finish(&concluded, permit).await;
        if !self.is_there(record) {
            // It went meanwhile: what was remembered after that would stay for good.
            self.forget(&record.key, &record.uid);
        }
        for (computation, took) in conclusion.computations.iter().zip(&took) {
            self.telemetry.computed(&computation.metric_type, computation.action, computation.error, *took);
        }
        self.count_failures(&conclusion);
        self.telemetry.reconciled(conclusion.action, conclusion.error, started.elapsed());
        Next::Period
    }

    /// Reads the Scale of an HPA's target and remembers its selector, if its sync would now. Nothing is decided: this
    /// is for who decides for one HPA and must know which others control the same pods.
    pub async fn claim(&self, key: &Key) {
        if let Some(record) = self.hpas.get(key) {
            let hpa = view(&record);
            let Reading { scale, .. } = self.read_scale(key, &hpa).await;
            plan(&hpa, scale, |selector| self.overlap(key, selector), &self.settings);
        }
    }

    /// Plans, gathers and decides. `earlier`: what this sync weighed before; its answers stand where the same is asked.
    /// `None` if the HPA is gone, or replaced by one that is due by itself: what would be decided concerns nobody any more.
    async fn weigh(
        &self,
        record: &HpaRecord,
        before: Option<&Before>,
        mut scale: Result<Scale, ScaleFailure>,
        earlier: Option<Weighed>,
        permit: &mut WorkerPermit,
    ) -> Option<Weighed> {
        let (key, hpa) = (&record.key, view(record));
        if let (Some(before), Ok(scale)) = (before, &mut scale) {
            scale.replicas = before.from;
        }
        let plan = plan(&hpa, scale, |selector| self.overlap(key, selector), &self.settings);
        let gathered = match earlier {
            Some(earlier) if earlier.plan.queries().eq(plan.queries()) => earlier.gathered,
            _ => self.gather(&plan, record, permit).await,
        };
        if !self.is_there(record) {
            return None;
        }
        let pods = match (plan.scale(), before) {
            (Some(_), Some(Before { pods: Some(pods), .. })) => pods.clone(),
            (Some(scale), _) if plan.reads_metrics() => self.pods.select(&key.namespace, &scale.selector),
            _ => Vec::new(),
        };
        let moment = self.moment();
        let (decided, at) = (Instant::now(), moment.at);
        let history = self.histories.get(&record.uid);
        let Gathered { answers, took } = gathered;
        let mut answers = Answers { metrics: answers, pods: &pods };
        let mut decision = decide(&hpa, &plan, &answers, &history, &self.settings, at);
        if let (Some(beside), Some(scale)) = (&self.beside, plan.scale())
            && let Some(metrics) = beside.as_seen(record, scale, &answers, &decision)
        {
            answers.metrics = metrics;
            decision = decide(&hpa, &plan, &answers, &history, &self.settings, at);
        }
        let gathered = Gathered { answers: answers.metrics, took };
        Some(Weighed { plan, gathered, pods, moment, decided, history, decision })
    }

    fn overlap(&self, key: &Key, selector: &Arc<autoscaling::selector::Selector>) -> Overlap {
        let sharing = self.overlap.claim(key, selector, &self.pods);
        // Asked after the claim: whoever deletes takes the HPA away first and releases its claim second.
        if self.hpas.get(key).is_none() {
            self.overlap.release(key, &self.pods);
            return Overlap::Deleted;
        }
        if sharing.len() > 1 {
            Overlap::Shared(sharing.iter().map(ToString::to_string).collect())
        } else {
            Overlap::None
        }
    }

    /// Awaits the metrics without holding a worker: a dead adapter delays only the HPAs that ask it.
    async fn gather(&self, plan: &Plan, record: &HpaRecord, permit: &mut WorkerPermit) -> Gathered {
        if plan.queries().next().is_none() {
            return Gathered::default();
        }
        permit.release();
        let gathered = gather(plan, record.spec.metrics.len(), &self.metrics).await;
        permit.acquire().await;
        gathered
    }

    async fn rescale(&self, key: &Key, decision: &Decision, target: Option<Target>) -> WriteOutcome {
        match (decision.verdict(), target) {
            (Verdict::Rescale { to, .. }, Some(target)) => self.write_scale(key, target, *to).await,
            // Somebody else has.
            (Verdict::Rescale { .. }, None) => WriteOutcome::Withheld,
            _ => WriteOutcome::NotNeeded,
        }
    }

    /// Sends events and status, and commits the history, unless the HPA went or was replaced meanwhile.
    async fn finish(&self, sync: &Concluded<'_>, permit: &mut WorkerPermit) {
        let Concluded { hpa: record, at, set, conclusion, outcome, .. } = *sync;
        // Writing may have been allowed since: a status must not tell of a rescale that was withheld.
        if *outcome != WriteOutcome::Withheld {
            self.tell(record, conclusion, permit).await;
        }
        if self.is_there(record) {
            self.histories.commit(&record.uid, &conclusion.changes, Moment { at, set });
            // A sync that came to no count, or could not write it, leaves the series as it is, as the reference does.
            let decided = conclusion.explanation.desired.is_some();
            if let (Some(desired), true) = (conclusion.desired, decided && !failed(outcome)) {
                self.telemetry.desired(&record.key.namespace, &record.key.name, desired);
            }
        }
    }

    /// Sends events and status.
    async fn tell(&self, record: &HpaRecord, conclusion: &Conclusion, permit: &mut WorkerPermit) {
        let about = event_target(record);
        let mut look = false;
        for event in &conclusion.events {
            self.events.record(about.clone(), event.clone());
        }
        if let Some(status) = &conclusion.status {
            // Whoever waits at the rate limit keeps the worker: what is new finds few in front of it.
            let turn = self.statuses.turn().await;
            permit.send_status().await;
            self.hpas.sends(&record.key, &record.uid, Arc::clone(status));
            match self.statuses.put(turn, status_target(record), status).await {
                Ok(resource_version) => self.hpas.wrote(&record.key, &record.uid, &resource_version),
                Err(error) if error.is_refused() => {}
                Err(error) => {
                    if error.is_conflict() {
                        for observer in &self.observers {
                            observer.conflicted(&record.key);
                        }
                    }
                    tracing::warn!(hpa = %record.key, %error, "the status could not be written");
                    let event = failed_update_status(&error.to_string());
                    self.telemetry.sync_failed(event.reason);
                    self.events.record(about.clone(), event);
                    look = error.is_conflict() || error.outcome_unknown();
                }
            }
        }
        if let Some(event) = &conclusion.last_event {
            self.events.record(about, event.clone());
        }
        if look {
            self.look_again(record).await;
        }
    }

    /// Reads an HPA whose status has changed under our hands, or of which nobody knows whether it has: what the watch has
    /// not shown yet is taken in. If the HPA is gone, the watch will tell.
    async fn look_again(&self, record: &HpaRecord) {
        match self.statuses.read(&record.key.namespace, &record.key.name).await {
            Ok(Some(object)) => self.heal(record, object),
            Ok(None) => {}
            Err(error) => tracing::debug!(hpa = %record.key, %error, "the HPA cannot be read again"),
        }
    }

    /// How old what the metrics APIs answered is, each by its oldest sample. A sample from the future is not old.
    fn count_ages(&self, answers: &Answers<'_>, now: Timestamp) {
        for answer in answers.metrics.iter().filter_map(|answer| answer.as_ref()?.as_ref().ok()) {
            let (api, oldest) = match answer {
                Answer::Resource(pods) => (Api::Resource, pods.iter().filter_map(|pod| pod.timestamp).min()),
                Answer::Custom(values) => {
                    (Api::Custom, values.iter().filter_map(|value| value.timestamp).min())
                }
                Answer::External(values) => {
                    (Api::External, values.iter().filter_map(|value| value.timestamp).min())
                }
            };
            if let Some(oldest) = oldest {
                let age = Duration::try_from(now.duration_since(oldest)).unwrap_or_default();
                self.telemetry.metrics_age(api, age);
            }
        }
    }

    /// What went wrong, by the reasons of the events that tell it, but for the one that only sums up the others.
    fn count_failures(&self, conclusion: &Conclusion) {
        let events = conclusion.events.iter().chain(&conclusion.last_event);
        for event in events.filter(|event| event.kind == EventKind::Warning) {
            match event.reason {
                "FailedComputeMetricsReplicas" => {}
                // As the condition calls it.
                "FailedRescale" => self.telemetry.sync_failed(FAILED_UPDATE_SCALE),
                "SelectorRequired" => self.telemetry.sync_failed("InvalidSelector"),
                reason => self.telemetry.sync_failed(reason),
            }
        }
    }

    /// Whether an HPA is still known, and has not been replaced by another of its name.
    fn is_there(&self, record: &HpaRecord) -> bool {
        self.hpas.get(&record.key).is_some_and(|known| known.uid == record.uid)
    }
}

/// One line for a decision that changes the target, or would if writing were allowed. A write that failed has a line of its
/// own; what users live with stands out only on demand, as the warnings that are sent as events.
fn log(key: &Key, conclusion: &Conclusion, outcome: &WriteOutcome, at: Timestamp) {
    if matches!(outcome, WriteOutcome::Done | WriteOutcome::Withheld) {
        let explanation = &conclusion.explanation;
        let metric = explanation.winning_metric().map(|metric| metric.subject().to_string());
        tracing::info!(
            hpa = %key,
            from = explanation.current,
            to = explanation.desired,
            metric = metric.as_deref(),
            limited_by = explanation.limiting_step().map(LimitingStep::as_str),
            withheld = (*outcome == WriteOutcome::Withheld).then_some(true),
            "{}",
            explanation.sentence(at)
        );
    }
    for event in conclusion.events.iter().chain(&conclusion.last_event) {
        if event.kind == EventKind::Warning {
            tracing::debug!(hpa = %key, reason = event.reason, "{}", event.message);
        }
    }
}

/// Whether the write that was decided failed.
fn failed(outcome: &WriteOutcome) -> bool {
    matches!(outcome, WriteOutcome::Failed(_) | WriteOutcome::Unknown(_))
}

/// The HPA whose status is written.
fn status_target(record: &HpaRecord) -> StatusTarget<'_> {
    StatusTarget {
        namespace: &record.key.namespace,
        name: &record.key.name,
        metadata: &record.metadata,
        spec: &record.spec_raw,
    }
}

/// The core's view of a stored HPA.
fn view(record: &HpaRecord) -> Hpa<'_> {
    Hpa {
        namespace: &record.key.namespace,
        name: &record.key.name,
        generation: record.generation,
        spec: &record.spec,
        status: &record.status,
    }
}
