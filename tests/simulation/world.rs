//! Plays a plan: builds the world, does the actions, lets the faults come and go, and looks at everything each second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use concertina::embedded::workload::WorkloadModel;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::judge::Finding;
use crate::plan::{Act, Action, Fault, FaultKind, HpaPlan, Kept, Plan, Poison, Scene};
use crate::plants::Plant;
use crate::process::Process;
use crate::run::{Run, Violation};

const HPAS: &str = "autoscaling/horizontalpodautoscalers";
const SECOND: Duration = Duration::from_secs(1);
/// How much later than planned the end of a run may be.
const LATER: Duration = Duration::from_mins(15);

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<Violation>,
    /// The end: by HPA, what stands in the cluster.
    pub(crate) end: BTreeMap<usize, Value>,
    pub(crate) syncs: u64,
    pub(crate) requests: usize,
    /// How often each fault struck.
    pub(crate) struck: BTreeMap<usize, u64>,
    pub(crate) simulated: Duration,
    pub(crate) run: Arc<Run>,
}

/// Something that comes at a time.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Act(&'a Act),
    Begin(usize, &'a Fault),
    End(usize, &'a Fault),
}

/// Plays what is kept of a plan.
pub(crate) async fn play(plan: &Arc<Plan>, kept: &Kept, plant: Option<Plant>) -> Outcome {
    let run = Run::new(Arc::clone(plan), plant);
    let stop = CancellationToken::new();
    build(&run);
    let workloads = Arc::clone(&run.workloads);
    let stopped = stop.clone();
    tokio::spawn(async move { workloads.run(stopped).await });
    // Who stands by and never comes to act changes nothing.
    let count = if kept.faults.is_empty() { 1 } else { plan.scene.processes };
    let mut processes: Vec<_> = (0..count)
        .map(|number| Process::new(&run, number, SECOND * u32::try_from(number).unwrap()))
        .collect();
    for (at, step) in timeline(plan, kept) {
        wait_until(&run, &mut processes, at).await;
        if run.over.is_cancelled() {
            break;
        }
        take(&run, &mut processes, step);
    }
    wait_until(&run, &mut processes, plan.end).await;
    // What was on its way when a person scaled is written on top of that, and takes more steps back than were planned for.
    while !run.over.is_cancelled() && run.now() < plan.end + LATER && !run.is_still() {
        wait_until(&run, &mut processes, run.now() + SECOND).await;
    }
    let simulated = run.now();
    let end = if run.over.is_cancelled() { BTreeMap::new() } else { look(&run) };
    for process in 0..plan.scene.processes {
        if let Some(life) = run.life(process) {
            life.cut.cancel();
            life.stop.cancel();
        }
    }
    stop.cancel();
    run.network.close();
    let violations = run.judge.lock().unwrap().violations.clone();
    let struck = run.weather.lock().unwrap().struck.clone();
    let requests = run.ledger.lock().unwrap().len();
    Outcome { violations, end, syncs: run.memory.syncs(), requests, struck, simulated, run }
}

/// All that comes, in order.
fn timeline<'a>(plan: &'a Plan, kept: &Kept) -> Vec<(Duration, Step<'a>)> {
    let acts = plan.actions.iter().enumerate().filter(|(number, _)| kept.actions.contains(number));
    let acts = acts.map(|(_, act)| act).chain(&plan.closing).map(|act| (act.at, Step::Act(act)));
    let faults = plan.faults.iter().enumerate().filter(|(number, _)| kept.faults.contains(number));
    let faults = faults.flat_map(|(number, fault)| {
        [(fault.at, Step::Begin(number, fault)), (fault.until, Step::End(number, fault))]
    });
    let mut all: Vec<_> = acts.chain(faults).collect();
    all.sort_by_key(|(at, _)| *at);
    all
}

fn build(run: &Arc<Run>) {
    let scene = &run.plan.scene;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    run.cluster.create(namespace).unwrap();
    for (number, hpa) in scene.hpas.iter().enumerate() {
        let model =
            WorkloadModel { start_up: (SECOND * 2).into(), grace: SECOND, ..WorkloadModel::default() };
        run.workloads.set_model("shop", &Scene::name(number), model);
        create_target(run, number, hpa.replicas);
        for (metric, plan) in hpa.metrics.iter().enumerate() {
            run.readings.want(number, metric, plan.wanted);
        }
        create_hpa(run, number, hpa);
    }
    run.workloads.warm_up();
}

/// Lets time pass, and looks at everything each second.
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
    // Whoever stands behind a Scale that stands by itself follows it.
    for hpa in (0..run.plan.scene.hpas.len()).filter(|hpa| !run.plan.scene.hpas[*hpa].has_pods) {
        if let Some(scale) = run.bare(hpa)
            && scale.spec_replicas != scale.status_replicas
        {
            run.put_bare(hpa, scale.spec_replicas, scale.spec_replicas);
        }
    }
    for process in processes.iter_mut() {
        let panicked = process.look(run, SECOND).await;
        run.report(panicked.map(|text| ("no panic", text)));
        if process.starts.is_some_and(|at| at <= now) {
            process.start(run);
        }
    }
    let (violation, gone) = {
        let mut judge = run.judge.lock().unwrap();
        (judge.second(now), judge.forgotten(now))
    };
    run.report(violation);
    if now.as_secs().is_multiple_of(15) && !gone.is_empty() {
        run.report(nothing_is_counted_for_what_is_gone(&gone, processes));
    }
}

/// 9. No metric tells of an HPA that is gone.
fn nothing_is_counted_for_what_is_gone(gone: &[usize], processes: &[Process]) -> Finding {
    let texts: Vec<_> = processes.iter().map(|process| process.telemetry.render()).collect();
    let named = |hpa: &&usize| texts.iter().any(|text| text.contains(&format!("\"{}\"", Scene::name(**hpa))));
    let left = gone.iter().find(named)?;
    Some(("nothing is left of what is gone", format!("h{left} is gone and still in the metrics")))
}

fn take(run: &Arc<Run>, processes: &mut [Process], step: Step<'_>) {
    match step {
        Step::Act(act) => {
            run.tell(act.to_string());
            perform(run, act);
        }
        Step::Begin(number, fault) => {
            run.tell(format!("f{number} begins: {fault}"));
            begin(run, processes, number, fault);
        }
        Step::End(number, fault) => {
            run.tell(format!("f{number} ends"));
            run.weather.lock().unwrap().end(number);
            if fault.kind == FaultKind::ClockDrift {
                processes[fault.process.unwrap_or(0)].clock.drift(0);
            }
        }
    }
    run.weather_changed.notify_waiters();
}

fn begin(run: &Arc<Run>, processes: &mut [Process], number: usize, fault: &Fault) {
    run.judge.lock().unwrap().begins(fault, run.now());
    match fault.kind {
        FaultKind::Restart | FaultKind::CrashBefore | FaultKind::CrashAfter => {}
        // From now on two clocks differ by what nobody can tell exactly.
        FaultKind::ClockJump | FaultKind::ClockDrift => run.is_unfair_until(run.plan.end),
        _ => run.is_unfair_until(fault.until),
    }
    run.weather.lock().unwrap().begin(number, fault);
    let struck = || run.weather.lock().unwrap().count(number);
    let process = fault.process.unwrap_or(0);
    let amount = i64::try_from(fault.amount).unwrap();
    match fault.kind {
        FaultKind::Restart => {
            if let Some(life) = run.life(process) {
                struck();
                life.stop.cancel();
            }
        }
        FaultKind::ClockJump => {
            struck();
            processes[process].clock.jump(SignedDuration::from_secs(amount - 3600));
        }
        FaultKind::ClockDrift => {
            struck();
            processes[process].clock.drift(amount - 50_000);
        }
        FaultKind::LeaseDeleted
            if run.cluster.delete("coordination.k8s.io/leases", "kube-system", "concertina").is_ok() =>
        {
            struck();
        }
        FaultKind::LeaseStolen => {
            if let Some(mut lease) =
                run.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina")
            {
                struck();
                let now = run.cluster.now();
                lease["spec"]["holderIdentity"] = "somebody".into();
                lease["spec"]["renewTime"] = format!("{now:.6}").into();
                run.cluster.update(lease).unwrap();
            }
        }
        _ => {}
    }
}

/// Does what a person does; what the server refuses is left.
fn perform(run: &Arc<Run>, act: &Act) {
    let number = act.hpa;
    let hpa = &run.plan.scene.hpas[number];
    let name = Scene::name(number);
    match &act.what {
        Action::Load { metric, wanted } => run.readings.want(number, *metric, *wanted),
        Action::Odd { metric, text } => run.readings.read_odd(number, *metric, text),
        Action::Edit { spec } => {
            if let Some(mut object) = run.cluster.get(HPAS, "shop", &name) {
                for (field, value) in spec.as_object().unwrap() {
                    object["spec"][field] = value.clone();
                }
                if let Err(status) = run.cluster.update(object) {
                    run.tell(format!("refused: {status}"));
                }
            }
        }
        Action::Restore => {
            if let Some(mut object) = run.cluster.get(HPAS, "shop", &name) {
                object["spec"] = hpa.spec(number);
                run.cluster.update(object).unwrap();
            }
        }
        Action::Poison(poison) => {
            if let Some(mut object) = run.cluster.get(HPAS, "shop", &name) {
                poison.put_into(number, &mut object["spec"]);
                let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
                object["metadata"]["generation"] = (generation + 1).into();
                run.cluster.put_raw(object);
            }
        }
        Action::Manual { replicas } => set_replicas(run, number, *replicas),
        Action::DeleteTarget if hpa.has_pods => {
            let _ = run.cluster.delete("apps/deployments", "shop", &name);
        }
        Action::DeleteTarget => run.remove_bare(number),
        Action::CreateTarget { replicas } => {
            if run.replicas(number).is_none() {
                create_target(run, number, *replicas);
            }
        }
        Action::DeleteHpa => {
            let _ = run.cluster.delete(HPAS, "shop", &name);
        }
        Action::CreateHpa => {
            if run.cluster.get(HPAS, "shop", &name).is_none() {
                create_hpa(run, number, hpa);
            }
        }
    }
    if !matches!(act.what, Action::Load { .. } | Action::Odd { .. }) {
        run.touches(number);
    }
    let object = run.cluster.get(HPAS, "shop", &name);
    run.judge.lock().unwrap().seen(number, object.as_ref(), run.now());
}

fn set_replicas(run: &Arc<Run>, number: usize, replicas: i64) {
    if !run.plan.scene.hpas[number].has_pods {
        if let Some(scale) = run.bare(number) {
            run.put_bare(number, replicas, scale.status_replicas);
        }
    } else if let Some(mut object) = run.cluster.get("apps/deployments", "shop", &Scene::name(number)) {
        object["spec"]["replicas"] = replicas.into();
        run.cluster.update(object).unwrap();
    }
}

fn create_hpa(run: &Arc<Run>, number: usize, hpa: &HpaPlan) {
    run.cluster.create(hpa.object(number)).unwrap_or_else(|status| panic!("{status:?}"));
    let object = run.cluster.get(HPAS, "shop", &Scene::name(number));
    run.judge.lock().unwrap().seen(number, object.as_ref(), run.now());
}

fn create_target(run: &Arc<Run>, number: usize, replicas: i64) {
    if !run.plan.scene.hpas[number].has_pods {
        run.put_bare(number, replicas, replicas);
        return;
    }
    let name = Scene::name(number);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": name},
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

impl Poison {
    fn put_into(self, hpa: usize, spec: &mut Value) {
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
            Self::OddQuantity(text) => {
                spec["metrics"] = json!([{"type": "External", "external": {
                    "metric": {"name": Scene::metric(hpa, 0)}, "target": {"type": "AverageValue", "averageValue": text},
                }}]);
            }
            Self::NoSource => spec["metrics"] = json!([{"type": "Pods"}]),
            Self::UnknownType => spec["metrics"] = json!([{"type": "Dream"}]),
            Self::OddTarget => spec["scaleTargetRef"]["apiVersion"] = "a/b/c".into(),
        }
    }
}

/// What stands in the cluster, without times.
fn look(run: &Run) -> BTreeMap<usize, Value> {
    (0..run.plan.scene.hpas.len())
        .map(|number| {
            let object = run.cluster.get(HPAS, "shop", &Scene::name(number)).unwrap_or_default();
            let (mut status, replicas) = (object["status"].clone(), run.replicas(number));
            if let Some(fields) = status.as_object_mut() {
                fields.remove("lastScaleTime");
                fields.remove("observedGeneration");
            }
            if let Some(conditions) = status["conditions"].as_array_mut() {
                // Only a rescale writes it, and who changes the HPA at that moment stands in its way. It matters at 0.
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
