//! The fields of a policy, as values. An invalid field is left out and reported, the others stand.

use std::sync::Arc;

use autoscaling::go::quote;
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::schedule::{Phase, Recurrence, ScheduleError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum bytes of a policy in an annotation.
pub const MAX_BYTES: usize = 64 << 10;
/// Maximum number of entries in a list of a policy.
const MAX_ENTRIES: usize = 100;
/// Maximum number of reports about one policy. Further reports are counted.
const MAX_REPORTS: usize = 10;

/// What the controller may do with the replica count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Mode {
    /// Everything.
    #[default]
    Auto,
    /// Nothing.
    Paused,
    /// Scale up only.
    ScaleUpOnly,
    /// Scale down only.
    ScaleDownOnly,
    /// Keep a fixed count.
    Pinned,
    /// Report decisions without applying them.
    DryRun,
}

impl Mode {
    /// The name in policies and conditions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "Auto",
            Self::Paused => "Paused",
            Self::ScaleUpOnly => "ScaleUpOnly",
            Self::ScaleDownOnly => "ScaleDownOnly",
            Self::Pinned => "Pinned",
            Self::DryRun => "DryRun",
        }
    }
}

/// The choice among the proposals of several metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Combine {
    /// The highest.
    #[default]
    Max,
    /// The lowest.
    Min,
}

/// A floor or a ceiling at certain times.
#[derive(Debug, Clone)]
pub struct Window {
    /// The name in conditions and events.
    pub name: String,
    /// When it applies.
    pub times: Times,
    /// The floor.
    pub min_replicas: Option<i32>,
    /// The ceiling.
    pub max_replicas: Option<i32>,
}

/// When a schedule applies.
#[derive(Debug, Clone)]
pub enum Times {
    /// From a time to another.
    Once {
        /// The start.
        from: Timestamp,
        /// The end.
        to: Timestamp,
    },
    /// Again and again, by cron expressions in a time zone.
    Recurring(Arc<Recurring>),
}

/// A recurring schedule with its last phase, because the search for times that match takes longer than the rest of a
/// resolution.
#[derive(Debug)]
pub struct Recurring {
    recurrence: Recurrence,
    /// The time of the search and its result, which is valid until the next change.
    last: Mutex<Option<(Timestamp, Phase)>>,
}

impl Recurring {
    fn phase(&self, now: Timestamp) -> Phase {
        let mut last = self.last.lock();
        if let Some((at, phase)) = *last
            && at <= now
            && phase.until.is_none_or(|until| now < until)
        {
            return phase;
        }
        let phase = self.recurrence.phase(now);
        *last = Some((now, phase));
        phase
    }
}

impl Times {
    /// Whether the schedule applies at a time, and the next change after that time.
    pub fn phase(&self, now: Timestamp) -> Phase {
        match self {
            Self::Recurring(recurring) => recurring.phase(now),
            Self::Once { from, to } => Phase {
                is_active: (*from..*to).contains(&now),
                until: [*from, *to].into_iter().find(|edge| *edge > now),
            },
        }
    }
}

/// A schedule as written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WindowFields {
    name: String,
    time_zone: Option<String>,
    start: Option<String>,
    end: Option<String>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    min_replicas: Option<i32>,
    max_replicas: Option<i32>,
}

/// The reason why a schedule is ignored.
#[derive(Debug, thiserror::Error)]
enum WindowError {
    #[error("either start and end or from and to must be set")]
    Times,
    #[error("timeZone needs start and end")]
    TimeZone,
    #[error("from must be earlier than to")]
    Order,
    #[error("minReplicas or maxReplicas must be set")]
    NoBound,
    #[error("minReplicas and maxReplicas must not be negative")]
    Negative,
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

impl TryFrom<WindowFields> for Window {
    type Error = WindowError;

    fn try_from(fields: WindowFields) -> Result<Self, WindowError> {
        let WindowFields { name, time_zone, start, end, from, to, min_replicas, max_replicas } = fields;
        let times = match (start, end, from, to) {
            (Some(start), Some(end), None, None) => {
                let zone = time_zone.as_deref().unwrap_or("UTC");
                let recurrence = Recurrence::parse(zone, &start, &end)?;
                Times::Recurring(Arc::new(Recurring { recurrence, last: Mutex::default() }))
            }
            (None, None, Some(_), Some(_)) if time_zone.is_some() => return Err(WindowError::TimeZone),
            (None, None, Some(from), Some(to)) if from >= to => return Err(WindowError::Order),
            (None, None, Some(from), Some(to)) => Times::Once { from, to },
            _ => return Err(WindowError::Times),
        };
        if min_replicas.is_none() && max_replicas.is_none() {
            return Err(WindowError::NoBound);
        }
        if min_replicas.into_iter().chain(max_replicas).any(|replicas| replicas < 0) {
            return Err(WindowError::Negative);
        }
        Ok(Self { name, times, min_replicas, max_replicas })
    }
}

/// A count of pods, or a percentage of the current count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Amount {
    /// A count.
    Pods(i32),
    /// A percentage.
    Percent(i32),
}

/// The text is neither a count nor a percentage.
#[derive(Debug, thiserror::Error)]
#[error("must be a count of pods such as 5, or a percentage such as 20%")]
pub struct AmountError;

impl TryFrom<Value> for Amount {
    type Error = AmountError;

    fn try_from(value: Value) -> Result<Self, AmountError> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (number, amount): (&str, fn(i32) -> Self) = match text.strip_suffix('%') {
            Some(percent) => (percent, Self::Percent),
            None => (&text, Self::Pods),
        };
        number.parse().ok().filter(|number| *number >= 0).map(amount).ok_or(AmountError)
    }
}

impl Amount {
    /// The number of pods for a replica count. A part of a pod counts as one pod.
    pub fn of(self, replicas: i32) -> i32 {
        match self {
            Self::Pods(pods) => pods,
            Self::Percent(percent) => {
                let pods = (i64::from(replicas.max(0)) * i64::from(percent) + 99) / 100;
                i32::try_from(pods).unwrap_or(i32::MAX)
            }
        }
    }
}

/// The largest change in one sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MaxStep {
    /// Added pods.
    pub up: Option<Amount>,
    /// Removed pods.
    pub down: Option<Amount>,
    /// Added pods, as a count.
    pub maximum_pods_up: Option<u16>,
    /// Removed pods, as a count.
    pub maximum_pods_down: Option<u16>,
}

/// No scale-up while pods of the target wait for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PendingPods {
    /// The number of waiting pods up to which the target scales up.
    pub maximum: Amount,
}

/// What happens if a metric fails or has no data.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fallback {
    /// The failure. Not named `on`, because YAML 1.1 reads this word as `true`.
    pub when: FallbackCause,
    /// The name of the metric. `None` for every metric.
    pub metric: Option<String>,
    /// The action.
    pub action: FallbackAction,
    /// The proposal of [`FallbackAction::Replicas`].
    pub replicas: Option<i32>,
    /// The relation of the proposal to the current count.
    #[serde(default)]
    pub strategy: Strategy,
}

/// The failure of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum FallbackCause {
    /// The metric cannot be read.
    Error,
    /// The metric has no value.
    Empty,
}

/// The action of a fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum FallbackAction {
    /// The count stays.
    Hold,
    /// The other metrics decide.
    Ignore,
    /// The metric proposes a count.
    Replicas,
}

/// The relation of a fallback's count to the current count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Strategy {
    /// The fallback's count.
    #[default]
    Static,
    /// The higher one.
    AtLeast,
    /// The lower one.
    AtMost,
}

/// The valid fields of a policy.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// `mode`, with the fields that belong to it.
    pub mode: Option<ModeSpec>,
    /// `syncPeriodSeconds`.
    pub sync_period_seconds: Option<u16>,
    /// `tolerance`.
    pub tolerance: Option<f64>,
    /// `cpuInitializationPeriodSeconds`.
    pub cpu_initialization_period_seconds: Option<u32>,
    /// `initialReadinessDelaySeconds`.
    pub initial_readiness_delay_seconds: Option<u32>,
    /// `downscaleStabilizationSeconds`.
    pub downscale_stabilization_seconds: Option<u32>,
    /// `schedules`.
    pub schedules: Option<Vec<Window>>,
    /// `fallback`.
    pub fallback: Option<Vec<Fallback>>,
    /// `combine`.
    pub combine: Option<Combine>,
    /// `guards.maxStep`.
    pub max_step: Option<MaxStep>,
    /// `guards.pendingPods`.
    pub pending_pods: Option<PendingPods>,
}

/// `mode`, `replicas` and `until`. A policy of a higher level replaces all three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeSpec {
    /// The mode. `None` if it is invalid, which holds the HPA.
    pub mode: Option<Mode>,
    /// The count of [`Mode::Pinned`].
    pub replicas: Option<i32>,
    /// The end of the mode.
    pub until: Option<Timestamp>,
}

/// A field that has no effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The path of the field. Empty for the policy as a whole.
    pub field: String,
    /// The cause, and what to do.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.field, self.message)
        }
    }
}

/// Reads a policy in YAML or JSON.
pub fn parse(text: &str) -> (Spec, Vec<Problem>) {
    let whole = |message: String| (Spec::default(), vec![Problem { field: String::new(), message }]);
    if text.len() > MAX_BYTES {
        return whole(format!("the policy has {} bytes, at most {MAX_BYTES} are allowed", text.len()));
    }
    match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(fields)) => read(fields),
        Ok(Value::Null) => (Spec::default(), Vec::new()),
        Ok(_) => whole("the policy must be a mapping of fields".to_owned()),
        Err(error) => whole(format!("the policy cannot be read: {}", first_line(&error.to_string()))),
    }
}

/// Reads the fields of a policy.
fn read(fields: Map<String, Value>) -> (Spec, Vec<Problem>) {
    let mut reader = Reader { fields, problems: Vec::new() };
    let mode = reader.mode();
    let mut guards = reader.group("guards");
    let spec = Spec {
        mode,
        sync_period_seconds: reader.checked(
            "syncPeriodSeconds",
            |seconds: &u16| (1..=3600).contains(seconds),
            "must be from 1 to 3600",
        ),
        tolerance: reader.checked(
            "tolerance",
            |tolerance: &f64| tolerance.is_finite() && *tolerance >= 0.0,
            "must be a fraction of at least 0",
        ),
        cpu_initialization_period_seconds: reader.field("cpuInitializationPeriodSeconds"),
        initial_readiness_delay_seconds: reader.field("initialReadinessDelaySeconds"),
        downscale_stabilization_seconds: reader.checked(
            "downscaleStabilizationSeconds",
            |seconds: &u32| *seconds <= 86_400,
            "must be at most 86400",
        ),
        schedules: reader.list("schedules", |fields: WindowFields| Window::try_from(fields)),
        fallback: reader.list("fallback", checked_fallback),
        combine: reader.field("combine"),
        max_step: guards.field("maxStep"),
        pending_pods: guards.field("pendingPods"),
    };
    guards.end("guards.", &["rollout", "ownedPodsOnly", "zeroMetrics"]);
    reader.problems.append(&mut guards.problems);
    reader.end("", &["corrections"]);
    let mut problems = reader.problems;
    problems.sort();
    if problems.len() > MAX_REPORTS {
        let further = problems.len() - MAX_REPORTS;
        problems.truncate(MAX_REPORTS);
        problems.push(Problem { field: String::new(), message: format!("{further} more problems") });
    }
    (spec, problems)
}

/// A fallback as it applies.
fn checked_fallback(fallback: Fallback) -> Result<Fallback, FallbackError> {
    let needs = fallback.action == FallbackAction::Replicas;
    match fallback.replicas {
        None if needs => Err(FallbackError::NoReplicas),
        Some(_) if !needs => Err(FallbackError::Replicas),
        Some(replicas) if replicas < 0 => Err(FallbackError::Negative),
        _ => Ok(fallback),
    }
}

/// The reason why a fallback is ignored.
#[derive(Debug, thiserror::Error)]
enum FallbackError {
    #[error("the action Replicas needs replicas")]
    NoReplicas,
    #[error("replicas needs the action Replicas")]
    Replicas,
    #[error("replicas must not be negative")]
    Negative,
}

/// The fields that were not read so far.
struct Reader {
    fields: Map<String, Value>,
    problems: Vec<Problem>,
}

impl Reader {
    fn report(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem { field: field.into(), message: message.into() });
    }

    fn field<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.fields.remove(name).filter(|value| !value.is_null())?;
        match serde_json::from_value(value) {
            Ok(value) => Some(value),
            Err(error) => {
                self.report(name, format!("{}; the field is ignored", first_line(&error.to_string())));
                None
            }
        }
    }

    fn checked<T: DeserializeOwned>(
        &mut self,
        name: &str,
        is_valid: impl FnOnce(&T) -> bool,
        problem: &str,
    ) -> Option<T> {
        let value = self.field(name)?;
        if is_valid(&value) {
            return Some(value);
        }
        self.report(name, format!("{problem}; the field is ignored"));
        None
    }

    /// Reads the valid entries of a list.
    fn list<T: DeserializeOwned, U, E: std::fmt::Display>(
        &mut self,
        name: &str,
        convert: impl Fn(T) -> Result<U, E>,
    ) -> Option<Vec<U>> {
        let entries: Vec<Value> = self.field(name)?;
        if entries.len() > MAX_ENTRIES {
            let count = entries.len();
            let message =
                format!("has {count} entries, at most {MAX_ENTRIES} are allowed; the field is ignored");
            self.report(name, message);
            return None;
        }
        let mut valid = Vec::new();
        for (index, entry) in entries.into_iter().enumerate() {
            let converted = match serde_json::from_value::<T>(entry) {
                Ok(entry) => convert(entry).map_err(|error| error.to_string()),
                Err(error) => Err(unsupported_entry(&error.to_string())),
            };
            match converted {
                Ok(entry) => valid.push(entry),
                Err(problem) => {
                    self.report(format!("{name}[{index}]"), format!("{problem}; the entry is ignored"));
                }
            }
        }
        Some(valid)
    }

    fn group(&mut self, name: &str) -> Self {
        let fields = self.field::<Map<String, Value>>(name).unwrap_or_default();
        Self { fields, problems: Vec::new() }
    }

    fn mode(&mut self) -> Option<ModeSpec> {
        let text = self.fields.remove("mode").filter(|value| !value.is_null());
        let replicas = self.checked("replicas", |replicas: &i32| *replicas >= 0, "must not be negative");
        let has_until = self.fields.get("until").is_some_and(|until| !until.is_null());
        let until: Option<Timestamp> = self.field("until");
        let Some(text) = text else {
            if replicas.is_some() || until.is_some() {
                self.report("mode", "replicas and until need a mode; both are ignored");
            }
            return None;
        };
        let mut mode = serde_json::from_value::<Mode>(text.clone()).ok();
        if mode.is_none() {
            let text = text.as_str().map_or_else(|| text.to_string(), quote);
            self.report(
                "mode",
                format!("{text} is none of Auto, Paused, ScaleUpOnly, ScaleDownOnly, Pinned and DryRun; the count is held"),
            );
        } else if mode == Some(Mode::Pinned) && replicas.is_none() {
            self.report("replicas", "the mode Pinned needs replicas; the count is held");
            mode = None;
        } else if has_until && until.is_none() {
            self.report("mode", "its end is unknown, because until is invalid; the count is held");
            mode = None;
        }
        Some(ModeSpec { mode, replicas, until })
    }

    /// Reports the fields that are left.
    fn end(&mut self, prefix: &str, unsupported: &[&str]) {
        for (name, _) in std::mem::take(&mut self.fields) {
            let message = if unsupported.contains(&name.as_str()) {
                "is not supported by this version and has no effect"
            } else {
                "is unknown and has no effect"
            };
            self.report(format!("{prefix}{name}"), message);
        }
        if !prefix.is_empty() {
            for problem in &mut self.problems {
                if !problem.field.starts_with(prefix) {
                    problem.field = format!("{prefix}{}", problem.field);
                }
            }
        }
    }
}

/// Names the fields of the design that this version does not support.
fn unsupported_entry(error: &str) -> String {
    let fields = ["failureDurationSeconds", "LastValue"];
    match fields.into_iter().find(|field| error.contains(&format!("`{field}`"))) {
        Some(field) => format!("{field} is not supported by this version"),
        None => first_line(error).to_owned(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
