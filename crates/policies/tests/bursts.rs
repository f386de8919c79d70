//! Decisions with `burst`, compared with the crate `burst` alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use autoscaling::history::History;
use autoscaling::query::{Answer, ExternalValue};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use autoscaling::{Evaluation, Hpa, Overlap, Scale, plan};
use burst::{Autoscaler, Clamp, Limit, Mode};
use jiff::Timestamp;
use policies::burst::{BurstState, BurstStep};
use policies::history::PolicyHistory;
use policies::merge::{Policy, Source};
use policies::resolve::resolve;
use policies::spec::{BurstSpec, Level, parse};
use policies::steps::{Step, StepReason};
use policies::{Earlier, PolicyDecision};
use proptest::prelude::*;

fn policy(text: &str) -> Arc<Policy> {
    let parsed = Arc::new(parse(text, Level::Annotation));
    assert_eq!(parsed.problems, [], "{text}");
    let source = Source { level: Level::Annotation, name: "".into(), created: None, parsed };
    Arc::new(Policy::merge(vec![source]))
}

fn spec() -> Spec {
    serde_json::from_value(serde_json::json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1, "maxReplicas": 1_000_000,
        "metrics": [{"type": "External", "external": {
            "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"},
        }}],
        "behavior": {
            "scaleUp": {"policies": [{"type": "Percent", "value": 100_000, "periodSeconds": 1}]},
            "scaleDown": {
                "stabilizationWindowSeconds": 0,
                "policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}],
            },
        },
    }))
    .unwrap()
}

/// Runs one sync at `second`. `load` is the load of all pods, or `None` if the metric fails.
fn sync(
    policy: &Arc<Policy>,
    replicas: i32,
    load: Option<i64>,
    burst: Option<&BurstState>,
    second: i64,
) -> PolicyDecision {
    let (spec, settings, status) = (spec(), Settings::default(), Status::default());
    let hpa = Hpa { namespace: "shop", name: "web", generation: None, spec: &spec, status: &status };
    let scale = Scale::new(replicas, replicas, "app=web", Version::default()).unwrap();
    let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &settings);
    let mut evaluation = Evaluation::new(&hpa, &plan, &settings);
    let now = Timestamp::from_second(second).unwrap();
    let value = load.map(|load| {
        let value = ExternalValue { value: load.to_string().parse().unwrap(), timestamp: Some(now) };
        Ok(Answer::External([value].into()))
    });
    evaluation.evaluate(0, value.as_ref(), &[], now);
    let metrics = PolicyHistory::default();
    let rules = resolve(policy, now);
    rules.decide(
        evaluation,
        &History::default(),
        Earlier { metrics: &metrics, burst, forecast: None },
        replicas,
        now,
    )
}

fn settings() -> burst::Settings {
    burst::Settings { target: 10.0, ..burst::Settings::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn proposals_are_those_of_the_windows(loads in prop::collection::vec(0_i64..400, 1..150)) {
        let policy = policy("burst: {}");
        let (mut state, mut replicas) = (None, 3);
        let mut alone = Autoscaler::new(settings(), replicas, 1_000).unwrap();
        for (second, load) in (1_000_i64..).zip(loads) {
            let decided = sync(&policy, replicas, Some(load), state.as_ref(), second);
            alone.record(second, load as f64).unwrap();
            let expected = alone.decide(second, replicas).unwrap();
            let step = decided.steps.iter().find_map(|step| match step {
                Step::Burst(step) => Some(step),
                _ => None,
            });
            let step = step.unwrap();
            prop_assert_eq!((step.replicas, step.mode), (expected.replicas, expected.mode));
            prop_assert_eq!(decided.decision.count(), Some(expected.replicas.max(1)));
            replicas = decided.decision.count().unwrap();
            state = decided.burst;
        }
    }
}

#[test]
fn panic_mode_starts_at_twice_the_pods_and_does_not_scale_down() {
    let policy = policy("burst: {}");
    let (mut state, mut reasons) = (None, Vec::new());
    let mut replicas = 1;
    // The load is 10 for a minute, then 200 for ten seconds, then 10.
    let load = |second| if (60..70).contains(&second) { 200 } else { 10 };
    let mut counts = Vec::new();
    for second in 0..200 {
        let decided = sync(&policy, replicas, Some(load(second)), state.as_ref(), 1_000 + second);
        replicas = decided.decision.count().unwrap();
        reasons.push(decided.steps[0].reason());
        counts.push(replicas);
        state = decided.burst;
    }
    assert_eq!((counts[59], reasons[59]), (1, StepReason::Burst));
    // Six seconds after the start of the burst, the panic window contains only the load of the burst.
    assert_eq!((counts[66], reasons[66]), (20, StepReason::BurstPanic));
    assert!(counts[66..120].iter().all(|count| *count == 20), "{counts:?}");
    assert_eq!((counts[199], reasons[199]), (1, StepReason::Burst));
}

#[test]
fn threshold_decides_when_panic_starts() {
    for (text, expected) in [
        ("burst: {thresholdPercent: 240}", StepReason::BurstPanic),
        ("burst: {thresholdPercent: 260}", StepReason::Burst),
    ] {
        let (policy, mut state) = (policy(text), None);
        let mut reason = None;
        // The load is that of two pods for a minute, then that of five pods.
        for second in 0..67 {
            let load = if second < 60 { 20 } else { 50 };
            let decided = sync(&policy, 2, Some(load), state.as_ref(), 1_000 + second);
            reason = decided.steps.first().map(Step::reason);
            state = decided.burst;
        }
        assert_eq!(reason, Some(expected), "{text}");
    }
}

#[test]
fn delay_keeps_an_earlier_count() {
    for (delay, expected) in [(0, 1), (30, 10)] {
        let policy = policy(&format!(
            "burst: {{windowSeconds: 6, stableWindowSeconds: 6, scaleDownDelaySeconds: {delay}}}"
        ));
        let (mut state, mut replicas) = (None, 10);
        for second in 0..40 {
            let load = if second < 20 { 100 } else { 10 };
            let decided = sync(&policy, replicas, Some(load), state.as_ref(), 1_000 + second);
            replicas = decided.decision.count().unwrap();
            state = decided.burst;
        }
        assert_eq!(replicas, expected, "{delay}");
    }
}

#[test]
fn each_limit_has_a_text() {
    let decided = sync(&policy("burst: {}"), 3, Some(30), None, 1_000);
    let Some(Step::Burst(step)) = decided.steps.first() else { panic!("{:?}", decided.steps) };
    for (limit, expected) in [
        (Limit::Stable(Clamp::None), "the stable window"),
        (Limit::Panic(Clamp::None), "the panic window"),
        (Limit::Stable(Clamp::ScaleUpRate), "the largest step up"),
        (Limit::Panic(Clamp::ScaleUpRate), "the largest step up"),
        (Limit::Stable(Clamp::ScaleDownRate), "the largest step down"),
        (Limit::Panic(Clamp::ScaleDownRate), "the largest step down"),
        (Limit::Stable(Clamp::ActivationScale), "activationReplicas"),
        (Limit::Panic(Clamp::ActivationScale), "activationReplicas"),
        (Limit::PanicHighest, "the highest count of the panic mode"),
        (Limit::ScaleDownDelay, "scaleDownDelaySeconds"),
    ] {
        assert_eq!(BurstStep { limit, ..step.clone() }.limit_text(), expected);
    }
    let stable = BurstStep { mode: Mode::Stable, ..step.clone() };
    assert_eq!(stable.to_string(), "queue is averaged over the stable window");
    assert_eq!(
        step.to_string(),
        "queue is in panic mode since 1970-01-01T00:16:40Z, so its proposal does not fall"
    );
}

#[test]
fn second_counts_once_and_a_late_sync_leaves_no_gap() {
    let policy = policy("{burst: {windowSeconds: 6, stableWindowSeconds: 6}, syncPeriodSeconds: 2}");
    let mut state = None;
    for second in [1_000, 1_000, 1_002, 1_004] {
        let decided = sync(&policy, 3, Some(30), state.as_ref(), second);
        let Some(Step::Burst(step)) = decided.steps.first() else { panic!("{:?}", decided.steps) };
        assert_eq!(step.stable.average_milli, 30_000, "{second}");
        state = decided.burst;
    }
    // As in Knative, the windows have no load in a longer gap.
    let decided = sync(&policy, 3, Some(30), state.as_ref(), 1_011);
    let Some(Step::Burst(step)) = decided.steps.first() else { panic!("{:?}", decided.steps) };
    assert_eq!((step.stable.average_milli, step.stable.seconds), (30_000, 1));
}

#[test]
fn failed_metric_keeps_the_windows_and_has_no_step() {
    let policy = policy("burst: {}");
    let first = sync(&policy, 3, Some(30), None, 1_000);
    let failed = sync(&policy, 3, None, first.burst.as_ref(), 1_001);
    assert_eq!((failed.steps.len(), failed.decision.count()), (0, None));
    assert!(failed.burst.is_some());
    // After the clock is set back, new windows are created.
    let back = sync(&policy, 3, Some(60), failed.burst.as_ref(), 500);
    let Some(Step::Burst(step)) = back.steps.first() else { panic!("{:?}", back.steps) };
    assert_eq!(step.stable.average_milli, 60_000);
}

#[test]
fn burst_is_read_with_its_defaults_and_syncs_each_second() {
    let parsed = parse("burst: {}", Level::Annotation);
    assert_eq!(parsed.spec.burst, Some(BurstSpec::default()));
    assert_eq!(parsed.spec.sync_period_seconds, Some(1));
    let text = "{burst: {windowSeconds: 5, stableWindowSeconds: 30, thresholdPercent: 150, \
                scaleDownDelaySeconds: 20, activationReplicas: 2}, syncPeriodSeconds: 5}";
    let parsed = parse(text, Level::Annotation);
    let expected = BurstSpec {
        window_seconds: 5,
        stable_window_seconds: 30,
        threshold_percent: 150,
        scale_down_delay_seconds: 20,
        activation_replicas: 2,
    };
    assert_eq!((parsed.spec.burst, parsed.spec.sync_period_seconds), (Some(expected), Some(5)));
    for (text, expected) in [
        ("burst: {windowSeconds: 90}", "burst.windowSeconds: must be at most stableWindowSeconds"),
        (
            "burst: {thresholdPercent: 50}",
            "burst.thresholdPercent: must be a whole number from 100 to 100000, not 50",
        ),
    ] {
        let parsed = parse(text, Level::Annotation);
        let problems: Vec<String> = parsed.problems.iter().map(ToString::to_string).collect();
        assert_eq!((problems, parsed.spec.burst), (vec![expected.to_owned()], None));
    }
}

#[test]
fn limit_of_the_cluster_bounds_the_period_of_a_burst() {
    let source = |level, text| Source {
        level,
        name: "limits".into(),
        created: None,
        parsed: Arc::new(parse(text, level)),
    };
    let limits = source(Level::Cluster, "limits: {shortestSyncPeriodSeconds: 5}");
    let policy = Policy::merge(vec![source(Level::Annotation, "burst: {}"), limits]);
    assert_eq!(policy.spec.sync_period_seconds, Some(5));
    assert!(policy.spec.burst.is_some());
}
