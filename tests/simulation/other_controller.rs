//! Another HPA controller, which writes statuses as kube-controller-manager does.

use std::time::Duration;

use serde_json::{Value, json};

use crate::plan::{Fault, FaultKind, InitialState};
use crate::run::Run;

const MANAGER: &str = "kube-controller-manager";
const PERIOD: u64 = 15;

/// Lets the controller sync its HPA if a period has passed since `fault` started.
pub(crate) fn sync(run: &Run, fault: &Fault) {
    let age = run.now().saturating_sub(fault.at);
    if fault.kind != FaultKind::OtherController || !age.as_secs().is_multiple_of(PERIOD) {
        return;
    }
    let hpa = fault.hpa.unwrap_or(0);
    let (namespace, name) = (InitialState::namespace(hpa), InitialState::name(hpa));
    let Some(mut object) = run.cluster.get("autoscaling/horizontalpodautoscalers", namespace, &name) else {
        return;
    };
    write(&mut object, &format!("{:.0}", run.cluster.now()), run.now());
    run.cluster.put_raw(object);
    run.foreign_change(hpa);
    run.judge.lock().other_controller_wrote(run.now());
}

/// Writes a status with another condition, and the entry of its writer in `managedFields`.
fn write(object: &mut Value, time: &str, now: Duration) {
    let condition = json!({
        "type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "lastTransitionTime": time,
        "message": format!("written by another controller at {now:?}"),
    });
    let status = &mut object["status"];
    status["conditions"] = json!([condition]);
    for count in ["currentReplicas", "desiredReplicas"] {
        if status[count].is_null() {
            status[count] = 1.into();
        }
    }
    let entries = &mut object["metadata"]["managedFields"];
    let mut others = entries.as_array().cloned().unwrap_or_default();
    others.retain(|entry| entry["manager"] != MANAGER);
    others.push(json!({
        "manager": MANAGER, "operation": "Update", "subresource": "status", "apiVersion": "autoscaling/v2",
        "time": time, "fieldsType": "FieldsV1", "fieldsV1": {},
    }));
    *entries = others.into();
}
