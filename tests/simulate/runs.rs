//! Properties of every run, for any policies, load and startup times: bounds, rates, a warm start, a sample per sync,
//! and repeatable results. Also runs of manifests and a load without a scenario file.

use std::time::Duration;

use crate::{file, only, options, run_scenario};
use proptest::prelude::*;
use proptest::sample::select;
use simulate::chart::{self, ChartStyle};
use simulate::options::{SimulateOptions, Source as SimulateSource};
use simulate::run::HpaRun;
use simulate::simulate;

/// An HPA on cpu for the Deployment `web`.
pub(crate) const WEB: &str = "
hpas:
  - metadata: {name: web}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
      minReplicas: 2
      maxReplicas: 10
      metrics:
        - type: Resource
          resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}
";

#[test]
fn run_starts_with_pods_that_are_ready_and_measured() {
    let comparison = run_scenario(
        "warm.yaml",
        &format!("{WEB}workloads: [{{name: web, replicas: 4}}]\nload: [{{cpu: 1200m}}]\nduration: 2m\n"),
    );
    let web = only(&comparison);
    let first = &web.samples[0];
    assert!(!first.at.is_zero() && first.at < Duration::from_millis(100), "syncs take time: {first:?}");
    assert_eq!((first.wanted, first.running, first.ready), (4, 4, 4));
    assert_eq!((first.demand, first.capacity, first.proposal), (1_200.0, 4_000.0, Some(4)));
    assert_eq!((web.metrics[0].unit, web.metrics[0].target), ("%", 60.0));
    assert!(web.metrics[0].values.iter().all(|value| *value == Some(60.0)), "{:?}", web.metrics[0].values);
    assert_eq!((web.samples.len(), web.decisions.len(), web.events.len()), (8, 1, 0));
    assert_eq!((web.unit.as_str(), web.scores.rescales, web.scores.peak), ("millicores", 0, 4));
}

#[test]
fn count_follows_a_load_step_up_at_once_and_down_after_window() {
    let load = "load: [{cpu: {points: [{at: 1m, value: 600m}, {at: 1m, value: 1800m}, {at: 5m, value: 1800m}, {at: 5m, value: 600m}]}}]";
    let comparison = run_scenario("step.yaml", &format!("{WEB}{load}\nduration: 15m\n"));
    let web = only(&comparison);
    let wanted = |minute: usize| web.samples[minute * 4].wanted;
    assert_eq!((wanted(1), wanted(2), wanted(9), wanted(12)), (2, 6, 6, 2));
    let rescaled: Vec<_> =
        web.events.iter().filter(|event| event.reason == "SuccessfulRescale").map(|event| event.at).collect();
    assert_eq!(rescaled.len(), usize::try_from(web.scores.rescales).unwrap());
    assert_eq!(web.scores.direction_changes, 1);
    assert!(
        web.decisions.iter().any(|decision| decision.sentence.contains("scale-down window still holds 6"))
    );
}

#[test]
fn run_is_the_same_for_the_same_scenario_and_seed() {
    let text = format!(
        "{WEB}workloads: [{{name: web, startup: {{normal: {{mean: 20s, deviation: 8s}}}}, failures: \
         [{{crashLoop: {{from: 5m, for: 5m, fraction: 40%, runsFor: 30s}}}}]}}]\n\
         load: [{{cpu: {{randomSpikes: {{base: 500m, peak: 3, every: 5m, width: 90s}}, noise: 10%}}}}]\nduration: 20m\n"
    );
    let path = file("same.yaml", &text);
    let runs = |seed: u64, sweep: &str| {
        let mut options = options(&path);
        options.seed = Some(seed);
        options.sweep = vec![sweep.parse().unwrap()];
        format!("{:?}", simulate(&options).unwrap().runs)
    };
    // A variant has the same result alone and in parallel with others.
    let both = runs(3, "title=one,two");
    assert_eq!(both, runs(3, "title=one,two"));
    assert!(both.starts_with(runs(3, "title=one").trim_end_matches(']')));
    assert_ne!(both, runs(4, "title=one,two"));
}

#[test]
fn outage_and_rollout_are_recorded_as_happenings() {
    let comparison = run_scenario(
        "happenings.yaml",
        &format!(
            "{WEB}load: [{{cpu: 600m}}]\nrollouts: [{{at: 2m}}]\nduration: 5m\n\
             metrics: {{outages: [{{api: resource, from: 1m, for: 1m}}]}}\n"
        ),
    );
    let happenings: Vec<_> = comparison.runs[0]
        .happenings
        .iter()
        .map(|one| (one.from.as_secs(), one.to.as_secs(), &*one.what))
        .collect();
    assert_eq!(
        happenings,
        [(60, 120, "resource metrics API responds with 503"), (120, 120, "rollout of web")]
    );
    let web = only(&comparison);
    let missing: Vec<_> = (0..8).filter(|index| web.metrics[0].values[*index].is_none()).collect();
    assert_eq!(missing, [4, 5, 6, 7], "at 60, 75, 90 and 105 s");
    assert!(web.scores.peak > 2, "the new pod starts before an old one stops");
}

#[test]
fn samples_and_scores_follow_the_sync_period_of_a_policy() {
    let text = WEB.replace(
        "name: web}\n    spec",
        "name: web, annotations: {concertina.dev/policy: 'syncPeriodSeconds: 1'}}\n    spec",
    );
    let load = "load: [{cpu: {points: [{at: 20s, value: 600m}, {at: 20s, value: 3}, {at: 24s, value: 3}, {at: 24s, value: 600m}]}}]
metrics: {resource: {scrapeInterval: 1s}}";
    let comparison = run_scenario("policy-period.yaml", &format!("{text}{load}\nduration: 1m\n"));
    let [with, without] = [0, 1].map(|run| &comparison.runs[run]);
    assert_eq!((with.period.as_secs(), without.period.as_secs()), (1, 15));
    let [with, without] = [with, without].map(|run| &run.hpas[0]);
    assert_eq!((with.period.as_secs(), with.interval.as_secs()), (1, 1));
    assert!((55..=60).contains(&with.samples.len()), "{}", with.samples.len());
    assert_eq!(without.samples.len(), 4);
    assert!(!with.scores.above_target.is_zero(), "{:?}", with.scores);
    assert!(comparison.notes.contains_key("periods"), "{:?}", comparison.notes);
    let chart = chart::render(&comparison, &ChartStyle::default());
    assert!(chart.contains("a sync every 1 s or 15 s"), "{chart}");
}

#[test]
fn unchanged_scenario_is_the_first_variant() {
    let path = file("variants.yaml", &format!("{WEB}load: [{{cpu: 1}}]\nduration: 1m\n"));
    let names = |set: &[&str], sweep: &[&str]| -> Vec<String> {
        let mut options = options(&path);
        options.set = set.iter().map(|text| text.parse().unwrap()).collect();
        options.sweep = sweep.iter().map(|text| text.parse().unwrap()).collect();
        simulate(&options).unwrap().runs.into_iter().map(|run| run.variant).collect()
    };
    assert_eq!(names(&[], &[]), [""]);
    assert_eq!(names(&["spec.maxReplicas=5", "seed=3"], &[]), ["as it is", "maxReplicas=5 seed=3"]);
    assert_eq!(names(&["seed=3"], &["spec.maxReplicas=5,6"]), ["maxReplicas=5", "maxReplicas=6"]);
}

#[test]
fn manifest_and_csv_make_a_scenario() {
    let hpa = file(
        "simple-web.yaml",
        "apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 10
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}
",
    );
    let load = file("simple-load.csv", "time,cores\n0s,0.5\n5m,0.5\n5m,1.5\n10m,1.5\n");
    let options = SimulateOptions {
        source: SimulateSource::Manifests(vec![(hpa, load)]),
        ..SimulateOptions::default()
    };
    let comparison = simulate(&options).unwrap();
    let run = &comparison.runs[0];
    assert_eq!(run.duration, Duration::from_mins(10), "as long as the load");
    let web = &run.hpas[0];
    assert_eq!((web.namespace.as_str(), web.target.as_str()), ("shop", "Deployment/web"));
    assert_eq!((web.samples[4].wanted, web.samples[39].wanted), (2, 6));
}

#[test]
fn pod_capacity_is_125_percent_of_a_custom_metric_target() {
    let hpa = file(
        "custom-api.yaml",
        "kind: HorizontalPodAutoscaler
metadata: {name: api}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: api}
  maxReplicas: 10
  metrics:
    - type: Pods
      pods: {metric: {name: requests}, target: {type: AverageValue, averageValue: 40}}
",
    );
    let load = file("custom-load.csv", "0,30\n300,100\n600,100\n");
    let options = SimulateOptions {
        source: SimulateSource::Manifests(vec![(hpa, load)]),
        ..SimulateOptions::default()
    };
    let comparison = simulate(&options).unwrap();
    let api = &comparison.runs[0].hpas[0];
    let last = api.samples.last().unwrap();
    assert_eq!((last.wanted, last.ready, last.capacity), (3, 3, 150.0));
}

/// The number of pods at the start.
const REPLICAS: i32 = 6;

/// The rate limit of one direction: `pods` within `seconds`.
#[derive(Debug, Clone, Copy)]
struct Rate {
    pods: i32,
    seconds: u64,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    up: Rate,
    down: Rate,
    window: u32,
    max: i32,
    startup: u32,
    peak: u32,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let rate =
        || (1..8, select(vec![15, 30, 40, 60, 120])).prop_map(|(pods, seconds)| Rate { pods, seconds });
    (rate(), rate(), select(vec![0_u32, 30, 120]), REPLICAS..25, 0..90_u32, 1..9_u32, any::<u64>()).prop_map(
        |(up, down, window, max, startup, peak, seed)| Case { up, down, window, max, startup, peak, seed },
    )
}

fn scenario(case: &Case) -> String {
    let Case { up, down, window, max, startup, peak, seed } = case;
    format!(
        "duration: 12m
seed: {seed}
hpas:
  - metadata: {{name: web}}
    spec:
      scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
      minReplicas: 2
      maxReplicas: {max}
      metrics:
        - type: Resource
          resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 60}}}}
      behavior:
        scaleUp: {{policies: [{{type: Pods, value: {}, periodSeconds: {}}}]}}
        scaleDown: {{stabilizationWindowSeconds: {window}, policies: [{{type: Pods, value: {}, periodSeconds: {}}}]}}
workloads:
  - {{name: web, replicas: {REPLICAS}, startup: {startup}s, failures: [{{unready: {{from: 5m, for: 3m, fraction: 30%}}}}]}}
load:
  - cpu: {{randomSpikes: {{base: 300m, peak: {peak}, every: 3m, width: 80s}}, noise: 20%}}
",
        up.pods, up.seconds, down.pods, down.seconds,
    )
}

/// Returns the desired count `seconds` before a time.
fn before(run: &HpaRun, at: Duration, seconds: u64) -> i32 {
    let Some(from) = at.checked_sub(Duration::from_secs(seconds)) else { return REPLICAS };
    run.samples.iter().rev().find(|sample| sample.at <= from).map_or(REPLICAS, |sample| sample.wanted)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn count_stays_within_bounds_and_rates(case in cases()) {
        let comparison = run_scenario("properties.yaml", &scenario(&case));
        let run = only(&comparison);
        let mut last = REPLICAS;
        for sample in &run.samples {
            let (at, wanted) = (sample.at, sample.wanted);
            prop_assert!((2..=case.max).contains(&wanted), "{sample:?}");
            // A rate policy limits the change since the start of its period, and only in a sync that changes the count.
            if wanted > last {
                prop_assert!(wanted <= before(run, at, case.up.seconds) + case.up.pods, "{sample:?}");
            }
            if wanted < last {
                prop_assert!(wanted >= before(run, at, case.down.seconds) - case.down.pods, "{sample:?}");
            }
            last = wanted;
        }
        let again = run_scenario("properties.yaml", &scenario(&case));
        prop_assert_eq!(format!("{comparison:?}"), format!("{again:?}"));
    }
}
