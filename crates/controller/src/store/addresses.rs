//! The addresses and ports of pods, for scraping. Kept only with `--metric-sources`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Deserialize;
use sources::PodAddress;

use cluster::decode::{WireContainer, WirePod};

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

    /// Drops a pod.
    pub(crate) fn delete(&self, namespace: &str, pod: &str) {
        remove(&mut self.by_namespace.write(), namespace, pod);
    }

    /// Drops the pods of a namespace, or of all namespaces, that a list did not contain.
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
    Some(PodAddress { ip, is_of_node: pod.ip == pod.host_ip, node, ports })
}

/// Returns the TCP ports of a container. Empty if the ports cannot be decoded.
fn ports_of(container: &WireContainer<'_>) -> Vec<(Option<Box<str>>, u16)> {
    let ports = container.ports.and_then(|ports| serde_json::from_slice::<Option<Vec<Port>>>(ports).ok());
    let ports = ports.flatten().unwrap_or_default().into_iter();
    let tcp = ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
    tcp.map(|port| (port.name.filter(|name| !name.is_empty()), port.number)).collect()
}

#[cfg(test)]
mod tests {
    use cluster::decode::pod;

    use super::*;

    fn apply(addresses: &Addresses, name: &str, ip: &str, host: &str) {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop"}},
            "spec":{{"containers":[{{"name":"app","ports":[{{"name":"http","containerPort":8080}},
                {{"containerPort":53,"protocol":"UDP"}}]}}],
              "initContainers":[{{"name":"setup","ports":[{{"containerPort":1}}]}},
                {{"name":"proxy","restartPolicy":"Always","ports":[{{"containerPort":15020}}]}}]}},
            "status":{{"podIP":"{ip}","hostIP":"{host}"}}}}"#
        );
        addresses.apply(&pod(json.as_bytes()).unwrap());
    }

    #[test]
    fn address_has_the_tcp_ports_of_running_containers() {
        let addresses = Addresses::default();
        apply(&addresses, "web", "10.0.0.1", "192.168.0.1");
        let web = addresses.get("shop", "web").unwrap();
        assert_eq!(web.ports[..], [(Some("http".into()), 8080), (None, 15020)]);
        assert!(!web.is_of_node);
        assert_eq!(web.node, Some([192, 168, 0, 1].into()));
        apply(&addresses, "web", "192.168.0.1", "192.168.0.1");
        assert!(addresses.get("shop", "web").unwrap().is_of_node);
        apply(&addresses, "web", "", "192.168.0.1");
        assert_eq!(addresses.get("shop", "web"), None);
    }

    #[test]
    fn list_drops_the_pods_that_it_lacks() {
        let addresses = Addresses::default();
        apply(&addresses, "web", "10.0.0.1", "");
        apply(&addresses, "old", "10.0.0.2", "");
        let listed = BTreeSet::from([("shop".into(), "web".into())]);
        addresses.retain(Some("bank"), &BTreeSet::new());
        assert!(addresses.get("shop", "old").is_some());
        addresses.retain(None, &listed);
        assert!(addresses.get("shop", "web").is_some() && addresses.get("shop", "old").is_none());
        addresses.delete("shop", "web");
        assert!(addresses.by_namespace.read().is_empty());
    }
}
