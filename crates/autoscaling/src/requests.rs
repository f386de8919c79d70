//! Computes a pod's request of a resource, for targets in percent (rules: docs/concepts/how-hpa-decides.md).

use crate::failure::{Failure, MISSING_POD_REQUEST, MISSING_REQUEST, MetricFailureClass, NO_CONTAINER};
use crate::number::saturate_to_milli;
use crate::pod::{ContainerRequests, Pod, PodRequests};
use crate::quantity::Quantity;

/// The reason why a pod's request cannot be computed. This error fails the whole metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// A container does not request the resource.
    #[error("{MISSING_REQUEST} {resource} in container {container} of Pod {pod}")]
    Missing { resource: String, container: String, pod: String },
    /// The pod sets pod-level requests, but neither the pod nor a container requests the resource.
    #[error("{MISSING_POD_REQUEST} {resource} in Pod {pod}")]
    MissingPodLevel { resource: String, pod: String },
    /// The metric names a container that the pod does not have.
    #[error("container {container} {NO_CONTAINER} {pod}")]
    NoContainer { container: String, pod: String },
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let class = match error {
            RequestError::Missing { .. } => MetricFailureClass::MissingRequest,
            RequestError::MissingPodLevel { .. } => MetricFailureClass::MissingPodRequest,
            RequestError::NoContainer { .. } => MetricFailureClass::NoContainer,
        };
        Self::new(class, error.to_string())
    }
}

/// A pod's request in milli-units, for one container or for the whole pod. `pod_level` is the gate
/// PodLevelResources.
pub(crate) fn request_of(
    pod: &Pod,
    resource: &str,
    container: Option<&str>,
    pod_level: bool,
) -> Result<i64, RequestError> {
    let requests = &*pod.requests;
    match container {
        Some(name) => container_request(pod, requests, resource, name),
        None if pod_level && sets_pod_level(requests) => {
            effective(requests, resource).map(Quantity::milli_value).ok_or_else(|| {
                RequestError::MissingPodLevel { resource: resource.to_owned(), pod: pod.name.to_string() }
            })
        }
        None => sum_of_containers(pod, requests, resource),
    }
}

fn container_request(
    pod: &Pod,
    requests: &PodRequests,
    resource: &str,
    name: &str,
) -> Result<i64, RequestError> {
    let container = long_running(requests)
        .find(|container| &*container.name == name)
        .ok_or_else(|| RequestError::NoContainer { container: name.to_owned(), pod: pod.name.to_string() })?;
    milli_request(pod, container, resource)
}

fn sum_of_containers(pod: &Pod, requests: &PodRequests, resource: &str) -> Result<i64, RequestError> {
    let mut sum = 0i128;
    for container in long_running(requests) {
        sum += i128::from(milli_request(pod, container, resource)?);
    }
    Ok(saturate_to_milli(sum))
}

fn milli_request(pod: &Pod, container: &ContainerRequests, resource: &str) -> Result<i64, RequestError> {
    container.requests.get(resource).map(Quantity::milli_value).ok_or_else(|| RequestError::Missing {
        resource: resource.to_owned(),
        container: container.name.to_string(),
        pod: pod.name.to_string(),
    })
}

/// Containers, and init containers that keep running alongside them.
fn long_running(requests: &PodRequests) -> impl Iterator<Item = &ContainerRequests> {
    requests
        .containers
        .iter()
        .chain(requests.init_containers.iter().filter(|container| container.restartable))
}

/// Whether the pod sets a supported pod-level request.
fn sets_pod_level(requests: &PodRequests) -> bool {
    requests
        .pod_level
        .iter()
        .any(|(resource, _)| matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-"))
}

/// The request that the scheduler counts, without overhead. This is the pod-level request of the resource if it is set
/// and supported, otherwise the larger of the sum of all long-running containers and the peak of the init containers.
fn effective(requests: &PodRequests, resource: &str) -> Option<Quantity> {
    let pod_level = requests.pod_level.get(resource);
    if pod_level.is_some() && (matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")) {
        return pod_level;
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
