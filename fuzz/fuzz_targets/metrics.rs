//! Lists of the three metrics APIs. The results are compared with those of serde_json for the whole list.
//!
//! The input is a byte for the API (`c` for custom, `e` for external, any other for resource) and the input of
//! `cuts::parts`.

#![no_main]

mod cuts;
mod once;
mod plant;

use autoscaling::duration::GoDuration;
use autoscaling::quantity::Quantity;
use autoscaling::query::Answer;
use cluster::error::ApiError;
use cluster::fuzzing::{custom_list, external_list, resource_list};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    let Some((api, rest)) = input.split_first() else { return };
    let (lengths, bytes) = cuts::parts(rest);
    let (read, kind) = match api {
        b'c' => (custom_list as List, "MetricValueList"),
        b'e' => (external_list as List, "ExternalMetricValueList"),
        _ => (resource_list as List, "PodMetricsList"),
    };
    let whole = read(&[bytes]);
    assert_eq!(read(&cuts::cut(bytes, lengths)), whole);

    // Two readers may differ for duplicate keys and for keys with escapes.
    let escaped = bytes.contains(&b'\\');
    let Ok(list) = serde_json::from_slice::<Value>(bytes) else { return };
    if escaped || !once::every_key(bytes) {
        return;
    }
    match whole {
        Ok(answer) => {
            let named = list["kind"].as_str().unwrap_or_default();
            assert!(named.is_empty() || named == kind, "{named:?}");
            let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
            same(&answer, items);
        }
        // The error of a Status has the message of the Status, which may be empty.
        Err(error) => assert!(!error.to_string().is_empty() || list["kind"] == "Status"),
    }
});

type List = fn(&[&[u8]]) -> Result<Answer, ApiError>;

fn same(answer: &Answer, items: &[Value]) {
    match answer {
        Answer::Resource(usages) => {
            assert_eq!(usages.len(), items.len());
            for (usage, item) in usages.iter().zip(items) {
                assert_eq!(*usage.pod, *text(&item["metadata"]["name"]));
                assert_eq!(usage.timestamp, time(&item["timestamp"]));
                let window = item["window"].as_str().map_or(0, |text| text.parse::<GoDuration>().unwrap().0);
                assert_eq!(usage.window_nanos, window);
                let containers = item["containers"].as_array().map_or(&[][..], Vec::as_slice);
                assert_eq!(usage.containers.len(), containers.len());
                for (container, item) in usage.containers.iter().zip(containers) {
                    assert_eq!(*container.name, *text(&item["name"]));
                    let amounts = item["usage"].as_object();
                    assert_eq!(container.usage.iter().count(), amounts.map_or(0, serde_json::Map::len));
                    for (name, amount) in amounts.into_iter().flatten() {
                        let Some(wanted) = quantity(amount) else { continue };
                        let read = container.usage.get(name).unwrap();
                        // Usage is stored in milli-units, rounded up. Kubernetes computes with the same unit.
                        let mut wanted_milli = wanted.milli_value();
                        if plant::planted("metrics") && name == "memory" && containers.len() == 2 {
                            wanted_milli = wanted_milli.saturating_add(1);
                        }
                        assert_eq!(read.milli_value(), wanted_milli, "{item}");
                        assert_eq!(read.format(), wanted.format(), "{item}");
                    }
                }
            }
        }
        Answer::Custom(values) => {
            assert_eq!(values.len(), items.len());
            for (value, item) in values.iter().zip(items) {
                assert_eq!(*value.object, *text(&item["describedObject"]["name"]));
                assert_eq!(value.timestamp, time(&item["timestamp"]));
                let window = item["windowSeconds"].as_i64().or_else(|| item["window"].as_i64());
                assert_eq!(value.window_seconds, window);
                assert!(quantity(&item["value"]).is_none_or(|wanted| value.value == wanted), "{item}");
            }
        }
        Answer::External(values) => {
            assert_eq!(values.len(), items.len());
            for (value, item) in values.iter().zip(items) {
                assert_eq!(value.timestamp, time(&item["timestamp"]));
                assert!(quantity(&item["value"]).is_none_or(|wanted| value.value == wanted), "{item}");
            }
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str().filter(|text| !text.is_empty()).map(|text| text.parse().unwrap())
}

/// Converts a JSON value to a quantity. Returns `None` for a number with a fraction or an exponent, because serde_json
/// does not keep its digits.
fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::Null => Some(Quantity::ZERO),
        Value::String(text) => Some(text.parse().unwrap()),
        Value::Number(number) if number.is_f64() => None,
        Value::Number(number) => Some(number.to_string().parse().unwrap()),
        other => panic!("{other} is not a quantity"),
    }
}
