//! HPAs from the API server. The body of a status update contains the received metadata and spec, and decodes to the
//! same HPA.

#![no_main]

mod once;
mod plant;

use autoscaling::settings::Version;
use autoscaling::status::Status;
use autoscaling::{Hpa, Overlap, Scale, WriteOutcome, conclude, decide, plan};
use cluster::decode;
use cluster::fuzzing::status_body;
use cluster::status::StatusTarget;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use serde_json::value::RawValue;

fuzz_target!(|bytes: &[u8]| {
    let read = decode::hpa(bytes);
    let Ok(hpa) = read else {
        assert!(read.unwrap_err().to_string().len() <= 4096);
        return;
    };
    assert!(!hpa.name.is_empty());
    // The decoder accepts invalid UTF-8 in ignored fields, which serde_json refuses.
    let Ok(sent) = serde_json::from_slice::<Value>(bytes) else { return };

    // A sync computes a status for any spec.
    let status = {
        let view = Hpa {
            namespace: &hpa.namespace,
            name: &hpa.name,
            generation: hpa.generation,
            spec: &hpa.spec,
            status: &hpa.status,
        };
        let (settings, history, now) = (
            autoscaling::settings::Settings::default(),
            autoscaling::history::History::default(),
            Timestamp::UNIX_EPOCH,
        );
        let scale = Scale::new(3, 3, "app=web", Version::default()).expect("a valid selector");
        let plan = plan(&view, Ok(scale), |_| Overlap::None, &settings);
        let answers = autoscaling::Answers { metrics: vec![None; hpa.spec.metrics.len()], pods: &[] };
        let decision = decide(&view, &plan, &answers, &history, &settings, now);
        conclude(&view, decision, &WriteOutcome::Done, &settings, now).status.unwrap_or_default()
    };
    let target = StatusTarget {
        namespace: &hpa.namespace,
        name: &hpa.name,
        metadata: &hpa.metadata,
        spec: &hpa.spec_raw,
    };
    let mut body = status_body(target, &status).expect("a status body");
    if plant::planted("hpa") && hpa.spec.behavior.is_some() {
        let at = body.windows(4).position(|part| part == b"spec").expect("the body must have a spec") + 8;
        body.insert(at, b' ');
    }

    let spec = hpa.spec_raw.get();
    let metadata = hpa.metadata.get();
    let wanted = format!(
        "{{\"kind\":\"HorizontalPodAutoscaler\",\"apiVersion\":\"autoscaling/v2\",\"metadata\":{metadata},\"spec\":{spec},\"status\":{}}}",
        serde_json::to_string(&status).expect("a status")
    );
    assert_eq!(std::str::from_utf8(&body), Ok(wanted.as_str()));
    let body: Value = serde_json::from_slice(&body).expect("the body must be JSON");
    if once::every_key(bytes) {
        let spec = sent.get("spec").filter(|spec| !spec.is_null());
        assert_eq!(body["spec"], spec.cloned().unwrap_or_else(|| serde_json::json!({})));
        let mut metadata = sent["metadata"].clone();
        metadata.as_object_mut().expect("metadata is an object").remove("managedFields");
        assert_eq!(body["metadata"], metadata);
    }
    let text = std::str::from_utf8(bytes).expect("JSON is UTF-8");
    let raw: &RawValue = &hpa.spec_raw;
    assert!(text.contains(raw.get()) || raw.get() == "{}", "the spec must equal the received bytes");

    // The body decodes to the same HPA with the new status.
    let again = decode::hpa(wanted.as_bytes()).expect("the body must decode");
    assert_eq!((again.name, again.uid, again.generation), (hpa.name, hpa.uid, hpa.generation));
    assert_eq!(again.spec, hpa.spec);
    let reread = |status: &Status| serde_json::to_string(status).expect("a status");
    assert_eq!(reread(&again.status), reread(&status));
});
