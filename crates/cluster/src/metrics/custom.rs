//! custom.metrics.k8s.io, or another group of this form, in the version that the cluster serves.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::query::{Answer, CustomValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::apis::{FetchError, Inner};
use super::wire;
use super::wire::LastTime;
use crate::cached_fetch::CachedFetch;
use crate::call::{Call, SentTime};
use crate::client::Client;
use crate::decode::{DecodeError, Text};
use crate::error::ApiError;
use crate::mapper;

/// `kind` of the response.
pub(super) const KIND: &str = "MetricValueList";

/// The version to use, from discovery. Cached for one sync period.
#[derive(Debug)]
pub(super) struct Versions {
    discovery: Client,
    group: Arc<str>,
    life: Duration,
    cache: CachedFetch<Offer, ApiError>,
}

/// The version of the group that the cluster offers.
#[derive(Debug, Clone, Copy)]
enum Offer {
    /// The first version that the controller supports.
    Version(&'static str),
    /// Only versions that the controller does not support.
    OtherVersions,
    /// No version.
    Nothing,
}

impl Versions {
    pub(super) fn new(discovery: Client, group: Arc<str>, life: Duration) -> Self {
        Self { discovery, group, life, cache: CachedFetch::default() }
    }

    /// The first supported version of the group. Concurrent callers share one discovery. If the discovery fails, the
    /// last offer stays in use.
    async fn choose(&self) -> Result<&'static str, FetchError> {
        let find = async || {
            let offered = mapper::versions(&self.discovery, &self.group).await?;
            let supported = offered.iter().find_map(|offered| match offered.as_str() {
                "v1beta2" => Some("v1beta2"),
                "v1beta1" => Some("v1beta1"),
                _ => None,
            });
            Ok(match supported {
                Some(version) => Offer::Version(version),
                None if offered.is_empty() => Offer::Nothing,
                None => Offer::OtherVersions,
            })
        };
        let offer = self.cache.get(self.life, find).await;
        match offer.or_else(|failed| failed.cached.ok_or(failed.error))? {
            Offer::Version(version) => Ok(version),
            Offer::OtherVersions => Err(FetchError::NoCustomMetricsVersion),
            Offer::Nothing => Err(FetchError::NoCustomMetricsApi(Arc::clone(&self.group))),
        }
    }
}

/// The object that a metric describes.
#[derive(Clone, Copy)]
pub(super) struct DescribedObject<'a> {
    pub(super) namespace: &'a str,
    pub(super) group: &'a str,
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
}

pub(super) async fn ask_pods(
    metrics: &Inner,
    namespace: &str,
    metric: &str,
    selector: &str,
    metric_selector: &str,
    sent: &SentTime,
) -> Result<Answer, FetchError> {
    let (group, version) = (&*metrics.groups.custom, version(metrics).await?);
    let call = Call::get(["apis", group, version, "namespaces", namespace, "pods", "*", metric])
        .query("labelSelector", selector)
        .query("metricLabelSelector", metric_selector)
        .about(format!("pods.{group}"), "*");
    fetch(metrics, call.recording(sent)).await
}

pub(super) async fn ask_object(
    metrics: &Inner,
    object: DescribedObject<'_>,
    metric: &str,
    metric_selector: &str,
    sent: &SentTime,
) -> Result<Answer, FetchError> {
    let DescribedObject { namespace, group, kind, name } = object;
    let (api, version) = (&*metrics.groups.custom, version(metrics).await?);
    let call = if group.is_empty() && kind == "Namespace" {
        // Uses the namespace of the HPA and ignores the name in the spec.
        Call::get(["apis", api, version, "namespaces", namespace, "metrics", metric])
            .about(format!("metrics.{api}"), metric)
    } else {
        let mappings = metrics.mapper.mappings(group, kind).await.map_err(|error| FetchError::Map {
            kind: if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") },
            error,
        })?;
        // The mapper never returns an empty list.
        let resource = mappings.first().map(mapper::Mapping::group_resource).unwrap_or_default();
        Call::get(["apis", api, version, "namespaces", namespace, &resource, name, metric])
            .about(format!("{resource}.{api}"), name)
            .counted_as(Arc::clone(&metrics.groups.custom_requests))
    };
    fetch(metrics, call.query("metricLabelSelector", metric_selector).recording(sent)).await
}

async fn version(metrics: &Inner) -> Result<&'static str, FetchError> {
    metrics.versions.choose().await
}

async fn fetch(metrics: &Inner, call: Call) -> Result<Answer, FetchError> {
    let items = wire::list(&metrics.custom.client, &metrics.bounded(call), KIND, decoder()).await?;
    Ok(Answer::Custom(items.into()))
}

/// Creates a decoder of consecutive items.
pub(super) fn decoder() -> impl FnMut(&[u8]) -> Result<CustomValue, DecodeError> {
    let mut time = LastTime::default();
    move |item| value(item, &mut time)
}

/// An item of v1beta2. Items of v1beta1 differ in unused fields and in the name of the window.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Value<'a> {
    #[serde(borrow)]
    described_object: Option<Object<'a>>,
    #[serde(borrow)]
    timestamp: Option<Text<'a>>,
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    #[serde(borrow, rename = "value")]
    quantity: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Object<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
}

fn value(item: &[u8], time: &mut LastTime) -> Result<CustomValue, DecodeError> {
    let item: Value<'_> = serde_json::from_slice(item)?;
    Ok(CustomValue {
        object: (&*item.described_object.unwrap_or_default().name).into(),
        timestamp: time.read(item.timestamp.as_deref())?,
        window_seconds: item.window_seconds,
        value: wire::quantity(item.quantity)?,
    })
}
