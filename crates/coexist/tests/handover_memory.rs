//! The memory of HPAs out of scope, in allocated bytes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use coexist::handover::charges::{Charges, Placement};
use coexist::handover::scope::ControllerName;
use engine::store::{HpaRecord, Key};
use peak_alloc::PeakAlloc;
use serde_json::json;
use serde_json::value::RawValue;

/// The allocator, which counts the bytes in use.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const HPAS: usize = 10_000;
/// Maximum number of bytes per HPA out of scope.
const LIMIT: usize = 400;

/// Returns an HPA with names and other content of usual length.
fn hpa(index: usize) -> HpaRecord {
    let name = format!("checkout-service-worker-{index:06}");
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "maxReplicas": 30,
    });
    let raw = |json: serde_json::Value| RawValue::from_string(json.to_string()).unwrap();
    HpaRecord {
        key: Key::new(format!("team-{}", index / 20), name.as_str()),
        uid: format!("00000000-0000-4000-8000-{index:012}").into(),
        generation: Some(1),
        resource_version: (1_000_000 + index).to_string(),
        metadata: raw(json!({"name": name, "labels": {"app": name, "team": "checkout"}})),
        spec_raw: raw(spec.clone()).into(),
        spec: Arc::new(serde_json::from_value(spec).unwrap()),
        status: Arc::default(),
        status_writers: Vec::new(),
    }
}

#[test]
fn hpa_out_of_scope_takes_few_bytes() {
    let clock = Arc::new(SystemClock);
    let charges = Charges::new(ControllerName::default(), Duration::from_secs(15), false, clock);
    let before = HEAP.current_usage();
    for index in 0..HPAS {
        assert_eq!(charges.sort(&hpa(index), true), Placement::Outside);
    }
    let per_hpa = (HEAP.current_usage() - before) / HPAS;
    println!("{per_hpa} bytes per HPA out of scope");
    assert!(per_hpa <= LIMIT, "{per_hpa} bytes");
    assert_eq!(charges.counts().outside, HPAS);
}
