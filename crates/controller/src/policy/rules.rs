//! The rules of policies as pure functions: merge, resolve for a time, choose among metrics, bound the result.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::failure::MetricFailureClass;
use autoscaling::pod::{Phase, Pod};
use autoscaling::settings::Settings;
use autoscaling::{Choice, Decision, Evaluation, MetricOutcome};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::objects::{PolicyName, PolicyObject};
use super::spec::{
    Combine, Fallback, FallbackAction, FallbackCause, MaxStep, Mode, ModeSpec, PendingPods, Problem, Spec,
    Strategy, parse,
};
use super::store::StoredPolicy;

/// A policy as read from an annotation or an object.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(super) spec: Spec,
    pub(super) problems: Vec<Problem>,
}

/// The policy of an HPA: each field from the first source that sets it.
#[derive(Debug)]
pub(crate) struct Merged {
    spec: Spec,
    /// The problems of all sources, each with its source.
    problems: String,
    objects: Vec<PolicyName>,
}

/// The rules for one sync.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    merged: Arc<Merged>,
    /// The HPA's spec with the bounds of the schedules.
    pub(crate) spec: Arc<autoscaling::spec::Spec>,
    /// The settings of the controller with those of the policy.
    pub(crate) settings: Settings,
    /// The mode. `None` if it is invalid, which holds the count.
    mode: Option<Mode>,
    pinned: i32,
    until: Option<Timestamp>,
    /// The next time at which the rules change.
    pub(crate) next_edge: Option<Timestamp>,
    /// The time between two syncs.
    pub(crate) period: Option<Duration>,
    /// What the schedules changed.
    steps: Vec<PolicyStep>,
}

/// One step of a policy that had an effect on a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStep {
    /// The reason in one word, as in the condition.
    pub reason: StepReason,
    /// The effect, with the numbers, without a full stop.
    pub message: String,
}

/// The steps of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepReason {
    /// The mode is invalid, so the count is held.
    InvalidMode,
    /// The mode Paused.
    Paused,
    /// The mode ScaleUpOnly.
    ScaleUpOnly,
    /// The mode ScaleDownOnly.
    ScaleDownOnly,
    /// The mode Pinned.
    Pinned,
    /// The mode DryRun.
    DryRun,
    /// Too many pods wait.
    PendingPods,
    /// The change was larger than allowed.
    MaxStep,
    /// A metric failed and its fallback applied.
    FallbackActive,
    /// The lowest proposal was chosen.
    CombinedMin,
    /// A schedule changes a bound.
    ScheduleActive,
}

impl StepReason {
    /// All reasons, in the order of their precedence.
    pub const ALL: [Self; 11] = [
        Self::InvalidMode,
        Self::Paused,
        Self::ScaleUpOnly,
        Self::ScaleDownOnly,
        Self::Pinned,
        Self::DryRun,
        Self::PendingPods,
        Self::MaxStep,
        Self::FallbackActive,
        Self::CombinedMin,
        Self::ScheduleActive,
    ];

    /// The bit of the reason in a set.
    pub(crate) fn bit(self) -> u16 {
        let index = Self::ALL.iter().position(|reason| *reason == self).unwrap_or_default();
        1 << index
    }

    /// The reason in conditions, events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidMode => "InvalidMode",
            Self::Paused => "Paused",
            Self::ScaleUpOnly => "ScaleUpOnly",
            Self::ScaleDownOnly => "ScaleDownOnly",
            Self::Pinned => "Pinned",
            Self::DryRun => "DryRun",
            Self::PendingPods => "PendingPods",
            Self::MaxStep => "MaxStep",
            Self::FallbackActive => "FallbackActive",
            Self::CombinedMin => "CombinedMin",
            Self::ScheduleActive => "ScheduleActive",
        }
    }
}

/// The effect of a policy on one decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyEffect {
    /// The count without guards and mode. `None` if none could be computed.
    pub recommended: Option<i32>,
    /// The count that was applied. `None` if none could be computed.
    pub applied: Option<i32>,
    /// The steps that had an effect, the most important one first.
    pub steps: Vec<PolicyStep>,
    /// Fields without effect, and why. Empty if all fields are valid.
    pub problems: String,
}

impl PolicyEffect {
    /// The effect in one sentence. `None` if no step had an effect.
    pub fn sentence(&self) -> Option<String> {
        (!self.steps.is_empty()).then(|| {
            let texts: Vec<&str> = self.steps.iter().map(|step| step.message.as_str()).collect();
            texts.join("; ")
        })
    }
}

impl Parsed {
    /// Reads the policy of an annotation.
    pub(super) fn from_annotation(text: &str) -> Self {
        let (spec, problems) = parse(text);
        Self { spec, problems }
    }

    /// Reads the policy of an object.
    pub(super) fn from_object(object: &PolicyObject) -> Self {
        let (spec, mut problems) = parse(&object.spec);
        for (field, selector) in
            [("selector", &object.selector), ("namespaceSelector", &object.namespace_selector)]
        {
            if let Err(error) = selector {
                let message = format!("{error}; the policy applies to no HPA");
                problems.push(Problem { field: field.to_owned(), message });
            }
        }
        Self { spec, problems }
    }
}

impl Merged {
    /// Merges the policy of an annotation with policy objects, in the order of their precedence.
    pub(super) fn new(annotation: Option<&Arc<Parsed>>, objects: &[&Arc<StoredPolicy>]) -> Self {
        let mut merged = Self { spec: Spec::default(), problems: String::new(), objects: Vec::new() };
        if let Some(parsed) = annotation {
            merged.add(parsed, &format_args!("annotation {}", super::metadata::ANNOTATION));
        }
        for policy in objects {
            merged.add(&policy.parsed, &policy.object.name);
            merged.objects.push(policy.object.name.clone());
        }
        merged
    }

    fn add(&mut self, parsed: &Parsed, source: &dyn std::fmt::Display) {
        let Spec {
            mode,
            sync_period_seconds,
            tolerance,
            cpu_initialization_period_seconds,
            initial_readiness_delay_seconds,
            downscale_stabilization_seconds,
            schedules,
            fallback,
            combine,
            max_step,
            pending_pods,
        } = parsed.spec.clone();
        let spec = &mut self.spec;
        spec.mode = spec.mode.take().or(mode);
        spec.sync_period_seconds = spec.sync_period_seconds.or(sync_period_seconds);
        spec.tolerance = spec.tolerance.or(tolerance);
        spec.cpu_initialization_period_seconds =
            spec.cpu_initialization_period_seconds.or(cpu_initialization_period_seconds);
        spec.initial_readiness_delay_seconds =
            spec.initial_readiness_delay_seconds.or(initial_readiness_delay_seconds);
        spec.downscale_stabilization_seconds =
            spec.downscale_stabilization_seconds.or(downscale_stabilization_seconds);
        spec.schedules = spec.schedules.take().or(schedules);
        spec.fallback = spec.fallback.take().or(fallback);
        spec.combine = spec.combine.or(combine);
        spec.max_step = spec.max_step.or(max_step);
        spec.pending_pods = spec.pending_pods.or(pending_pods);
        for problem in &parsed.problems {
            let separator = if self.problems.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(self.problems, "{separator}{source}: {problem}");
        }
    }

    /// The policy objects.
    pub(super) fn objects(&self) -> &[PolicyName] {
        &self.objects
    }

    /// The rules at a time.
    pub(crate) fn resolve(
        self: &Arc<Self>,
        hpa: &Arc<autoscaling::spec::Spec>,
        settings: &Settings,
        now: Timestamp,
    ) -> Resolved {
        let policy = &self.spec;
        let mut edges = Vec::new();
        let active = policy.mode.as_ref().filter(|mode| {
            edges.extend(mode.until.filter(|until| *until > now));
            mode.until.is_none_or(|until| until > now)
        });
        let (mode, pinned, until) = match active {
            None => (Some(Mode::Auto), 0, None),
            Some(ModeSpec { mode, replicas, until }) => (*mode, replicas.unwrap_or(0), *until),
        };
        let (spec, steps) = self.bounded(hpa, now, &mut edges);
        let seconds =
            |seconds: Option<u32>, default| seconds.map_or(default, |s| Duration::from_secs(s.into()));
        Resolved {
            merged: Arc::clone(self),
            spec,
            settings: Settings {
                tolerance: policy.tolerance.unwrap_or(settings.tolerance),
                downscale_stabilization: seconds(
                    policy.downscale_stabilization_seconds,
                    settings.downscale_stabilization,
                ),
                cpu_initialization_period: seconds(
                    policy.cpu_initialization_period_seconds,
                    settings.cpu_initialization_period,
                ),
                initial_readiness_delay: seconds(
                    policy.initial_readiness_delay_seconds,
                    settings.initial_readiness_delay,
                ),
                ..settings.clone()
            },
            mode,
            pinned,
            until,
            next_edge: edges.into_iter().min(),
            period: policy.sync_period_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            steps,
        }
    }

    /// The HPA's spec with the floor and the ceiling of the active schedules: the highest floor, the lowest
    /// ceiling. A ceiling comes before a floor, and the HPA's own bounds come before both.
    fn bounded(
        &self,
        hpa: &Arc<autoscaling::spec::Spec>,
        now: Timestamp,
        edges: &mut Vec<Timestamp>,
    ) -> (Arc<autoscaling::spec::Spec>, Vec<PolicyStep>) {
        let windows = self.spec.schedules.as_deref().unwrap_or_default();
        let (min, max) = (hpa.min_replicas.unwrap_or(1), hpa.max_replicas);
        let (mut floor, mut ceiling) = (None::<Bound<'_>>, None::<Bound<'_>>);
        for window in windows {
            let phase = window.times.phase(now);
            edges.extend(phase.until);
            if !phase.is_active {
                continue;
            }
            let bound = |replicas| Bound { replicas, schedule: &window.name, until: phase.until };
            if let Some(replicas) = window.min_replicas
                && floor.as_ref().is_none_or(|floor| replicas > floor.replicas)
            {
                floor = Some(bound(replicas));
            }
            if let Some(replicas) = window.max_replicas
                && ceiling.as_ref().is_none_or(|ceiling| replicas < ceiling.replicas)
            {
                ceiling = Some(bound(replicas));
            }
        }
        if (floor.is_none() && ceiling.is_none()) || min > max {
            return (Arc::clone(hpa), Vec::new());
        }
        let highest = ceiling.as_ref().map_or(max, |ceiling| ceiling.replicas.clamp(min, max));
        let lowest = floor.as_ref().map_or(min, |floor| floor.replicas.clamp(min, highest));
        let mut steps = Vec::new();
        let mut report = |bound: Option<Bound<'_>>, field: &str, from: i32, to: i32| {
            if let Some(Bound { schedule, until, .. }) = bound
                && from != to
            {
                let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
                let message = format!("schedule {schedule} sets {field} to {to} instead of {from}{until}");
                steps.push(PolicyStep { reason: StepReason::ScheduleActive, message });
            }
        };
        report(floor, "minReplicas", min, lowest);
        report(ceiling, "maxReplicas", max, highest);
        if steps.is_empty() {
            return (Arc::clone(hpa), steps);
        }
        let min_replicas = if lowest == min { hpa.min_replicas } else { Some(lowest) };
        let spec = autoscaling::spec::Spec { min_replicas, max_replicas: highest, ..(**hpa).clone() };
        (Arc::new(spec), steps)
    }
}

/// A bound of an active schedule.
struct Bound<'a> {
    replicas: i32,
    schedule: &'a str,
    until: Option<Timestamp>,
}

/// The proposal of one metric, or what its fallback requires.
enum Proposal {
    /// The metric proposes a count, by its index.
    Count(i32, Option<usize>, Arc<str>),
    /// The metric is ignored.
    Ignored,
    /// The metric failed, and no fallback applies.
    Failed,
}

impl Resolved {
    /// The decision that follows from the evaluated metrics, with fallbacks and the choice among the proposals.
    pub(crate) fn decide(
        &self,
        evaluation: Evaluation<'_>,
        history: &autoscaling::history::History,
        now: Timestamp,
        steps: &mut Vec<PolicyStep>,
    ) -> Decision {
        match self.choice(&evaluation, steps) {
            Some(choice) => evaluation.decide_by(choice, history, now),
            None => evaluation.decide(history, now),
        }
    }

    /// The choice among the proposals. `None` leaves it to the reference.
    fn choice(&self, evaluation: &Evaluation<'_>, steps: &mut Vec<PolicyStep>) -> Option<Choice> {
        let policy = &self.merged.spec;
        let fallbacks = policy.fallback.as_deref().unwrap_or_default();
        let combine = policy.combine.unwrap_or_default();
        if fallbacks.is_empty() && combine == Combine::Max {
            return None;
        }
        let current = evaluation.current()?;
        let mut proposals = Vec::new();
        let mut fell_back = false;
        let mut failed = false;
        for index in 0..evaluation.metrics() {
            let proposal = match evaluation.outcome(index) {
                Some(MetricOutcome::Valid(reading)) => {
                    Proposal::Count(reading.proposal, Some(index), Arc::clone(&reading.name))
                }
                Some(MetricOutcome::Failed(metric)) => {
                    let name = metric.subject.to_string();
                    let proposal = fallback(fallbacks, &metric.subject.name, metric.class, current, &name);
                    if let Some((proposal, effect)) = proposal {
                        fell_back = true;
                        steps.push(PolicyStep {
                            reason: StepReason::FallbackActive,
                            message: format!("{name} failed, so {effect}"),
                        });
                        proposal
                    } else {
                        Proposal::Failed
                    }
                }
                None => Proposal::Failed,
            };
            match proposal {
                Proposal::Count(replicas, winner, name) => proposals.push((replicas, winner, name)),
                Proposal::Ignored => {}
                Proposal::Failed => failed = true,
            }
        }
        let best = match combine {
            // The first of equal proposals wins, as in the reference.
            Combine::Max => proposals.iter().rev().max_by_key(|(replicas, ..)| *replicas),
            Combine::Min => proposals.iter().min_by_key(|(replicas, ..)| *replicas),
        };
        let Some((replicas, winner, name)) = best else {
            // Without any proposal, nothing may be derived from ignored metrics.
            return None;
        };
        // As in the reference, a failed metric without a fallback allows no scale-down.
        if failed && *replicas < current {
            return None;
        }
        let highest = proposals.iter().map(|(replicas, ..)| *replicas).max().unwrap_or(*replicas);
        if combine == Combine::Min && highest != *replicas {
            steps.push(PolicyStep {
                reason: StepReason::CombinedMin,
                message: format!("the lowest proposal {replicas} was chosen, the highest is {highest}"),
            });
        } else if !fell_back {
            return None;
        }
        Some(Choice { replicas: *replicas, winner: *winner, name: Arc::clone(name) })
    }

    /// Applies guards and mode to a decision. Returns the effect of the policy.
    pub(crate) fn apply(
        &self,
        decision: &mut Decision,
        pods: &[Arc<Pod>],
        mut steps: Vec<PolicyStep>,
    ) -> PolicyEffect {
        let current = decision.current();
        let recommended = decision.count();
        let has_scale = *decision.verdict() != autoscaling::Verdict::NoScale;
        let mut count = recommended;
        if let Some(wanted) = recommended {
            let guarded = self.guarded(current, wanted, pods, &mut steps);
            count = Some(guarded);
        }
        let moded = if has_scale { self.moded(current, count, decision, &mut steps) } else { count };
        if moded != recommended
            && let Some(to) = moded
        {
            let reason = steps.iter().min_by_key(|step| step.reason).map_or("", |step| step.reason.as_str());
            decision.replace_count(to, format!("scaling policy: {reason}"));
        }
        steps.extend(self.steps.iter().cloned());
        steps.sort_by_key(|step| step.reason);
        PolicyEffect { recommended, applied: moded, steps, problems: self.merged.problems.clone() }
    }

    /// Withholds or reduces a change. Never changes the direction.
    fn guarded(&self, current: i32, wanted: i32, pods: &[Arc<Pod>], steps: &mut Vec<PolicyStep>) -> i32 {
        let mut count = wanted;
        if let Some(PendingPods { maximum }) = self.merged.spec.pending_pods
            && count > current
            && current > 0
        {
            let pending = pods.iter().filter(|pod| pod.phase == Phase::Pending && !pod.terminating).count();
            let pending = i32::try_from(pending).unwrap_or(i32::MAX);
            let maximum = maximum.of(current);
            if pending > maximum {
                let message = format!(
                    "{pending} pods are pending, at most {maximum} are allowed for a scale-up, so {current} stays \
                     instead of {count}"
                );
                steps.push(PolicyStep { reason: StepReason::PendingPods, message });
                count = current;
            }
        }
        if let Some(MaxStep { up, down, maximum_pods_up, maximum_pods_down }) = self.merged.spec.max_step {
            let limit = |amount: Option<super::spec::Amount>, pods: Option<u16>| {
                let amounts = amount.map(|amount| amount.of(current).max(1)).into_iter();
                amounts.chain(pods.map(i32::from)).min()
            };
            let highest = limit(up, maximum_pods_up).map_or(i32::MAX, |step| current.saturating_add(step));
            let lowest = limit(down, maximum_pods_down).map_or(i32::MIN, |step| current.saturating_sub(step));
            // A count beyond a bound of the HPA is corrected at once, as by the reference.
            let is_bound = current > self.spec.max_replicas || current < self.spec.min_replicas.unwrap_or(1);
            let bounded = if is_bound { count } else { count.clamp(lowest, highest) };
            if bounded != count {
                let message = format!("maxStep allows {bounded} instead of {count} in this sync");
                steps.push(PolicyStep { reason: StepReason::MaxStep, message });
                count = bounded;
            }
        }
        count
    }

    /// Applies the mode.
    fn moded(
        &self,
        current: i32,
        count: Option<i32>,
        decision: &Decision,
        steps: &mut Vec<PolicyStep>,
    ) -> Option<i32> {
        let until = self.until.map(|until| format!(" until {until}")).unwrap_or_default();
        let held = |wanted: Option<i32>| match wanted {
            Some(wanted) if wanted != current => format!(", the recommendation is {wanted}"),
            _ => String::new(),
        };
        let mut step = |reason: StepReason, message: String| steps.push(PolicyStep { reason, message });
        match self.mode {
            Some(Mode::Auto) => count,
            None => {
                step(
                    StepReason::InvalidMode,
                    format!("the mode is invalid, so the count stays at {current}{}", held(count)),
                );
                count.map(|_| current)
            }
            Some(Mode::Paused) => {
                step(StepReason::Paused, format!("paused at {current}{until}{}", held(count)));
                count.map(|_| current)
            }
            Some(Mode::DryRun) => {
                step(
                    StepReason::DryRun,
                    format!("dry run{until}, the count stays at {current}{}", held(count)),
                );
                count.map(|_| current)
            }
            Some(Mode::ScaleUpOnly) => {
                let wanted = count?;
                let text = if wanted < current { held(count) } else { String::new() };
                step(StepReason::ScaleUpOnly, format!("only scale-ups are allowed{until}{text}"));
                Some(wanted.max(current))
            }
            Some(Mode::ScaleDownOnly) => {
                let wanted = count?;
                let text = if wanted > current { held(count) } else { String::new() };
                step(StepReason::ScaleDownOnly, format!("only scale-downs are allowed{until}{text}"));
                Some(wanted.min(current))
            }
            Some(Mode::Pinned) => {
                let path = decision.explanation().path;
                if matches!(
                    path,
                    autoscaling::explanation::DecisionPath::Ambiguous
                        | autoscaling::explanation::DecisionPath::Deleted
                ) {
                    return count;
                }
                step(StepReason::Pinned, format!("pinned at {}{until}{}", self.pinned, held(count)));
                Some(self.pinned)
            }
        }
    }
}

/// The proposal of the first fallback that applies, and its effect in words.
fn fallback(
    fallbacks: &[Fallback],
    metric: &str,
    class: Option<MetricFailureClass>,
    current: i32,
    name: &str,
) -> Option<(Proposal, String)> {
    let cause = match class {
        Some(MetricFailureClass::NoValues | MetricFailureClass::NoSamples) => FallbackCause::Empty,
        // An invalid metric, and one that the cluster cannot compute, is an error too.
        _ => FallbackCause::Error,
    };
    let of_cause = || fallbacks.iter().filter(|fallback| fallback.when == cause);
    let named = of_cause().find(|fallback| fallback.metric.as_deref() == Some(metric));
    let Fallback { action, replicas, strategy, .. } =
        named.or_else(|| of_cause().find(|fallback| fallback.metric.is_none()))?;
    let count = |replicas: i32| Proposal::Count(replicas, None, format!("the fallback of {name}").into());
    Some(match action {
        FallbackAction::Ignore => (Proposal::Ignored, "the other metrics decide".to_owned()),
        FallbackAction::Hold => (count(current), format!("it proposes the current count {current}")),
        FallbackAction::Replicas => {
            let replicas = replicas.unwrap_or(current);
            let replicas = match strategy {
                Strategy::Static => replicas,
                Strategy::AtLeast => replicas.max(current),
                Strategy::AtMost => replicas.min(current),
            };
            (count(replicas), format!("it proposes {replicas}"))
        }
    })
}

#[cfg(test)]
mod tests;
