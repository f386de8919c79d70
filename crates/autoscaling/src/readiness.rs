//! Which pods count for a metric that is read per pod (groups and their order: docs/parity.md).

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
    /// Milli-units.
    pub(crate) value: i64,
    /// End of the window in which it was measured.
    pub(crate) timestamp: Option<Timestamp>,
    /// Length of that window.
    pub(crate) window_nanos: i64,
}

/// Pods with the group of each, and the sums that a proposal needs.
#[derive(Debug)]
pub(crate) struct Grouped {
    /// One verdict per pod, in the order of the pods.
    pub(crate) pods: Vec<PodVerdict>,
    /// How many are ready.
    pub(crate) ready: usize,
    /// How many have no sample.
    pub(crate) missing: usize,
    /// How many are unready.
    pub(crate) unready: usize,
    /// Samples of pods that are not among the pods: they count where no request is needed.
    pub(crate) strangers: usize,
    /// Their sum, in milli-units.
    pub(crate) strangers_sum: i128,
}

impl Grouped {
    /// Sorts the pods into groups. Of two samples for one pod the last counts.
    ///
    /// `cpu`: whether readiness and initialization count, as they do for the resource cpu only.
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
            strangers: 0,
            strangers_sum: 0,
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
        grouped.add_strangers(&samples, matched);
        grouped
    }

    /// How many samples are left after those of ignored and unready pods were dropped.
    pub(crate) fn samples_left(&self) -> usize {
        self.ready + self.strangers
    }

    /// Sum of the ready pods' samples in milli-units.
    pub(crate) fn ready_sum(&self) -> i128 {
        self.ready_pods().filter_map(|pod| pod.sample).map(i128::from).sum()
    }

    /// The pods that count.
    pub(crate) fn ready_pods(&self) -> impl Iterator<Item = &PodVerdict> {
        self.pods.iter().filter(|pod| pod.group == PodGroup::Ready)
    }

    fn add_strangers(&mut self, samples: &[Sample<'_>], matched: usize) {
        // The usual case: every sample belongs to a pod.
        if samples.len() == matched {
            return;
        }
        let with_sample = self.pods.iter().filter(|pod| pod.sample.is_some());
        let mut known: Vec<&str> = with_sample.map(|pod| &*pod.name).collect();
        known.sort_unstable();
        let (mut strangers, mut sum) = (0, 0);
        let mut previous: Option<&Sample<'_>> = None;
        for sample in samples.iter().rev() {
            let superseded = previous.is_some_and(|later| later.pod == sample.pod);
            previous = Some(sample);
            if !superseded && known.binary_search(&sample.pod).is_err() {
                strangers += 1;
                sum += i128::from(sample.value);
            }
        }
        (self.strangers, self.strangers_sum) = (strangers, sum);
    }
}

/// The last of the samples for a pod; they are sorted by pod, those of one pod in the order of the answer.
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
    // An absent time is Go's zero time: before all others.
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
