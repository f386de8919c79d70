//! Checks the claims of the examples, and the figures in the guide of the scaling policies.

use std::path::Path;
use std::time::Duration;

use simulate::run::{Comparison, HpaRun, Sample, Scores};
use simulate::simulate;

use crate::{file, options, run_scenario};

const fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

/// Runs an example with settings and sweeps.
fn example(name: &str, set: &[&str], sweep: &[&str]) -> Comparison {
    let mut options = options(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.yaml")));
    options.set = set.iter().map(|text| text.parse().unwrap()).collect();
    options.sweep = sweep.iter().map(|text| text.parse().unwrap()).collect();
    simulate(&options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn scores<const N: usize>(comparison: &Comparison) -> [&Scores; N] {
    let scores: Vec<_> = comparison.runs.iter().map(|run| &run.hpas[0].scores).collect();
    scores.try_into().unwrap()
}

/// Returns the sentences of the decisions from one minute to another.
fn sentences(hpa: &HpaRun, from: u64, to: u64) -> Vec<&str> {
    let within = |at: Duration| at >= minutes(from) && at < minutes(to);
    let decisions = hpa.decisions.iter().filter(|decision| within(decision.at));
    decisions.map(|decision| decision.sentence.as_str()).collect()
}

/// Returns the sample of the sync in the period that starts at a minute.
fn sample(hpa: &HpaRun, minute: u64) -> &Sample {
    let end = minutes(minute) + Duration::from_secs(15);
    hpa.samples.iter().rfind(|sample| sample.at < end).unwrap()
}

fn wanted(hpa: &HpaRun, minute: u64) -> i32 {
    sample(hpa, minute).wanted
}

#[test]
fn examples_have_two_or_three_comment_lines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut examples = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let comments = text.lines().take_while(|line| line.starts_with("# ")).count();
            assert!((2..=3).contains(&comments), "{}", path.display());
            examples += 1;
        }
    }
    assert!(examples >= 8);
}

#[test]
fn no_source_loses_more_than_the_one_before() {
    let comparison = example("sources", &[], &[]);
    let names: Vec<_> = comparison.runs.iter().map(|run| run.variant.as_str()).collect();
    assert_eq!(
        names,
        ["Prometheus 15s", "metrics-server 10s + 15s", "Prometheus 5s, sync 5s", "pods 1s, sync 1s"]
    );
    let scores = scores::<4>(&comparison).map(|scores| (scores.unserved, scores.peak));
    // Two sources that show the step to the same sync lose the same, except for the duration of the sync.
    assert!(scores.iter().is_sorted_by(|before, after| before.0 > 0.99 * after.0), "{scores:?}");
    assert!(scores[2].0 < 0.5 * scores[1].0 && scores[3].0 < 0.6 * scores[2].0, "{scores:?}");
    // A variant of the command line runs with each source.
    let sweep = "spec.minReplicas=4,8";
    let comparison = example("sources", &[], &[sweep]);
    assert_eq!(comparison.runs.len(), 8);
    assert_eq!(comparison.runs[5].variant, "minReplicas=8, metrics-server 10s + 15s");
}

#[test]
fn shorter_window_saves_pods_and_costs_rescales() {
    let sweep = "spec.behavior.scaleDown.stabilizationWindowSeconds=300,60";
    let comparison = example("scale-down-window", &[], &[sweep]);
    let [long, short] = scores(&comparison);
    assert!(short.pod_hours < long.pod_hours * 0.8, "{short:?}, {long:?}");
    assert!(short.rescales > long.rescales * 10 && short.above_target > long.above_target * 10);
}

#[test]
fn queue_is_served_and_workers_scale_to_zero() {
    let comparison = example("queue-to-zero", &[], &["duration=30m"]);
    let hpa = &comparison.runs[0].hpas[0];
    assert_eq!((wanted(hpa, 4), wanted(hpa, 15), wanted(hpa, 23)), (1, 0, 0));
    assert!(wanted(hpa, 7) >= 25);
}

#[test]
fn slow_starts_overshoot() {
    let comparison = example("cold-start", &[], &["workloads.encoder.startup=5s,45s,3m"]);
    let [fast, slow, slowest] = scores(&comparison);
    assert!(
        fast.peak < 20 && slow.peak > 25 && slowest.peak == 60,
        "{} {} {}",
        fast.peak,
        slow.peak,
        slowest.peak
    );
    assert!(slowest.unserved > fast.unserved * 5.0);
}

#[test]
fn initialization_period_ignores_start_up_cpu() {
    let sweep = "flags.horizontal-pod-autoscaler-cpu-initialization-period=5m,0s";
    let comparison = example("rollout", &[], &[sweep]);
    let [calm, misled] = scores(&comparison);
    assert_eq!((calm.rescales, calm.peak), (0, 20));
    assert!(misled.rescales >= 3 && misled.peak > 22, "{misled:?}");
}

#[test]
fn scaling_stops_while_metrics_are_missing() {
    let comparison = example("metrics-outage", &[], &[]);
    let hpa = &comparison.runs[0].hpas[0];
    assert_eq!(wanted(hpa, 25), wanted(hpa, 39));
    assert!(wanted(hpa, 41) >= 2 * wanted(hpa, 39));
    let [scores] = scores(&comparison);
    assert!(scores.unserved_fraction > 0.0);
}

#[test]
fn tolerance_ignores_a_rise_of_9_percent() {
    let comparison = example("tolerance", &[], &["flags.horizontal-pod-autoscaler-tolerance=0.1,0.05,0.01"]);
    let [wide, narrow, narrowest] = scores(&comparison);
    assert_eq!((wide.rescales, wide.peak), (0, 50));
    assert!(narrow.peak >= 53 && narrowest.rescales > narrow.rescales);
}

#[test]
fn failed_metric_stops_scaling_down_but_not_up() {
    let comparison = example("two-metrics", &[], &[]);
    let hpa = &comparison.runs[0].hpas[0];
    assert_eq!(wanted(hpa, 31), wanted(hpa, 45), "traffic fell");
    assert!(sentences(hpa, 30, 45).iter().any(|sentence| sentence.contains("nothing is scaled down while")));
    assert!(wanted(hpa, 59) > wanted(hpa, 45), "traffic rose");
}

#[test]
fn policies_keep_pods_for_the_next_spike() {
    let comparison = example("spikes", &["spec.behavior={}"], &[]);
    let [with, without] = scores(&comparison);
    assert!(with.unserved < without.unserved && with.above_target < without.above_target);
    assert!(with.pod_hours > without.pod_hours);
}

#[test]
fn crashing_pods_cause_no_scale_up() {
    let comparison = example("crash-loop", &[], &[]);
    let hpa = &comparison.runs[0].hpas[0];
    assert_eq!(hpa.scores.rescales, 0);
    assert!(hpa.samples[15 * 4].ready <= 6);
    assert!(hpa.scores.above_target > minutes(8));
    assert!(sentences(hpa, 10, 20).iter().any(|sentence| sentence.contains("are filled in")));
}

#[test]
fn smallest_scenario_follows_the_day() {
    let comparison = example("business-day", &["start=05:00"], &["duration=6h"]);
    let hpa = &comparison.runs[0].hpas[0];
    assert_eq!(wanted(hpa, 60), 2);
    assert!(wanted(hpa, 6 * 60) >= 12);
}

/// Runs the scenario of a scaling policy, with and without the policy.
fn policy_example(name: &str) -> Comparison {
    example(&format!("policies/scenarios/{name}"), &[], &[])
}

/// Returns the HPA of the run with the policy, and the HPA of the run without the policy.
fn pair(comparison: &Comparison) -> (&HpaRun, &HpaRun) {
    let variants: Vec<_> = comparison.runs.iter().map(|run| run.variant.as_str()).collect();
    assert_eq!(variants, ["with policy", "without policy"]);
    let (with, without) = (&comparison.runs[0].hpas[0], &comparison.runs[1].hpas[0]);
    assert!(without.policies.is_empty() && without.decisions.iter().all(|it| it.policy.is_none()));
    (with, without)
}

/// Returns the periods in which a policy had an effect for a reason, as start and end in minutes.
fn periods(hpa: &HpaRun, reason: &str) -> Vec<(u64, u64)> {
    let of = hpa.policies.iter().filter(|span| span.reason.as_str() == reason);
    of.map(|span| (span.from.as_secs() / 60, span.to.as_secs() / 60)).collect()
}

#[test]
fn sale_begins_with_enough_pods() {
    let comparison = policy_example("sale-weekend");
    let (with, without) = pair(&comparison);
    assert_eq!([119, 120, 180].map(|minute| wanted(with, minute)), [7, 30, 50]);
    assert_eq!([119, 120, 180].map(|minute| wanted(without, minute)), [7, 7, 8]);
    assert_eq!((with.scores.peak, without.scores.peak), (120, 134));
    assert!(with.scores.unserved < 1.0 && without.scores.unserved > 100.0);
    assert_eq!(periods(with, "ScheduleActive"), [(120, 180), (180, 960), (180, 960)]);
}

#[test]
fn each_office_opens_with_its_floor() {
    let comparison = policy_example("office-hours");
    let (with, without) = pair(&comparison);
    assert_eq!([119, 120, 780, 1139].map(|minute| wanted(with, minute)), [2, 10, 6, 6]);
    assert_eq!(wanted(without, 120), 2);
    assert!(without.scores.unserved > 3.0 * with.scores.unserved);
    assert_eq!(periods(with, "ScheduleActive"), [(120, 780), (780, 1140)]);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimisation")]
fn shop_opens_with_enough_pods_once_its_days_are_known() {
    let comparison = policy_example("forecast-shop");
    let (with, without) = pair(&comparison);
    let eight = |day: u64| day * 24 * 60 + 7 * 60;
    for day in 0..7 {
        let counts = (wanted(with, eight(day)), wanted(without, eight(day)));
        assert!(counts.1 <= 4 && if day < 3 { counts.0 <= 4 } else { counts.0 >= 7 }, "{day}: {counts:?}");
    }
    let floors = periods(with, "ForecastFloor");
    // The history is counted in steps of five minutes.
    assert!(floors.first().is_some_and(|(from, _)| *from > 3 * 24 * 60 - 5), "{floors:?}");
    assert!(with.scores.unserved < 0.6 * without.scores.unserved, "{:?} {:?}", with.scores, without.scores);
    assert!(
        with.scores.pod_hours < 1.05 * without.scores.pod_hours,
        "{:?} {:?}",
        with.scores,
        without.scores
    );
    let known = sentences(with, eight(4) - 15, eight(4));
    assert!(known.iter().any(|sentence| sentence.contains("the forecast asks for ")), "{known:?}");
}

/// Hours since the start of a scenario, with the bounds of the count with the policy.
type Counts = &'static [(u64, std::ops::RangeInclusive<i32>)];

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimisation")]
fn forecasts_come_before_days_that_recur_and_stay_silent_otherwise() {
    let cases: [(&str, Counts, bool); 5] = [
        ("monday", &[(79, 2..=4), (103, 7..=20), (175, 2..=2), (223, 7..=20)], true),
        ("sale", &[(103, 5..=9), (127, 5..=9), (151, 10..=30)], true),
        ("no-pattern", &[(11, 2..=4), (85, 2..=4), (122, 2..=4)], false),
        ("release", &[(79, 7..=20), (103, 2..=4), (127, 2..=4)], true),
        ("poisoned", &[(79, 7..=20), (98, 2..=2), (103, 7..=20), (122, 2..=2), (127, 7..=20)], true),
    ];
    for (name, counts, has_floors) in cases {
        let comparison = policy_example(&format!("forecast-{name}"));
        let (with, without) = pair(&comparison);
        for (hour, expected) in counts {
            let count = wanted(with, hour * 60);
            assert!(expected.contains(&count), "{name} at {hour} h: {count}");
        }
        let floors = periods(with, "ForecastFloor");
        assert_eq!(!floors.is_empty(), has_floors, "{name}: {floors:?}");
        let added = with.scores.pod_hours / without.scores.pod_hours;
        let served = with.scores.unserved / without.scores.unserved;
        assert!(added <= if has_floors { 1.05 } else { 1.0001 }, "{name}: {added}");
        assert!(served <= 1.0001, "{name}: {served}");
    }
}

#[test]
fn fallback_replaces_the_adapter_two_minutes_after_its_failure() {
    let comparison = policy_example("adapter-outage");
    let (with, without) = pair(&comparison);
    assert_eq!([21, 23, 44].map(|minute| wanted(with, minute)), [5, 12, 12]);
    assert_eq!([21, 23, 44].map(|minute| wanted(without, minute)), [5, 5, 5]);
    assert_eq!(periods(with, "FallbackActive"), [(22, 45)]);
    assert!(with.scores.unserved_fraction < 0.001 && without.scores.unserved_fraction > 0.09);
}

#[test]
fn pods_that_wait_for_gpus_are_not_multiplied() {
    let comparison = policy_example("pending-gpu-pods");
    let (with, without) = pair(&comparison);
    assert_eq!((with.scores.peak, without.scores.peak), (22, 40));
    assert_eq!([20, 30, 45].map(|minute| wanted(with, minute)), [6, 10, 14]);
    assert!(with.scores.pod_hours < 0.6 * without.scores.pod_hours);
    let held = periods(with, "PendingPods");
    assert_eq!(held.first(), Some(&(11, 26)));
}

#[test]
fn bad_version_is_not_multiplied() {
    let comparison = policy_example("bad-rollout");
    let (with, without) = pair(&comparison);
    assert_eq!([12, 39].map(|minute| wanted(with, minute)), [12, 12]);
    assert_eq!([12, 39].map(|minute| wanted(without, minute)), [12, 58]);
    assert_eq!((with.scores.peak, without.scores.peak), (60, 90));
    assert_eq!(periods(with, "RolloutInProgress"), [(16, 40)]);
}

#[test]
fn pause_ends_at_its_time() {
    let comparison = policy_example("pause-with-expiry");
    let (with, without) = pair(&comparison);
    assert_eq!([0, 119, 120, 130].map(|minute| wanted(with, minute)), [6, 6, 12, 15]);
    assert_eq!(wanted(without, 119), 13);
    assert_eq!(periods(with, "Paused"), [(0, 120)]);
    let withheld = sample(with, 110);
    assert!(withheld.withheld > Some(6), "{withheld:?}");
}

#[test]
fn vanished_queue_ends_after_ten_minutes() {
    let comparison = policy_example("vanished-queue");
    let (with, without) = pair(&comparison);
    assert_eq!([39, 41, 89].map(|minute| wanted(with, minute)), [12, 2, 2]);
    assert_eq!(wanted(without, 89), 12);
    assert_eq!(periods(with, "FallbackActive"), [(40, 90)]);
}

#[test]
fn sidecars_without_requests_do_not_stop_the_hpa() {
    let comparison = policy_example("sidecars");
    let (with, without) = pair(&comparison);
    assert_eq!((wanted(with, 74), wanted(without, 74)), (13, 3));
    assert_eq!(without.scores.rescales, 0);
    assert!(without.scores.unserved_fraction > 0.4 && with.scores.unserved_fraction < 0.001);
}

/// Returns a scenario with a policy object.
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
    let path = file("policy-kind.yaml", &with_object("{kind: ConfigMap, metadata: {name: p}}"));
    let error = simulate(&options(&path)).unwrap_err().to_string();
    assert!(error.contains("policies[0]: expected a ScalingPolicy or ClusterScalingPolicy"), "{error}");
}
