//! What is to happen in one run, as data: the world at its beginning, what people do, what goes wrong.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) scene: Scene,
    /// In the order of their times.
    pub(crate) actions: Vec<Act>,
    pub(crate) faults: Vec<Fault>,
    /// What leads to an end that does not depend on the way there. Never left out.
    pub(crate) closing: Vec<Act>,
    /// When no action and no fault is left.
    pub(crate) quiet: Duration,
    /// When the end is looked at, at the earliest.
    pub(crate) end: Duration,
    /// How long after the last rescale nothing is on its way any more.
    pub(crate) still: Duration,
}

/// The world at the beginning.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) processes: usize,
    /// With one process alone there may be none.
    pub(crate) election: bool,
    /// `--history-checkpoint`
    pub(crate) checkpoint: bool,
    pub(crate) hpas: Vec<HpaPlan>,
    pub(crate) tolerance: f64,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    pub(crate) downscale: Duration,
    /// The longest that a request, an answer or a piece of a watch takes on its way, in milliseconds.
    pub(crate) latency: u64,
    /// Whether HPAs share metrics and targets are watched, or each sync asks for all that it needs.
    pub(crate) shares: bool,
}

/// An HPA with its target.
#[derive(Debug, Clone)]
pub(crate) struct HpaPlan {
    /// A Deployment with pods; otherwise a Scale that stands by itself.
    pub(crate) has_pods: bool,
    pub(crate) replicas: i64,
    pub(crate) min: Option<i64>,
    pub(crate) max: i64,
    pub(crate) metrics: Vec<MetricPlan>,
    pub(crate) behavior: Option<Value>,
}

/// One metric of an HPA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricPlan {
    pub(crate) kind: MetricKind,
    /// Tenths of replicas that the load asks for at the beginning.
    pub(crate) wanted: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MetricKind {
    Cpu,
    Container,
    Pods,
    Object,
    External,
}

/// Something that people do, at a time.
#[derive(Debug, Clone)]
pub(crate) struct Act {
    pub(crate) at: Duration,
    pub(crate) hpa: usize,
    pub(crate) what: Action,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// The load of a metric changes to so many tenths of replicas.
    Load {
        metric: usize,
        wanted: u64,
    },
    /// A metric reads like this, whatever the load.
    Odd {
        metric: usize,
        text: &'static str,
    },
    /// A user changes the spec by these fields; what the server refuses is left as it was.
    Edit {
        spec: Value,
    },
    /// The spec as it was at the beginning.
    Restore,
    /// Stored around all rules: an HPA that no server should have let in.
    Poison(Poison),
    /// `kubectl scale`.
    Manual {
        replicas: i64,
    },
    DeleteTarget,
    CreateTarget {
        replicas: i64,
    },
    DeleteHpa,
    CreateHpa,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poison {
    InvalidSelector,
    MinAboveMax,
    NegativeMax,
    ManyMetrics,
    OddQuantity(&'static str),
    NoSource,
    UnknownType,
    OddTarget,
}

/// Something that goes wrong, from a time on for a while.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) until: Duration,
    pub(crate) kind: FaultKind,
    /// Which process; all if none.
    pub(crate) process: Option<usize>,
    /// Which HPA, where the fault concerns one.
    pub(crate) hpa: Option<usize>,
    /// How many times it strikes, where it is counted.
    pub(crate) times: u64,
    /// Which of the kinds of requests, where there is a choice.
    pub(crate) class: Class,
    /// How much, as the kind takes it.
    pub(crate) amount: u64,
}

macro_rules! fault_kinds {
    ($($name:ident: $text:literal,)*) => {
        /// How things go wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum FaultKind { $($name,)* }

        impl FaultKind {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

fault_kinds! {
    CrashBefore: "crash before a request",
    CrashAfter: "crash after a request was applied",
    Restart: "restart",
    Partition: "process cut off",
    ResetBefore: "reset before applying",
    ResetAfter: "reset after applying",
    Conflict: "409",
    Throttle: "429",
    Storm: "5xx storm",
    Slow: "slow answers",
    Hang: "no answers",
    WatchCut: "events lost, connection broken",
    WatchHole: "hole in a watch, then 410",
    WatchTwice: "events twice",
    WatchReorder: "events reordered",
    WatchLate: "events late",
    WatchSilent: "silent watch",
    WatchGone: "410 in a watch",
    ListGone: "410 in a list",
    ListCut: "truncated list",
    MetricsDown: "metrics down",
    MetricsSlow: "metrics slow",
    MetricsPartial: "metrics partial",
    MetricsStale: "metrics stale",
    MetricsCut: "metrics truncated",
    MetricsKind: "metrics of the wrong kind",
    MetricsEmpty: "metrics empty",
    MetricsHuge: "metrics huge",
    ClockJump: "clock jumps",
    ClockDrift: "clock drifts",
    LeaseDeleted: "Lease deleted",
    LeaseStolen: "Lease stolen",
    PeerDown: "replicas cannot reach each other",
    PeerSlow: "replicas reach each other slowly",
}

impl FaultKind {
    /// Whether it needs replicas that stand for election.
    pub(crate) fn is_among_replicas(self) -> bool {
        matches!(self, Self::LeaseDeleted | Self::LeaseStolen | Self::PeerDown | Self::PeerSlow)
    }

    /// Whether it strikes at lists.
    pub(crate) fn is_of_lists(self) -> bool {
        matches!(self, Self::ListGone | Self::ListCut)
    }
}

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    ScaleGet,
    ScalePut,
    StatusPut,
    HpaGet,
    Event,
    LeaseGet,
    LeaseWrite,
    Metrics,
    WatchHpas,
    WatchPods,
    WatchTargets,
    ListHpas,
    ListPods,
    Discovery,
    /// Another replica.
    Peer,
    Other,
}

impl Scene {
    /// The name of an HPA, of its target and of the label of its pods.
    pub(crate) fn name(hpa: usize) -> String {
        format!("h{hpa}")
    }

    /// Which HPA has this name.
    pub(crate) fn number(name: &str) -> Option<usize> {
        name.strip_prefix('h')?.parse().ok()
    }

    /// The name of a metric of an HPA.
    pub(crate) fn metric(hpa: usize, metric: usize) -> String {
        format!("m{hpa}-{metric}")
    }
}

impl HpaPlan {
    /// The HPA as its user writes it.
    pub(crate) fn object(&self, hpa: usize) -> Value {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"namespace": "shop", "name": Scene::name(hpa)},
            "spec": self.spec(hpa),
        })
    }

    pub(crate) fn spec(&self, hpa: usize) -> Value {
        let metrics: Vec<_> =
            self.metrics.iter().enumerate().map(|(metric, plan)| plan.kind.spec(hpa, metric)).collect();
        let mut spec = json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": Scene::name(hpa)},
            "maxReplicas": self.max, "metrics": metrics,
        });
        if let Some(min) = self.min {
            spec["minReplicas"] = min.into();
        }
        if let Some(behavior) = &self.behavior {
            spec["behavior"] = behavior.clone();
        }
        spec
    }
}

impl MetricKind {
    /// A metric of which each replica is to have 10, or half of what it asked for.
    fn spec(self, hpa: usize, metric: usize) -> Value {
        let name = Scene::metric(hpa, metric);
        let average = json!({"type": "AverageValue", "averageValue": "10"});
        let half = json!({"type": "Utilization", "averageUtilization": 50});
        match self {
            Self::Cpu => json!({"type": "Resource", "resource": {"name": "cpu", "target": half}}),
            Self::Container => json!({"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "app", "target": half,
            }}),
            Self::Pods => json!({"type": "Pods", "pods": {"metric": {"name": name}, "target": average}}),
            Self::Object => json!({"type": "Object", "object": {
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": Scene::name(hpa)},
                "metric": {"name": name}, "target": average,
            }}),
            Self::External => {
                json!({"type": "External", "external": {"metric": {"name": name}, "target": average}})
            }
        }
    }
}

/// Which of a plan's actions and faults take place: all, or the numbers of those that do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) actions: BTreeSet<usize>,
    pub(crate) faults: BTreeSet<usize>,
}

impl Kept {
    pub(crate) fn all(plan: &Plan) -> Self {
        Self { actions: (0..plan.actions.len()).collect(), faults: (0..plan.faults.len()).collect() }
    }

    /// The plan as if nothing went wrong.
    pub(crate) fn without_faults(&self) -> Self {
        Self { actions: self.actions.clone(), faults: BTreeSet::new() }
    }

    /// `f3,a7`; `none` if nothing is kept.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut kept = Self { actions: BTreeSet::new(), faults: BTreeSet::new() };
        for word in text.split(',').map(str::trim).filter(|word| !matches!(*word, "" | "none")) {
            let wrong = || format!("CONCERTINA_KEEP: {word:?} is neither f0, f1, … nor a0, a1, …");
            let (set, number) = match word.split_at_checked(1).ok_or_else(wrong)? {
                ("f", number) => (&mut kept.faults, number),
                ("a", number) => (&mut kept.actions, number),
                _ => return Err(wrong()),
            };
            set.insert(number.parse().map_err(|_| wrong())?);
        }
        Ok(kept)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.faults.iter().map(|number| format!("f{number}"));
        let all: Vec<_> = faults.chain(self.actions.iter().map(|number| format!("a{number}"))).collect();
        f.write_str(if all.is_empty() { "none" } else { "" })?;
        f.write_str(&all.join(","))
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", Scene::name(self.hpa), self.what)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        if let Some(process) = self.process {
            write!(f, ", process {process}")?;
        }
        if let Some(hpa) = self.hpa {
            write!(f, ", {}", Scene::name(hpa))?;
        }
        let length = self.until.saturating_sub(self.at);
        write!(f, ", {:?} ×{} for {length:?} (amount {})", self.class, self.times, self.amount)
    }
}
