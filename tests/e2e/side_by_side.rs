//! Runs the same twelve HPAs with the same loads once under the built-in controller and once under Concertina. The
//! results must be equal, except for one intended difference.
//!
//! The comparison covers the stable state after each step, and at the end the reasons of all events. It does not cover
//! the transitions, because the number of syncs that observe a starting pod depends on timing.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::metrics::{EXTERNAL, Fault, Load, RESOURCE};
use crate::outcome::{Failure, Outcome, ensure};
use crate::rest::conditions;
use crate::world::{
    APP, Autoscaler, Container, DOWNSCALE_WINDOW, Fixture, World, container_cpu, cpu_utilization, external,
    external_selected, ingress, memory_average, pods_average,
};

/// The name of each HPA and its target, and the kind of the target.
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

/// One step of the sequence: its name and its change of the loads.
type Step = (&'static str, fn(&World));

const STEPS: [Step; 6] = [
    ("calm", |world| loads(world, 100)),
    ("busy", |world| loads(world, 300)),
    ("metrics unavailable", |world| {
        loads(world, 50);
        world.fault(RESOURCE, Some(Fault::UNAVAILABLE));
        world.fault(EXTERNAL, Some(Fault::BROKEN));
    }),
    ("metrics recovered", |world| {
        loads(world, 200);
        world.fault(RESOURCE, None);
        world.fault(EXTERNAL, None);
    }),
    ("idle", |world| loads(world, 0)),
    ("busy again", |world| loads(world, 400)),
];

/// Sets all loads, in percent of the load at which two replicas meet the targets.
fn loads(world: &World, percent: i64) {
    for app in ["behavior", "cpu", "requestless"] {
        world.cpu(app, percent);
    }
    // Both programs limit the events about one object to about 25. One metric of the HPA `partial` fails at every sync,
    // so all reasons must occur at the start. Its valid metric is therefore always below the target and available.
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

/// The lines that describe each HPA after each step.
pub(crate) type Trace = Vec<(&'static str, Vec<(String, Vec<String>)>)>;

/// Runs the sequence in its own namespace.
pub(crate) async fn trace(stage: &Fixture, namespace: &str, autoscaler_kind: Autoscaler) -> Outcome<Trace> {
    let started = Instant::now();
    let world = World::make(stage, namespace, autoscaler_kind).await?;
    loads(&world, 100);
    workloads(&world).await?;
    let autoscaler = stage.autoscaler(autoscaler_kind).await?;
    autoscalers(&world).await?;

    let mut trace = Trace::new();
    for (name, change) in STEPS {
        change(&world);
        match stable_state(&world).await {
            Ok(lines) => trace.push((name, lines)),
            Err(Failure(reason)) => {
                return Err(Failure(format!(
                    "{autoscaler_kind:?}, {name}: {reason}\n{}",
                    autoscaler.tail(30)
                )));
            }
        }
    }
    let mut reasons = Vec::new();
    for (name, _) in TWELVE {
        let events = world.events(name).await?;
        let distinct: BTreeSet<String> = events.into_iter().map(|(reason, _)| reason).collect();
        reasons.push((name.to_owned(), distinct.into_iter().collect()));
    }
    trace.push(("event reasons", reasons));
    // The next program must not scale the HPAs of this run.
    for (name, _) in TWELVE {
        world.delete_hpa(name).await?;
    }
    drop(autoscaler);
    eprintln!("    ok {namespace}: {autoscaler_kind:?} ({:.1} s)", started.elapsed().as_secs_f32());
    Ok(trace)
}

async fn workloads(world: &World) -> Outcome {
    let all = TWELVE.map(async |(name, kind)| match name {
        "absent" => Ok(()),
        "container" => {
            let containers = [Container("app", "200m", ""), Container("sidecar", "", "")];
            world.deployment(name, 2, &containers).await
        }
        // With more than one pod, the built-in controller names any of them in its message.
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

/// Waits until the state is stable and returns it.
async fn stable_state(world: &World) -> Outcome<Vec<(String, Vec<String>)>> {
    // The quiet time is the scale-down stabilization window plus some sync periods.
    let quiet = DOWNSCALE_WINDOW + Duration::from_secs(3);
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut state = read_state(world).await?;
    let mut since = Instant::now();
    while since.elapsed() < quiet {
        ensure(Instant::now() < deadline, || format!("the state did not become stable; last {state:#?}"))?;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let now = read_state(world).await?;
        if now != state {
            (state, since) = (now, Instant::now());
        }
    }
    Ok(state)
}

async fn read_state(world: &World) -> Outcome<Vec<(String, Vec<String>)>> {
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
        // The namespace is the only part of the texts that differs between the two runs.
        let lines = lines.into_iter().map(|line| line.replace(&world.namespace, "NAMESPACE")).collect();
        state.push((name.to_owned(), lines));
    }
    Ok(state)
}

/// Removes the one intended difference. At zero replicas, kube-controller-manager divides a total by zero and shows the
/// result. Concertina shows the total, which is 0 in every step without replicas.
fn undivided(line: &str) -> String {
    line.replace("\"-9223372036854775808m\"", "\"0\"")
}

/// Compares two traces. The failure lists every difference.
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
