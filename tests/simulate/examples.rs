//! The examples support their claims.

use std::path::Path;
use std::time::Duration;

use concertina::tools::PROCESS;
use toolbox::simulate::run::{Comparison, Run, Scores};
use toolbox::simulate::simulate;

use crate::options;

const fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

/// Runs an example with settings and sweeps.
fn example(name: &str, set: &[&str], sweep: &[&str]) -> Comparison {
    let mut options = options(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.yaml")));
    options.set = set.iter().map(|text| text.parse().unwrap()).collect();
    options.sweep = sweep.iter().map(|text| text.parse().unwrap()).collect();
    simulate(&options, PROCESS).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn scores<const N: usize>(comparison: &Comparison) -> [&Scores; N] {
    let scores: Vec<_> = comparison.runs.iter().map(|run| &run.hpas[0].scores).collect();
    scores.try_into().unwrap()
}

/// The sentences of the decisions between two minutes.
fn sentences(run: &Run, from: u64, to: u64) -> Vec<&str> {
    let within = |at: Duration| at >= minutes(from) && at < minutes(to);
    let decisions = run.hpas[0].decisions.iter().filter(|decision| within(decision.at));
    decisions.map(|decision| decision.sentence.as_str()).collect()
}

fn wanted(run: &Run, minute: usize) -> i32 {
    run.hpas[0].samples[minute * 4].wanted
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
fn each_source_loses_less_than_the_one_before() {
    let comparison = example("sources", &[], &[]);
    let names: Vec<_> = comparison.runs.iter().map(|run| run.variant.as_str()).collect();
    assert_eq!(
        names,
        ["Prometheus 15s", "metrics-server 10s + 15s", "Prometheus 5s, sync 5s", "pods 1s, sync 1s"]
    );
    let scores = scores::<4>(&comparison).map(|scores| (scores.unserved, scores.peak));
    assert!(scores.iter().is_sorted_by(|before, after| before.0 > after.0), "{scores:?}");
    assert!(scores[3].0 < 0.5 * scores[0].0, "{scores:?}");
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
    let run = &comparison.runs[0];
    assert_eq!((wanted(run, 4), wanted(run, 15), wanted(run, 23)), (1, 0, 0));
    assert!(wanted(run, 7) >= 25);
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
    let run = &comparison.runs[0];
    assert_eq!(wanted(run, 25), wanted(run, 39));
    assert!(wanted(run, 41) >= 2 * wanted(run, 39));
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
    let run = &comparison.runs[0];
    assert_eq!(wanted(run, 31), wanted(run, 45), "traffic fell");
    assert!(sentences(run, 30, 45).iter().any(|sentence| sentence.contains("nothing is scaled down while")));
    assert!(wanted(run, 59) > wanted(run, 45), "traffic rose");
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
    let run = &comparison.runs[0];
    assert_eq!(run.hpas[0].scores.rescales, 0);
    assert!(run.hpas[0].samples[15 * 4].ready <= 6);
    assert!(run.hpas[0].scores.above_target > minutes(8));
    assert!(
        sentences(run, 10, 20)
            .iter()
            .any(|sentence| sentence.contains("once missing and unready pods are filled in"))
    );
}

#[test]
fn smallest_scenario_follows_the_day() {
    let comparison = example("business-day", &["start=05:00"], &["duration=6h"]);
    let run = &comparison.runs[0];
    assert_eq!(wanted(run, 60), 2);
    assert!(wanted(run, 6 * 60) >= 12);
}
