//! The workloads: the number and kind of HPAs, and the events during a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hostile::way::Way;

/// Pods per HPA in the large namespace of a skewed cluster.
pub(crate) const FEW_PODS: usize = 3;

/// The namespace with hanging metrics.
pub(crate) const POISONED: &str = "team-000";

/// The metrics of an HPA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The cpu utilization of its pods.
    Cpu,
    /// The cpu and memory utilization of its pods.
    CpuAndMemory,
    /// The length of a queue outside of the cluster.
    External,
}

/// One workload, as the server receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each flag enables an independent event")]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) title: String,
    /// Number of HPAs of the measured kind.
    pub(crate) hpas: usize,
    pub(crate) kind: Kind,
    /// Number of additional HPAs, all on cpu.
    pub(crate) others: usize,
    /// Initial number of pods per HPA.
    pub(crate) pods: usize,
    pub(crate) namespaces: usize,
    /// Whether a tenth of the HPAs are in the first namespace, with three pods each.
    pub(crate) skewed: bool,
    /// The number of different external queries.
    pub(crate) queries: usize,
    /// The response time of the external metrics API.
    pub(crate) slowness: Duration,
    /// Number of pods that are replaced per second.
    pub(crate) churn: usize,
    /// Whether a tenth of the HPAs have twice the load after a quarter of the measured time.
    pub(crate) step: bool,
    /// Whether the resource metrics API never responds for the first namespace.
    pub(crate) poisoned: bool,
    /// Whether the controller is killed half a period after the load step, and restarted or replaced by a standby.
    pub(crate) restart: bool,
    /// Whether a standby takes over by leader election.
    pub(crate) standby: bool,
    /// Whether metrics are constant, so that no status changes.
    pub(crate) unchanged: bool,
    /// The number of HPAs that are created, and of HPAs with a spec change, in the measured time. These HPAs do not
    /// count for lateness.
    pub(crate) probes: usize,
    /// Number of ScalingPolicies. Each HPA matches one of them, and a ClusterScalingPolicy that changes ten times in
    /// the measured time.
    #[serde(default)]
    pub(crate) policies: usize,
    /// The attack of a hostile tenant or client in the second part of the measured time.
    #[serde(default)]
    pub(crate) hostile: Option<Way>,
}

impl Workload {
    /// A workload by name, in upper or lower case.
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
            step: false,
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
            "W6" => ("a tenth doubles its load", Self { step: true, ..basis }),
            "W7" => ("100 pods replaced each second", Self { churn: 100, ..basis }),
            "W8" => ("metrics of one namespace hang", Self { poisoned: true, ..basis }),
            "W9" => ("restart after a step of load", Self { step: true, restart: true, ..basis }),
            "W9-FAILOVER" => {
                ("failover after a step of load", Self { step: true, restart: true, standby: true, ..basis })
            }
            _ => return None,
        };
        Some(Self { title: title.to_owned(), ..workload })
    }

    /// The total number of HPAs, without probes.
    pub(crate) fn all_hpas(&self) -> usize {
        self.hpas + self.others
    }
}
