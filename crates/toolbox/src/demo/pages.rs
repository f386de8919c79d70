//! The metrics pages of the pods of `burst`. The controller scrapes the pages without a network, because they come from
//! this process.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use fake_cluster::Cluster;
use fake_cluster::load::{LoadId, LoadMetrics, WorkState};
use fake_cluster::pages::{PageResponse, PageServers};
use parking_lot::Mutex;
use serde_json::Value;
use sources::{Dial, FileError, InMemory, Sources};

use super::world::{DemoWorld, NAMESPACE, PAGE_PORT};

/// The source file of the demo.
pub(super) const SOURCE_FILE: &str = "pods: {enabled: true}\n";

/// The counter of a pod.
#[derive(Debug, Clone, Copy)]
struct Counter {
    /// The requests that the pod has served.
    requests: f64,
    /// The requests of all pods at the last scrape of the pod.
    of_all: f64,
}

/// The pods, with a counter for each scraped pod, by address.
#[derive(Debug)]
struct Pages {
    cluster: Cluster,
    load: Arc<LoadMetrics>,
    burst: LoadId,
    counters: Mutex<BTreeMap<String, Counter>>,
}

/// The sources of the controller. `file` has the text of [`SOURCE_FILE`].
pub(super) fn sources(world: &DemoWorld, file: PathBuf) -> Result<Arc<Sources>, FileError> {
    let pages = Arc::new(Pages {
        cluster: world.cluster.clone(),
        load: Arc::clone(&world.load),
        burst: world.burst,
        counters: Mutex::default(),
    });
    let servers = PageServers::without_requests();
    let dial: Arc<dyn Dial> = Arc::new(InMemory::new(move |address: &str| {
        let running = pages.running();
        pages.counters.lock().retain(|other, _| {
            let is_running = running.contains(other);
            if !is_running {
                servers.remove(other);
            }
            is_running
        });
        if !running.iter().any(|other| other == address) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (pages, key) = (Arc::clone(&pages), address.to_owned());
        servers.serve(address, move |_| PageResponse::page(pages.page(&key)));
        servers.dial(address)
    }));
    Ok(Arc::new(Sources::new(file, Some(dial))?))
}

impl Pages {
    /// The addresses of the running pods of `burst`.
    fn running(&self) -> Vec<String> {
        let pods = self.cluster.list("pods", Some(NAMESPACE));
        let text = |pod: &Value, path: &str| pod.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let is_running = |pod: &&Value| {
            text(pod, "/metadata/labels/app").as_deref() == Some("burst")
                && text(pod, "/status/phase").as_deref() == Some("Running")
        };
        let address = |pod: &Value| Some(format!("{}:{PAGE_PORT}", text(pod, "/status/podIP")?));
        pods.iter().filter(is_running).filter_map(address).collect()
    }

    /// The page of a pod: each ready pod serves the same share of all requests.
    fn page(&self, address: &str) -> String {
        let Some(state) = self.load.state(self.burst) else { return String::new() };
        let of_all = state.work.iter().map(|WorkState { served, .. }| served).sum();
        let mut counters = self.counters.lock();
        let counter = counters.entry(address.to_owned()).or_insert(Counter { requests: 0.0, of_all });
        counter.requests += (of_all - counter.of_all) / state.ready.max(1) as f64;
        counter.of_all = of_all;
        format!(
            "# TYPE http_requests_total counter\nhttp_requests_total{{code=\"200\"}} {}\n",
            counter.requests
        )
    }
}
