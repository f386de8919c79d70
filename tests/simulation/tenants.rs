//! Hostile tenants, and another HPA controller. The HPAs of the tenants are in a separate namespace, and must not
//! affect the HPAs of other namespaces. The other controller writes statuses as kube-controller-manager does.

use std::time::Duration;

use fake_cluster::{BareScale, Cluster, ScalePath};
use serde_json::{Value, json};

use crate::plan::{Fault, FaultKind, InitialState};
use crate::run::Run;

/// The namespace of all hostile tenants.
pub(crate) const NAMESPACE: &str = "mall";
const HPAS: &str = "autoscaling/horizontalpodautoscalers";

/// The number of HPAs of a tenant, the number of metrics of each HPA, and whether the tenant edits each HPA every
/// second.
#[derive(Debug, Clone, Copy)]
struct Behavior {
    hpas: usize,
    metrics: usize,
    edits: bool,
}

/// Returns the behavior of a tenant, or `None` for other faults.
fn behavior(kind: FaultKind) -> Option<Behavior> {
    Some(match kind {
        FaultKind::TenantMetrics => Behavior { hpas: 1, metrics: 50, edits: true },
        FaultKind::TenantHangs => Behavior { hpas: 20, metrics: 8, edits: false },
        FaultKind::TenantFails => Behavior { hpas: 2, metrics: 40, edits: true },
        FaultKind::TenantEdits => Behavior { hpas: 20, metrics: 0, edits: true },
        FaultKind::TenantSelector => Behavior { hpas: 3, metrics: 0, edits: false },
        _ => return None,
    })
}

impl FaultKind {
    pub(crate) fn is_tenant(self) -> bool {
        behavior(self).is_some()
    }
}

/// Creates the HPAs of a tenant and their targets.
pub(crate) fn start(cluster: &Cluster, number: usize, fault: &Fault) {
    let Some(Behavior { hpas, metrics, .. }) = behavior(fault.kind) else { return };
    for hpa in 0..hpas {
        let name = name(number, hpa);
        let selector = match fault.kind {
            FaultKind::TenantSelector => format!("app={}", InitialState::name(fault.hpa.unwrap_or(0))),
            _ => format!("app={name}"),
        };
        cluster.put_scale(&path(&name), BareScale { spec_replicas: 1, status_replicas: 1, selector });
        let object = object(fault.kind, &name, metrics, 1);
        cluster.create(object).unwrap_or_else(|status| panic!("{status:?}"));
    }
}

/// An HPA of a tenant with `metrics` metrics and at least `least` replicas.
fn object(kind: FaultKind, name: &str, metrics: usize, least: usize) -> Value {
    let metrics: Vec<_> = (0..metrics).map(|metric| metric_spec(kind, name, metric)).collect();
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": least, "maxReplicas": least + 1, "metrics": metrics,
        },
    })
}

/// Edits the HPAs of a tenant. Every edit of an HPA without metrics makes the controller scale its target.
pub(crate) fn edit(cluster: &Cluster, number: usize, fault: &Fault, second: u64) {
    let Some(Behavior { hpas, metrics, edits: true }) = behavior(fault.kind) else { return };
    let least = if second.is_multiple_of(2) { 1 } else { 5 };
    for hpa in 0..hpas {
        let edited = cluster.update(object(fault.kind, &name(number, hpa), metrics, least));
        // A restore of etcd may have removed the HPA.
        edited.or_else(|status| if status.code == 404 { Ok(()) } else { Err(status) }).unwrap();
    }
}

/// Deletes the HPAs of a tenant and their targets.
pub(crate) fn stop(cluster: &Cluster, number: usize, fault: &Fault) {
    let Some(Behavior { hpas, .. }) = behavior(fault.kind) else { return };
    for hpa in 0..hpas {
        let name = name(number, hpa);
        cluster.remove_scale(&path(&name));
        let _ = cluster.delete(HPAS, NAMESPACE, &name);
    }
}

/// The response of the metrics API to a query of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Response {
    Value,
    None,
    Error,
}

/// Returns the response to a query for `metric`, or `None` if no tenant has the metric.
pub(crate) fn response(metric: &str) -> Option<Response> {
    Some(match metric.split_once('-')?.0 {
        "value" => Response::Value,
        "hang" => Response::None,
        "fail" => Response::Error,
        _ => return None,
    })
}

/// Whether a path belongs to a tenant.
pub(crate) fn owns(path: &str) -> bool {
    path.split('/').any(|part| part == NAMESPACE)
}

fn metric_spec(kind: FaultKind, hpa: &str, metric: usize) -> Value {
    let word = match kind {
        FaultKind::TenantHangs => "hang",
        FaultKind::TenantFails => "fail",
        _ => "value",
    };
    let name = format!("{word}-{hpa}-{metric}");
    json!({"type": "External", "external": {
        "metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "10"},
    }})
}

fn name(number: usize, hpa: usize) -> String {
    format!("t{number}-{hpa}")
}

fn path(name: &str) -> ScalePath {
    ScalePath {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
    }
}

const MANAGER: &str = "kube-controller-manager";
const PERIOD: u64 = 15;

/// Makes the other controller sync its HPA once in each period since the start of `fault`.
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
