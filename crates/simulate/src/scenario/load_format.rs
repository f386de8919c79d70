//! The format of the loads, the metrics and the curves in a scenario file. The doc comments of the types and fields are
//! the descriptions in the JSON schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::values::{Amount, Length, Share, either};

/// Work for one workload. Set `cpu`, or `demand` with `capacityPerPod`.
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
    /// The capacity of a ready pod in units per second. With `cpu`, the capacity is in cores; by default the cpu limit
    /// of the pod, or twice its cpu request.
    pub(crate) capacity_per_pod: Option<Amount>,
    /// Whether units beyond the capacity wait in a queue. Otherwise they are lost.
    pub(crate) queue: bool,
    /// The cpu that one unit per second costs.
    pub(crate) cpu_per_unit: Option<Amount>,
    /// The memory that one unit per second costs.
    pub(crate) memory_per_unit: Option<Amount>,
    /// The metrics that measure this work. Without this list, the load has the custom and external metrics that the
    /// workload's HPAs request and that no list contains. They measure the queue length of a queue, otherwise the
    /// demand. If a workload has several loads without a list, only the first has these metrics.
    pub(crate) metrics: Option<Vec<MetricFile>>,
}

/// A metric of the custom or the external metrics API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Metric")]
pub(crate) struct MetricFile {
    /// The name of the metric.
    pub(crate) name: String,
    /// The measured quantity; by default the queue length of a queue, otherwise the demand.
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
    /// Incoming units per second. For a metric of pods, each pod has the same share.
    Demand,
    /// Completed units per second.
    Served,
    /// Units in the queue. For a metric of pods, each pod has the same share.
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

/// The path of metrics from the pods to the controller: values for all three APIs, and different values for single
/// APIs.
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
    /// The values that differ for metrics.k8s.io, which metrics-server serves.
    pub(crate) resource: ScrapingFile,
    /// The values that differ for custom.metrics.k8s.io, which an adapter serves.
    pub(crate) custom: ScrapingFile,
    /// The values that differ for external.metrics.k8s.io, which an adapter serves.
    pub(crate) external: ScrapingFile,
    /// The sources of metrics. Each source is a variant of the scenario. The values of a source apply to all three
    /// APIs, except for APIs with their own values.
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
    /// The kind, which sets the defaults of the other values.
    pub(crate) from: SourceKindFile,
    /// The name of the variant; by default the kind with its intervals.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// The interval between the samples of a kubelet or of Prometheus, or between scrapes of a pod.
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
    /// The sync period in this variant; by default the period that the flags set.
    #[serde(default)]
    pub(crate) sync_period: Option<Length>,
}

/// A kind of metric source.
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
    /// The text of the error response; `service unavailable` by default.
    #[serde(default)]
    pub(crate) message: Option<String>,
    /// The fraction of the pods, objects or external series without samples, for the kind `missing`.
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
    /// A fraction of the pods, objects or external series has no samples.
    Missing,
    /// No new samples are taken, and the API serves the last samples.
    Stale,
}

/// An amount over time: a constant quantity, or a shape.
#[derive(Debug, Clone)]
pub(crate) enum CurveFile {
    Constant(Amount),
    Shaped(Box<ShapedFile>),
}

/// Exactly one shape, and its transformations.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "Shape")]
pub(crate) struct ShapedFile {
    /// A constant value.
    pub(crate) constant: Option<Amount>,
    /// A straight line from one value to another. The curve is constant before and after the line.
    pub(crate) ramp: Option<RampFile>,
    /// A change from one value to another at an instant.
    pub(crate) step: Option<StepFile>,
    /// A sine wave around a mean, which starts at the mean and rises.
    pub(crate) sine: Option<SineFile>,
    /// A working day by the time of day: quiet at night, two peaks, a dip at noon.
    pub(crate) business_day: Option<BusinessDayFile>,
    /// A low value, with a high plateau at the start of each period.
    pub(crate) spikes: Option<SpikesFile>,
    /// A low value, with high plateaus at random times.
    pub(crate) random_spikes: Option<SpikesFile>,
    /// Points of time and value, which straight lines connect by default.
    pub(crate) points: Option<Vec<PointFile>>,
    /// A CSV file of time and value: its path, relative to the folder of the scenario. Times are seconds,
    /// durations or dates.
    pub(crate) csv: Option<String>,
    /// The sum of several curves.
    pub(crate) sum: Option<Vec<CurveFile>>,
    /// Whether a value of `points` or `csv` applies until the next point. Otherwise, straight lines connect the values.
    pub(crate) steps: bool,
    /// The maximum random deviation of a value, as a fraction of the value.
    pub(crate) noise: Option<Share>,
    /// The seed of the noise; derived from the scenario's seed by default.
    pub(crate) noise_seed: Option<u64>,
    /// The time within the shape at which the scenario starts.
    pub(crate) offset: Option<Length>,
    /// The factor by which values are multiplied.
    pub(crate) scale: Option<Amount>,
    /// The period after which the shape repeats.
    pub(crate) repeat: Option<Length>,
}

/// A straight line between two constant values.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Ramp")]
pub(crate) struct RampFile {
    /// The value before the ramp.
    pub(crate) from: Amount,
    /// The value after the ramp.
    pub(crate) to: Amount,
    /// The start of the ramp, since the start of the scenario.
    #[serde(default)]
    pub(crate) at: Length,
    /// The length of the ramp.
    pub(crate) over: Length,
}

/// A change from one constant value to another.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Step")]
pub(crate) struct StepFile {
    /// The value before the step.
    pub(crate) from: Amount,
    /// The value after the step.
    pub(crate) to: Amount,
    /// The time of the step, since the start of the scenario.
    pub(crate) at: Length,
}

/// A sine wave.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Sine")]
pub(crate) struct SineFile {
    /// The mean value.
    pub(crate) mean: Amount,
    /// The largest deviation from the mean.
    pub(crate) amplitude: Amount,
    /// The period, from one peak to the next.
    pub(crate) period: Length,
}

/// A working day, which repeats.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "BusinessDay")]
pub(crate) struct BusinessDayFile {
    /// The value at night.
    pub(crate) night: Amount,
    /// The value at the two peaks.
    pub(crate) peak: Amount,
    /// The fraction of the rise from night to peak that remains on Saturday and Sunday; 0 by default.
    #[serde(default)]
    pub(crate) weekend: Share,
    /// The length of a day; 24h by default. With any other length, the scenario starts at midnight.
    #[serde(default)]
    pub(crate) day: Option<Length>,
}

/// Plateaus of equal length and height.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Spikes")]
pub(crate) struct SpikesFile {
    /// The value between spikes.
    pub(crate) base: Amount,
    /// The value during a spike.
    pub(crate) peak: Amount,
    /// The time from the start of one spike to the start of the next spike. For random spikes, the average time.
    pub(crate) every: Length,
    /// The length of a spike.
    pub(crate) width: Length,
}

/// A point of a curve.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Point")]
pub(crate) struct PointFile {
    /// The time, since the start of the scenario.
    pub(crate) at: Length,
    /// The value.
    pub(crate) value: Amount,
}

either!(CurveFile, "Curve", "a quantity, or a curve such as {ramp: {from: 1, to: 5, over: 10m}}",
    scalar: Constant(Amount), map: Shaped(ShapedFile), with: Box::new);
