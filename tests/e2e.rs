//! End-to-end tests against a real control plane: etcd, API server and workload controllers. Concertina runs under the
//! role of the built-in autoscaler.
//!
//! `KUBEBUILDER_ASSETS` names the folder with the programs. Two tests need further programs, as their `ignore`
//! attributes state. These commands build the folder and run all tests:
//!
//! ```text
//! export KUBEBUILDER_ASSETS="$(tests/controlplane/build.sh)"
//! cargo test --profile quick --test e2e -- --ignored --test-threads=2 --nocapture
//! ```
//!
//! `.ci/run` skips tests with names that start with `long_`. `.ci/run --long` runs them.
//!
//! Further variables, for work on the tests themselves:
//! - `CONCERTINA_E2E_AUTOSCALER=built-in` runs the scenarios with the HPA controller of
//!   kube-controller-manager, which must pass them as well.
//! - `CONCERTINA_E2E_ONLY=text` runs the scenarios with a name that contains the text.
//! - `CONCERTINA_E2E_KEEP=1` keeps the folder with all logs.
//! - `CONCERTINA_BIN` names another `concertina` binary.

#![allow(
    clippy::indexing_slicing,
    reason = "tests index JSON only, where a missing field is null instead of a panic"
)]
#![allow(dead_code, reason = "tests/contract.rs shares the JSON client and uses the rest of it")]

#[path = "e2e/adapter.rs"]
mod adapter;
#[path = "e2e/assertions.rs"]
mod assertions;
#[path = "e2e/audit.rs"]
mod audit;
#[path = "e2e/controlplane.rs"]
mod controlplane;
#[path = "e2e/election.rs"]
mod election;
#[path = "e2e/extensions.rs"]
mod extensions;
#[path = "e2e/fault_scenarios.rs"]
mod fault_scenarios;
#[path = "e2e/handover.rs"]
mod handover;
#[path = "e2e/identity.rs"]
mod identity;
#[path = "e2e/keda.rs"]
mod keda;
#[path = "e2e/leader.rs"]
mod leader;
#[path = "e2e/metrics.rs"]
mod metrics;
#[path = "e2e/node.rs"]
mod node;
#[path = "e2e/outcome.rs"]
mod outcome;
#[path = "e2e/policies.rs"]
mod policies;
#[path = "e2e/reaction.rs"]
mod reaction;
#[path = "e2e/reaction_sources.rs"]
mod reaction_sources;
#[path = "e2e/replication.rs"]
mod replication;
#[path = "e2e/rest.rs"]
mod rest;
#[path = "e2e/serving.rs"]
mod serving;
#[path = "e2e/shadow.rs"]
mod shadow;
#[path = "e2e/side_by_side.rs"]
mod side_by_side;
#[path = "e2e/targets.rs"]
mod targets;
#[path = "e2e/why.rs"]
mod why;
#[path = "e2e/why_situations.rs"]
mod why_situations;
#[path = "e2e/workload_scenarios.rs"]
mod workload_scenarios;
#[path = "e2e/world.rs"]
mod world;

use std::pin::Pin;

use serde_json::json;
use tokio::time::Instant;

use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::world::{APP, Autoscaler, Fixture, SOON, World, cpu_utilization};

type Scenario = for<'w> fn(&'w World) -> Pin<Box<dyn Future<Output = Outcome> + 'w>>;

/// Each scenario runs in a namespace of the same name. All scenarios run at the same time.
const SCENARIOS: &[(&str, Scenario)] = &[
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
    ("behavior-limits-the-rate", |world| Box::pin(workload_scenarios::behavior_limits_the_rate(world))),
    ("behavior-stabilizes-upwards", |world| Box::pin(workload_scenarios::behavior_stabilizes_upwards(world))),
    ("to-zero-and-back", |world| Box::pin(workload_scenarios::to_zero_and_back(world))),
    ("one-of-two-metrics-fails", |world| Box::pin(workload_scenarios::one_of_two_metrics_fails(world))),
    ("bad-targets", |world| Box::pin(fault_scenarios::bad_targets(world))),
    ("metrics-fail-and-recover", |world| Box::pin(fault_scenarios::metrics_fail_and_recover(world))),
    ("two-autoscalers-on-one", |world| Box::pin(fault_scenarios::two_autoscalers_on_one_workload(world))),
    ("recreated-under-its-name", |world| Box::pin(fault_scenarios::recreated_under_its_name(world))),
];

/// The scenario that runs after all others, because it unregisters an API for every client of the API
/// server.
const LAST: &str = "metrics-api-unregistered";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn workloads_scale_under_the_built_in_role() -> Outcome {
    let autoscaler_kind = Autoscaler::under_test();
    let started = Instant::now();
    let stage = Fixture::start().await?;
    let mut autoscaler = stage.autoscaler(autoscaler_kind).await?;
    eprintln!("{autoscaler_kind:?} started after {:.1} s", started.elapsed().as_secs_f32());

    let only = std::env::var("CONCERTINA_E2E_ONLY").unwrap_or_default();
    let chosen = SCENARIOS.iter().filter(|(name, _)| name.contains(&only));
    let mut failures = Vec::new();
    let all = chosen.map(async |(name, scenario_fn)| {
        (*name, report(name, scenario(&stage, name, autoscaler_kind, *scenario_fn)).await)
    });
    for (name, outcome) in futures::future::join_all(all).await {
        failures.extend(outcome.err().map(|Failure(reason)| format!("{name}: {reason}")));
    }
    if LAST.contains(&only) {
        let outcome = report(LAST, async {
            let world = World::make(&stage, LAST, autoscaler_kind).await?;
            fault_scenarios::metrics_api_is_unregistered(&stage, &world).await?;
            world.close().await
        });
        failures.extend(outcome.await.err().map(|Failure(reason)| format!("{LAST}: {reason}")));
    }

    failures.extend(autoscaler.still_runs().err().map(|Failure(reason)| reason));
    match audit::check(&stage.plane.audit_log()?) {
        Ok(summary) if summary.writes == 0 => failures.push("the audit log contains no writes".to_owned()),
        Ok(summary) => {
            eprintln!("{} requests, {} of them writes, none refused", summary.requests, summary.writes);
        }
        Err(Failure(reason)) => failures.push(reason),
    }
    eprintln!("finished in {:.1} s", started.elapsed().as_secs_f32());
    if failures.is_empty() {
        return Ok(());
    }
    let logs = format!("{}{}", autoscaler.tail(40), stage.plane.tails());
    Err(Failure(format!("{} failed\n\n{}\n\n{logs}", failures.len(), failures.join("\n\n"))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn both_autoscalers_produce_the_same_results() -> Outcome {
    let stage = Fixture::start().await?;
    let reference = side_by_side::trace(&stage, "reference", Autoscaler::BuiltIn).await?;
    let ours = side_by_side::trace(&stage, "ours", Autoscaler::under_test()).await?;
    side_by_side::compare(&reference, &ours)
}

/// Reads the audit log of the API server, the only complete record of writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn dry_run_reads_and_writes_nothing() -> Outcome {
    let stage = Fixture::start().await?;
    let world = World::make(&stage, "dry-run", Autoscaler::Concertina).await?;
    world.deployment("web", 1, APP).await?;
    world.cpu("web", 400);
    let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    let mut autoscaler = stage.autoscaler_with(Autoscaler::Concertina, &["--dry-run"]).await?;
    // A sync reads the metrics last, immediately before its decision. Five reads mean five decisions.
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
async fn why_predicts_the_next_decision_of_the_controller() -> Outcome {
    why::predicts(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn why_explains_decisions_that_depend_on_history() -> Outcome {
    let stage = Fixture::start().await?;
    why::explains_history(&stage).await?;
    why::names_forbidden_reads(&stage).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn only_the_leader_writes_under_every_fault() -> Outcome {
    election::only_one_writes(Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn windows_and_rates_survive_a_failover() -> Outcome {
    replication::survives_a_failover(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn console_shows_the_changes_of_the_leader() -> Outcome {
    leader::shows_changes_of_the_leader(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn why_reads_the_leader_through_a_port_forward() -> Outcome {
    leader::reads_the_leaders_record(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn shadow_of_the_built_in_controller_finds_no_difference() -> Outcome {
    shadow::finds_no_difference(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn rolling_update_and_rollback_write_nothing_wrong() -> Outcome {
    replication::rolls(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn webhook_hands_a_labelled_hpa_over_and_back() -> Outcome {
    handover::webhook(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn policies_hand_a_labelled_hpa_over_until_the_label_is_removed() -> Outcome {
    handover::policy(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn labelled_hpa_has_one_writer_while_replicas_end_and_die() -> Outcome {
    handover::replicas_end_die_and_return(&mut Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn labelled_hpas_with_unusual_targets_have_one_writer() -> Outcome {
    handover::labels_and_targets(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn deleted_binding_is_reported_and_contested() -> Outcome {
    handover::deleted_binding(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn long_broken_webhook_is_reported_and_contested() -> Outcome {
    handover::broken_webhook(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn long_labelled_hpa_has_one_writer_after_an_outage_of_the_api_server() -> Outcome {
    handover::api_server_is_away(&mut Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS and CONCERTINA_KEDA: run tests/controlplane/build.sh and tests/keda/build.sh"]
async fn long_scaled_object_of_keda_is_handed_over_and_back() -> Outcome {
    handover::scaled_object(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS and CONCERTINA_KEDA: run tests/controlplane/build.sh and tests/keda/build.sh"]
async fn long_scaled_objects_of_keda_have_the_same_states_beside_both_controllers() -> Outcome {
    keda::are_equal_beside_both_controllers(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn hpa_follows_the_kubelet_of_its_pod() -> Outcome {
    policies::adapters::is_followed(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS, PROMETHEUS and PROMTOOL: run tests/controlplane/build.sh and tests/prometheus/build.sh"]
async fn long_floor_comes_from_the_past_of_prometheus() -> Outcome {
    policies::forecasts::come_from_prometheus(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS and PROMETHEUS: run tests/controlplane/build.sh and tests/prometheus/build.sh"]
async fn long_reaction_to_steps_in_load_is_measured() -> Outcome {
    reaction::to_steps_in_load(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn long_cost_of_a_refused_loop_is_measured_and_none_of_its_writes_pass() -> Outcome {
    handover::refused_loop(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn long_unreachable_webhook_does_not_delay_statuses_out_of_scope() -> Outcome {
    handover::unreachable::webhook(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn replica_waits_for_the_built_in_controller_and_takes_over() -> Outcome {
    shadow::waits_and_takes_over(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn rate_limits_survive_restarts_with_and_without_a_checkpoint() -> Outcome {
    replication::rates_hold(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn each_field_of_scaling_policies_has_its_effect() -> Outcome {
    policies::fields(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn definitions_of_an_older_release_have_the_effect_that_they_know() -> Outcome {
    policies::older_kinds(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn long_kinds_of_scaling_policies_are_found_after_their_creation() -> Outcome {
    policies::absent_kinds(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn printed_roles_are_sufficient_and_minimal() -> Outcome {
    identity::roles(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn steady_syncs_take_scales_from_watched_targets() -> Outcome {
    targets::steady_syncs_use_watched_scales(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn secure_port_serves_each_client_what_rbac_allows() -> Outcome {
    serving::clients_see_what_rbac_allows(&Fixture::start().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs KUBEBUILDER_ASSETS: run tests/controlplane/build.sh"]
async fn shadow_of_the_built_in_controller_finds_a_seeded_difference() -> Outcome {
    shadow::finds_a_seeded_difference(&Fixture::start().await?).await
}

async fn scenario(
    stage: &Fixture,
    name: &str,
    autoscaler_kind: Autoscaler,
    scenario_fn: Scenario,
) -> Outcome {
    let world = World::make(stage, name, autoscaler_kind).await?;
    scenario_fn(&world).await?;
    world.close().await
}

/// Runs a scenario, and prints its result and its duration.
async fn report(name: &str, scenario: impl Future<Output = Outcome>) -> Outcome {
    let started = Instant::now();
    let outcome = scenario.await;
    let word = if outcome.is_ok() { "ok" } else { "FAILED" };
    eprintln!("{word:>6} {name} ({:.1} s)", started.elapsed().as_secs_f32());
    outcome
}
