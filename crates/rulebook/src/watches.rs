//! Watches policy objects while the API server serves their kinds, and the labels of namespaces. In a cluster without
//! the kinds, each watch sends one discovery request per minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::awaited::List;
use crate::objects::{GROUP, Kind, PolicyName, PolicyObject, VERSION};
use crate::status;
use crate::store::{AT_ONCE, Policies};
use clock::Jitter;
use cluster::call::Call;
use cluster::client::Client;
use cluster::decode::{DecodeError, meta_of};
use cluster::error::ApiError;
use cluster::watch::{DeletedObject, Handle, Sink, WatchOptions, Watched, watch_of};
use engine::reconcile::Controller;
use engine::tasks::Tasks;

/// The interval between two checks of the served kinds.
const RECHECK: Duration = Duration::from_mins(1);
/// The pause after a failed check, and the interval between two checks for the removal of a watched kind.
const RETRY: Duration = Duration::from_secs(15);
/// The interval at which the error of an incomplete list is read.
const CHECK: Duration = Duration::from_millis(500);
/// Maximum size of the list of the group's resources, in bytes.
const MAX_RESOURCES: usize = 1 << 20;

/// The collaborators of the watches of policies.
#[derive(Debug, Clone)]
pub struct PolicyWatches {
    /// The controller. The reference is weak, because tasks of the controller run the watches.
    pub controller: Weak<Controller>,
    /// The policies.
    pub policies: Arc<Policies>,
    /// The client of watches, without a token bucket.
    pub watch: Client,
    /// The client of discovery.
    pub discovery: Client,
    /// The client of the statuses of policies.
    pub statuses: Client,
    /// Maximum pause between two attempts of a watch.
    pub longest_wait: Duration,
    /// The seed for the jitter of pauses and of watch lengths.
    pub seed: u64,
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<ResourceName>,
}

#[derive(Deserialize)]
struct ResourceName {
    name: String,
}

impl PolicyWatches {
    /// Starts the watches of policy objects, and of namespaces for their selectors, and the writes of the statuses of
    /// policies, until `stop`. A controller for some namespaces has no cluster-wide permissions, so it watches only the
    /// policy objects in these namespaces.
    pub fn start(self, namespaces: Option<&BTreeSet<String>>, tasks: &Tasks, stop: &CancellationToken) {
        let (controller, policies) = (self.controller.clone(), Arc::clone(&self.policies));
        let writing = status::run(controller, policies, self.statuses.clone());
        tasks.spawn_until(stop, "statuses of policies", writing);
        let awaited = &self.policies.awaited;
        let Some(namespaces) = namespaces else {
            awaited.add(List::Namespaces);
            for kind in Kind::ALL {
                awaited.add(List::Objects(kind, None));
                tasks.spawn_until(stop, "watch of policies", self.clone().run(kind, None));
            }
            tasks.spawn_until(stop, "watch of namespaces for policies", self.run_namespaces());
            return;
        };
        for namespace in namespaces {
            let namespace: Arc<str> = namespace.as_str().into();
            awaited.add(List::Objects(Kind::Namespaced, Some(Arc::clone(&namespace))));
            let watching = self.clone().run(Kind::Namespaced, Some(namespace));
            tasks.spawn_until(stop, "watch of policies", watching);
        }
    }

    /// Watches one kind in a namespace, or in all namespaces, while the server serves the kind. Never returns.
    async fn run(self, kind: Kind, namespace: Option<Arc<str>>) {
        let mut reported = None::<bool>;
        let list = List::Objects(kind, namespace.clone());
        loop {
            match self.served(kind).await {
                Ok(true) => {
                    if reported.replace(true) == Some(false) {
                        tracing::info!("API server serves {}.{GROUP}, watching policies", kind.resource());
                    }
                    self.follow(kind, namespace.clone()).await;
                }
                Ok(false) => {
                    if reported.replace(false) != Some(false) {
                        tracing::info!(
                            "API server does not serve {}.{GROUP}/{VERSION}: reading policies from annotations only; \
                             checking again every minute",
                            kind.resource()
                        );
                    }
                    if let Some(controller) = self.controller.upgrade() {
                        complete(&self.policies, &controller, &list);
                    }
                    sleep(RECHECK).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to check whether policies are served");
                    self.policies.awaited.failed(&list, &error);
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Watches the labels of all namespaces. Never returns.
    async fn run_namespaces(self) {
        let (controller, policies) = (self.controller.clone(), Arc::clone(&self.policies));
        let intake = NamespaceIntake { controller, policies, listed: None };
        let (handle, watching) = watch_of(Namespaces, self.watch.clone(), self.options(None, 2), intake);
        tokio::select! {
            biased;
            () = self.report(&List::Namespaces, &handle) => {}
            () = watching => {}
        }
    }

    /// Reports the errors of a watch until its first list is complete. Never returns.
    async fn report(&self, list: &List, handle: &Handle) {
        while timeout(CHECK, handle.wait_synced()).await.is_err() {
            if let Some(error) = handle.status().error {
                self.policies.awaited.failed(list, &error);
            }
        }
        std::future::pending::<()>().await;
    }

    /// Returns whether the server serves the kind in this version.
    async fn served(&self, kind: Kind) -> Result<bool, ApiError> {
        let call = Call::get(["apis", GROUP, VERSION]).at_most(MAX_RESOURCES);
        match self.discovery.json::<Resources>(&call).await {
            Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == kind.resource())),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Watches until the kind is no longer served, and then drops its policies.
    async fn follow(&self, kind: Kind, namespace: Option<Arc<str>>) {
        let intake = || PolicyIntake {
            controller: self.controller.clone(),
            policies: Arc::clone(&self.policies),
            kind,
            namespace: namespace.clone(),
            listed: None,
        };
        let number = u64::from(kind != Kind::Cluster);
        let (handle, watching) =
            watch_of(kind, self.watch.clone(), self.options(namespace.clone(), number), intake());
        let list = List::Objects(kind, namespace.clone());
        tokio::select! {
            biased;
            () = removed(&handle) => {}
            () = self.report(&list, &handle) => {}
            () = watching => {}
        }
        let mut emptied = PolicyIntake { listed: Some(BTreeSet::new()), ..intake() };
        emptied.done();
    }

    fn options(&self, namespace: Option<Arc<str>>, number: u64) -> WatchOptions {
        WatchOptions {
            namespace,
            longest_wait: self.longest_wait,
            jitter: Jitter::seeded(self.seed.wrapping_add(number)),
            ..WatchOptions::default()
        }
    }
}

/// Waits until the server responds that a watched kind does not exist.
async fn removed(handle: &Handle) {
    loop {
        sleep(RETRY).await;
        if handle.status().error.is_some_and(|error| error.is_not_found()) {
            return;
        }
    }
}

/// Applies the policy objects of one kind.
#[derive(Debug)]
struct PolicyIntake {
    controller: Weak<Controller>,
    policies: Arc<Policies>,
    kind: Kind,
    namespace: Option<Arc<str>>,
    /// The names of the list in progress.
    listed: Option<BTreeSet<PolicyName>>,
}

impl PolicyIntake {
    fn name(&self, namespace: String, name: String) -> PolicyName {
        let namespace = (self.kind == Kind::Namespaced).then(|| namespace.into());
        PolicyName { namespace, name: name.into() }
    }
}

impl Sink<PolicyObject> for PolicyIntake {
    fn start(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    fn apply(&mut self, object: PolicyObject) {
        let Some(controller) = self.controller.upgrade() else { return };
        let name = object.name.clone();
        if self.policies.apply_object(object) {
            controller.sync_soon(name.namespace.as_deref(), AT_ONCE);
        }
        if let Some(listed) = &mut self.listed {
            listed.insert(name);
        }
    }

    fn delete(&mut self, object: DeletedObject) {
        let Some(controller) = self.controller.upgrade() else { return };
        let name = self.name(object.namespace, object.name);
        if self.policies.delete_object(&name) {
            controller.sync_soon(name.namespace.as_deref(), AT_ONCE);
        }
        if let Some(listed) = &mut self.listed {
            listed.remove(&name);
        }
    }

    fn done(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        let Some(controller) = self.controller.upgrade() else { return };
        if self.policies.retain_objects(self.kind, self.namespace.as_deref(), &listed) {
            controller.sync_soon(self.namespace.as_deref(), AT_ONCE);
        }
        complete(&self.policies, &controller, &List::Objects(self.kind, self.namespace.clone()));
    }
}

/// Syncs the HPAs that have waited for a list after it failed.
fn complete(policies: &Policies, controller: &Controller, list: &List) {
    if policies.awaited.complete(list) {
        let namespace = match list {
            List::Objects(_, namespace) => namespace.as_deref(),
            List::Namespaces => None,
        };
        controller.sync_soon(namespace, AT_ONCE);
    }
}

/// The watch of namespaces, for the selectors of cluster-wide policies.
#[derive(Debug, Default)]
struct Namespaces;

#[derive(Debug)]
struct NamespaceLabels {
    name: String,
    resource_version: String,
    labels: BTreeMap<String, String>,
}

impl Watched for Namespaces {
    type Object<'a> = NamespaceLabels;

    fn path(&self) -> Vec<&str> {
        vec!["api", "v1", "namespaces"]
    }

    fn name(&self) -> Arc<str> {
        "namespaces".into()
    }

    fn decode(&self, object: &[u8]) -> Result<NamespaceLabels, DecodeError> {
        #[derive(Deserialize)]
        struct Namespace<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            labels: Option<BTreeMap<String, String>>,
        }
        let Namespace { metadata } = serde_json::from_slice(object)?;
        let meta = meta_of(metadata)?;
        if meta.name.is_empty() {
            return Err(DecodeError::new("a namespace without metadata.name"));
        }
        let Metadata { labels } = serde_json::from_str(metadata.get())?;
        let (name, resource_version) = (meta.name, meta.resource_version);
        Ok(NamespaceLabels { name, resource_version, labels: labels.unwrap_or_default() })
    }

    fn resource_version(object: &NamespaceLabels) -> &str {
        &object.resource_version
    }
}

/// Applies the labels of namespaces.
#[derive(Debug)]
struct NamespaceIntake {
    controller: Weak<Controller>,
    policies: Arc<Policies>,
    /// The names of the list in progress.
    listed: Option<BTreeSet<String>>,
}

impl NamespaceIntake {
    fn set(&self, namespace: &str, labels: Option<BTreeMap<String, String>>) {
        if let Some(controller) = self.controller.upgrade()
            && self.policies.label_namespace(namespace, labels)
        {
            controller.sync_soon(Some(namespace), AT_ONCE);
        }
    }
}

impl Sink<NamespaceLabels> for NamespaceIntake {
    fn start(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    fn apply(&mut self, object: NamespaceLabels) {
        self.set(&object.name, Some(object.labels));
        if let Some(listed) = &mut self.listed {
            listed.insert(object.name);
        }
    }

    fn delete(&mut self, object: DeletedObject) {
        self.set(&object.name, None);
        if let Some(listed) = &mut self.listed {
            listed.remove(&object.name);
        }
    }

    fn done(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        for namespace in self.policies.namespaces() {
            if !listed.contains(&*namespace) {
                self.set(&namespace, None);
            }
        }
        if let Some(controller) = self.controller.upgrade() {
            complete(&self.policies, &controller, &List::Namespaces);
        }
    }
}
