//! The resource types of the embedded API server, and the properties in which they differ.

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

/// The source of the stored metadata after a PUT of the status subresource.
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

#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceType {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// The metadata rule of the status subresource. `None` for a type without a status subresource.
    pub(crate) status: Option<StatusMetadata>,
    pub(crate) scale: Option<ScaleSelector>,
    /// The `apiVersion` of Scales of this type.
    pub(crate) scale_version: &'static str,
    /// Whether objects of this type have `metadata.generation`.
    pub(crate) generation: bool,
    /// Whether a CustomResourceDefinition defines the type, so that it has no defaults and no strategic merge patch.
    pub(crate) custom: bool,
    /// Fields that a field selector may name, in addition to `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
}

/// Every resource type, core group first.
pub(crate) static TYPES: &[ResourceType] = &[
    core("ConfigMap", "configmaps", &["cm"]),
    core("Endpoints", "endpoints", &["ep"]),
    ResourceType {
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
        ..core("Event", "events", &["ev"])
    },
    ResourceType {
        namespaced: false,
        status: Some(StatusMetadata::Taken),
        fields: &["status.phase"],
        ..core("Namespace", "namespaces", &["ns"])
    },
    ResourceType {
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
        ..core("Pod", "pods", &["po"])
    },
    ResourceType {
        group: "",
        scale: Some(ScaleSelector::Map),
        fields: &["status.replicas"],
        ..workload("ReplicationController", "replicationcontrollers", &["rc"])
    },
    core("Secret", "secrets", &[]),
    core("ServiceAccount", "serviceaccounts", &["sa"]),
    ResourceType {
        categories: &["all"],
        status: Some(StatusMetadata::Taken),
        fields: &["spec.clusterIP", "spec.type"],
        ..core("Service", "services", &["svc"])
    },
    admission("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    admission("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    admission("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ResourceType { scale: None, ..workload("DaemonSet", "daemonsets", &["ds"]) },
    workload("Deployment", "deployments", &["deploy"]),
    ResourceType { fields: &["status.replicas"], ..workload("ReplicaSet", "replicasets", &["rs"]) },
    workload("StatefulSet", "statefulsets", &["sts"]),
    // A type of OpenShift, where an aggregated API server serves it.
    ResourceType {
        group: "apps.openshift.io",
        scale_version: "extensions/v1beta1",
        ..custom("DeploymentConfig", "deploymentconfigs", Some(ScaleSelector::Map))
    },
    ResourceType {
        group: "autoscaling",
        version: "v2",
        categories: &["all"],
        status: Some(StatusMetadata::Taken),
        generation: true,
        ..core("HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"])
    },
    ResourceType { namespaced: false, ..policy("ClusterScalingPolicy", "clusterscalingpolicies", &["csp"]) },
    policy("ScalingPolicy", "scalingpolicies", &["sp"]),
    ResourceType { group: "coordination.k8s.io", ..core("Lease", "leases", &[]) },
    custom("Gadget", "gadgets", None),
    custom("Widget", "widgets", Some(ScaleSelector::Text)),
    ResourceType {
        group: "networking.k8s.io",
        status: Some(StatusMetadata::LabelsKept),
        generation: true,
        ..core("Ingress", "ingresses", &["ing"])
    },
];

/// Returns a namespaced type of the core group without subresources.
const fn core(
    kind: &'static str,
    resource: &'static str,
    short_names: &'static [&'static str],
) -> ResourceType {
    ResourceType {
        group: "",
        version: "v1",
        kind,
        resource,
        short_names,
        categories: &[],
        namespaced: true,
        status: None,
        scale: None,
        scale_version: "autoscaling/v1",
        generation: false,
        custom: false,
        fields: &[],
    }
}

/// Returns a cluster-scoped type that configures admission. It is stored without an effect on requests.
const fn admission(kind: &'static str, resource: &'static str) -> ResourceType {
    ResourceType {
        group: "admissionregistration.k8s.io",
        namespaced: false,
        generation: true,
        ..core(kind, resource, &[])
    }
}

const fn workload(
    kind: &'static str,
    resource: &'static str,
    short_names: &'static [&'static str],
) -> ResourceType {
    ResourceType {
        group: "apps",
        categories: &["all"],
        status: Some(StatusMetadata::LabelsKept),
        scale: Some(ScaleSelector::Structured),
        generation: true,
        ..core(kind, resource, short_names)
    }
}

const fn custom(kind: &'static str, resource: &'static str, scale: Option<ScaleSelector>) -> ResourceType {
    ResourceType {
        group: "example.com",
        status: Some(StatusMetadata::Kept),
        scale,
        generation: true,
        custom: true,
        ..core(kind, resource, &[])
    }
}

/// Returns a scaling policy of Concertina.
const fn policy(
    kind: &'static str,
    resource: &'static str,
    short_names: &'static [&'static str],
) -> ResourceType {
    ResourceType {
        group: "autoscaling.concertina.dev",
        version: "v1alpha1",
        short_names,
        ..custom(kind, resource, None)
    }
}

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

    /// Returns whether an update may omit the resourceVersion.
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
