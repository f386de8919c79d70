//! The stored form of a sync, in two parts. [`Frame`] usually changes only with the spec, so decisions share a copy of
//! it. [`Body`] contains the rest.
//!
//! The encoding never leaves the process, so it has no versions. Every conversion names all fields, so a new field
//! without an encoding does not compile.

use autoscaling::WriteOutcome;
use autoscaling::explanation::{
    Assumed, Corrected, DecisionPath, Explanation, FailedMetric, LISTED_PODS, LimitStep, Measure,
    MetricExplanation, MetricReading, PodCount, PodVerdict, PolicyUse, ProposalReason, StabilizationStep,
    Subject, UnlistedMetrics, UnmatchedSamples,
};
use autoscaling::failure::{MetricFailureClass, ScaleFailureClass};
use autoscaling::history::Recommendation;
use autoscaling::spec::PolicyKind;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Text;
use super::wire::{ActionTaken, Outcome};
use engine::reconcile::{ConcludedSync, SourceReading};
use policies::steps::PolicyEffect;

/// Maximum number of policies in an entry. Policies that determine the count have priority, and further policies are
/// left out.
const MAX_POLICIES: usize = 100;

/// The parts of a sync that usually change only with the spec.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Frame<'a> {
    pub(super) generation: Option<i64>,
    min: i32,
    max: i32,
    metrics: Vec<MetricFrame<'a>>,
    /// The scale-up and the scale-down window in seconds.
    windows: Option<(Option<i64>, i64)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum MetricFrame<'a> {
    Valid {
        subject: SubjectFrame<'a>,
        name: Text<'a>,
        target: Measure,
        lowest_tolerated: f64,
        highest_tolerated: f64,
    },
    Failed {
        subject: SubjectFrame<'a>,
        reason: Text<'a>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SubjectFrame<'a> {
    kind: Text<'a>,
    name: Text<'a>,
    container: Option<Text<'a>>,
    object: Option<Text<'a>>,
}

/// The parts that can change with each sync.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Body<'a> {
    pub(super) action: ActionTaken,
    pub(super) outcome: Outcome,
    pub(super) error: Option<Text<'a>>,
    pub(super) events: Vec<Text<'a>>,
    pub(super) policy: Option<PolicyEffect>,
    pub(super) sources: Vec<SourceReading>,
    pub(super) steps: Steps<'a>,
}

/// The steps of a decision, without the parts that [`Frame`] contains.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Steps<'a> {
    path: DecisionPath,
    current: i32,
    status_replicas: i32,
    winner: Option<usize>,
    proposal: Option<i32>,
    lifted_to_min: Option<i32>,
    desired: Option<i32>,
    failure_class: Option<ScaleFailureClass>,
    metrics: Vec<MetricBody<'a>>,
    unlisted: Option<UnlistedMetrics>,
    stabilization: Option<StabilizationBody>,
    /// The step without its policies, and the policies.
    limit: Option<(LimitStep, Vec<PolicyBody>)>,
    failure: Option<Text<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum MetricBody<'a> {
    Valid(ReadingBody),
    Failed(Option<MetricFailureClass>, Text<'a>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadingBody {
    value: Measure,
    total: Option<i64>,
    /// `None` if the ratio is the quotient of value and target, as usual.
    ratio: Option<f64>,
    pub(super) pods: Vec<PodVerdict>,
    pub(super) unlisted: Vec<PodCount>,
    unmatched: Option<UnmatchedSamples>,
    ready_pods: Option<i64>,
    corrected: Option<(f64, i64, Option<Assumed>, bool)>,
    why: ProposalReason,
    proposal: i32,
}

#[derive(Debug, Serialize, Deserialize)]
struct StabilizationBody {
    before: i32,
    after: i32,
    held_by: Option<(Ago, i32)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PolicyBody {
    kind: PolicyKind,
    value: i32,
    period_seconds: i32,
    added: i32,
    removed: i32,
    start: i32,
    allows: i32,
    frees_at: Option<Ago>,
    unknown_rescale: Option<Ago>,
}

/// A time, stored as its distance to the sync in nanoseconds, which has a shorter encoding.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Ago(i128);

impl Ago {
    pub(super) fn new(time: Timestamp, sync: Timestamp) -> Self {
        Self(sync.as_nanosecond() - time.as_nanosecond())
    }

    /// Returns the time. `sync` must be the time that was passed to [`Ago::new`].
    pub(super) fn time(self, sync: Timestamp) -> Timestamp {
        Timestamp::from_nanosecond(sync.as_nanosecond().saturating_sub(self.0)).unwrap_or(sync)
    }
}

/// The metrics of an entry, and the number of omitted metrics.
pub(super) struct Selection<'a> {
    /// The index of each metric in the explanation, and its two parts, in the order of the spec.
    pub(super) kept: Vec<(usize, MetricFrame<'a>, MetricBody<'a>)>,
    pub(super) unlisted: Option<UnlistedMetrics>,
}

/// A sync in its two parts.
pub(super) struct Split<'a> {
    pub(super) frame: Frame<'a>,
    pub(super) body: Body<'a>,
    /// The indices of the metrics in both parts, in order.
    pub(super) metrics: Vec<usize>,
}

/// Divides a sync into its two parts, with the metrics of `selection`.
pub(super) fn split<'a>(sync: &ConcludedSync<'a>, selection: Selection<'a>) -> Split<'a> {
    let conclusion = sync.conclusion;
    let Explanation {
        path,
        current,
        status_replicas,
        min,
        max,
        metrics: _,
        unlisted: _,
        winner,
        proposal,
        stabilization,
        limit,
        lifted_to_min,
        desired,
        failure,
        failure_class,
    } = &conclusion.explanation;
    let Selection { kept, unlisted } = selection;
    let winner = winner.and_then(|winner| kept.binary_search_by_key(&winner, |(index, ..)| *index).ok());
    let mut metrics = Vec::with_capacity(kept.len());
    let (metric_frames, metric_bodies) = kept
        .into_iter()
        .map(|(index, frame, body)| {
            metrics.push(index);
            (frame, body)
        })
        .unzip::<_, _, Vec<_>, Vec<_>>();
    let windows = stabilization.as_ref().map(|step| (step.up_window_seconds, step.down_window_seconds));
    let frame =
        Frame { generation: sync.hpa.generation, min: *min, max: *max, metrics: metric_frames, windows };
    let steps = Steps {
        path: *path,
        current: *current,
        status_replicas: *status_replicas,
        winner,
        proposal: *proposal,
        lifted_to_min: *lifted_to_min,
        desired: *desired,
        failure_class: *failure_class,
        metrics: metric_bodies,
        unlisted,
        stabilization: stabilization.as_ref().map(|step| StabilizationBody::new(step, sync.at)),
        limit: limit.as_ref().map(|step| {
            let policies = kept_policies(step).map(|policy| PolicyBody::new(policy, sync.at)).collect();
            (LimitStep { policies: Vec::new(), ..*step }, policies)
        }),
        failure: failure.as_ref().map(Text::from),
    };
    let events = conclusion.events.iter().chain(&conclusion.last_event);
    let body = Body {
        action: conclusion.action.into(),
        outcome: sync.outcome.into(),
        error: match sync.outcome {
            WriteOutcome::Failed(text) | WriteOutcome::Unknown(text) => Some(text.as_str().into()),
            _ => None,
        },
        events: events.map(|event| event.reason.into()).collect(),
        policy: sync.policy.cloned(),
        sources: sync.sources.to_vec(),
        steps,
    };
    Split { frame, body, metrics }
}

/// Returns the policies of an entry: all of them in order, or those that determine the count, then the first other
/// policies.
fn kept_policies(step: &LimitStep) -> impl Iterator<Item = &PolicyUse> {
    let decides = |policy: &&PolicyUse| Some(policy.allows) == step.rate_allows;
    let mut policies: Vec<&PolicyUse> = step.policies.iter().collect();
    if policies.len() > MAX_POLICIES {
        policies.sort_by_key(|policy| !decides(policy));
        policies.truncate(MAX_POLICIES);
    }
    policies.into_iter()
}

/// Reassembles the explanation of the sync at `at`.
pub(super) fn join(frame: Frame<'_>, steps: Steps<'_>, at: Timestamp) -> Explanation {
    let metrics = frame.metrics.into_iter().zip(steps.metrics);
    let stabilization = frame.windows.zip(steps.stabilization);
    Explanation {
        min: frame.min,
        max: frame.max,
        metrics: metrics.filter_map(|(frame, body)| join_metric(frame, body)).collect(),
        stabilization: stabilization.map(|((up_window_seconds, down_window_seconds), step)| {
            StabilizationStep {
                before: step.before,
                after: step.after,
                up_window_seconds,
                down_window_seconds,
                held_by: step.held_by.map(|(ago, replicas)| Recommendation { at: ago.time(at), replicas }),
                // Earlier recommendations are not stored, except for the decisive recommendation.
                recommendations: Vec::new(),
            }
        }),
        limit: steps.limit.map(|(step, policies)| LimitStep {
            policies: policies.into_iter().map(|policy| policy.policy(at)).collect(),
            ..step
        }),
        failure: steps.failure.map(Into::into),
        path: steps.path,
        current: steps.current,
        status_replicas: steps.status_replicas,
        unlisted: steps.unlisted,
        winner: steps.winner,
        proposal: steps.proposal,
        lifted_to_min: steps.lifted_to_min,
        desired: steps.desired,
        failure_class: steps.failure_class,
    }
}

/// Divides a metric into its two parts. Keeps the same pods as [`Explanation::condensed`].
pub(super) fn split_metric(metric: &MetricExplanation) -> (MetricFrame<'_>, MetricBody<'_>) {
    let reading = match metric {
        MetricExplanation::Valid(reading) => reading,
        MetricExplanation::Failed(FailedMetric { subject, reason, class, error }) => {
            let frame = MetricFrame::Failed { subject: subject.into(), reason: reason.into() };
            return (frame, MetricBody::Failed(*class, error.into()));
        }
    };
    let MetricReading {
        subject,
        name,
        target,
        value,
        total,
        ratio,
        lowest_tolerated,
        highest_tolerated,
        pods: _,
        unlisted: _,
        unmatched,
        ready_pods,
        corrected,
        why,
        proposal,
    } = reading;
    let frame = MetricFrame::Valid {
        subject: subject.into(),
        name: name.into(),
        target: *target,
        lowest_tolerated: *lowest_tolerated,
        highest_tolerated: *highest_tolerated,
    };
    let is_quotient = ratio.to_bits() == quotient(*value, *target).to_bits();
    let (pods, unlisted) = reading.condensed_pods(LISTED_PODS);
    let body = ReadingBody {
        value: *value,
        total: *total,
        ratio: (!is_quotient).then_some(*ratio),
        pods,
        unlisted,
        unmatched: *unmatched,
        ready_pods: *ready_pods,
        corrected: corrected
            .map(|Corrected { ratio, values, missing, unready }| (ratio, values, missing, unready)),
        why: *why,
        proposal: *proposal,
    };
    (frame, MetricBody::Valid(body))
}

/// Joins the two parts of a metric. `None` if only one part is that of a failed metric.
fn join_metric(frame: MetricFrame<'_>, body: MetricBody<'_>) -> Option<MetricExplanation> {
    match (frame, body) {
        (MetricFrame::Failed { subject, reason }, MetricBody::Failed(class, error)) => {
            let failed =
                FailedMetric { subject: subject.into(), reason: reason.into(), class, error: error.into() };
            Some(MetricExplanation::Failed(failed))
        }
        (
            MetricFrame::Valid { subject, name, target, lowest_tolerated, highest_tolerated },
            MetricBody::Valid(body),
        ) => Some(MetricExplanation::Valid(MetricReading {
            subject: subject.into(),
            name: name.into(),
            target,
            value: body.value,
            total: body.total,
            ratio: body.ratio.unwrap_or_else(|| quotient(body.value, target)),
            lowest_tolerated,
            highest_tolerated,
            pods: body.pods,
            unlisted: body.unlisted,
            unmatched: body.unmatched,
            ready_pods: body.ready_pods,
            corrected: body.corrected.map(|(ratio, values, missing, unready)| Corrected {
                ratio,
                values,
                missing,
                unready,
            }),
            why: body.why,
            proposal: body.proposal,
        })),
        _ => None,
    }
}

/// Returns the quotient of two amounts, independent of their units.
fn quotient(value: Measure, target: Measure) -> f64 {
    let amount = |measure| match measure {
        Measure::Percent(percent) => f64::from(percent),
        Measure::Milli(amount) | Measure::MilliPerPod(amount) => amount as f64,
    };
    amount(value) / amount(target)
}

impl<'a> From<&'a Subject> for SubjectFrame<'a> {
    fn from(Subject { kind, name, container, object }: &'a Subject) -> Self {
        Self {
            kind: kind.into(),
            name: name.into(),
            container: container.as_ref().map(Text::from),
            object: object.as_ref().map(Text::from),
        }
    }
}

impl From<SubjectFrame<'_>> for Subject {
    fn from(SubjectFrame { kind, name, container, object }: SubjectFrame<'_>) -> Self {
        Self {
            kind: kind.into(),
            name: name.into(),
            container: container.map(Into::into),
            object: object.map(Into::into),
        }
    }
}

impl StabilizationBody {
    fn new(step: &StabilizationStep, sync: Timestamp) -> Self {
        let held_by = step.held_by.map(|held| (Ago::new(held.at, sync), held.replicas));
        Self { before: step.before, after: step.after, held_by }
    }
}

impl PolicyBody {
    fn new(policy: &PolicyUse, sync: Timestamp) -> Self {
        let PolicyUse {
            kind,
            value,
            period_seconds,
            added,
            removed,
            start,
            allows,
            frees_at,
            unknown_rescale,
        } = *policy;
        let ago = |time| Ago::new(time, sync);
        let (frees_at, unknown_rescale) = (frees_at.map(ago), unknown_rescale.map(ago));
        Self { kind, value, period_seconds, added, removed, start, allows, frees_at, unknown_rescale }
    }

    fn policy(self, sync: Timestamp) -> PolicyUse {
        let Self { kind, value, period_seconds, added, removed, start, allows, frees_at, unknown_rescale } =
            self;
        let time = |ago: Ago| ago.time(sync);
        let (frees_at, unknown_rescale) = (frees_at.map(time), unknown_rescale.map(time));
        PolicyUse { kind, value, period_seconds, added, removed, start, allows, frees_at, unknown_rescale }
    }
}
