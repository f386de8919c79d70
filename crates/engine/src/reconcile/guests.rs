//! The traits through which scaling policies, shadow mode and the handover take part in a sync, and their values for a
//! controller without them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::history::{Changes, History};
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, QueryError};
use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use autoscaling::status::CrossVersionObjectReference;
use autoscaling::{Answers, Conclusion, Decision, Evaluation, Hpa, Plan, Scale, ScaleFailure};
use cluster::gate::{Permission, Permits, WritePermit};
use cluster::metrics::Metrics;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use policies::resolve::Rules;
use policies::steps::{PolicyEffect, SourceReading};
use tokio::time::Instant;

use super::gather::evaluate_metrics;
use super::histories::ClockReading;
use super::report::{ComparedSync, Observers};
use super::schedule::OwnPeriod;
use super::{Controller, Histories, WorkerPermit};
use crate::store::{Change, HpaRecord, Key};
use crate::telemetry::metrics::Metrics as Telemetry;

/// The guests of a controller's syncs.
#[derive(Debug, Clone)]
pub struct Guests {
    /// The rules that HPAs have in addition to those of upstream.
    pub rules: Arc<dyn Rulebook>,
    /// Compares syncs with those of another active controller.
    pub comparator: Arc<dyn Comparator>,
    /// Permits the writes of syncs.
    pub permits: Arc<dyn Permits>,
    /// The HPAs that the controller syncs.
    pub scope: Arc<dyn Scope>,
    /// Observers of syncs and of the watch.
    pub observers: Observers,
}

impl Default for Guests {
    /// Returns the guests of a controller that only follows the rules of upstream.
    fn default() -> Self {
        Self {
            rules: Arc::new(Upstream),
            comparator: Arc::new(Alone),
            permits: Arc::new(EveryHpa),
            scope: Arc::new(EveryHpa),
            observers: Vec::new(),
        }
    }
}

/// The rules that HPAs have in addition to those of upstream.
pub trait Rulebook: fmt::Debug + Send + Sync + 'static {
    /// Returns the basis of a sync that starts now. `is_compared`: another controller acts on the HPA, so only the
    /// rules of upstream apply. `flags`: the settings of the controller. `now` reads the clock. Returns `None` if rules
    /// that may apply are not known yet, so nothing may be written about the HPA.
    fn begin(
        &self,
        hpa: &Arc<HpaRecord>,
        is_compared: bool,
        flags: &Settings,
        now: &dyn Fn() -> Timestamp,
    ) -> Option<Basis>;

    /// Returns the due times that the last sync of an HPA requires.
    fn due(&self, key: &Key) -> RuleDue;

    /// Handles a version of an HPA from the watch. Returns whether its rules have changed.
    fn seen(&self, hpa: &HpaRecord, change: &Change) -> bool;

    /// Drops the state of an HPA that was deleted.
    fn forget(&self, uid: &str);

    /// Drops the state of a key that no longer has an HPA.
    fn forget_key(&self, key: &Key);
}

/// The spec, the settings and the rules of one sync.
#[derive(Debug)]
pub struct Basis {
    /// The spec of the HPA, as the rules change it.
    pub spec: Arc<Spec>,
    /// The settings of the controller, as the rules change them.
    pub settings: Settings,
    /// The rules.
    pub rules: Box<dyn SyncRules>,
}

/// The times of the next syncs that rules require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleDue {
    /// The sync period that replaces the controller's period.
    pub period: Option<OwnPeriod>,
    /// The next change of the rules.
    pub edge: Option<Instant>,
}

/// The rules of one sync, with their state. The stages of the sync call the methods in this order. A sync that decides
/// twice repeats all of them up to [`Self::decide`].
pub trait SyncRules: fmt::Debug + Send + Sync {
    /// Reads what the rules need in addition to metrics. Releases the worker for the time of requests.
    fn read<'a>(&'a mut self, plan: &'a Plan, worker: &'a mut WorkerPermit) -> BoxFuture<'a, ()>;

    /// Returns the source of the metrics of a plan. `pods`: the pods of the target. `apis`: the metrics APIs.
    fn metrics(
        &mut self,
        plan: &Plan,
        pods: &dyn Fn() -> Vec<Arc<Pod>>,
        apis: &Arc<dyn Metrics>,
    ) -> MetricsSource;

    /// Decides. Also returns the pods that the rules count.
    fn decide<'a>(&'a mut self, inputs: RuleInputs<'a>) -> BoxFuture<'a, (Decision, Vec<Arc<Pod>>)>;

    /// Adds the effect of the rules to a conclusion. `at`: the time of the decision. `ended`: the time of the
    /// conclusion.
    fn conclude(
        &mut self,
        hpa: &Hpa<'_>,
        conclusion: &mut Conclusion,
        at: Timestamp,
        ended: Timestamp,
    ) -> RuleReport<'_>;

    /// Keeps what a later sync needs. Not called for an HPA that was deleted during the sync.
    fn commit(&mut self, histories: &Histories, moment: ClockReading);
}

/// The source of the metrics of a sync.
#[derive(Debug)]
pub struct MetricsSource {
    /// Answers the queries.
    pub metrics: Arc<dyn Metrics>,
    /// Maximum time between the request for a shared response and its use.
    pub max_age: Duration,
}

/// The inputs of the decision of one sync.
#[derive(Debug)]
pub struct RuleInputs<'a> {
    /// The metrics, without results.
    pub evaluation: Evaluation<'a>,
    /// The answers to the queries, in the order of the metrics in the spec.
    pub answers: &'a [Option<Result<Answer, QueryError>>],
    /// The pods of the target.
    pub pods: Vec<Arc<Pod>>,
    /// The history of the HPA.
    pub history: &'a History,
    /// The histories of all HPAs.
    pub histories: &'a Histories,
    /// The time of the decision.
    pub at: Timestamp,
}

impl RuleInputs<'_> {
    /// Decides without further rules.
    pub async fn decide_as_upstream(self) -> (Decision, Vec<Arc<Pod>>) {
        let Self { mut evaluation, answers, pods, history, at, .. } = self;
        evaluate_metrics(&mut evaluation, answers, &pods, at, |_, _| None).await;
        (evaluation.decide(history, at), pods)
    }
}

/// The effect of rules on one sync, for observers.
#[derive(Debug, Clone, Copy, Default)]
pub struct RuleReport<'a> {
    /// The effect of the scaling policy. `None` for an HPA without a policy.
    pub effect: Option<&'a PolicyEffect>,
    /// The rules of the scaling policy. `None` for an HPA without a policy.
    pub rules: Option<&'a Arc<Rules>>,
    /// The readings of the sources that the policy names.
    pub sources: &'a [SourceReading],
    /// The indices of the metrics that sources answered instead of metrics APIs.
    pub of_sources: &'a [usize],
}

/// The rules of upstream alone.
#[derive(Debug, Clone, Copy)]
pub struct Upstream;

impl Rulebook for Upstream {
    fn begin(
        &self,
        hpa: &Arc<HpaRecord>,
        _: bool,
        flags: &Settings,
        _: &dyn Fn() -> Timestamp,
    ) -> Option<Basis> {
        Some(Basis { spec: Arc::clone(&hpa.spec), settings: flags.clone(), rules: Box::new(Self) })
    }

    fn due(&self, _: &Key) -> RuleDue {
        RuleDue::default()
    }

    fn seen(&self, _: &HpaRecord, _: &Change) -> bool {
        false
    }

    fn forget(&self, _: &str) {}

    fn forget_key(&self, _: &Key) {}
}

impl SyncRules for Upstream {
    fn read<'a>(&'a mut self, _: &'a Plan, _: &'a mut WorkerPermit) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }

    fn metrics(&mut self, _: &Plan, _: &dyn Fn() -> Vec<Arc<Pod>>, apis: &Arc<dyn Metrics>) -> MetricsSource {
        MetricsSource { metrics: Arc::clone(apis), max_age: Duration::MAX }
    }

    fn decide<'a>(&'a mut self, inputs: RuleInputs<'a>) -> BoxFuture<'a, (Decision, Vec<Arc<Pod>>)> {
        inputs.decide_as_upstream().boxed()
    }

    fn conclude(&mut self, _: &Hpa<'_>, _: &mut Conclusion, _: Timestamp, _: Timestamp) -> RuleReport<'_> {
        RuleReport::default()
    }

    fn commit(&mut self, _: &Histories, _: ClockReading) {}
}

/// Compares this controller's decisions with those of another controller. The methods run within the sync and must not
/// block.
pub trait Comparator: fmt::Debug + Send + Sync + 'static {
    /// Returns whether another controller acts on an HPA, so that the syncs of the HPA are compared.
    fn compares(&self, key: &Key) -> bool;

    /// Returns the standpoint of a sync that starts now.
    fn standpoint(&self, hpa: &HpaRecord) -> Standpoint;

    /// Returns the answers from which the other controller just decided, as its status shows them. `None` if the sync
    /// decides from its own answers.
    fn foreign_metrics(
        &self,
        hpa: &HpaRecord,
        plan: &Plan,
        answers: &Answers<'_>,
        decision: &Decision,
    ) -> Option<Vec<Option<Result<Answer, QueryError>>>>;

    /// Handles a concluded sync.
    fn compared(&self, sync: &ComparedSync<'_>);
}

/// Compares nothing.
#[derive(Debug, Clone, Copy)]
pub struct Alone;

impl Comparator for Alone {
    fn compares(&self, _: &Key) -> bool {
        false
    }

    fn standpoint(&self, _: &HpaRecord) -> Standpoint {
        Standpoint::Now
    }

    fn foreign_metrics(
        &self,
        _: &HpaRecord,
        _: &Plan,
        _: &Answers<'_>,
        _: &Decision,
    ) -> Option<Vec<Option<Result<Answer, QueryError>>>> {
        None
    }

    fn compared(&self, _: &ComparedSync<'_>) {}
}

/// The state of the target from which a sync decides.
#[derive(Debug, Clone, PartialEq)]
pub enum Standpoint {
    /// The current state.
    Now,
    /// The state before a rescale by another controller. The sync makes the decision that this controller would have
    /// made instead, and writes no Scale.
    Before(ForeignRescale),
}

/// A rescale by another controller, with the state of the target before it.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignRescale {
    /// Time of the observation of the rescale.
    pub seen: Timestamp,
    /// `spec.replicas` before the rescale.
    pub from: i32,
    /// `spec.replicas` after the rescale.
    pub to: i32,
    /// The pods at the time of the observation. `None` if the selector is not known.
    pub pods: Option<Vec<Arc<Pod>>>,
}

impl Standpoint {
    /// Returns the Scale of the target.
    pub(super) fn scale(&self, now: Result<Scale, ScaleFailure>) -> Result<Scale, ScaleFailure> {
        match self {
            Self::Now => now,
            Self::Before(before) => now.map(|scale| Scale { replicas: before.from, ..scale }),
        }
    }

    /// Returns the pods of the target. Empty if the plan has no Scale or reads no metrics.
    pub(super) fn pods(&self, plan: &Plan, now: impl FnOnce(&Scale) -> Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        match (plan.scale(), self) {
            (Some(_), Self::Before(ForeignRescale { pods: Some(pods), .. })) => pods.clone(),
            (Some(scale), _) if plan.reads_metrics() => now(scale),
            _ => Vec::new(),
        }
    }

    /// Replaces the scale event of this controller's decision with the other controller's rescale, because only that
    /// rescale was written.
    pub(super) fn remember(&self, spec: &Spec, changes: &mut Changes) {
        if let (Self::Before(before), Some(behavior)) = (self, &spec.behavior) {
            changes.scale_event =
                Changes::rescaled(behavior, before.from, before.to, before.seen).scale_event;
        }
    }
}

/// The HPAs that a controller syncs.
pub trait Scope: fmt::Debug + Send + Sync {
    /// Calls `apply` with a version of an HPA that was read outside of the watch, unless the HPA is out of scope.
    fn refresh(&self, controller: &Controller, hpa: HpaRecord, apply: &dyn Fn(HpaRecord));

    /// Returns the target of an HPA out of scope that may share pods with HPAs in scope.
    fn neighbour(&self, key: &Key) -> Option<CrossVersionObjectReference>;

    /// Returns the state of an HPA, for `/decisions`. `None` if all HPAs are in scope, or if the HPA is out of scope.
    fn state(&self, key: &Key) -> Option<&'static str>;

    /// Sets the gauges of the scope.
    fn publish(&self, telemetry: &Telemetry);
}

impl Scope for EveryHpa {
    fn refresh(&self, _: &Controller, hpa: HpaRecord, apply: &dyn Fn(HpaRecord)) {
        apply(hpa);
    }

    fn neighbour(&self, _: &Key) -> Option<CrossVersionObjectReference> {
        None
    }

    fn state(&self, _: &Key) -> Option<&'static str> {
        None
    }

    fn publish(&self, _: &Telemetry) {}
}

/// Syncs every HPA, and permits all writes.
#[derive(Debug, Clone, Copy)]
pub struct EveryHpa;

impl Permits for EveryHpa {
    fn permit(&self, _: &Arc<str>, _: &Arc<str>) -> WritePermit {
        WritePermit(Arc::new(Self))
    }
}

impl Permission for EveryHpa {
    fn may_write(&self) -> bool {
        true
    }
}
