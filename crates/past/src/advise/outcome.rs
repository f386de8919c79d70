//! What is advised for an HPA, or why nothing is.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::rates::Rates;
use terminal::words::{number, percent};

/// The settings of an HPA that the advice may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AdvisedSettings"))]
pub struct Choice {
    /// The target of cpu in percent of a pod's request, also if the HPA has it as a value in cores. 100 for an external
    /// metric.
    pub target: i32,
    /// `minReplicas`.
    pub min_replicas: i32,
    /// `maxReplicas`.
    pub max_replicas: i32,
    /// `behavior.scaleDown.stabilizationWindowSeconds`.
    pub scale_down_window_seconds: i32,
    /// The rates of `behavior.scaleUp`. Absent if those of the HPA are kept.
    #[serde(skip_serializing_if = "Rates::are_kept")]
    pub scale_up_rates: Rates,
    /// The rates of `behavior.scaleDown`. Absent if those of the HPA are kept.
    #[serde(skip_serializing_if = "Rates::are_kept")]
    pub scale_down_rates: Rates,
}

/// What a replay of a part of the load costs and lacks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measured {
    /// The time of all pods, in hours per week.
    pub pod_hours_a_week: f64,
    /// The load above the capacity of ready pods, in millionths of the load.
    pub unserved_ppm: f64,
    /// The minutes per week in which the pods were used by more than 80 % of their capacity.
    pub minutes_above80_a_week: f64,
    /// The number of rescales per week.
    pub rescales_a_week: f64,
}

/// Replays of one part of the load: with the settings of today, and with the advised ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Compared {
    /// With the settings of today.
    pub today: Measured,
    /// With the advised settings.
    pub advised: Measured,
}

impl Compared {
    /// The saved pod-hours per week. Negative if the advice costs.
    pub fn saved(&self) -> f64 {
        self.today.pod_hours_a_week - self.advised.pod_hours_a_week
    }

    /// The saved share of the pods.
    pub fn saved_share(&self) -> f64 {
        self.saved() / self.today.pod_hours_a_week.max(f64::MIN_POSITIVE)
    }
}

/// How sure an advice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Sureness {
    /// Less than a week is known, or the judged part saves another share: the difference exceeds 5 points.
    Low,
    /// Neither low nor high.
    Medium,
    /// At least ten days are known minute by minute, the replay costs what was recorded within 5 %, and the judged part
    /// saves the same share within 2 points.
    High,
}

impl Sureness {
    /// The word for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Settings with the replays that speak for them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Advised {
    /// The settings.
    pub settings: Choice,
    /// The first 70 % of the load, on which the settings were chosen.
    pub fitted: Compared,
    /// The last 30 % of the load, which the choice did not use.
    pub judged: Compared,
}

/// The reason why nothing is advised for an HPA.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Refusal {
    /// The settings are right.
    AlreadyRight {
        /// The highest share of pods that other settings save without more shortage.
        best: f64,
    },
    /// The HPA has no target of cpu or of a known query, or has others in addition to it and memory.
    OtherMetrics {
        /// The metrics, such as `External jobs`.
        metrics: String,
    },
    /// The external metric is not known to be a load that arrives.
    NoRate {
        /// The metric, such as `s0-prometheus`.
        metric: String,
    },
    /// Prometheus has no value of the external metric.
    NoValues,
    /// Prometheus has no cpu usage of the target's pods.
    NoUsage,
    /// Prometheus has no cpu requests of the target's pods.
    NoRequests,
    /// Fewer than three days of usage are known.
    TooShort {
        /// The known days.
        days: f64,
    },
    /// The usage is unknown for a day or longer, up to now.
    Ended {
        /// The last known minute.
        #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
        at: Timestamp,
    },
    /// The target was created less than three days ago.
    Created {
        /// The minute.
        #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
        at: Timestamp,
    },
    /// A rollout is less than three days ago.
    Rollout {
        /// Its last minute.
        #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
        at: Timestamp,
    },
    /// The pods' requests changed less than three days ago.
    RequestsChanged {
        /// The last minute with other requests.
        #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
        at: Timestamp,
    },
    /// The pods were never used near the advised target.
    NeverSeen {
        /// The target that would save most.
        target: i32,
        /// The utilization in percent that the pods reached for at least 30 minutes.
        highest: f64,
    },
    /// A VerticalPodAutoscaler changes the requests on which the HPA's target depends.
    Vpa {
        /// Its name.
        name: String,
    },
    /// The replay of today's settings does not cost what was recorded.
    NotReproduced {
        /// The pod-hours that were recorded under today's settings.
        recorded: f64,
        /// The replayed pod-hours.
        replayed: f64,
    },
    /// The judged part of the load contradicts the fitted part.
    NotConfirmed {
        /// The share of pods that the settings save in the fitted part.
        fitted: f64,
        /// The same of the judged part.
        judged: f64,
        /// The unserved load of the judged part with today's settings, in ppm.
        unserved_today: f64,
        /// The same with the settings of the fitted part.
        unserved: f64,
    },
    /// The record does not have what is needed.
    NotRecorded {
        /// What it lacks.
        what: &'static str,
    },
    /// The HPA cannot be read.
    Invalid {
        /// What is wrong.
        problem: String,
    },
    /// Prometheus did not answer.
    Unreadable {
        /// The error.
        error: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyRight { best } if *best > 0.0 => {
                write!(f, "the settings are right: others save at most {}", percent(*best))
            }
            Self::AlreadyRight { .. } => f.write_str("the settings are right: no others save pods"),
            Self::OtherMetrics { metrics } => {
                write!(
                    f,
                    "only targets of cpu and of queries of KEDA can be replayed, and this HPA scales on {metrics}"
                )
            }
            Self::NoRate { metric } => write!(
                f,
                "{metric} is not known to be a sum of rates: with fewer pods, a queue can become longer"
            ),
            Self::NoValues => f.write_str(
                "Prometheus has no value of the query of its trigger: pass the server of its ScaledObject",
            ),
            Self::NoUsage => f.write_str(
                "Prometheus has no container_cpu_usage_seconds_total of its pods: scrape cAdvisor",
            ),
            Self::NoRequests => f.write_str(
                "its pods have no cpu requests in kube_pod_container_resource_requests: set them first",
            ),
            Self::TooShort { days } => {
                write!(f, "{} days of its load are known: three are needed", number(round(*days)))
            }
            Self::Ended { at } => {
                write!(f, "Prometheus has no values of its metric after {at}: repair the scrape")
            }
            Self::Created { at } => {
                write!(f, "its target was created at {at}: ask again three days after it")
            }
            Self::Rollout { at } => {
                write!(f, "a rollout ended at {at}: ask again three days after it")
            }
            Self::RequestsChanged { at } => {
                write!(f, "its cpu requests changed at {at}: ask again three days after it")
            }
            Self::NeverSeen { target, highest } => write!(
                f,
                "its pods were never used near the target of {target} %: for half an hour they reached {} %",
                highest.round()
            ),
            Self::Vpa { name } => write!(
                f,
                "VerticalPodAutoscaler {name} changes the cpu requests on which the target depends: let it control \
                 memory only"
            ),
            Self::NotReproduced { recorded, .. } if *recorded == 0.0 => {
                f.write_str("its settings changed in the last minutes: ask again three days after it")
            }
            Self::NotReproduced { recorded, replayed } => write!(
                f,
                "a replay of today's settings costs {} pod-hours, but {} were recorded: something else scales it, or \
                 its settings changed",
                number(replayed.round()),
                number(recorded.round())
            ),
            Self::NotConfirmed { fitted, judged, unserved_today, unserved } => write!(
                f,
                "settings that save {} in the first 70 % of the time save {} in the rest, with {} ppm of its load \
                 unserved instead of {}",
                percent(*fitted),
                percent(*judged),
                number(unserved.round()),
                number(unserved_today.round())
            ),
            Self::NotRecorded { what } => write!(f, "the record has no {what}"),
            Self::Invalid { problem } => write!(f, "the HPA cannot be replayed: {problem}"),
            Self::Unreadable { error } => write!(f, "Prometheus has no answer: {error}"),
        }
    }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
