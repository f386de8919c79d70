//! A dry run alongside the built-in controller, which scales. While the loads change, both must decide on
//! the same count, and the dry run must only read. Its account has no other rights.
//!
//! `CONCERTINA_E2E_SHADOW_MINUTES` sets how long the loads change. The default is one minute.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::audit;
use crate::controlplane::free_port;
use crate::metrics::Load;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::process::Process;
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
    let differences = changes(&report, &["different", "onlyOurs", "onlyBuiltin"]);
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
    tokio::time::sleep(Duration::from_secs(6)).await;
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

/// Jumps and ramps, separate for each HPA and equal in each run.
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
        tokio::time::sleep(TICK).await;
    }
    Ok(())
}

/// The dry run, under an account that may only read.
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
        // Metrics change every second here, so a cached response would differ from the built-in
        // controller's.
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

/// All results with their counts.
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

/// The changes with one of `results`, one line each.
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
