//! The scenario file, as it is written. The descriptions of its fields are those of its JSON schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::curve_format::CurveFile;
use super::values::{Amount, FlagText, Length, Share, Start};

/// A scenario for `concertina simulate`: HPAs, the workloads they scale, the load on them, the metrics in between.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(title = "Scenario")]
pub(crate) struct ScenarioFile {
    /// What charts and reports are called.
    pub(crate) title: String,
    /// How long the scenario lasts; 1h if left out.
    pub(crate) duration: Option<Length>,
    /// The time at which it begins; midnight of a Monday if left out.
    pub(crate) start: Start,
    /// Decides everything that is left to chance; the same seed gives the same run.
    pub(crate) seed: u64,
    /// The flags of the controller, by their names without dashes, such as `horizontal-pod-autoscaler-tolerance: 0.2`.
    pub(crate) flags: BTreeMap<String, FlagText>,
    /// The HPAs: real manifests, inline or from a file.
    #[schemars(length(min = 1), with = "Vec<HpaSchema>")]
    pub(crate) hpas: Vec<serde_json::Value>,
    /// The workloads that they scale. One that is left out is derived from its HPA's `scaleTargetRef`.
    pub(crate) workloads: Vec<WorkloadFile>,
    /// The work that the workloads have to do.
    pub(crate) load: Vec<LoadFile>,
    /// How metrics come from the pods to the controller.
    pub(crate) metrics: MetricsFile,
    /// Changes of pod templates, each of which replaces all pods of its workload.
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
        /// Its path, from the scenario's folder.
        file: String,
    },
    /// A manifest of autoscaling/v2 itself; `apiVersion` and `kind` may be left out.
    Manifest(serde_json::Map<String, serde_json::Value>),
}

/// A workload and how its pods live.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Workload")]
pub(crate) struct WorkloadFile {
    /// `metadata.name`.
    pub(crate) name: String,
    /// Its namespace; that of the HPA that scales it if left out.
    pub(crate) namespace: Option<String>,
    /// Its kind; that of the HPA's `scaleTargetRef`, or Deployment, if left out.
    pub(crate) kind: Option<WorkloadKind>,
    /// The labels of its pods, which are its selector too; `app: NAME` if left out.
    pub(crate) labels: BTreeMap<String, String>,
    /// How many pods there are at the start; the HPA's `minReplicas`, at least 1, if left out. At 0 the HPA is off.
    pub(crate) replicas: Option<u32>,
    /// The containers of a pod; one that requests 500m cpu and 256Mi memory if left out.
    pub(crate) containers: Vec<ContainerFile>,
    /// From the start of a pod's containers until it is ready; 10s if left out.
    pub(crate) startup: Option<DistributionFile>,
    /// Pulling the image, before containers start; none if left out.
    pub(crate) image_pull: Option<ImagePullFile>,
    /// From the deletion of a pod until it is gone; 5s if left out.
    pub(crate) grace_period: Option<Length>,
    /// Cpu of a pod beside what its work costs.
    pub(crate) cpu: CpuFile,
    /// Memory of a pod beside what its work costs.
    pub(crate) memory: MemoryFile,
    /// How unevenly work is spread: by which part a pod's share may differ from the mean, up to 50%; 4% if left out.
    pub(crate) skew: Option<Share>,
    /// How a Deployment replaces its pods in a rollout.
    pub(crate) rolling_update: RollingUpdateFile,
    /// What goes wrong with its pods.
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
    /// Its name; that of the workload if left out.
    pub(crate) name: Option<String>,
    /// `resources.requests`.
    pub(crate) requests: BTreeMap<String, Amount>,
    /// `resources.limits`.
    pub(crate) limits: BTreeMap<String, Amount>,
}

/// A length of time that may differ from pod to pod.
#[derive(Debug, Clone)]
pub(crate) enum DistributionFile {
    Fixed(Length),
    Drawn(DrawnFile),
}

/// A distribution from which each pod's time is drawn.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(rename = "DrawnDuration")]
pub(crate) enum DrawnFile {
    /// Every time between two, equally likely.
    Uniform {
        /// The shortest.
        from: Length,
        /// The longest.
        to: Length,
    },
    /// The normal distribution without the part below zero.
    Normal {
        /// Its mean.
        mean: Length,
        /// Its standard deviation.
        deviation: Length,
    },
    /// The lognormal distribution, with its long tail of slow ones.
    LogNormal {
        /// Half of them are faster.
        median: Length,
        /// 95 of 100 are faster.
        p95: Length,
    },
    /// One of these, equally likely: what was measured.
    OneOf(Vec<Length>),
}

/// When an image is pulled, and how long it takes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ImagePull")]
pub(crate) enum ImagePullFile {
    /// The first pod on a node pulls, those behind it wait for it.
    FirstOnNode(DistributionFile),
    /// Every pod pulls.
    EveryPod(DistributionFile),
}

/// Cpu of a pod beside what its work costs, in cores.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "PodCpu")]
pub(crate) struct CpuFile {
    /// At any time; 2m if left out.
    pub(crate) base: Option<Amount>,
    /// While it starts and is not ready yet, instead of all else; the base if left out.
    pub(crate) start_up: Option<Amount>,
}

/// Memory of a pod beside what its work costs, in bytes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "PodMemory")]
pub(crate) struct MemoryFile {
    /// Of a container that has just started; 12Mi if left out.
    pub(crate) base: Option<Amount>,
    /// What each second adds until the container starts anew.
    pub(crate) growth_per_second: Option<Amount>,
}

/// `spec.strategy.rollingUpdate` of a Deployment.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "RollingUpdate")]
pub(crate) struct RollingUpdateFile {
    /// How many pods beyond the wanted there may be, as a number or in percent; 25% if left out.
    pub(crate) max_surge: Option<FlagText>,
    /// How many of the wanted pods may be missing, as a number or in percent; 25% if left out.
    pub(crate) max_unavailable: Option<FlagText>,
}

/// Something that goes wrong with some of a workload's pods.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Failure")]
pub(crate) enum FailureFile {
    /// Containers exit again and again, restarted with growing pauses.
    CrashLoop {
        /// When it begins, since the start.
        #[serde(default)]
        from: Length,
        /// How long it lasts; to the end if left out.
        r#for: Option<Length>,
        /// How many of the pods.
        fraction: Share,
        /// How long a container runs before it exits; longer than its start-up, it is ready for a while.
        #[serde(default)]
        runs_for: Length,
    },
    /// Pods created within this time never become ready.
    NeverReady {
        /// When it begins, since the start.
        #[serde(default)]
        from: Length,
        /// How long it lasts; to the end if left out.
        r#for: Option<Length>,
        /// How many of these pods.
        fraction: Share,
    },
    /// The readiness probes of running pods fail.
    Unready {
        /// When it begins, since the start.
        #[serde(default)]
        from: Length,
        /// How long it lasts; to the end if left out.
        r#for: Option<Length>,
        /// How many of the pods.
        fraction: Share,
    },
    /// Pods created within this time wait for their image.
    SlowPull {
        /// When it begins, since the start.
        #[serde(default)]
        from: Length,
        /// How long it lasts; to the end if left out.
        r#for: Option<Length>,
        /// How long each waits.
        pull: DistributionFile,
    },
}

/// Work for one workload. Give `cpu`, or `demand` with what a unit costs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Load")]
pub(crate) struct LoadFile {
    /// The workload's name, `NAMESPACE/NAME` where the name alone is not clear; the only one if left out.
    pub(crate) workload: Option<String>,
    /// Cpu itself as the work: how many cores all pods together would use.
    pub(crate) cpu: Option<CurveFile>,
    /// Work that comes in, in units per second: requests, items, or whatever the pods work on.
    pub(crate) demand: Option<CurveFile>,
    /// What a unit of `demand` is called, such as `requests`.
    pub(crate) unit: Option<String>,
    /// Units per second that a ready pod can do. For `cpu`, in cores: its limit, or twice its request, if left out.
    pub(crate) capacity_per_pod: Option<Amount>,
    /// Whether units beyond the capacity wait in a queue; else they are lost.
    pub(crate) queue: bool,
    /// Cpu that one unit per second costs.
    pub(crate) cpu_per_unit: Option<Amount>,
    /// Memory that one unit per second costs.
    pub(crate) memory_per_unit: Option<Amount>,
    /// The metrics that show this work. If left out, each custom and external metric that the workload's HPAs ask for and
    /// no load shows: what waits of a queue, else the demand.
    pub(crate) metrics: Option<Vec<MetricFile>>,
}

/// A metric of the custom or the external metrics API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Metric")]
pub(crate) struct MetricFile {
    /// Its name.
    pub(crate) name: String,
    /// What it measures.
    #[serde(default)]
    pub(crate) measures: Option<MeasureFile>,
    /// Of what object it is; without `object` and `external`, of each pod.
    #[serde(default)]
    pub(crate) object: Option<ObjectFile>,
    /// Makes it a metric of the external API.
    #[serde(default)]
    pub(crate) external: Option<ExternalFile>,
}

/// What a metric measures of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Measure")]
pub(crate) enum MeasureFile {
    /// Units per second that come in; of pods, an even share.
    Demand,
    /// Units per second that are done.
    Served,
    /// Units that wait; of pods, an even share.
    Waiting,
    /// How many seconds the last unit would wait.
    WaitingTime,
    /// What is done by what could be done, from 0 to 1.
    Saturation,
}

/// The object of a metric.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Object")]
pub(crate) struct ObjectFile {
    /// Such as `networking.k8s.io/v1`.
    pub(crate) api_version: String,
    /// Such as `Ingress`.
    pub(crate) kind: String,
    /// Its name, in the workload's namespace.
    pub(crate) name: String,
}

/// The series of an external metric.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "External")]
pub(crate) struct ExternalFile {
    /// Its labels.
    pub(crate) labels: BTreeMap<String, String>,
}

/// How metrics come from the pods to the controller: for all three APIs, and for each one what differs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Metrics")]
pub(crate) struct MetricsFile {
    /// From one sample to the next; 15s if left out.
    pub(crate) scrape_interval: Option<Length>,
    /// Over what time rates are averaged, cpu among them; the scrape interval if left out.
    pub(crate) window: Option<Length>,
    /// From the taking of a sample until it can be read; 0s if left out.
    pub(crate) delay: Option<Length>,
    /// metrics.k8s.io: metrics-server.
    pub(crate) resource: ScrapingFile,
    /// custom.metrics.k8s.io: an adapter.
    pub(crate) custom: ScrapingFile,
    /// external.metrics.k8s.io: an adapter.
    pub(crate) external: ScrapingFile,
    /// When one of them does not do what it should.
    pub(crate) outages: Vec<OutageFile>,
}

/// What differs for one metrics API.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Scraping")]
pub(crate) struct ScrapingFile {
    /// From one sample to the next.
    pub(crate) scrape_interval: Option<Length>,
    /// Over what time rates are averaged.
    pub(crate) window: Option<Length>,
    /// From the taking of a sample until it can be read.
    pub(crate) delay: Option<Length>,
}

/// A time in which a metrics API does not do what it should.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Outage")]
pub(crate) struct OutageFile {
    /// Which one.
    pub(crate) api: ApiFile,
    /// When it begins, since the start.
    #[serde(default)]
    pub(crate) from: Length,
    /// How long it lasts; to the end if left out.
    #[serde(default)]
    pub(crate) r#for: Option<Length>,
    /// How it fails; with an error if left out.
    #[serde(default)]
    pub(crate) kind: OutageKindFile,
    /// The HTTP status of an error; 503 if left out.
    #[serde(default)]
    pub(crate) code: Option<u16>,
    /// The text of an error.
    #[serde(default)]
    pub(crate) message: Option<String>,
    /// How many of the pods are missing, or of the metrics.
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

/// How a metrics API fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OutageKind")]
pub(crate) enum OutageKindFile {
    /// It answers with an HTTP status and a text.
    #[default]
    Error,
    /// It does not answer.
    Timeout,
    /// It answers with empty lists.
    Empty,
    /// Samples of a fraction of the pods are missing.
    Missing,
    /// No new samples are taken; the old ones stay.
    Stale,
}

/// A change of a workload's pod template.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Rollout")]
pub(crate) struct RolloutFile {
    /// When, since the start.
    pub(crate) at: Length,
    /// The workload's name, `NAMESPACE/NAME` where the name alone is not clear; the only one if left out.
    #[serde(default)]
    pub(crate) workload: Option<String>,
}
