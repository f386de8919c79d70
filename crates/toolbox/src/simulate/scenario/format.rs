//! The format of a scenario file. The doc comments of the fields are the descriptions in its JSON schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::curve_format::CurveFile;
use super::failure_format::FailureFile;
use super::policies::PolicySchema;
use super::values::{Amount, FlagText, Length, Share, Start};

/// A scenario for `concertina simulate`: HPAs, the workloads they scale, their load, and the path of the
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
    /// The workloads that the HPAs scale. A missing one is derived from its HPA's `scaleTargetRef`.
    pub(crate) workloads: Vec<WorkloadFile>,
    /// The work of the workloads.
    pub(crate) load: Vec<LoadFile>,
    /// The path of metrics from the pods to the controller.
    pub(crate) metrics: MetricsFile,
    /// Scaling policies: ScalingPolicies and ClusterScalingPolicies, inline or from a file. Any other document of
    /// a file is the annotation `concertina.dev/policy` of every HPA, or of the one that `hpa` names. A scenario
    /// with policies, here or in annotations of its HPAs, runs with and without them.
    #[schemars(with = "Vec<PolicySchema>")]
    pub(crate) policies: Vec<serde_json::Value>,
    /// Changes of pod templates. Each replaces all pods of its workload.
    pub(crate) rollouts: Vec<RolloutFile>,
}

/// An HPA.
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
    /// The namespace; by default the namespace of the HPA that scales it.
    pub(crate) namespace: Option<String>,
    /// The kind; by default the kind in the HPA's `scaleTargetRef`, or Deployment.
    pub(crate) kind: Option<WorkloadKind>,
    /// The labels of the pods and of the selector; `app: NAME` by default.
    pub(crate) labels: BTreeMap<String, String>,
    /// The number of pods at the start; by default the HPA's `minReplicas`, but at least 1. With 0 the HPA is
    /// disabled.
    pub(crate) replicas: Option<u32>,
    /// The containers of a pod; by default one that requests 500m cpu and 256Mi memory.
    pub(crate) containers: Vec<ContainerFile>,
    /// The time from the start of a pod's containers until it is ready; 10s by default.
    pub(crate) startup: Option<DistributionFile>,
    /// The time to pull the image, before containers start; none by default.
    pub(crate) image_pull: Option<ImagePullFile>,
    /// The time from the deletion of a pod until it is gone; 5s by default.
    pub(crate) grace_period: Option<Length>,
    /// Cpu of a pod in addition to the cost of its work.
    pub(crate) cpu: CpuFile,
    /// Memory of a pod in addition to the cost of its work.
    pub(crate) memory: MemoryFile,
    /// How unevenly the work is spread: the maximum deviation of a pod's share from the mean, up to 50%; 4%
    /// by default.
    pub(crate) skew: Option<Share>,
    /// The parameters by which a Deployment replaces its pods in a rollout.
    pub(crate) rolling_update: RollingUpdateFile,
    /// The failures of its pods.
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

/// A container.
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
    /// One of these measured durations, with equal probability.
    OneOf(Vec<Length>),
}

/// The pods that pull an image, and the duration of a pull.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ImagePull")]
pub(crate) enum ImagePullFile {
    /// The first pod on a node pulls. Later pods on the node wait for it.
    FirstOnNode(DistributionFile),
    /// Every pod pulls.
    EveryPod(DistributionFile),
}

/// Cpu of a pod in addition to the cost of its work, in cores.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "PodCpu")]
pub(crate) struct CpuFile {
    /// The constant usage; 2m by default.
    pub(crate) base: Option<Amount>,
    /// The usage during startup, until the pod is ready. It replaces all other usage; the base by default.
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

/// Work for one workload. Set `cpu`, or `demand` and the cost of a unit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Load")]
pub(crate) struct LoadFile {
    /// The workload's name, or `NAMESPACE/NAME` if the name is ambiguous; the only workload by default.
    pub(crate) workload: Option<String>,
    /// Cpu as the work: the number of cores that all pods together would use.
    pub(crate) cpu: Option<CurveFile>,
    /// Incoming work in units per second, such as requests or items.
    pub(crate) demand: Option<CurveFile>,
    /// The name of a unit of `demand`, such as `requests`.
    pub(crate) unit: Option<String>,
    /// The capacity of a ready pod in units per second. For `cpu`, in cores: by default its limit, or twice
    /// its request.
    pub(crate) capacity_per_pod: Option<Amount>,
    /// Whether units beyond the capacity wait in a queue. Otherwise they are lost.
    pub(crate) queue: bool,
    /// The cpu that one unit per second costs.
    pub(crate) cpu_per_unit: Option<Amount>,
    /// The memory that one unit per second costs.
    pub(crate) memory_per_unit: Option<Amount>,
    /// The metrics that measure this work. By default, each custom and external metric that the workload's
    /// HPAs request and no load exposes: the queue length of a queue, otherwise the demand.
    pub(crate) metrics: Option<Vec<MetricFile>>,
}

/// A metric of the custom or the external metrics API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Metric")]
pub(crate) struct MetricFile {
    /// The name of the metric.
    pub(crate) name: String,
    /// The measured quantity.
    #[serde(default)]
    pub(crate) measures: Option<MeasureFile>,
    /// The object that the metric describes. Without `object` and `external`, the metric describes each pod.
    #[serde(default)]
    pub(crate) object: Option<ObjectFile>,
    /// The series, for a metric of the external metrics API.
    #[serde(default)]
    pub(crate) external: Option<ExternalFile>,
}

/// The measured quantity of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Measure")]
pub(crate) enum MeasureFile {
    /// Incoming units per second; for pods, an even share.
    Demand,
    /// Completed units per second.
    Served,
    /// Units in the queue; for pods, an even share.
    Waiting,
    /// The waiting time of the last unit in the queue, in seconds.
    WaitingTime,
    /// The completed work as a fraction of the capacity, from 0 to 1.
    Saturation,
}

/// The object that a metric describes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Object")]
pub(crate) struct ObjectFile {
    /// The API version, such as `networking.k8s.io/v1`.
    pub(crate) api_version: String,
    /// The kind, such as `Ingress`.
    pub(crate) kind: String,
    /// The name, in the workload's namespace.
    pub(crate) name: String,
}

/// The series of an external metric.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "External")]
pub(crate) struct ExternalFile {
    /// The labels of the series.
    pub(crate) labels: BTreeMap<String, String>,
}

/// The path of metrics from the pods to the controller: values for all three APIs, and the exceptions for
/// each.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Metrics")]
pub(crate) struct MetricsFile {
    /// The interval between samples; 15s by default.
    pub(crate) scrape_interval: Option<Length>,
    /// The window over which rates such as cpu are averaged; the scrape interval by default.
    pub(crate) window: Option<Length>,
    /// The delay from taking a sample until the API serves it; 0s by default.
    pub(crate) delay: Option<Length>,
    /// metrics.k8s.io: metrics-server.
    pub(crate) resource: ScrapingFile,
    /// custom.metrics.k8s.io: an adapter.
    pub(crate) custom: ScrapingFile,
    /// external.metrics.k8s.io: an adapter.
    pub(crate) external: ScrapingFile,
    /// The sources of metrics. Each source is a variant of the scenario. Its values apply to all three APIs, except
    /// where an API has its own values.
    pub(crate) sources: Vec<SourceFile>,
    /// The outages of the APIs.
    pub(crate) outages: Vec<OutageFile>,
}

/// The values that differ for one metrics API.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Scraping")]
pub(crate) struct ScrapingFile {
    /// The interval between samples.
    pub(crate) scrape_interval: Option<Length>,
    /// The window over which rates are averaged.
    pub(crate) window: Option<Length>,
    /// The delay from taking a sample until the API serves it.
    pub(crate) delay: Option<Length>,
}

/// A source of metrics, with its delays.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Source")]
pub(crate) struct SourceFile {
    /// The kind, which defines the other values by default.
    pub(crate) from: SourceKindFile,
    /// The name of the variant; by default the kind with its intervals.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// The interval between samples: of a kubelet, of Prometheus, or of the scrapes of a pod.
    #[serde(default)]
    pub(crate) scrape_interval: Option<Length>,
    /// The interval at which metrics-server reads the samples of kubelets; 15s by default.
    #[serde(default)]
    pub(crate) read_interval: Option<Length>,
    /// The window over which rates are averaged.
    #[serde(default)]
    pub(crate) window: Option<Length>,
    /// The delay from taking a sample until it can be read; 0s by default.
    #[serde(default)]
    pub(crate) delay: Option<Length>,
    /// The period of syncs in this variant; by default that of the flags.
    #[serde(default)]
    pub(crate) sync_period: Option<Length>,
}

/// A kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SourceKind")]
pub(crate) enum SourceKindFile {
    /// Kubelets with a sample every 10s, read by metrics-server.
    MetricsServer,
    /// Kubelets with a sample every 10s, read by the controller.
    Kubelet,
    /// Prometheus with a sample every 15s and a window of two samples, read by an adapter for each request.
    Adapter,
    /// Prometheus with a sample every 15s and a window of two samples, read by the controller.
    Prometheus,
    /// Pods, scraped every 5s by the controller.
    Pods,
}

/// A period in which a metrics API fails.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Outage")]
pub(crate) struct OutageFile {
    /// The API that fails.
    pub(crate) api: ApiFile,
    /// The start time, since the start of the scenario.
    #[serde(default)]
    pub(crate) from: Length,
    /// The length; to the end of the scenario by default.
    #[serde(default)]
    pub(crate) r#for: Option<Length>,
    /// The kind of failure; an error by default.
    #[serde(default)]
    pub(crate) kind: OutageKindFile,
    /// The HTTP status of the error response; 503 by default.
    #[serde(default)]
    pub(crate) code: Option<u16>,
    /// The text of the error response.
    #[serde(default)]
    pub(crate) message: Option<String>,
    /// The fraction of the pods, or of the metrics, without samples.
    #[serde(default)]
    pub(crate) fraction: Option<Share>,
}

/// One of the metrics APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Api")]
pub(crate) enum ApiFile {
    /// metrics.k8s.io.
    Resource,
    /// custom.metrics.k8s.io.
    Custom,
    /// external.metrics.k8s.io.
    External,
}

/// The kind of failure of a metrics API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OutageKind")]
pub(crate) enum OutageKindFile {
    /// The API responds with an HTTP status and a text.
    #[default]
    Error,
    /// The API does not respond.
    Timeout,
    /// The API responds with empty lists.
    Empty,
    /// Samples of a fraction of the pods are missing.
    Missing,
    /// The API serves stale samples and takes no new ones.
    Stale,
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
