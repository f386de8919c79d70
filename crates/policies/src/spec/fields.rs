//! Reads a policy from the text of an annotation or from the `spec` of an object.

use std::sync::Arc;

use jiff::Timestamp;
use limits::policy::DEPTH as MAX_DEPTH;
use serde_json::Value;

use super::reader::{Reader, names, shown};
use super::{
    BurstSpec, Corrections, Fallback, FallbackAction, Guards, Limits, MAX_BYTES, MAX_NODES, MAX_PROBLEMS,
    MaxStep, MetricRule, Mode, ModeRule, Named, PendingPods, PolicySpec, Problem, ProblemReason, forecast,
    metrics,
};
use crate::schedule::{Phase, Recurrence};

/// The default of `failureDurationSeconds`, which is its minimum in KEP-5679.
const FAILURE_DURATION_SECONDS: u32 = 180;
/// Maximum of most durations: a day in seconds.
const MAX_SECONDS: i64 = 86_400;
/// Maximum bytes of the name of a metric or a container.
const MAX_NAME: usize = 253;
/// Maximum bytes of the name of a schedule.
const MAX_SCHEDULE_NAME: usize = 63;
/// Maximum bytes of `timeZone`, `start` and `end`.
pub(super) const MAX_TEXT: usize = 1024;

/// The kind of a policy's source, from the highest precedence to the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The annotation `concertina.dev/policy` of an HPA.
    Annotation,
    /// A ScalingPolicy.
    Namespaced,
    /// A ClusterScalingPolicy.
    Cluster,
}

/// The result of reading a policy.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parsed {
    /// The valid fields.
    pub spec: PolicySpec,
    /// The problems of the other fields, sorted by path.
    pub problems: Vec<Problem>,
}

/// Reads a policy from the text of an annotation or a file, in YAML or JSON.
pub fn parse(text: &str, level: Level) -> Parsed {
    let whole = |reason| Parsed {
        spec: PolicySpec::default(),
        problems: vec![Problem { path: String::new(), reason }],
    };
    if text.len() > MAX_BYTES {
        return whole(ProblemReason::TooLarge { bytes: text.len(), maximum: MAX_BYTES });
    }
    let options = serde_saphyr::options! {
        // An alias repeats its anchor, so a short text could have many nodes. No policy needs one.
        budget: serde_saphyr::budget! {
            max_anchors: 0,
            max_aliases: 0,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_documents: 1,
        },
        merge_keys: serde_saphyr::MergeKeyPolicy::Error,
        // Problems contain no snippet of the text, and rendering a snippet would take longer than parsing the text.
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Value>(text, options) {
        Ok(value) => read(value, level),
        Err(error) => {
            let error = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
            let line: String = error.lines().next().unwrap_or_default().chars().take(200).collect();
            whole(ProblemReason::Unreadable(line))
        }
    }
}

/// Reads the `spec` of an object. `selector` and `namespaceSelector` are ignored, because the caller reads them.
pub fn read(value: Value, level: Level) -> Parsed {
    let mut problems = Vec::new();
    let spec = match value {
        Value::Object(fields) => {
            let mut reader = Reader::new(String::new(), fields, &mut problems);
            let spec = policy(&mut reader, level);
            reader.end();
            spec
        }
        Value::Null => PolicySpec::default(),
        value => {
            let reason = ProblemReason::Invalid { expected: "a mapping".to_owned(), value: shown(&value) };
            problems.push(Problem { path: String::new(), reason });
            PolicySpec::default()
        }
    };
    problems.sort_by(|a, b| a.path.cmp(&b.path));
    if let Some(more) = problems.len().checked_sub(MAX_PROBLEMS).filter(|more| *more > 0) {
        problems.truncate(MAX_PROBLEMS);
        problems.push(Problem { path: String::new(), reason: ProblemReason::More(more) });
    }
    Parsed { spec, problems }
}

fn policy(reader: &mut Reader<'_>, level: Level) -> PolicySpec {
    if level != Level::Annotation {
        reader.take("selector");
    }
    if level == Level::Cluster {
        reader.take("namespaceSelector");
    } else if reader.has("limits") {
        reader.take("limits");
        reader.report("limits", ProblemReason::ClusterOnly);
    }
    let burst = reader.unit("burst", |reader| Some(burst(reader)));
    PolicySpec {
        mode: mode(reader),
        // The default with `burst` is one second, because its windows have one bucket per second.
        sync_period_seconds: reader.integer("syncPeriodSeconds", 1..=3600).or_else(|| burst.map(|_| 1)),
        tolerance: reader.fraction("tolerance"),
        cpu_initialization_period_seconds: reader.integer("cpuInitializationPeriodSeconds", 0..=MAX_SECONDS),
        initial_readiness_delay_seconds: reader.integer("initialReadinessDelaySeconds", 0..=MAX_SECONDS),
        downscale_stabilization_seconds: reader.integer("downscaleStabilizationSeconds", 0..=MAX_SECONDS),
        status_precision: reader.precision("statusPrecision"),
        schedules: reader.list("schedules", schedule).map(Into::into),
        fallback: reader.list("fallback", fallback).map(Into::into),
        combine: reader.choice("combine"),
        metrics: metric_rules(reader),
        burst,
        forecast: reader.unit("forecast", |reader| Some(forecast::read(reader))).map(Arc::new),
        guards: reader.group("guards", guards).unwrap_or_default(),
        corrections: reader.group("corrections", corrections).unwrap_or_default(),
        limits: if level == Level::Cluster { reader.group("limits", limits) } else { None },
    }
}

/// Reads `mode`, `replicas` and `until`. [`ModeRule::mode`] is `None` if `mode` or `until` is invalid, or if the mode
/// Pinned has no valid `replicas`.
fn mode(reader: &mut Reader<'_>) -> Option<ModeRule> {
    let value = reader.take("mode");
    let has_until = reader.has("until");
    let (replicas, until) = (reader.count("replicas"), reader.time("until"));
    let Some(value) = value else {
        for (field, is_set) in [("replicas", replicas.is_some()), ("until", until.is_some())] {
            if is_set {
                reader.report(field, ProblemReason::Conflict("has no effect without mode"));
            }
        }
        return None;
    };
    let mode = value.as_str().and_then(|text| Mode::NAMES.iter().find(|(name, _)| *name == text));
    let mode = mode.map(|(_, mode)| *mode);
    let problem = match mode {
        None => Some(format!("must be {}, not {}", names::<Mode>(), shown(&value))),
        Some(Mode::Pinned) if replicas.is_none() => Some("Pinned needs replicas".to_owned()),
        Some(_) if has_until && until.is_none() => Some("until is invalid".to_owned()),
        Some(_) => None,
    };
    if replicas.is_some() && mode.is_some_and(|mode| mode != Mode::Pinned) {
        reader.report("replicas", ProblemReason::Conflict("has an effect with the mode Pinned only"));
    }
    let is_valid = problem.is_none();
    if let Some(problem) = problem {
        reader.report("mode", ProblemReason::Held(problem));
    }
    Some(ModeRule { mode: mode.filter(|_| is_valid), replicas, until })
}

/// `action` of a fallback, without the count of [`FallbackAction`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum ActionName {
    Hold,
    Ignore,
    Replicas,
    LastValue,
}

impl Named for ActionName {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("Hold", Self::Hold),
        ("Ignore", Self::Ignore),
        ("Replicas", Self::Replicas),
        ("LastValue", Self::LastValue),
    ];
}

fn fallback(reader: &mut Reader<'_>) -> Option<Fallback> {
    for field in ["when", "action"] {
        if !reader.has(field) {
            reader.report(field, ProblemReason::Missing("a fallback needs when and action"));
        }
    }
    let when = reader.choice("when");
    let metric = reader.text("metric", MAX_NAME);
    let seconds = reader.integer("failureDurationSeconds", 0..=MAX_SECONDS);
    let action = reader.choice("action");
    let (has_replicas, has_strategy) = (reader.has("replicas"), reader.has("strategy"));
    let (replicas, strategy) = (reader.count("replicas"), reader.choice("strategy"));
    let action = match action? {
        ActionName::Replicas => {
            if !has_replicas {
                reader.report("replicas", ProblemReason::Missing("the action Replicas needs it"));
            }
            FallbackAction::Replicas(replicas?, strategy.unwrap_or_default())
        }
        action => {
            for (field, is_set) in [("replicas", has_replicas), ("strategy", has_strategy)] {
                if is_set {
                    reader.report(field, ProblemReason::Conflict("needs the action Replicas"));
                }
            }
            match action {
                ActionName::Hold => FallbackAction::Hold,
                ActionName::Ignore => FallbackAction::Ignore,
                ActionName::Replicas | ActionName::LastValue => FallbackAction::LastValue,
            }
        }
    };
    Some(Fallback {
        when: when?,
        metric: metric.map(Into::into),
        failure_duration_seconds: seconds.unwrap_or(FAILURE_DURATION_SECONDS),
        action,
    })
}

fn metric_rules(reader: &mut Reader<'_>) -> Option<Arc<[MetricRule]>> {
    let rules = reader.list("metrics", metrics::read)?;
    reader.add(metrics::duplicates(&rules));
    Some(rules.into())
}

fn burst(reader: &mut Reader<'_>) -> BurstSpec {
    let default = BurstSpec::default();
    let mut or = |field, range, default| reader.integer(field, range).unwrap_or(default);
    let burst = BurstSpec {
        window_seconds: or("windowSeconds", 1..=3600, default.window_seconds),
        stable_window_seconds: or("stableWindowSeconds", 1..=3600, default.stable_window_seconds),
        threshold_percent: or("thresholdPercent", 100..=100_000, default.threshold_percent),
        scale_down_delay_seconds: or("scaleDownDelaySeconds", 0..=3600, default.scale_down_delay_seconds),
        activation_replicas: reader.count("activationReplicas").unwrap_or(default.activation_replicas),
    };
    if burst.window_seconds > burst.stable_window_seconds {
        reader.report("windowSeconds", ProblemReason::Conflict("must be at most stableWindowSeconds"));
    }
    burst
}

fn guards(reader: &mut Reader<'_>) -> Guards {
    Guards {
        pending_pods: reader.unit("pendingPods", |reader| {
            reader.require("maximum");
            let unschedulable_only = reader.boolean("unschedulableOnly").unwrap_or(false);
            Some(PendingPods { maximum: reader.amount("maximum")?, unschedulable_only })
        }),
        rollout: reader.choice("rollout"),
        owned_pods_only: reader.boolean("ownedPodsOnly"),
        zero_metrics: reader.choice("zeroMetrics"),
        max_step: reader.unit("maxStep", |reader| {
            Some(MaxStep {
                up: reader.amount("up"),
                down: reader.amount("down"),
                maximum_pods_up: reader.integer("maximumPodsUp", 0..=i32::MAX.into()),
                maximum_pods_down: reader.integer("maximumPodsDown", 0..=i32::MAX.into()),
            })
        }),
    }
}

fn corrections(reader: &mut Reader<'_>) -> Corrections {
    let containers = reader.texts("ignoreContainersWithoutRequest", MAX_NAME);
    Corrections {
        average_value_within_tolerance: reader.boolean("averageValueWithinTolerance"),
        ignore_containers_without_request: containers
            .map(|names| names.into_iter().map(Into::into).collect()),
    }
}

fn limits(reader: &mut Reader<'_>) -> Limits {
    Limits {
        shortest_sync_period_seconds: reader.integer("shortestSyncPeriodSeconds", 1..=3600),
        allowed_modes: reader.choices("allowedModes"),
        highest_floor: reader.count("highestFloor"),
        highest_ceiling: reader.count("highestCeiling"),
    }
}

/// A floor, a ceiling, or both, for limited times.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The name in conditions and events.
    pub name: Arc<str>,
    /// `minReplicas`: the floor.
    pub min_replicas: Option<i32>,
    /// `maxReplicas`: the ceiling.
    pub max_replicas: Option<i32>,
    /// The times at which the schedule is active.
    pub when: When,
}

/// The times at which a [`Schedule`] is active.
#[derive(Debug, Clone, PartialEq)]
pub enum When {
    /// Once.
    Interval {
        /// The start.
        from: Timestamp,
        /// The end, at which the schedule is not active anymore.
        to: Timestamp,
    },
    /// Repeatedly.
    Recurring(Arc<Recurrence>),
}

impl When {
    /// The state of the schedule at a time.
    pub fn phase(&self, now: Timestamp) -> Phase {
        match self {
            Self::Interval { from, to } => {
                let is_active = (*from..*to).contains(&now);
                let until = [*from, *to].into_iter().find(|edge| *edge > now);
                Phase { is_active, until }
            }
            Self::Recurring(recurrence) => recurrence.phase(now),
        }
    }
}

/// Reads an entry of `schedules`.
fn schedule(reader: &mut Reader<'_>) -> Option<Schedule> {
    let name = reader.text("name", MAX_SCHEDULE_NAME);
    if name.is_none() && !reader.has("name") {
        reader.report("name", ProblemReason::Missing("conditions and events need it"));
    }
    let is_bound = reader.has("minReplicas") || reader.has("maxReplicas");
    let (min_replicas, max_replicas) = (reader.count("minReplicas"), reader.count("maxReplicas"));
    match (min_replicas, max_replicas) {
        (None, None) if !is_bound => {
            reader.report_whole(ProblemReason::Conflict("needs minReplicas or maxReplicas, or both"));
        }
        (Some(min), Some(max)) if min > max => {
            reader.report("minReplicas", ProblemReason::Conflict("is higher than maxReplicas"));
        }
        _ => {}
    }
    let is_interval = reader.has("from") || reader.has("to");
    let is_recurring = reader.has("start") || reader.has("end") || reader.has("timeZone");
    let (from, to) = (reader.time("from"), reader.time("to"));
    let mut text = |field| reader.text(field, MAX_TEXT);
    let (time_zone, start, end) = (text("timeZone"), text("start"), text("end"));
    let when = match (is_interval, is_recurring) {
        (true, false) => interval(reader, from, to),
        (false, true) => recurring(reader, time_zone.as_deref(), start.as_deref(), end.as_deref()),
        (true, true) => {
            reader.report_whole(ProblemReason::Conflict("has from or to, and also start, end or timeZone"));
            None
        }
        (false, false) => {
            reader.report_whole(ProblemReason::Conflict("needs from and to, or start and end"));
            None
        }
    };
    Some(Schedule { name: name?.into(), min_replicas, max_replicas, when: when? })
}

fn interval(reader: &mut Reader<'_>, from: Option<Timestamp>, to: Option<Timestamp>) -> Option<When> {
    match (from, to) {
        (Some(from), Some(to)) if from < to => Some(When::Interval { from, to }),
        (Some(_), Some(_)) => {
            reader.report("to", ProblemReason::Conflict("is not later than from"));
            None
        }
        (from, _) => {
            let field = if from.is_none() { "from" } else { "to" };
            reader.report(field, ProblemReason::Missing("a schedule needs from and to"));
            None
        }
    }
}

fn recurring(
    reader: &mut Reader<'_>,
    time_zone: Option<&str>,
    start: Option<&str>,
    end: Option<&str>,
) -> Option<When> {
    let time_zone = time_zone.unwrap_or("UTC");
    let (Some(start), Some(end)) = (start, end) else {
        let field = if start.is_none() { "start" } else { "end" };
        reader.report(field, ProblemReason::Missing("a schedule needs start and end"));
        return None;
    };
    match Recurrence::parse(time_zone, start, end) {
        Ok(recurrence) => Some(When::Recurring(Arc::new(recurrence))),
        Err(error) => {
            reader.report_whole(ProblemReason::Schedule(error));
            None
        }
    }
}
