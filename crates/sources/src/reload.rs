//! The sources of the current file, and their replacement when the file changes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::RwLock;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::dial::{Dial, Network, TlsError};
use crate::file::{AdapterGroup, PrometheusServer, SourceFile};
use crate::http::SourceError;
use crate::kubelet::Kubelets;
use crate::pods::Scraper;
use crate::prometheus::Server;
use crate::settings::{FileError, KubeletSettings};

/// The interval between two reads of the file.
const REREAD: Duration = Duration::from_secs(5);
/// The interval between two checks for due scrapes.
const TICK: Duration = Duration::from_millis(100);

/// Receives the state of the sources.
pub trait SourceObserver: Send + Sync {
    /// Reports a reload of the file, and whether the file was usable.
    fn reloaded(&self, usable: bool);

    /// Reports the state of a server or an API group. `Some(true)` means that it fails as a whole and is probed once
    /// per second. `None` means that the file no longer lists it.
    fn down(&self, server: &str, down: Option<bool>);
}

/// The sources of a file, with their connections and caches.
#[derive(Debug)]
pub struct Sources {
    path: PathBuf,
    /// Opens all connections. `None` to use the network.
    dial: Option<Arc<dyn Dial>>,
    current: RwLock<Arc<Current>>,
}

/// The sources in use.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) servers: BTreeMap<Arc<str>, Arc<Server>>,
    pub(crate) scraper: Arc<Scraper>,
    pub(crate) kubelets: Arc<Kubelets>,
    pub(crate) adapters: BTreeMap<Arc<str>, Arc<AdapterGroup>>,
    /// The contents of the files with authorities, by path. A changed file requires new connections.
    authorities: BTreeMap<PathBuf, Vec<u8>>,
}

impl Sources {
    /// Reads the file at `path`. If `dial` is set, it opens all connections instead of the network.
    pub fn new(path: PathBuf, dial: Option<Arc<dyn Dial>>) -> Result<Self, FileError> {
        let file = SourceFile::read(&path)?;
        let current = Current::new(&file, &path, dial.as_ref(), None)?;
        Ok(Self { path, dial, current: RwLock::new(Arc::new(current)) })
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read())
    }

    /// Returns the number of pages of pods that are scraped.
    pub fn pages(&self) -> usize {
        self.current().scraper.pages()
    }

    /// Returns the number of nodes that are scraped.
    pub fn nodes(&self) -> usize {
        self.current().kubelets.nodes()
    }

    /// Returns the settings of an API group if the file allows its use by HPAs of the namespace.
    pub fn adapter(&self, api_group: &str, namespace: &str) -> Result<Arc<AdapterGroup>, SourceError> {
        let current = self.current();
        let group = current.adapters.get(api_group).ok_or(SourceError::UnknownGroup)?;
        match &group.namespaces {
            Some(namespaces) if !namespaces.contains(namespace) => Err(SourceError::Namespace),
            _ => Ok(Arc::clone(group)),
        }
    }

    /// Returns the API groups of the file, keyed by name.
    pub fn adapters(&self) -> BTreeMap<Arc<str>, Arc<AdapterGroup>> {
        self.current().adapters.clone()
    }

    /// Reloads the file. An unusable file changes nothing.
    pub fn reload(&self) -> Result<(), FileError> {
        let before = self.current();
        let next = SourceFile::read(&self.path)
            .and_then(|file| Current::new(&file, &self.path, self.dial.as_ref(), Some(&before)));
        *self.current.write() = Arc::new(next?);
        Ok(())
    }

    /// Returns whether each server is down.
    fn states(&self) -> BTreeMap<Arc<str>, bool> {
        let current = self.current();
        current.servers.iter().map(|(name, server)| (Arc::clone(name), server.is_down())).collect()
    }

    /// Reloads the file periodically, and scrapes the pages and nodes that are due. Never returns.
    pub async fn run(self: Arc<Self>, observer: impl SourceObserver) {
        let mut states = BTreeMap::new();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut scrapes, mut nodes) = (FuturesUnordered::new(), FuturesUnordered::new());
        let (mut reread, mut reported) = (Instant::now() + REREAD, None);
        loop {
            tokio::select! {
                biased;
                _ = tick.tick() => {
                    let current = self.current();
                    scrapes.extend(current.scraper.due());
                    nodes.extend(current.kubelets.due());
                    states = report_states(&states, self.states(), &observer);
                    if Instant::now() >= reread {
                        reread = Instant::now() + REREAD;
                        let result = self.reload();
                        observer.reloaded(result.is_ok());
                        report(&mut reported, result);
                    }
                }
                Some(_) = scrapes.next(), if !scrapes.is_empty() => {}
                Some(_) = nodes.next(), if !nodes.is_empty() => {}
            }
        }
    }
}

/// Reports each source with a changed state, and each source that the file no longer lists. Returns `current`.
pub fn report_states(
    previous: &BTreeMap<Arc<str>, bool>,
    current: BTreeMap<Arc<str>, bool>,
    observer: &impl SourceObserver,
) -> BTreeMap<Arc<str>, bool> {
    for server in previous.keys().filter(|server| !current.contains_key(*server)) {
        observer.down(server, None);
    }
    for (server, down) in &current {
        if previous.get(server) != Some(down) {
            observer.down(server, Some(*down));
        }
    }
    current
}

/// Logs an error that differs from the last reported error, and logs the recovery.
fn report(reported: &mut Option<FileError>, result: Result<(), FileError>) {
    let error = result.err();
    if error == *reported {
        return;
    }
    if let Some(error) = &error {
        tracing::warn!(%error, "failed to read the file of metric sources; keeping the previous sources");
    } else {
        tracing::info!("recovered: the file of metric sources is valid again");
    }
    *reported = error;
}

impl Current {
    fn new(
        file: &SourceFile,
        path: &Path,
        dial: Option<&Arc<dyn Dial>>,
        before: Option<&Self>,
    ) -> Result<Self, FileError> {
        let mut authorities = BTreeMap::new();
        let mut servers = BTreeMap::new();
        for server in file.prometheus.values() {
            let invalid = |reason: String| {
                let field = format!("prometheus server {:?}: caFile", server.name);
                FileError::Field { path: path.to_owned(), field, reason }
            };
            let unreadable = |error: io::Error| invalid(format!("cannot be read: {error}"));
            if let Some(authority) = &server.ca_file {
                read_authority(&mut authorities, authority).map_err(unreadable)?;
            }
            let known = before.and_then(|before| before.reusable(server, &authorities));
            let server = if let Some(known) = known {
                known
            } else {
                let dial = dial_of(server, dial).map_err(|error| invalid(error.to_string()))?;
                Arc::new(Server::new(server.clone(), dial))
            };
            servers.insert(Arc::clone(&server.settings().name), server);
        }
        let known = before.map(|before| &before.scraper);
        let scraper = if let Some(known) = known.filter(|scraper| *scraper.settings() == file.pods) {
            Arc::clone(known)
        } else {
            let dial = dial.map_or_else(|| Arc::new(Network::plain()) as Arc<dyn Dial>, Arc::clone);
            Arc::new(Scraper::new(file.pods.clone(), dial))
        };
        let kubelet = &file.kubelet;
        let invalid = |reason: String| FileError::Field {
            path: path.to_owned(),
            field: "kubelet.caFile".to_owned(),
            reason,
        };
        let unreadable = |error: io::Error| invalid(format!("cannot be read: {error}"));
        if let Some(authority) = kubelet.ca_file.as_ref().filter(|_| kubelet.enabled) {
            read_authority(&mut authorities, authority).map_err(unreadable)?;
        }
        let known = before.filter(|before| {
            before.kubelets.settings() == kubelet && before.has_same(kubelet.ca_file.as_deref(), &authorities)
        });
        let kubelets = if let Some(known) = known {
            Arc::clone(&known.kubelets)
        } else {
            let dial = dial_of_kubelets(kubelet, dial).map_err(|error| invalid(error.to_string()))?;
            Arc::new(Kubelets::new(kubelet.clone(), dial))
        };
        let adapters = file.adapters.clone();
        Ok(Self { servers, scraper, kubelets, adapters, authorities })
    }

    /// Returns the current server of the same name if its settings and authorities are unchanged.
    fn reusable(
        &self,
        server: &PrometheusServer,
        authorities: &BTreeMap<PathBuf, Vec<u8>>,
    ) -> Option<Arc<Server>> {
        let known = self.servers.get(&server.name).filter(|known| known.settings() == server)?;
        self.has_same(server.ca_file.as_deref(), authorities).then(|| Arc::clone(known))
    }

    /// Returns whether the file of authorities has unchanged contents.
    fn has_same(&self, authority: Option<&Path>, authorities: &BTreeMap<PathBuf, Vec<u8>>) -> bool {
        authority.is_none_or(|authority| self.authorities.get(authority) == authorities.get(authority))
    }
}

/// Reads a file of authorities, unless it was read for another source.
fn read_authority(authorities: &mut BTreeMap<PathBuf, Vec<u8>>, file: &Path) -> io::Result<()> {
    if !authorities.contains_key(file) {
        authorities.insert(file.to_owned(), std::fs::read(file)?);
    }
    Ok(())
}

fn dial_of_kubelets(
    settings: &KubeletSettings,
    dial: Option<&Arc<dyn Dial>>,
) -> Result<Arc<dyn Dial>, TlsError> {
    let network = match dial {
        Some(dial) => return Ok(Arc::clone(dial)),
        None if !settings.enabled => Ok(Network::plain()),
        None if settings.insecure_skip_verify => Network::unverified(),
        None => Network::tls(settings.ca_file.as_deref()),
    };
    Ok(Arc::new(network?))
}

fn dial_of(server: &PrometheusServer, dial: Option<&Arc<dyn Dial>>) -> Result<Arc<dyn Dial>, TlsError> {
    if let Some(dial) = dial {
        return Ok(Arc::clone(dial));
    }
    if server.url.scheme_str() != Some("https") {
        return Ok(Arc::new(Network::plain()));
    }
    Ok(Arc::new(Network::tls(server.ca_file.as_deref())?))
}
