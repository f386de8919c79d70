//! One sync of one HPA, in the order of `reconcileAutoscaler` of kube-controller-manager. [`Controller::sync`] is a
//! pipeline of stages. The result of each stage is the input of the next.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::history::History;
use autoscaling::pod::Pod;
use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use autoscaling::{
    Answers, Decision, ErrorLabel, Evaluation, Hpa, Plan, Verdict, WriteOutcome, conclude, plan,
};
use tokio::time::Instant;

use super::gather::{Gathered, evaluate_metrics};
use super::guests::{Basis, RuleInputs, Standpoint, SyncRules};
use super::histories::ClockReading;
use super::report::{ComparedSync, ConcludedSync, Writes, failed, log};
use super::scale::{ResolvedScale, Target};
use super::{Controller, Next, WorkerPermit, view};
use crate::store::{HpaRecord, Key, Staleness};
use cluster::gate::WritePermit;

/// An HPA at the start of its sync.
struct Prepared {
    started: Instant,
    record: Arc<HpaRecord>,
    /// [`Hpas::removals`](crate::store::Hpas::removals) before the record was read.
    removals: u64,
    /// The permission for the writes of this sync.
    charge: WritePermit,
    spec: Arc<Spec>,
    settings: Settings,
    rules: Box<dyn SyncRules>,
    standpoint: Standpoint,
}

/// The Scale of the target, the plan, and the answers to its queries.
struct Inputs {
    plan: Plan,
    gathered: Gathered,
    /// The target of a write. `None` if the Scale was not read from the API server.
    target: Option<Target>,
    /// Whether the Scale comes from a watch, so that a write needs a read first.
    is_cached: bool,
}

/// A decision with its inputs.
struct Decided {
    inputs: Inputs,
    /// The pods that count.
    pods: Vec<Arc<Pod>>,
    moment: ClockReading,
    /// The time of the decision by the monotonic clock, which wall-clock jumps do not affect.
    at: Instant,
    history: History,
    decision: Decision,
}

/// The change of a Scale that a decision requires.
#[expect(clippy::large_enum_variant, reason = "a sync has one value, and passes it on once")]
enum Change {
    None,
    /// The sync is compared with a rescale by another controller.
    Withheld,
    Write {
        target: Target,
        to: i32,
    },
}

impl Prepared {
    fn hpa(&self) -> Hpa<'_> {
        view(&self.record, &self.spec)
    }
}

impl Controller {
    /// Syncs one HPA. The worker is released when the sync sends the status. It is also released during longer waits,
    /// for example for metrics or for a token of the rate limit.
    pub async fn sync(&self, key: &Key, worker: &mut WorkerPermit) -> Next {
        let mut prepared = match self.prepare(key, worker).await {
            Ok(prepared) => prepared,
            Err(next) => return next,
        };
        // The future is boxed, because it is large and not needed during the writes. It writes nothing, so it can be
        // dropped at any time.
        let deciding = Box::pin(async {
            let inputs = self.inputs(&mut prepared, worker).await;
            let decided = self.decide(&mut prepared, inputs).await?;
            self.permit(&mut prepared, decided, worker).await
        });
        let Some(decided) = self.runtime.decisions_end.run_until_cancelled(deciding).await else {
            tracing::debug!(hpa = %key, "abandoned a sync before its decision: shutting down");
            return Next::Period;
        };
        let Some((decided, change)) = decided else { return Next::Gone };
        let outcome = self.write(&prepared, change, worker).await;
        self.conclude(prepared, decided, &outcome, worker).await;
        Next::Period
    }

    /// Reads the HPA from the store. Returns the end of the sync if there is nothing to sync.
    async fn prepare(&self, key: &Key, worker: &mut WorkerPermit) -> Result<Prepared, Next> {
        if self.stale_guard && self.is_stale(key).await {
            self.telemetry.stale_skip();
            return Err(Next::Period);
        }
        let removals = self.stores.hpas.removals();
        let Some(record) = self.stores.hpas.get(key) else {
            return Err(self.claim_outside(key, worker).await);
        };
        let started = Instant::now();
        // Request the permission before any read. Otherwise this instance could take charge of the HPA after a read,
        // and then write a decision from that stale read.
        let charge = self.guests.permits.permit(&key.namespace, &key.name);
        let is_compared = self.guests.comparator.compares(key);
        let basis =
            self.guests.rules.begin(&record, is_compared, &self.settings, &|| self.clock_reading().at);
        let Some(Basis { spec, settings, rules }) = basis else {
            tracing::debug!(hpa = %key, "abandoned a sync: rules that may apply are not known yet");
            return Err(Next::Period);
        };
        let standpoint = self.guests.comparator.standpoint(&record);
        Ok(Prepared { started, record, removals, charge, spec, settings, rules, standpoint })
    }

    /// Reads the Scale, plans, and fetches the metrics of the plan.
    async fn inputs(&self, sync: &mut Prepared, worker: &mut WorkerPermit) -> Inputs {
        let resolved = self.cached_scale(&sync.record.key, &sync.hpa(), worker).await;
        self.inputs_at(sync, resolved, None, worker).await
    }

    /// Plans with a Scale. Reuses the answers of an earlier plan of the same sync, if both plans have the same queries.
    async fn inputs_at(
        &self,
        sync: &mut Prepared,
        resolved: ResolvedScale,
        earlier: Option<Inputs>,
        worker: &mut WorkerPermit,
    ) -> Inputs {
        let ResolvedScale { scale, target, cached } = resolved;
        let scale = sync.standpoint.scale(scale);
        let key = &sync.record.key;
        let plan = plan(&sync.hpa(), scale, |selector| self.overlap(key, selector), &sync.settings);
        sync.rules.read(&plan, worker).await;
        let gathered = match earlier {
            Some(earlier) if earlier.plan.queries().eq(plan.queries()) => earlier.gathered,
            _ => self.gather(&mut *sync.rules, &plan, &sync.record, &sync.standpoint, worker).await,
        };
        Inputs { plan, gathered, target, is_cached: cached }
    }

    /// Decides, without I/O. Returns `None` if the HPA was deleted or replaced, because a replacement has its own sync.
    async fn decide(&self, sync: &mut Prepared, mut inputs: Inputs) -> Option<Decided> {
        if !self.is_there(&sync.record, sync.removals) {
            return None;
        }
        let Prepared { record, spec, settings, rules, standpoint, .. } = sync;
        let (plan, hpa) = (&inputs.plan, view(record, spec));
        let pods =
            standpoint.pods(plan, |scale| self.stores.pods.select(&record.key.namespace, &scale.selector));
        let moment = self.clock_reading();
        let at = Instant::now();
        let history = self.stores.histories.get(&record.uid);
        let mut answers = Answers { metrics: std::mem::take(&mut inputs.gathered.answers), pods: &[] };
        let deciding = rules.decide(RuleInputs {
            evaluation: Evaluation::new(&hpa, plan, settings),
            answers: &answers.metrics,
            pods,
            history: &history,
            histories: &self.stores.histories,
            at: moment.at,
        });
        let (mut decision, pods) = deciding.await;
        answers.pods = &pods;
        let foreign = self.guests.comparator.foreign_metrics(record, plan, &answers, &decision);
        if let Some(foreign) = foreign {
            answers.metrics = foreign;
            let mut evaluation = Evaluation::new(&hpa, plan, settings);
            evaluate_metrics(&mut evaluation, &answers.metrics, &pods, moment.at, |_, _| None).await;
            decision = evaluation.decide(&history, moment.at);
        }
        inputs.gathered.answers = answers.metrics;
        Some(Decided { inputs, pods, moment, at, history, decision })
    }

    /// Returns the change of the Scale that may be written. A write needs a fresh Scale. If it differs from a cached
    /// one, the sync decides again. Returns `None` like [`Self::decide`].
    async fn permit(
        &self,
        sync: &mut Prepared,
        mut decided: Decided,
        worker: &mut WorkerPermit,
    ) -> Option<(Decided, Change)> {
        let rescales = |decision: &Decision| matches!(decision.verdict(), Verdict::Rescale { .. });
        if sync.standpoint == Standpoint::Now && decided.inputs.is_cached && rescales(&decided.decision) {
            let fresh = self.fetch_scale(&sync.record.key, &sync.hpa(), worker).await;
            if fresh.scale.as_ref().ok() == decided.inputs.plan.scale() {
                decided.inputs.target = fresh.target;
            } else {
                let inputs = self.inputs_at(sync, fresh, Some(decided.inputs), worker).await;
                decided = self.decide(sync, inputs).await?;
            }
        }
        let target = decided.inputs.target.take().filter(|_| sync.standpoint == Standpoint::Now);
        let change = match (decided.decision.verdict(), target) {
            (Verdict::Rescale { to, .. }, Some(target)) => Change::Write { target, to: *to },
            (Verdict::Rescale { .. }, None) => Change::Withheld,
            _ => Change::None,
        };
        Some((decided, change))
    }

    /// Writes the Scale.
    async fn write(&self, sync: &Prepared, change: Change, worker: &mut WorkerPermit) -> WriteOutcome {
        match change {
            Change::Write { target, to } => {
                self.write_scale(&sync.record.key, target, to, &sync.charge, worker).await
            }
            Change::Withheld => WriteOutcome::Withheld,
            Change::None => WriteOutcome::NotNeeded,
        }
    }

    /// Concludes with status, events and history. Reports them to the observers, and then sends them.
    async fn conclude(
        &self,
        sync: Prepared,
        decided: Decided,
        outcome: &WriteOutcome,
        worker: &mut WorkerPermit,
    ) {
        let Prepared { started, record, removals, charge, spec, settings, mut rules, standpoint } = sync;
        let Decided { inputs: Inputs { plan, gathered, .. }, pods, moment, at: decided, history, decision } =
            decided;
        let (key, at, hpa) = (&record.key, moment.at, view(&record, &spec));
        // The end is derived from the time of the decision, so that a clock jump during the write has no effect.
        let ended = at.checked_add(decided.elapsed()).unwrap_or(at);
        let mut conclusion = conclude(&hpa, decision, outcome, &settings, ended);
        let report = rules.conclude(&hpa, &mut conclusion, at, ended);
        standpoint.remember(&record.spec, &mut conclusion.changes);
        log(key, &conclusion, report.effect, outcome, at);
        let answers = Answers { metrics: gathered.answers, pods: &pods };
        self.count_ages(&answers, report.of_sources, at);
        let withholds_status = self.withholds_status(&record, &conclusion, &settings, ended);
        let concluded = ConcludedSync {
            hpa: &record,
            at,
            ended,
            set: moment.set,
            answers: &answers,
            outcome,
            conclusion: &conclusion,
            withholds_status,
            policy: report.effect,
            rules: report.rules,
            sources: report.sources,
        };
        for observer in &self.guests.observers {
            observer.concluded(&concluded);
            observer.evaluated(&concluded, &plan, &history);
        }
        self.guests.comparator.compared(&ComparedSync {
            sync: &concluded,
            scale: plan.scale(),
            history: &history,
            standpoint: &standpoint,
        });
        // Free the memory now. The observers have read these values, and the status write may wait.
        conclusion.explanation.metrics = Vec::new();
        conclusion.status.take_if(|_| withholds_status);
        drop((answers, plan, history));
        let writes = Writes { moment, charge, worker, rules: &mut *rules, removals };
        let status_written = self.finish(&record, outcome, &conclusion, writes).await;
        if !self.is_there(&record, removals) {
            // The HPA was deleted during the sync. State that this sync has added would otherwise never be dropped.
            self.forget(key, &record.uid);
        }
        // A plan without queries has no durations.
        let took = gathered.took.into_iter().chain(iter::repeat(Duration::ZERO));
        for (computation, took) in conclusion.computations.iter().zip(took) {
            self.telemetry.computed(&computation.metric_type, computation.action, computation.error, took);
        }
        self.count_failures(&conclusion);
        // As in upstream, a failed status write counts as an error only if the sync computed a count.
        let decided = conclusion.explanation.desired.is_some() && !failed(outcome);
        let error = if decided && !status_written { ErrorLabel::Internal } else { conclusion.error };
        self.telemetry.reconciled(conclusion.action, error, started.elapsed());
    }

    /// Returns whether the stored HPA lacks this controller's last status write. Reads the HPA if the watch may never
    /// deliver the write.
    async fn is_stale(&self, key: &Key) -> bool {
        let staleness = || self.stores.hpas.staleness(key, self.period);
        if staleness() == Some(Staleness::Late)
            && let Some(record) = self.stores.hpas.get(key)
        {
            self.refresh_hpa(&record).await;
        }
        staleness().is_some()
    }

    /// Returns whether an HPA is still in the store and was not replaced by another HPA with the same name. `removals`:
    /// the number of removals before the record was read.
    pub(super) fn is_there(&self, record: &HpaRecord, removals: u64) -> bool {
        self.stores.hpas.removals() == removals
            || self.stores.hpas.get(&record.key).is_some_and(|current| current.uid == record.uid)
    }
}
