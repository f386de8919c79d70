//! The limits of the texts that tenants write, by kind. Every parser of such a text takes its limits from here.
//!
//! A parser needs at most [`HEAP`] and [`TIME`] for any text of a kind, whether the text is valid, invalid or too long.
//! The test `costs` of the package `sources` searches for the most expensive texts and measures them.

use std::time::Duration;

/// Maximum heap that a parser needs for a text, in bytes, including its result and excluding the text itself.
pub const HEAP: usize = 8 << 20;
/// Maximum CPU time that a parser needs for a text, in an optimised build.
pub const TIME: Duration = Duration::from_millis(50);

/// Scaling policies, in an annotation or an object.
pub mod policy {
    /// Maximum bytes of a policy as text.
    pub const BYTES: usize = 64 << 10;
    /// Maximum number of mappings, lists, keys and values of a policy. The largest valid policy has fewer. Each takes up
    /// to 700 bytes while the policy is read.
    pub const NODES: usize = 5_000;
    /// Maximum nesting of mappings and lists in a policy. A selector in `metrics` needs the most.
    pub const DEPTH: usize = 16;
    /// Maximum number of entries in a list of a policy.
    pub const ENTRIES: usize = 100;
    /// Maximum number of problems that are reported for a policy. Further problems are only counted.
    pub const PROBLEMS: usize = 20;
    /// Maximum number of labels of a metric in a policy.
    pub const LABELS: usize = 30;
}

/// Cron expressions of schedules.
pub mod schedule {
    /// Maximum bytes of a cron expression.
    pub const BYTES: usize = 256;
    /// The number of months that a search looks at: eight years, and the month in which it starts.
    pub const MONTHS: u32 = 8 * 12 + 1;
}

/// Queries in PromQL.
pub mod query {
    /// Maximum bytes of a tenant's query.
    pub const BYTES: usize = 16 << 10;
    /// Maximum bytes of a query with its variables replaced.
    pub const SENT: usize = 256 << 10;
    /// Maximum number of operators and brackets in a query, each of which may add a level of nesting. The parser's types
    /// are dropped and printed recursively, so deep nesting would overflow the stack.
    pub const OPERATORS: usize = 400;
    /// Maximum number of regular expressions in a query. The server compiles them.
    pub const REGEXES: usize = 16;
}

/// Answers of Prometheus.
pub mod answer {
    /// The default of `maxBytes`.
    pub const BYTES: usize = 4 << 20;
    /// The default of `maxSeries`.
    pub const SERIES: usize = 10_000;
    /// Maximum number of labels of all series of an answer, each of about 100 bytes.
    pub const LABELS: usize = 100_000;
}

/// Pages of metrics of pods.
pub mod page {
    /// The default of `maxBytes`.
    pub const BYTES: usize = 4 << 20;
    /// The default of `maxSeries`: the series of a page that match one metric.
    pub const SERIES: usize = 1_000;
    /// Maximum number of lines of a page.
    pub const LINES: usize = 50_000;
    /// Maximum bytes of a line, and of a series with line breaks in its labels.
    pub const LINE: usize = 64 << 10;
    /// Maximum number of labels of a series.
    pub const LABELS: usize = 64;
    /// Maximum number of metrics that are read from one page.
    pub const METRICS: usize = 16;
    /// Maximum number of comparisons of a page's names and labels with those of the metrics. Each series counts as one
    /// for each of [`METRICS`] metrics, so that it also bounds the number of series.
    pub const COMPARISONS: usize = 2_000_000;
}

/// Label selectors as text, in the status of a scale target.
pub mod selector {
    /// Maximum bytes of a selector.
    pub const BYTES: usize = 64 << 10;
}

/// Quantities.
pub mod quantity {
    /// Maximum bytes of a quantity.
    pub const BYTES: usize = 4 << 10;
}

/// Objects of the cluster.
pub mod object {
    /// The bytes of the largest object that etcd stores by default.
    pub const BYTES: usize = 3 << 19;
    /// Maximum number of labels, containers and other decoded parts of a pod, each of up to 80 bytes.
    pub const PARTS: usize = 50_000;
}

/// The specs of HPAs.
pub mod hpa {
    /// Maximum bytes of a spec as JSON. An HPA with a larger spec is not evaluated, nor is its spec decoded or stored.
    pub const BYTES: usize = 256 << 10;
    /// Maximum number of metrics. An HPA with more is not evaluated, so no HPA occupies the controller for long.
    pub const METRICS: usize = 1_000;
}
