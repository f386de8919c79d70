//! Scaling policies of annotations and objects. Any text gives a policy within the limits of its fields, and a bounded
//! number of problems. The result is deterministic. An unknown field changes no other field. The current phase of a
//! schedule ends in the future.

#![no_main]

#[path = "policy/composed.rs"]
mod composed;
mod cost;
mod plant;

use std::borrow::Cow;

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use policies::spec::{Level, MAX_ENTRIES, MAX_PROBLEMS, MetricOrigin, Parsed, parse, read};
use serde_json::{Map, Value};

/// The maximum length of a problem in bytes. A problem names the path of a field and a shortened value.
const MAX_REPORT: usize = 4 << 10;

/// A field that no policy has.
const UNKNOWN: &str = "fuzzed";

/// The first byte of an input for `composed::policy`. No UTF-8 text contains this byte.
const COMPOSED: u8 = 0xff;

fuzz_target!(|input: &[u8]| cost::bounded(|| {
    let text = match input {
        [COMPOSED, rest @ ..] => composed::policy(rest).map(Cow::Owned).ok(),
        _ => std::str::from_utf8(input).map(Cow::Borrowed).ok(),
    };
    let Some(text) = text else { return };
    let text = text.as_ref();
    let now = Timestamp::UNIX_EPOCH;
    // The comparison with an unknown field uses JSON in both cases, because numbers and keys differ in YAML.
    let fields: Option<Map<String, Value>> = serde_json::from_str(text).ok();
    let fields = fields.filter(|fields| !fields.contains_key(UNKNOWN));
    for level in [Level::Annotation, Level::Namespaced, Level::Cluster] {
        let parsed = parse(text, level);
        check(&parsed, now);
        assert_eq!(parse(text, level), parsed);
        if let Some(fields) = &fields {
            let mut further = fields.clone();
            further.insert(UNKNOWN.to_owned(), Value::Bool(true));
            let with_unknown = read(Value::Object(further), level);
            let alone = read(Value::Object(fields.clone()), level);
            assert_eq!(with_unknown.spec, alone.spec);
            assert!(with_unknown.problems.len() >= alone.problems.len().min(MAX_PROBLEMS));
        }
    }
}));

fn check(parsed: &Parsed, now: Timestamp) {
    let spec = &parsed.spec;
    assert!(parsed.problems.len() <= MAX_PROBLEMS + 1);
    assert!(parsed.problems.iter().all(|problem| problem.to_string().len() <= MAX_REPORT), "{parsed:?}");
    // The planted bug occurs with a mode and a sync period of more than a minute.
    let planted = plant::planted("policy")
        && spec.mode.is_some()
        && spec.sync_period_seconds.is_some_and(|seconds| seconds > 60);
    assert!(!planted && spec.sync_period_seconds.is_none_or(|seconds| (1..=3600).contains(&seconds)));
    assert!(spec.tolerance.is_none_or(|tolerance| tolerance >= 0.0 && tolerance.is_finite()));
    if let Some(burst) = &spec.burst {
        assert!(spec.sync_period_seconds.is_some() && burst.window_seconds <= burst.stable_window_seconds);
    }
    for schedule in spec.schedules.iter().flat_map(|schedules| schedules.iter()) {
        assert!(schedule.min_replicas.is_some() || schedule.max_replicas.is_some());
        let phase = schedule.when.phase(now);
        assert!(phase.until.is_none_or(|until| until > now), "{schedule:?}");
    }
    let metrics: Vec<_> = spec.metrics.iter().flat_map(|metrics| metrics.iter()).collect();
    assert!(metrics.len() <= MAX_ENTRIES);
    for metric in metrics {
        assert!(!metric.metric.is_empty());
        if let MetricOrigin::Pods(series) = &metric.origin {
            assert!(series.path.starts_with('/') && series.interval_seconds > 0);
            assert!(series.rate_seconds.is_none_or(|rate| rate >= series.interval_seconds * 2));
        }
    }
}
