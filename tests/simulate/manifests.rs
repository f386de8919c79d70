//! The simple case: manifests and a load, without a scenario file.

use std::time::Duration;

use concertina::tools::PROCESS;
use toolbox::options::{SimulateOptions, SimulateSource};
use toolbox::simulate::simulate;

use crate::file;

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
    let comparison = simulate(&options, PROCESS).unwrap();
    let run = &comparison.runs[0];
    assert_eq!(run.duration, Duration::from_mins(10), "as long as the load");
    let web = &run.hpas[0];
    assert_eq!((web.namespace.as_str(), web.target.as_str()), ("shop", "Deployment/web"));
    assert_eq!((web.samples[4].wanted, web.samples[40].wanted), (2, 6));
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
    let comparison = simulate(&options, PROCESS).unwrap();
    let api = &comparison.runs[0].hpas[0];
    let last = api.samples.last().unwrap();
    assert_eq!((last.wanted, last.ready, last.capacity), (3, 3, 150.0));
}
