//! Runs a plan: builds the cluster, performs the actions, starts and stops the faults, and checks every
//! second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fake_cluster::workload::WorkloadModel;
use flags::config::TakeOver;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::ideal_history::Handovers;
use crate::invariants::Finding;
use crate::plan::{
    Action, DIFFERENT, Fault, FaultKind, HpaPlan, InitialState, InvalidSpec, Plan, Selection, TimedAction,
};
use crate::process::Process;
use crate::run::{Run, Violation};
use crate::seeded_bugs::SeededBug;
use crate::{faults, process, tenants};

const HPAS: &str = "autoscaling/horizontalpodautoscalers";
const SECOND: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(15);
/// Maximum time until a process acts with `--takeover=wait`. An uncorrected status proves after twenty periods that no
/// other controller is active. The syncs before and after take two more periods.
const TAKEOVER: Duration = Duration::from_secs(22 * 15);
/// Maximum time by which a run may exceed its planned end.
const MAX_OVERTIME: Duration = Duration::from_mins(15);

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<Violation>,
    /// The final state of the cluster by HPA.
    pub(crate) end: BTreeMap<usize, Value>,
    pub(crate) syncs: u64,
    pub(crate) handovers: Handovers,
    pub(crate) requests: usize,
    /// Number of watches that the last lifetimes of the processes replaced after a silence.
    pub(crate) silent_watches: u64,
    /// Number of hits by fault.
    pub(crate) hits: BTreeMap<usize, u64>,
    pub(crate) simulated: Duration,
    pub(crate) run: Arc<Run>,
}

/// One step of the timeline.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    TimedAction(&'a TimedAction),
    Start(usize, &'a Fault),
    End(usize, &'a Fault),
}

/// Runs the actions and faults of a plan that `kept` selects.
pub(crate) async fn play(plan: &Arc<Plan>, kept: &Selection, plant: Option<SeededBug>) -> Outcome {
    process::start();
    let run = Run::new(Arc::clone(plan), plant);
    let stop = CancellationToken::new();
    build(&run);
    let workloads = Arc::clone(&run.workloads);
    let stopped = stop.clone();
    tokio::spawn(async move { workloads.run(stopped).await });
    // A standby that never leads changes nothing.
    let count = if kept.faults.is_empty() { 1 } else { plan.scene.processes };
    let mut processes: Vec<_> = (0..count)
        .map(|number| Process::new(&run, number, SECOND * u32::try_from(number).unwrap()))
        .collect();
    for (at, step) in timeline(plan, kept) {
        wait_until(&run, &mut processes, at).await;
        if run.over.is_cancelled() {
            break;
        }
        apply_step(&run, &mut processes, step);
    }
    // Once a process acts, the final state takes as long as without a takeover.
    while !run.over.is_cancelled() && run.now() < plan.quiet + TAKEOVER && !acts(plan, &processes) {
        wait_until(&run, &mut processes, run.now() + PERIOD).await;
    }
    let delay = if plan.scene.takeover == TakeOver::Wait {
        run.now().saturating_sub(plan.quiet)
    } else {
        Duration::ZERO
    };
    wait_until(&run, &mut processes, plan.end + delay).await;
    // A write in flight may overwrite a foreign change. The final count then takes more steps than planned.
    while !run.over.is_cancelled() && run.now() < plan.end + MAX_OVERTIME && !run.is_settled() {
        wait_until(&run, &mut processes, run.now() + SECOND).await;
    }
    let simulated = run.now();
    run.report(metrics_name_no_tenant(&run, &processes));
    let end = if run.over.is_cancelled() { BTreeMap::new() } else { final_state(&run) };
    for process in 0..plan.scene.processes {
        if let Some(life) = run.life(process) {
            life.cut.cancel();
            life.stop.cancel();
        }
    }
    stop.cancel();
    let violations = run.judge.lock().violations.clone();
    let hits = run.faults.lock().hits.clone();
    let requests = run.ledger.lock().len();
    let silent_watches = processes.iter().map(Process::silent_watches).sum();
    let (syncs, handovers) = (run.memory.syncs(), run.memory.handovers());
    Outcome { violations, end, syncs, handovers, requests, silent_watches, hits, simulated, run }
}

/// Whether a process acts. With `--takeover=wait`, processes first observe for a while.
fn acts(plan: &Plan, processes: &[Process]) -> bool {
    plan.scene.takeover == TakeOver::Off || processes.iter().any(Process::acts)
}

/// All steps in order.
fn timeline<'a>(plan: &'a Plan, kept: &Selection) -> Vec<(Duration, Step<'a>)> {
    let acts = plan.actions.iter().enumerate().filter(|(number, _)| kept.actions.contains(number));
    let acts = acts.map(|(_, act)| act).chain(&plan.closing).map(|act| (act.at, Step::TimedAction(act)));
    let faults = plan.faults.iter().enumerate().filter(|(number, _)| kept.faults.contains(number));
    let faults = faults.flat_map(|(number, fault)| {
        [(fault.at, Step::Start(number, fault)), (fault.until, Step::End(number, fault))]
    });
    let mut all: Vec<_> = acts.chain(faults).collect();
    all.sort_by_key(|(at, _)| *at);
    all
}

fn build(run: &Arc<Run>) {
    let scene = &run.plan.scene;
    for name in ["shop", "bank"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        run.cluster.create(namespace).unwrap();
    }
    for (number, hpa) in scene.hpas.iter().enumerate() {
        let model =
            WorkloadModel { start_up: (SECOND * 2).into(), grace: SECOND, ..WorkloadModel::default() };
        run.workloads.set_model(InitialState::namespace(number), &InitialState::name(number), model);
        create_target(run, number, hpa.replicas);
        for (metric, plan) in hpa.metrics.iter().enumerate() {
            run.readings.set_demand(number, metric, plan.demand);
        }
        create_hpa(run, number, hpa);
    }
    run.workloads.warm_up();
}

/// Waits until `at`, and checks the invariants every second.
async fn wait_until(run: &Arc<Run>, processes: &mut [Process], at: Duration) {
    while run.now() < at && !run.over.is_cancelled() {
        let second = Duration::from_secs(run.now().as_secs() + 1);
        tokio::select! {
            biased;
            () = run.over.cancelled() => return,
            () = run.sleep_until(second.min(at)) => {}
        }
        if run.now() >= second {
            each_second(run, processes).await;
        }
    }
}

async fn each_second(run: &Arc<Run>, processes: &mut [Process]) {
    let now = run.now();
    // The status of a Scale without a workload follows its spec at once.
    for hpa in (0..run.plan.scene.hpas.len()).filter(|hpa| !run.plan.scene.hpas[*hpa].has_pods) {
        if let Some(scale) = run.bare(hpa)
            && scale.spec_replicas != scale.status_replicas
        {
            run.put_bare(hpa, scale.spec_replicas, scale.spec_replicas);
        }
    }
    faults::back_up(run);
    let active: Vec<_> = run.faults.lock().active().map(|(number, fault)| (number, fault.clone())).collect();
    for (number, fault) in &active {
        tenants::sync(run, fault);
        tenants::edit(&run.cluster, *number, fault, now.as_secs());
    }
    for process in processes.iter_mut() {
        process.poll_exit(run, SECOND).await;
        if process.starts.is_some_and(|at| at <= now) {
            process.start(run);
        }
    }
    run.report(process::first().map(|text| ("no panic", text)));
    let (violation, deleted) = {
        let mut judge = run.judge.lock();
        (judge.second(now), judge.long_deleted(now))
    };
    run.report(violation);
    if now.as_secs().is_multiple_of(15) && !deleted.is_empty() {
        run.report(metrics_name_no_deleted_hpa(&deleted, processes));
    }
}

/// Invariant 9: no metric names an HPA that was deleted.
fn metrics_name_no_deleted_hpa(deleted: &[usize], processes: &[Process]) -> Finding {
    let texts: Vec<_> = processes.iter().map(|process| process.telemetry.render()).collect();
    let named =
        |hpa: &&usize| texts.iter().any(|text| text.contains(&format!("\"{}\"", InitialState::name(**hpa))));
    let left = deleted.iter().find(named)?;
    Some(("metrics name no deleted HPA", format!("h{left} is deleted and still in the metrics")))
}

/// Invariant 9: no metric names the namespace of a hostile tenant that was removed.
fn metrics_name_no_tenant(run: &Run, processes: &[Process]) -> Finding {
    let had_tenant = run.plan.faults.iter().any(|fault| fault.kind.is_tenant());
    let is_named = |process: &Process| process.telemetry.render().contains(tenants::NAMESPACE);
    (had_tenant && !run.over.is_cancelled() && processes.iter().any(is_named))
        .then(|| ("metrics name no deleted HPA", "a tenant has gone and is still in the metrics".to_owned()))
}

fn apply_step(run: &Arc<Run>, processes: &mut [Process], step: Step<'_>) {
    match step {
        Step::TimedAction(act) => {
            run.record_event(act.to_string());
            perform(run, act);
        }
        Step::Start(number, fault) => {
            run.record_event(format!("f{number} starts: {fault}"));
            start_fault(run, processes, number, fault);
        }
        Step::End(number, fault) => {
            run.record_event(format!("f{number} ends"));
            run.faults.lock().stop(number);
            tenants::stop(&run.cluster, number, fault);
            if fault.kind == FaultKind::ClockDrift {
                processes[fault.process.unwrap_or(0)].clock.drift(0);
            }
        }
    }
    run.faults_changed.notify_waiters();
}

fn start_fault(run: &Arc<Run>, processes: &mut [Process], number: usize, fault: &Fault) {
    run.judge.lock().fault_started(fault, run.now());
    match fault.kind {
        FaultKind::Restart | FaultKind::CrashBefore | FaultKind::CrashAfter => {}
        kind if kind.is_tenant() => {}
        FaultKind::EtcdRestored => run.impair_handover_until(fault.until + fault.aftermath()),
        // From now on two clocks differ by an amount that no process can determine exactly.
        FaultKind::ClockJump | FaultKind::ClockDrift => run.impair_handover_until(run.plan.end),
        _ => run.impair_handover_until(fault.until),
    }
    run.faults.lock().start(number, fault);
    let count_hit = || run.faults.lock().count(number);
    let process = fault.process.unwrap_or(0);
    let amount = i64::try_from(fault.amount).unwrap();
    match fault.kind {
        FaultKind::Restart => {
            if let Some(life) = run.life(process) {
                count_hit();
                life.stop.cancel();
            }
        }
        FaultKind::ClockJump => {
            count_hit();
            processes[process].clock.jump(SignedDuration::from_secs(amount - 3600));
        }
        FaultKind::ClockDrift => {
            count_hit();
            processes[process].clock.drift(amount - 50_000);
        }
        FaultKind::EtcdRestored => {
            count_hit();
            faults::restore(run, fault.amount);
        }
        FaultKind::OtherController => count_hit(),
        kind if kind.is_tenant() => {
            count_hit();
            tenants::start(&run.cluster, number, fault);
        }
        FaultKind::LeaseDeleted
            if run.cluster.delete("coordination.k8s.io/leases", "kube-system", "concertina").is_ok() =>
        {
            count_hit();
        }
        FaultKind::LeaseStolen => {
            if let Some(mut lease) =
                run.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina")
            {
                count_hit();
                let now = run.cluster.now();
                lease["spec"]["holderIdentity"] = "intruder".into();
                lease["spec"]["renewTime"] = format!("{now:.6}").into();
                run.cluster.update(lease).unwrap();
            }
        }
        _ => {}
    }
}

/// Performs an action of a user. Changes that the server refuses have no effect.
fn perform(run: &Arc<Run>, act: &TimedAction) {
    let number = act.hpa;
    let hpa = &run.plan.scene.hpas[number];
    let name = InitialState::name(number);
    match &act.action {
        Action::Load { metric, demand } => run.readings.set_demand(number, *metric, *demand),
        Action::Odd { metric, text } => run.readings.set_raw_value(number, *metric, text),
        Action::Edit { spec } => {
            if let Some(mut object) = run.cluster.get(HPAS, InitialState::namespace(number), &name) {
                for (field, value) in spec.as_object().unwrap() {
                    object["spec"][field] = value.clone();
                }
                if let Err(status) = run.cluster.update(object) {
                    run.record_event(format!("refused: {status}"));
                }
            }
        }
        Action::Restore => {
            if let Some(mut object) = run.cluster.get(HPAS, InitialState::namespace(number), &name) {
                object["spec"] = hpa.spec(number);
                run.cluster.update(object).unwrap();
            }
        }
        Action::InvalidSpec(poison) => {
            if *poison == InvalidSpec::MetricsTimesPods {
                create_ended_pods(run, number);
            }
            if let Some(mut object) = run.cluster.get(HPAS, InitialState::namespace(number), &name) {
                poison.apply_to(number, &mut object["spec"]);
                let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
                object["metadata"]["generation"] = (generation + 1).into();
                run.cluster.put_raw(object);
            }
        }
        Action::Manual { replicas } => set_replicas(run, number, *replicas),
        Action::DeleteTarget if hpa.has_pods => {
            let _ = run.cluster.delete("apps/deployments", InitialState::namespace(number), &name);
        }
        Action::DeleteTarget => run.remove_bare(number),
        Action::CreateTarget { replicas } => {
            if run.replicas(number).is_none() {
                create_target(run, number, *replicas);
            }
        }
        Action::DeleteHpa => {
            let _ = run.cluster.delete(HPAS, InitialState::namespace(number), &name);
        }
        Action::CreateHpa => {
            if run.cluster.get(HPAS, InitialState::namespace(number), &name).is_none() {
                create_hpa(run, number, hpa);
            }
        }
    }
    if !matches!(act.action, Action::Load { .. } | Action::Odd { .. }) {
        run.foreign_change(number);
    }
    let object = run.cluster.get(HPAS, InitialState::namespace(number), &name);
    run.judge.lock().hpa_changed(number, object.as_ref(), run.now());
}

fn set_replicas(run: &Arc<Run>, number: usize, replicas: i64) {
    if !run.plan.scene.hpas[number].has_pods {
        if let Some(scale) = run.bare(number) {
            run.put_bare(number, replicas, scale.status_replicas);
        }
    } else if let Some(mut object) =
        run.cluster.get("apps/deployments", InitialState::namespace(number), &InitialState::name(number))
    {
        object["spec"]["replicas"] = replicas.into();
        run.cluster.update(object).unwrap();
    }
}

fn create_hpa(run: &Arc<Run>, number: usize, hpa: &HpaPlan) {
    run.cluster.create(hpa.object(number)).unwrap_or_else(|status| panic!("{status:?}"));
    let object = run.cluster.get(HPAS, InitialState::namespace(number), &InitialState::name(number));
    run.judge.lock().hpa_changed(number, object.as_ref(), run.now());
}

fn create_target(run: &Arc<Run>, number: usize, replicas: i64) {
    if !run.plan.scene.hpas[number].has_pods {
        run.put_bare(number, replicas, replicas);
        return;
    }
    let name = InitialState::name(number);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": InitialState::namespace(number), "name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [
                    {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}},
                ]},
            },
        },
    });
    run.cluster.create(deployment).unwrap_or_else(|status| panic!("{status:?}"));
}

/// Creates pods that have terminated. They are selected and counted, but never evaluated.
fn create_ended_pods(run: &Run, number: usize) {
    for pod in 0..100 {
        let phase = if pod % 2 == 0 { "Succeeded" } else { "Failed" };
        let name = InitialState::name(number);
        run.cluster.put_raw(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": InitialState::namespace(number), "name": format!("{name}-ended-{pod}"),
                "labels": {"app": name},
            },
            "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
            "status": {"phase": phase},
        }));
    }
}

impl InvalidSpec {
    fn apply_to(self, hpa: usize, spec: &mut Value) {
        match self {
            Self::InvalidSelector => {
                let selector = json!({"matchExpressions": [{"key": "a", "operator": "Sometimes"}]});
                spec["metrics"] = json!([{"type": "External", "external": {
                    "metric": {"name": "x", "selector": selector},
                    "target": {"type": "AverageValue", "averageValue": "1"},
                }}]);
            }
            Self::MinAboveMax => {
                spec["minReplicas"] = 9.into();
                spec["maxReplicas"] = 3.into();
            }
            Self::NegativeMax => spec["maxReplicas"] = (-4).into(),
            Self::ManyMetrics => {
                let metrics = spec["metrics"].as_array().cloned().unwrap_or_default();
                spec["metrics"] = metrics.into_iter().cycle().take(200).collect();
            }
            Self::DifferentMetrics => {
                let metric = |metric: usize| {
                    let name = InitialState::metric(hpa, DIFFERENT + metric);
                    json!({"type": "External", "external": {
                        "metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "10"},
                    }})
                };
                spec["metrics"] = (0..100).map(metric).collect();
            }
            Self::MetricsTimesPods => {
                let metric = |metric: usize| {
                    let target = json!({"type": "AverageValue", "averageValue": format!("{}m", metric + 1)});
                    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
                };
                spec["metrics"] = (0..200).map(metric).collect();
            }
            Self::OddQuantity(text) => {
                spec["metrics"] = json!([{"type": "External", "external": {
                    "metric": {"name": InitialState::metric(hpa, 0)}, "target": {"type": "AverageValue", "averageValue": text},
                }}]);
            }
            Self::NoSource => spec["metrics"] = json!([{"type": "Pods"}]),
            Self::UnknownType => spec["metrics"] = json!([{"type": "Dream"}]),
            Self::OddTarget => spec["scaleTargetRef"]["apiVersion"] = "a/b/c".into(),
        }
    }
}

/// The replicas and the status of each HPA, without times.
fn final_state(run: &Run) -> BTreeMap<usize, Value> {
    (0..run.plan.scene.hpas.len())
        .map(|number| {
            let object = run
                .cluster
                .get(HPAS, InitialState::namespace(number), &InitialState::name(number))
                .unwrap_or_default();
            let (mut status, replicas) = (object["status"].clone(), run.replicas(number));
            if let Some(fields) = status.as_object_mut() {
                fields.remove("lastScaleTime");
                fields.remove("observedGeneration");
            }
            if let Some(conditions) = status["conditions"].as_array_mut() {
                // Only a rescale writes `ScaledToZero`, and a concurrent change of the HPA may prevent the write. The
                // condition is compared only at 0 replicas.
                conditions.retain(|condition| {
                    condition["type"] != "ScaledToZero"
                        || (condition["status"] == "True" && replicas == Some(0))
                });
            }
            for condition in status["conditions"].as_array_mut().into_iter().flatten() {
                condition.as_object_mut().unwrap().remove("lastTransitionTime");
            }
            (number, json!({"replicas": replicas, "status": status}))
        })
        .collect()
}
