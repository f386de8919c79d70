//! Watches policy objects while the API server serves their kinds. In a cluster without the kinds, each watch costs one
//! discovery request per minute.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::sleep;

use super::intake::{NamespaceIntake, Namespaces, PolicyIntake};
use super::objects::{GROUP, Kind, VERSION};
use crate::reconcile::Controller;
use clock::Jitter;
use cluster::call::Call;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::watch::{Handle, Sink, WatchOptions, watch_of};

/// Interval between checks whether the kinds are served.
const RECHECK: Duration = Duration::from_mins(1);
/// The wait after a failed check, and the interval between checks whether a watched resource was removed.
const RETRY: Duration = Duration::from_secs(15);
/// Maximum size of the list of the group's resources, in bytes.
const MAX_RESOURCES: usize = 1 << 20;

/// The collaborators of the watches of policies.
#[derive(Debug, Clone)]
pub(crate) struct PolicyWatches {
    /// The controller. Weak, because its tasks run the watches.
    pub(crate) controller: Weak<Controller>,
    /// The client of watches, without a token bucket.
    pub(crate) watch: Client,
    /// The client of discovery.
    pub(crate) discovery: Client,
    /// Maximum wait between two attempts of a watch.
    pub(crate) longest_wait: Duration,
    /// Seed for the jitter of waits and of watch lengths.
    pub(crate) seed: u64,
}

/// Whether the server serves a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// The server serves the kind.
    Yes,
    /// The server does not serve the kind in this version.
    No,
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
    /// Watches one kind in a namespace, or in all, whenever the server serves the kind. Never returns.
    pub(crate) async fn run(self, kind: Kind, namespace: Option<Arc<str>>) {
        let mut reported = None;
        loop {
            match self.served(kind).await {
                Ok(Served::Yes) => {
                    if reported.replace(Served::Yes) == Some(Served::No) {
                        tracing::info!("API server serves {}.{GROUP}, watching policies", kind.resource());
                    }
                    self.follow(kind, namespace.clone()).await;
                }
                Ok(Served::No) => {
                    if reported.replace(Served::No) != Some(Served::No) {
                        tracing::info!(
                            "API server does not serve {}.{GROUP}/{VERSION}: reading policies from annotations only; \
                             checking again every minute",
                            kind.resource()
                        );
                    }
                    sleep(RECHECK).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to check whether policies are served");
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Watches the labels of all namespaces. Never returns.
    pub(crate) async fn run_namespaces(self) {
        let intake = NamespaceIntake(self.controller.clone(), None);
        let (_, watching) = watch_of(Namespaces, self.watch.clone(), self.options(None, 2), intake);
        watching.await;
    }

    async fn served(&self, kind: Kind) -> Result<Served, ApiError> {
        let call = Call::get(["apis", GROUP, VERSION]).at_most(MAX_RESOURCES);
        let list: Resources = match self.discovery.json(&call).await {
            Ok(list) => list,
            Err(error) if error.is_not_found() => return Ok(Served::No),
            Err(error) => return Err(error),
        };
        let is_served = list.resources.iter().any(|resource| resource.name == kind.resource());
        Ok(if is_served { Served::Yes } else { Served::No })
    }

    /// Watches until the kind is no longer served. Then drops its policies.
    async fn follow(&self, kind: Kind, namespace: Option<Arc<str>>) {
        let intake = || PolicyIntake {
            controller: self.controller.clone(),
            kind,
            namespace: namespace.clone(),
            listed: None,
        };
        let number = u64::from(kind != Kind::Cluster);
        let (handle, watching) =
            watch_of(kind, self.watch.clone(), self.options(namespace.clone(), number), intake());
        tokio::select! {
            biased;
            () = removed(&handle) => {}
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

/// Waits until the server responds that a watched resource does not exist.
async fn removed(handle: &Handle) {
    loop {
        sleep(RETRY).await;
        if handle.status().error.is_some_and(|error| error.is_not_found()) {
            return;
        }
    }
}
