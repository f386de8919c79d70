//! The groups of pods for a metric with one sample per pod, and the requests of pods for a target in percent (rules:
//! docs/concepts/how-hpa-decides.md).

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::explanation::{PodGroup, PodVerdict};
use crate::failure::{Failure, MISSING_POD_REQUEST, MISSING_REQUEST, MetricFailureClass, NO_CONTAINER};
use crate::number::saturate_to_i64;
use crate::pod::{ConditionStatus, ContainerRequests, Phase, Pod, PodRequests};
use crate::quantity::Quantity;
use crate::settings::Settings;

/// The value of a metric for one pod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample<'a> {
    /// The name of the pod.
    pub(crate) pod: &'a str,
    /// The value in milli-units.
    pub(crate) value: i64,
    /// The end of the measured window.
    pub(crate) timestamp: Option<Timestamp>,
    /// The length of the measured window.
    pub(crate) window_nanos: i64,
}

/// The pods with their groups, and the totals for a proposal.
#[derive(Debug)]
pub(crate) struct GroupedPods {
    pub(crate) pods: Vec<PodVerdict>,
    pub(crate) ready: usize,
    pub(crate) missing: usize,
    pub(crate) unready: usize,
    /// The number of samples of pods that the selector does not match.
    pub(crate) unmatched: usize,
    /// The sum of the unmatched samples in milli-units.
    pub(crate) unmatched_sum: i128,
}

impl GroupedPods {
    /// Groups the pods. Only the last of several samples of a pod is used. `cpu` is true for the resource cpu, the only
    /// resource for which the Ready condition matters.
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

    /// The number of used samples: those of ready pods and of unmatched pods.
    pub(crate) fn samples_left(&self) -> usize {
        self.ready + self.unmatched
    }

    /// The sum of the ready pods' samples in milli-units.
    pub(crate) fn ready_sum(&self) -> i128 {
        self.ready_pods().filter_map(|pod| pod.sample).map(i128::from).sum()
    }

    pub(crate) fn ready_pods(&self) -> impl Iterator<Item = &PodVerdict> {
        self.pods.iter().filter(|pod| pod.group == PodGroup::Ready)
    }

    fn add_unmatched(&mut self, samples: &[Sample<'_>], matched: usize) {
        // Usually, every sample belongs to a pod.
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

/// The last sample of a pod in the answer. `samples` is sorted by pod, with a stable sort.
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
    // An absent time is Go's zero time, which is before all other times.
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
    start.saturating_add(duration).unwrap_or(start)
}

/// Returns a pod's request in milli-units, of one container or of the whole pod. An error fails the whole metric.
pub(crate) fn request_of(
    pod: &Pod,
    resource: &str,
    container: Option<&str>,
    settings: &Settings,
) -> Result<i64, Failure> {
    let requests = &*pod.requests;
    let containers = &requests.containers;
    match container {
        Some(name) => {
            let container =
                containers.iter().chain(sidecars(requests)).find(|container| &*container.name == name);
            let container = container.ok_or_else(|| {
                let text = format!("container {name} {NO_CONTAINER} {}", pod.name);
                Failure::new(MetricFailureClass::NoContainer, text)
            })?;
            milli_request(pod, container, resource)
        }
        None if settings.pod_level_resources
            && requests.pod_level.iter().any(|(resource, _)| is_pod_level(resource)) =>
        {
            effective(requests, resource).map(Quantity::milli_value).ok_or_else(|| {
                let text = format!("{MISSING_POD_REQUEST} {resource} in Pod {}", pod.name);
                Failure::new(MetricFailureClass::MissingPodRequest, text)
            })
        }
        None => {
            let request = |container| milli_request(pod, container, resource).map(i128::from);
            // The order decides which container an error names.
            let (sidecars, containers) = (sidecars(requests).map(request), containers.iter().map(request));
            let sum: Result<i128, _> = if settings.version.checks_sidecars_first() {
                sidecars.chain(containers).sum()
            } else {
                containers.chain(sidecars).sum()
            };
            sum.map(saturate_to_i64)
        }
    }
}

fn milli_request(pod: &Pod, container: &ContainerRequests, resource: &str) -> Result<i64, Failure> {
    container.requests.get(resource).map(Quantity::milli_value).ok_or_else(|| {
        let text =
            format!("{MISSING_REQUEST} {resource} in container {} of Pod {}", container.name, pod.name);
        Failure::new(MetricFailureClass::MissingRequest, text)
    })
}

fn sidecars(requests: &PodRequests) -> impl Iterator<Item = &ContainerRequests> {
    requests.init_containers.iter().filter(|container| container.restartable)
}

/// Whether Kubernetes supports pod-level requests of the resource.
fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// The request that the scheduler uses, without overhead. Without a supported pod-level request of the resource, this
/// is the higher of the sum of all long-running containers and the peak of the init containers.
fn effective(requests: &PodRequests, resource: &str) -> Option<Quantity> {
    if let Some(request) = requests.pod_level.get(resource).filter(|_| is_pod_level(resource)) {
        return Some(request);
    }
    let mut running: Option<Quantity> = None;
    for container in &requests.containers {
        add(&mut running, container.requests.get(resource));
    }
    let mut restartable: Option<Quantity> = None;
    let mut peak: Option<Quantity> = None;
    for container in &requests.init_containers {
        let own = container.requests.get(resource);
        let mut needed = restartable;
        add(&mut needed, own);
        if container.restartable {
            add(&mut running, own);
            restartable = needed;
        }
        peak = peak.max(needed);
    }
    running.max(peak)
}

fn add(sum: &mut Option<Quantity>, amount: Option<Quantity>) {
    if let Some(amount) = amount {
        *sum = Some(sum.map_or(amount, |sum| sum.saturating_add(amount)));
    }
}
