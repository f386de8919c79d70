//! The plan of one run, as data: the initial state, the actions of users, and the faults.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use flags::config::TakeOver;
use serde_json::{Value, json};

/// Time in which processes start and sync all HPAs.
const START: Duration = Duration::from_secs(30);
/// The number of the first metric of [`InvalidSpec::DifferentMetrics`].
pub(crate) const DIFFERENT: usize = 100;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) scene: InitialState,
    /// Actions of users, sorted by time.
    pub(crate) actions: Vec<TimedAction>,
    pub(crate) faults: Vec<Fault>,
    /// Actions that lead to a final state that is independent of the other actions and of the faults. No run omits
    /// them.
    pub(crate) closing: Vec<TimedAction>,
    /// Start of the closing actions. Only closing actions and hostile tenants are active after this time.
    pub(crate) quiet: Duration,
    /// Earliest time at which the final state is compared.
    pub(crate) end: Duration,
    /// Time since the last rescale after which no further rescale is expected.
    pub(crate) settle_time: Duration,
}

impl Plan {
    /// A plan with the same initial and final state, but without actions, faults and a takeover.
    pub(crate) fn without_path(&self) -> Self {
        let mut plan = self.clone();
        (plan.actions, plan.faults) = (Vec::new(), Vec::new());
        plan.scene.takeover = TakeOver::Off;
        let earlier = self.quiet.saturating_sub(START);
        for action in &mut plan.closing {
            action.at -= earlier;
        }
        (plan.quiet, plan.end) =
            (self.quiet.checked_sub(earlier).unwrap(), self.end.checked_sub(earlier).unwrap());
        plan
    }
}

/// The initial state of the cluster, and the settings of the processes.
#[derive(Debug, Clone)]
pub(crate) struct InitialState {
    pub(crate) processes: usize,
    /// Whether processes elect a leader. A single process may run without leader election.
    pub(crate) election: bool,
    /// `--takeover`: `wait` or `off`.
    pub(crate) takeover: TakeOver,
    /// `--history-checkpoint`.
    pub(crate) checkpoint: bool,
    pub(crate) hpas: Vec<HpaPlan>,
    pub(crate) tolerance: f64,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    pub(crate) downscale: Duration,
    /// Maximum latency of a request, a response or a piece of a watch, in milliseconds; at least 1.
    pub(crate) latency: u64,
    /// Whether HPAs share metrics and targets are watched. Otherwise, each sync fetches everything itself.
    pub(crate) shares: bool,
}

/// An HPA with its target.
#[derive(Debug, Clone)]
pub(crate) struct HpaPlan {
    /// Whether the target is a Deployment with pods. Otherwise, it is a bare Scale without pods.
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
    /// Initial demand in tenths of replicas.
    pub(crate) demand: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MetricKind {
    Cpu,
    Container,
    Pods,
    Object,
    External,
}

/// An action of a user, with its time and its HPA.
#[derive(Debug, Clone)]
pub(crate) struct TimedAction {
    pub(crate) at: Duration,
    pub(crate) hpa: usize,
    pub(crate) action: Action,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// The load of a metric changes to a demand in tenths of replicas.
    Load {
        metric: usize,
        demand: u64,
    },
    /// A metric has a value that is independent of the load.
    Odd {
        metric: usize,
        text: &'static str,
    },
    /// A user changes fields of the spec. An edit that the server refuses has no effect.
    Edit {
        spec: Value,
    },
    /// Restores the initial spec.
    Restore,
    /// Stores, without validation, an HPA that no API server would accept.
    InvalidSpec(InvalidSpec),
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
pub(crate) enum InvalidSpec {
    InvalidSelector,
    MinAboveMax,
    NegativeMax,
    /// 200 metrics, as copies of the metrics of the HPA.
    ManyMetrics,
    /// 100 different metrics, half of them without values.
    DifferentMetrics,
    /// 200 resource metrics over 100 more pods.
    MetricsTimesPods,
    OddQuantity(&'static str),
    NoSource,
    UnknownType,
    OddTarget,
}

/// A fault with its start and end.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) at: Duration,
    pub(crate) until: Duration,
    pub(crate) kind: FaultKind,
    /// The affected process, or `None` for all.
    pub(crate) process: Option<usize>,
    /// The affected HPA, if the fault concerns one HPA.
    pub(crate) hpa: Option<usize>,
    /// Maximum number of hits.
    pub(crate) times: u64,
    /// The affected class of requests, for kinds of faults that affect a single class.
    pub(crate) class: Class,
    /// Parameter of the fault, in the unit of its kind.
    pub(crate) amount: u64,
}

macro_rules! fault_kinds {
    ($($name:ident: $text:literal,)*) => {
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
    Unauthorized: "401",
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
    EtcdRestored: "etcd restored",
    OtherController: "another controller",
    TenantMetrics: "tenant with many metrics",
    TenantHangs: "tenant with metrics that hang",
    TenantFails: "tenant with metrics that fail",
    TenantEdits: "tenant that edits its HPAs",
    TenantSelector: "tenant that selects other pods",
}

impl FaultKind {
    /// Whether the fault needs several replicas with leader election.
    pub(crate) fn needs_election(self) -> bool {
        matches!(self, Self::LeaseDeleted | Self::LeaseStolen)
    }

    pub(crate) fn affects_lists(self) -> bool {
        matches!(self, Self::ListGone | Self::ListCut)
    }
}

/// The class of a request.
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
    Other,
}

impl InitialState {
    /// The name of an HPA and of its target, and the value of the label `app` of its pods.
    pub(crate) fn name(hpa: usize) -> String {
        format!("h{hpa}")
    }

    /// The namespace of an HPA and of its target.
    pub(crate) fn namespace(hpa: usize) -> &'static str {
        if hpa % 3 == 1 { "bank" } else { "shop" }
    }

    /// The number of the HPA with this name.
    pub(crate) fn number(name: &str) -> Option<usize> {
        name.strip_prefix('h')?.parse().ok()
    }

    /// The name of a metric of an HPA.
    pub(crate) fn metric(hpa: usize, metric: usize) -> String {
        format!("m{hpa}-{metric}")
    }
}

impl HpaPlan {
    /// The HPA object as a user applies it.
    pub(crate) fn object(&self, hpa: usize) -> Value {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"namespace": InitialState::namespace(hpa), "name": InitialState::name(hpa)},
            "spec": self.spec(hpa),
        })
    }

    pub(crate) fn spec(&self, hpa: usize) -> Value {
        let metrics: Vec<_> =
            self.metrics.iter().enumerate().map(|(metric, plan)| plan.kind.spec(hpa, metric)).collect();
        let mut spec = json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": InitialState::name(hpa)},
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
    /// The spec of a metric with a target of 10 per replica, or of 50 % of the request.
    fn spec(self, hpa: usize, metric: usize) -> Value {
        let name = InitialState::metric(hpa, metric);
        let average = json!({"type": "AverageValue", "averageValue": "10"});
        let half = json!({"type": "Utilization", "averageUtilization": 50});
        match self {
            Self::Cpu => json!({"type": "Resource", "resource": {"name": "cpu", "target": half}}),
            Self::Container => json!({"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "app", "target": half,
            }}),
            Self::Pods => json!({"type": "Pods", "pods": {"metric": {"name": name}, "target": average}}),
            Self::Object => json!({"type": "Object", "object": {
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": InitialState::name(hpa)},
                "metric": {"name": name}, "target": average,
            }}),
            Self::External => {
                json!({"type": "External", "external": {"metric": {"name": name}, "target": average}})
            }
        }
    }
}

/// The numbers of a plan's actions and faults that take place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) actions: BTreeSet<usize>,
    pub(crate) faults: BTreeSet<usize>,
}

impl Selection {
    pub(crate) fn all(plan: &Plan) -> Self {
        Self { actions: (0..plan.actions.len()).collect(), faults: (0..plan.faults.len()).collect() }
    }

    /// The same actions without faults.
    pub(crate) fn without_faults(&self) -> Self {
        Self { actions: self.actions.clone(), faults: BTreeSet::new() }
    }

    /// Parses `f3,a7`, or `none` if nothing is kept.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut kept = Self { actions: BTreeSet::new(), faults: BTreeSet::new() };
        for word in text.split(',').map(str::trim).filter(|word| !matches!(*word, "" | "none")) {
            let wrong = || format!("CONCERTINA_KEEP: {word:?} must be like f0 or a0");
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

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.faults.iter().map(|number| format!("f{number}"));
        let all: Vec<_> = faults.chain(self.actions.iter().map(|number| format!("a{number}"))).collect();
        f.write_str(if all.is_empty() { "none" } else { "" })?;
        f.write_str(&all.join(","))
    }
}

impl fmt::Display for TimedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", InitialState::name(self.hpa), self.action)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        if let Some(process) = self.process {
            write!(f, ", process {process}")?;
        }
        if let Some(hpa) = self.hpa {
            write!(f, ", {}", InitialState::name(hpa))?;
        }
        let length = self.until.saturating_sub(self.at);
        write!(f, ", {:?} ×{} for {length:?} (amount {})", self.class, self.times, self.amount)
    }
}
