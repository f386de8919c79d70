//! Finds the pod of a controller by its Lease or by labels.

use std::fmt;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use kube::api::ListParams;

use super::{ForwardError, Unproven};
use crate::options::leader::Leader;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::permission::{self, Action, ResourceAction, User};
use cluster::typed;

/// The default secure port of kube-controller-manager and Concertina.
const PORT: u16 = 10257;
/// The label selector for the pods of every Concertina installation.
const OURS: &str = "app.kubernetes.io/name=concertina";
/// Maximum length of a hostname. The name of a pod may be longer.
const HOSTNAME: usize = 63;

/// The pod to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The pod that holds a Lease.
    Leader(Leader),
    /// The only running pod with the given labels, in a namespace that the user named.
    Labelled {
        /// The namespace of the pod.
        namespace: String,
        /// A label selector.
        selector: String,
    },
}

impl Which {
    /// Selects the pods that hold Leases.
    pub fn leaders(leaders: &[Leader]) -> Vec<Self> {
        leaders.iter().cloned().map(Self::Leader).collect()
    }

    /// Selects the pods of dry runs by the default labels, in the namespaces that the user named. Nothing proves that
    /// another pod with these labels is a dry run, because its ServiceAccount may write nothing.
    pub fn shadows(leaders: &[Leader]) -> Vec<Self> {
        let selector = format!("{OURS},app.kubernetes.io/instance=concertina-shadow");
        let shadow = |leader: &Leader| Self::Labelled {
            namespace: leader.namespace.clone(),
            selector: selector.clone(),
        };
        leaders.iter().filter(|leader| leader.named).map(shadow).collect()
    }

    /// Returns the namespace of the pod.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Leader(Leader { namespace, .. }) | Self::Labelled { namespace, .. } => namespace,
        }
    }
}

/// A pod and its secure port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The pod's namespace.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The port that serves HTTPS.
    pub port: u16,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}/{}", self.namespace, self.pod)
    }
}

/// Finds the pod and its secure port. Only a pod that the user named, or that is proven to be a controller, is returned.
pub(super) async fn find(client: &Client, which: &Which) -> Result<Peer, ForwardError> {
    let pod = match which {
        Which::Leader(Leader { namespace, lease, .. }) => leader(client, namespace, lease).await?,
        Which::Labelled { namespace, selector } => labelled(client, namespace, selector).await?,
    };
    let (namespace, name) = (which.namespace().to_owned(), pod.name_any());
    if phase(&pod) != "Running" {
        return Err(ForwardError::NotRunning { namespace, pod: name, phase: phase(&pod).to_owned() });
    }
    let spec = pod.spec.unwrap_or_default();
    let Some(port) = port(&spec) else { return Err(ForwardError::ServesNothing { namespace, pod: name }) };
    if let Which::Leader(Leader { lease, named: false, .. }) = which {
        let account = spec.service_account_name.unwrap_or_else(|| "default".to_owned());
        Box::pin(prove(client, &namespace, &account)).await.map_err(|reason| {
            let lease = lease.clone();
            ForwardError::NotProven { namespace: namespace.clone(), pod: name.clone(), reason, lease }
        })?;
    }
    Ok(Peer { namespace, pod: name, port })
}

/// Asks the API server whether a ServiceAccount may write the status of every HPA, as a controller may. A user who can
/// create the pod, its namespace and the Lease cannot grant this permission.
async fn prove(client: &Client, namespace: &str, account: &str) -> Result<(), Unproven> {
    let user = User::service_account(namespace, account);
    let action = Action::ResourceAttributes(ResourceAction {
        verb: "update",
        group: "autoscaling",
        version: "v2",
        resource: "horizontalpodautoscalers",
        subresource: "status",
        namespace: String::new(),
        name: String::new(),
    });
    match permission::access(client, &user, &action).await {
        Ok(verdict) if verdict.allowed => Ok(()),
        Ok(_) => Err(Unproven::NotAllowed { account: account.to_owned() }),
        Err(error) if error.is_forbidden() => Err(Unproven::NoReview),
        Err(error) => Err(Unproven::Failed(Box::new(error))),
    }
}

/// Finds the pod of the leader.
async fn leader(client: &Client, namespace: &str, lease: &str) -> Result<Pod, ForwardError> {
    const LEASES: &str = "leases.coordination.k8s.io";
    let key = || format!("{namespace}/{lease}");
    let holder = match typed::get(&client.namespaced::<Lease>(namespace), lease).await {
        Ok(Some(lease)) => lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default(),
        Ok(None) => return Err(ForwardError::NoLease { lease: key() }),
        Err(error) => return Err(reading("get", LEASES, namespace, error)),
    };
    if holder.is_empty() {
        return Err(ForwardError::NotHeld { lease: key() });
    }
    let host = hostname(&holder).to_owned();
    match named(client, namespace, &host).await {
        Ok(pod) => return Ok(pod),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(reading("get", "pods", namespace, error)),
    }
    // A pod with `hostNetwork` has the hostname of its node. Another pod can set `spec.hostname`, or its hostname is
    // the first 63 characters of its name.
    let pods = list(client, namespace, OURS).await?;
    let mut matching = pods.into_iter().filter(|pod| is_on(pod, &host));
    match (matching.next(), matching.next()) {
        (Some(pod), None) => Ok(pod),
        (None, _) => Err(ForwardError::NoPod { lease: key(), holder, host, namespace: namespace.to_owned() }),
        (Some(_), Some(_)) => {
            Err(ForwardError::Ambiguous { what: format!("pods of {host}"), namespace: namespace.to_owned() })
        }
    }
}

/// Returns the hostname in the identity of a Lease's holder. An identity of client-go consists of the hostname, an
/// underscore and a unique suffix. A hostname contains no underscore.
pub fn hostname(holder: &str) -> &str {
    holder.split_once('_').map_or(holder, |(host, _)| host)
}

/// Returns whether a pod may be the holder of a Lease: by its name, or because it is running and may have the hostname
/// in the holder's identity.
pub fn may_hold(pod: &Pod, holder: &str) -> bool {
    let host = hostname(holder);
    pod.name_any() == host || is_on(pod, host)
}

/// Returns whether a pod is running and may have the hostname `host`.
fn is_on(pod: &Pod, host: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let named = if spec.host_network == Some(true) {
        let node = spec.node_name.as_deref().and_then(|node| node.strip_prefix(host));
        node.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    } else {
        spec.hostname.as_deref() == Some(host) || host.len() == HOSTNAME && pod.name_any().starts_with(host)
    };
    named && phase(pod) == "Running"
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

async fn labelled(client: &Client, namespace: &str, selector: &str) -> Result<Pod, ForwardError> {
    let pods = list(client, namespace, selector).await?;
    let mut running = pods.into_iter().filter(|pod| phase(pod) == "Running");
    let namespace = namespace.to_owned();
    match (running.next(), running.next()) {
        (Some(pod), None) => Ok(pod),
        (None, _) => Err(ForwardError::NoneLabelled { selector: selector.to_owned(), namespace }),
        (Some(_), Some(_)) => {
            Err(ForwardError::Ambiguous { what: format!("pods with {selector}"), namespace })
        }
    }
}

async fn named(client: &Client, namespace: &str, pod: &str) -> Result<Pod, ApiError> {
    Ok(client.namespaced(namespace).get(&typed::segment(pod)).await?)
}

async fn list(client: &Client, namespace: &str, selector: &str) -> Result<Vec<Pod>, ForwardError> {
    let params = ListParams::default().labels(selector).limit(100);
    let list = client.namespaced(namespace).list(&params).await;
    list.map(|list| list.items).map_err(|error| reading("list", "pods", namespace, error.into()))
}

fn reading(verb: &'static str, resource: &'static str, namespace: &str, error: ApiError) -> ForwardError {
    if error.is_forbidden() {
        let verbs = vec![verb];
        return ForwardError::Forbidden { verbs, resource, namespace: namespace.to_owned() };
    }
    ForwardError::Api {
        doing: format!("failed to {verb} {resource} in namespace {namespace}"),
        error: Box::new(error),
    }
}

/// Returns the secure port of a pod: from `--secure-port`, from the port with the name `https`, or else the default.
/// Returns `None` if the pod does not serve HTTPS.
fn port(spec: &PodSpec) -> Option<u16> {
    let mut words = spec
        .containers
        .iter()
        .flat_map(|container| container.command.iter().chain(&container.args).flatten().map(String::as_str));
    let mut secure_port = None;
    while let Some(word) = words.next() {
        // The last occurrence of the flag takes precedence.
        match word.trim_start_matches('-').split_once('=') {
            Some(("secure-port", value)) => secure_port = value.parse::<u16>().ok(),
            None if word == "--secure-port" => {
                secure_port = words.next().and_then(|value| value.parse().ok());
            }
            _ => {}
        }
    }
    let named = || {
        let mut ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
        let https = ports.find(|port| port.name.as_deref() == Some("https"))?;
        u16::try_from(https.container_port).ok()
    };
    secure_port.or_else(named).or(Some(PORT)).filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn port_is_the_flag_then_the_https_port_then_10257() {
        let https =
            json!([{"name": "metrics", "containerPort": 9}, {"name": "https", "containerPort": 8443}]);
        for (containers, expected) in [
            (json!([{"args": ["--secure-port=10267"], "ports": https}]), Some(10267)),
            (json!([{"command": ["concertina", "--secure-port", "10300"]}]), Some(10300)),
            (json!([{"args": ["--secure-port=1"]}, {"args": ["--secure-port=2"]}]), Some(2)),
            (json!([{}, {"ports": https}]), Some(8443)),
            (json!([{"args": ["--v=2"]}]), Some(10257)),
            (json!([{"args": ["--secure-port=0"], "ports": https}]), None),
        ] {
            assert_eq!(port(&spec(json!({"containers": containers}))), expected, "{containers}");
        }
    }

    #[test]
    fn hostname_is_the_nodes_with_host_network_else_the_pods() {
        let pod = |spec: serde_json::Value, phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "concertina-7d9"}, "spec": spec, "status": {"phase": phase},
            }))
            .unwrap()
        };
        let node = |name: &str| json!({"nodeName": name, "hostNetwork": true, "containers": []});
        assert!(is_on(&pod(node("cp-1"), "Running"), "cp-1"));
        assert!(is_on(&pod(node("cp-1.example.com"), "Running"), "cp-1"));
        assert!(!is_on(&pod(node("cp-1"), "Failed"), "cp-1"));
        assert!(!is_on(&pod(node("cp-10"), "Running"), "cp-1"));
        let own = json!({"nodeName": "cp-1", "containers": []});
        assert!(!is_on(&pod(own, "Running"), "cp-1"), "the pod has its own hostname");
        let named = json!({"hostname": "leader", "containers": []});
        assert!(is_on(&pod(named, "Running"), "leader"));
    }
}
