//! The format of a scenario file: HPAs, workloads and their failures, policies and rollouts. The doc comments of the
//! types and fields are the descriptions in the JSON schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::load_format::{LoadFile, MetricsFile};
use super::manifests::PolicySchema;
use super::values::{Amount, FlagText, Length, Share, Start, either};

/// A scenario for `concertina simulate`: HPAs, the workloads they scale, the load of the workloads, and the path of the
/// metrics.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(title = "Scenario")]
pub(crate) struct ScenarioFile {
    /// The title of charts and reports.
    pub(crate) title: String,
    /// The length of the run; 1h by default.
    pub(crate) duration: Option<Length>,
    /// The time at which the run starts; midnight of a Monday by default.
    pub(crate) start: Start,
    /// The random seed. The same seed gives the same run.
    pub(crate) seed: u64,
    /// The controller's flags by name, without dashes, such as `horizontal-pod-autoscaler-tolerance: 0.2`.
    pub(crate) flags: BTreeMap<String, FlagText>,
    /// The HPAs: real manifests, inline or from a file.
    #[schemars(length(min = 1), with = "Vec<HpaSchema>")]
    pub(crate) hpas: Vec<serde_json::Value>,
    /// The workloads that the HPAs scale. A missing workload is derived from the `scaleTargetRef` of its HPA.
    pub(crate) workloads: Vec<WorkloadFile>,
    /// The work of the workloads, over time.
    pub(crate) load: Vec<LoadFile>,
    /// The path of metrics from the pods to the controller.
    pub(crate) metrics: MetricsFile,
    /// ScalingPolicies and ClusterScalingPolicies, inline or from a file. The text of a file without such objects
    /// becomes the annotation `concertina.dev/policy` of every HPA, or of the HPA that `hpa` names. By default, a
    /// scenario with policies, here or in annotations of its HPAs, runs with and without them.
    #[schemars(with = "Vec<PolicySchema>")]
    pub(crate) policies: Vec<serde_json::Value>,
    /// Changes of pod templates. Each change replaces all pods of its workload.
    pub(crate) rollouts: Vec<RolloutFile>,
}

/// An HPA: a manifest, or a file with a manifest.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used: the API server's own rules check a manifest")]
#[schemars(rename = "Hpa")]
pub(crate) enum HpaSchema {
    /// A file with a manifest.
    File {
        /// The path of the file, relative to the folder of the scenario.
        file: String,
    },
    /// An autoscaling/v2 manifest; `apiVersion` and `kind` are optional.
    Manifest(serde_json::Map<String, serde_json::Value>),
}

/// A workload and the behavior of its pods.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Workload")]
pub(crate) struct WorkloadFile {
    /// `metadata.name`.
    pub(crate) name: String,
    /// The namespace; by default the namespace of the HPA that scales the workload.
    pub(crate) namespace: Option<String>,
    /// The kind; by default the kind in the HPA's `scaleTargetRef`, or Deployment.
    pub(crate) kind: Option<WorkloadKind>,
    /// The labels of the pods and of the selector; `app: NAME` by default.
    pub(crate) labels: BTreeMap<String, String>,
    /// The number of pods at the start; by default the HPA's `minReplicas`, but at least 1. 0 disables the HPA.
    pub(crate) replicas: Option<u32>,
    /// The containers of a pod. By default, these are the containers that the metrics of the HPA name, or else one
    /// container. A default container requests 500m cpu and 256Mi memory.
    pub(crate) containers: Vec<ContainerFile>,
    /// The time from the start of a pod's containers until the pod is ready; 10s by default.
    pub(crate) startup: Option<DistributionFile>,
    /// The time to pull the image, before containers start; none by default.
    pub(crate) image_pull: Option<ImagePullFile>,
    /// The time from the deletion of a pod until its removal; 5s by default.
    pub(crate) grace_period: Option<Length>,
    /// Cpu of a pod in addition to the cost of its work.
    pub(crate) cpu: CpuFile,
    /// Memory of a pod in addition to the cost of its work.
    pub(crate) memory: MemoryFile,
    /// The maximum deviation of a pod's share of the work from the mean, up to 50%; 4% by default.
    pub(crate) skew: Option<Share>,
    /// The parameters by which a Deployment replaces its pods in a rollout.
    pub(crate) rolling_update: RollingUpdateFile,
    /// The failures of the pods.
    pub(crate) failures: Vec<FailureFile>,
}

/// A kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub(crate) enum WorkloadKind {
    #[default]
    Deployment,
    StatefulSet,
    ReplicaSet,
    ReplicationController,
}

/// A container of a pod.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Container")]
pub(crate) struct ContainerFile {
    /// The name; by default the workload's name.
    pub(crate) name: Option<String>,
    /// `resources.requests`.
    pub(crate) requests: BTreeMap<String, Amount>,
    /// `resources.limits`.
    pub(crate) limits: BTreeMap<String, Amount>,
}

/// A duration that may differ from pod to pod.
#[derive(Debug, Clone)]
pub(crate) enum DistributionFile {
    Fixed(Length),
    Drawn(DrawnFile),
}

/// A distribution from which each pod draws its duration.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(rename = "DrawnDuration")]
pub(crate) enum DrawnFile {
    /// A uniform distribution between two durations.
    Uniform {
        /// The shortest duration.
        from: Length,
        /// The longest duration.
        to: Length,
    },
    /// A normal distribution, truncated at zero.
    Normal {
        /// The mean.
        mean: Length,
        /// The standard deviation.
        deviation: Length,
    },
    /// A lognormal distribution, which has a long tail of slow pods.
    LogNormal {
        /// The median.
        median: Length,
        /// The 95th percentile.
        p95: Length,
    },
    /// A list of measured durations, each with equal probability.
    OneOf(Vec<Length>),
}

/// The pods that pull an image, and the duration of a pull.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ImagePull")]
pub(crate) enum ImagePullFile {
    /// The first pod on a node pulls the image. Other pods on the node wait for this pull, and later pods find the
    /// image.
    FirstOnNode(DistributionFile),
    /// Every pod pulls the image.
    EveryPod(DistributionFile),
}

/// Cpu of a pod in addition to the cost of its work, in cores.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "PodCpu")]
pub(crate) struct CpuFile {
    /// The constant usage; 0 by default.
    pub(crate) base: Option<Amount>,
    /// The total usage during startup, until the pod is ready; the base by default.
    pub(crate) start_up: Option<Amount>,
}

/// Memory of a pod in addition to the cost of its work, in bytes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "PodMemory")]
pub(crate) struct MemoryFile {
    /// The usage of a container that has just started; 12Mi by default.
    pub(crate) base: Option<Amount>,
    /// The growth per second, until the container restarts.
    pub(crate) growth_per_second: Option<Amount>,
}

/// `spec.strategy.rollingUpdate` of a Deployment.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "RollingUpdate")]
pub(crate) struct RollingUpdateFile {
    /// The maximum number of pods above the desired count, as a number or in percent; 25% by default.
    pub(crate) max_surge: Option<FlagText>,
    /// The maximum number of unavailable pods, as a number or in percent; 25% by default.
    pub(crate) max_unavailable: Option<FlagText>,
}

/// A failure of some of a workload's pods.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Failure")]
pub(crate) enum FailureFile {
    /// Containers exit repeatedly and restart with increasing back-off.
    CrashLoop {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The fraction of the pods.
        fraction: Share,
        /// The time that a container runs before it exits. If this time is longer than the startup, the pod is ready
        /// between crashes.
        #[serde(default)]
        runs_for: Length,
    },
    /// Pods created in the given period never become ready.
    NeverReady {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The fraction of the pods created in the period.
        fraction: Share,
    },
    /// The readiness probes of running pods fail.
    Unready {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The fraction of the pods.
        fraction: Share,
    },
    /// Pods created in the given period wait for their image.
    SlowPull {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The wait of each pod.
        pull: DistributionFile,
    },
    /// The scheduler cannot place pods created in the given period until a node is free.
    Unschedulable {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The wait of each pod.
        wait: DistributionFile,
    },
}

/// A change of a workload's pod template.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Rollout")]
pub(crate) struct RolloutFile {
    /// The time, since the start of the scenario.
    pub(crate) at: Length,
    /// The workload's name, or `NAMESPACE/NAME` if the name is ambiguous; the only workload by default.
    #[serde(default)]
    pub(crate) workload: Option<String>,
}

either!(DistributionFile, "Distribution", "a duration, or a distribution such as {normal: {mean: 20s, deviation: 4s}}",
    scalar: Fixed(Length), map: Drawn(DrawnFile), with: std::convert::identity);
