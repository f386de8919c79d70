//! The data that a sync reads from the sources in a policy.

use serde::{Deserialize, Serialize};

/// The data that a sync reads from one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReading {
    /// The name of the metric.
    pub metric: String,
    /// The source, with the query or the series.
    pub source: String,
    /// Seconds since the oldest number was requested. `null` without a number.
    pub age_seconds: Option<f64>,
    /// The count of numbers that the source returned for the target.
    pub numbers: usize,
    /// The first numbers in order of the pods' names, as the source returned them.
    #[serde(default)]
    pub values: Vec<SourceValue>,
    /// The cause of `problem` in one word, as in `concertina_metric_source_errors_total`.
    #[serde(default)]
    pub reason: Option<String>,
    /// The reason why the source, or one of the pods, has no number.
    pub problem: Option<String>,
}

/// A number of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceValue {
    /// The pod. `null` for the only number of an Object or External metric.
    pub pod: Option<String>,
    /// The number, before the target and the states of the pods are considered.
    pub value: f64,
}

/// The reason of a [`SourceReading`] if the process has no source file.
pub const NO_SOURCES: &str = "NoSources";
