//! The themes of worlds. Each theme extends a common base by inputs that recordings cannot contain.

use http::Method;
use serde_json::json;

use crate::draft::{Draft, Hpa, KINDS, LEGACY, Pod, Source, Target};
use crate::fault_themes::{conflicts, cut, metric_faults, one_source, server_errors, throttled};
use crate::plan::{Call, Trait, behavior, pod, spec};
use crate::servers::THINGS;

/// A theme of worlds. `prepare` runs before the common base creates its objects, and `alter` before each step.
#[derive(Clone, Copy)]
pub(crate) struct Theme {
    pub(crate) name: &'static str,
    pub(crate) prepare: fn(&mut Draft),
    pub(crate) alter: fn(&mut Draft, usize),
}

const fn theme(name: &'static str, prepare: fn(&mut Draft), alter: fn(&mut Draft, usize)) -> Theme {
    Theme { name, prepare, alter }
}

const NOTHING: fn(&mut Draft) = |_| {};

pub(crate) const THEMES: [Theme; 16] = [
    theme("mixed-case", mixed_case, |_, _| {}),
    theme("throttled", one_source, throttled),
    theme("server-errors", one_source, server_errors),
    theme("cut", one_source, cut),
    theme("recreated-hpa", without_history, recreated_hpa),
    theme("recreated-target", NOTHING, recreated_target),
    theme("conflicts", NOTHING, conflicts),
    theme("phases", phases, |_, _| {}),
    theme("huge", huge, huge_readings),
    theme("long-names", long_names, |_, _| {}),
    theme("edits", NOTHING, edits),
    theme("metric-faults", NOTHING, metric_faults),
    theme("shared-pods", shared_pods, |_, _| {}),
    theme("zero", zero, zero_replicas),
    theme("requests", requests, |_, _| {}),
    theme("scale-kinds", scale_kinds, |_, _| {}),
];

fn mixed_case(draft: &mut Draft) {
    draft.sources = vec![
        Source::Pods("Requests_Per_Second".to_owned()),
        Source::Object { name: "Main".to_owned(), metric: "HTTP_Hits".to_owned(), average: true },
    ];
    if draft.dice.percent(50) {
        draft.sources.push(Source::Other(json!({"type": "Resource", "resource": {
            "name": "CPU", "target": {"type": "AverageValue", "averageValue": "50m"},
        }})));
    }
    if draft.dice.percent(50) {
        draft.sources.push(Source::Other(json!({"type": "ContainerResource", "containerResource": {
            "name": "cpu", "container": "sidecar", "target": {"type": "Utilization", "averageUtilization": 50},
        }})));
    }
    let base = spec(draft);
    draft.add_hpa("web", base.clone());
    let (version, kind, name) = draft.dice.pick(&[
        ("apps/v1", "deployment", "Web"),
        ("Apps/v1", "Deployment", "Web"),
        ("apps/V1", "Deployment", "Web"),
        ("batch/v1", "cronJob", "web"),
        ("apps/v1", "Deployment", "Web"),
        ("apps/v1", "DaemonSet", "Web"),
    ]);
    let mut spec = base;
    spec["scaleTargetRef"] = json!({"apiVersion": version, "kind": kind, "name": name});
    // Discovery finds a kind in lower case. It finds neither a kind in camel case nor a group in mixed case.
    let scale = match (version, kind) {
        ("apps/v1" | "apps/V1", "Deployment" | "deployment") => Some("deployments"),
        ("apps/v1", "DaemonSet") => Some("daemonsets"),
        _ => None,
    };
    let namespace = &draft.namespace;
    let scale = scale.map(|resource| format!("/apis/apps/v1/namespaces/{namespace}/{resource}/{name}/scale"));
    draft.create_hpa(Hpa { name: "other".to_owned(), spec, scale, traits: Vec::new() });
}

pub(crate) fn mark(draft: &mut Draft, property: Trait) {
    for hpa in &mut draft.hpas {
        if !hpa.traits.contains(&property) {
            hpa.traits.push(property);
        }
    }
}

/// In half of the worlds, the rules of the HPA do not depend on its history.
fn without_history(draft: &mut Draft) {
    let mut spec = spec(draft);
    let depends = draft.dice.percent(50);
    if !depends {
        let policies = json!([{"type": "Pods", "value": 10_000, "periodSeconds": 1}]);
        let rules = json!({"stabilizationWindowSeconds": 0, "policies": policies});
        spec["behavior"] = json!({"scaleUp": rules, "scaleDown": rules});
    }
    draft.add_hpa("web", spec);
    if depends {
        mark(draft, Trait::Recreated);
    }
}

/// Deletes the HPA and creates it again, at once or with the next step.
fn recreated_hpa(draft: &mut Draft, number: usize) {
    let absent = draft.steps.last().is_some_and(|step| !step.absent.is_empty());
    let Hpa { name, spec, .. } = &draft.hpas[0];
    let body = json!({"metadata": {"name": name}, "spec": spec});
    let (path, collection) = (draft.hpa_path(name), draft.hpa_path(""));
    if number == 2 {
        draft.next.hpa_changes.push(Call { method: Method::DELETE, path, body: json!({}) });
        if draft.dice.percent(50) {
            draft.next.absent = vec![0];
            return;
        }
    }
    if number == 2 || absent {
        draft.next.hpa_changes.push(Call { method: Method::POST, path: collection, body });
    }
}

fn recreated_target(draft: &mut Draft, number: usize) {
    let mut target = draft.target.clone();
    match number {
        2 => {
            // The common base may have planned changes of the target.
            draft.next.changes.retain(|call| !call.path.contains(target.kind.2));
            draft.delete_target(&target);
        }
        3 => {
            draft.next.changes.retain(|call| !call.path.contains(target.kind.2));
            target.replicas = draft.dice.between(1, 9).cast_signed();
            draft.create_target(&target, "web");
        }
        _ => {}
    }
}

fn phases(draft: &mut Draft) {
    draft.target.replicas = draft.dice.between(3, 6).cast_signed();
    for _ in 0..draft.dice.between(3, 5) {
        let base = pod(draft, "web");
        let dice = &mut draft.dice;
        let phase = dice.pick(&[
            "Unknown",
            "Unknown",
            "Unknown",
            "Failed",
            "Failed",
            "Pending",
            "Running",
            "Succeeded",
        ]);
        let pod = Pod {
            phase,
            ready: dice.pick(&["True", "False", "Unknown"]),
            age: dice.pick(&[-1, 120, 3600]),
            deleted: dice.percent(20),
            measured: dice.percent(70),
            ..base
        };
        draft.create_pod(pod);
    }
    let spec = spec(draft);
    draft.add_hpa("web", spec);
    if draft.pods.iter().any(|pod| pod.phase == "Succeeded") {
        mark(draft, Trait::SucceededPods);
    }
}

/// Quantities, each with its value in milli-units.
const HUGE: [(&str, i128); 9] = [
    ("9223372036854775807", 9_223_372_036_854_775_807_000),
    ("9223372036854775807m", 9_223_372_036_854_775_807),
    ("9223372036854775", 9_223_372_036_854_775_000),
    ("8Ei", 9_223_372_036_854_775_808_000),
    ("1e18", 1_000_000_000_000_000_000_000),
    ("4Pi", 4_503_599_627_370_496_000),
    ("2147483648", 2_147_483_648_000),
    ("1n", 1),
    ("1Ti", 1_099_511_627_776_000),
];

const TARGETS: [(&str, i128); 6] = [
    ("1", 1000),
    ("1m", 1),
    ("9223372036854775807", 9_223_372_036_854_775_807_000),
    ("1E", 1_000_000_000_000_000_000_000),
    ("2147483647", 2_147_483_647_000),
    ("1Ki", 1_024_000),
];

fn overflows(milli: i128) -> bool {
    i64::try_from(milli).is_err()
}

fn huge(draft: &mut Draft) {
    let (value, milli) = draft.dice.pick(&TARGETS);
    let target = if draft.dice.percent(50) {
        json!({"type": "AverageValue", "averageValue": value})
    } else {
        json!({"type": "Value", "value": value})
    };
    draft.sources = vec![Source::Other(json!({"type": "External", "external": {
        "metric": {"name": "queue"}, "target": target,
    }}))];
    if draft.dice.percent(50) {
        draft.sources.push(Source::Memory);
    }
    let mut spec = spec(draft);
    spec["maxReplicas"] = json!(draft.dice.pick(&[10, 1000, 2_147_483_647]));
    draft.add_hpa("web", spec);
    if overflows(milli) {
        mark(draft, Trait::Overflow);
    }
}

/// Sets huge readings. With an odd number of pods, no reading overflows.
fn huge_readings(draft: &mut Draft, _: usize) {
    let all = draft.pods.len().is_multiple_of(2);
    let values: Vec<_> = if all {
        (0..draft.dice.between(1, 3)).map(|_| draft.dice.pick(&HUGE)).collect()
    } else {
        vec![draft.dice.pick(&HUGE[5..])]
    };
    if overflows(values.iter().map(|(_, milli)| milli).sum()) || values.iter().any(|value| overflows(value.1))
    {
        mark(draft, Trait::Overflow);
    }
    let values = values.into_iter().map(|(text, _)| text.to_owned()).collect();
    draft.next.readings.external.insert("queue".to_owned(), values);
}

fn long_names(draft: &mut Draft) {
    let long = |first: &str, length: usize| {
        let name = format!("{first}-{}", "abcdefghi.".repeat(26));
        let name = name.get(..length).unwrap_or_default();
        name.trim_end_matches(['.', '-']).to_owned()
    };
    // The API server allows only shorter names for StatefulSets.
    let longest = if draft.target.kind.1 == "StatefulSet" { 8 } else { 253 };
    draft.target.name = long("target", longest);
    let length = draft.dice.pick(&[253, 253, 237, 236, 230, 200]);
    draft.sources.push(Source::External { metric: long("metric", 253), average: true });
    let spec = spec(draft);
    let name = long("hpa", length);
    draft.add_hpa(&name, spec);
}

fn edits(draft: &mut Draft, number: usize) {
    if number == 0 {
        return;
    }
    let spec = match draft.dice.below(6) {
        0 => json!({"minReplicas": draft.dice.between(1, 4)}),
        1 => json!({"maxReplicas": draft.dice.between(4, 25)}),
        2 => json!({"behavior": behavior(&mut draft.dice)}),
        3 => json!({"behavior": null}),
        4 => {
            draft.sources.reverse();
            json!({"metrics": draft.sources.iter().map(Source::spec).collect::<Vec<_>>()})
        }
        _ => {
            let (target, replicas) = (draft.target.clone(), draft.dice.between(1, 25).cast_signed());
            return draft.scale_target(&target, replicas);
        }
    };
    draft.change_hpa(0, &spec);
}

/// Adds a second HPA with its own target, which selects the same pods or other pods.
fn shared_pods(draft: &mut Draft) {
    let base = spec(draft);
    draft.add_hpa("web", base.clone());
    let kind = draft.dice.pick(&KINDS);
    let other = Target { kind, name: "other".to_owned(), replicas: 2 };
    let same = draft.dice.percent(60);
    draft.create_target(&other, if same { "web" } else { "other" });
    let first = std::mem::replace(&mut draft.target, other);
    draft.add_hpa("other", base);
    draft.target = first;
}

fn zero(draft: &mut Draft) {
    draft.sources = vec![Source::External { metric: "queue".to_owned(), average: draft.dice.percent(50) }];
    let mut spec = spec(draft);
    spec["minReplicas"] = json!(0);
    draft.add_hpa("web", spec);
}

fn zero_replicas(draft: &mut Draft, number: usize) {
    if number > 0 && draft.dice.percent(40) {
        let target = draft.target.clone();
        draft.scale_target(&target, 0);
        draft.target_status(&target, 0, "app=web");
    }
}

/// Adds pods with missing, odd and different requests.
fn requests(draft: &mut Draft) {
    draft.sources = vec![Source::Cpu { utilization: true }, Source::Container];
    let missing = draft.dice.percent(60);
    for number in 0..draft.dice.between(1, 3) {
        let base = pod(draft, "web");
        let cpu =
            if missing && number == 0 { "" } else { draft.dice.pick(&["0", "1n", "1", "9223372036854775"]) };
        draft.create_pod(Pod { requests: (cpu, "64Mi"), ..base });
    }
    let spec = spec(draft);
    draft.add_hpa("web", spec);
}

/// Replaces the target by a target of an aggregated API, with a Scale of an earlier version.
fn scale_kinds(draft: &mut Draft) {
    let (kind, resource, ..) = draft.dice.pick(&THINGS);
    draft.target.kind = (LEGACY, kind, resource);
    let spec = spec(draft);
    draft.add_hpa("web", spec);
}
