//! The second step of a sync: the replica count and its explanation, computed from the answers, the history and the
//! time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::behavior::{self, Bounds};
use crate::conclude::{Action, Computation, Decision, ErrorLabel, Verdict};
use crate::evaluation::{Choice, Evaluation, MetricResult};
use crate::event::{ABOVE_MAX, ABOVE_TARGET, BELOW_MIN, BELOW_TARGET, EventIntent};
use crate::explanation::{DecisionPath, Explanation, LimitStep, MetricExplanation};
use crate::failure::ScaleFailureClass;
use crate::history::{AddedEntry, Changes, History, Recommendation};
use crate::hpa::Hpa;
use crate::metric::MetricFailure;
use crate::plan::{Case, Plan};
use crate::pod::Pod;
use crate::query::{Answer, QueryError};
use crate::settings::{Settings, Version};
use crate::stabilization;
use crate::status::{ConditionUpdate, Limit, MetricStatus, TOO_MANY_METRICS};

/// Maximum number of events for failed metrics per decision. Further failures are only counted. Event correlation
/// would drop most of their events, because it limits an object to a burst of 25.
const MAX_FAILURE_EVENTS: usize = 100;

/// The answers to the queries of a plan.
#[derive(Debug, Clone, Default)]
pub struct Answers<'a> {
    /// One answer per metric, in the order of the spec; `None` for a metric without a query. A missing answer fails its
    /// metric.
    pub metrics: Vec<Option<Result<Answer, QueryError>>>,
    /// The pods that match the Scale's selector, sorted by name.
    pub pods: &'a [Arc<Pod>],
}

/// Computes the decision of one sync, the second of its three steps.
pub fn decide(
    hpa: &Hpa<'_>,
    plan: &Plan,
    answers: &Answers<'_>,
    history: &History,
    settings: &Settings,
    now: Timestamp,
) -> Decision {
    let mut evaluation = Evaluation::new(hpa, plan, settings);
    for index in 0..evaluation.metrics() {
        let answer = answers.metrics.get(index).and_then(Option::as_ref);
        evaluation.evaluate(index, answer, answers.pods, now);
    }
    evaluation.decide(history, now)
}

impl Decision {
    pub(crate) fn new(evaluation: Evaluation<'_>, history: &History, now: Timestamp) -> Self {
        let Evaluation { hpa, plan, settings, results, first_failure, choice, .. } = evaluation;
        let Some(scale) = &plan.scale else {
            return without_scale(&hpa, plan);
        };
        let current = scale.replicas;
        let found = history.reconcile(&hpa, current, now);
        let history = match &found {
            None => Cow::Borrowed(history),
            Some(found) => Cow::Owned(history.with(found)),
        };
        let initial =
            history.recommendations.is_empty().then_some(Recommendation { at: now, replicas: current });
        let mut decision = Self {
            verdict: Verdict::Keep,
            current,
            min: plan.min,
            conditions: vec![ConditionUpdate::succeeded_get_scale()],
            events: Vec::new(),
            unsent_events: BTreeMap::new(),
            metrics: Vec::new(),
            changes: Changes { found, initial, ..Changes::default() },
            computations: Vec::new(),
            error: ErrorLabel::None,
            explanation: Explanation {
                path: plan.case.path(),
                current,
                status_replicas: scale.status_replicas,
                min: plan.min,
                max: hpa.spec.max_replicas,
                ..Explanation::default()
            },
        };
        match &plan.case {
            Case::NoScale(_) => {}
            Case::Disabled => {
                decision.conditions.push(ConditionUpdate::scaling_disabled());
                decision.verdict = Verdict::Disabled;
            }
            Case::AboveMax => decision.bound(hpa.spec.max_replicas, Limit::Maximum),
            Case::BelowMin => decision.bound(plan.min, Limit::Minimum),
            Case::NoSelector => {
                decision.conditions.push(ConditionUpdate::missing_selector());
                decision.no_count(Some("SelectorRequired"), "selector is required".to_owned());
            }
            Case::Ambiguous(hpas) => {
                let message = ambiguous(&scale.selector_text, hpas, settings);
                decision.conditions.push(ConditionUpdate::ambiguous_selector(message.clone()));
                decision.no_count(Some("AmbiguousSelector"), message);
            }
            Case::Deleted => {
                let message = format!("HPA {}/{} was deleted during reconciliation", hpa.namespace, hpa.name);
                decision.no_count(None, message);
            }
            Case::Metrics(_) => {
                let first_failure = first_failure.as_ref().map(|(_, failure)| failure);
                let best = decision.propose(&hpa, results, first_failure, choice, settings);
                if let Some(best) = best {
                    decision.by_metrics(&hpa, &best, &history, settings, now);
                }
            }
        }
        decision.explanation.desired = decision.count();
        decision
    }
}

fn without_scale(hpa: &Hpa<'_>, plan: &Plan) -> Decision {
    let (message, class) = match &plan.case {
        Case::NoScale(failure) => (failure.message.clone(), Some(failure.class)),
        _ => (String::new(), None),
    };
    let is_spec =
        matches!(class, Some(ScaleFailureClass::InvalidReference | ScaleFailureClass::TooManyMetrics));
    let failure: Arc<str> = message.as_str().into();
    let (condition, reason) = match class {
        Some(ScaleFailureClass::TooManyMetrics) => {
            (ConditionUpdate::too_many_metrics(&message), TOO_MANY_METRICS)
        }
        _ => (ConditionUpdate::failed_get_scale(&message), "FailedGetScale"),
    };
    Decision {
        verdict: Verdict::NoScale,
        current: 0,
        min: plan.min,
        conditions: vec![condition],
        events: vec![EventIntent::warning(reason, message)],
        unsent_events: BTreeMap::new(),
        metrics: Vec::new(),
        changes: Changes::default(),
        computations: Vec::new(),
        error: if is_spec { ErrorLabel::Spec } else { ErrorLabel::Internal },
        explanation: Explanation {
            path: DecisionPath::NoScale,
            min: plan.min,
            max: hpa.spec.max_replicas,
            failure: Some(failure),
            failure_class: class,
            ..Explanation::default()
        },
    }
}

fn ambiguous(selector: &str, hpas: &[String], settings: &Settings) -> String {
    match settings.version {
        Version::V1_36 => {
            format!("pods by selector {selector} are controlled by multiple HPAs: [{}]", hpas.join(" "))
        }
        Version::V1_37 | Version::V1_38 => {
            let two = hpas.get(..2).filter(|_| settings.optimized_selector_store);
            let named = two.unwrap_or(hpas).join(" ");
            format!("pods by selector {selector} are controlled by more than one HPA (e.g. [{named}])")
        }
    }
}

impl Decision {
    /// Rescales to a violated bound at once, without metrics, stabilization or rates.
    fn bound(&mut self, to: i32, limit: Limit) {
        let reason = if limit == Limit::Maximum { ABOVE_MAX } else { BELOW_MIN };
        self.explanation.limit = Some(LimitStep::new(self.current, to, limit));
        self.verdict = Verdict::Rescale { to, reason: reason.to_owned() };
    }

    fn no_count(&mut self, event: Option<&'static str>, message: String) {
        if let Some(reason) = event {
            self.events.push(EventIntent::warning(reason, message.clone()));
        }
        self.error = ErrorLabel::Internal;
        self.explanation.failure = Some(message.as_str().into());
        self.verdict = Verdict::NoCount(message);
    }

    fn by_metrics(
        &mut self,
        hpa: &Hpa<'_>,
        best: &Best,
        history: &History,
        settings: &Settings,
        now: Timestamp,
    ) {
        let proposal = best.replicas.max(0);
        let mut reason = match Action::between(self.current, proposal) {
            Action::ScaleUp => format!("{}{ABOVE_TARGET}", best.name),
            Action::ScaleDown => BELOW_TARGET.to_owned(),
            Action::None => String::new(),
        };
        let mut to = self.normalise(hpa, proposal, history, settings, now);
        if self.current == 0 && to < self.min {
            to = self.min;
            self.explanation.lifted_to_min = Some(to);
            if reason.is_empty() {
                BELOW_MIN.clone_into(&mut reason);
            }
        }
        if to != self.current {
            self.verdict = Verdict::Rescale { to, reason };
        }
    }

    /// Adds the results of all metrics to the decision. Returns the choice, or the highest proposal without a choice.
    ///
    /// Without a choice, sets the verdict and returns `None` in two cases: all metrics failed, or any metric failed and
    /// the highest proposal is below the current count.
    fn propose(
        &mut self,
        hpa: &Hpa<'_>,
        results: Vec<Option<MetricResult>>,
        first_failure: Option<&MetricFailure>,
        choice: Option<Choice>,
        settings: &Settings,
    ) -> Option<Best> {
        let mut best = Best { replicas: 0, name: "".into(), index: None };
        let mut failures = 0usize;
        for (index, result) in results.into_iter().flatten().enumerate() {
            match result {
                MetricResult::Valid(status, reading) => {
                    let replicas = reading.proposal;
                    if replicas > best.replicas || best.replicas == 0 {
                        best = Best { replicas, name: Arc::clone(&reading.name), index: Some(index) };
                    }
                    self.computations.push(Computation {
                        metric_type: Arc::clone(&reading.subject.kind),
                        action: Action::between(hpa.status.current_replicas, replicas),
                        error: ErrorLabel::None,
                    });
                    self.metrics.push(status);
                    self.explanation.metrics.push(MetricExplanation::Valid(reading));
                }
                MetricResult::Failed(reason, is_spec, failed) => {
                    failures += 1;
                    self.computations.push(Computation {
                        metric_type: Arc::clone(&failed.subject.kind),
                        action: Action::None,
                        error: if is_spec { ErrorLabel::Spec } else { ErrorLabel::Internal },
                    });
                    if failures <= MAX_FAILURE_EVENTS {
                        self.events.push(EventIntent::warning(reason, failed.error.to_string()));
                    } else {
                        *self.unsent_events.entry(reason).or_default() += 1;
                    }
                    self.metrics.push(MetricStatus::default());
                    self.explanation.metrics.push(MetricExplanation::Failed(failed));
                }
            }
        }
        if let Some(first) = first_failure {
            let is_spec = first.is_spec && settings.version.labels_unknown_types();
            self.error = if is_spec { ErrorLabel::Spec } else { ErrorLabel::Internal };
        }
        let total = hpa.spec.metrics.len();
        if let Some(Choice { replicas, winner, name }) = choice {
            best = Best { replicas, name, index: winner };
        } else if failures >= total || (failures > 0 && best.replicas < self.current) {
            let mut error = "<nil>".to_owned();
            if let Some(first) = first_failure {
                self.conditions.push(ConditionUpdate::metric_failed(first.reason, &first.error));
                error = format!("{}{}", first.prefix, first.error);
            }
            let message =
                format!("invalid metrics ({failures} invalid out of {total}), first error is: {error}");
            let label = self.error;
            self.no_count(None, message);
            if label == ErrorLabel::Spec {
                self.error = label;
            }
            return None;
        }
        self.conditions.push(ConditionUpdate::valid_metric_found(&best.name));
        self.explanation.winner = best.index;
        self.explanation.proposal = Some(best.replicas);
        Some(best)
    }

    /// Applies stabilization, then rates and bounds, and sets their conditions.
    fn normalise(
        &mut self,
        hpa: &Hpa<'_>,
        proposal: i32,
        history: &History,
        settings: &Settings,
        now: Timestamp,
    ) -> i32 {
        let recommendations: Vec<Recommendation> =
            history.recommendations.iter().copied().chain(self.changes.initial).collect();
        let bounds = Bounds { current: self.current, min: self.min, max: hpa.spec.max_replicas };
        let (stabilized, limit) = match &hpa.spec.behavior {
            None => {
                let window = settings.downscale_stabilization;
                let stabilized = stabilization::without_behavior(&recommendations, proposal, window, now);
                let limit = behavior::without_behavior(bounds, stabilized.step.after);
                (stabilized, limit)
            }
            Some(behavior) => {
                let default = i64::try_from(settings.downscale_stabilization.as_secs()).unwrap_or(i64::MAX);
                let up = behavior.scale_up.stabilization_window_seconds.unwrap_or(0);
                let down = behavior.scale_down.stabilization_window_seconds.map_or(default, i64::from);
                let stabilized = stabilization::with_behavior(
                    &recommendations,
                    self.current,
                    proposal,
                    up.into(),
                    down,
                    now,
                );
                let limit = behavior::with_behavior(bounds, stabilized.step.after, behavior, history, now);
                (stabilized, limit)
            }
        };
        self.changes.recommendation = Some(AddedEntry {
            entry: Recommendation { at: now, replicas: proposal },
            outdated_before: stabilized.outdated_before,
        });
        let up = hpa.spec.behavior.is_some() && proposal >= self.current;
        self.conditions.push(match (stabilized.step.after == proposal, up) {
            (true, _) => ConditionUpdate::ready_for_new_scale(),
            (false, true) => ConditionUpdate::scale_up_stabilized(),
            (false, false) => ConditionUpdate::scale_down_stabilized(),
        });
        self.conditions.push(limit.limit.condition(limit.after != limit.before));
        let after = limit.after;
        self.explanation.stabilization = Some(stabilized.step);
        self.explanation.limit = Some(limit);
        after
    }
}

/// The chosen or highest proposal. `index` is that of its metric in the spec.
struct Best {
    replicas: i32,
    name: Arc<str>,
    index: Option<usize>,
}
