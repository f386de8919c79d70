//! The autoscaler against a real control plane: real etcd, real API server,
//! real workload controllers, under the role that the built-in autoscaler has.
//!
//! `KUBEBUILDER_ASSETS` names the folder with the programs; this makes one and
//! runs everything:
//!
//! ```text
//! export KUBEBUILDER_ASSETS="$(tests/controlplane/build.sh)"
//! cargo test --release --test e2e -- --ignored --test-threads=1 --nocapture
//! ```
//!
//! Further variables, for work on the tests themselves:
//! `CONCERTINA_E2E_AUTOSCALER=built-in` plays the scenarios with the loop of
//! kube-controller-manager, which they must fit as well;
//! `CONCERTINA_E2E_ONLY=text` plays those whose name contains the text;
//! `CONCERTINA_E2E_KEEP=1` keeps the folder with all logs; `CONCERTINA_BIN`
//! names another binary of ours.

#![allow(
    clippy::indexing_slicing,
    reason = "only JSON is indexed, where a missing field is null and no panic"
)]
#![allow(
    dead_code,
    reason = "the plain JSON client is shared with tests/contract.rs, which uses the rest of it"
)]

#[path = "e2e/adapter.rs"]
mod adapter;
#[path = "e2e/aggregation.rs"]
mod aggregation;
#[path = "e2e/assets.rs"]
mod assets;
#[path = "e2e/audit.rs"]
mod audit;
#[path = "e2e/clock.rs"]
mod clock;
#[path = "e2e/controlplane.rs"]
mod controlplane;
#[path = "e2e/election.rs"]
mod election;
#[path = "e2e/fault_scenarios.rs"]
mod fault_scenarios;
#[path = "e2e/forward.rs"]
mod forward;
#[path = "e2e/identity.rs"]
mod identity;
#[path = "e2e/kubelet.rs"]
mod kubelet;
#[path = "e2e/looks.rs"]
mod looks;
#[path = "e2e/metric_specs.rs"]
mod metric_specs;
#[path = "e2e/metrics.rs"]
mod metrics;
#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "e2e/process.rs"]
mod process;
#[path = "e2e/replication.rs"]
mod replication;
#[path = "e2e/rest.rs"]
mod rest;
#[path = "e2e/restart.rs"]
mod restart;
#[path = "e2e/rule_scenarios.rs"]
mod rule_scenarios;
#[path = "e2e/serving.rs"]
mod serving;
#[path = "e2e/shadow.rs"]
mod shadow;
#[path = "e2e/side_by_side.rs"]
mod side_by_side;
#[path = "e2e/stage.rs"]
mod stage;
#[path = "e2e/takeover.rs"]
mod takeover;
#[path = "e2e/targets.rs"]
mod targets;
#[path = "e2e/upgrade.rs"]
mod upgrade;
#[path = "e2e/why.rs"]
mod why;
#[path = "e2e/why_situations.rs"]
mod why_situations;
#[path = "e2e/widgets.rs"]
mod widgets;
#[path = "e2e/workload_scenarios.rs"]
mod workload_scenarios;
#[path = "e2e/world.rs"]
mod world;

use std::pin::Pin;

use serde_json::json;
use tokio::time::Instant;

use crate::metric_specs::cpu_utilization;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::stage::{Autoscaler, Stage};
use crate::world::{APP, SOON, World};

type Play = for<'w> fn(&'w World) -> Pin<Box<dyn Future<Output = Outcome> + 'w>>;

/// Each in a namespace of its own, all at the same time. The name is the namespace.
const SCENARIOS: &[(&str, Play)] = &[
    ("deployment-on-cpu", |world| Box::pin(workload_scenarios::deployment_on_cpu(world))),
    ("statefulset-on-memory", |world| Box::pin(workload_scenarios::stateful_set_on_memory(world))),
    ("custom-resource-on-external-metric", |world| {
        Box::pin(workload_scenarios::custom_resource_on_external_metric(world))
    }),
    ("deployment-on-pods-metric", |world| Box::pin(workload_scenarios::deployment_on_a_pods_metric(world))),
    ("deployment-on-object-metric", |world| {
        Box::pin(workload_scenarios::deployment_on_an_object_metric(world))
    }),
    ("deployment-on-one-container", |world| Box::pin(workload_scenarios::deployment_on_one_container(world))),
    ("behavior-limits-the-rate", |world| Box::pin(rule_scenarios::behavior_limits_the_rate(world))),
    ("behavior-stabilizes-upwards", |world| Box::pin(rule_scenarios::behavior_stabilizes_upwards(world))),
    ("to-zero-and-back", |world| Box::pin(rule_scenarios::to_zero_and_back(world))),
    ("one-of-two-metrics-fails", |world| Box::pin(rule_scenarios::one_of_two_metrics_fails(world))),
    ("bad-targets", |world| Box::pin(fault_scenarios::bad_targets(world))),
    ("metrics-away-and-back", |world| Box::pin(fault_scenarios::metrics_go_away_and_come_back(world))),
    ("two-autoscalers-on-one", |world| Box::pin(fault_scenarios::two_autoscalers_on_one_workload(world))),
    ("recreated-under-its-name", |world| Box::pin(fault_scenarios::recreated_under_its_name(world))),
];

/// The last one takes an API away from everybody, so it runs when the others are done.
const LAST: &str = "metrics-api-unregistered";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn workloads_scale_under_the_built_in_role() -> Outcome {
    let which = Autoscaler::under_test();
    let began = Instant::now();
    let stage = Stage::set().await?;
    let mut autoscaler = stage.autoscaler(which).await?;
    eprintln!("{which:?} runs after {:.1} s", began.elapsed().as_secs_f32());

    let only = std::env::var("CONCERTINA_E2E_ONLY").unwrap_or_default();
    let chosen = SCENARIOS.iter().filter(|(name, _)| name.contains(&only));
    let mut failures = Vec::new();
    let all =
        chosen.map(async |(name, play)| (*name, report(name, scenario(&stage, name, which, *play)).await));
    for (name, outcome) in futures::future::join_all(all).await {
        failures.extend(outcome.err().map(|Failure(reason)| format!("{name}: {reason}")));
    }
    if LAST.contains(&only) {
        let outcome = report(LAST, async {
            let world = World::make(&stage, LAST, which).await?;
            fault_scenarios::metrics_api_is_unregistered(&stage, &world).await?;
            world.close().await
        });
        failures.extend(outcome.await.err().map(|Failure(reason)| format!("{LAST}: {reason}")));
    }

    failures.extend(autoscaler.still_runs().err().map(|Failure(reason)| reason));
    match audit::check(&stage.plane.audit_log()?) {
        Ok(summary) if summary.writes == 0 => failures.push("the audit log shows no writes".to_owned()),
        Ok(summary) => {
            eprintln!("{} requests, {} of them writes, none refused", summary.requests, summary.writes);
        }
        Err(Failure(reason)) => failures.push(reason),
    }
    eprintln!("all in {:.1} s", began.elapsed().as_secs_f32());
    if failures.is_empty() {
        return Ok(());
    }
    let logs = format!("{}{}", autoscaler.tail(40), stage.plane.tails());
    Err(Failure(format!("{} failed\n\n{}\n\n{logs}", failures.len(), failures.join("\n\n"))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn both_autoscalers_bring_about_the_same() -> Outcome {
    let stage = Stage::set().await?;
    let reference = side_by_side::trace(&stage, "reference", Autoscaler::BuiltIn).await?;
    let ours = side_by_side::trace(&stage, "ours", Autoscaler::under_test()).await?;
    side_by_side::compare(&reference, &ours)
}

/// Only the API server can say what was written, and its log is what is read here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn a_dry_run_reads_everything_and_writes_nothing() -> Outcome {
    let stage = Stage::set().await?;
    let world = World::make(&stage, "dry-run", Autoscaler::Concertina).await?;
    world.deployment("web", 1, APP).await?;
    world.cpu("web", 400);
    let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    let mut autoscaler = stage.autoscaler_with(Autoscaler::Concertina, &["--dry-run"]).await?;
    // Reading the metrics is the last thing before a decision; five times is five decisions.
    eventually(SOON, "five syncs", async || {
        autoscaler.still_runs()?;
        let log = stage.plane.audit_log()?;
        let reads =
            log.lines().filter(|line| line.contains("/apis/metrics.k8s.io/v1beta1/namespaces/dry-run/pods"));
        let reads = reads.count();
        ensure(reads >= 5, || format!("{reads} reads of the metrics"))
    })
    .await
    .context(autoscaler.tail(40))?;
    let summary = audit::check(&stage.plane.audit_log()?)?;
    ensure(summary.writes == 0, || format!("a dry run sent {} writes", summary.writes))?;
    let replicas = world.replicas(&world.deployments("web")).await?;
    ensure(replicas == 1, || format!("a dry run scaled to {replicas}"))?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn why_foretells_what_the_controller_does() -> Outcome {
    why::foretells(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn why_explains_what_depends_on_the_past() -> Outcome {
    let stage = Stage::set().await?;
    why::explains_a_past(&stage).await?;
    why::names_what_it_may_not_read(&stage).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn one_of_several_replicas_writes_whatever_happens() -> Outcome {
    election::one_writes(Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn windows_and_rates_outlive_the_leader() -> Outcome {
    replication::outlives_the_leader(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn why_asks_the_leader_by_port_forward() -> Outcome {
    forward::tells_what_the_leader_remembers(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn a_shadow_of_the_built_in_loop_finds_no_difference() -> Outcome {
    shadow::finds_no_difference(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn a_rolling_update_and_back_writes_nothing_wrong() -> Outcome {
    upgrade::rolls(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn the_built_in_loop_is_waited_for_and_taken_over_from() -> Outcome {
    takeover::waits_and_takes_over(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn rates_hold_over_restarts_with_and_without_a_checkpoint() -> Outcome {
    restart::rates_hold(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn the_roles_that_are_printed_are_enough_and_not_too_much() -> Outcome {
    identity::roles(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn targets_tell_their_scales_and_steady_syncs_do_not_ask() -> Outcome {
    targets::tell_their_scales(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn everybody_sees_what_he_may_of_the_secure_port() -> Outcome {
    serving::everybody_sees_his_own(&Stage::set().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn a_shadow_of_the_built_in_loop_finds_a_planted_difference() -> Outcome {
    shadow::finds_a_planted_difference(&Stage::set().await?).await
}

async fn scenario(stage: &Stage, name: &str, which: Autoscaler, play: Play) -> Outcome {
    let world = World::make(stage, name, which).await?;
    play(&world).await?;
    world.close().await
}

/// One line per scenario, as it ends.
async fn report(name: &str, scenario: impl Future<Output = Outcome>) -> Outcome {
    let began = Instant::now();
    let outcome = scenario.await;
    let word = if outcome.is_ok() { "ok" } else { "FAILED" };
    eprintln!("{word:>6} {name} ({:.1} s)", began.elapsed().as_secs_f32());
    outcome
}
