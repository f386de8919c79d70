//! external.metrics.k8s.io, or another group of this form: all series of a metric.

use std::sync::Arc;

use autoscaling::query::{Answer, ExternalValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::apis::{FetchError, Inner};
use super::wire;
use super::wire::LastTime;
use crate::call::{Call, SentTime};
use crate::decode::{DecodeError, Text};

/// `kind` of the response.
pub(super) const KIND: &str = "ExternalMetricValueList";

pub(super) async fn fetch(
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
    let items = wire::list(&metrics.external.client, &metrics.bounded(call), KIND, decoder()).await?;
    Ok(Answer::External(items.into()))
}

/// The name in the path. client-go treats the metric as a resource, and resources are lower case, so adapters serve the
/// lower-case name. Errors show the name as written. As in Go, each character maps to one character: `İ` becomes `i`,
/// without the combining dot.
fn lower_case(metric: &str) -> String {
    metric.chars().filter_map(|character| character.to_lowercase().next()).collect()
}

/// Creates a decoder of consecutive items.
pub(super) fn decoder() -> impl FnMut(&[u8]) -> Result<ExternalValue, DecodeError> {
    let mut time = LastTime::default();
    move |item| value(item, &mut time)
}

#[derive(Deserialize)]
struct Value<'a> {
    #[serde(borrow)]
    timestamp: Option<Text<'a>>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

fn value(item: &[u8], time: &mut LastTime) -> Result<ExternalValue, DecodeError> {
    let item: Value<'_> = serde_json::from_slice(item)?;
    Ok(ExternalValue { timestamp: time.read(item.timestamp.as_deref())?, value: wire::quantity(item.value)? })
}
