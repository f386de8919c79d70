//! The compact encoding of the steps of a decision. Of each metric's pods, the encoding keeps the same part
//! as [`Explanation::condensed`], without building that copy first.

use autoscaling::Action;
use autoscaling::condition::Limit;
use autoscaling::explanation::{
    Assumed, Corrected, DecisionPath, Explanation, FailedMetric, LimitStep, Measure, MetricExplanation,
    MetricReading, PodCount, PodGroup, PodVerdict, PolicyUse, ProposalReason, StabilizationStep, Subject,
    UnmatchedSamples,
};
use autoscaling::history::{Direction, Recommendation};
use autoscaling::spec::{PolicyKind, SelectPolicy};

use super::code::{Code, Reader, Writer, fields, variants};
use super::wire::Outcome;

/// Maximum number of pods listed by name in each group that does not count.
pub(super) const LISTED_PODS: usize = 3;

fields!(Explanation:
    body course, body current, body status_replicas, frame min, frame max, frame metrics, body winner, body proposal,
    body stabilization, body limit, body lifted_to_min, body desired, body failure,
);

variants!(DecisionPath:
    Metrics = 0, NoScale = 1, Disabled = 2, AboveMax = 3, BelowMin = 4, NoSelector = 5, Ambiguous = 6, Deleted = 7,
);

impl Code for MetricExplanation {
    fn put(&self, to: &mut Writer) {
        match self {
            Self::Valid(reading) => {
                true.put(to);
                reading.put(to);
            }
            Self::Failed(failed) => {
                false.put(to);
                failed.put(to);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        if bool::take(from)? {
            MetricReading::take(from).map(Self::Valid)
        } else {
            FailedMetric::take(from).map(Self::Failed)
        }
    }
}

fields!(Subject: frame kind, frame name, frame container, frame object);
fields!(FailedMetric: frame subject, frame reason, body error);

impl Code for MetricReading {
    fn put(&self, to: &mut Writer) {
        let Self { subject, name, target, lowest_tolerated, highest_tolerated, .. } = self;
        to.frame(|to| {
            subject.put(to);
            name.put(to);
            target.put(to);
            lowest_tolerated.put(to);
            highest_tolerated.put(to);
        });
        to.body(|to| {
            self.value.put(to);
            self.total.put(to);
            // The ratio usually follows from value and target.
            let follows = self.ratio.to_bits() == quotient(self.value, self.target).to_bits();
            (!follows).then_some(self.ratio).put(to);
            put_pods(&self.pods, &self.unlisted, to);
            self.strangers.put(to);
            self.ready_pods.put(to);
            self.corrected.put(to);
            self.why.put(to);
            self.proposal.put(to);
        });
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (subject, name) = (from.frame(Code::take)?, from.frame(Code::take)?);
        let (target, lowest_tolerated) = (from.frame(Code::take)?, from.frame(Code::take)?);
        let highest_tolerated = from.frame(Code::take)?;
        let (value, total) = (from.body(Code::take)?, from.body(Code::take)?);
        let ratio: Option<f64> = from.body(Code::take)?;
        Some(Self {
            subject,
            name,
            target,
            value,
            total,
            ratio: ratio.unwrap_or_else(|| quotient(value, target)),
            lowest_tolerated,
            highest_tolerated,
            pods: from.body(take_each)?,
            unlisted: from.body(take_each)?,
            strangers: from.body(Code::take)?,
            ready_pods: from.body(Code::take)?,
            corrected: from.body(Code::take)?,
            why: from.body(Code::take)?,
            proposal: from.body(Code::take)?,
        })
    }
}

/// The quotient of two amounts, independent of their units.
fn quotient(value: Measure, target: Measure) -> f64 {
    let amount = |measure| match measure {
        Measure::Percent(percent) => f64::from(percent),
        Measure::Milli(amount) | Measure::MilliPerPod(amount) => amount as f64,
    };
    amount(value) / amount(target)
}

/// Writes the first pods of each group that does not count, and the number of the others.
fn put_pods(pods: &[PodVerdict], unlisted: &[PodCount], to: &mut Writer) {
    let mut groups = Groups::default();
    for pod in pods {
        if groups.slot(pod.group).is_some_and(Group::lists_another) {
            true.put(to);
            pod.put(to);
        }
    }
    false.put(to);
    for count in unlisted {
        if let Some(group) = groups.slot(count.group) {
            group.left_out = group.left_out.saturating_add(count.pods);
        }
    }
    for group in groups.0.iter().flatten().filter(|group| group.left_out > 0) {
        true.put(to);
        PodCount { group: group.kind, pods: group.left_out }.put(to);
    }
    false.put(to);
}

/// Reads a sequence: `true` before each value, `false` after the last.
fn take_each<T: Code>(from: &mut Reader<'_>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    while bool::take(from)? {
        all.push(T::take(from)?);
    }
    Some(all)
}

/// The groups of one metric's pods, in the order of their first pod. One slot for each kind of group.
#[derive(Debug, Default)]
struct Groups([Option<Group>; 11]);

#[derive(Debug)]
struct Group {
    kind: PodGroup,
    listed: usize,
    left_out: u32,
}

impl Groups {
    fn slot(&mut self, group: PodGroup) -> Option<&mut Group> {
        let slot = self.0.iter_mut().find(|slot| slot.as_ref().is_none_or(|slot| slot.kind == group))?;
        Some(slot.get_or_insert(Group { kind: group, listed: 0, left_out: 0 }))
    }
}

impl Group {
    /// Counts another pod. Returns whether the pod is listed by name.
    fn lists_another(&mut self) -> bool {
        let listed = self.kind != PodGroup::Ready && self.listed < LISTED_PODS;
        if listed {
            self.listed += 1;
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
        listed
    }
}

fields!(PodVerdict: body name, body group, body sample, body request);
fields!(PodCount: body group, body pods);

variants!(PodGroup:
    Ready = 0, IgnoredTerminating = 1, IgnoredFailed = 2, IgnoredSucceeded = 3, Missing = 4, UnreadyPending = 5,
    UnreadyNoCondition = 6, UnreadyNotStarted = 7, UnreadyInitializing = 8, UnreadySampleTooOld = 9,
    UnreadyNeverReady = 10,
);

impl Code for Measure {
    fn put(&self, to: &mut Writer) {
        let (unit, amount) = match *self {
            Self::Percent(percent) => (0, percent.into()),
            Self::Milli(amount) => (1, amount),
            Self::MilliPerPod(amount) => (2, amount),
        };
        to.bytes(&[unit]);
        amount.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (unit, amount) = (from.byte()?, i64::take(from)?);
        match unit {
            0 => i32::try_from(amount).ok().map(Self::Percent),
            1 => Some(Self::Milli(amount)),
            2 => Some(Self::MilliPerPod(amount)),
            _ => None,
        }
    }
}

fields!(UnmatchedSamples: body samples, body sum);
fields!(Corrected: body ratio, body values, body missing, body unready);
variants!(Assumed: Target = 0, Zero = 1);

variants!(ProposalReason:
    WithinTolerance = 0, Ratio = 1, CorrectedRatio = 2, CorrectedWithinTolerance = 3, DirectionReversed = 4,
    CountReversed = 5, PerPod = 6, FromZero = 7,
);

impl Code for StabilizationStep {
    fn put(&self, to: &mut Writer) {
        // Earlier recommendations are not stored, except for the decisive one.
        let Self { before, after, up_window_seconds, down_window_seconds, held_by, recommendations: _ } =
            self;
        to.frame(|to| {
            up_window_seconds.put(to);
            down_window_seconds.put(to);
        });
        to.body(|to| {
            before.put(to);
            after.put(to);
            held_by.put(to);
        });
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            up_window_seconds: from.frame(Code::take)?,
            down_window_seconds: from.frame(Code::take)?,
            before: from.body(Code::take)?,
            after: from.body(Code::take)?,
            held_by: from.body(Code::take)?,
            recommendations: Vec::new(),
        })
    }
}

fields!(Recommendation: body at, body replicas);
fields!(LimitStep:
    body before, body after, body limit, body direction, body select, body policies, body rate_allows,
);
fields!(PolicyUse:
    body kind, body value, body period_seconds, body added, body removed, body start, body allows, body frees_at,
    body unknown_rescale,
);

variants!(Limit: WithinRange = 0, ScaleUpRate = 1, ScaleDownRate = 2, Maximum = 3, Minimum = 4);
variants!(Direction: Up = 0, Down = 1);
variants!(SelectPolicy: Max = 0, Min = 1, Disabled = 2);
variants!(PolicyKind: Pods = 0, Percent = 1, Unknown = 2);
variants!(Action: None = 0, ScaleUp = 1, ScaleDown = 2);
variants!(Outcome: NotNeeded = 0, Done = 1, Failed = 2, Withheld = 3);
