//! The workloads: the number and kind of HPAs, the events during a run, and the attacks of hostile tenants and clients.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Pods per HPA in the large namespace of a skewed workload.
pub(crate) const FEW_PODS: usize = 3;

/// The namespace with hanging metrics.
pub(crate) const POISONED: &str = "team-000";

/// The metrics of an HPA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The cpu utilization of the pods.
    Cpu,
    /// The cpu and memory utilization of the pods.
    CpuAndMemory,
    /// The length of a queue outside the cluster.
    External,
}

/// A workload. The server process receives it as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each flag enables an independent event")]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) title: String,
    /// The number of HPAs with metrics of `kind`.
    pub(crate) hpas: usize,
    pub(crate) kind: Kind,
    /// The number of additional HPAs on cpu.
    pub(crate) others: usize,
    /// The initial number of pods per HPA.
    pub(crate) pods: usize,
    pub(crate) namespaces: usize,
    /// Whether a tenth of the HPAs are in the first namespace, with [`FEW_PODS`] pods each.
    pub(crate) skewed: bool,
    /// The number of different external queries.
    pub(crate) queries: usize,
    /// The response time of the external metrics API.
    pub(crate) slowness: Duration,
    /// The number of pods that are replaced per second.
    pub(crate) churn: usize,
    /// The load of every HPA whose number is a multiple of this one doubles after a quarter of the measured time. 0: no
    /// load changes.
    pub(crate) step: usize,
    /// Whether the resource metrics API never responds for the first namespace.
    pub(crate) poisoned: bool,
    /// Whether the controller is killed half a period after the load step, and then restarted or replaced by a standby.
    pub(crate) restart: bool,
    /// Whether a standby replaces the killed controller, by leader election.
    pub(crate) standby: bool,
    /// Whether metrics are constant, so that no status changes.
    pub(crate) unchanged: bool,
    /// The number of HPAs that are created in the measured time, and also the number of HPAs whose spec changes. The
    /// lateness excludes these HPAs.
    pub(crate) probes: usize,
    /// The number of ScalingPolicies. Each HPA matches one ScalingPolicy, and the one ClusterScalingPolicy, which
    /// changes ten times in the measured time.
    #[serde(default)]
    pub(crate) policies: usize,
    /// The attack of a hostile tenant or client.
    #[serde(default)]
    pub(crate) hostile: Option<Way>,
}

impl Workload {
    /// Returns the workload with a name in upper or lower case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let basis = Self {
            name: name.to_uppercase(),
            title: String::new(),
            hpas: 1_000,
            kind: Kind::Cpu,
            others: 0,
            pods: 15,
            namespaces: 50,
            skewed: false,
            queries: 0,
            slowness: Duration::ZERO,
            churn: 0,
            step: 0,
            poisoned: false,
            restart: false,
            standby: false,
            unchanged: false,
            probes: 30,
            policies: 0,
            hostile: None,
        };
        let external = Self { kind: Kind::External, queries: 50, pods: 3, ..basis.clone() };
        let (title, workload) = match basis.name.as_str() {
            "W1" => ("cpu", basis),
            "W2" => ("cpu and memory", Self { kind: Kind::CpuAndMemory, ..basis }),
            "W3" => ("cpu, 10,000 HPAs", Self { hpas: 10_000, namespaces: 100, ..basis }),
            "W3-POLICIES" => (
                "cpu, 10,000 HPAs, 1,000 policies",
                Self { hpas: 10_000, namespaces: 100, policies: 1_000, ..basis },
            ),
            "W4" => ("one large namespace", Self { hpas: 10_000, namespaces: 100, skewed: true, ..basis }),
            "W5" => ("50 external queries", Self { slowness: Duration::from_millis(5), ..external }),
            "W5-SLOW" => {
                ("50 external queries, 2 s each", Self { slowness: Duration::from_secs(2), ..external })
            }
            "W5-DISTINCT" => (
                "1,000 external queries, 2 s each, and 1,000 HPAs by cpu",
                Self { slowness: Duration::from_secs(2), queries: 1_000, others: 1_000, ..external },
            ),
            "W6" => ("a tenth doubles its load", Self { step: 10, ..basis }),
            "W6-ALL" => ("all double their load", Self { step: 1, ..basis }),
            "W7" => ("100 pods replaced each second", Self { churn: 100, ..basis }),
            "W8" => ("metrics of one namespace hang", Self { poisoned: true, ..basis }),
            "W9" => ("restart after a step of load", Self { step: 10, restart: true, ..basis }),
            "W9-FAILOVER" => {
                ("failover after a step of load", Self { step: 10, restart: true, standby: true, ..basis })
            }
            _ => return None,
        };
        Some(Self { title: title.to_owned(), ..workload })
    }

    /// Returns the initial number of HPAs, without those of probes and of a hostile tenant.
    pub(crate) fn all_hpas(&self) -> usize {
        self.hpas + self.others
    }
}

/// The namespace of the hostile tenant.
pub(crate) const HOSTILE: &str = "hostile";
/// The name of an external metric that the metrics API does not serve.
pub(crate) const ABSENT_METRIC: &str = "absent";

/// The attack of a hostile tenant or client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    /// One HPA has 10,000 different external metrics.
    Queries,
    /// 30 HPAs are changed once per second, each time to a different number of replicas.
    Edits,
    /// 2,000 HPAs have external metrics for which the metrics API never responds.
    Hanging,
    /// 5,000 pods and HPAs of the tenant are changed per second. Each change is an event of a watch.
    Events,
    /// The targets of 30 HPAs change to another kind once per second.
    Kinds,
    /// 10,000 pods of ten HPAs are replaced, 250 per second.
    Pods,
    /// The given number of HPAs of an extreme size, each changed once per second.
    Large(Shape, usize),
    /// The given number of HPAs with an expensive annotation, each changed once per second.
    Policies(usize),
    /// 200 HPAs with an expensive annotation are in the list from which two replicas start.
    Restart,
    /// 10,000 HPAs with an annotation of usual size are in the list from which two replicas start.
    List,
    /// A ClusterScalingPolicy that applies to all HPAs and is expensive to read changes once per second.
    ClusterPolicy,
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
    /// 20,000 external metrics with the name [`ABSENT_METRIC`].
    Failures,
    /// 10,000 metrics, 1,000 pods.
    Product,
}

/// The name, the attack and the title of each attack, in the order of the table.
pub(crate) const ALL: [(&str, Way, &str); 19] = [
    ("edits", Way::Edits, "30 HPAs changed each second"),
    ("queries", Way::Queries, "an HPA with 10,000 external metrics"),
    ("hanging", Way::Hanging, "2,000 HPAs by metrics that never respond"),
    ("large-metrics-1", Way::Large(Shape::Metrics, 1), "1 HPA with 30,000 metrics"),
    ("large-metrics-20", Way::Large(Shape::Metrics, 20), "20 HPAs with 30,000 metrics each"),
    ("large-failures-1", Way::Large(Shape::Failures, 1), "1 HPA with 20,000 failing metrics"),
    ("large-failures-20", Way::Large(Shape::Failures, 20), "20 HPAs with 20,000 failing metrics each"),
    ("large-product-1", Way::Large(Shape::Product, 1), "1 HPA with 10,000 metrics and 1,000 pods"),
    ("large-product-20", Way::Large(Shape::Product, 20), "20 HPAs with 10,000 metrics and 1,000 pods each"),
    ("policies-1", Way::Policies(1), "1 HPA with an expensive annotation, changed each second"),
    ("policies-30", Way::Policies(30), "30 HPAs with expensive annotations, changed each second"),
    ("policies-restart", Way::Restart, "restart with 200 expensive annotations"),
    (
        "policies-cluster",
        Way::ClusterPolicy,
        "a ClusterScalingPolicy for all HPAs, expensive to read, changed each second",
    ),
    ("policies-list", Way::List, "restart with 10,000 annotations"),
    ("handshakes", Way::Handshakes, "TLS handshakes"),
    ("tokens", Way::Tokens, "made-up tokens"),
    ("events", Way::Events, "5,000 changed pods and HPAs per second"),
    ("kinds", Way::Kinds, "30 targets that change their kind each second"),
    ("pods", Way::Pods, "10,000 pods, 250 replaced per second"),
];

impl Way {
    /// Returns the number of the tenant's apps, and the number of pods per app.
    pub(crate) fn apps(self) -> (usize, usize) {
        match self {
            Self::Queries | Self::ClusterPolicy => (1, 1),
            Self::Edits | Self::Kinds => (30, 1),
            Self::Hanging => (2_000, 1),
            Self::Events => (100, 1),
            Self::Pods => (10, 1_000),
            Self::Large(Shape::Product, count) => (count, 1_000),
            Self::Large(_, count) => (count, 3),
            Self::Policies(count) => (count, 1),
            Self::Restart => (200, 1),
            Self::List => (10_000, 1),
            Self::Handshakes | Self::Tokens => (0, 0),
        }
    }

    /// Returns the intended number of actions per second. 0 means a single action at the start.
    pub(crate) fn rate(self) -> f64 {
        match self {
            Self::Queries | Self::Hanging | Self::Restart | Self::List => 0.0,
            Self::Edits | Self::Kinds => 30.0,
            Self::ClusterPolicy => 1.0,
            Self::Events | Self::Handshakes => 5_000.0,
            Self::Pods => 250.0,
            Self::Large(_, count) | Self::Policies(count) => count as f64,
            Self::Tokens => 1_000.0,
        }
    }

    /// Returns whether two replicas start from a list with the HPAs of the tenant.
    pub(crate) fn restarts(self) -> bool {
        matches!(self, Self::Restart | Self::List)
    }

    /// Returns whether the controller watches policy objects.
    pub(crate) fn needs_policy_objects(self) -> bool {
        matches!(self, Self::ClusterPolicy)
    }

    /// Returns whether the attackers are clients of the secure port.
    pub(crate) fn floods_port(self) -> bool {
        matches!(self, Self::Handshakes | Self::Tokens)
    }
}
