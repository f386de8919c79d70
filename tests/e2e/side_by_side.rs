//! The same twelve autoscalers and the same loads, once under the built-in
//! loop and once under ours: what comes of it must be equal.
//!
//! Compared is the state after each step, once it has come to rest, and in the
//! end the reasons of all events. The way to the rest is not: how many syncs
//! see a half started pod is a matter of luck with either program.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::looks::conditions;
use crate::metric_specs::{
    container_cpu, cpu_utilization, external, external_selected, ingress, memory_average, pods_average,
};
use crate::metrics::{EXTERNAL, Fault, Load, RESOURCE};
use crate::outcome::{Failure, Outcome, ensure};
use crate::stage::{Autoscaler, DOWNSCALE_WINDOW, Stage};
use crate::world::{APP, Container, World};

/// Name of the autoscaler and of its target, and the kind of the target.
const TWELVE: [(&str, &str); 12] = [
    ("absent", "Deployment"),
    ("behavior", "Deployment"),
    ("container", "Deployment"),
    ("cpu", "Deployment"),
    ("external", "Deployment"),
    ("memory", "StatefulSet"),
    ("object-average", "Deployment"),
    ("object-value", "Deployment"),
    ("partial", "Deployment"),
    ("pods", "Deployment"),
    ("requestless", "StatefulSet"),
    ("zero", "Deployment"),
];

/// One step of the sequence: its name and what it does to the loads.
type Step = (&'static str, fn(&World));

const STEPS: [Step; 6] = [
    ("calm", |world| loads(world, 100)),
    ("busy", |world| loads(world, 300)),
    ("metrics away", |world| {
        loads(world, 50);
        world.fault(RESOURCE, Some(Fault::AWAY));
        world.fault(EXTERNAL, Some(Fault::BROKEN));
    }),
    ("metrics back", |world| {
        loads(world, 200);
        world.fault(RESOURCE, None);
        world.fault(EXTERNAL, None);
    }),
    ("idle", |world| loads(world, 0)),
    ("busy again", |world| loads(world, 400)),
];

/// All loads, in percent of what the targets are met by with two replicas.
fn loads(world: &World, percent: i64) {
    for app in ["behavior", "cpu", "requestless"] {
        world.cpu(app, percent);
    }
    // Both programs fall silent after some twenty-five warnings about one object. This one fails in part all the
    // time, so all its reasons must come at once: it is below its target from the start, and on an API that stays.
    world.per_pod("partial", "requests", Load::Total(percent / 2, ""));
    world.usage("container", "app", "cpu", Load::Total(2 * percent, "m"));
    world.usage("container", "sidecar", "cpu", Load::Each(700, "m"));
    world.usage("memory", "app", "memory", Load::Total(2 * percent, "Mi"));
    world.per_pod("pods", "requests", Load::Total(percent, ""));
    let amount = percent.to_string();
    world.object("ingresses.networking.k8s.io", "main", "hits", &amount);
    world.external("jobs", &[&amount, "0"]);
    world.external("queue", &[&amount]);
}

/// After each step, the lines that describe each autoscaler.
pub(crate) type Trace = Vec<(&'static str, Vec<(String, Vec<String>)>)>;

/// Plays the sequence in a namespace of its own.
pub(crate) async fn trace(stage: &Stage, namespace: &str, which: Autoscaler) -> Outcome<Trace> {
    let began = Instant::now();
    let world = World::make(stage, namespace, which).await?;
    loads(&world, 100);
    workloads(&world).await?;
    let autoscaler = stage.autoscaler(which).await?;
    autoscalers(&world).await?;

    let mut states = Trace::new();
    for (name, change) in STEPS {
        change(&world);
        match rest(&world).await {
            Ok(at_rest) => states.push((name, at_rest)),
            Err(Failure(reason)) => {
                return Err(Failure(format!("{which:?}, {name}: {reason}\n{}", autoscaler.tail(30))));
            }
        }
    }
    let mut reasons = Vec::new();
    for (name, _) in TWELVE {
        let events = world.events(name).await?;
        let distinct: BTreeSet<String> = events.into_iter().map(|(reason, _)| reason).collect();
        reasons.push((name.to_owned(), distinct.into_iter().collect()));
    }
    states.push(("event reasons", reasons));
    // Nothing of this run may meet the next program; the loads change for it as well.
    for (name, _) in TWELVE {
        world.delete_hpa(name).await?;
    }
    drop(autoscaler);
    eprintln!("    ok {namespace}: {which:?} ({:.1} s)", began.elapsed().as_secs_f32());
    Ok(states)
}

async fn workloads(world: &World) -> Outcome {
    let all = TWELVE.map(async |(name, kind)| match name {
        "absent" => Ok(()),
        "container" => {
            let containers = [Container("app", "200m", ""), Container("sidecar", "", "")];
            world.deployment(name, 2, &containers).await
        }
        // One pod: with more, the built-in loop names any of them.
        "requestless" => world.stateful_set(name, 1, &[Container("app", "", "")]).await,
        _ if kind == "StatefulSet" => world.stateful_set(name, 2, APP).await,
        _ => world.deployment(name, 2, APP).await,
    });
    futures::future::try_join_all(all).await.map(drop)
}

async fn autoscalers(world: &World) -> Outcome {
    for (name, kind) in TWELVE {
        let metrics = match name {
            "container" => json!([container_cpu("app", 50)]),
            "external" => {
                json!([external_selected("queue", &json!({"queue": "main"}), "AverageValue", "50")])
            }
            "memory" => json!([memory_average("100Mi")]),
            "object-average" => json!([ingress("hits", "AverageValue", "50")]),
            "object-value" => json!([ingress("hits", "Value", "100")]),
            "partial" => json!([pods_average("requests", "50"), external("nowhere", "Value", "1")]),
            "pods" => json!([pods_average("requests", "50")]),
            "zero" => json!([external("jobs", "AverageValue", "50")]),
            _ => json!([cpu_utilization(50)]),
        };
        let mut spec = json!({"minReplicas": 1, "maxReplicas": 7, "metrics": metrics});
        if name == "zero" {
            spec["minReplicas"] = json!(0);
        }
        if name == "behavior" {
            spec["behavior"] = json!({
                "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 2}]},
                "scaleDown": {"stabilizationWindowSeconds": 2,
                    "policies": [{"type": "Percent", "value": 40, "periodSeconds": 2}]},
            });
        }
        world.hpa(name, ("apps/v1", kind, name), spec).await?;
    }
    Ok(())
}

/// Waits until nothing changes any more and says what it came to.
async fn rest(world: &World) -> Outcome<Vec<(String, Vec<String>)>> {
    // Longer than the window in which a scale-down is held back, and some periods on top.
    let calm = DOWNSCALE_WINDOW + Duration::from_secs(3);
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut state = look(world).await?;
    let mut since = Instant::now();
    while since.elapsed() < calm {
        ensure(Instant::now() < deadline, || format!("no rest, at the end {state:#?}"))?;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let now = look(world).await?;
        if now != state {
            (state, since) = (now, Instant::now());
        }
    }
    Ok(state)
}

async fn look(world: &World) -> Outcome<Vec<(String, Vec<String>)>> {
    let mut state = Vec::new();
    for (name, kind) in TWELVE {
        let hpa = world.api.get(&world.hpas(name)).await?;
        let target = if kind == "StatefulSet" { world.stateful_sets(name) } else { world.deployments(name) };
        let replicas =
            world.replicas(&target).await.map_or_else(|_| "none".to_owned(), |count| count.to_string());
        let status = &hpa["status"];
        let field = |name: &str| status.get(name).map_or_else(|| "absent".to_owned(), Value::to_string);
        let mut lines = vec![format!("target: {replicas} replicas")];
        for name in ["currentReplicas", "desiredReplicas", "observedGeneration", "currentMetrics"] {
            lines.push(format!("{name}: {}", field(name)));
        }
        lines.extend(conditions(&hpa));
        // The namespace is the one thing in these texts in which the two runs differ.
        let lines = lines.into_iter().map(|line| line.replace(&world.namespace, "NAMESPACE")).collect();
        state.push((name.to_owned(), lines));
    }
    Ok(state)
}

/// The one wanted difference: at no replicas the reference divides by zero and shows what comes of it, ours shows the
/// undivided total, which is 0 wherever these steps leave no replicas.
fn undivided(line: &str) -> String {
    line.replace("\"-9223372036854775808m\"", "\"0\"")
}

/// Names every difference.
pub(crate) fn compare(reference: &Trace, ours: &Trace) -> Outcome {
    let mut differences = Vec::new();
    let mut compared = 0;
    for ((step, expected), (_, got)) in reference.iter().zip(ours) {
        for ((name, expected), (_, got)) in expected.iter().zip(got) {
            compared += expected.len();
            let expected: &Vec<_> = &expected.iter().map(|line| undivided(line)).collect();
            if expected != got {
                let only = |one: &[String], other: &[String]| {
                    let lines = one.iter().filter(|line| !other.contains(line));
                    lines.fold(String::new(), |text, line| text + "\n    " + line)
                };
                let (expected, got) = (only(expected, got), only(got, expected));
                differences.push(format!("{step}, {name}:\n  built-in{expected}\n  ours{got}"));
            }
        }
    }
    ensure(compared > 500 && reference.len() == ours.len(), || {
        format!("only {compared} lines were compared")
    })?;
    ensure(differences.is_empty(), || {
        format!("{} differences in {compared} lines\n{}", differences.len(), differences.join("\n"))
    })?;
    eprintln!("{compared} lines equal, {} steps, {} autoscalers", STEPS.len(), TWELVE.len());
    Ok(())
}
