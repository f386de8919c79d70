//! What a pod requests of a resource, for targets in percent (rules: docs/parity.md).

use crate::number::saturate_to_milli;
use crate::pod::{ContainerRequests, Pod, PodRequests};
use crate::quantity::Quantity;

/// Why a pod's request cannot be told. Fails the whole metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// A container does not request the resource.
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    Missing { resource: String, container: String, pod: String },
    /// The pod sets pod-level requests, but neither it nor a container names the resource.
    #[error("missing pod-level request for {resource} in Pod {pod}")]
    MissingPodLevel { resource: String, pod: String },
    /// The metric names a container that the pod does not have.
    #[error("container {container} not found in Pod {pod}")]
    NoContainer { container: String, pod: String },
}

/// A pod's request in milli-units: of one container, or of the whole pod.
pub(crate) fn request_of(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i64, RequestError> {
    let requests = &*pod.requests;
    match container {
        Some(name) => of_container(pod, requests, resource, name),
        None if sets_pod_level(requests) => {
            effective(requests, resource).map(Quantity::milli_value).ok_or_else(|| {
                RequestError::MissingPodLevel { resource: resource.to_owned(), pod: pod.name.to_string() }
            })
        }
        None => of_containers(pod, requests, resource),
    }
}

fn of_container(pod: &Pod, requests: &PodRequests, resource: &str, name: &str) -> Result<i64, RequestError> {
    let container = long_running(requests)
        .find(|container| &*container.name == name)
        .ok_or_else(|| RequestError::NoContainer { container: name.to_owned(), pod: pod.name.to_string() })?;
    milli_request(pod, container, resource)
}

fn of_containers(pod: &Pod, requests: &PodRequests, resource: &str) -> Result<i64, RequestError> {
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

/// Containers, and init containers that keep running beside them.
fn long_running(requests: &PodRequests) -> impl Iterator<Item = &ContainerRequests> {
    requests
        .containers
        .iter()
        .chain(requests.init_containers.iter().filter(|container| container.restartable))
}

/// Whether the pod sets a pod-level request of one of the kinds that count there.
fn sets_pod_level(requests: &PodRequests) -> bool {
    requests
        .pod_level
        .iter()
        .any(|(resource, _)| matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-"))
}

/// The request that the scheduler counts, without overhead: the pod-level value where it names the resource, else
/// the larger of what runs for long and what the init containers need on the way there.
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
