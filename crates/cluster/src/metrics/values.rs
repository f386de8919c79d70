//! Custom metrics, external metrics, and the decoding that all lists of the metrics APIs share.
//!
//! One API group that serves both kinds of metrics can replace custom.metrics.k8s.io and external.metrics.k8s.io.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::quantity::Quantity;
use autoscaling::query::{Answer, CustomValue, ExternalValue};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::apis::{FetchError, Inner};
use crate::cache::CachedFetch;
use crate::call::{Call, SentTime};
use crate::client::Client;
use crate::decode::{DecodeError, Envelope, Text};
use crate::error::ApiError;
use crate::mapper;

/// `kind` of a list of custom metrics.
pub(crate) const CUSTOM_KIND: &str = "MetricValueList";
/// `kind` of a list of external metrics.
pub(crate) const EXTERNAL_KIND: &str = "ExternalMetricValueList";

/// The version of custom metrics to use, from discovery. The version is cached for `life`.
#[derive(Debug)]
pub(super) struct Versions {
    discovery: Client,
    group: Arc<str>,
    life: Duration,
    cache: CachedFetch<Offer, ApiError>,
}

/// The versions of the group that the cluster offers.
#[derive(Debug, Clone, Copy)]
enum Offer {
    /// The first offered version that the controller supports.
    Version(&'static str),
    /// The cluster offers only versions that the controller does not support.
    OtherVersions,
    /// The cluster does not serve the group.
    Nothing,
}

impl Versions {
    pub(super) fn new(discovery: Client, group: Arc<str>, life: Duration) -> Self {
        Self { discovery, group, life, cache: CachedFetch::default() }
    }

    /// Returns the first supported version of the group. Concurrent callers share one discovery. If the discovery
    /// fails, the last result stays in use.
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
    fetch_custom(metrics, call.recording(sent)).await
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
        // The path contains the namespace of the HPA instead of the name in the spec.
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
    fetch_custom(metrics, call.query("metricLabelSelector", metric_selector).recording(sent)).await
}

async fn version(metrics: &Inner) -> Result<&'static str, FetchError> {
    metrics.versions.choose().await
}

async fn fetch_custom(metrics: &Inner, call: Call) -> Result<Answer, FetchError> {
    let items = list(&metrics.custom.client, &metrics.bounded(call), CUSTOM_KIND, custom_decoder()).await?;
    Ok(Answer::Custom(items.into()))
}

/// Creates a decoder of consecutive items.
pub(crate) fn custom_decoder() -> impl FnMut(&[u8]) -> Result<CustomValue, DecodeError> {
    let mut time = LastTime::default();
    move |item| custom_value(item, &mut time)
}

/// An item of v1beta2. An item of v1beta1 differs in unused fields and in the name of the window.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCustom<'a> {
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

fn custom_value(item: &[u8], time: &mut LastTime) -> Result<CustomValue, DecodeError> {
    let item: WireCustom<'_> = serde_json::from_slice(item)?;
    Ok(CustomValue {
        object: (&*item.described_object.unwrap_or_default().name).into(),
        timestamp: time.read(item.timestamp.as_deref())?,
        window_seconds: item.window_seconds,
        value: quantity(item.quantity)?,
    })
}

pub(super) async fn ask_external(
    metrics: &Inner,
    namespace: &str,
    metric: &str,
    selector: &str,
    sent: &SentTime,
) -> Result<Answer, FetchError> {
    let resource = &lower_case(metric);
    let group = &*metrics.groups.external;
    let call = Call::get(["apis", group, "v1beta1", "namespaces", namespace, resource])
        .query("labelSelector", selector)
        .about(format!("{metric}.{group}"), "")
        .counted_as(Arc::clone(&metrics.groups.external_requests))
        .recording(sent);
    let items =
        list(&metrics.external.client, &metrics.bounded(call), EXTERNAL_KIND, external_decoder()).await?;
    Ok(Answer::External(items.into()))
}

/// Returns the name of the metric in the path. client-go treats the metric as a resource. Resources are lower case, so
/// adapters serve the lower-case name. Error texts contain the name as written. As in Go, each character maps to one
/// character: `İ` becomes `i`, without the combining dot.
fn lower_case(metric: &str) -> String {
    metric.chars().filter_map(|character| character.to_lowercase().next()).collect()
}

/// Creates a decoder of consecutive items.
pub(crate) fn external_decoder() -> impl FnMut(&[u8]) -> Result<ExternalValue, DecodeError> {
    let mut time = LastTime::default();
    move |item| external_value(item, &mut time)
}

#[derive(Deserialize)]
struct WireExternal<'a> {
    #[serde(borrow)]
    timestamp: Option<Text<'a>>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

fn external_value(item: &[u8], time: &mut LastTime) -> Result<ExternalValue, DecodeError> {
    let item: WireExternal<'_> = serde_json::from_slice(item)?;
    Ok(ExternalValue { timestamp: time.read(item.timestamp.as_deref())?, value: quantity(item.value)? })
}

/// Reads a list item by item into a `Vec` and checks its kind.
pub(super) async fn list<T>(
    client: &Client,
    call: &Call,
    kind: &str,
    mut decode: impl FnMut(&[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, ApiError> {
    let mut items = Vec::new();
    let keep = |item: &[u8]| {
        items.push(decode(item)?);
        Ok(())
    };
    read(client, call, kind, keep).await?;
    Ok(items)
}

/// Reads a list, passes each item to `item`, and checks the kind of the list.
pub(super) async fn read(
    client: &Client,
    call: &Call,
    kind: &str,
    item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
) -> Result<(), ApiError> {
    let envelope = client.items(call, item).await?;
    check_kind(envelope, kind)
}

/// Checks the kind of a list. As in Go, a missing kind is accepted.
pub(crate) fn check_kind(envelope: Envelope, kind: &str) -> Result<(), ApiError> {
    if envelope.kind == kind || envelope.kind.is_empty() {
        return Ok(());
    }
    let message = if envelope.kind == "Status" && envelope.status == "Failure" {
        envelope.message
    } else {
        let found = if envelope.api_version.is_empty() { "v1" } else { &envelope.api_version };
        format!(
            "no kind {} is registered for version {}: expected a {kind}",
            autoscaling::failure::quote(cut(&envelope.kind)),
            autoscaling::failure::quote(cut(found))
        )
    };
    Err(ApiError::Decode(DecodeError::new(message)))
}

/// Truncates an external text to 128 characters, because it becomes part of a condition.
fn cut(text: &str) -> &str {
    text.char_indices().nth(128).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

/// Decodes a quantity from a string or a number. As in Go, a missing quantity and `null` are zero.
pub(super) fn quantity(raw: Option<&RawValue>) -> Result<Quantity, DecodeError> {
    let raw = raw.map_or("null", RawValue::get);
    let text = match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Cow::Borrowed(plain),
        Some(_) => serde_json::from_str::<Text<'_>>(raw)?.0,
        None if raw == "null" => return Ok(Quantity::default()),
        None => Cow::Borrowed(raw),
    };
    Quantity::from_str(&text).map_err(|error| DecodeError::new(error.to_string()))
}

/// A cache of the last parsed time, because consecutive samples usually have the same time.
#[derive(Debug, Default)]
pub(super) struct LastTime {
    text: String,
    time: Option<Timestamp>,
}

impl LastTime {
    /// Parses a time. A missing or empty text means no time.
    pub(super) fn read(&mut self, text: Option<&str>) -> Result<Option<Timestamp>, DecodeError> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        if *self.text != *text {
            let time = text.parse().map_err(|error| {
                DecodeError::new(format!(
                    "parsing time {} as \"2006-01-02T15:04:05Z07:00\": {error}",
                    autoscaling::failure::quote(cut(text))
                ))
            })?;
            self.time = Some(time);
            text.clone_into(&mut self.text);
        }
        Ok(self.time)
    }
}
