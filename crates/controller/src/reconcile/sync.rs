//! One sync of one HPA: plan, gather, decide, write, conclude, in the order of kube-controller-manager.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::history::History;
use autoscaling::pod::Pod;
use autoscaling::{
    Answers, Decision, ErrorLabel, Evaluation, Plan, Scale, ScaleFailure, Verdict, WriteOutcome, conclude,
    plan,
};
use policies::burst::BurstState;
use policies::history::PolicyHistory;
use policies::steps::PolicyEffect;
use policies::{Earlier, TargetState, ready_pods};
use tokio::time::Instant;

use super::gather::{Gathered, evaluate_metrics};
use super::guard_reads::GuardReads;
use super::histories::ClockReading;
use super::policy_inputs::{ConcludedPolicy, PolicyInputs};
use super::report::{ComparedSync, ConcludedSync, ForeignRescale, Writes, failed, log};
use super::scale::{ResolvedScale, Target};
use super::{Controller, Next, WorkerPermit, view};
use crate::handover::charges::ChargePermits;
use crate::policy::{Applicable, Resolved};
use crate::store::{HpaRecord, Key, Staleness};
use cluster::gate::{Permits, WritePermit};

/// A decision and its inputs.
struct Evaluated {
    plan: Plan,
    gathered: Gathered,
    /// The reads for guards of the policy.
    reads: GuardReads,
    pods: Vec<Arc<Pod>>,
    moment: ClockReading,
    /// The time of the decision by the monotonic clock, which wall-clock jumps do not affect.
    decided: Instant,
    history: History,
    decision: Decision,
    /// The effect of the policy, and the data for the next sync.
    policy: Option<(PolicyEffect, Remembered)>,
}

/// The data for the next sync of an HPA with a policy.
struct Remembered {
    metrics: PolicyHistory,
    burst: Option<BurstState>,
}

impl Controller {
    /// Syncs one HPA. The worker is released when the sync sends the status. It is also released during longer waits,
    /// for example for metrics or for a token of the rate limit.
    pub async fn sync(&self, key: &Key, permit: &mut WorkerPermit) -> Next {
        if self.stale_guard && self.is_stale(key).await {
            self.telemetry.stale_skip();
            return Next::Period;
        }
        let Some(record) = self.hpas.get(key) else {
            return self.claim_outside(key, permit).await;
        };
        if self.policies.hold(key) {
            tracing::debug!(hpa = %key, "abandoned a sync: its scaling policies are not known yet");
            return Next::Period;
        }
        let started = Instant::now();
        // Request the permission before any read. Otherwise this instance could take charge of the HPA after a read,
        // and then write a decision from that stale read.
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
        let (record, before) = (&*record, before.as_ref());
        // The future is boxed, because it is large and not needed during the writes.
        let decided = Box::pin(self.decide(record, policy, before, permit));
        let Some(decided) = self.decisions_end.run_until_cancelled(decided).await else {
            tracing::debug!(hpa = %key, "abandoned a sync before its decision: shutting down");
            return Next::Period;
        };
        let Some((evaluated, target)) = decided else {
            return Next::Gone;
        };
        let Evaluated {
            plan,
            gathered: Gathered { answers, took, readings, arrival, of_sources, .. },
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
        self.count_ages(&answers, &of_sources, at);
        let outcome = self.rescale(key, &decision, target, charge.as_ref(), permit).await;
        // The end is derived from the time of the decision, so that a clock jump during the write has no effect.
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
            self.conclude_policy(&hpa, &mut conclusion, concluded.as_ref(), ended);
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
        // Free the memory now. The observers have read these values, and the status write may wait.
        conclusion.explanation.metrics = Vec::new();
        drop((answers, plan, history));
        let metrics = metrics.filter(|_| policy.is_some_and(Resolved::keeps_history));
        if !self.policies.is_empty() {
            self.bursts.set(&record.uid, burst);
        }
        let writes = Writes { moment, charge, permit, metrics };
        let status_written = self.finish(record, &outcome, &conclusion, writes).await;
        if !self.is_there(record) {
            // The HPA was deleted during the sync. State that this sync has added would otherwise never be dropped.
            self.forget(&record.key, &record.uid);
        }
        // A plan without queries has no durations.
        let took = took.into_iter().chain(iter::repeat(Duration::ZERO));
        for (computation, took) in conclusion.computations.iter().zip(took) {
            self.telemetry.computed(&computation.metric_type, computation.action, computation.error, took);
        }
        self.count_failures(&conclusion);
        // As in upstream, a failed status write counts as an error only if the sync computed a count.
        let decided = conclusion.explanation.desired.is_some() && !failed(&outcome);
        let error = if decided && !status_written { ErrorLabel::Internal } else { conclusion.error };
        self.telemetry.reconciled(conclusion.action, error, started.elapsed());
        Next::Period
    }

    /// Returns whether the stored HPA lacks this controller's last status write. Reads the HPA if the watch may never
    /// deliver the write.
    async fn is_stale(&self, key: &Key) -> bool {
        let staleness = || self.hpas.staleness(key, self.period);
        if staleness() == Some(Staleness::Late)
            && let Some(record) = self.hpas.get(key)
        {
            self.refresh_hpa(&record).await;
        }
        staleness().is_some()
    }

    /// Returns the permission for the writes of a sync that starts now. `None` if all HPAs are in scope.
    fn charge(&self, key: &Key) -> Option<WritePermit> {
        let charges = self.hpas.charges()?;
        Some(ChargePermits(Arc::clone(charges)).permit(&key.namespace, &key.name))
    }

    /// Reads the Scale and decides. Writes nothing, so the future can be dropped at any time. Returns `None` if the HPA
    /// was deleted or replaced.
    async fn decide(
        &self,
        record: &HpaRecord,
        policy: Option<&Resolved>,
        before: Option<&ForeignRescale>,
        permit: &mut WorkerPermit,
    ) -> Option<(Evaluated, Option<Target>)> {
        let (key, hpa) = (&record.key, view(record, policy));
        let ResolvedScale { scale, mut target, cached } = self.cached_scale(key, &hpa, permit).await;
        let mut evaluated = self.evaluate(record, policy, before, scale, None, permit).await?;
        if cached && before.is_none() && matches!(evaluated.decision.verdict(), Verdict::Rescale { .. }) {
            // A write needs a fresh Scale. If it differs from the cached Scale, the sync decides again.
            let fresh = self.fetch_scale(key, &hpa, Some(permit)).await;
            target = fresh.target;
            if fresh.scale.as_ref().ok() != evaluated.plan.scale() {
                evaluated =
                    self.evaluate(record, policy, before, fresh.scale, Some(evaluated), permit).await?;
            }
        }
        Some((evaluated, target))
    }

    /// Plans, gathers and decides. `earlier`: the previous evaluation of this sync. Its answers are reused if the plans
    /// have the same queries. Returns `None` if the HPA was deleted or replaced, because a replacement has its own
    /// sync.
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
        let reads = match reads {
            Some(reads) => reads,
            None => self.read_for_guards(record, policy, &plan, permit).await,
        };
        let mut inputs = PolicyInputs::new(policy, &record.spec, Arc::clone(&reads.others));
        let gathered = match earlier {
            Some((gathered, earlier)) if earlier.queries().eq(plan.queries()) => gathered,
            _ => self.gather(&inputs, &plan, record, before, permit).await,
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
        if let (Some(comparator), Some(scale)) = (self.comparator_of(key), plan.scale())
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
            // The sync is compared with a rescale by another controller.
            (Verdict::Rescale { .. }, None) => WriteOutcome::Withheld,
            _ => WriteOutcome::NotNeeded,
        }
    }

    /// Returns whether an HPA is still in the store and was not replaced by another HPA with the same name.
    pub(super) fn is_there(&self, record: &HpaRecord) -> bool {
        self.hpas.get(&record.key).is_some_and(|current| current.uid == record.uid)
    }
}
