//! The reads that the server refuses, taken from its responses. Permissions are not checked beforehand.

use std::sync::Arc;

use autoscaling::query::Api;
use autoscaling::spec::MetricSource;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use super::situation::Refused;
use cluster::call::Call;
use cluster::client::RequestObserver;
use cluster::error::ApiError;
use controller::store::{HpaRecord, Key};

/// Collects the reads that fail with 403.
#[derive(Debug, Default)]
pub struct Refusals {
    refused: Mutex<Vec<Refused>>,
}

impl RequestObserver for Refusals {
    fn failed(&self, call: &Call, error: &ApiError) {
        if !error.is_forbidden() {
            return;
        }
        let refused = refused(call.path(), error.to_string());
        let mut all = self.refused.lock();
        if !all.contains(&refused) {
            all.push(refused);
        }
    }
}

impl Refusals {
    /// Creates an empty collection.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Clears the collection, because permissions may have been granted in the meantime.
    pub(super) fn clear(&self) {
        self.refused.lock().clear();
    }

    /// Returns the refusals that concern one HPA, in order of occurrence.
    pub(super) fn about(&self, record: &HpaRecord) -> Vec<Refused> {
        let all = self.refused.lock();
        all.iter().filter(|refused| concerns(refused, record)).cloned().collect()
    }
}

/// Parses the path of a refused read into the terms of RBAC.
fn refused(path: &str, text: String) -> Refused {
    let path = path.split('?').next().unwrap_or_default();
    let segments = path.split('/').skip(1);
    let mut segments =
        segments.map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned()).peekable();
    let group = match segments.next().as_deref() {
        Some("apis") => segments.next().unwrap_or_default(),
        _ => String::new(),
    };
    segments.next(); // the version
    let mut namespace = None;
    if segments.next_if(|segment| segment == "namespaces").is_some() {
        namespace = segments.next();
    }
    let mut resource = segments.next().unwrap_or_default();
    let name = segments.next();
    if let Some(subresource) = segments.next() {
        resource = format!("{resource}/{subresource}");
    }
    let decides = match group.as_str() {
        "" => resource == "pods",
        group if Api::from_group(group).is_some() => true,
        _ => resource.ends_with("/scale"),
    };
    let verb = if name.is_some() { "get" } else { "list" };
    Refused { verb, group, resource, namespace, name, text, decides }
}

/// Returns whether a refused read may affect the HPA.
fn concerns(refused: &Refused, record: &HpaRecord) -> bool {
    let Refused { group, resource, namespace, name, .. } = refused;
    let Key { namespace: own, .. } = &record.key;
    if namespace.as_deref().is_some_and(|namespace| namespace != &**own) {
        return false;
    }
    let has_metric = |is_kind: fn(&MetricSource) -> bool| record.spec.metrics.iter().any(is_kind);
    match Api::from_group(group) {
        Some(Api::Resource) => has_metric(|metric| {
            matches!(metric, MetricSource::Resource { .. } | MetricSource::ContainerResource { .. })
        }),
        Some(Api::Custom) => {
            has_metric(|metric| matches!(metric, MetricSource::Pods { .. } | MetricSource::Object { .. }))
        }
        Some(Api::External) => record.spec.metrics.iter().any(
            |metric| matches!(metric, MetricSource::External { metric, .. } if metric.name == *resource),
        ),
        // The Scale of another target does not affect the decision for this HPA.
        None if resource.ends_with("/scale") => name.as_deref() == Some(&*record.spec.target.name),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> (&'static str, String, String, Option<String>, Option<String>, bool) {
        let Refused { verb, group, resource, namespace, name, decides, .. } = refused(path, String::new());
        (verb, group, resource, namespace, name, decides)
    }

    #[test]
    fn path_is_parsed_into_rbac_terms() {
        let text = |text: &str| text.to_owned();
        let shop = || Some(text("shop"));
        assert_eq!(
            parsed("/api/v1/namespaces/shop/pods?limit=500"),
            ("list", text(""), text("pods"), shop(), None, true)
        );
        assert_eq!(
            parsed("/apis/apps/v1/namespaces/shop/deployments/web/scale"),
            ("get", text("apps"), text("deployments/scale"), shop(), Some(text("web")), true)
        );
        assert_eq!(
            parsed("/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/queue%2Fdepth"),
            ("get", text("custom.metrics.k8s.io"), text("pods/queue/depth"), shop(), Some(text("*")), true)
        );
        assert_eq!(
            parsed("/apis/autoscaling/v2/horizontalpodautoscalers"),
            ("list", text("autoscaling"), text("horizontalpodautoscalers"), None, None, false)
        );
        assert_eq!(
            parsed("/api/v1/namespaces/shop/events"),
            ("list", text(""), text("events"), shop(), None, false)
        );
    }
}
