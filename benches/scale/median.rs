//! Several runs as one: the median of every figure.

use serde_json::Value;

use crate::Failure;
use crate::measure::{PerSync, Report};

/// A report of medians. Kinds of requests that a run did not have were none there.
pub(crate) fn of(reports: &[Report]) -> Result<Report, Failure> {
    let mut kinds: Vec<PerSync> = Vec::new();
    for kind in reports.iter().flat_map(|report| &report.requests) {
        if !kinds.iter().any(|known| known.is_of(kind)) {
            let (requests, failed, received, sent) = (0.0, 0.0, 0.0, 0.0);
            let (verb, resource) = (kind.verb.clone(), kind.resource.clone());
            kinds.push(PerSync { verb, resource, requests, failed, received, sent });
        }
    }
    let mut values = Vec::new();
    for report in reports {
        let same = |kind: &PerSync| report.requests.iter().find(|it| it.is_of(kind)).unwrap_or(kind).clone();
        let whole = Report { requests: kinds.iter().map(same).collect(), ..report.clone() };
        values.push(serde_json::to_value(whole)?);
    }
    let mut median: Report = serde_json::from_value(merged(&values.iter().collect::<Vec<_>>()))?;
    median.requests.sort_by(|a, b| b.requests.total_cmp(&a.requests));
    median.runs = reports.len();
    Ok(median)
}

/// Numbers become their median, of an even count the upper one; all else is that of the first that has any.
fn merged(values: &[&Value]) -> Value {
    let there: Vec<_> = values.iter().copied().filter(|value| !value.is_null()).collect();
    match there.first() {
        Some(Value::Object(fields)) => {
            let field = |key: &String| {
                let of_each: Vec<_> = there.iter().filter_map(|value| value.get(key)).collect();
                (key.clone(), merged(&of_each))
            };
            fields.keys().map(field).collect()
        }
        Some(Value::Array(items)) => {
            let item =
                |place: usize| merged(&there.iter().filter_map(|value| value.get(place)).collect::<Vec<_>>());
            (0..items.len()).map(item).collect()
        }
        Some(Value::Number(_)) => {
            let mut numbers: Vec<_> =
                there.iter().filter_map(|value| Some((value.as_f64()?, (*value).clone()))).collect();
            numbers.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            numbers.into_iter().map(|(_, value)| value).nth(there.len() / 2).unwrap_or_default()
        }
        Some(other) => (*other).clone(),
        None => Value::Null,
    }
}
