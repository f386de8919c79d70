//! One sync of one HPA: plan, gather, decide, write, conclude, in the order of kube-controller-manager.

use std::iter;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::condition::FAILED_UPDATE_SCALE;
use autoscaling::event::EventKind;
use autoscaling::explanation::LimitingStep;
use autoscaling::history::History;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, Api};
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use autoscaling::{
    Answers, Conclusion, Decision, ErrorLabel, Evaluation, Hpa, Overlap, Plan, Scale, ScaleFailure, Verdict,
    WriteOutcome, conclude, failed_update_status, plan,
};
use futures::StreamExt;
use jiff::Timestamp;
use policies::burst::BurstState;
use policies::history::PolicyHistory;
use policies::steps::PolicyEffect;
use policies::{Earlier, TargetState, ready_pods};
use tokio::time::Instant;

use super::comparator::{ComparedSync, ForeignRescale};
use super::evaluate::evaluate_metrics;
use super::gather::{Gathered, gather};
use super::guard_reads::GuardReads;
use super::histories::ClockReading;
use super::observe::ConcludedSync;
use super::policy::ConcludedPolicy;
use super::policy_inputs::PolicyInputs;
use super::rescale::Target;
use super::scale::ResolvedScale;
use super::sources::{Readings, SyncMetrics, pod_targets, without_sources};
use super::worker_pool::WorkerPermit;
use super::{Controller, event_target};
use crate::handover::charges::ChargePermits;
use crate::policy::{Applicable, Resolved};
use crate::store::{HpaRecord, Key};
use cluster::gate::{Permits, WritePermit};
use cluster::metrics::Metrics;
use cluster::status::StatusTarget;
use policies::spec::MetricRule;

/// A decision and its inputs.
struct Evaluated {
    plan: Plan,
    gathered: Gathered,
    /// The reads for guards of the policy.
    reads: GuardReads,
    pods: Vec<Arc<Pod>>,
    moment: ClockReading,
    /// Time of the decision.
    decided: Instant,
    history: History,
    decision: Decision,
    /// The effect of the policy, and the metrics of this sync for its next sync.
    policy: Option<(PolicyEffect, Remembered)>,
}

/// What the next sync of an HPA with a policy needs.
struct Remembered {
    metrics: PolicyHistory,
    burst: Option<BurstState>,
}

/// The circumstances of the writes of a sync.
struct Writes<'a> {
    /// Time of the decision.
    moment: ClockReading,
    /// The permission to write about the HPA. `None` if all HPAs are in scope.
    charge: Option<WritePermit>,
    permit: &'a mut WorkerPermit,
    /// The metrics of this sync, if the policy of the HPA needs them.
    metrics: Option<PolicyHistory>,
}

/// The state of a key after its sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The key is due again one period later.
    Period,
    /// The HPA was deleted, so the key is not due again.
    Gone,
}

impl Controller {
    /// Syncs one HPA. The permit is released while the sync waits for metrics or for a token of the rate
    /// limit, and when it sends the status.
    pub async fn sync(&self, key: &Key, permit: &mut WorkerPermit) -> Next {
        // Decoded large specs take much memory, so these HPAs wait for each other. The HPA may change meanwhile.
        let is_large = self.hpas.get(key).is_some_and(|record| record.packed.is_some());
        let large = is_large.then(|| self.workers.large.acquire(&key.namespace));
        let _large = match large {
            Some(large) => {
                permit.release();
                let large = large.await;
                permit.acquire(&key.namespace).await;
                Some(large)
            }
            None => None,
        };
        let Some(record) = self.hpas.get(key) else {
            return self.claim_outside(key, permit).await;
        };
        let record = match record.unpack() {
            Ok(record) => record,
            Err(error) => {
                tracing::error!(hpa = %key, %error, "failed to read the stored spec");
                return Next::Period;
            }
        };
        if self.stale_guard && self.hpas.is_stale(key) {
            self.telemetry.stale_skip();
            return Next::Period;
        }
        let started = Instant::now();
        // Requested before anything is read, so that nothing read before the charge is written in it.
        let charge = self.charge(key);
        let applicable = self.applicable_policy(&record);
        let policy = match &applicable {
            Some(Applicable::Merged(merged)) => {
                Some(merged.resolve(&record.spec, &self.settings, self.clock_reading().at))
            }
            Some(Applicable::Ended) | None => None,
        };
        let (policy, settings) =
            (policy.as_ref(), policy.as_ref().map_or(&self.settings, |policy| &policy.settings));
        let hpa = view(&record, policy);
        let before = self.comparator_of(key).and_then(|comparator| comparator.before(&record));
        let ResolvedScale { scale, mut target, cached } = self.cached_scale(key, &hpa, permit).await;
        let (record, before) = (&*record, before.as_ref());
        let Some(mut evaluated) = self.evaluate(record, policy, before, scale, None, permit).await else {
            return Next::Gone;
        };
        if cached && before.is_none() && matches!(evaluated.decision.verdict(), Verdict::Rescale { .. }) {
            // A write needs a fresh Scale. If the fresh Scale differs from the cached one, the sync decides
            // again.
            let fresh = self.fetch_scale(key, &hpa, Some(permit)).await;
            target = fresh.target;
            if fresh.scale.as_ref().ok() != evaluated.plan.scale() {
                evaluated =
                    match self.evaluate(record, policy, before, fresh.scale, Some(evaluated), permit).await {
                        Some(evaluated) => evaluated,
                        None => return Next::Gone,
                    };
            }
        }
        let Evaluated {
            plan,
            gathered: Gathered { answers, took, readings, arrival, .. },
            pods,
            moment,
            decided,
            history,
            decision,
            policy: decided_policy,
            ..
        } = evaluated;
        let (mut effect, remembered) = decided_policy.unzip();
        let (metrics, burst) =
            remembered.map_or((None, None), |Remembered { metrics, burst }| (Some(metrics), burst));
        let (target, at) = (target.filter(|_| before.is_none()), moment.at);
        let answers = Answers { metrics: answers, pods: &pods };
        self.count_ages(&answers, at);
        let outcome = self.rescale(key, &decision, target, charge.as_ref(), permit).await;
        // The end of the sync uses the same clock offset as the decision.
        let ended = at.checked_add(decided.elapsed()).unwrap_or(at);
        let mut conclusion = conclude(&hpa, decision, &outcome, settings, ended);
        if let Some((effect, (resolved, metrics))) = effect.as_mut().zip(policy.zip(metrics.as_ref())) {
            effect.next = resolved.rules.next_change(metrics, at);
        }
        if applicable.is_some() {
            let concluded = policy.zip(effect.as_ref()).zip(metrics.as_ref());
            let concluded = concluded.map(|((resolved, effect), metrics)| ConcludedPolicy {
                resolved,
                effect,
                next_edge: resolved.rules.next_edge(metrics, at),
                arrival,
            });
            self.conclude_policy(&hpa, &mut conclusion, concluded.as_ref(), started, ended);
        }
        if let Some(before) = before {
            before.remember(&record.spec, &mut conclusion.changes);
        }
        log(key, &conclusion, effect.as_ref(), &outcome, at);
        let concluded = ConcludedSync {
            hpa: record,
            at,
            ended,
            set: moment.set,
            answers: &answers,
            outcome: &outcome,
            conclusion: &conclusion,
            policy: effect.as_ref(),
            rules: policy.map(|policy| &policy.rules),
            sources: &readings,
        };
        for observer in &self.observers {
            observer.concluded(&concluded);
            observer.evaluated(&concluded, &plan, &history);
        }
        if let Some(comparator) = self.comparator_of(key) {
            comparator.compared(&ComparedSync {
                sync: &concluded,
                scale: plan.scale(),
                history: &history,
                before,
            });
        }
        // The observers have read these, and the status write may wait.
        conclusion.explanation.metrics = Vec::new();
        drop((answers, plan, history));
        let metrics = metrics.filter(|_| policy.is_some_and(Resolved::keeps_history));
        if !self.policies.is_empty() {
            self.bursts.set(&record.uid, burst);
        }
        let writes = Writes { moment, charge, permit, metrics };
        let status_written = self.finish(record, &outcome, &conclusion, writes).await;
        if !self.is_there(record) {
            // The HPA was deleted during the sync. State recorded since then would otherwise never be
            // dropped.
            self.forget(&record.key, &record.uid);
        }
        // A plan without queries measures no time.
        let took = took.into_iter().chain(iter::repeat(Duration::ZERO));
        for (computation, took) in conclusion.computations.iter().zip(took) {
            self.telemetry.computed(&computation.metric_type, computation.action, computation.error, took);
        }
        self.count_failures(&conclusion);
        // As in upstream, a failed status write is the result of a sync that computed a count.
        let decided = conclusion.explanation.desired.is_some() && !failed(&outcome);
        let error = if decided && !status_written { ErrorLabel::Internal } else { conclusion.error };
        self.telemetry.reconciled(conclusion.action, error, started.elapsed());
        Next::Period
    }

    /// Reads the Scale of an HPA's target and claims its selector, as a sync of the HPA would. Decides
    /// nothing. This call lets a caller that decides for one HPA find the other HPAs that control the same
    /// pods.
    pub async fn claim(&self, key: &Key) {
        if let Some(record) = self.hpas.get(key) {
            let hpa = view(&record, None);
            let ResolvedScale { scale, .. } = self.fetch_scale(key, &hpa, None).await;
            plan(&hpa, scale, |selector| self.overlap(key, selector), &self.settings);
        }
    }

    /// The permission for the writes of a sync that starts now. `None` if all HPAs are in scope.
    fn charge(&self, key: &Key) -> Option<WritePermit> {
        let charges = self.hpas.charges()?;
        Some(ChargePermits(Arc::clone(charges)).permit(&key.namespace, &key.name))
    }

    /// Claims the selector of an HPA out of scope that may share pods with HPAs in scope. Drops the state of
    /// any other key without an HPA.
    async fn claim_outside(&self, key: &Key, permit: &mut WorkerPermit) -> Next {
        let Some(target) = self.hpas.charges().and_then(|charges| charges.neighbour(key)) else {
            self.forget_key(key);
            return Next::Gone;
        };
        let spec =
            Spec { target, min_replicas: None, max_replicas: 1, metrics: Box::default(), behavior: None };
        let status = Status::default();
        let hpa = Hpa {
            namespace: &key.namespace,
            name: &key.name,
            generation: None,
            spec: &spec,
            status: &status,
        };
        let resolved = self.cached_scale(key, &hpa, permit).await;
        // A target without replicas has no pods to share. The built-in controller claims nothing for it either.
        if let Some(scale) = resolved.scale.ok().filter(|scale| scale.replicas > 0) {
            self.overlap(key, &scale.selector);
        }
        if self.hpas.charges().and_then(|charges| charges.neighbour(key)).is_none()
            && self.hpas.get(key).is_none()
        {
            self.forget_key(key);
            return Next::Gone;
        }
        Next::Period
    }

    /// Plans, gathers and decides. `earlier`: the previous evaluation of this sync. Its answers are reused if
    /// the plans have the same queries. `None` if the HPA was deleted, or replaced by an HPA that is due by
    /// itself.
    async fn evaluate(
        &self,
        record: &HpaRecord,
        policy: Option<&Resolved>,
        before: Option<&ForeignRescale>,
        mut scale: Result<Scale, ScaleFailure>,
        earlier: Option<Evaluated>,
        permit: &mut WorkerPermit,
    ) -> Option<Evaluated> {
        let (key, hpa) = (&record.key, view(record, policy));
        let settings = policy.map_or(&self.settings, |policy| &policy.settings);
        if let (Some(before), Ok(scale)) = (before, &mut scale) {
            scale.replicas = before.from;
        }
        let plan = plan(&hpa, scale, |selector| self.overlap(key, selector), settings);
        let mut evaluation = Evaluation::new(&hpa, &plan, settings);
        let (earlier, reads) = earlier.map_or((None, None), |Evaluated { gathered, plan, reads, .. }| {
            (Some((gathered, plan)), Some(reads))
        });
        let mut reads = match reads {
            Some(reads) => reads,
            None => self.read_for_guards(record, policy, &plan, permit).await,
        };
        let mut inputs = PolicyInputs::new(policy, &record.spec, reads.others());
        let gathered = match earlier {
            Some((gathered, earlier)) if gathered.is_complete && earlier.queries().eq(plan.queries()) => {
                gathered
            }
            _ => self.gather(&mut evaluation, &mut inputs, &plan, record, before, permit).await,
        };
        if !self.is_there(record) {
            return None;
        }
        let pods = inputs.pods(self.pods_of(&plan, key, before));
        let moment = self.clock_reading();
        let (decided, at) = (Instant::now(), moment.at);
        let history = self.histories.get(&record.uid);
        let mut answers = Answers { metrics: gathered.answers, pods: &pods };
        evaluate_metrics(&mut evaluation, &answers, &mut inputs, at).await;
        let (mut decision, policy) = match policy {
            None => (evaluation.decide(&history, at), None),
            Some(Resolved { rules, schedules, .. }) => {
                let (metrics, burst) = (self.histories.policy(&record.uid), self.bursts.get(&record.uid));
                let earlier = Earlier { metrics: &metrics, burst: burst.as_deref() };
                let count = ready_pods(pods.iter().map(|pod| &**pod));
                let mut decided = rules.decide(evaluation, &history, earlier, count, at);
                decided.steps.extend(inputs.take_steps());
                let target = TargetState {
                    unschedulable: reads.unschedulable,
                    rollout: reads.rollout,
                    ..TargetState::new(pods.iter().map(|pod| &**pod))
                };
                let mut effect = rules.apply(&mut decided, &target, schedules);
                reads.report(&mut effect);
                let remembered = Remembered { metrics: decided.history, burst: decided.burst };
                (decided.decision, Some((effect, remembered)))
            }
        };
        if let (Some(comparator), Some(scale), true) =
            (self.comparator_of(key), plan.scale(), gathered.is_complete)
            && let Some(metrics) = comparator.foreign_metrics(record, scale, &answers, &decision)
        {
            answers.metrics = metrics;
            let mut evaluation = Evaluation::new(&hpa, &plan, settings);
            evaluate_metrics(&mut evaluation, &answers, &mut PolicyInputs::default(), at).await;
            decision = evaluation.decide(&history, at);
        }
        let gathered = Gathered { answers: answers.metrics, ..gathered };
        Some(Evaluated { plan, gathered, reads, pods, moment, decided, history, decision, policy })
    }

    /// The metrics of an HPA whose policy names their origins, and where they note what they read. `None` if the
    /// metrics APIs answer.
    fn sync_metrics(
        &self,
        plan: &Plan,
        record: &HpaRecord,
        origins: Option<&Arc<[MetricRule]>>,
        before: Option<&ForeignRescale>,
    ) -> Option<(Arc<dyn Metrics>, Readings)> {
        let rules = Arc::clone(origins?);
        let reader = self.sources.clone()?;
        plan.queries().next()?;
        let pods = self.pods_of(plan, &record.key, before);
        let pods = pod_targets(&reader.addresses, &record.key.namespace, &pods);
        let readings = Readings::default();
        let metrics = SyncMetrics {
            apis: Arc::clone(&self.metrics),
            reader,
            rules,
            key: record.key.clone(),
            target: record.spec.target.name.as_str().into(),
            pods,
            clock: Arc::clone(&self.clock),
            telemetry: self.telemetry.clone(),
            readings: Arc::clone(&readings),
        };
        Some((Arc::new(metrics), readings))
    }

    /// The pods that the metrics of a plan concern.
    fn pods_of(&self, plan: &Plan, key: &Key, before: Option<&ForeignRescale>) -> Vec<Arc<Pod>> {
        match (plan.scale(), before) {
            (Some(_), Some(ForeignRescale { pods: Some(pods), .. })) => pods.clone(),
            (Some(scale), _) if plan.reads_metrics() => self.pods.select(&key.namespace, &scale.selector),
            _ => Vec::new(),
        }
    }

    fn overlap(&self, key: &Key, selector: &Arc<autoscaling::selector::Selector>) -> Overlap {
        let sharing = self.overlap.claim(key, selector, &self.pods);
        // Check after the claim: a deletion first removes the HPA and then releases its claim.
        let is_neighbour = || self.hpas.charges().is_some_and(|charges| charges.neighbour(key).is_some());
        if self.hpas.get(key).is_none() && !is_neighbour() {
            self.overlap.release(key, &self.pods);
            return Overlap::Deleted;
        }
        if sharing.len() > 1 {
            Overlap::Shared(sharing.iter().map(ToString::to_string).collect())
        } else {
            Overlap::None
        }
    }

    /// Fetches the metrics without holding a worker, so that a dead adapter delays only the HPAs that query
    /// it. If the answers are large, evaluates the metrics that have answers and drops these answers.
    async fn gather(
        &self,
        evaluation: &mut Evaluation<'_>,
        inputs: &mut PolicyInputs<'_>,
        plan: &Plan,
        record: &HpaRecord,
        before: Option<&ForeignRescale>,
        permit: &mut WorkerPermit,
    ) -> Gathered {
        if plan.queries().next().is_none() {
            return Gathered { is_complete: true, ..Gathered::default() };
        }
        permit.release();
        let mut gathered = Gathered::new(record.spec.metrics.len());
        let sources = self.sync_metrics(plan, record, inputs.origins(), before);
        let metrics = sources.as_ref().map_or(&self.metrics, |(metrics, _)| metrics);
        let mut incoming = pin!(gather(plan, metrics));
        while let Some(answer) = incoming.next().await {
            if gathered.add(answer) {
                let pods = inputs.pods(self.pods_of(plan, &record.key, before));
                let answers = Answers { metrics: gathered.take_answers(), pods: &pods };
                let at = self.clock_reading().at;
                self.count_ages(&answers, at);
                evaluate_metrics(evaluation, &answers, inputs, at).await;
            }
        }
        if let Some((_, readings)) = &sources {
            let noted = std::mem::take(&mut *readings.lock());
            (gathered.readings, gathered.arrival) = (noted.readings, noted.arrival);
        } else if let Some(rules) = inputs.origins() {
            gathered.readings = without_sources(plan, rules);
        }
        permit.acquire(&record.key.namespace).await;
        gathered
    }

    async fn rescale(
        &self,
        key: &Key,
        decision: &Decision,
        target: Option<Target>,
        charge: Option<&WritePermit>,
        permit: &mut WorkerPermit,
    ) -> WriteOutcome {
        match (decision.verdict(), target) {
            (Verdict::Rescale { to, .. }, Some(target)) => {
                self.write_scale(key, target, *to, charge, permit).await
            }
            // Another controller has rescaled the target.
            (Verdict::Rescale { .. }, None) => WriteOutcome::Withheld,
            _ => WriteOutcome::NotNeeded,
        }
    }

    /// Sends events and status and commits the history, unless the HPA was deleted or replaced during the
    /// sync. Returns false if the status write failed.
    async fn finish(
        &self,
        record: &HpaRecord,
        outcome: &WriteOutcome,
        conclusion: &Conclusion,
        mut writes: Writes<'_>,
    ) -> bool {
        let (moment, metrics) = (writes.moment, writes.metrics.take());
        // The gate may have opened since: a status must not report a rescale that was withheld.
        let published = *outcome == WriteOutcome::Withheld || self.publish(record, conclusion, writes).await;
        if self.is_there(record) {
            self.histories.commit(&record.uid, &conclusion.changes, moment);
            if !self.policies.is_empty() {
                self.histories.commit_policy(&record.uid, metrics, moment);
            }
            // A sync without a count, or with a failed write, leaves the series unchanged, as upstream does.
            let decided = conclusion.explanation.desired.is_some();
            if let (Some(desired), true) = (conclusion.desired, decided && !failed(outcome)) {
                self.telemetry.desired(&record.key.namespace, &record.key.name, desired);
            }
        }
        published
    }

    /// Sends events and status. Returns false if the status write failed.
    async fn publish(&self, record: &HpaRecord, conclusion: &Conclusion, writes: Writes<'_>) -> bool {
        let Writes { charge, permit, .. } = writes;
        let about = event_target(record);
        let (mut needs_refresh, mut written) = (false, true);
        for event in &conclusion.events {
            self.events.record(about.clone(), event.clone());
        }
        if let Some(status) = &conclusion.status {
            // A sync that waits at the rate limit keeps its status permit, so that new HPAs find a short queue
            // at the limit.
            permit.send_status(&record.key.namespace).await;
            let permission = self.statuses.turn(&record.key.namespace).await.for_write(charge);
            self.hpas.sends(&record.key, &record.uid, Arc::clone(status));
            match self.statuses.put(permission, status_target(record), status).await {
                Ok(resource_version) => self.hpas.wrote(&record.key, &record.uid, &resource_version),
                Err(error) if error.is_refused() => {}
                Err(error) => {
                    if error.is_conflict() {
                        for observer in &self.observers {
                            observer.conflicted(&record.key);
                        }
                    }
                    tracing::warn!(hpa = %record.key, %error, "failed to update status");
                    written = false;
                    let event = failed_update_status(&error.to_string());
                    self.telemetry.sync_failed(event.reason);
                    self.events.record(about.clone(), event);
                    needs_refresh = error.is_conflict() || error.outcome_unknown();
                }
            }
        }
        if let Some(event) = &conclusion.last_event {
            self.events.record(about, event.clone());
        }
        if needs_refresh {
            self.refresh_hpa(record).await;
        }
        written
    }

    /// Reads an HPA with a status write that conflicted or has an unknown outcome. Applies the HPA if it is
    /// newer than the watch. A deletion arrives by the watch.
    async fn refresh_hpa(&self, record: &HpaRecord) {
        match self.statuses.read(&record.key.namespace, &record.key.name).await {
            Ok(Some(object)) => self.apply_fresh(record, object),
            Ok(None) => {}
            Err(error) => tracing::debug!(hpa = %record.key, %error, "failed to refresh the HPA"),
        }
    }

    /// Records the age of the metrics answers, each by its oldest sample. A sample from the future has the
    /// age 0.
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

    /// Counts failures by the reasons of their events, except for the reason that only summarizes others.
    fn count_failures(&self, conclusion: &Conclusion) {
        for (reason, count) in &conclusion.unsent_events {
            self.telemetry.syncs_failed(reason, *count);
        }
        let events = conclusion.events.iter().chain(&conclusion.last_event);
        for event in events.filter(|event| event.kind == EventKind::Warning) {
            match event.reason {
                "FailedComputeMetricsReplicas" => {}
                // This failure counts by the reason of the condition.
                "FailedRescale" => self.telemetry.sync_failed(FAILED_UPDATE_SCALE),
                "SelectorRequired" => self.telemetry.sync_failed("InvalidSelector"),
                reason => self.telemetry.sync_failed(reason),
            }
        }
    }

    /// Whether an HPA is still in the store and was not replaced by another HPA of its name.
    fn is_there(&self, record: &HpaRecord) -> bool {
        self.hpas.get(&record.key).is_some_and(|current| current.uid == record.uid)
    }
}

/// Logs a decision that changes the target, or would change it if the gate allowed the write. A failed write
/// has a separate line. Warnings that are also sent as events are logged for debugging only.
fn log(
    key: &Key,
    conclusion: &Conclusion,
    effect: Option<&PolicyEffect>,
    outcome: &WriteOutcome,
    at: Timestamp,
) {
    if matches!(outcome, WriteOutcome::Done | WriteOutcome::Withheld) {
        let explanation = &conclusion.explanation;
        let metric = explanation.winning_metric().map(|metric| metric.subject().to_string());
        tracing::info!(
            hpa = %key,
            from = explanation.current,
            to = effect.map_or(explanation.desired, |effect| effect.applied),
            policy = effect.and_then(PolicyEffect::sentence),
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

/// Whether the rescale failed, or has an unknown outcome.
fn failed(outcome: &WriteOutcome) -> bool {
    matches!(outcome, WriteOutcome::Failed(_) | WriteOutcome::Unknown(_))
}

/// Returns the HPA as the object of a status write.
fn status_target(record: &HpaRecord) -> StatusTarget<'_> {
    StatusTarget {
        namespace: &record.key.namespace,
        name: &record.key.name,
        metadata: &record.metadata,
        spec: &record.spec_raw,
    }
}

/// Returns the core's view of a stored HPA, with the bounds of its policy.
fn view<'a>(record: &'a HpaRecord, policy: Option<&'a Resolved>) -> Hpa<'a> {
    Hpa {
        namespace: &record.key.namespace,
        name: &record.key.name,
        generation: record.generation,
        spec: policy.map_or(&record.spec, |policy| &policy.spec),
        status: &record.status,
    }
}
