//! Combines several runs: the median of every figure.

use serde_json::Value;

use crate::Failure;
use crate::measure::{PerSync, Report};

/// A report of medians. A kind of request that a run lacks counts as zero in that run.
pub(crate) fn combine(reports: &[Report]) -> Result<Report, Failure> {
    let mut kinds: Vec<PerSync> = Vec::new();
    for kind in reports.iter().flat_map(|report| &report.requests) {
        if !kinds.iter().any(|existing| existing.same_kind(kind)) {
            let (requests, failed, received, sent) = (0.0, 0.0, 0.0, 0.0);
            let (verb, resource) = (kind.verb.clone(), kind.resource.clone());
            kinds.push(PerSync { verb, resource, requests, failed, received, sent });
        }
    }
    let mut values = Vec::new();
    for report in reports {
        let same =
            |kind: &PerSync| report.requests.iter().find(|it| it.same_kind(kind)).unwrap_or(kind).clone();
        let whole = Report { requests: kinds.iter().map(same).collect(), ..report.clone() };
        values.push(serde_json::to_value(whole)?);
    }
    let mut median: Report = serde_json::from_value(merged(&values.iter().collect::<Vec<_>>()))?;
    median.requests.sort_by(|a, b| b.requests.total_cmp(&a.requests));
    median.runs = reports.len();
    Ok(median)
}

/// Replaces numbers by their median, or by the upper median of an even count. Other values come from the
/// first report that has them.
fn merged(values: &[&Value]) -> Value {
    let present: Vec<_> = values.iter().copied().filter(|value| !value.is_null()).collect();
    match present.first() {
        Some(Value::Object(fields)) => {
            let field = |key: &String| {
                let field_values: Vec<_> = present.iter().filter_map(|value| value.get(key)).collect();
                (key.clone(), merged(&field_values))
            };
            fields.keys().map(field).collect()
        }
        Some(Value::Array(items)) => {
            let item = |index: usize| {
                merged(&present.iter().filter_map(|value| value.get(index)).collect::<Vec<_>>())
            };
            (0..items.len()).map(item).collect()
        }
        Some(Value::Number(_)) => {
            let mut numbers: Vec<_> =
                present.iter().filter_map(|value| Some((value.as_f64()?, (*value).clone()))).collect();
            numbers.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            numbers.into_iter().map(|(_, value)| value).nth(present.len() / 2).unwrap_or_default()
        }
        Some(other) => (*other).clone(),
        None => Value::Null,
    }
}
