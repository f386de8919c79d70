//! The scenarios of the scaling policies show the figures that their guide states.

use std::path::Path;
use std::time::Duration;

use concertina::tools::PROCESS;
use toolbox::simulate::run::{Comparison, HpaRun};
use toolbox::simulate::simulate;

use crate::{options, run_scenario};

/// The scenario of an example, with and without its policy.
fn example(name: &str) -> Comparison {
    let path = format!("examples/policies/scenarios/{name}.yaml");
    let comparison = simulate(&options(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)), PROCESS);
    comparison.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The HPA with the policy, and without it.
fn pair(comparison: &Comparison) -> (&HpaRun, &HpaRun) {
    let variants: Vec<_> = comparison.runs.iter().map(|run| run.variant.as_str()).collect();
    assert_eq!(variants, ["with policy", "without policy"]);
    let (with, without) = (&comparison.runs[0].hpas[0], &comparison.runs[1].hpas[0]);
    assert!(without.policies.is_empty() && without.decisions.iter().all(|it| it.policy.is_none()));
    (with, without)
}

fn wanted(hpa: &HpaRun, minute: u64) -> i32 {
    hpa.samples.iter().find(|sample| sample.at == Duration::from_mins(minute)).unwrap().wanted
}

/// The periods in minutes in which a reason had an effect.
fn periods(hpa: &HpaRun, reason: &str) -> Vec<(u64, u64)> {
    let of = hpa.policies.iter().filter(|span| span.reason.as_str() == reason);
    of.map(|span| (span.from.as_secs() / 60, span.to.as_secs() / 60)).collect()
}

#[test]
fn sale_begins_with_enough_pods() {
    let comparison = example("sale-weekend");
    let (with, without) = pair(&comparison);
    assert_eq!([119, 120, 180].map(|minute| wanted(with, minute)), [7, 30, 50]);
    assert_eq!([119, 120, 180].map(|minute| wanted(without, minute)), [7, 7, 8]);
    assert_eq!((with.scores.peak, without.scores.peak), (120, 130));
    assert!(with.scores.unserved < 1.0 && without.scores.unserved > 100.0);
    assert_eq!(periods(with, "ScheduleActive"), [(120, 180), (180, 960), (180, 960)]);
}

#[test]
fn each_office_opens_with_its_floor() {
    let comparison = example("office-hours");
    let (with, without) = pair(&comparison);
    assert_eq!([119, 120, 780, 1139].map(|minute| wanted(with, minute)), [2, 10, 6, 6]);
    assert_eq!(wanted(without, 120), 2);
    assert!(without.scores.unserved > 3.0 * with.scores.unserved);
    assert_eq!(periods(with, "ScheduleActive"), [(120, 780), (780, 1140)]);
}

#[test]
fn fallback_replaces_the_adapter_two_minutes_after_its_failure() {
    let comparison = example("adapter-outage");
    let (with, without) = pair(&comparison);
    assert_eq!([21, 23, 44].map(|minute| wanted(with, minute)), [5, 12, 12]);
    assert_eq!([21, 23, 44].map(|minute| wanted(without, minute)), [5, 5, 5]);
    assert_eq!(periods(with, "FallbackActive"), [(22, 45)]);
    assert!(with.scores.unserved_fraction < 0.001 && without.scores.unserved_fraction > 0.09);
}

#[test]
fn pods_that_wait_for_gpus_are_not_multiplied() {
    let comparison = example("pending-gpu-pods");
    let (with, without) = pair(&comparison);
    assert_eq!((with.scores.peak, without.scores.peak), (22, 40));
    assert_eq!([20, 30, 45].map(|minute| wanted(with, minute)), [6, 10, 14]);
    assert!(with.scores.pod_hours < 0.6 * without.scores.pod_hours);
    let held = periods(with, "PendingPods");
    assert_eq!(held.first(), Some(&(11, 26)));
}

#[test]
fn bad_version_is_not_multiplied() {
    let comparison = example("bad-rollout");
    let (with, without) = pair(&comparison);
    assert_eq!([12, 39].map(|minute| wanted(with, minute)), [12, 12]);
    assert_eq!([12, 39].map(|minute| wanted(without, minute)), [12, 58]);
    assert_eq!((with.scores.peak, without.scores.peak), (60, 90));
    assert_eq!(periods(with, "RolloutInProgress"), [(16, 40)]);
}

#[test]
fn pause_ends_at_its_time() {
    let comparison = example("pause-with-expiry");
    let (with, without) = pair(&comparison);
    assert_eq!([0, 119, 120, 130].map(|minute| wanted(with, minute)), [6, 6, 12, 15]);
    assert_eq!(wanted(without, 119), 13);
    assert_eq!(periods(with, "Paused"), [(0, 120)]);
    let withheld = with.samples.iter().find(|sample| sample.at == Duration::from_mins(110)).unwrap();
    assert!(withheld.withheld > Some(6), "{withheld:?}");
}

#[test]
fn vanished_queue_ends_after_ten_minutes() {
    let comparison = example("vanished-queue");
    let (with, without) = pair(&comparison);
    assert_eq!([39, 41, 89].map(|minute| wanted(with, minute)), [12, 2, 2]);
    assert_eq!(wanted(without, 89), 12);
    assert_eq!(periods(with, "FallbackActive"), [(40, 90)]);
}

#[test]
fn sidecars_without_requests_do_not_stop_the_hpa() {
    let comparison = example("sidecars");
    let (with, without) = pair(&comparison);
    assert_eq!((wanted(with, 74), wanted(without, 74)), (13, 3));
    assert_eq!(without.scores.rescales, 0);
    assert!(without.scores.unserved_fraction > 0.4 && with.scores.unserved_fraction < 0.001);
}

/// A scenario with a policy object.
fn with_object(policy: &str) -> String {
    format!(
        "duration: 10m
hpas:
  - metadata: {{name: web, labels: {{team: shop}}}}
    spec:
      scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
      maxReplicas: 10
      metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}}}]
load: [{{cpu: 100m}}]
policies:
  - {policy}
"
    )
}

#[test]
fn policy_objects_apply_by_their_selector() {
    for (kind, team, expected) in
        [("ScalingPolicy", "shop", 4), ("ClusterScalingPolicy", "shop", 4), ("ScalingPolicy", "other", 1)]
    {
        let policy = format!(
            "{{apiVersion: autoscaling.concertina.dev/v1alpha1, kind: {kind}, metadata: {{name: p}}, \
             spec: {{selector: {{matchLabels: {{team: {team}}}}}, mode: Pinned, replicas: 4}}}}"
        );
        let comparison = run_scenario("policy-object.yaml", &with_object(&policy));
        let (with, without) = pair(&comparison);
        assert_eq!((wanted(with, 5), wanted(without, 5)), (expected, 1), "{kind} {team}");
    }
}

#[test]
fn list_of_policies_accepts_only_policies() {
    let path = crate::file("policy-kind.yaml", &with_object("{kind: ConfigMap, metadata: {name: p}}"));
    let error = simulate(&options(&path), PROCESS).unwrap_err().to_string();
    assert!(error.contains("policies[0]: expected a ScalingPolicy or ClusterScalingPolicy"), "{error}");
}
