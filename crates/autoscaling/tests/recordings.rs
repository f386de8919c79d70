//! Replays every recording of upstream with the core alone, and compares Scale writes, statuses, and events before
//! correlation. The test `conformance` of the root package compares the whole controller with the same recordings. This
//! test is fast enough for every mutant of the core.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "recordings/recomputation.rs"]
mod recomputation;
#[path = "recordings/sentences.rs"]
mod sentences;
#[path = "recordings/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use autoscaling::explanation::MetricExplanation;
use autoscaling::failure::{MetricFailureClass, ScaleFailureClass};
use autoscaling::history::History;
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use autoscaling::{
    Answers, Hpa, Overlap, ScaleFailure, Verdict, WriteOutcome, conclude, decide, failed_update_status, plan,
    target_group,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use world::World;

#[test]
fn every_recorded_decision_is_reproduced() {
    let folder = std::env::var_os("CONCERTINA_CONFORMANCE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance"), PathBuf::from);
    let mut files = Vec::new();
    collect(&folder, &mut files);
    assert!(!files.is_empty(), "no recordings in {}", folder.display());
    let (mut scenarios, mut syncs) = (0, 0);
    let mut differences = Vec::new();
    for file in files {
        let mut text = String::new();
        let compressed = std::fs::File::open(&file).unwrap();
        flate2::read::MultiGzDecoder::new(compressed).read_to_string(&mut text).unwrap();
        for line in text.lines() {
            let recording: Value = serde_json::from_str(line).unwrap();
            scenarios += 1;
            syncs += play(&recording, &mut differences);
        }
    }
    for difference in differences.iter().take(20) {
        println!("{difference}\n");
    }
    println!(
        "{scenarios} scenarios, {syncs} syncs, each computed again from its explanation, {} differences",
        differences.len()
    );
    assert!(differences.is_empty(), "{} differences", differences.len());
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tables" && name != "kpa") {
                collect(&path, files);
            }
        } else if path.to_string_lossy().ends_with(".jsonl.gz") {
            files.push(path);
        }
    }
}

/// The object, the status and the history of one HPA between syncs.
struct HpaState {
    object: Value,
    status: Status,
    history: History,
}

/// Replays the syncs of a recording until the first difference. Returns the number of its syncs.
fn play(recording: &Value, differences: &mut Vec<String>) -> usize {
    let settings = settings_of(recording);
    let mut world = World::default();
    let mut hpas: BTreeMap<String, HpaState> = BTreeMap::new();
    let syncs = recording["syncs"].as_array().unwrap();
    for (number, sync) in syncs.iter().enumerate() {
        let key = sync["hpa"].as_str().unwrap().to_owned();
        if sync["object"].is_object() {
            let uid = |object: &Value| object["metadata"]["uid"].clone();
            let same = hpas.get(&key).is_some_and(|stored| uid(&stored.object) == uid(&sync["object"]));
            if same {
                hpas.get_mut(&key).unwrap().object = sync["object"].clone();
            } else {
                let stored = HpaState {
                    object: sync["object"].clone(),
                    status: Status::default(),
                    history: History::default(),
                };
                hpas.insert(key.clone(), stored);
            }
        }
        world.update(&sync["world"]);
        let Some(stored) = hpas.get_mut(&key) else { panic!("{}: no HPA {key}", recording["name"]) };
        let got = one(&mut world, &key, stored, &settings, sync["at"].as_str().unwrap().parse().unwrap());
        let expected = expectation(&sync["expect"]);
        if !matches(&expected, &got) {
            differences.push(format!(
                "{} {} sync {number} at {}\n  expected {expected}\n  got      {got}",
                recording["emulatedVersion"], recording["name"], sync["at"]
            ));
            return syncs.len();
        }
    }
    syncs.len()
}

fn settings_of(recording: &Value) -> Settings {
    let version = Version::named(recording["emulatedVersion"].as_str().unwrap()).unwrap();
    let mut settings = Settings::new(version);
    let config = &recording["config"];
    let seconds = |name: &str| go_seconds(config[name].as_str().unwrap());
    settings.tolerance = config["tolerance"].as_f64().unwrap();
    settings.downscale_stabilization = seconds("downscaleStabilization");
    settings.cpu_initialization_period = seconds("cpuInitializationPeriod");
    settings.initial_readiness_delay = seconds("initialReadinessDelay");
    let gate = |name: &str, default: bool| config["featureGates"][name].as_bool().unwrap_or(default);
    settings.scale_to_zero = gate("HPAScaleToZero", settings.scale_to_zero);
    settings.generation = gate("HPAGeneration", settings.generation);
    settings.configurable_tolerance = gate("HPAConfigurableTolerance", settings.configurable_tolerance);
    settings
}

/// Parses the durations in recordings: `5m0s`, `30s`.
fn go_seconds(text: &str) -> Duration {
    let (minutes, seconds) = text.split_once('m').unwrap_or(("0", text));
    let seconds: u64 = seconds.strip_suffix('s').unwrap().parse().unwrap();
    Duration::from_secs(minutes.parse::<u64>().unwrap() * 60 + seconds)
}

fn one(world: &mut World, key: &str, stored: &mut HpaState, settings: &Settings, now: Timestamp) -> Value {
    let (namespace, name) = key.split_once('/').unwrap();
    let spec: Spec = serde_json::from_value(stored.object["spec"].clone()).unwrap();
    let generation = stored.object["metadata"]["generation"].as_i64();
    let hpa = Hpa { namespace, name, generation, spec: &spec, status: &stored.status };
    let target = &spec.target;
    let (path, scale) = match target_group(target) {
        Err(error) => (
            None,
            Err(ScaleFailure { class: ScaleFailureClass::InvalidReference, message: error.to_string() }),
        ),
        Ok(group) => {
            let (path, scale) = world.scale(group, &target.kind, &target.name, settings.version);
            (
                path,
                scale.map_err(|message| ScaleFailure {
                    class: ScaleFailureClass::from_text(&message),
                    message,
                }),
            )
        }
    };
    let sync_plan = plan(
        &hpa,
        scale,
        |selector| match world.claim(key, selector) {
            others if others.len() > 1 => Overlap::Shared(others),
            _ => Overlap::None,
        },
        settings,
    );
    let mut replies = vec![None; spec.metrics.len()];
    for (index, query) in sync_plan.queries() {
        replies[index] = Some(world.answer(query));
    }
    let pods = sync_plan.scale().map(|scale| world.select(&scale.selector)).unwrap_or_default();
    let answers = Answers { metrics: replies, pods: &pods };
    let decision = decide(&hpa, &sync_plan, &answers, &stored.history, settings, now);
    let mut writes = Vec::new();
    let outcome = match decision.verdict() {
        Verdict::Rescale { to, .. } => world.put_scale(path.as_deref().unwrap(), *to, &mut writes),
        _ => WriteOutcome::NotNeeded,
    };
    for metric in &decision.explanation().metrics {
        if let MetricExplanation::Failed(failed) = metric {
            // Upstream's text implies the class, except for the texts about selectors.
            if failed.class != Some(MetricFailureClass::InvalidMetric) {
                let parsed = MetricFailureClass::from_text(failed.cause());
                assert_eq!(failed.class, Some(parsed), "{}", failed.error);
            }
        }
    }
    let sentence = decision.explanation().sentence(now);
    let faults = sentences::faults(&sentence, decision.explanation(), decision.count(), false);
    assert!(faults.is_empty(), "{key} at {now}: {sentence}\n{faults:?}");
    let explained = serde_json::to_value(decision.explanation()).unwrap();
    let recomputed = recomputation::recompute(&explained);
    let agrees = match (&recomputed, decision.verdict()) {
        (Ok(Some(count)), Verdict::Rescale { to, .. }) => *count == i64::from(*to),
        (Ok(Some(count)), Verdict::Keep) => *count == i64::from(decision.current()),
        (Ok(Some(count)), Verdict::Disabled) => *count == 0,
        (Ok(None), Verdict::NoScale | Verdict::NoCount(_)) => true,
        _ => false,
    };
    assert!(agrees, "{key} at {now}: {recomputed:?} follows from the explanation\n{explained:#}");
    let conclusion = conclude(&hpa, decision, &outcome, settings, now);
    let mut events = conclusion.events;
    if let Some(status) = conclusion.status {
        match world.put_status() {
            None => stored.status.clone_from(&status),
            Some(error) => events.push(failed_update_status(&error)),
        }
    }
    events.extend(conclusion.last_event);
    stored.history.commit(&conclusion.changes);
    let events: Vec<Value> = events.iter().map(|event| json!([event.reason, event.message])).collect();
    let status = serde_json::to_value(&stored.status).unwrap();
    json!({ "scaleWrites": writes, "status": without_defaults(status), "events": events })
}

fn expectation(expect: &Value) -> Value {
    // If upstream's text contains a random pod, it is random whether upstream writes a status, and whether the write
    // hits a recorded fault.
    let by_chance = expect["statusWrites"] == -1;
    let events: Vec<Value> = expect["events"]
        .as_array()
        .map(|events| {
            events
                .iter()
                .filter(|event| !(by_chance && event["reason"] == "FailedUpdateStatus"))
                .map(|event| {
                    let message = event["message"].as_str().unwrap();
                    let message = message.strip_prefix("(combined from similar events): ").unwrap_or(message);
                    json!([event["reason"], message])
                })
                .collect()
        })
        .unwrap_or_default();
    let writes: Vec<Value> = expect["scaleWrites"]
        .as_array()
        .map(|writes| writes.iter().map(|write| json!([write["replicas"], write["code"]])).collect())
        .unwrap_or_default();
    json!({ "scaleWrites": writes, "status": without_defaults(expect["status"].clone()), "events": events })
}

/// Removes fields that JSON may omit: nulls, zeros and empty lists.
fn without_defaults(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (name, without_defaults(value)))
                .filter(|(_, value)| !value.is_null() && *value != json!(0) && *value != json!([]))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_defaults).collect()),
        other => other,
    }
}

fn matches(expected: &Value, got: &Value) -> bool {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            expected.len() == got.len()
                && expected.iter().all(|(name, value)| {
                    got.get(name).is_some_and(|got| {
                        // Event correlation, which is not part of the core, may have dropped events.
                        if name == "events" { is_subsequence(value, got) } else { matches(value, got) }
                    })
                })
        }
        (Value::Array(expected), Value::Array(got)) => {
            expected.len() == got.len()
                && expected.iter().zip(got).all(|(expected, got)| matches(expected, got))
        }
        (Value::String(expected), Value::String(got)) => text_matches(expected, got),
        _ => expected == got,
    }
}

fn is_subsequence(expected: &Value, got: &Value) -> bool {
    let mut got = got.as_array().unwrap().iter();
    expected.as_array().unwrap().iter().all(|expected| got.any(|got| matches(expected, got)))
}

/// Whether `got` matches `expected`, in which `*` matches any text, and ` Pod *` at the end matches any pod.
fn text_matches(expected: &str, got: &str) -> bool {
    if expected == "*" {
        return true;
    }
    match expected.strip_suffix(" Pod *") {
        Some(before) => got.strip_prefix(before).is_some_and(|rest| rest.starts_with(" Pod ")),
        None => expected == got,
    }
}
