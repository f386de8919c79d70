//! The HPAs, the VerticalPodAutoscalers and the ScaledObjects, from a cluster or from files.

use std::path::PathBuf;

use autoscaling::spec::{MetricSource, ResourceTarget, Spec, ValueTarget};
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::watch::{Collection, each};
use serde::Deserialize as _;
use serde_json::Value;

use super::AdviseError;
use super::keda::{self, ExternalMetric};
use super::outcome::{Choice, Refusal};
use super::rates::Rates;
use super::search::{DEFAULT_WINDOW, Today};
use terminal::values::{documents, list, text, text_of_file};

/// The largest file in bytes.
const LARGEST: usize = 64 << 20;

/// An HPA with the settings that can be replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct Hpa {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`. Empty if a file omits it.
    pub uid: String,
    /// `scaleTargetRef.kind`.
    pub kind: String,
    /// `scaleTargetRef.name`.
    pub target: String,
    /// The settings, or the reason why they cannot be replayed.
    pub today: Result<Today, Refusal>,
    /// `minReplicas` and `maxReplicas`.
    pub bounds: (i32, i32),
    /// The target of memory, as a share of the requests.
    pub memory: Option<f64>,
    /// A VerticalPodAutoscaler of the same target, and the resources that both control.
    pub shared: Option<(String, Vec<&'static str>)>,
    /// The ScaledObject of an HPA on one external metric, the name of the metric, and the settings without it.
    pub(crate) keda: Option<(String, String, Result<Today, Refusal>)>,
    /// `spec.metrics`, for patches.
    pub metrics: Value,
}

/// The objects to advise on.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) hpas: Vec<Hpa>,
    vpas: Vec<Value>,
    scaled: Vec<Value>,
    /// What could not be read.
    pub(crate) lacked: Vec<String>,
}

impl Objects {
    /// Reads the objects of a cluster.
    pub(crate) async fn read(client: &Client, namespace: Option<&str>) -> Result<Self, ApiError> {
        let mut objects = Self::default();
        let collection =
            |group, version, resource| Collection { group, version, namespace, resource, fields: "" };
        let hpas = collection("autoscaling", "v2", "horizontalpodautoscalers");
        each(client, hpas, |object| {
            objects.add(&serde_json::from_slice(object)?);
            Ok(())
        })
        .await?;
        let mut optional = vec![(
            "VerticalPodAutoscalers",
            collection("autoscaling.k8s.io", "v1", "verticalpodautoscalers"),
            &mut objects.vpas,
        )];
        if objects.hpas.iter().any(|hpa| hpa.keda.is_some()) {
            let scaled = collection("keda.sh", "v1alpha1", "scaledobjects");
            optional.push(("ScaledObjects", scaled, &mut objects.scaled));
        }
        for (name, collection, found) in optional {
            let listed = each(client, collection, |object| {
                found.push(serde_json::from_slice(object)?);
                Ok(())
            });
            match listed.await {
                Err(error) if !error.is_not_found() => objects.lacked.push(format!("{name}: {error}")),
                _ => {}
            }
        }
        objects.finish();
        Ok(objects)
    }

    /// Reads the objects of files, as YAML or JSON.
    pub(crate) fn read_files(files: &[PathBuf], namespace: Option<&str>) -> Result<Self, AdviseError> {
        let mut objects = Self::default();
        for path in files {
            let failed = |problem: String| AdviseError::File { path: path.clone(), problem };
            let text = text_of_file(path, LARGEST).map_err(|error| failed(error.to_string()))?;
            let found = documents::<Value>(&text)
                .map_err(|error| failed(format!("line {}: {}", error.line, error.message)))?;
            for object in found {
                match object.get("items").and_then(Value::as_array) {
                    Some(items) => items.iter().for_each(|item| objects.add_of_kind(item)),
                    None => objects.add_of_kind(&object),
                }
            }
        }
        objects.hpas.retain(|hpa| namespace.is_none_or(|namespace| hpa.namespace == namespace));
        objects.finish();
        Ok(objects)
    }

    fn add_of_kind(&mut self, object: &Value) {
        match text(object, "/kind") {
            "HorizontalPodAutoscaler" => self.add(object),
            "VerticalPodAutoscaler" => self.vpas.push(object.clone()),
            "ScaledObject" => self.scaled.push(object.clone()),
            _ => {}
        }
    }

    fn add(&mut self, object: &Value) {
        self.hpas.push(Hpa::new(object));
    }

    /// Sorts the HPAs, reads the queries of KEDA, finds those that share a resource with a VerticalPodAutoscaler, and
    /// refuses those whose cpu requests it changes.
    fn finish(&mut self) {
        for hpa in &mut self.hpas {
            hpa.read_query(&self.scaled);
            let of_target = self.vpas.iter().filter(|vpa| {
                namespace(vpa) == hpa.namespace
                    && text(vpa, "/spec/targetRef/kind") == hpa.kind
                    && text(vpa, "/spec/targetRef/name") == hpa.target
            });
            for vpa in of_target {
                let name = text(vpa, "/metadata/name");
                if hpa.today.is_ok() && hpa.scales_on("cpu") && changes(vpa, "cpu") {
                    hpa.today = Err(Refusal::Vpa { name: name.to_owned() });
                }
                let is_shared = |resource: &&str| hpa.scales_on(resource) && changes(vpa, resource);
                let shared: Vec<_> = ["cpu", "memory"].into_iter().filter(is_shared).collect();
                if !shared.is_empty() {
                    hpa.shared = Some((name.to_owned(), shared));
                }
            }
        }
        self.hpas.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
}

/// The namespace of an object, which a file may omit.
fn namespace(object: &Value) -> &str {
    Some(text(object, "/metadata/namespace")).filter(|namespace| !namespace.is_empty()).unwrap_or("default")
}

/// Whether a VerticalPodAutoscaler changes the requests of a resource. A container without a policy has the policy of
/// the container `*`, or else the default, which changes cpu and memory.
fn changes(vpa: &Value, resource: &str) -> bool {
    let policies = list(vpa, "/spec/resourcePolicy/containerPolicies");
    let is_off = |policy: &&Value| text(policy, "/mode") == "Off";
    let controls = |policy: &Value| {
        let resources = policy.get("controlledResources").and_then(Value::as_array);
        resources.is_none_or(|resources| resources.iter().any(|name| name == resource))
    };
    let mut active = policies.iter().filter(|policy| !is_off(policy)).peekable();
    let is_changed = match active.peek() {
        Some(_) => active.any(controls),
        // Policies that only exclude containers leave the others, of which there is at least one.
        None => policies.iter().all(|policy| text(policy, "/containerName") != "*"),
    };
    text(vpa, "/spec/updatePolicy/updateMode") != "Off" && is_changed
}

impl Hpa {
    /// Reads an HPA of autoscaling/v2.
    pub fn new(object: &Value) -> Self {
        let spec = Spec::deserialize(object.get("spec").unwrap_or(&Value::Null));
        let (today, bounds, memory, keda) = match &spec {
            Ok(spec) => {
                let bounds = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
                let keda = keda::owner(object).zip(external(spec)).map(|(owner, (name, value))| {
                    (owner.to_owned(), name.to_owned(), settings(spec, 0, Some(value)))
                });
                let memory = spec.metrics.iter().find_map(memory);
                (today(spec, namespace(object)), bounds, memory, keda)
            }
            Err(error) => (Err(Refusal::Invalid { problem: error.to_string() }), (1, 1), None, None),
        };
        let text = |pointer| text(object, pointer).to_owned();
        let mut hpa = Self {
            namespace: namespace(object).to_owned(),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            kind: text("/spec/scaleTargetRef/kind"),
            target: text("/spec/scaleTargetRef/name"),
            today,
            bounds,
            memory,
            shared: None,
            keda,
            metrics: object.pointer("/spec/metrics").cloned().unwrap_or_default(),
        };
        // The names become parts of queries.
        let names = [&hpa.namespace, &hpa.name, &hpa.target];
        if let Some(name) = names.into_iter().find(|name| !is_object_name(name)) {
            let problem = format!("{name:?} is not the name of an object");
            hpa.today = Err(Refusal::Invalid { problem });
        }
        hpa
    }

    /// Reads the query of the HPA's external metric from its ScaledObject, if there is one.
    fn read_query(&mut self, scaled: &[Value]) {
        let Some((owner, name, today)) = self.keda.take() else { return };
        let of_hpa =
            |object: &&Value| namespace(object) == self.namespace && text(object, "/metadata/name") == owner;
        let external = scaled.iter().find(of_hpa).and_then(|object| ExternalMetric::of(object, &name));
        let Some(external) = external.filter(|_| matches!(self.today, Err(Refusal::OtherMetrics { .. })))
        else {
            return;
        };
        self.today = match external {
            Ok(external) => today.map(|today| Today { external: Some(external), ..today }),
            Err(error) => {
                Err(Refusal::Invalid { problem: format!("{name} of ScaledObject {owner}: {error}") })
            }
        };
    }

    /// Whether a metric is the usage of a resource by the pods or by a container.
    fn scales_on(&self, resource: &str) -> bool {
        self.metrics.as_array().into_iter().flatten().any(|metric| {
            ["/resource/name", "/containerResource/name"].iter().any(|name| text(metric, name) == resource)
        })
    }
}

fn is_object_name(name: &str) -> bool {
    let is_valid =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !name.is_empty() && name.len() <= 253 && name.bytes().all(is_valid)
}

/// The settings that can be replayed: one target of cpu. A target of memory in addition shows in the recorded counts.
fn today(spec: &Spec, namespace: &str) -> Result<Today, Refusal> {
    let (mut target, mut cores) = (None, None);
    let mut others = Vec::new();
    for metric in &spec.metrics {
        match metric {
            MetricSource::Resource { resource, target: ResourceTarget::Utilization(percent) }
                if &**resource == "cpu" =>
            {
                target = Some(*percent);
            }
            MetricSource::Resource { resource, target: ResourceTarget::AverageValue(value) }
                if &**resource == "cpu" =>
            {
                (target, cores) = (Some(0), Some(value.as_f64()));
            }
            MetricSource::Resource { resource, .. } if &**resource == "memory" => {}
            other => others.push(other.subject(namespace).to_string()),
        }
    }
    let target = match target {
        Some(target) if others.is_empty() => target,
        _ => {
            let metrics = if spec.metrics.is_empty() { "no metric".to_owned() } else { others.join(", ") };
            let metrics = if metrics.is_empty() { "memory".to_owned() } else { metrics };
            return Err(Refusal::OtherMetrics { metrics });
        }
    };
    settings(spec, target, cores)
}

/// The external metric with a target per pod that is the only metric except for memory, and its target.
fn external(spec: &Spec) -> Option<(&str, f64)> {
    let mut others = spec.metrics.iter().filter(
        |metric| !matches!(metric, MetricSource::Resource { resource, .. } if &**resource == "memory"),
    );
    match (others.next(), others.next()) {
        (Some(MetricSource::External { metric, target: ValueTarget::AverageValue(value) }), None) => {
            Some((&metric.name, value.as_f64()))
        }
        _ => None,
    }
}

/// The settings with a target in percent, or with a value per pod.
fn settings(spec: &Spec, target: i32, average_value: Option<f64>) -> Result<Today, Refusal> {
    let min = spec.min_replicas.unwrap_or(1);
    if average_value.unwrap_or_else(|| target.into()) <= 0.0 || min < 1 || spec.max_replicas < min {
        let target = average_value.map_or_else(|| format!("{target} %"), |value| value.to_string());
        let problem = format!("its target is {target}, and its replicas are {min} to {}", spec.max_replicas);
        return Err(Refusal::Invalid { problem });
    }
    let window = spec.behavior.as_ref().and_then(|behavior| behavior.scale_down.stabilization_window_seconds);
    Ok(Today {
        choice: Choice {
            target,
            min_replicas: min,
            max_replicas: spec.max_replicas,
            scale_down_window_seconds: window.unwrap_or(DEFAULT_WINDOW).max(0),
            scale_up_rates: Rates::Kept,
            scale_down_rates: Rates::Kept,
        },
        behavior: spec.behavior.clone(),
        average_value,
        external: None,
    })
}

fn memory(metric: &MetricSource) -> Option<f64> {
    match metric {
        MetricSource::Resource { resource, target: ResourceTarget::Utilization(percent) }
            if &**resource == "memory" =>
        {
            Some(f64::from(*percent) / 100.0)
        }
        _ => None,
    }
}
