//! metrics.k8s.io: the usage of pods.

use super::ask::{FetchError, Inner};
use super::usage::{Reader, Snapshot};
use super::wire;
use crate::api::call::{Call, Sent};

/// `kind` of the answer.
pub(super) const KIND: &str = "PodMetricsList";

/// The pods that a selector matches; the empty one matches all of the namespace. The request says when it is sent.
pub(super) async fn ask(
    metrics: &Inner,
    namespace: &str,
    selector: &str,
    mut reader: Reader,
    sent: &Sent,
) -> Result<Snapshot, FetchError> {
    let call = call(namespace, selector).telling(sent);
    wire::read(&metrics.resource.client, &metrics.bounded(call), KIND, |item| reader.item(item)).await?;
    Ok(reader.finish())
}

fn call(namespace: &str, selector: &str) -> Call {
    Call::get(["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"])
        .query("labelSelector", selector)
        .about("pods.metrics.k8s.io", "")
}

/// The error of a request for all pods of a namespace, as it would read had only these been asked for: Go's client names
/// the URL of a request that did not get through.
pub(super) fn reworded(message: &str, namespace: &str, selector: &str) -> Option<String> {
    let (of_all, of_some) = (call(namespace, ""), call(namespace, selector));
    let (url, rest) = message.strip_prefix("Get \"")?.split_once('"')?;
    let server = url.strip_suffix(of_all.path())?;
    Some(format!("Get \"{server}{}\"{rest}", of_some.path()))
}
