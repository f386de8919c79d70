//! metrics.k8s.io: the usage of pods.

use super::apis::{FetchError, Inner};
use super::usage::{Reader, Snapshot};
use super::wire;
use crate::call::{Call, SentTime};

/// `kind` of the response.
pub(super) const KIND: &str = "PodMetricsList";

/// Fetches the usage of the pods that a selector matches. The empty selector matches all pods of the
/// namespace. `sent` records the send time.
pub(super) async fn fetch(
    metrics: &Inner,
    namespace: &str,
    selector: &str,
    mut reader: Reader,
    sent: &SentTime,
) -> Result<Snapshot, FetchError> {
    let call = call(namespace, selector).recording(sent);
    wire::read(&metrics.resource.client, &metrics.bounded(call), KIND, |item| reader.item(item)).await?;
    Ok(reader.finish())
}

fn call(namespace: &str, selector: &str) -> Call {
    Call::get(["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"])
        .query("labelSelector", selector)
        .about("pods.metrics.k8s.io", "")
}

/// Rewrites the error of a request for all pods of a namespace as if only the selected pods had been
/// requested, because Go's client prints the URL of a failed request. `None` if the message does not start
/// with the URL of the request.
pub(super) fn with_requested_url(message: &str, namespace: &str, selector: &str) -> Option<String> {
    let (all_pods, selected_pods) = (call(namespace, ""), call(namespace, selector));
    let (url, rest) = message.strip_prefix("Get \"")?.split_once('"')?;
    let server = url.strip_suffix(all_pods.path())?;
    Some(format!("Get \"{server}{}\"{rest}", selected_pods.path()))
}
