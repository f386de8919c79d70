//! What a controller is put in front of: how many HPAs of which kind, and what happens to them meanwhile.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Pods of each HPA of the large namespace of a skewed cluster.
pub(crate) const FEW_PODS: usize = 3;

/// The namespace for which metrics may hang.
pub(crate) const POISONED: &str = "team-000";

/// By what an HPA scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The cpu utilization of its pods.
    Cpu,
    /// That and their memory utilization.
    CpuAndMemory,
    /// The length of a queue outside the cluster.
    External,
}

/// One workload, as the server gets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that happens or does not")]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) title: String,
    /// HPAs of the measured kind.
    pub(crate) hpas: usize,
    pub(crate) kind: Kind,
    /// HPAs besides, all by cpu.
    pub(crate) others: usize,
    /// Pods of each HPA at the beginning.
    pub(crate) pods: usize,
    pub(crate) namespaces: usize,
    /// A tenth of the HPAs is in the first namespace, with three pods each.
    pub(crate) skewed: bool,
    /// How many different external queries there are.
    pub(crate) queries: usize,
    /// How long the external metrics API takes for an answer.
    pub(crate) slowness: Duration,
    /// Pods that are replaced each second.
    pub(crate) churn: usize,
    /// A tenth of the HPAs has twice the load after a quarter of the measured time.
    pub(crate) step: bool,
    /// The resource metrics API never answers for the first namespace.
    pub(crate) poisoned: bool,
    /// The controller is killed in the middle of the measured time and started again.
    pub(crate) restart: bool,
    /// A second controller stands by and goes on instead, by leader election.
    pub(crate) standby: bool,
    /// Metrics stay as they are, so that no status changes.
    pub(crate) unchanged: bool,
    /// HPAs that are created, and HPAs whose spec is changed, in the measured time; neither count for lateness.
    pub(crate) probes: usize,
}

impl Workload {
    /// A workload by its name, in any case; with so many HPAs if that is said.
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
        };
        let external = Self { kind: Kind::External, queries: 50, pods: 3, ..basis.clone() };
        let (title, workload) = match basis.name.as_str() {
            "W1" => ("cpu", basis),
            "W2" => ("cpu and memory", Self { kind: Kind::CpuAndMemory, ..basis }),
            "W3" => ("cpu, ten times as many", Self { hpas: 10_000, namespaces: 100, ..basis }),
            "W4" => ("one large namespace", Self { hpas: 10_000, namespaces: 100, skewed: true, ..basis }),
            "W5" => ("50 external queries", Self { slowness: Duration::from_millis(5), ..external }),
            "W5-SLOW" => {
                ("50 external queries, 2 s each", Self { slowness: Duration::from_secs(2), ..external })
            }
            "W5-DISTINCT" => (
                "1,000 external queries, 2 s each, and as many HPAs by cpu",
                Self { slowness: Duration::from_secs(2), queries: 1_000, others: 1_000, ..external },
            ),
            "W6" => ("a tenth doubles its load", Self { step: true, ..basis }),
            "W7" => ("100 pods replaced each second", Self { churn: 100, ..basis }),
            "W8" => ("metrics of one namespace hang", Self { poisoned: true, ..basis }),
            "W9" => ("restart after a step of load", Self { step: true, restart: true, ..basis }),
            "W9-FAILOVER" => {
                ("fail-over after a step of load", Self { step: true, restart: true, standby: true, ..basis })
            }
            _ => return None,
        };
        Some(Self { title: title.to_owned(), ..workload })
    }

    /// HPAs in all, without probes.
    pub(crate) fn all_hpas(&self) -> usize {
        self.hpas + self.others
    }
}
