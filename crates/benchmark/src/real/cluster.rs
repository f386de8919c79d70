//! A real control plane with a workload and the observers of a controller.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::control_plane::{ADMIN_TOKEN, ControlPlane, Rest, aggregation, collection, convert_error};
use super::counters::{Counters, Idle, Meter};
use super::hpa_watch::{Follower, WatchState};
use super::metrics_server::{APIS, Stub};
use crate::Failure;
use crate::observations::{ObservationLog, Observations, RequestCount, Usage, now};
use crate::run::ServerUnderLoad;
use crate::server::{TimedEvent, plan};
use crate::workload::Workload;
use crate::world::World;

/// The duration of the measurement of the idle server.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// The sampling interval of the controller's connections.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time until the watch shows created HPAs.
const WATCH_TIMEOUT: Duration = Duration::from_mins(1);

/// etcd, API server and metrics server, with the observers of the controller.
pub(super) struct RealCluster {
    pub(super) plane: ControlPlane,
    stub: Arc<Stub>,
    follower: Arc<Follower>,
    workload: Workload,
    world: Arc<World>,
    /// The number of created apps.
    apps: usize,
    /// The number of HPAs. The first apps have HPAs.
    hpas: usize,
    idle: Idle,
    pub(super) kubeconfig: PathBuf,
    measuring: Option<Measuring>,
}

/// The running tasks of the measured time, and the counters at its start.
struct Measuring {
    until: Instant,
    happening: JoinHandle<Result<(), Failure>>,
    metering: JoinHandle<()>,
    meter: Arc<Mutex<Meter>>,
    counters: Counters,
    first: ProcessUsage,
}

/// The resource usage of each process at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessUsage {
    api_server: Usage,
    etcd: Usage,
    own: Usage,
}

/// CPU seconds of each process, per second or per request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) api_server: f64,
    pub(super) etcd: f64,
    /// This program, which contains the metrics server.
    pub(super) own: f64,
}

impl ProcessUsage {
    /// Returns the CPU seconds per second between this sample and `later`. `time` is the interval in seconds.
    pub(super) fn until(&self, later: &Self, time: f64) -> Share {
        Share {
            api_server: (later.api_server.cpu - self.api_server.cpu) / time,
            etcd: (later.etcd.cpu - self.etcd.cpu) / time,
            own: (later.own.cpu - self.own.cpu) / time,
        }
    }
}

impl Share {
    pub(super) fn less(self, other: &Self) -> Self {
        Self {
            api_server: self.api_server - other.api_server,
            etcd: self.etcd - other.etcd,
            own: self.own - other.own,
        }
    }

    pub(super) fn per(self, count: f64) -> Self {
        Self { api_server: self.api_server / count, etcd: self.etcd / count, own: self.own / count }
    }
}

impl RealCluster {
    /// Starts an empty cluster with the metrics APIs.
    pub(super) async fn start() -> Result<Self, Failure> {
        // Audit logging would cost the server CPU time for each request.
        let plane = convert_error(ControlPlane::start_with_audit_policy(None).await)?;
        let (stub, port) = Stub::start().await?;
        convert_error(aggregation::name(&plane.admin, port).await)?;
        for (_, group, version, ..) in APIS {
            convert_error(aggregation::register(&plane.admin, port, group, version).await)?;
        }
        for (_, group, version, ..) in APIS {
            convert_error(aggregation::available(&plane.admin, group, version).await)?;
        }
        let follower = Arc::new(Follower::start(&plane.url, ADMIN_TOKEN).await?);
        let workload = Workload::named("W1").ok_or("no workload W1")?;
        let world = Arc::new(World::new(&workload));
        Ok(Self {
            plane,
            stub,
            follower,
            workload,
            world,
            apps: 0,
            hpas: 0,
            idle: Idle::default(),
            kubeconfig: PathBuf::new(),
            measuring: None,
        })
    }

    /// Loads a workload into the cluster. Surplus apps of the previous workload remain, without HPAs and metrics.
    pub(super) async fn load_workload(&mut self, workload: &Workload) -> Result<(), Failure> {
        let world = Arc::new(World::new(workload));
        let (api, all) = (self.plane.admin.clone(), workload.all_hpas());
        let apps = all + workload.probes;
        // This call names the pods of existing apps. The names are equal in every world.
        (0..self.apps.min(apps)).for_each(|number| drop(world.objects_of_app(number)));
        create_namespaces(&api, workload.namespaces).await?;
        if apps > self.apps {
            eprintln!("loading {} apps of {} pods each", apps - self.apps, workload.pods);
            create_apps(&api, &world, self.apps..apps).await?;
            self.apps = apps;
        }
        delete_hpas(&api, &self.world, all..self.hpas).await?;
        create_hpas(&api, &world, self.hpas..all).await?;
        self.hpas = all;
        self.stub.set_world(workload, Arc::clone(&world));
        (self.workload, self.world) = (workload.clone(), world);
        let deadline = Instant::now() + WATCH_TIMEOUT;
        while self.follower.count()? != all {
            if Instant::now() > deadline {
                return Err(format!("the watch shows only {} of {all} HPAs", self.follower.count()?).into());
            }
            sleep(SAMPLE_INTERVAL).await;
        }
        Ok(())
    }

    /// Drops the observations of the previous controller, deletes the HPAs of probes and restores the replica counts.
    pub(super) async fn reset(&mut self) -> Result<(), Failure> {
        let (api, all) = (&self.plane.admin, self.workload.all_hpas());
        delete_hpas(api, &self.world, all..all + self.workload.probes).await?;
        for key in self.world.reset_load() {
            let Some((namespace, name)) = key.split_once('/') else { continue };
            let deployment = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
            let replicas = json!({"spec": {"replicas": self.workload.pods}});
            convert_error(api.merge(&deployment, &replicas).await)?;
        }
        self.follower.state()?.sightings = ObservationLog::new(&self.workload, self.world.keys());
        Ok(())
    }

    /// Measures the requests and the CPU time of the idle server. No controller may run during this call.
    pub(super) async fn measure_idle(&mut self) -> Result<Share, Failure> {
        let before = Counters::read(&self.plane.admin).await?;
        let (first, start) = (self.used()?, Instant::now());
        sleep(IDLE_TIME).await;
        let (last, time) = (self.used()?, start.elapsed().as_secs_f64());
        let after = Counters::read(&self.plane.admin).await?;
        self.idle = Idle::between(&before, &after, time);
        let share = first.until(&last, time);
        eprintln!(
            "idle: the API server uses {:.1} % of a core, etcd {:.1} %, this program {:.1} %",
            share.api_server * 100.0,
            share.etcd * 100.0,
            share.own * 100.0
        );
        Ok(share)
    }

    pub(super) fn used(&self) -> Result<ProcessUsage, Failure> {
        Ok(ProcessUsage {
            api_server: Usage::of_process(convert_error(self.plane.process_id("kube-apiserver"))?)?,
            etcd: Usage::of_process(convert_error(self.plane.process_id("etcd"))?)?,
            own: Usage::own()?,
        })
    }
}

impl ServerUnderLoad for RealCluster {
    fn title(&self) -> String {
        "kube-apiserver and etcd".to_owned()
    }

    fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    async fn measure(&mut self, time: Duration, controller: u32) -> Result<(), Failure> {
        let port = self.plane.url.rsplit(':').next().unwrap_or_default().parse()?;
        let meter = Arc::new(Mutex::new(Meter::start(controller, port)?));
        let counters = Counters::read(&self.plane.admin).await?;
        let first = self.used()?;
        let until = Instant::now() + time;
        self.stub.take_counts();
        self.follower.state()?.sightings.seen.begin = now();
        let playing = run_events(
            self.workload.clone(),
            Arc::clone(&self.world),
            self.plane.admin.clone(),
            Arc::clone(&self.follower),
            time,
        );
        let sampled = Arc::clone(&meter);
        let metering = tokio::spawn(async move {
            loop {
                sleep(SAMPLE_INTERVAL).await;
                // A failure means that the controller has exited, which other checks detect.
                let _ = sampled.lock().sample();
            }
        });
        let happening = tokio::spawn(playing);
        self.measuring = Some(Measuring { until, happening, metering, meter, counters, first });
        Ok(())
    }

    async fn observed(&mut self) -> Result<Observations, Failure> {
        let Measuring { until, happening, metering, meter, counters, first } =
            self.measuring.take().ok_or("no measurement is running")?;
        sleep_until(until).await;
        let last = self.used()?;
        metering.abort();
        let (counted, mut by_second) = self.stub.take_counts();
        let mut seen = self.follower.state()?.sightings.seen.clone();
        seen.end = now();
        let (received, sent) = {
            let mut meter = meter.lock();
            meter.sample()?;
            meter.total()
        };
        happening.await??;
        let time = (seen.end - seen.begin) as f64 / 1e6;
        let requests = Counters::read(&self.plane.admin).await?.since(&counters, &self.idle, time);
        seen.requests = requests.into_iter().filter(is_of_controller).chain(counted).collect();
        for at in seen.hpas.values().flat_map(|seen| &seen.statuses) {
            *by_second.entry(at.div_euclid(1_000_000)).or_default() += 1;
        }
        let whole = seen.begin.div_euclid(1_000_000) + 1..seen.end.div_euclid(1_000_000);
        seen.seconds = whole.map(|second| by_second.get(&second).copied().unwrap_or(0)).collect();
        (seen.received, seen.sent) = (received, sent);
        seen.cpu = last.api_server.cpu - first.api_server.cpu;
        seen.etcd_cpu = Some(last.etcd.cpu - first.etcd.cpu);
        seen.beside_cpu = Some(last.own.cpu - first.own.cpu);
        seen.resident = last.api_server.resident;
        Ok(seen)
    }
}

/// Returns whether the counted requests come from the controller. This program sends the other requests, or counts them
/// at its metrics server.
fn is_of_controller(counted: &RequestCount) -> bool {
    let is_of_probes = counted.resource == "horizontalpodautoscalers.autoscaling"
        && matches!(counted.verb.as_str(), "create" | "patch" | "delete");
    !is_of_probes && !counted.resource.ends_with("metrics.k8s.io")
}

async fn run_events(
    workload: Workload,
    world: Arc<World>,
    api: Rest,
    follower: Arc<Follower>,
    time: Duration,
) -> Result<(), Failure> {
    let start = Instant::now();
    let sightings =
        |with: &mut dyn FnMut(&mut WatchState)| follower.state().map(|mut known| with(&mut known));
    for (after, happening) in plan(&workload, time) {
        sleep_until(start + after).await;
        match happening {
            TimedEvent::Creation(number) => {
                sightings(&mut |it| it.sightings.await_first(world.key(number)))?;
                create_hpas(&api, &world, number..number + 1).await?;
            }
            TimedEvent::SpecChange(number) => {
                let (key, Some(hpa)) = (world.key(number), world.hpa(number)) else { continue };
                let mut next = None;
                sightings(&mut |it| {
                    next = it.generation(&key).map(|generation| generation + 1);
                    if let Some(next) = next {
                        it.sightings.await_generation(&key, now(), next);
                    }
                })?;
                let next = next.ok_or_else(|| format!("the watch has not shown HPA {key}"))?;
                // Every generation has a different maximum.
                let change = json!({"spec": {"maxReplicas": 200 + next}});
                convert_error(api.merge(&path(&hpa), &change).await)?;
            }
            // A workload for a real server has no policies.
            TimedEvent::PolicyChange(_) => {}
            TimedEvent::Step => sightings(&mut |it| it.sightings.await_scales(world.step()))?,
        }
    }
    Ok(())
}

/// The maximum number of requests in flight while objects are loaded.
const AT_ONCE: usize = 48;
/// The number of apps between two progress messages.
const PROGRESS_INTERVAL: usize = 1_000;
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn create_namespaces(api: &Rest, count: usize) -> Result<(), Failure> {
    for number in 0..count {
        let namespace = json!({"metadata": {"name": format!("team-{number:03}")}});
        put(api, Method::POST, "/api/v1/namespaces", &namespace).await?;
    }
    Ok(())
}

/// Creates the Deployments and pods of apps with their statuses.
async fn create_apps(api: &Rest, world: &World, numbers: Range<usize>) -> Result<(), Failure> {
    let done = AtomicUsize::new(0);
    stream::iter(numbers)
        .map(|number| (number, world.objects_of_app(number)))
        .map(|(number, objects)| {
            let done = &done;
            async move {
                for object in objects {
                    with_status(api, &object).await?;
                }
                if done.fetch_add(1, Ordering::Relaxed) % PROGRESS_INTERVAL == PROGRESS_INTERVAL - 1 {
                    eprintln!("created app {number}");
                }
                Ok(())
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn create_hpas(api: &Rest, world: &World, numbers: Range<usize>) -> Result<(), Failure> {
    let creations = numbers
        .filter_map(|number| world.hpa(number))
        .map(async |hpa| put(api, Method::POST, &collection(&hpa), &hpa).await);
    stream::iter(creations).buffer_unordered(AT_ONCE).try_collect().await
}

/// Deletes the HPAs of apps. Missing HPAs are not an error.
async fn delete_hpas(api: &Rest, world: &World, numbers: Range<usize>) -> Result<(), Failure> {
    let deletions = numbers
        .filter_map(|number| world.hpa(number))
        .map(async |hpa| convert_error(api.delete_now(&path(&hpa)).await));
    stream::iter(deletions).buffer_unordered(AT_ONCE).try_collect().await
}

/// Returns the API path of an object.
pub(super) fn path(object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    format!("{}/{name}", collection(object))
}

async fn with_status(api: &Rest, object: &Value) -> Result<(), Failure> {
    put(api, Method::POST, &collection(object), object).await?;
    put(api, Method::PUT, &format!("{}/status", path(object)), object).await
}

/// Sends an object. A conflict is not an error, because each step of a search creates the namespaces again.
async fn put(api: &Rest, method: Method, path: &str, object: &Value) -> Result<(), Failure> {
    let answer = convert_error(api.send(method.clone(), path, &JSON, Some(object)).await)?;
    match answer.code {
        0..300 | 409 => Ok(()),
        code => Err(format!("{method} {path}: {code} {}", answer.text.trim()).into()),
    }
}
