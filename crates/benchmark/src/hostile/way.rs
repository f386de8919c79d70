//! The attacks, with their names, sizes and rates.

use serde::{Deserialize, Serialize};

/// The namespace of the hostile tenant.
pub(crate) const HOSTILE: &str = "hostile";
/// The name of an external metric that the API does not serve.
pub(crate) const ABSENT_METRIC: &str = "absent";

/// The attack of a hostile tenant or client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    /// One HPA has 10,000 different external metrics.
    Queries,
    /// 30 HPAs are changed once per second, each time to a different number of replicas.
    Edits,
    /// 2,000 HPAs have external metrics that never respond.
    Hanging,
    /// 5,000 changes per second of the tenant's pods and HPAs, each of them an event of a watch.
    Events,
    /// The targets of 30 HPAs change to another kind once per second.
    Kinds,
    /// 10,000 pods of ten HPAs are replaced, 250 per second.
    Pods,
    /// HPAs of an extreme size, each changed once per second.
    Large(Shape, usize),
    /// 5,000 TLS handshakes per second on the secure port.
    Handshakes,
    /// Requests with made-up bearer tokens on the secure port.
    Tokens,
}

/// The metrics of an HPA of extreme size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shape {
    /// 30,000 metrics, 3 pods.
    Metrics,
    /// 20,000 external metrics with one name, which the API does not serve.
    Failures,
    /// 10,000 metrics, 1,000 pods.
    Product,
}

/// All attacks by name, in the order of the table, with their titles.
pub(crate) const ALL: [(&str, Way, &str); 14] = [
    ("edits", Way::Edits, "30 HPAs changed each second"),
    ("queries", Way::Queries, "an HPA with 10,000 external metrics"),
    ("hanging", Way::Hanging, "2,000 HPAs by metrics that never respond"),
    ("large-metrics-1", Way::Large(Shape::Metrics, 1), "1 HPA with 30,000 metrics"),
    ("large-metrics-20", Way::Large(Shape::Metrics, 20), "20 HPAs with 30,000 metrics each"),
    ("large-failures-1", Way::Large(Shape::Failures, 1), "1 HPA with 20,000 failing metrics"),
    ("large-failures-20", Way::Large(Shape::Failures, 20), "20 HPAs with 20,000 failing metrics each"),
    ("large-product-1", Way::Large(Shape::Product, 1), "1 HPA with 10,000 metrics and 1,000 pods"),
    ("large-product-20", Way::Large(Shape::Product, 20), "20 HPAs with 10,000 metrics and 1,000 pods each"),
    ("handshakes", Way::Handshakes, "TLS handshakes"),
    ("tokens", Way::Tokens, "made-up tokens"),
    ("events", Way::Events, "5,000 changed pods and HPAs per second"),
    ("kinds", Way::Kinds, "30 targets that change their kind each second"),
    ("pods", Way::Pods, "10,000 pods, 250 replaced per second"),
];

impl Way {
    /// The number of the tenant's apps, and the number of pods of each.
    pub(crate) fn apps(self) -> (usize, usize) {
        match self {
            Self::Queries => (1, 1),
            Self::Edits | Self::Kinds => (30, 1),
            Self::Hanging => (2_000, 1),
            Self::Events => (100, 1),
            Self::Pods => (10, 1_000),
            Self::Large(Shape::Product, count) => (count, 1_000),
            Self::Large(_, count) => (count, 3),
            Self::Handshakes | Self::Tokens => (0, 0),
        }
    }

    /// The intended number of actions per second. 0 for a single action at the start.
    pub(crate) fn rate(self) -> f64 {
        match self {
            Self::Queries | Self::Hanging => 0.0,
            Self::Edits | Self::Kinds => 30.0,
            Self::Events | Self::Handshakes => 5_000.0,
            Self::Pods => 250.0,
            Self::Large(_, count) => count as f64,
            Self::Tokens => 1_000.0,
        }
    }

    /// Whether the load comes from clients of the secure port instead of objects.
    pub(crate) fn floods_port(self) -> bool {
        matches!(self, Self::Handshakes | Self::Tokens)
    }
}
