//! Objects for kube's watcher: pods and HPAs with only the fields that the stores need, and an object that keeps its
//! bytes.

use std::borrow::Cow;
use std::fmt::Debug;
use std::marker::PhantomData;

use autoscaling::pod::{ConditionStatus, Phase, ReadyCondition};
use autoscaling::quantity::Quantity;
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use cluster::decode;
use engine::store::{ContainerInput, PodInput, Pods};
use jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The group, version, kind and plural of a resource.
pub(super) trait Names: Debug + Clone + Send + 'static {
    const GROUP: &'static str;
    const VERSION: &'static str;
    const KIND: &'static str;
    const PLURAL: &'static str;
}

#[derive(Debug, Clone)]
pub(super) struct PodNames;

impl Names for PodNames {
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
}

#[derive(Debug, Clone)]
pub(super) struct HpaNames;

impl Names for HpaNames {
    const GROUP: &'static str = "autoscaling";
    const VERSION: &'static str = "v2";
    const KIND: &'static str = "HorizontalPodAutoscaler";
    const PLURAL: &'static str = "horizontalpodautoscalers";
}

/// An object with the metadata that kube requires, of which only the resourceVersion is set.
#[derive(Debug, Clone)]
pub(super) struct Object<T, N> {
    metadata: ObjectMeta,
    pub(super) content: T,
    names: PhantomData<N>,
}

/// The contents of an [`Object`].
pub(super) trait Content {
    /// Moves `metadata.resourceVersion` out of the contents, for the metadata of the [`Object`].
    fn take_version(&mut self) -> String;
}

impl<'de, T: Deserialize<'de> + Content, N> Deserialize<'de> for Object<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut content = T::deserialize(deserializer)?;
        let resource_version = Some(content.take_version());
        let metadata = ObjectMeta { resource_version, ..ObjectMeta::default() };
        Ok(Self { metadata, content, names: PhantomData })
    }
}

impl<T, N: Names> kube::Resource for Object<T, N> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        N::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        N::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        N::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        N::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The bytes of an object.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Raw(pub(super) Box<RawValue>);

impl Content for Raw {
    fn take_version(&mut self) -> String {
        decode::meta(self.0.get().as_bytes()).unwrap_or_default().resource_version
    }
}

/// An HPA without the bytes that a status PUT sends back.
#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct Hpa {
    pub(super) metadata: Metadata<String>,
    pub(super) spec: Spec,
    #[serde(default)]
    pub(super) status: Status,
}

impl Content for Hpa {
    fn take_version(&mut self) -> String {
        std::mem::take(&mut self.metadata.resource_version)
    }
}

/// A pod. `S` is the type of its strings, which are owned or borrowed.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de> + Default"))]
pub(super) struct Pod<S> {
    metadata: Metadata<S>,
    #[serde(default = "PodSpec::default")]
    spec: PodSpec<S>,
    #[serde(default = "PodStatus::default")]
    status: PodStatus<S>,
}

impl Content for Pod<String> {
    fn take_version(&mut self) -> String {
        std::mem::take(&mut self.metadata.resource_version)
    }
}

#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "S: Deserialize<'de> + Default"))]
pub(super) struct Metadata<S> {
    pub(super) name: S,
    pub(super) namespace: S,
    #[serde(default)]
    pub(super) uid: S,
    pub(super) resource_version: S,
    #[serde(default)]
    pub(super) generation: Option<i64>,
    #[serde(default = "Pairs::default")]
    labels: Pairs<S, S>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "S: Deserialize<'de> + Default"))]
struct PodSpec<S> {
    #[serde(default = "Vec::new")]
    containers: Vec<Container<S>>,
    #[serde(default = "Vec::new")]
    init_containers: Vec<Container<S>>,
    #[serde(default = "Resources::default")]
    resources: Resources<S>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "S: Deserialize<'de> + Default"))]
struct Container<S> {
    name: S,
    restart_policy: Option<S>,
    #[serde(default = "Resources::default")]
    resources: Resources<S>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de> + Default"))]
struct Resources<S> {
    #[serde(default = "Pairs::default")]
    requests: Pairs<S, Quantity>,
}

impl<S> Default for Resources<S> {
    fn default() -> Self {
        Self { requests: Pairs::default() }
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "S: Deserialize<'de> + Default"))]
struct PodStatus<S> {
    phase: Option<S>,
    start_time: Option<Timestamp>,
    #[serde(default = "Vec::new")]
    conditions: Vec<Condition<S>>,
}

impl<S> Default for PodStatus<S> {
    fn default() -> Self {
        Self { phase: None, start_time: None, conditions: Vec::new() }
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition<S> {
    r#type: S,
    status: S,
    last_transition_time: Option<Timestamp>,
}

/// A JSON object as pairs, which are cheaper to build than a map.
#[derive(Debug, Clone)]
struct Pairs<K, V>(Vec<(K, V)>);

impl<K, V> Default for Pairs<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Pairs<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);
        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Entries<K, V> {
            type Value = Pairs<K, V>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

impl Pod<String> {
    /// Adds or replaces the pod in a store.
    pub(super) fn store(&self, pods: &Pods) {
        let requests: Vec<Vec<_>> =
            self.containers().map(|container| amounts(&container.resources)).collect();
        let inputs: Vec<_> = self
            .containers()
            .zip(&requests)
            .map(|(container, requests)| ContainerInput {
                name: &container.name,
                restartable: container.restart_policy.as_deref() == Some("Always"),
                requests,
            })
            .collect();
        let (init_containers, containers) = inputs.split_at(self.spec.init_containers.len());
        let labels: Vec<_> =
            self.metadata.labels.0.iter().map(|(key, value)| (key.into(), value.into())).collect();
        let ready = self.status.conditions.iter().find(|condition| condition.r#type == "Ready");
        pods.apply(&PodInput {
            namespace: &self.metadata.namespace,
            name: &self.metadata.name,
            labels: &labels,
            terminating: self.metadata.deletion_timestamp.is_some(),
            phase: Phase::parse(self.status.phase.as_deref().unwrap_or_default()),
            start_time: self.status.start_time,
            ready: ready.map(|condition| ReadyCondition {
                status: ConditionStatus::parse(&condition.status),
                since: condition.last_transition_time,
            }),
            containers,
            init_containers,
            pod_level: &amounts(&self.spec.resources),
        });
    }

    fn containers(&self) -> impl Iterator<Item = &Container<String>> {
        self.spec.init_containers.iter().chain(&self.spec.containers)
    }
}

fn amounts(resources: &Resources<String>) -> Vec<(Cow<'_, str>, Quantity)> {
    resources.requests.0.iter().map(|(name, amount)| (name.into(), *amount)).collect()
}
