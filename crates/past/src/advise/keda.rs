//! The queries behind the external metrics of HPAs of KEDA.

use promql::{Query, QueryError};
use serde_json::Value;

use terminal::values::text;

/// An external metric of KEDA, which is the only metric of an HPA except for memory.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalMetric {
    /// The name, such as `s0-prometheus`.
    pub name: String,
    /// The query.
    pub query: String,
    /// Whether the metric is a load that arrives, and no state such as the length of a queue.
    pub is_rate: bool,
}

/// The name of the ScaledObject that an HPA belongs to.
pub(crate) fn owner(hpa: &Value) -> Option<&str> {
    let owners = hpa.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
    let is_keda = |owner: &&Value| {
        text(owner, "/kind") == "ScaledObject" && text(owner, "/apiVersion").starts_with("keda.sh/")
    };
    owners.iter().find(is_keda).map(|owner| text(owner, "/name"))
}

impl ExternalMetric {
    /// Reads the query of a metric from its ScaledObject. `None` if the metric is not that of a trigger of the type
    /// `prometheus`: KEDA names the metric of its first trigger `s0-prometheus`.
    ///
    /// # Errors
    /// Returns the error of a query that is not PromQL.
    pub(crate) fn of(object: &Value, name: &str) -> Option<Result<Self, QueryError>> {
        let (index, kind) = name.strip_prefix('s')?.split_once('-')?;
        let is_prometheus = kind == "prometheus" || kind.starts_with("prometheus-");
        let index: usize = index.parse().ok().filter(|_| is_prometheus)?;
        let trigger = object.pointer("/spec/triggers")?.get(index)?;
        let query = Some(text(trigger, "/metadata/query")).filter(|query| !query.is_empty())?;
        (text(trigger, "/type") == "prometheus").then(|| {
            let query = Query::parse(query, None)?;
            let is_rate = query.is_sum_of_rates();
            Ok(Self { name: name.to_owned(), query: query.template().to_owned(), is_rate })
        })
    }
}
