//! Checks that the errors of a scenario file name the file, the line and the field.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::runs::WEB;
use crate::{file, options};
use simulate::simulate;

/// Returns the error of a scenario file, without the path of its folder.
fn error(name: &str, text: &str) -> String {
    let path = file(name, text);
    let error = simulate(&options(&path)).expect_err("a scenario with an error").to_string();
    error.replace(&format!("{}/", path.parent().unwrap().display()), "")
}

/// Returns the error of a scenario with an HPA in its first eleven lines, followed by `lines`.
fn error_behind(lines: &str) -> String {
    // Tests run in parallel, so each test needs its own files.
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("behind-{}.yaml", FILES.fetch_add(1, Ordering::Relaxed));
    error(&name, &format!("{WEB}\n{lines}\n")).replace(&name, "behind.yaml")
}

#[test]
fn invalid_value_names_the_expected_format() {
    for (lines, expected) in [
        (
            "workloads:\n- name: web\n  startup: fast",
            "14: workloads[0].startup: invalid duration \"fast\": must be a value such as 30s or 1h30m",
        ),
        (
            "workloads:\n- name: web\n  startup: {uniform: {from: 1s, to: 2}}",
            "14: workloads[0].startup.uniform.to: 2 is not a duration such as 30s or 1h30m",
        ),
        (
            "workloads:\n- name: web\n  replicas: -1",
            "14: workloads[0].replicas: invalid value: -1, expected a whole number that is not negative",
        ),
        (
            "load:\n- cpu:\n    ramp: {from: 1, to: lots, over: 5m}",
            "14: load[0].cpu.ramp.to: invalid quantity \"lots\": must be a value such as 250m, 1.5 or 64Mi",
        ),
        (
            "load:\n- cpu: 1\n  capacityPerPod: -2",
            "14: load[0].capacityPerPod: invalid quantity \"-2\": must not be negative",
        ),
        ("duration: 1d", "12: duration: invalid duration \"1d\": must be a value such as 30s or 1h30m"),
        (
            "metrics:\n  outages:\n  - {api: resource, kind: missing, fraction: half}",
            "14: metrics.outages[0].fraction: invalid share \"half\": must be from 0 to 1, or from 0% to 100%",
        ),
        (
            "start: noon",
            "12: start: invalid time \"noon\": must be a value such as 08:00 (of a Monday, UTC) or 2030-01-07T00:00:00Z",
        ),
    ] {
        assert_eq!(error_behind(lines), format!("behind.yaml:{expected}"));
    }
}

#[test]
fn invalid_source_is_named() {
    let sources = |second: &str| format!("metrics:\n  sources:\n  - from: pods\n  - {second}");
    for (second, expected) in [
        ("{from: pod}", "metrics.sources[1].from: unknown value \"pod\"; did you mean \"pods\"?"),
        ("{from: pods, scrapeInterval: 10ms}", "metrics.sources[1].scrapeInterval: must be at least 1s"),
        ("{from: pods, syncPeriod: 0s}", "metrics.sources[1].syncPeriod: must be at least 1s"),
        (
            "{from: pods, readInterval: 15s}",
            "metrics.sources[1].readInterval: is only valid with from: metricsServer",
        ),
        (
            "{from: prometheus, scrapeInterval: 30s, window: 15s}",
            "metrics.sources[1].window: must be at least the scrape interval",
        ),
    ] {
        assert_eq!(error_behind(&sources(second)), format!("behind.yaml:15: {expected}"));
    }
    let many = format!("metrics: {{sources: [{}]}}", "{from: pods}, ".repeat(101));
    let expected = "--sweep and the sources of the scenario define 101 variants, more than the maximum of 100; remove \
                    values, sweeps or sources";
    assert_eq!(error_behind(&many), expected);
}

#[test]
fn unknown_name_gets_the_nearest_valid_name() {
    for (lines, expected) in [
        ("workload: []", "12: workload: unknown field; did you mean \"workloads\"?"),
        (
            "workloads:\n- name: web\n  startUp: 3s",
            "14: workloads[0].startUp: unknown field; did you mean \"startup\"?",
        ),
        ("load:\n- cpu: {sinus: 3}", "13: load[0].cpu.sinus: unknown field; did you mean \"sine\"?"),
        (
            "workloads:\n- name: web\n  failures:\n  - crashloop: {fraction: 1}",
            "15: workloads[0].failures[0]: unknown value \"crashloop\"; did you mean \"crashLoop\"?",
        ),
        (
            "flags: {horizontal-pod-autoscaler-tolerence: 0.2}",
            "12: flags.horizontal-pod-autoscaler-tolerence: unknown flag; did you mean \"horizontal-pod-autoscaler-tolerance\"?",
        ),
        (
            "load:\n- {workload: wbe, cpu: 1}",
            "13: load[0].workload: unknown workload \"wbe\"; did you mean \"web\"?",
        ),
        (
            "rollouts:\n- {at: 1m, workload: wbe}",
            "13: rollouts[0]: unknown workload \"wbe\"; did you mean \"web\"?",
        ),
    ] {
        assert_eq!(error_behind(lines), format!("behind.yaml:{expected}"));
    }
}

#[test]
fn conflicting_values_are_refused() {
    for (lines, expected) in [
        (
            "load:\n- {cpu: 1, demand: 1}",
            "13: load[0]: cpu and demand are both set; use demand with cpuPerUnit, or only cpu",
        ),
        ("load:\n- {demand: 1}", "13: load[0]: demand requires the capacity of a pod; set capacityPerPod"),
        (
            "load:\n- cpu: {noise: 5%}",
            "13: load[0].cpu: no shape is set; use a quantity or one of constant, ramp, step, sine, businessDay, spikes, randomSpikes, points, csv and sum",
        ),
        (
            "load:\n- cpu: {constant: 1, csv: x.csv}",
            "13: load[0].cpu.csv: x.csv cannot be read: No such file or directory (os error 2)",
        ),
        (
            "metrics: {scrapeInterval: 30s, window: 15s}",
            "12: metrics.window: must be at least the scrape interval",
        ),
        (
            "metrics:\n  outages:\n  - {api: custom, kind: empty, code: 500}",
            "14: metrics.outages[0].code: is only valid with kind: error",
        ),
        ("duration: 5s", "12: duration: must be at least one sync period"),
        (
            "flags: {horizontal-pod-autoscaler-sync-period: 0s}",
            "12: flags.horizontal-pod-autoscaler-sync-period: invalid argument \"0s\" for \"--horizontal-pod-autoscaler-sync-period\" flag: must be greater than 0s",
        ),
        (
            "workloads:\n- {name: web}\n- {name: web}",
            "14: workloads[1]: web is already described as workloads[0]",
        ),
        ("workloads:\n- {replicas: 2}", "13: workloads[0]: has no name; add one, such as name: web"),
    ] {
        assert_eq!(error_behind(lines), format!("behind.yaml:{expected}"));
    }
}

#[test]
fn hpa_is_validated_by_the_rules_of_the_api_server() {
    let bad = WEB
        .replace("maxReplicas: 10", "maxReplicas: 1")
        .replace("averageUtilization: 60", "averageUtilization: 0");
    assert_eq!(
        error("hpa.yaml", &bad),
        "hpa.yaml:7: hpas[0]: HorizontalPodAutoscaler.autoscaling \"web\" is invalid: [spec.maxReplicas: Invalid value: 1: must \
         be greater than or equal to `minReplicas`, spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must \
         be greater than 0]"
    );
    assert!(
        error("none.yaml", "title: x\n").starts_with("none.yaml:1: hpas: the scenario has no HPA; add one")
    );
    assert_eq!(
        error("gone.yaml", "hpas:\n- file: gone-web.yaml\n").split(": No such").next(),
        Some("gone.yaml:2: hpas[0].file: gone-web.yaml cannot be read")
    );
}

#[test]
fn hpa_error_names_the_manifest_file() {
    file(
        "own-web.yaml",
        "# comment\napiVersion: v1\nkind: Service\n---\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec:\n  maxReplicas: 0\n",
    );
    let error = error("own.yaml", "hpas:\n- file: own-web.yaml\n");
    assert!(error.starts_with("own-web.yaml:"), "{error}");
    assert!(
        error.contains("spec.maxReplicas: Invalid value: 0: must be greater than or equal to"),
        "{error}"
    );
}

#[test]
fn error_names_the_flag_when_a_flag_set_the_value() {
    let path = file("flag.yaml", WEB);
    let error = |setting: &str| {
        let mut options = options(&path);
        options.set = vec![setting.parse().unwrap()];
        simulate(&options).unwrap_err().to_string()
    };
    assert_eq!(
        error("workloads.web.startup=fast"),
        "--set workloads.web.startup=fast: workloads[0].startup: invalid duration \"fast\": must be a value such as 30s or 1h30m"
    );
    assert_eq!(
        error("spec.maxReplicas=1"),
        "--set spec.maxReplicas=1: hpas[0]: HorizontalPodAutoscaler.autoscaling \"web\" is invalid: spec.maxReplicas: Invalid \
         value: 1: must be greater than or equal to `minReplicas`"
    );
    assert_eq!(error("speed=3"), "--set speed=3: speed: unknown field; did you mean \"seed\"?");
}

#[test]
fn hpa_of_another_version_leads_to_v2() {
    let text =
        "hpas:\n- {apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web}}\n";
    assert_eq!(
        error("old.yaml", text),
        "old.yaml:2: hpas[0]: expected a HorizontalPodAutoscaler of autoscaling/v2, found HorizontalPodAutoscaler of \
         autoscaling/v1; kubectl get hpa.v2.autoscaling web -o yaml prints it as v2, and --from-cluster reads it from the \
         cluster"
    );
}
