//! What `check` reads from a cluster, as values. A failed read is a value, too.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use cluster::error::ApiError;
use cluster::permission::Missing;
use cluster::server::Server;
use controller::election::leases::Record;
use flags::{Config, FlagError};
use k8s_openapi::api::core::v1::Pod;
use terminal::forward::ForwardError;

/// The cluster around an installation.
#[derive(Debug, Clone, PartialEq)]
pub struct Surroundings {
    /// The version and the clock of the API server.
    pub server: Server,
    /// The metrics APIs by group.
    pub metrics: Vec<(&'static str, Api)>,
    /// The group of scaling policies.
    pub policies: Api,
}

/// An API group.
#[derive(Debug, Clone, PartialEq)]
pub enum Api {
    /// The API server serves these versions. A backend answers, if the group has one.
    Served(Vec<String>),
    /// The API server does not serve the group.
    Absent,
    /// The group is known but does not answer, for this reason.
    Failing(String),
}

/// What an installation in a namespace needs.
#[derive(Debug)]
pub struct Requirements {
    /// The namespace.
    pub namespace: String,
    /// The objects of the default installation that the user may not create.
    pub uncreatable: Result<Vec<Missing>, ApiError>,
    /// The permissions of the controller that the user may not grant.
    pub ungrantable: Result<Vec<Missing>, ApiError>,
    /// The objects of a guard that the user may not create.
    pub unguardable: Result<Vec<Missing>, ApiError>,
    /// The Leases of the default installations, by namespace and name.
    pub leases: Vec<(String, Result<Option<Record>, ApiError>)>,
}

/// One installation.
#[derive(Debug)]
pub struct Installation {
    /// The namespace.
    pub namespace: String,
    /// The name of the Deployment.
    pub name: String,
    /// The image of the container.
    pub image: String,
    /// The numbers of ready and of requested replicas.
    pub replicas: (i32, i32),
    /// The configuration that its arguments give, or the first invalid argument.
    pub config: Result<Config, FlagError>,
    /// The permissions that its account lacks.
    pub missing: Result<Vec<Missing>, ApiError>,
    /// The file of metric sources. `None` without `--metric-sources`.
    pub sources: Option<SourceText>,
    /// Its Lease. `None` if it needs none.
    pub lease: Option<Lease>,
    /// Its pods.
    pub pods: Result<Vec<Pod>, ApiError>,
    /// The pages of the leader. `None` if no leader is known.
    pub leader: Option<Result<Leader, ForwardError>>,
    /// The objects of its guard, by kind and name. Objects that do not exist are absent.
    pub guard: Result<BTreeMap<(String, String), Value>, ApiError>,
    /// The pods of kube-controller-manager.
    pub built_in: Result<Vec<BuiltIn>, ApiError>,
    /// The readers of its metrics.
    pub monitoring: Result<Monitoring, ApiError>,
}

/// The Lease of an installation.
#[derive(Debug)]
pub struct Lease {
    /// Namespace and name.
    pub name: String,
    /// The record. `None` if the Lease does not exist.
    pub record: Result<Option<Record>, ApiError>,
}

/// The file of metric sources.
#[derive(Debug)]
pub enum SourceText {
    /// The text in a ConfigMap.
    Text {
        /// The name of the ConfigMap.
        config_map: String,
        /// The key in `data`.
        key: String,
        /// The value. `None` if the ConfigMap or the key does not exist.
        text: Option<String>,
    },
    /// The file does not come from a ConfigMap.
    Elsewhere,
    /// The ConfigMap cannot be read.
    Unread(ApiError),
}

/// The pages of a leader.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leader {
    /// The version of the program, such as `0.1.0`. Empty if unknown.
    pub version: String,
    /// The health checks by name: whether each passes, and its detail or the reason of the failure.
    pub checks: BTreeMap<String, (bool, String)>,
    /// The page of the handover. `None` if it cannot be read.
    pub handover: Option<HandoverPage>,
}

/// The page `/handover` of a leader.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct HandoverPage {
    /// The state of the guard.
    pub guard: GuardState,
    /// The HPAs in scope.
    pub hpas: Vec<HandedOver>,
}

/// The state of the guard, as a leader reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct GuardState {
    /// `proven`, `broken` or `unknown`.
    pub state: String,
    /// The reason of a broken guard.
    pub reason: Option<String>,
}

/// An HPA in scope.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct HandedOver {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// `claiming`, `in_charge` or `contested`.
    pub state: String,
}

/// A pod of kube-controller-manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIn {
    /// The name of the pod.
    pub pod: String,
    /// Whether its arguments enable the built-in HPA controller.
    pub enabled: bool,
}

/// The readers of the metrics of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Monitoring {
    /// Whether the API server serves PrometheusRules.
    pub rules_served: bool,
    /// The number of PrometheusRules in its namespace.
    pub rules: usize,
    /// The number of ServiceMonitors and PodMonitorings in its namespace.
    pub monitors: usize,
    /// Whether its pods have the annotation `prometheus.io/scrape: "true"`.
    pub annotated: bool,
}
