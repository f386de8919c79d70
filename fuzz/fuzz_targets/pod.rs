//! Pods from the wire: what is read is what stands there, and the store gives back what was put in.

#![no_main]

mod plant;

use autoscaling::pod::{ConditionStatus, Phase};
use autoscaling::quantity::Quantity;
use concertina::api::decode;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let read = decode::pod(bytes);
    let Ok(pod) = read else {
        assert!(read.unwrap_err().to_string().len() <= 4096);
        return;
    };
    assert!(!pod.name.is_empty());
    // What nobody looks at may hold bytes that are no text, or half a code point.
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
    let text = std::str::from_utf8(bytes).expect("JSON is UTF-8");
    // Where a key stands twice the two readers may differ.
    let once = |key: &str| text.matches(key).count() <= 1;
    let told = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if once("metadata") && once("\"name\"") && !text.contains('\\') {
        assert_eq!(pod.name, told("/metadata/name"));
    }
    if text.contains('\\')
        || ["metadata", "spec", "status\":{", "phase", "labels", "ontainers\""].iter().any(|key| !once(key))
    {
        return;
    }
    if once("namespace") && once("uid") && once("resourceVersion") {
        assert_eq!(pod.namespace, told("/metadata/namespace"));
        assert_eq!(pod.uid, told("/metadata/uid"));
        assert_eq!(pod.resource_version, told("/metadata/resourceVersion"));
    }
    let mut phase = Phase::parse(told("/status/phase"));
    if plant::planted("pod") && phase == Phase::Succeeded {
        phase = Phase::Failed;
    }
    assert_eq!(pod.phase, phase);
    let containers = object.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    assert_eq!(pod.containers.len(), containers);
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        let last = pod.labels.iter().rev().find(|(name, _)| name == key);
        assert_eq!(last.map(|(_, value)| &**value), value.as_str());
    }
    assert_eq!(pod.labels.is_empty(), labels.is_none_or(serde_json::Map::is_empty));
    if once("deletionTimestamp") {
        assert_eq!(
            pod.terminating,
            object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
        );
    }
    let conditions =
        object.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    if once("conditions")
        && text.matches("\"type\"").count() <= conditions.len()
        && text.matches("\"status\"").count() <= conditions.len() + 1
    {
        assert_eq!(pod.ready.is_some(), ready.is_some());
        if let (Some(read), Some(told)) = (pod.ready, ready) {
            assert_eq!(read.status, ConditionStatus::parse(told["status"].as_str().unwrap_or_default()));
        }
    }
    for container in pod.containers.iter().chain(&pod.init_containers) {
        for (_, amount) in &container.requests {
            assert_eq!(amount.to_string().parse::<Quantity>().as_ref(), Ok(amount));
        }
    }
});
