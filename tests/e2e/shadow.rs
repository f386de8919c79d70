//! Concertina next to the real HPA controller of kube-controller-manager: as a shadow, and in the takeover.
//!
//! A shadow is a dry run while the built-in controller scales. As the loads change, both controllers must decide on the
//! same count, and the shadow must only read. Its account has no other rights. `CONCERTINA_E2E_SHADOW_MINUTES` sets the
//! duration of the load changes. The default is one minute.
//!
//! The takeover test starts and stops the built-in controller. Both programs use the same account, but different user
//! agents, so the audit log of the API server shows which program wrote when.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::audit::{self, AUTOSCALER};
use crate::controlplane::free_port;
use crate::election::now;
use crate::metrics::Load;
use crate::outcome::{Context as _, Failure, Outcome, Process, ensure, eventually};
use crate::rest::Rest;
use crate::world::{
    APP, Autoscaler, DECISION_FLAGS, Fixture, SOON, World, binary, cpu_utilization, external, ingress,
    pods_average,
};

const ACCOUNT: &str = "concertina-shadow";
/// The interval of load changes.
const TICK: Duration = Duration::from_millis(700);

/// Names of the HPAs and of their targets.
const SIX: [&str; 6] = ["calm", "cpu", "object", "pods", "rates", "steps"];

/// With equal settings, there is no difference under any load.
pub(crate) async fn finds_no_difference(stage: &Fixture) -> Outcome {
    let minutes = match std::env::var("CONCERTINA_E2E_SHADOW_MINUTES") {
        Ok(text) => text.parse::<f64>().map_err(|error| Failure(format!("{text}: {error}")))?,
        Err(_) => 1.0,
    };
    let world = six_hpas(stage, "shadow").await?;
    let built_in = stage.autoscaler(Autoscaler::BuiltIn).await?;
    let mut shadow = Shadow::start(stage, &[]).await?;
    change_loads(&world, Duration::from_secs_f64(minutes * 60.0)).await.context(built_in.tail(20))?;
    shadow.process.still_runs()?;
    let report = shadow.report().await?;
    let counts = counts(&report);
    eprintln!("    {minutes} min: {counts}");
    let inconclusive = changes(&report, &["unknown"]);
    for reason in &inconclusive {
        eprintln!("    inconclusive: {reason}");
    }
    let differences = changes(&report, &["different", "onlyConcertina", "onlyBuiltin"]);
    ensure(differences.is_empty(), || {
        format!("{} differences\n{}\n{}", differences.len(), differences.join("\n"), shadow.process.tail(60))
    })?;
    let (same, unknown) = (count(&counts, "same"), count(&counts, "unknown"));
    ensure(same > 10, || format!("only {same} changes were compared: {counts}"))?;
    ensure(unknown * 20 <= same, || format!("{unknown} changes were inconclusive: {inconclusive:#?}"))?;
    for name in SIX {
        let was_compared =
            changes(&report, &["same"]).iter().any(|change| change.contains(&format!("/{name} ")));
        ensure(was_compared, || format!("no change of {name} was compared"))?;
    }
    let account = format!("system:serviceaccount:kube-system:{ACCOUNT}");
    let reads = audit::only_reads(&stage.plane.audit_log()?, &account)?;
    eprintln!("    {reads} requests of the dry run, all of them reads, none refused");
    world.close().await
}

/// With a larger tolerance, Concertina stays at a count that the built-in controller changes.
pub(crate) async fn finds_a_seeded_difference(stage: &Fixture) -> Outcome {
    let world = six_hpas(stage, "seeded").await?;
    let _built_in = stage.autoscaler(Autoscaler::BuiltIn).await?;
    let shadow = Shadow::start(stage, &["--horizontal-pod-autoscaler-tolerance=0.6"]).await?;
    // Wait until both controllers have synced while all metrics are at their targets.
    eventually(SOON, "a sync of the built-in controller", async || {
        let hpa = world.api.get(&world.hpas("steps")).await?;
        ensure(!hpa["status"]["conditions"].is_null(), || "no conditions".to_owned())
    })
    .await?;
    sleep(Duration::from_secs(6)).await;
    world.external("queue", &["150"]);
    world.replicas_become(&world.deployments("steps"), 3).await?;
    eventually(SOON, "the difference is reported", async || {
        let report = shadow.report().await?;
        let found = changes(&report, &["onlyBuiltin"]);
        let found =
            found.iter().any(|change| change.contains("/steps ") && change.contains("within tolerance"));
        ensure(found, || format!("{:#?}", report["changes"]))
    })
    .await?;
    world.close().await
}

/// Six HPAs with two pods each, whose metrics are at their targets.
async fn six_hpas(stage: &Fixture, namespace: &str) -> Outcome<World> {
    let world = World::make(stage, namespace, Autoscaler::BuiltIn).await?;
    loads(&world, &[100; SIX.len()], &[2; SIX.len()]);
    let all = SIX.map(|name| world.deployment(name, 2, APP));
    futures::future::try_join_all(all).await?;
    for name in SIX {
        let metrics = match name {
            "cpu" => json!([cpu_utilization(50)]),
            "object" => json!([ingress("hits", "Value", "100")]),
            "pods" => json!([pods_average("requests", "50")]),
            "calm" => json!([external("calls", "AverageValue", "50")]),
            "rates" => json!([external("jobs", "AverageValue", "50")]),
            _ => json!([external("queue", "AverageValue", "50")]),
        };
        let mut spec = json!({"minReplicas": 1, "maxReplicas": 9, "metrics": metrics});
        if name == "rates" {
            spec["behavior"] = json!({
                "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 3}]},
                "scaleDown": {"stabilizationWindowSeconds": 2,
                    "policies": [{"type": "Percent", "value": 40, "periodSeconds": 3}]},
            });
        }
        if name == "calm" {
            spec["behavior"] = json!({"scaleUp": {"stabilizationWindowSeconds": 3}});
        }
        world.hpa(name, ("apps/v1", "Deployment", name), spec).await?;
    }
    Ok(world)
}

/// Sets the loads, in percent of the capacity of two pods. As in a metrics pipeline, per-pod values are
/// based on an earlier pod count.
fn loads(world: &World, percent: &[i64; SIX.len()], replicas: &[i64; SIX.len()]) {
    for ((name, percent), replicas) in SIX.iter().zip(percent).zip(replicas) {
        let each = percent / (*replicas).max(1);
        match *name {
            "calm" => world.external("calls", &[&percent.to_string()]),
            "cpu" => world.usage(name, "app", "cpu", Load::Each(each, "m")),
            "object" => world.object("ingresses.networking.k8s.io", "main", "hits", &(each * 2).to_string()),
            "pods" => world.per_pod(name, "requests", Load::Each(each, "")),
            "rates" => world.external("jobs", &[&percent.to_string()]),
            _ => world.external("queue", &[&percent.to_string()]),
        }
    }
}

/// Changes the loads by jumps and ramps, which differ between the HPAs and are equal in each run.
async fn change_loads(world: &World, time: Duration) -> Outcome {
    let end = Instant::now() + time;
    let mut state: u64 = 20_300_101;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((state >> 33) % below).unwrap_or_default()
    };
    let mut now = [100_i64; SIX.len()];
    // The goal of each load and its change per tick.
    let mut ramps = [(100_i64, 0_i64); SIX.len()];
    while Instant::now() < end {
        for (now, (goal, step)) in now.iter_mut().zip(&mut ramps) {
            let left = *goal - *now;
            *now = if *step == 0 || left.abs() <= *step { *goal } else { *now + left.signum() * *step };
            // A load at its goal gets a new goal in one of fourteen ticks, half of the time as a jump.
            if left == 0 && next(14) == 0 {
                *goal = next(450);
                *step = if next(2) == 0 { 0 } else { 10 + next(30) };
            }
        }
        let replicas = SIX.map(async |name| world.replicas(&world.deployments(name)).await);
        let replicas = futures::future::try_join_all(replicas).await?;
        loads(world, &now, replicas.as_slice().try_into().unwrap_or(&[2; SIX.len()]));
        sleep(TICK).await;
    }
    Ok(())
}

/// A dry run, under an account that may only read.
struct Shadow {
    process: Process,
    client: Rest,
}

impl Shadow {
    async fn start(stage: &Fixture, more: &[&str]) -> Outcome<Self> {
        let api = &stage.plane.admin;
        let cluster_roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let allow = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        let rules = json!([
            allow(&["autoscaling"], &["horizontalpodautoscalers"], &["list", "watch"]),
            allow(&[""], &["pods"], &["list", "watch"]),
            allow(&["*"], &["*/scale"], &["get"]),
            allow(&["metrics.k8s.io"], &["pods"], &["list"]),
            allow(&["custom.metrics.k8s.io"], &["*"], &["get"]),
            allow(&["external.metrics.k8s.io"], &["*"], &["list"]),
        ]);
        api.create(cluster_roles, &json!({"metadata": {"name": ACCOUNT}, "rules": rules})).await?;
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        let binding = json!({
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}],
        });
        api.create(bindings, &binding).await?;
        let kubeconfig = stage.plane.service_account("kube-system", ACCOUNT).await?;
        let port = free_port()?;
        let mut command = Command::new(binary());
        command.arg("--kubeconfig").arg(kubeconfig).arg("--dry-run");
        command.arg("--horizontal-pod-autoscaler-sync-period=1s").args(DECISION_FLAGS).args(more);
        command.args(["--kube-api-qps=500", "--kube-api-burst=1000", "--secure-port=0"]);
        // The metrics change with every tick, so a cached response could differ from the response for the built-in
        // controller.
        command.arg("--share-metrics=false");
        command.arg(format!("--health-address=127.0.0.1:{port}"));
        let process = Process::start("shadow", command, stage.plane.folder())?;
        let client = Rest::new(&format!("http://127.0.0.1:{port}"), "none")?;
        eventually(SOON, "the dry run is ready", async || client.get("/readyz").await.map(drop))
            .await
            .context(process.tail(40))?;
        Ok(Self { process, client })
    }

    async fn report(&self) -> Outcome<Value> {
        self.client.get("/parity").await
    }
}

/// Sums the counts of each result over all hours of a report.
fn counts(report: &Value) -> Value {
    let mut sum = serde_json::Map::new();
    for hour in report["hours"].as_array().into_iter().flatten() {
        for (result, count) in hour["counts"].as_object().into_iter().flatten() {
            let before = sum.get(result).and_then(Value::as_u64).unwrap_or_default();
            sum.insert(result.clone(), json!(before + count.as_u64().unwrap_or_default()));
        }
    }
    Value::Object(sum)
}

fn count(counts: &Value, result: &str) -> u64 {
    counts[result].as_u64().unwrap_or_default()
}

/// The changes of a report with one of `results`, one line each.
fn changes(report: &Value, results: &[&str]) -> Vec<String> {
    let all = report["changes"].as_array().into_iter().flatten();
    let wanted = all.filter(|change| results.iter().any(|result| change["result"] == *result));
    let line = |change: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}/{} {} {}: built-in {}, Concertina {}, status {}",
            text(&change["at"]),
            text(&change["namespace"]),
            text(&change["name"]),
            text(&change["result"]),
            text(&change["doubt"]),
            change["builtin"],
            change["ours"],
            change["said"],
        )
    };
    wanted.map(line).collect()
}

const PERIOD: Duration = Duration::from_secs(2);
const FLAGS: &[&str] = &["--horizontal-pod-autoscaler-sync-period=2s"];
const OURS: &[&str] =
    &["--horizontal-pod-autoscaler-sync-period=2s", "--leader-elect=false", "--takeover=wait"];
const HPAS: [&str; 3] = ["a", "b", "c"];
/// The additional time that a busy machine may take.
const SLACK: Duration = Duration::from_millis(1500);

pub(crate) async fn waits_and_takes_over(stage: &Fixture) -> Outcome {
    let world = World::make(stage, "takeover", Autoscaler::Concertina).await?;
    for name in HPAS {
        world.deployment(name, 2, APP).await?;
        world.cpu(name, 100);
        let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
        world.hpa(name, ("apps/v1", "Deployment", name), spec).await?;
    }
    let is_moving = AtomicBool::new(true);
    let load = async {
        for step in 0_i64.. {
            if is_moving.load(Ordering::Relaxed) {
                for (offset, name) in (0..).zip(HPAS) {
                    world.cpu(name, 80 + (step * 7 + offset * 13) % 60);
                }
            }
            sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        biased;
        result = run_takeovers(stage, &is_moving) => result?,
        () = load => return Err(Failure("the load stopped".to_owned())),
    }
    world.close().await
}

async fn run_takeovers(stage: &Fixture, is_moving: &AtomicBool) -> Outcome {
    let built_in = stage.autoscaler_with(Autoscaler::BuiltIn, FLAGS).await?;
    eventually(SOON, "the built-in controller writes", async || {
        let writes = Log::read(stage)?.built_in.len();
        ensure(writes > 3, || format!("{writes} writes"))
    })
    .await?;
    let ours = stage.autoscaler_with(Autoscaler::Concertina, OURS).await?;
    ours.wait_for_log("another controller writes statuses of HPAs", SOON).await?;
    sleep(PERIOD * 6).await;
    Log::read(stage)?.no_own_writes("while the built-in controller runs")?;

    // The loads stay, but a stabilized scale-down may still cause a write. Wait until the writes stop.
    is_moving.store(false, Ordering::Relaxed);
    let pause = async || {
        let last = Log::read(stage)?.built_in.last().copied().unwrap_or_default();
        let pause = now().duration_since(last).unsigned_abs();
        ensure(pause > PERIOD * 5, || format!("the built-in controller wrote {pause:?} ago")).map(|()| pause)
    };
    let pause = eventually(SOON, "the built-in controller stops writing", pause).await?;
    ours.wait_for_log("no foreign writes for the quiet time", SOON).await?;
    eprintln!("the built-in controller has not written for {pause:.1?}");
    is_moving.store(true, Ordering::Relaxed);
    sleep(PERIOD * 4).await;
    Log::read(stage)?.no_own_writes("after a pause of the built-in controller").context(ours.tail(20))?;

    let mut built_in = Some(built_in);
    for round in 1..=2 {
        drop(built_in.take());
        let off = now();
        let first = eventually(SOON, "Concertina acts", async || {
            let log = Log::read(stage)?;
            let first = log.ours.iter().find(|at| **at > off).copied();
            first.ok_or_else(|| Failure("Concertina has not written".to_owned()))
        });
        let first = first.await.context(ours.tail(20))?;
        let log = Log::read(stage)?;
        let last = log.built_in.iter().rev().find(|at| **at < first).copied().unwrap_or(off);
        let [since_last, since_off] = [last, off].map(|from| first.duration_since(from).unsigned_abs());
        eprintln!(
            "round {round}: Concertina acts {since_last:.2?} after the last foreign write, {since_off:.2?} after the built-in controller stopped"
        );
        ensure(since_last + SLACK >= PERIOD * 2, || format!("too early: {since_last:?}"))?;
        // Timestamps of foreign writes have a resolution of one second.
        ensure(since_off <= PERIOD * 2 + SLACK, || format!("too late: {since_off:?}"))?;
        if round == 2 {
            return Ok(());
        }
        // This pause is longer than the period after a takeover in which a foreign write means a false start.
        sleep(PERIOD * 11).await;

        let on = now();
        built_in = Some(stage.autoscaler_with(Autoscaler::BuiltIn, FLAGS).await?);
        let back = eventually(SOON, "the built-in controller writes again", async || {
            let log = Log::read(stage)?;
            let first = log.built_in.iter().find(|at| **at > on).copied();
            first.ok_or_else(|| Failure("the built-in controller has not written".to_owned()))
        });
        let back = back.await?;
        sleep(PERIOD * 5).await;
        let log = Log::read(stage)?;
        let count = |writes: &[Timestamp], from| writes.iter().filter(|at| **at > from).count();
        let late = back + Duration::from_secs(1);
        let (within, after) = (count(&log.ours, back) - count(&log.ours, late), count(&log.ours, late));
        let theirs = count(&log.built_in, back);
        eprintln!(
            "the built-in controller is back with {theirs} writes; Concertina wrote {within} times within a second and {after} times later"
        );
        ensure(after == 0 && theirs > 4, || format!("Concertina wrote {after} times\n{}", ours.tail(20)))?;
    }
    Ok(())
}

/// The times of successful writes of statuses and scales, by program.
struct Log {
    ours: Vec<Timestamp>,
    built_in: Vec<Timestamp>,
}

impl Log {
    fn read(stage: &Fixture) -> Outcome<Self> {
        let mut log = Self { ours: Vec::new(), built_in: Vec::new() };
        for entry in audit::entries(&stage.plane.audit_log()?) {
            let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let is_autoscaling = matches!(text("/objectRef/subresource"), "status" | "scale");
            if text("/user/username") != AUTOSCALER || text("/verb") != "update" || !is_autoscaling {
                continue;
            }
            let by =
                if text("/userAgent").starts_with("concertina/") { &mut log.ours } else { &mut log.built_in };
            by.push(text("/requestReceivedTimestamp").parse()?);
        }
        log.ours.sort();
        log.built_in.sort();
        Ok(log)
    }

    fn no_own_writes(&self, when: &str) -> Outcome {
        let (ours, theirs) = (self.ours.len(), self.built_in.len());
        eprintln!("{when}: {theirs} writes of the built-in controller, {ours} of Concertina");
        ensure(ours == 0, || format!("Concertina wrote {ours} times {when}"))
    }
}
