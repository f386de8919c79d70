//! Sorts pods into groups for a metric that is read per pod (groups and their order: docs/concepts/how-hpa-decides.md).

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::explanation::{PodGroup, PodVerdict};
use crate::pod::{ConditionStatus, Phase, Pod};
use crate::settings::Settings;

/// One pod's value of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample<'a> {
    /// The pod's name.
    pub(crate) pod: &'a str,
    /// The value in milli-units.
    pub(crate) value: i64,
    /// The end of the window of the measurement.
    pub(crate) timestamp: Option<Timestamp>,
    /// The length of the window of the measurement.
    pub(crate) window_nanos: i64,
}

/// Pods with their groups, and the sums that a proposal needs.
#[derive(Debug)]
pub(crate) struct GroupedPods {
    /// One verdict per pod, in the order of the pods.
    pub(crate) pods: Vec<PodVerdict>,
    /// The number of ready pods.
    pub(crate) ready: usize,
    /// The number of pods without a sample.
    pub(crate) missing: usize,
    /// The number of unready pods.
    pub(crate) unready: usize,
    /// The number of samples of pods that the selector does not match.
    pub(crate) unmatched: usize,
    /// The sum of the unmatched samples in milli-units. It counts for targets that need no requests.
    pub(crate) unmatched_sum: i128,
}

impl GroupedPods {
    /// Sorts the pods into groups. If a pod has several samples, the last one counts.
    ///
    /// `cpu` is true for the resource cpu. Readiness and initialization count for that resource only.
    pub(crate) fn new(
        pods: &[Arc<Pod>],
        mut samples: Vec<Sample<'_>>,
        cpu: bool,
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        samples.sort_by(|a, b| a.pod.cmp(b.pod));
        let mut matched = 0usize;
        let mut grouped = Self {
            pods: Vec::with_capacity(pods.len()),
            ready: 0,
            missing: 0,
            unready: 0,
            unmatched: 0,
            unmatched_sum: 0,
        };
        for pod in pods {
            let sample = last_sample(&samples, &pod.name);
            if sample.is_some() {
                matched += 1;
            }
            let group = group_of(pod, sample, cpu, settings, now);
            match group {
                PodGroup::Ready => grouped.ready += 1,
                PodGroup::Missing => grouped.missing += 1,
                unready if unready.is_unready() => grouped.unready += 1,
                _ => {}
            }
            grouped.pods.push(PodVerdict {
                name: Arc::clone(&pod.name),
                group,
                sample: sample.map(|sample| sample.value),
                request: None,
            });
        }
        grouped.add_unmatched(&samples, matched);
        grouped
    }

    /// The number of samples, except samples of ignored and unready pods.
    pub(crate) fn samples_left(&self) -> usize {
        self.ready + self.unmatched
    }

    /// The sum of the ready pods' samples in milli-units.
    pub(crate) fn ready_sum(&self) -> i128 {
        self.ready_pods().filter_map(|pod| pod.sample).map(i128::from).sum()
    }

    /// The pods in group `Ready`.
    pub(crate) fn ready_pods(&self) -> impl Iterator<Item = &PodVerdict> {
        self.pods.iter().filter(|pod| pod.group == PodGroup::Ready)
    }

    fn add_unmatched(&mut self, samples: &[Sample<'_>], matched: usize) {
        // The common case: every sample belongs to a pod.
        if samples.len() == matched {
            return;
        }
        let with_sample = self.pods.iter().filter(|pod| pod.sample.is_some());
        let mut known: Vec<&str> = with_sample.map(|pod| &*pod.name).collect();
        known.sort_unstable();
        let (mut unmatched, mut sum) = (0, 0);
        let mut previous: Option<&Sample<'_>> = None;
        for sample in samples.iter().rev() {
            let superseded = previous.is_some_and(|later| later.pod == sample.pod);
            previous = Some(sample);
            if !superseded && known.binary_search(&sample.pod).is_err() {
                unmatched += 1;
                sum += i128::from(sample.value);
            }
        }
        (self.unmatched, self.unmatched_sum) = (unmatched, sum);
    }
}

/// The last sample of a pod. `samples` is sorted by pod, and the samples of one pod are in the order of the
/// answer.
fn last_sample<'s, 'a>(samples: &'s [Sample<'a>], pod: &str) -> Option<&'s Sample<'a>> {
    let end = samples.partition_point(|sample| sample.pod <= pod);
    samples.get(end.checked_sub(1)?).filter(|sample| sample.pod == pod)
}

fn group_of(
    pod: &Pod,
    sample: Option<&Sample<'_>>,
    cpu: bool,
    settings: &Settings,
    now: Timestamp,
) -> PodGroup {
    if pod.terminating {
        return PodGroup::IgnoredTerminating;
    }
    match pod.phase {
        Phase::Failed => return PodGroup::IgnoredFailed,
        Phase::Succeeded => return PodGroup::IgnoredSucceeded,
        Phase::Pending => return PodGroup::UnreadyPending,
        Phase::Running | Phase::Unknown => {}
    }
    let Some(sample) = sample else {
        return PodGroup::Missing;
    };
    if cpu { cpu_group(pod, sample, settings, now) } else { PodGroup::Ready }
}

fn cpu_group(pod: &Pod, sample: &Sample<'_>, settings: &Settings, now: Timestamp) -> PodGroup {
    let Some(ready) = pod.ready else {
        return PodGroup::UnreadyNoCondition;
    };
    let Some(start) = pod.start_time else {
        return PodGroup::UnreadyNotStarted;
    };
    let not_ready = ready.status == ConditionStatus::False;
    // An absent time is Go's zero time, which is before all others.
    let since = ready.since.unwrap_or(Timestamp::MIN);
    if after(start, settings.cpu_initialization_period) > now {
        if not_ready {
            return PodGroup::UnreadyInitializing;
        }
        let window = SignedDuration::from_nanos(sample.window_nanos);
        let whole_window_from = since.checked_add(window).unwrap_or(Timestamp::MAX);
        if sample.timestamp.unwrap_or(Timestamp::MIN) < whole_window_from {
            return PodGroup::UnreadySampleTooOld;
        }
    } else if not_ready && after(start, settings.initial_readiness_delay) > since {
        return PodGroup::UnreadyNeverReady;
    }
    PodGroup::Ready
}

fn after(start: Timestamp, duration: Duration) -> Timestamp {
    start.checked_add(duration).unwrap_or(Timestamp::MAX)
}
