//! Reads one installation.

use std::collections::BTreeMap;

use k8s_openapi::List;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{KUBE_SYSTEM, OURS, Reader};
use crate::readings::{BuiltIn, HandoverPage, Installation, Leader, Lease, Monitoring, SourceText};
use crate::rules;
use cluster::call::Call;
use cluster::error::ApiError;
use cluster::permission::{Missing, Subject, User};
use cluster::typed;
use coexist::handover::scope::Scope;
use flags::config::{ACCOUNT_NAME, ACCOUNT_NAMESPACE};
use flags::permissions::{needed, source_permissions};
use flags::{Config, FlagSet};
use sources::SourceFile;
use terminal::forward::{Connection, ForwardError, WITHIN, Which};
use terminal::options::leader;

/// The names of the built-in HPA controller in `--controllers` of kube-controller-manager.
const CONTROLLER: [&str; 2] = ["horizontal-pod-autoscaler-controller", "horizontalpodautoscaling"];

impl Reader<'_> {
    /// Reads the installation of a Deployment.
    pub(crate) async fn installation(&self, deployment: Deployment) -> Installation {
        let Deployment { metadata, spec, status } = deployment;
        let namespace = metadata.namespace.unwrap_or_default();
        let name = metadata.name.unwrap_or_default();
        let template = spec.template.metadata.unwrap_or_default();
        let pod = spec.template.spec.unwrap_or_default();
        let container = container(&pod).cloned().unwrap_or_default();
        let ready = status.and_then(|status| status.ready_replicas).unwrap_or_default();
        let words = arguments(&container).skip_while(|word| *word == "controller").map(str::to_owned);
        let config = FlagSet::controller().resolve(words);
        let account = pod.service_account_name.as_deref().unwrap_or("default");
        let mut read = Installation {
            replicas: (ready, spec.replicas.unwrap_or(1)),
            missing: Ok(Vec::new()),
            sources: None,
            lease: None,
            pods: Ok(Vec::new()),
            leader: None,
            guard: Ok(BTreeMap::new()),
            built_in: Ok(Vec::new()),
            monitoring: Ok(Monitoring::default()),
            image: container.image.clone().unwrap_or_default(),
            namespace,
            name,
            config,
        };
        let Ok(config) = read.config.clone() else { return read };
        read.sources = self.sources(&config, &read.namespace, &pod, &container).await;
        read.missing = self.missing_permissions(&config, &read, account).await;
        if config.controller.dry_run {
            return read;
        }
        let selector: Vec<String> = spec
            .selector
            .match_labels
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        read.pods = self.pods(&read.namespace, &selector.join(",")).await;
        if let Some(election) = &config.election {
            let record = self.lease(&election.namespace, &election.name).await;
            if matches!(&record, Ok(Some(record)) if record.is_held()) {
                let lease = (election.namespace.as_str(), election.name.as_str());
                read.leader = Some(self.leader(lease, config.controller.scope == Scope::Labelled).await);
            }
            let name = format!("{}/{}", election.namespace, election.name);
            read.lease = Some(Lease { name, record });
        }
        read.guard = self.guard(&config).await;
        if config.controller.scope == Scope::All {
            read.built_in = self.built_in().await;
        }
        let annotations = template.annotations.unwrap_or_default();
        let annotated = annotations.get("prometheus.io/scrape").is_some_and(|value| value == "true");
        read.monitoring = self.monitoring(&read.namespace, annotated).await;
        read
    }

    /// Reviews the permissions of the controller's account.
    async fn missing_permissions(
        &self,
        config: &Config,
        read: &Installation,
        account: &str,
    ) -> Result<Vec<Missing>, ApiError> {
        let mut all = needed(config);
        if let Some(SourceText::Text { key, text: Some(text), .. }) = &read.sources
            && let Ok(file) = SourceFile::parse(text, &key.into())
        {
            all.extend(source_permissions(config, &file));
        }
        let own = User::service_account(&read.namespace, account);
        let acting = if config.service_account_credentials {
            User::service_account(ACCOUNT_NAMESPACE, ACCOUNT_NAME)
        } else {
            own.clone()
        };
        let (controller, credentials): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|permission| permission.subject == Subject::Controller);
        let mut missing = self.missing(Some(&acting), &controller).await?;
        missing.extend(self.missing(Some(&own), &credentials).await?);
        Ok(missing)
    }

    /// Reads the file of metric sources from its ConfigMap.
    async fn sources(
        &self,
        config: &Config,
        namespace: &str,
        pod: &PodSpec,
        container: &Container,
    ) -> Option<SourceText> {
        let path = config.metric_sources.as_ref()?.to_str()?;
        let Some((config_map, key)) = config_map_of(pod, container, path) else {
            return Some(SourceText::Elsewhere);
        };
        let maps = self.clients.core.namespaced::<ConfigMap>(namespace);
        Some(match typed::get(&maps, &config_map).await {
            Err(error) => SourceText::Unread(error),
            Ok(map) => {
                let text = map.and_then(|map| map.data?.remove(&key));
                SourceText::Text { config_map, key, text }
            }
        })
    }

    async fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Pod>, ApiError> {
        let path = ["api", "v1", "namespaces", namespace, "pods"];
        let call = Call::get(path).query("labelSelector", selector).about("pods", "");
        let list: List<Pod> = self.clients.core.json(&call).await?;
        Ok(list.items)
    }

    /// Reads the pages of the leader. Its pod gets the user's credentials only if it is proven to be a controller, or
    /// if the user named the Lease.
    async fn leader(
        &self,
        (namespace, lease): (&str, &str),
        is_labelled: bool,
    ) -> Result<Leader, ForwardError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let named = self.leader.is_some_and(|given| given.namespace == namespace && given.lease == lease);
        let which =
            Which::Leader(leader::Leader { namespace: namespace.to_owned(), lease: lease.to_owned(), named });
        let deadline = Instant::now() + WITHIN;
        let mut connection = Connection::open(self.clients, &which, deadline).await?;
        let page = connection.health("/readyz?verbose", deadline).await?;
        let checks = checks(&String::from_utf8_lossy(&page));
        let version = connection.get("/version", deadline).await.ok();
        let version = version.and_then(|page| serde_json::from_slice::<Version>(&page).ok());
        let version = version.map_or_else(String::new, |version| {
            let text = version.git_version.trim_start_matches('v');
            text.split('+').next().unwrap_or_default().to_owned()
        });
        let handover = if is_labelled { connection.get("/handover", deadline).await.ok() } else { None };
        let handover = handover.and_then(|page| serde_json::from_slice::<HandoverPage>(&page).ok());
        Ok(Leader { version, checks, handover })
    }

    /// Reads the objects of the guard.
    async fn guard(&self, config: &Config) -> Result<BTreeMap<(String, String), Value>, ApiError> {
        let mut found = BTreeMap::new();
        if !config.handover.guard.checks_users() {
            return Ok(found);
        }
        let objects = rules::guard_objects(config);
        let mut expected = vec![objects.webhook()];
        if config.handover.guard == flags::config::HandoverGuard::Policy {
            expected = objects.policies().into_iter().chain(objects.bindings()).collect();
        }
        for object in expected {
            let text =
                |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (kind, name) = (text("/kind"), text("/metadata/name"));
            let plural = match kind.as_str() {
                "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
                kind => format!("{}s", kind.to_lowercase()),
            };
            let resource = format!("{plural}.admissionregistration.k8s.io");
            let call = Call::get(["apis", "admissionregistration.k8s.io", "v1", &plural, &name]);
            match self.clients.core.json(&call.about(resource, &name)).await {
                Ok(object) => drop(found.insert((kind, name), object)),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Reads the arguments of kube-controller-manager. Empty if it does not run in a pod.
    async fn built_in(&self) -> Result<Vec<BuiltIn>, ApiError> {
        let pods = self.pods(KUBE_SYSTEM, "component=kube-controller-manager").await?;
        let built_in = |pod: Pod| {
            let spec = pod.spec.unwrap_or_default();
            let words: Vec<&str> = spec.containers.iter().flat_map(words).collect();
            BuiltIn { pod: pod.metadata.name.unwrap_or_default(), enabled: is_enabled(&words) }
        };
        Ok(pods.into_iter().map(built_in).collect())
    }

    /// Reads whether the metrics of the installations in a namespace are read.
    async fn monitoring(&self, namespace: &str, annotated: bool) -> Result<Monitoring, ApiError> {
        let operator = "monitoring.coreos.com";
        let rules = self.count(operator, "prometheusrules", namespace).await?;
        let services = self.count(operator, "servicemonitors", namespace).await?;
        let pods = self.count("monitoring.googleapis.com", "podmonitorings", namespace).await?;
        let monitors = services.unwrap_or_default() + pods.unwrap_or_default();
        Ok(Monitoring {
            rules_served: rules.is_some(),
            rules: rules.unwrap_or_default(),
            monitors,
            annotated,
        })
    }

    /// Counts the objects of the installations in a namespace. `None` if the API server does not serve the resource.
    async fn count(&self, group: &str, resource: &str, namespace: &str) -> Result<Option<usize>, ApiError> {
        #[derive(Deserialize)]
        struct Objects {
            items: Vec<serde::de::IgnoredAny>,
        }
        let path = ["apis", group, "v1", "namespaces", namespace, resource];
        let call = Call::get(path).query("labelSelector", OURS).about(format!("{resource}.{group}"), "");
        match self.clients.core.json::<Objects>(&call).await {
            Ok(objects) => Ok(Some(objects.items.len())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the container of the controller.
fn container(pod: &PodSpec) -> Option<&Container> {
    pod.containers.iter().find(|container| container.name == "concertina").or_else(|| pod.containers.first())
}

fn arguments(container: &Container) -> impl Iterator<Item = &str> {
    container.args.iter().flatten().map(String::as_str)
}

fn words(container: &Container) -> impl Iterator<Item = &str> {
    container.command.iter().flatten().map(String::as_str).chain(arguments(container))
}

/// Returns the ConfigMap and its key from which a file of a container comes. `None` for a file from another volume.
fn config_map_of(pod: &PodSpec, container: &Container, path: &str) -> Option<(String, String)> {
    let mounts = container.volume_mounts.iter().flatten();
    let (mount, rest) = mounts
        .filter_map(|mount| Some((mount, path.strip_prefix(mount.mount_path.trim_end_matches('/'))?)))
        .filter(|(_, rest)| rest.is_empty() || rest.starts_with('/'))
        .max_by_key(|(mount, _)| mount.mount_path.len())?;
    let inner = mount.sub_path.as_deref().unwrap_or_default();
    let file = format!("{inner}{rest}");
    let file = file.trim_start_matches('/');
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
    let source = volume.config_map.as_ref()?;
    let item = source.items.iter().flatten().find(|item| item.path == file);
    Some((source.name.clone(), item.map_or_else(|| file.to_owned(), |item| item.key.clone())))
}

/// Returns whether the arguments of kube-controller-manager enable the built-in HPA controller.
fn is_enabled(words: &[&str]) -> bool {
    let mut names = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.trim_start_matches('-').split_once('=') {
            Some(("controllers", list)) => names.extend(list.split(',')),
            None if *word == "--controllers" => {
                names.extend(words.next().into_iter().flat_map(|list| list.split(',')));
            }
            _ => {}
        }
    }
    let is_in = |name: &str| names.contains(&name);
    if CONTROLLER.iter().any(|name| names.contains(&format!("-{name}").as_str())) {
        return false;
    }
    names.is_empty() || is_in("*") || CONTROLLER.iter().any(|name| is_in(name))
}

/// Parses the page of health checks: lines such as `[+]takeover ok: acting` and `[-]permissions failed: reason`.
fn checks(page: &str) -> BTreeMap<String, (bool, String)> {
    let check = |line: &str| {
        let (passes, rest) = match line.strip_prefix("[+]") {
            Some(rest) => (true, rest),
            None => (false, line.strip_prefix("[-]")?),
        };
        let (name, rest) = rest.split_once(' ')?;
        let detail = rest.split_once(": ").map_or("", |(_, detail)| detail);
        Some((name.to_owned(), (passes, detail.to_owned())))
    };
    page.lines().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn built_in_controller_is_enabled_unless_the_arguments_exclude_it() {
        for (words, enabled) in [
            (&["kube-controller-manager"][..], true),
            (&["--controllers=*,bootstrapsigner,tokencleaner"], true),
            (&["--controllers=*,tokencleaner,-horizontal-pod-autoscaler-controller"], false),
            (&["--controllers", "*,-horizontalpodautoscaling"], false),
            (&["--controllers=deployment-controller"], false),
            (&["--controllers=horizontal-pod-autoscaler-controller"], true),
        ] {
            assert_eq!(is_enabled(words), enabled, "{words:?}");
        }
    }

    #[test]
    fn file_of_sources_is_found_in_its_config_map() {
        let found = |mount: Value, volume: Value, path: &str| {
            let spec = json!({
                "containers": [{"name": "concertina", "volumeMounts": [mount]}], "volumes": [volume],
            });
            let pod: PodSpec = serde_json::from_value(spec).unwrap();
            config_map_of(&pod, &pod.containers[0], path)
        };
        let mount = |path: &str, sub: Option<&str>| json!({"name": "a", "mountPath": path, "subPath": sub});
        let map = json!({"name": "a", "configMap": {"name": "files"}});
        let expected = |key: &str| Some(("files".to_owned(), key.to_owned()));
        assert_eq!(found(mount("/etc/s", None), map.clone(), "/etc/s/b.yaml"), expected("b.yaml"));
        assert_eq!(
            found(mount("/etc/b.yaml", Some("c.yaml")), map.clone(), "/etc/b.yaml"),
            expected("c.yaml")
        );
        assert_eq!(found(mount("/etc/other", None), map.clone(), "/etc/s/b.yaml"), None);
        assert_eq!(found(mount("/etc/s", None), map, "/etc/source/b.yaml"), None);
        let items =
            json!({"name": "a", "configMap": {"name": "files", "items": [{"key": "k", "path": "b.yaml"}]}});
        assert_eq!(found(mount("/etc/s", None), items, "/etc/s/b.yaml"), expected("k"));
        let secret = json!({"name": "a", "secret": {"secretName": "files"}});
        assert_eq!(found(mount("/etc/s", None), secret, "/etc/s/b.yaml"), None);
    }

    #[test]
    fn health_checks_are_parsed_with_their_details() {
        let page = "[+]ping ok\n[+]takeover ok: holding: x wrote 2s ago; writing nothing\n\
                    [-]permissions failed: not allowed to list pods\nreadyz check failed\n";
        let found = checks(page);
        assert_eq!(found.len(), 3);
        assert_eq!(found["takeover"], (true, "holding: x wrote 2s ago; writing nothing".to_owned()));
        assert_eq!(found["permissions"], (false, "not allowed to list pods".to_owned()));
    }
}
