//! Scaling policies as a guest of syncs. Without policies, a sync follows the rules of upstream alone.

mod guards;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::pod::Pod;
use autoscaling::settings::Settings;
use autoscaling::spec::MetricSource;
use autoscaling::{Conclusion, Decision, Hpa, Plan};
use cluster::client::Client;
use cluster::mapper::Mapper;
use cluster::metrics::Metrics;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use policies::burst::BurstState;
use policies::forecast::Sample;
use policies::history::PolicyHistory;
use policies::steps::{PolicyEffect, SourceReading};
use policies::{Earlier, TargetState, ready_pods};
use tokio::time::Instant;

use self::guards::GuardReads;
use crate::forecasts::Forecasts;
use crate::inputs::{Bursts, PolicyInputs};
use crate::sources::{
    Arrival, Readings, SourceReader, SyncMetrics, is_of_source, pod_targets, without_sources,
};
use crate::{Applicable, Policies, Resolved, find, publish};
use clock::SharedClock;
use engine::reconcile::{
    Basis, ClockReading, Histories, MetricsSource, OwnPeriod, RuleDue, RuleInputs, RuleReport, Rulebook,
    SyncRules, Upstream, WorkerPermit, evaluate_metrics,
};
use engine::store::{Change, HpaRecord, Key, Pods};
use engine::telemetry::metrics::Metrics as Telemetry;

/// The scaling policies of a controller, with what their rules read.
#[derive(Debug)]
pub struct PolicyRules {
    /// The policies.
    pub policies: Arc<Policies>,
    /// The pods of the cluster.
    pub pods: Arc<Pods>,
    /// Maps the kinds of targets to resources.
    pub mapper: Arc<Mapper>,
    /// Client of the lists that guards need.
    pub guard_reads: Client,
    /// `--metric-sources`. `None`: the metrics APIs answer all queries.
    pub sources: Option<SourceReader>,
    /// The clock of readings.
    pub clock: SharedClock,
    /// Metrics of policies and sources.
    pub telemetry: Telemetry,
    /// The windows of HPAs whose policy sets `burst`.
    pub bursts: Bursts,
    /// The forecasts of HPAs whose policy sets `forecast`.
    pub forecasts: Forecasts,
}

/// [`PolicyRules`] as a guest.
#[derive(Debug, Clone)]
pub struct PolicyGuest(pub Arc<PolicyRules>);

impl Rulebook for PolicyGuest {
    fn begin(
        &self,
        hpa: &Arc<HpaRecord>,
        is_compared: bool,
        flags: &Settings,
        now: &dyn Fn() -> Timestamp,
    ) -> Option<Basis> {
        let Self(rules) = self;
        if !is_compared && rules.policies.hold(&hpa.key) {
            return None;
        }
        if rules.policies.is_empty() {
            return Upstream.begin(hpa, is_compared, flags, now);
        }
        // The other controller applies no policies.
        let applicable = if is_compared { None } else { rules.policies.applicable(hpa) };
        let (policy, has_ended) = match applicable {
            Some(Applicable::Merged(merged)) => (Some(merged.resolve(&hpa.spec, flags, now())), false),
            Some(Applicable::Ended) => (None, true),
            None => (None, false),
        };
        let (spec, settings) = match &policy {
            Some(policy) => (Arc::clone(&policy.spec), policy.settings.clone()),
            None => (Arc::clone(&hpa.spec), flags.clone()),
        };
        let (rules, hpa) = (Arc::clone(rules), Arc::clone(hpa));
        let rules: Box<dyn SyncRules> = match policy {
            Some(policy) => Box::new(PolicySync::new(rules, hpa, policy)),
            None => Box::new(NoPolicy { rules, hpa, has_ended }),
        };
        Some(Basis { spec, settings, rules })
    }

    fn due(&self, key: &Key) -> RuleDue {
        self.0.policies.due(key)
    }

    fn seen(&self, hpa: &HpaRecord, change: &Change) -> bool {
        if *change == Change::Unchanged {
            return false;
        }
        // The policy may have ended while no controller ran. Its condition is then still in the status.
        let shows_condition = *change == Change::New && find(&hpa.status.conditions).is_some();
        self.0.policies.apply_hpa(hpa, shows_condition)
    }

    fn forget(&self, uid: &str) {
        self.0.bursts.forget(uid);
        self.0.forecasts.forget(uid);
    }

    fn forget_key(&self, key: &Key) {
        if !self.0.policies.is_empty() {
            self.0.policies.forget_hpa(key);
            self.0.telemetry.policy(&key.namespace, &key.name, None);
        }
    }
}

/// A sync of an HPA without a policy, in a cluster with policies.
#[derive(Debug)]
struct NoPolicy {
    rules: Arc<PolicyRules>,
    hpa: Arc<HpaRecord>,
    /// Whether the last policy of the HPA has ended, so that its condition is removed.
    has_ended: bool,
}

impl SyncRules for NoPolicy {
    fn read<'a>(&'a mut self, plan: &'a Plan, worker: &'a mut WorkerPermit) -> BoxFuture<'a, ()> {
        let _ = (plan, worker);
        async {}.boxed()
    }

    fn metrics(
        &mut self,
        plan: &Plan,
        pods: &dyn Fn() -> Vec<Arc<Pod>>,
        apis: &Arc<dyn Metrics>,
    ) -> MetricsSource {
        Upstream.metrics(plan, pods, apis)
    }

    fn decide<'a>(&'a mut self, inputs: RuleInputs<'a>) -> BoxFuture<'a, (Decision, Vec<Arc<Pod>>)> {
        inputs.decide_as_upstream().boxed()
    }

    fn conclude(
        &mut self,
        hpa: &Hpa<'_>,
        conclusion: &mut Conclusion,
        _: Timestamp,
        ended: Timestamp,
    ) -> RuleReport<'_> {
        if self.has_ended {
            self.rules.publish(hpa, conclusion, None, RuleDue::default(), ended);
            self.rules.policies.condition_removed(&self.hpa.key);
        }
        RuleReport::default()
    }

    fn commit(&mut self, histories: &Histories, moment: ClockReading) {
        self.rules.bursts.set(&self.hpa.uid, None);
        self.rules.forecasts.forget(&self.hpa.uid);
        histories.commit_policy(&self.hpa.uid, None, moment);
        histories.commit_forecast(&self.hpa.uid, None);
    }
}

/// A sync of an HPA with a policy.
#[derive(Debug)]
struct PolicySync {
    rules: Arc<PolicyRules>,
    hpa: Arc<HpaRecord>,
    policy: Resolved,
    /// The reads for guards, after the first plan.
    reads: Option<GuardReads>,
    /// The readings of the queries of the last plan from sources.
    readings: Readings,
    /// The indices of the metrics that sources answer.
    of_sources: Vec<usize>,
    /// The results for observers and for the next sync.
    result: PolicyResult,
}

#[derive(Debug, Default)]
struct PolicyResult {
    effect: PolicyEffect,
    metrics: PolicyHistory,
    burst: Option<BurstState>,
    /// What the sync observed for the forecast. `None` without `forecast`.
    sample: Option<Sample>,
    sources: Vec<SourceReading>,
}

impl PolicySync {
    fn new(rules: Arc<PolicyRules>, hpa: Arc<HpaRecord>, policy: Resolved) -> Self {
        Self {
            rules,
            hpa,
            policy,
            reads: None,
            readings: Readings::default(),
            of_sources: Vec::new(),
            result: PolicyResult::default(),
        }
    }
}

impl SyncRules for PolicySync {
    fn read<'a>(&'a mut self, plan: &'a Plan, worker: &'a mut WorkerPermit) -> BoxFuture<'a, ()> {
        async move {
            if self.reads.is_none() {
                let reads = self.rules.read_for_guards(&self.hpa, &self.policy, plan, worker).await;
                self.reads = Some(reads);
            }
        }
        .boxed()
    }

    fn metrics(
        &mut self,
        plan: &Plan,
        pods: &dyn Fn() -> Vec<Arc<Pod>>,
        apis: &Arc<dyn Metrics>,
    ) -> MetricsSource {
        // With older responses, an HPA with a short period would use the same response in several syncs.
        let max_age = self.policy.period().map_or(Duration::MAX, |period| period / 2);
        (self.readings, self.of_sources) = (Readings::default(), Vec::new());
        let source = MetricsSource { metrics: Arc::clone(apis), max_age };
        let Some(origins) = &self.policy.rules.policy.spec.metrics else { return source };
        let Some(reader) = self.rules.sources.clone() else {
            self.readings.lock().readings = without_sources(plan, origins);
            return source;
        };
        if plan.queries().next().is_none() {
            return source;
        }
        let of_sources = plan.queries().filter(|(_, query)| is_of_source(origins, query));
        self.of_sources = of_sources.map(|(index, _)| index).collect();
        let pods = pod_targets(&reader.addresses, &self.hpa.key.namespace, &pods());
        let metrics = SyncMetrics {
            apis: source.metrics,
            reader,
            rules: Arc::clone(origins),
            key: self.hpa.key.clone(),
            target: self.hpa.spec.target.name.as_str().into(),
            pods,
            resources: resources(&self.hpa.spec.metrics),
            clock: Arc::clone(&self.rules.clock),
            telemetry: self.rules.telemetry.clone(),
            readings: Arc::clone(&self.readings),
        };
        MetricsSource { metrics: Arc::new(metrics), max_age }
    }

    fn decide<'a>(&'a mut self, inputs: RuleInputs<'a>) -> BoxFuture<'a, (Decision, Vec<Arc<Pod>>)> {
        async move {
            let RuleInputs { mut evaluation, answers, pods, history, histories, at } = inputs;
            let none = GuardReads::default();
            let reads = self.reads.as_ref().unwrap_or(&none);
            let mut inputs = PolicyInputs::new(&self.policy, &self.hpa.spec, Arc::clone(&reads.others));
            let pods = inputs.pods(pods);
            let replace = |index, answer: &_| inputs.replace(index, answer, &pods);
            evaluate_metrics(&mut evaluation, answers, &pods, at, replace).await;
            let Resolved { rules, schedules, .. } = &self.policy;
            let metrics = histories.policy(&self.hpa.uid);
            let burst = self.rules.bursts.get(&self.hpa.uid);
            let spec = rules.policy.spec.forecast.as_ref();
            let forecast = spec.map(|spec| {
                let stored = || histories.forecast(&self.hpa.uid);
                let stabilization = self.policy.settings.downscale_stabilization;
                self.rules.forecasts.report(&self.hpa, spec, stabilization, stored, at)
            });
            let earlier = Earlier { metrics: &metrics, burst: burst.as_deref(), forecast: forecast.as_ref() };
            let count = ready_pods(pods.iter().map(|pod| &**pod));
            let mut decided = rules.decide(evaluation, history, earlier, count, at);
            decided.steps.extend(inputs.take_steps());
            let counted = pods.iter().map(|pod| &**pod);
            let sample = spec.map(|spec| Sample::new(spec, &decided.decision, counted, count));
            let target = TargetState {
                unschedulable: reads.unschedulable,
                rollout: reads.rollout,
                ..TargetState::new(pods.iter().map(|pod| &**pod))
            };
            let mut effect = rules.apply(&mut decided, &target, schedules);
            reads.report(&mut effect);
            let (metrics, burst) = (decided.history, decided.burst);
            self.result = PolicyResult { effect, metrics, burst, sample, sources: Vec::new() };
            (decided.decision, pods)
        }
        .boxed()
    }

    fn conclude(
        &mut self,
        hpa: &Hpa<'_>,
        conclusion: &mut Conclusion,
        at: Timestamp,
        ended: Timestamp,
    ) -> RuleReport<'_> {
        let noted = std::mem::take(&mut *self.readings.lock());
        let PolicyResult { effect, metrics, sources, .. } = &mut self.result;
        let rules = &self.policy.rules;
        effect.next = rules.next_change(metrics, at);
        let due = RuleDue {
            period: self.policy.period().map(|period| OwnPeriod {
                period,
                requested: noted.arrival.and_then(|arrival: Arrival| arrival.once_in(period)),
            }),
            edge: rules.next_edge(metrics, at).map(|edge| {
                let wait = Duration::try_from(edge.duration_since(ended)).unwrap_or_default();
                clock::after(Instant::now(), wait)
            }),
        };
        self.rules.publish(hpa, conclusion, Some(effect), due, ended);
        *sources = noted.readings;
        RuleReport { effect: Some(effect), rules: Some(rules), sources, of_sources: &self.of_sources }
    }

    fn commit(&mut self, histories: &Histories, moment: ClockReading) {
        let PolicyResult { metrics, burst, sample, .. } = std::mem::take(&mut self.result);
        let uid = &self.hpa.uid;
        self.rules.bursts.set(uid, burst);
        let metrics = self.policy.keeps_history().then_some(metrics);
        histories.commit_policy(uid, metrics, moment);
        match sample.map(|sample| self.rules.forecasts.observe(uid, &sample, moment.at)) {
            Some(None) => {}
            Some(Some(stored)) => histories.commit_forecast(uid, Some(stored.into())),
            None => {
                self.rules.forecasts.forget(uid);
                histories.commit_forecast(uid, None);
            }
        }
    }
}

impl PolicyRules {
    /// Adds the condition and the events of the policy to the conclusion, and updates the policy's metrics. Stores the
    /// next due times. `effect`: `None` after the end of the last policy of the HPA.
    fn publish(
        &self,
        hpa: &Hpa<'_>,
        conclusion: &mut Conclusion,
        effect: Option<&PolicyEffect>,
        due: RuleDue,
        now: Timestamp,
    ) {
        let key = Key::new(hpa.namespace, hpa.name);
        let problems = effect.map_or("", |effect| effect.problems.as_str());
        let reports_problems = self.policies.reports(&key, problems);
        publish(conclusion, hpa, effect, reports_problems, now);
        self.telemetry.policy(hpa.namespace, hpa.name, effect);
        self.policies.set_due(&key, due);
    }
}

/// Returns the resources that metrics of types Resource and ContainerResource name.
fn resources(metrics: &[MetricSource]) -> BTreeSet<Arc<str>> {
    let resource = |metric: &MetricSource| match metric {
        MetricSource::Resource { resource, .. } | MetricSource::ContainerResource { resource, .. } => {
            Some(Arc::clone(resource))
        }
        _ => None,
    };
    metrics.iter().filter_map(resource).collect()
}
