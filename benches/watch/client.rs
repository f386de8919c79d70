//! The client process of a run: a watch that fills a store.

use std::fmt::Debug;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster::client::{ClientOptions, Clients};
use cluster::decode::{self, HpaObject, WirePod};
use cluster::watch::{DeletedObject, HpaCache, Sink, WatchOptions, Watched, watch_of};
use engine::reconcile::PodIntake;
use engine::store::{HpaRecord, Hpas, Key, Pods};
use futures::{StreamExt as _, pin_mut};
use http::Uri;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Api;
use kube::client::Body;
use kube::client::middleware::BaseUriLayer;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tower::Layer as _;

use super::slim::{Content, Hpa, HpaNames, Metadata, Names, Object, Pod, PodNames, Raw};
use super::{Arrival, Failure, Figures, Resource, Run, Variant, cpu_seconds};

/// Time limit of a run.
const TIMEOUT: Duration = Duration::from_mins(1);

pub(super) fn run(run: Run) -> Result<Figures, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, measure(run)).await? })
}

async fn measure(run: Run) -> Result<Figures, Failure> {
    let (pods, hpas) = (Arc::new(Pods::new()), Arc::new(Hpas::new()));
    let pod_sink = || PodIntake::new(Arc::clone(&pods), None);
    let hpa_sink = || HpaStore(Arc::clone(&hpas));
    let progress =
        Arc::new(Progress { listed: OnceLock::new(), left: run.events.into(), done: Notify::new() });
    std::fs::write("/proc/self/clear_refs", "5")?;
    let (memory, started) = (kilobytes("VmRSS:")?, cpu_seconds()?);
    match (run.resource, run.variant) {
        (Resource::Pods, Variant::Ours) => ours(run, cluster::watch::Pods, pod_sink(), &progress).await?,
        (Resource::Hpas, Variant::Ours) => {
            let known = Some(Arc::clone(&hpas) as Arc<dyn HpaCache>);
            ours(run, cluster::watch::Hpas { known }, hpa_sink(), &progress).await?;
        }
        (Resource::Pods, Variant::Slim) => {
            let apply = |_: &mut PodIntake, pod: Pod<String>| {
                pod.store(&pods);
                Ok(())
            };
            kube::<_, PodNames, WirePod<'_>, _>(run, pod_sink(), &progress, apply).await?;
        }
        (Resource::Pods, Variant::Raw) => {
            let apply = |sink: &mut PodIntake, raw: Raw| {
                sink.apply(decode::pod(raw.0.get().as_bytes())?);
                Ok(())
            };
            kube::<_, PodNames, WirePod<'_>, _>(run, pod_sink(), &progress, apply).await?;
        }
        (Resource::Hpas, Variant::Slim) => {
            let apply = |sink: &mut HpaStore, hpa: Hpa| {
                sink.0.apply(without_bytes(hpa)?);
                Ok(())
            };
            kube::<_, HpaNames, HpaObject, _>(run, hpa_sink(), &progress, apply).await?;
        }
        (Resource::Hpas, Variant::Raw) => {
            let apply = |sink: &mut HpaStore, raw: Raw| {
                let known = |namespace: &str, name: &str| HpaCache::known(&*sink.0, namespace, name);
                let object = decode::decode_cached_hpa(raw.0.get().as_bytes(), known)?;
                sink.apply(object);
                Ok(())
            };
            kube::<_, HpaNames, HpaObject, _>(run, hpa_sink(), &progress, apply).await?;
        }
    }
    let (ended, listed) = (cpu_seconds()?, *progress.listed.get().ok_or("the list is not complete")?);
    let stored = if run.resource == Resource::Pods { pods.len() } else { hpas.len() };
    if stored != run.objects {
        return Err(format!("{stored} objects instead of {}", run.objects).into());
    }
    Ok(Figures {
        list: (listed - started) * 1e6 / run.objects as f64,
        event: (ended - listed) * 1e6 / run.events as f64,
        peak: kilobytes("VmHWM:")? - memory,
        retained: kilobytes("VmRSS:")? - memory,
        bytes: 0.0,
    })
}

/// Runs `cluster::watch` until the last event.
async fn ours<W, S>(run: Run, resource: W, sink: S, progress: &Arc<Progress>) -> Result<(), Failure>
where
    W: Watched,
    S: for<'a> Sink<W::Object<'a>> + 'static,
{
    let connector = tower::service_fn(move |_: Uri| connect(run.port));
    let clients = Clients::over(connector, &ClientOptions::default())?;
    let options = WatchOptions { streaming_lists: run.arrival == Arrival::Burst, ..WatchOptions::default() };
    let sink = Counted { sink, progress: Arc::clone(progress) };
    let (_, watching) = watch_of(resource, clients.watch, options, sink);
    tokio::select! {
        biased;
        () = progress.done.notified() => {}
        () = watching => {}
    }
    Ok(())
}

/// Runs kube's watcher until the last event. `apply` puts an object into the sink.
async fn kube<T, N, O, S>(
    run: Run,
    mut sink: S,
    progress: &Progress,
    apply: impl Fn(&mut S, T) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    T: Content + DeserializeOwned + Clone + Debug + Send + 'static,
    N: Names,
    S: Sink<O>,
{
    // These settings are the same as in the clients of `cluster`.
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .http1_max_buf_size(32 * 1024)
        .build::<_, Body>(tower::service_fn(move |_: Uri| Box::pin(connect(run.port))));
    let http = BaseUriLayer::new(Uri::from_static("http://embedded/")).layer(http);
    let api = Api::<Object<T, N>>::all(kube::Client::new(http, "default"));
    let config = Config::default();
    let config = if run.arrival == Arrival::Burst { config.streaming_lists() } else { config };
    let events = watcher(api, config).default_backoff();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event? {
            Event::Init => sink.start(),
            Event::InitApply(object) => apply(&mut sink, object.content)?,
            Event::InitDone => {
                sink.done();
                progress.listed();
            }
            Event::Apply(object) => {
                apply(&mut sink, object.content)?;
                if progress.last_event() {
                    break;
                }
            }
            Event::Delete(_) => return Err("a deletion".into()),
        }
    }
    Ok(())
}

async fn connect(port: u16) -> io::Result<TokioIo<TcpStream>> {
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    stream.set_nodelay(true)?;
    Ok(TokioIo::new(stream))
}

/// The progress of a run.
struct Progress {
    /// The CPU seconds at the end of the list.
    listed: OnceLock<f64>,
    /// The number of remaining events.
    left: AtomicUsize,
    /// Notified after the last event.
    done: Notify,
}

impl Progress {
    fn listed(&self) {
        self.listed.get_or_init(|| cpu_seconds().unwrap_or(f64::NAN));
    }

    /// Counts an event. Returns whether it is the last event of the run.
    fn last_event(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// A sink that records the progress.
struct Counted<S> {
    sink: S,
    progress: Arc<Progress>,
}

impl<T, S: Sink<T>> Sink<T> for Counted<S> {
    fn start(&mut self) {
        self.sink.start();
    }

    fn apply(&mut self, object: T) {
        self.sink.apply(object);
        if self.progress.listed.get().is_some() && self.progress.last_event() {
            self.progress.done.notify_one();
        }
    }

    fn delete(&mut self, object: DeletedObject) {
        self.sink.delete(object);
    }

    fn done(&mut self) {
        self.sink.done();
        self.progress.listed();
    }
}

/// A sink that fills the store of HPAs, without a work queue.
struct HpaStore(Arc<Hpas>);

impl Sink<HpaObject> for HpaStore {
    fn start(&mut self) {
        self.0.begin(None);
    }

    fn apply(&mut self, object: HpaObject) {
        self.0.apply(HpaRecord::from(object));
    }

    fn delete(&mut self, object: DeletedObject) {
        self.0.delete(&Key::new(object.namespace, object.name), &object.uid);
    }

    fn done(&mut self) {
        self.0.finish(None);
    }
}

/// Converts an HPA to a record without the received bytes.
fn without_bytes(hpa: Hpa) -> Result<HpaRecord, Failure> {
    let Metadata { name, namespace, uid, generation, .. } = hpa.metadata;
    Ok(HpaRecord {
        key: Key::new(namespace, name),
        uid: uid.into(),
        generation,
        // kube keeps the resourceVersion in its own metadata.
        resource_version: String::new(),
        metadata: to_raw_value(&())?,
        spec_raw: to_raw_value(&())?.into(),
        spec: Arc::new(hpa.spec),
        status: Arc::new(hpa.status),
        status_writers: Vec::new(),
    })
}

fn kilobytes(field: &str) -> Result<f64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.ok_or_else(|| format!("no {field} in /proc/self/status"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
