//! The requests of `check`.

mod installed;

use clock::Clock;
use futures::{StreamExt, stream};
use k8s_openapi::List;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1 as wire;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use serde_json::Value;

use crate::readings::{Api, Requirements, Surroundings};
use cluster::call::Call;
use cluster::client::Clients;
use cluster::error::ApiError;
use cluster::permission::{Missing, Permission, User, missing_verbs, row};
use cluster::server;
use cluster::typed;
use controller::election::leases::Record;
use flags::Config;
use flags::permissions::needed;
use terminal::options::leader::{Leader, NAMESPACES};

/// The label of all objects of an installation.
pub(crate) const OURS: &str = "app.kubernetes.io/name=concertina";
/// The namespace of kube-controller-manager, and of the Role for client certificates.
const KUBE_SYSTEM: &str = "kube-system";
/// The metrics APIs that HPAs can use.
const METRICS: [&str; 3] = ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"];
/// The group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Maximum number of concurrent reviews.
const AT_ONCE: usize = 8;

/// The resources in the namespace of the default installation: group and plural name.
const IN_NAMESPACE: [(&str, &str); 8] = [
    ("apps", "deployments"),
    ("", "services"),
    ("", "serviceaccounts"),
    ("", "configmaps"),
    ("policy", "poddisruptionbudgets"),
    ("networking.k8s.io", "networkpolicies"),
    (RBAC, "roles"),
    (RBAC, "rolebindings"),
];
/// The cluster-scoped resources of the default installation.
const IN_CLUSTER: [(&str, &str); 3] =
    [(RBAC, "clusterroles"), (RBAC, "clusterrolebindings"), ("flowcontrol.apiserver.k8s.io", "flowschemas")];
/// The resources of the default installation in [`KUBE_SYSTEM`].
const IN_KUBE_SYSTEM: [(&str, &str); 2] = [(RBAC, "roles"), (RBAC, "rolebindings")];
/// The resources of the guards.
const GUARDS: [(&str, &str); 3] = [
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
];

/// The resources that the default installation creates.
#[cfg(test)]
pub(crate) fn created() -> std::collections::BTreeSet<&'static str> {
    IN_NAMESPACE.iter().chain(&IN_CLUSTER).chain(&IN_KUBE_SYSTEM).map(|(_, resource)| *resource).collect()
}

/// Reads a cluster.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) clients: &'a Clients,
    /// `--leader`.
    pub(crate) leader: Option<&'a Leader>,
}

impl Reader<'_> {
    /// Reads what every check needs. Fails only if the API server does not answer.
    pub(crate) async fn surroundings(&self, clock: &dyn Clock) -> Result<Surroundings, ApiError> {
        let server = server::read(&self.clients.discovery, clock).await?;
        let mut metrics = Vec::new();
        for group in METRICS {
            metrics.push((group, self.api(group).await));
        }
        Ok(Surroundings { server, metrics, policies: self.api(rulebook::GROUP).await })
    }

    /// Reads whether an API group answers, by the discovery of its preferred version.
    async fn api(&self, group: &str) -> Api {
        let client = &self.clients.discovery;
        let found: APIGroup = match client.json(&Call::get(["apis", group])).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => return Api::Absent,
            Err(error) => return Api::Failing(error.to_string()),
        };
        let versions: Vec<String> = found.versions.into_iter().map(|version| version.version).collect();
        let preferred = found.preferred_version.map(|version| version.version);
        let Some(version) = preferred.as_ref().or_else(|| versions.first()) else { return Api::Absent };
        // The list of an adapter can be large, so it is not read.
        match client.open(&Call::get(["apis", group, version])).await {
            Ok(_) => Api::Served(versions),
            Err(error) => {
                let reason = self.unavailable(group, version).await;
                Api::Failing(reason.unwrap_or_else(|| error.to_string()))
            }
        }
    }

    /// Reads the reason why an aggregated API is not available. `None` if it is unknown.
    async fn unavailable(&self, group: &str, version: &str) -> Option<String> {
        let name = format!("{version}.{group}");
        let call = Call::get(["apis", "apiregistration.k8s.io", "v1", "apiservices", &name]);
        let service: Value = self.clients.core.json(&call).await.ok()?;
        let conditions = service.pointer("/status/conditions")?.as_array()?;
        let available =
            conditions.iter().find(|one| one.get("type").is_some_and(|kind| kind == "Available"))?;
        Some(available.get("message")?.as_str()?.to_owned())
    }

    /// Reads what an installation in a namespace needs.
    pub(crate) async fn requirements(&self, namespace: &str) -> Requirements {
        let create = |(group, resource): &(&str, &str)| row(group, resource, &["create"]);
        let within =
            |namespace: &str, row: Permission| Permission { namespace: Some(namespace.to_owned()), ..row };
        let mut objects: Vec<_> = IN_NAMESPACE.iter().map(|one| within(namespace, create(one))).collect();
        objects.extend(IN_CLUSTER.iter().map(create));
        objects.extend(IN_KUBE_SYSTEM.iter().map(|one| within(KUBE_SYSTEM, create(one))));
        let namespaces = self.clients.core.cluster_scoped::<Namespace>();
        if matches!(typed::get(&namespaces, namespace).await, Ok(None)) {
            objects.insert(0, create(&("", "namespaces")));
        }
        let guards: Vec<_> = GUARDS.iter().map(create).collect();
        let mut leases = Vec::new();
        let others = NAMESPACES.into_iter().filter(|other| *other != namespace);
        for namespace in [namespace].into_iter().chain(others) {
            let name = "concertina";
            leases.push((format!("{namespace}/{name}"), self.lease(namespace, name).await));
        }
        Requirements {
            namespace: namespace.to_owned(),
            uncreatable: self.missing(None, &objects).await,
            ungrantable: self.ungrantable().await,
            unguardable: self.missing(None, &guards).await,
            leases,
        }
    }

    /// Reads which permissions of the controller the user may not grant. The API server lets a user grant permissions
    /// that the user has, or all with the verb `escalate`.
    async fn ungrantable(&self) -> Result<Vec<Missing>, ApiError> {
        if self.missing(None, &[row(RBAC, "clusterroles", &["escalate"])]).await?.is_empty() {
            return Ok(Vec::new());
        }
        self.missing(None, &needed(&Config::default())).await
    }

    /// Reviews permissions of a user, or of the user of the kubeconfig.
    async fn missing(&self, user: Option<&User>, needed: &[Permission]) -> Result<Vec<Missing>, ApiError> {
        let client = &self.clients.reviews;
        let questions: Vec<_> = needed.iter().map(|one| missing_verbs(client, user, one)).collect();
        let answers: Vec<_> = stream::iter(questions).buffered(AT_ONCE).collect().await;
        let mut missing = Vec::new();
        for (permission, verbs) in needed.iter().zip(answers) {
            let verbs = verbs?;
            if !verbs.is_empty() {
                missing.push(Missing { permission: permission.clone(), verbs });
            }
        }
        Ok(missing)
    }

    async fn lease(&self, namespace: &str, name: &str) -> Result<Option<Record>, ApiError> {
        let leases = self.clients.core.namespaced::<wire::Lease>(namespace);
        let lease = typed::get(&leases, name).await?;
        Ok(lease.map(|lease| lease.spec.map(Record::from).unwrap_or_default()))
    }

    /// Lists the Deployments of installations in a namespace, or in all. A user who may not list the Deployments of all
    /// namespaces gets those in the namespaces of the default installations.
    pub(crate) async fn deployments(&self, namespace: Option<&str>) -> Result<Vec<Deployment>, ApiError> {
        let list = async |namespace: Option<&str>| {
            let mut path = vec!["apis", "apps", "v1"];
            path.extend(namespace.iter().flat_map(|namespace| ["namespaces", *namespace]));
            path.push("deployments");
            let call = Call::get(path).query("labelSelector", OURS).about("deployments.apps", "");
            let list: List<Deployment> = self.clients.core.json(&call).await?;
            Ok::<_, ApiError>(list.items)
        };
        match list(namespace).await {
            Err(error) if error.is_forbidden() && namespace.is_none() => {
                let mut found = Vec::new();
                for namespace in NAMESPACES {
                    found.extend(list(Some(namespace)).await.map_err(|_| error.clone())?);
                }
                Ok(found)
            }
            listed => listed,
        }
    }
}
