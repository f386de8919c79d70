//! metrics.k8s.io: the usage of pods.

use autoscaling::pod::ResourceList;
use autoscaling::query::{Answer, ContainerUsage, PodUsage};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::wire::{LastTime, Names};
use super::{FetchError, Inner, wire};
use crate::api::call::Call;
use crate::api::decode::{DecodeError, Pairs, Text};
use crate::duration::GoDuration;

/// `kind` of the answer.
pub(super) const KIND: &str = "PodMetricsList";

pub(super) async fn ask(metrics: &Inner, namespace: &str, selector: &str) -> Result<Answer, FetchError> {
    let call = Call::get(["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"])
        .query("labelSelector", selector)
        .about("pods.metrics.k8s.io", "");
    let items = wire::list(&metrics.resource.client, &metrics.bounded(call), KIND, decoder()).await?;
    Ok(Answer::Resource(items.into()))
}

/// Reads one item after the other.
pub(super) fn decoder() -> impl FnMut(&[u8]) -> Result<PodUsage, DecodeError> {
    let (mut names, mut time) = (Names::default(), LastTime::default());
    move |item| pod(item, &mut names, &mut time)
}

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    timestamp: Option<Text<'a>>,
    #[serde(borrow)]
    window: Option<Text<'a>>,
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
}

#[derive(Deserialize, Default)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
}

#[derive(Deserialize)]
struct Container<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    usage: Pairs<'a, Option<&'a RawValue>>,
}

fn pod(item: &[u8], names: &mut Names, time: &mut LastTime) -> Result<PodUsage, DecodeError> {
    let pod: Pod<'_> = serde_json::from_slice(item)?;
    let window_nanos = match pod.window.as_deref() {
        None => 0,
        Some(text) => {
            let window = text.parse::<GoDuration>().map_err(|error| DecodeError::new(error.to_string()))?;
            window.0
        }
    };
    let mut containers = Vec::new();
    for container in pod.containers.iter().flatten() {
        let mut usage = Vec::with_capacity(container.usage.0.len());
        for (resource, amount) in &container.usage.0 {
            usage.push((names.share(resource), wire::quantity(*amount)?));
        }
        containers
            .push(ContainerUsage { name: names.share(&container.name), usage: ResourceList::new(usage) });
    }
    Ok(PodUsage {
        pod: (&*pod.metadata.name).into(),
        timestamp: time.read(pod.timestamp.as_ref())?,
        window_nanos,
        containers: containers.into(),
    })
}
