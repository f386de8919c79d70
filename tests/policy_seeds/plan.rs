//! The events of a run: policies, metrics and deaths of leaders. Times are in milliseconds since the start.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The metrics of each HPA. Their names in the API contain the name of the HPA, so that no HPA reads a value of another
/// HPA.
pub(crate) const METRICS: [&str; 2] = ["one", "two"];
/// The average metric value per replica that HPAs target.
pub(crate) const TARGET: i64 = 10;
/// The label that the ScalingPolicy selects.
pub(crate) const LABEL: &str = "team";

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) epoch: Timestamp,
    pub(crate) bounds: Vec<(i64, i64)>,
    /// Events in the order of their times.
    pub(crate) events: Vec<(i64, Event)>,
    pub(crate) end: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Metric {
        hpa: usize,
        metric: usize,
        state: Metric,
    },
    Annotation {
        hpa: usize,
        policy: Option<Policy>,
    },
    /// Sets or deletes the ScalingPolicy of the HPAs with [`LABEL`].
    Namespaced(Option<Policy>),
    /// Sets or deletes the ClusterScalingPolicy, which applies to all HPAs.
    Cluster(Option<Policy>),
    Label {
        hpa: usize,
        is_set: bool,
    },
    /// All metrics of the HPA drop to 0 at once.
    Zero {
        hpa: usize,
    },
    /// Sets the number of pending pods of the target.
    PendingPods {
        hpa: usize,
        pods: i64,
    },
    /// The leader dies, and another replica starts.
    Death,
    /// A list of policies fails from now on. Two new replicas start, if they replace the others.
    Unlisted {
        list: List,
        failure: Failure,
        is_start: bool,
    },
    /// All lists succeed again.
    Listed,
    /// All replicas must know the policies again.
    Known,
}

/// A list that the policies of HPAs depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// The resources of the API group.
    Resources,
    /// The ScalingPolicies.
    Namespaced,
    /// The ClusterScalingPolicies.
    Cluster,
    /// The labels of namespaces.
    Namespaces,
}

/// The way in which a list fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// 403.
    Forbidden,
    /// 503.
    Unavailable,
    /// 404, so the policies are not served.
    NotFound,
    /// The response takes this number of seconds.
    Slow(u64),
}

impl Event {
    /// Whether the processes may have lost their memory of metrics.
    pub(crate) fn ends_process(&self) -> bool {
        matches!(self, Self::Death | Self::Unlisted { .. } | Self::Known)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    Value(i64),
    /// The query fails.
    Error,
    /// The query returns no values.
    Empty,
}

/// The highest number of pending pods with which a target scales up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    Pods(i64),
    Percent(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Paused,
    DryRun,
    ScaleUpOnly,
    ScaleDownOnly,
    Pinned(i64),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Policy {
    pub(crate) mode: Option<(Mode, Option<i64>)>,
    pub(crate) schedules: Option<Vec<Schedule>>,
    pub(crate) fallback: Option<Vec<Fallback>>,
    pub(crate) lowest: Option<bool>,
    /// The largest step up and down.
    pub(crate) step: Option<(Option<i64>, Option<i64>)>,
    pub(crate) period: Option<i64>,
    pub(crate) pending: Option<Pending>,
    /// Whether metrics that drop to 0 at once hold the count.
    pub(crate) zero: bool,
    /// The highest floor and the highest ceiling that a ClusterScalingPolicy allows.
    pub(crate) limits: Option<(i64, i64)>,
    /// The modes that a ClusterScalingPolicy with limits allows in policies of tenants.
    pub(crate) allowed: Option<[&'static str; 2]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) floor: Option<i64>,
    pub(crate) ceiling: Option<i64>,
    /// The time zone of a recurring schedule. Without a time zone, the schedule applies once.
    pub(crate) zone: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fallback {
    /// The number of the metric, or `None` for all metrics.
    pub(crate) metric: Option<usize>,
    pub(crate) empty: bool,
    pub(crate) seconds: i64,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Hold,
    Ignore,
    Replicas(i64),
    AtLeast(i64),
    AtMost(i64),
}

/// The name of a metric of an HPA in the API.
pub(crate) fn metric_name(hpa: usize, metric: usize) -> String {
    format!("{}-{}", METRICS[metric], NAMES[hpa])
}

impl Plan {
    /// Converts milliseconds since the start of the run to a timestamp.
    pub(crate) fn time(&self, at: i64) -> Timestamp {
        self.epoch + SignedDuration::from_millis(at)
    }
}

impl Policy {
    /// The policy as the `spec` of an object, which is also the content of an annotation. Names of metrics contain the
    /// name of an HPA, so a fallback has an entry for each of `hpas`.
    pub(crate) fn spec(&self, plan: &Plan, hpas: &[usize]) -> Value {
        let mut spec = Map::new();
        if let Some((mode, until)) = self.mode {
            if let Mode::Pinned(replicas) = mode {
                spec.insert("replicas".to_owned(), json!(replicas));
            }
            spec.insert("mode".to_owned(), json!(mode.name()));
            if let Some(until) = until {
                spec.insert("until".to_owned(), json!(plan.time(until).to_string()));
            }
        }
        let mut put = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                spec.insert(field.to_owned(), value);
            }
        };
        put(
            "schedules",
            self.schedules.as_ref().map(|schedules| {
                let entry = |(index, schedule): (usize, &Schedule)| schedule.entry(plan, index);
                schedules.iter().enumerate().map(entry).collect()
            }),
        );
        put(
            "fallback",
            self.fallback
                .as_ref()
                .map(|entries| entries.iter().flat_map(|fallback| fallback.entries(hpas)).collect()),
        );
        put("combine", self.lowest.map(|lowest| json!(if lowest { "Min" } else { "Max" })));
        put("guards", self.guards());
        put("syncPeriodSeconds", self.period.map(|seconds| json!(seconds)));
        put(
            "limits",
            self.limits.map(|(floor, ceiling)| {
                let mut limits = json!({"highestFloor": floor, "highestCeiling": ceiling});
                if let Some(allowed) = self.allowed {
                    limits["allowedModes"] = json!(allowed);
                }
                limits
            }),
        );
        Value::Object(spec)
    }

    fn guards(&self) -> Option<Value> {
        let mut guards = Map::new();
        if let Some((up, down)) = self.step {
            let mut step = Map::new();
            for (field, value) in [("up", up), ("down", down)] {
                step.extend(value.map(|value| (field.to_owned(), json!(value))));
            }
            guards.insert("maxStep".to_owned(), Value::Object(step));
        }
        if let Some(pending) = self.pending {
            let maximum = match pending {
                Pending::Pods(pods) => json!(pods),
                Pending::Percent(percent) => json!(format!("{percent}%")),
            };
            guards.insert("pendingPods".to_owned(), json!({ "maximum": maximum }));
        }
        if self.zero {
            guards.insert("zeroMetrics".to_owned(), json!("Hold"));
        }
        (!guards.is_empty()).then_some(Value::Object(guards))
    }
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Paused => "Paused",
            Self::DryRun => "DryRun",
            Self::ScaleUpOnly => "ScaleUpOnly",
            Self::ScaleDownOnly => "ScaleDownOnly",
            Self::Pinned(_) => "Pinned",
        }
    }
}

impl Pending {
    /// The number of pods at a current count.
    pub(crate) fn pods(self, current: i64) -> i64 {
        match self {
            Self::Pods(pods) => pods,
            // Percentages are rounded up to whole pods.
            Self::Percent(percent) => (percent * current + 99) / 100,
        }
    }
}

impl Schedule {
    fn entry(&self, plan: &Plan, index: usize) -> Value {
        let (from, to) = (plan.time(self.from), plan.time(self.to));
        let mut entry = json!({"name": format!("schedule-{index}")});
        match self.zone {
            None => {
                entry["from"] = json!(from.to_string());
                entry["to"] = json!(to.to_string());
            }
            Some(zone) => {
                let cron = |at: Timestamp| {
                    let local = at.in_tz(zone).unwrap();
                    json!(format!("{} {} * * *", local.minute(), local.hour()))
                };
                entry["timeZone"] = json!(zone);
                entry["start"] = cron(from);
                entry["end"] = cron(to);
            }
        }
        for (field, value) in [("minReplicas", self.floor), ("maxReplicas", self.ceiling)] {
            if let Some(value) = value {
                entry[field] = json!(value);
            }
        }
        entry
    }
}

impl Fallback {
    fn entries(&self, hpas: &[usize]) -> Vec<Value> {
        let mut entry = json!({
            "when": if self.empty { "Empty" } else { "Error" }, "failureDurationSeconds": self.seconds,
        });
        let (action, replicas, strategy) = match self.action {
            Action::Hold => ("Hold", None, None),
            Action::Ignore => ("Ignore", None, None),
            Action::Replicas(replicas) => ("Replicas", Some(replicas), None),
            Action::AtLeast(replicas) => ("Replicas", Some(replicas), Some("AtLeast")),
            Action::AtMost(replicas) => ("Replicas", Some(replicas), Some("AtMost")),
        };
        entry["action"] = json!(action);
        if let Some(replicas) = replicas {
            entry["replicas"] = json!(replicas);
        }
        if let Some(strategy) = strategy {
            entry["strategy"] = json!(strategy);
        }
        let Some(metric) = self.metric else { return vec![entry] };
        let named = |hpa: &usize| {
            let mut entry = entry.clone();
            entry["metric"] = json!(metric_name(*hpa, metric));
            entry
        };
        hpas.iter().map(named).collect()
    }
}
