//! Time and allocations for policies: syncs, parsing and merging. Run with `cargo bench -p policies`.
//!
//! A sync reuses the rules of the previous sync while [`Rules::apply_at`] returns true. Otherwise it calls [`resolve`].

#![allow(clippy::expect_used, reason = "literals in this file are valid")]

use std::sync::Arc;

use autoscaling::history::History;
use autoscaling::pod::{ConditionStatus, Phase, Pod, ReadyCondition};
use autoscaling::query::{Answer, CustomValue};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use autoscaling::{Answers, Decision, Hpa, Overlap, Scale, decide, plan};
use divan::{AllocProfiler, Bencher, black_box};
use jiff::Timestamp;
use policies::bounds::settings;
use policies::forecast::{Forecast, Sample};
use policies::merge::{Policy, Source};
use policies::resolve::{Rules, resolve};
use policies::spec::{Level, MAX_ENTRIES, parse};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// The names and the texts of policies, with rising cost.
const POLICIES: [(&str, &str); 5] = [
    ("empty", "{}"),
    ("mode", "{mode: Paused, until: 2026-12-01T08:00:00Z}"),
    ("interval", "schedules: [{name: sale, from: 2026-11-27T00:00:00Z, to: 2026-11-30T00:00:00Z, minReplicas: 50}]"),
    (
        "recurring",
        "schedules: [{name: office, timeZone: Europe/Berlin, start: 0 8 * * 1-5, end: 0 19 * * 1-5, minReplicas: 10}]",
    ),
    (
        "every-field",
        "{mode: ScaleUpOnly, until: 2026-12-01T08:00:00Z, syncPeriodSeconds: 5, tolerance: 0.05, combine: Min,
          schedules: [{name: office, timeZone: Europe/Berlin, start: 0 8 * * 1-5, end: 0 19 * * 1-5, minReplicas: 10},
                      {name: york, timeZone: America/New_York, start: 0 8 * * 1-5, end: 0 19 * * 1-5, minReplicas: 6},
                      {name: night, timeZone: Europe/Berlin, start: 0 22 * * *, end: 0 5 * * *, maxReplicas: 20},
                      {name: sale, from: 2026-11-27T00:00:00Z, to: 2026-11-30T00:00:00Z, minReplicas: 50}],
          fallback: [{when: Error, action: Replicas, replicas: 6, strategy: AtLeast}, {when: Empty, action: Hold}],
          guards: {pendingPods: {maximum: 20%}, rollout: HoldScaleUp, ownedPodsOnly: true, zeroMetrics: Hold, maxStep: {up: 100%}}}",
    ),
];
/// The names of all measured policies. The two largest policies have 100 daily schedules, and 100 schedules with times
/// that are years apart.
const NAMES: [&str; 7] =
    ["empty", "mode", "interval", "recurring", "every-field", "hundred-daily", "hundred-rare"];

fn text(name: &str) -> String {
    let hundred = |start: &str, end: &str| {
        let entry = format!("{{timeZone: Europe/Berlin, start: {start}, end: {end}, minReplicas: 10, name: ");
        let entries: Vec<String> = (0..MAX_ENTRIES).map(|index| format!("{entry}s{index}}}")).collect();
        format!("schedules: [{}]", entries.join(", "))
    };
    match name {
        "hundred-daily" => hundred("0 8 * * *", "0 19 * * *"),
        "hundred-rare" => hundred("0 8 29 2 *", "0 8 31 12 *"),
        _ => POLICIES.iter().find(|(other, _)| *other == name).expect("a listed policy").1.to_owned(),
    }
}

fn source(text: &str, level: Level) -> Source {
    let parsed = parse(text, level);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    Source { level, name: "shop/web".into(), created: None, parsed: Arc::new(parsed) }
}

fn policy(name: &str) -> Arc<Policy> {
    Arc::new(Policy::merge(vec![source(&text(name), Level::Annotation)]))
}

/// A Monday at 13:00 in Berlin.
fn now() -> Timestamp {
    "2026-11-23T12:00:00Z".parse().expect("a literal time")
}

fn spec() -> Arc<Spec> {
    let spec = serde_json::json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 20,
    });
    Arc::new(serde_json::from_value(spec).expect("a literal spec"))
}

/// Applies the bounds and the settings of the rules, as each sync does.
fn apply(rules: &Rules, spec: &Arc<Spec>, flags: &Settings) -> usize {
    let (spec, steps) = rules.bounds.spec(spec);
    let settings = settings(&rules.policy.spec, flags);
    black_box((spec, settings));
    steps.len()
}

/// Measures a sync with the rules of the previous sync.
#[divan::bench(args = NAMES)]
fn sync_between_edges(bencher: Bencher<'_, '_>, name: &str) {
    let (spec, flags, rules) = (spec(), Settings::default(), Arc::new(resolve(&policy(name), now())));
    bencher.bench(|| {
        let rules = Arc::clone(black_box(&rules));
        assert!(rules.apply_at(black_box(now())));
        apply(&rules, &spec, &flags)
    });
}

/// Measures a sync that resolves the rules: the first sync of a policy, and a sync at an edge.
#[divan::bench(args = NAMES)]
fn sync_at_an_edge(bencher: Bencher<'_, '_>, name: &str) {
    let (spec, flags, policy) = (spec(), Settings::default(), policy(name));
    bencher.bench(|| apply(&Arc::new(resolve(black_box(&policy), black_box(now()))), &spec, &flags));
}

/// Measures the forecast of an hour with four syncs a minute and ten pods, after two weeks, with its stored form. Divide
/// by 240 for a sync.
#[divan::bench]
fn forecast_of_an_hour(bencher: Bencher<'_, '_>) {
    let text = "forecast: {mode: Floor, timeZone: Europe/Berlin, budget: 20%}";
    let spec = parse(text, Level::Annotation).spec.forecast.expect("a valid field");
    let (decision, pods) = ten_pods();
    let mut forecast = Forecast::new("a");
    let hour = |forecast: &mut Forecast, hour: i64| {
        for minute in hour * 60..(hour + 1) * 60 {
            // A peak of ten minutes on each day, and noise.
            let noise = (minute * 7_919 % 101) as f64 / 50.0;
            let load = if (540..550).contains(&(minute % 1440)) { 20.0 } else { 2.0 + noise };
            for second in [0, 15, 30, 45] {
                let now = Timestamp::from_second(minute * 60 + second).expect("a time of this century");
                black_box(forecast.report("a", &spec, now));
                let sample = Sample::new(&spec, black_box(&decision), pods.iter().map(|pod| &**pod), 10);
                let sample = Sample { load: Some(load), asked: 4, ..sample };
                black_box(forecast.observe("a", &sample, now));
            }
        }
    };
    let mut next = now().as_second() / 3600;
    for _ in 0..14 * 24 {
        hour(&mut forecast, next);
        next += 1;
    }
    bencher.bench_local(|| {
        hour(&mut forecast, next);
        next += 1;
    });
}

/// Measures the decision of the HPA algorithm with which [`forecast_of_an_hour`] compares.
#[divan::bench]
fn decision_of_ten_pods(bencher: Bencher<'_, '_>) {
    bencher.bench(ten_pods);
}

/// A decision by the cpu usage of ten pods, and the pods.
fn ten_pods() -> (Decision, Vec<Arc<Pod>>) {
    let spec: Spec = serde_json::from_value(serde_json::json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 20,
        "metrics": [{"type": "Pods", "pods": {
            "metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": "10"},
        }}],
    }))
    .expect("a literal spec");
    let started = now();
    let pod = |index: usize| {
        Arc::new(Pod {
            name: format!("web-{index}").into(),
            labels: Arc::default(),
            requests: Arc::default(),
            phase: Phase::Running,
            terminating: false,
            ready: Some(ReadyCondition { status: ConditionStatus::True, since: Some(started) }),
            start_time: Some(started),
        })
    };
    let pods: Vec<Arc<Pod>> = (0..10).map(pod).collect();
    let value = |pod: &Arc<Pod>| CustomValue {
        object: Arc::clone(&pod.name),
        timestamp: Some(started),
        window_seconds: None,
        value: "8".parse().expect("a quantity"),
    };
    let answers =
        Answers { metrics: vec![Some(Ok(Answer::Custom(pods.iter().map(value).collect())))], pods: &pods };
    let (status, settings) = (Status::default(), Settings::default());
    let hpa = Hpa { namespace: "shop", name: "web", generation: None, spec: &spec, status: &status };
    let scale = Scale::new(10, 10, "app=web", Version::default()).expect("a valid selector");
    let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &settings);
    let decision = decide(&hpa, &plan, &answers, &History::default(), &settings, now());
    (decision, pods)
}

/// Measures parsing the text of an annotation.
#[divan::bench(args = NAMES)]
fn read(bencher: Bencher<'_, '_>, name: &str) {
    let text = text(name);
    bencher.bench(|| parse(black_box(&text), Level::Annotation));
}

/// Measures merging an annotation, a ScalingPolicy and a ClusterScalingPolicy.
#[divan::bench(args = NAMES)]
fn merge_three(bencher: Bencher<'_, '_>, name: &str) {
    let sources: Vec<Source> = [Level::Annotation, Level::Namespaced, Level::Cluster]
        .into_iter()
        .map(|level| source(&text(name), level))
        .collect();
    bencher.with_inputs(|| sources.clone()).bench_values(Policy::merge);
}
