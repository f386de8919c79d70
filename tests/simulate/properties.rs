//! Properties of every run, for any policies, load and startup times: bounds, rates, repeatability.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use toolbox::simulate::run::HpaRun;

use crate::{only, run_scenario};

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

/// The count `seconds` before a sample.
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
            // The rate limit counts from the count at the start of its period, and applies only if the
            // count changes.
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
