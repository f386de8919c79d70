//! The controller's copy of the cluster: pods and their addresses, HPAs, targets, and HPAs that share pods.
//!
//! The watches write. The syncs read, record their writes, and claim selectors. Every method takes `&self`, and locks
//! for one lookup or one change, never across an `await`. The objects of a list are collected separately until
//! `finish`, so that readers of a namespace never see a part of the list. A list covers the whole cluster or one
//! namespace. Several namespaces may be listed at the same time.
//!
//! Memory follows the cluster: shared values are reference-counted and freed with their last user.
//!
//! Of an HPA whose spec [is too large](Spec::is_too_large), neither metrics nor behavior are kept. The addresses and
//! ports of pods are for scraping, and are kept only with `--metric-sources`.

mod hpas;
mod intern;
mod namespace;
mod pods;
mod targets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

use autoscaling::spec::Spec;
use autoscaling::status::Status;
use jiff::Timestamp;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::value::RawValue;

pub use self::hpas::is_older;
pub use self::hpas::{Change, Hpas, Staleness, Update};
pub use self::intern::{ContainerInput, PodInput};
pub use self::pods::{Overlap, Pods, Stats};
pub use self::targets::{Target, TargetInput, TargetStore};
use cluster::decode::{WireContainer, WirePod};
use sources::PodAddress;

/// Hashes with fixed keys, so that the same objects have the same layout in every run. Strings that were crafted to
/// collide cost one comparison each per lookup.
pub(crate) type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// Frees memory once three quarters of the capacity are unused. Keeps space for twice the entries, so that the next
/// growth is cheap.
pub(crate) fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V, FixedHasher>) {
    if map.len() * 4 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl Key {
    /// Creates the key of an object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One HPA as received.
#[derive(Debug, Clone)]
pub struct HpaRecord {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.generation`. API servers before 1.37 set none.
    pub generation: Option<i64>,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata`, byte for byte. A status PUT must send all of it, or the server deletes the missing parts.
    pub metadata: Box<RawValue>,
    /// `spec`, byte for byte; `null` beyond [`MAX_SPEC_BYTES`](autoscaling::spec::MAX_SPEC_BYTES).
    pub spec_raw: Arc<RawValue>,
    /// `spec`, decoded.
    pub spec: Arc<Spec>,
    /// `status`, decoded; without metrics if the spec [is too large](Spec::is_too_large).
    pub status: Arc<Status>,
    /// Writers of `status`, from `managedFields`.
    pub status_writers: Vec<StatusWriter>,
}

/// A field manager that wrote the status of an HPA, and the time of its last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusWriter {
    /// The field manager.
    pub manager: Arc<str>,
    /// Time of the manager's last write, by the server's clock, in whole seconds.
    pub at: Timestamp,
}

impl From<(String, Timestamp)> for StatusWriter {
    fn from((manager, at): (String, Timestamp)) -> Self {
        Self { manager: manager.into(), at }
    }
}

impl HpaRecord {
    /// Returns the time of the last status write, by the server's clock in whole seconds, if `manager` made it. `None`
    /// if another manager may have made it.
    pub fn status_written_by(&self, manager: &str) -> Option<Timestamp> {
        let is_own = |writer: &&StatusWriter| *writer.manager == *manager;
        let at = self.status_writers.iter().filter(is_own).map(|writer| writer.at).max()?;
        let mut foreign = self.status_writers.iter().filter(|writer| !is_own(writer));
        foreign.all(|writer| writer.at < at).then_some(at)
    }

    /// Returns whether both records are the same version of the same object.
    fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.resource_version == other.resource_version
    }
}

/// Maximum number of ports that are kept per pod.
const MAX_PORTS: usize = 100;

/// Addresses by namespace and name of the pod.
type ByNamespace = BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<PodAddress>>>;

/// The addresses of pods. A pod without an address has no entry.
#[derive(Debug, Default)]
pub struct Addresses {
    by_namespace: RwLock<ByNamespace>,
}

#[derive(Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<Box<str>>,
    #[serde(rename = "containerPort")]
    number: u16,
    #[serde(default)]
    protocol: Option<Box<str>>,
}

impl Addresses {
    /// Returns the address of a pod.
    pub fn get(&self, namespace: &str, pod: &str) -> Option<Arc<PodAddress>> {
        self.by_namespace.read().get(namespace)?.get(pod).cloned()
    }

    /// Applies a pod from the watch.
    pub(crate) fn apply(&self, pod: &WirePod<'_>) {
        let address = address_of(pod);
        let mut pods = self.by_namespace.write();
        match address {
            None => remove(&mut pods, &pod.namespace, &pod.name),
            Some(address) => {
                let namespace = match pods.get_mut(&*pod.namespace) {
                    Some(namespace) => namespace,
                    None => pods.entry((&*pod.namespace).into()).or_default(),
                };
                match namespace.get_mut(&*pod.name) {
                    Some(known) if **known == address => {}
                    Some(known) => *known = Arc::new(address),
                    None => drop(namespace.insert((&*pod.name).into(), Arc::new(address))),
                }
            }
        }
    }

    /// Drops the address of a deleted pod.
    pub(crate) fn delete(&self, namespace: &str, pod: &str) {
        remove(&mut self.by_namespace.write(), namespace, pod);
    }

    /// Drops the addresses of pods that a list of a namespace, or of all namespaces, did not contain.
    pub(crate) fn retain(&self, namespace: Option<&str>, listed: &BTreeSet<(Arc<str>, Arc<str>)>) {
        self.by_namespace.write().retain(|of, pods| {
            if namespace.is_none_or(|namespace| namespace == &**of) {
                pods.retain(|name, _| listed.contains(&(Arc::clone(of), Arc::clone(name))));
            }
            !pods.is_empty()
        });
    }
}

fn remove(pods: &mut ByNamespace, namespace: &str, pod: &str) {
    if let Some(of_namespace) = pods.get_mut(namespace) {
        of_namespace.remove(pod);
        if of_namespace.is_empty() {
            pods.remove(namespace);
        }
    }
}

fn address_of(pod: &WirePod<'_>) -> Option<PodAddress> {
    let ip = pod.ip.parse().ok()?;
    let sidecars = pod.init_containers.iter().filter(|container| container.restartable);
    let ports: Box<[_]> = pod.containers.iter().chain(sidecars).flat_map(ports_of).take(MAX_PORTS).collect();
    let node = pod.host_ip.parse().ok();
    // A node may have several addresses, so the comparison alone does not find a pod in the network of its node.
    Some(PodAddress { ip, is_of_node: pod.host_network || node == Some(ip), node, ports })
}

/// Returns the TCP ports of a container. Empty if the ports cannot be decoded.
fn ports_of(container: &WireContainer<'_>) -> Vec<(Option<Box<str>>, u16)> {
    let ports = container.ports.and_then(|ports| serde_json::from_slice::<Option<Vec<Port>>>(ports).ok());
    let ports = ports.flatten().unwrap_or_default().into_iter();
    let tcp = ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
    tcp.map(|port| (port.name.filter(|name| !name.is_empty()), port.number)).collect()
}

/// The scopes of the lists in progress.
#[derive(Debug, Default)]
struct OpenLists {
    /// Whether a list of all namespaces is in progress.
    everything: bool,
    namespaces: BTreeSet<Arc<str>>,
}

impl OpenLists {
    /// Starts a list of a namespace, or of all namespaces with `None`.
    fn start(&mut self, namespace: Option<&str>) {
        match namespace {
            Some(namespace) => {
                self.namespaces.insert(namespace.into());
            }
            None => self.everything = true,
        }
    }

    /// Ends a list. Returns whether the list was in progress.
    fn end(&mut self, namespace: Option<&str>) -> bool {
        match namespace {
            Some(namespace) => self.namespaces.remove(namespace),
            None => std::mem::take(&mut self.everything),
        }
    }

    fn covers(&self, namespace: &str) -> bool {
        self.everything || self.namespaces.contains(namespace)
    }
}

/// Returns whether an object of a namespace is in the scope of a list. `None` is the whole cluster.
fn within(namespace: &str, scope: Option<&str>) -> bool {
    scope.is_none_or(|scope| scope == namespace)
}
