//! What is wrong with a scenario is told with file, line and field.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::course::WEB;
use crate::{file, options};
use concertina::commands::simulate::simulate;

/// What is said about a file, without its folder.
fn error(name: &str, text: &str) -> String {
    let path = file(name, text);
    let error = simulate(&options(&path)).expect_err("a scenario with an error").to_string();
    error.replace(&format!("{}/", path.parent().unwrap().display()), "")
}

/// What is said about lines behind an HPA that takes the first eleven.
fn behind(lines: &str) -> String {
    // Tests run at once, each with files of its own.
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("behind-{}.yaml", FILES.fetch_add(1, Ordering::Relaxed));
    error(&name, &format!("{WEB}\n{lines}\n")).replace(&name, "behind.yaml")
}

#[test]
fn a_value_of_another_form_says_what_it_should_be() {
    for (lines, expected) in [
        (
            "workloads:\n- name: web\n  startup: fast",
            "14: workloads[0].startup: \"fast\" is not a duration: give one such as 30s or 1h30m",
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
            "14: load[0].cpu.ramp.to: \"lots\" is not a quantity: give one such as 250m, 1.5 or 64Mi",
        ),
        (
            "load:\n- cpu: 1\n  capacityPerPod: -2",
            "14: load[0].capacityPerPod: \"-2\" is negative: give a quantity such as 250m, 1.5 or 64Mi",
        ),
        ("duration: 1d", "12: duration: \"1d\" is not a duration: give one such as 30s or 1h30m"),
        (
            "metrics:\n  outages:\n  - {api: resource, kind: missing, fraction: half}",
            "14: metrics.outages[0].fraction: \"half\" is not a share: give one from 0 to 1, or from 0% to 100%",
        ),
        (
            "start: noon",
            "12: start: \"noon\" is not a time: give one such as 08:00 (of a Monday, UTC) or 2030-01-07T00:00:00Z",
        ),
    ] {
        assert_eq!(behind(lines), format!("behind.yaml:{expected}"));
    }
}

#[test]
fn a_name_that_is_not_known_gets_the_nearest_that_is() {
    for (lines, expected) in [
        ("workload: []", "12: workload: there is no such field; did you mean \"workloads\"?"),
        (
            "workloads:\n- name: web\n  startUp: 3s",
            "14: workloads[0].startUp: there is no such field; did you mean \"startup\"?",
        ),
        ("load:\n- cpu: {sinus: 3}", "13: load[0].cpu.sinus: there is no such field; did you mean \"sine\"?"),
        (
            "workloads:\n- name: web\n  failures:\n  - crashloop: {fraction: 1}",
            "15: workloads[0].failures[0]: there is no \"crashloop\" here; did you mean \"crashLoop\"?",
        ),
        (
            "flags: {horizontal-pod-autoscaler-tolerence: 0.2}",
            "12: flags.horizontal-pod-autoscaler-tolerence: there is no such flag; did you mean \"horizontal-pod-autoscaler-tolerance\"?",
        ),
        (
            "load:\n- {workload: wbe, cpu: 1}",
            "13: load[0].workload: there is no workload \"wbe\"; did you mean \"web\"?",
        ),
        (
            "rollouts:\n- {at: 1m, workload: wbe}",
            "13: rollouts[0]: there is no workload \"wbe\"; did you mean \"web\"?",
        ),
    ] {
        assert_eq!(behind(lines), format!("behind.yaml:{expected}"));
    }
}

#[test]
fn what_does_not_fit_together_is_told() {
    for (lines, expected) in [
        (
            "load:\n- {cpu: 1, demand: 1}",
            "13: load[0]: cpu and demand are both given; give demand with cpuPerUnit, or cpu alone",
        ),
        ("load:\n- {demand: 1}", "13: load[0]: how much a pod can do is not known; give capacityPerPod"),
        (
            "load:\n- cpu: {noise: 5%}",
            "13: load[0].cpu: there is no shape; give a quantity or one of constant, ramp, step, sine, businessDay, spikes, randomSpikes, points, csv and sum",
        ),
        (
            "load:\n- cpu: {constant: 1, csv: x.csv}",
            "13: load[0].cpu.csv: x.csv cannot be read: No such file or directory (os error 2)",
        ),
        (
            "metrics: {scrapeInterval: 30s, window: 15s}",
            "12: metrics.window: is shorter than the scrape interval",
        ),
        (
            "metrics:\n  outages:\n  - {api: custom, kind: empty, code: 500}",
            "14: metrics.outages[0].code: only goes with kind: error",
        ),
        ("duration: 5s", "12: duration: is shorter than a sync period"),
        (
            "flags: {horizontal-pod-autoscaler-sync-period: 0s}",
            "12: flags.horizontal-pod-autoscaler-sync-period: invalid argument \"0s\" for \"--horizontal-pod-autoscaler-sync-period\" flag: must be greater than 0s",
        ),
        (
            "workloads:\n- {name: web}\n- {name: web}",
            "14: workloads[1]: web is described already, as workloads[0]",
        ),
        ("workloads:\n- {replicas: 2}", "13: workloads[0]: its name is missing; give name: web"),
    ] {
        assert_eq!(behind(lines), format!("behind.yaml:{expected}"));
    }
}

#[test]
fn an_hpa_is_checked_by_the_rules_of_the_api_server() {
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
        error("none.yaml", "title: x\n").starts_with("none.yaml:1: hpas: there is no HPA; give at least one")
    );
    assert_eq!(
        error("gone.yaml", "hpas:\n- file: gone-web.yaml\n").split(": No such").next(),
        Some("gone.yaml:2: hpas[0].file: gone-web.yaml cannot be read")
    );
}

#[test]
fn an_hpa_in_a_file_of_its_own_is_blamed_there() {
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
fn what_a_flag_sets_is_blamed_on_the_flag() {
    let path = file("flag.yaml", WEB);
    let error = |setting: &str| {
        let mut options = options(&path);
        options.set = vec![setting.parse().unwrap()];
        simulate(&options).unwrap_err().to_string()
    };
    assert_eq!(
        error("workloads.web.startup=fast"),
        "--set workloads.web.startup=fast: workloads[0].startup: \"fast\" is not a duration: give one such as 30s or 1h30m"
    );
    assert_eq!(
        error("spec.maxReplicas=1"),
        "--set spec.maxReplicas=1: hpas[0]: HorizontalPodAutoscaler.autoscaling \"web\" is invalid: spec.maxReplicas: Invalid \
         value: 1: must be greater than or equal to `minReplicas`"
    );
    assert_eq!(error("speed=3"), "--set speed=3: speed: there is no such field; did you mean \"seed\"?");
}
