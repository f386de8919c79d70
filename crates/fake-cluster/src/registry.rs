//! The resource types of the embedded API server and their deviations from the common rules.

/// The location of the label selector that a type's scale subresource shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScaleSelector {
    /// `spec.selector` is a structured LabelSelector.
    Structured,
    /// `spec.selector` is a map of labels (ReplicationController).
    Map,
    /// `status.selector` is text (custom resources).
    Text,
}

/// The handling of the request's metadata in a PUT of the status subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusMetadata {
    /// Labels, annotations, owners and finalizers come from the request (HPA).
    Taken,
    /// Like `Taken`, but the stored labels remain (Deployment and similar types).
    LabelsKept,
    /// All stored metadata remains (custom resources).
    Kept,
}

/// Group and resource of a type. Sorts by group, then resource.
pub(crate) type TypeKey = (&'static str, &'static str);

/// One resource type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceType {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// The metadata rule of the status subresource. `None` for a type without a status subresource.
    pub(crate) status: Option<StatusMetadata>,
    pub(crate) scale: Option<ScaleSelector>,
    /// Whether `metadata.generation` counts the changes of the spec.
    pub(crate) generation: bool,
    /// Whether a CustomResourceDefinition defines the type: no strategic merge patch, no defaults.
    pub(crate) custom: bool,
    /// Fields that a field selector may name, in addition to `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
}

const BASE: ResourceType = ResourceType {
    group: "",
    version: "v1",
    kind: "",
    resource: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    status: None,
    scale: None,
    generation: false,
    custom: false,
    fields: &[],
};

const WORKLOAD: ResourceType = ResourceType {
    group: "apps",
    categories: &["all"],
    status: Some(StatusMetadata::LabelsKept),
    scale: Some(ScaleSelector::Structured),
    generation: true,
    ..BASE
};

/// Every resource type, core group first.
pub(crate) static TYPES: &[ResourceType] = &[
    ResourceType {
        kind: "ConfigMap",
        resource: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        ..BASE
    },
    ResourceType {
        kind: "Endpoints",
        resource: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        ..BASE
    },
    ResourceType {
        kind: "Event",
        resource: "events",
        singular: "event",
        short_names: &["ev"],
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ..BASE
    },
    ResourceType {
        kind: "Namespace",
        resource: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        status: Some(StatusMetadata::Taken),
        fields: &["status.phase"],
        ..BASE
    },
    ResourceType {
        kind: "Pod",
        resource: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        status: Some(StatusMetadata::Taken),
        generation: true,
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ..BASE
    },
    ResourceType {
        kind: "ReplicationController",
        resource: "replicationcontrollers",
        singular: "replicationcontroller",
        short_names: &["rc"],
        group: "",
        scale: Some(ScaleSelector::Map),
        fields: &["status.replicas"],
        ..WORKLOAD
    },
    ResourceType {
        kind: "ServiceAccount",
        resource: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        ..BASE
    },
    ResourceType {
        kind: "Service",
        resource: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        status: Some(StatusMetadata::Taken),
        fields: &["spec.clusterIP", "spec.type"],
        ..BASE
    },
    ResourceType {
        kind: "DaemonSet",
        resource: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        scale: None,
        ..WORKLOAD
    },
    ResourceType {
        kind: "Deployment",
        resource: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        ..WORKLOAD
    },
    ResourceType {
        kind: "ReplicaSet",
        resource: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        fields: &["status.replicas"],
        ..WORKLOAD
    },
    ResourceType {
        kind: "StatefulSet",
        resource: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        ..WORKLOAD
    },
    ResourceType {
        group: "autoscaling",
        version: "v2",
        kind: "HorizontalPodAutoscaler",
        resource: "horizontalpodautoscalers",
        singular: "horizontalpodautoscaler",
        short_names: &["hpa"],
        categories: &["all"],
        status: Some(StatusMetadata::Taken),
        generation: true,
        ..BASE
    },
    ResourceType {
        group: "coordination.k8s.io",
        kind: "Lease",
        resource: "leases",
        singular: "lease",
        ..BASE
    },
    ResourceType {
        group: "example.com",
        kind: "Gadget",
        resource: "gadgets",
        singular: "gadget",
        status: Some(StatusMetadata::Kept),
        generation: true,
        custom: true,
        ..BASE
    },
    ResourceType {
        group: "example.com",
        kind: "Widget",
        resource: "widgets",
        singular: "widget",
        status: Some(StatusMetadata::Kept),
        scale: Some(ScaleSelector::Text),
        generation: true,
        custom: true,
        ..BASE
    },
    ResourceType {
        group: "networking.k8s.io",
        kind: "Ingress",
        resource: "ingresses",
        singular: "ingress",
        short_names: &["ing"],
        status: Some(StatusMetadata::LabelsKept),
        generation: true,
        ..BASE
    },
];

impl ResourceType {
    /// Returns `group/version`, or the version alone in the core group.
    pub(crate) fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// Finds the type by its API path.
    pub(crate) fn at(group: &str, version: &str, resource: &str) -> Option<&'static Self> {
        TYPES.iter().find(|ty| ty.group == group && ty.version == version && ty.resource == resource)
    }

    /// Finds the type of an object by its apiVersion and kind.
    pub(crate) fn for_kind(api_version: &str, kind: &str) -> Option<&'static Self> {
        TYPES.iter().find(|ty| ty.kind == kind && ty.api_version() == api_version)
    }

    /// Finds the type by its short path: `pods`, `apps/deployments`.
    pub(crate) fn named(path: &str) -> Option<&'static Self> {
        let (group, resource) = path.split_once('/').unwrap_or(("", path));
        TYPES.iter().find(|ty| ty.group == group && ty.resource == resource)
    }

    /// Whether an update may omit the resourceVersion.
    pub(crate) fn unconditional_update(&self) -> bool {
        !self.custom && self.kind != "Lease"
    }

    /// Returns the key of the type in maps.
    pub(crate) fn key(&self) -> TypeKey {
        (self.group, self.resource)
    }
}

/// Returns `group/version`, or the version alone in the core group.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The metrics groups. A [`MetricsBackend`](super::MetricsBackend) serves them, and no objects are stored.
pub(crate) static METRICS_GROUPS: &[(&str, &str)] = &[
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
    ("metrics.k8s.io", "v1beta1"),
];

/// The group of access reviews, which are never stored.
pub(crate) const AUTHORIZATION: (&str, &str) = ("authorization.k8s.io", "v1");

/// The group of token reviews. Discovery omits the group, because no client needs it.
pub(crate) const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");
