//! The workloads of a scenario, from the file or derived from the HPAs.

use std::collections::BTreeMap;
use std::time::Duration;

use autoscaling::spec::MetricSource;
use serde_json::{Value, json};

use super::format::{
    ContainerFile, DistributionFile, DrawnFile, FailureFile, ImagePullFile, WorkloadFile, WorkloadKind,
};
use super::manifests::HpaPlan;
use super::values::{Amount, FlagText, Length};
use super::{Location, Problem, Sources};
use fake_cluster::Status;
use fake_cluster::workload::{Distribution, Failure, ImagePull, Span, WorkloadModel};

/// The default time from the start of a pod's containers until the pod is ready.
const START_UP: Duration = Duration::from_secs(10);
/// The default time from the deletion of a pod to its removal.
const GRACE: Duration = Duration::from_secs(5);

/// A workload of a scenario.
#[derive(Debug, Clone)]
pub(crate) struct WorkloadPlan {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) kind: WorkloadKind,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) replicas: u32,
    /// The manifest to create.
    pub(crate) object: Value,
    pub(crate) model: WorkloadModel,
    /// The containers with their names, in the order of the pod template.
    pub(crate) containers: Vec<(String, ContainerFile)>,
    /// The workload in the scenario file. If only an HPA names the workload, all fields except name and kind are empty.
    pub(super) file: WorkloadFile,
    /// The path of the field that describes the workload.
    pub(super) field: String,
    location: Location,
}

impl WorkloadKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::ReplicaSet => "ReplicaSet",
            Self::ReplicationController => "ReplicationController",
        }
    }

    fn api_version(self) -> &'static str {
        if self == Self::ReplicationController { "v1" } else { "apps/v1" }
    }

    /// Returns the name of the resource in the embedded cluster, with its API group.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "apps/deployments",
            Self::StatefulSet => "apps/statefulsets",
            Self::ReplicaSet => "apps/replicasets",
            Self::ReplicationController => "replicationcontrollers",
        }
    }

    fn named(kind: &str) -> Option<Self> {
        serde_json::from_value(json!(kind)).ok()
    }
}

impl WorkloadPlan {
    /// Returns the error for an object that the API server refused.
    pub(crate) fn refused(&self, status: &Status) -> Problem {
        Problem::new(self.location.clone(), &self.field, &status.message)
    }

    /// Returns the sum of the containers' requests or limits of a resource. `None` if no container has such an amount.
    pub(super) fn sum(
        &self,
        resource: &str,
        select: impl Fn(&ContainerFile) -> &BTreeMap<String, Amount>,
    ) -> Option<f64> {
        let amounts: Vec<_> =
            self.containers.iter().filter_map(|(_, container)| select(container).get(resource)).collect();
        (!amounts.is_empty()).then(|| amounts.iter().map(|amount| amount.0).sum())
    }
}

/// Returns the workloads of the file, followed by those that only HPAs name.
pub(super) fn read(
    files: Vec<WorkloadFile>,
    hpas: &[HpaPlan],
    sources: Sources<'_>,
) -> Result<Vec<WorkloadPlan>, Problem> {
    let mut plans: Vec<WorkloadPlan> = Vec::new();
    for (index, file) in files.into_iter().enumerate() {
        let field = format!("workloads[{index}]");
        if file.name.is_empty() {
            return Err(sources.problem(&field, "has no name; add one, such as name: web"));
        }
        let scaled_by = |hpa: &&HpaPlan| {
            hpa.spec.target.name == file.name
                && file.namespace.as_ref().is_none_or(|namespace| *namespace == hpa.namespace)
                && file.kind.is_none_or(|kind| kind.as_str() == hpa.spec.target.kind)
        };
        let hpa = hpas.iter().find(scaled_by);
        let plan = plan(file, field, hpa, sources)?;
        let same = |other: &&WorkloadPlan| {
            other.namespace == plan.namespace && other.name == plan.name && other.kind == plan.kind
        };
        if let Some(other) = plans.iter().find(same) {
            let message = format!("{} is already described as {}", plan.name, other.field);
            return Err(sources.problem(&plan.field, message));
        }
        plans.push(plan);
    }
    for (index, hpa) in hpas.iter().enumerate() {
        if target(hpa, &plans).is_none() {
            let field = format!("hpas[{index}].spec.scaleTargetRef");
            let kind = WorkloadKind::named(&hpa.spec.target.kind).ok_or_else(|| {
                let kind = &hpa.spec.target.kind;
                sources.problem(&field, format!("targets of kind {kind:?} are not supported; use Deployment, StatefulSet, ReplicaSet or ReplicationController"))
            })?;
            let file = WorkloadFile {
                name: hpa.spec.target.name.clone(),
                kind: Some(kind),
                ..WorkloadFile::default()
            };
            plans.push(plan(file, field, Some(hpa), sources)?);
        }
    }
    Ok(plans)
}

/// Returns the index of the workload that an HPA scales.
pub(super) fn target(hpa: &HpaPlan, workloads: &[WorkloadPlan]) -> Option<usize> {
    workloads.iter().position(|workload| {
        workload.namespace == hpa.namespace
            && workload.name == hpa.spec.target.name
            && workload.kind.as_str() == hpa.spec.target.kind
    })
}

fn plan(
    file: WorkloadFile,
    field: String,
    hpa: Option<&HpaPlan>,
    sources: Sources<'_>,
) -> Result<WorkloadPlan, Problem> {
    let kind = match (file.kind, hpa) {
        (Some(kind), _) => kind,
        (None, Some(hpa)) => WorkloadKind::named(&hpa.spec.target.kind).unwrap_or_default(),
        (None, None) => WorkloadKind::default(),
    };
    let namespace = file.namespace.clone().or_else(|| hpa.map(|hpa| hpa.namespace.clone()));
    let namespace = namespace.unwrap_or_else(|| "default".to_owned());
    let labels = if file.labels.is_empty() {
        BTreeMap::from([("app".to_owned(), file.name.clone())])
    } else {
        file.labels.clone()
    };
    // The default is at least 1, because a target with 0 replicas disables the HPA.
    let least = hpa.and_then(|hpa| hpa.spec.min_replicas).unwrap_or(1).max(1);
    let replicas = file.replicas.unwrap_or_else(|| u32::try_from(least).unwrap_or(0));
    let containers = containers(&file, hpa);
    let object = object(&file, kind, &namespace, &labels, replicas, &containers);
    let model = WorkloadModel {
        start_up: file.startup.as_ref().map_or_else(|| START_UP.into(), distribution),
        image_pull: match &file.image_pull {
            None => ImagePull::None,
            Some(ImagePullFile::FirstOnNode(pull)) => ImagePull::FirstOnNode(distribution(pull)),
            Some(ImagePullFile::EveryPod(pull)) => ImagePull::EveryPod(distribution(pull)),
        },
        grace: file.grace_period.map_or(GRACE, |grace| grace.0),
        failures: file.failures.iter().map(failure).collect(),
    };
    let pull = file.image_pull.as_ref().map(|pull| match pull {
        ImagePullFile::FirstOnNode(pull) | ImagePullFile::EveryPod(pull) => pull,
    });
    for (name, drawn) in [("startup", file.startup.as_ref()), ("imagePull", pull)] {
        if let Some(DistributionFile::Drawn(DrawnFile::OneOf(lengths))) = drawn
            && lengths.is_empty()
        {
            let field = format!("{field}.{name}");
            return Err(sources.problem(&field, "oneOf is empty; give at least one duration"));
        }
    }
    Ok(WorkloadPlan {
        namespace,
        name: file.name.clone(),
        kind,
        labels,
        replicas,
        object,
        model,
        containers,
        location: sources.location(&field),
        file,
        field,
    })
}

/// Returns the containers in the file. By default, returns each container that a metric of the HPA names, or else a
/// container with the workload's name.
fn containers(file: &WorkloadFile, hpa: Option<&HpaPlan>) -> Vec<(String, ContainerFile)> {
    let described = |container: &ContainerFile| {
        let name = container.name.clone().unwrap_or_else(|| file.name.clone());
        let (requests, limits) = (container.requests.clone(), container.limits.clone());
        (name, ContainerFile { name: None, requests, limits })
    };
    if !file.containers.is_empty() {
        return file.containers.iter().map(described).collect();
    }
    let default = || {
        let amounts = [("cpu", 0.5), ("memory", 256.0 * 1024.0 * 1024.0)];
        let requests = amounts.map(|(resource, amount)| (resource.to_owned(), Amount(amount))).into();
        ContainerFile { requests, ..ContainerFile::default() }
    };
    let mut names: Vec<String> = Vec::new();
    for metric in hpa.iter().flat_map(|hpa| &hpa.spec.metrics) {
        if let MetricSource::ContainerResource { container, .. } = metric
            && !names.iter().any(|name| **name == **container)
        {
            names.push(container.to_string());
        }
    }
    if names.is_empty() {
        names.push(file.name.clone());
    }
    names.into_iter().map(|name| (name, default())).collect()
}

fn object(
    file: &WorkloadFile,
    kind: WorkloadKind,
    namespace: &str,
    labels: &BTreeMap<String, String>,
    replicas: u32,
    containers: &[(String, ContainerFile)],
) -> Value {
    let name = &file.name;
    let amounts = |amounts: &BTreeMap<String, Amount>| -> Value {
        amounts
            .iter()
            .map(|(resource, amount)| (resource.clone(), json!(quantity(resource, amount.0))))
            .collect()
    };
    let containers: Vec<_> = containers
        .iter()
        .map(|(container, file)| {
            json!({
                "name": container,
                "image": format!("{name}:1"),
                "resources": {"requests": amounts(&file.requests), "limits": amounts(&file.limits)},
            })
        })
        .collect();
    let selector = match kind {
        WorkloadKind::ReplicationController => json!(labels),
        _ => json!({ "matchLabels": labels }),
    };
    let mut object = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.as_str(),
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": selector,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    });
    let update = &file.rolling_update;
    let count = |value: &FlagText| match value.0.parse::<u32>() {
        Ok(number) => json!(number),
        Err(_) => json!(value.0),
    };
    let rolling: serde_json::Map<_, _> =
        [("maxSurge", &update.max_surge), ("maxUnavailable", &update.max_unavailable)]
            .into_iter()
            .filter_map(|(field, value)| value.as_ref().map(|value| (field.to_owned(), count(value))))
            .collect();
    if kind == WorkloadKind::Deployment
        && !rolling.is_empty()
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.insert("strategy".to_owned(), json!({"type": "RollingUpdate", "rollingUpdate": rolling}));
    }
    object
}

/// Formats an amount as a quantity: cpu in millicores, any other resource in whole units.
fn quantity(resource: &str, amount: f64) -> String {
    if resource == "cpu" { format!("{:.0}m", amount * 1_000.0) } else { format!("{amount:.0}") }
}

pub(super) fn distribution(file: &DistributionFile) -> Distribution {
    match file {
        DistributionFile::Fixed(length) => Distribution::Fixed(length.0),
        DistributionFile::Drawn(DrawnFile::Uniform { from, to }) => {
            Distribution::Uniform { from: from.0, to: to.0 }
        }
        DistributionFile::Drawn(DrawnFile::Normal { mean, deviation }) => {
            Distribution::Normal { mean: mean.0, deviation: deviation.0 }
        }
        DistributionFile::Drawn(DrawnFile::LogNormal { median, p95 }) => {
            Distribution::LogNormal { median: median.0, p95: p95.0 }
        }
        DistributionFile::Drawn(DrawnFile::OneOf(lengths)) => {
            Distribution::Empirical(lengths.iter().map(|length| length.0).collect())
        }
    }
}

/// Returns a span that starts at `from` and lasts for `length`, or to the end of the run.
pub(super) fn span(from: Length, length: Option<Length>) -> Span {
    length.map_or_else(|| Span::since(from.0), |length| Span::new(from.0, length.0))
}

fn failure(file: &FailureFile) -> Failure {
    match file {
        FailureFile::CrashLoop { from, r#for, fraction, runs_for } => {
            Failure::CrashLoop { during: span(*from, *r#for), fraction: fraction.0, runs_for: runs_for.0 }
        }
        FailureFile::NeverReady { from, r#for, fraction } => {
            Failure::NeverReady { created: span(*from, *r#for), fraction: fraction.0 }
        }
        FailureFile::Unready { from, r#for, fraction } => {
            Failure::Unready { during: span(*from, *r#for), fraction: fraction.0 }
        }
        FailureFile::SlowPull { from, r#for, pull } => {
            Failure::SlowPull { created: span(*from, *r#for), pull: distribution(pull) }
        }
        FailureFile::Unschedulable { from, r#for, wait } => {
            Failure::Unschedulable { created: span(*from, *r#for), wait: distribution(wait) }
        }
    }
}
