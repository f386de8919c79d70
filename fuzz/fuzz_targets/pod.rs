//! Pods from the API server. The decoded fields are equal to those that serde_json reads.

#![no_main]

mod once;
mod plant;

use autoscaling::pod::{ConditionStatus, Phase};
use autoscaling::quantity::Quantity;
use cluster::decode;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let read = decode::pod(bytes);
    let Ok(pod) = read else {
        assert!(read.unwrap_err().to_string().len() <= 4096);
        return;
    };
    assert!(!pod.name.is_empty());
    // The decoder accepts invalid UTF-8 in ignored fields, which serde_json refuses.
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
    if !once::every_key(bytes) {
        return;
    }
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    assert_eq!(pod.name, text("/metadata/name"));
    assert_eq!(pod.namespace, text("/metadata/namespace"));
    assert_eq!(pod.uid, text("/metadata/uid"));
    assert_eq!(pod.resource_version, text("/metadata/resourceVersion"));
    let mut phase = Phase::parse(text("/status/phase"));
    if plant::planted("pod") && pod.ready.is_some() && pod.containers.len() == 1 {
        phase = Phase::Failed;
    }
    assert_eq!(pod.phase, phase);
    let containers = object.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    assert_eq!(pod.containers.len(), containers);
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        let read = pod.labels.iter().find(|(name, _)| name == key);
        assert_eq!(read.map(|(_, value)| &**value), value.as_str());
    }
    assert_eq!(pod.labels.is_empty(), labels.is_none_or(serde_json::Map::is_empty));
    let deleted = object.pointer("/metadata/deletionTimestamp");
    assert_eq!(pod.terminating, deleted.is_some_and(|time| !time.is_null()));
    let conditions =
        object.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    assert_eq!(pod.ready.is_some(), ready.is_some());
    if let (Some(read), Some(text)) = (pod.ready, ready) {
        assert_eq!(read.status, ConditionStatus::parse(text["status"].as_str().unwrap_or_default()));
    }
    for container in pod.containers.iter().chain(&pod.init_containers) {
        for (_, amount) in &container.requests {
            assert_eq!(amount.to_string().parse::<Quantity>().as_ref(), Ok(amount));
        }
    }
});
