//! A real control plane with a workload in it, as the surroundings of a controller.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::follow::{Follower, Known};
use super::load;
use super::pages::{Counters, Idle};
use super::plane::{ADMIN_TOKEN, ControlPlane, Rest, aggregation, told};
use super::sockets::Meter;
use super::stub::{APIS, Stub};
use crate::Failure;
use crate::observed::{Counted, Observed, now};
use crate::process::Usage;
use crate::run::Surroundings;
use crate::server::happenings::{Happening, plan};
use crate::sightings::Sightings;
use crate::workload::Workload;
use crate::world::World;

/// How long the server is left alone to learn what it asks by itself.
const QUIET: Duration = Duration::from_secs(10);
/// How often the connections of the controller are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long the watch may take to show what was created.
const PATIENCE: Duration = Duration::from_mins(1);

/// etcd, API server and metrics server, and who looks on.
pub(super) struct RealCluster {
    pub(super) plane: ControlPlane,
    stub: Arc<Stub>,
    follower: Arc<Follower>,
    workload: Workload,
    world: Arc<World>,
    /// Apps that are there, of which the first so many have an HPA.
    apps: usize,
    hpas: usize,
    idle: Idle,
    pub(super) kubeconfig: PathBuf,
    measuring: Option<Measuring>,
}

/// What goes on in the measured time.
struct Measuring {
    until: Instant,
    happening: JoinHandle<Result<(), Failure>>,
    metering: JoinHandle<()>,
    meter: Arc<Mutex<Meter>>,
    counters: Counters,
    first: Used,
}

/// What the processes have used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    api_server: Usage,
    etcd: Usage,
    own: Usage,
}

/// CPU seconds of each process per second, or per whatever else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) api_server: f64,
    pub(super) etcd: f64,
    /// This program.
    pub(super) own: f64,
}

impl Used {
    /// What was used until another moment, `time` seconds later.
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
    /// An empty cluster with the metrics APIs.
    pub(super) async fn start() -> Result<Self, Failure> {
        // Nothing is logged: that would cost the server time for each request.
        let plane = told(ControlPlane::logging(None).await)?;
        let (stub, port) = Stub::start().await?;
        told(aggregation::name(&plane.admin, port).await)?;
        for (_, group, version, ..) in APIS {
            told(aggregation::register(&plane.admin, port, group, version).await)?;
        }
        for (_, group, version, ..) in APIS {
            told(aggregation::available(&plane.admin, group, version).await)?;
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

    /// Makes the cluster hold a workload. Apps that another one has left stay, without an HPA and without metrics.
    pub(super) async fn hold(&mut self, workload: &Workload) -> Result<(), Failure> {
        let world = Arc::new(World::new(workload));
        let (api, all) = (self.plane.admin.clone(), workload.all_hpas());
        let apps = all + workload.probes;
        // Names are the same in every world.
        (0..self.apps.min(apps)).for_each(|number| drop(world.furnish(number)));
        load::namespaces(&api, workload.namespaces).await?;
        if apps > self.apps {
            eprintln!("loading {} apps of {} pods each", apps - self.apps, workload.pods);
            load::apps(&api, &world, self.apps..apps).await?;
            self.apps = apps;
        }
        load::delete_hpas(&api, &self.world, all..self.hpas).await?;
        load::hpas(&api, &world, self.hpas..all).await?;
        self.hpas = all;
        self.stub.show(workload, Arc::clone(&world));
        (self.workload, self.world) = (workload.clone(), world);
        let deadline = Instant::now() + PATIENCE;
        while self.follower.count()? != all {
            if Instant::now() > deadline {
                return Err(format!("{} HPAs of {all} are there", self.follower.count()?).into());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Forgets what was seen of an earlier controller, and makes the cluster as it was before that.
    pub(super) async fn reset(&mut self) -> Result<(), Failure> {
        let (api, all) = (&self.plane.admin, self.workload.all_hpas());
        load::delete_hpas(api, &self.world, all..all + self.workload.probes).await?;
        for key in self.world.calm() {
            let Some((namespace, name)) = key.split_once('/') else { continue };
            let deployment = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
            let replicas = json!({"spec": {"replicas": self.workload.pods}});
            told(api.merge(&deployment, &replicas).await)?;
        }
        self.follower.known()?.sightings = Sightings::of(&self.workload, self.world.keys());
        Ok(())
    }

    /// Learns what the server asks itself; nobody else may ask meanwhile. And what all use then.
    pub(super) async fn listen(&mut self) -> Result<Share, Failure> {
        let before = Counters::read(&self.plane.admin).await?;
        let (first, begin) = (self.used()?, Instant::now());
        sleep(QUIET).await;
        let (last, time) = (self.used()?, begin.elapsed().as_secs_f64());
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

    pub(super) fn used(&self) -> Result<Used, Failure> {
        Ok(Used {
            api_server: Usage::of(told(self.plane.id_of("kube-apiserver"))?)?,
            etcd: Usage::of(told(self.plane.id_of("etcd"))?)?,
            own: Usage::own()?,
        })
    }
}

impl Surroundings for RealCluster {
    fn title(&self) -> String {
        "kube-apiserver and etcd".to_owned()
    }

    fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    async fn measure(&mut self, time: Duration, controller: u32) -> Result<(), Failure> {
        let port = self.plane.url.rsplit(':').next().unwrap_or_default().parse()?;
        let meter = Arc::new(Mutex::new(Meter::begin(controller, port)?));
        let counters = Counters::read(&self.plane.admin).await?;
        let first = self.used()?;
        let until = Instant::now() + time;
        self.stub.take_counts();
        self.follower.known()?.sightings.seen.begin = now();
        let playing = play(
            self.workload.clone(),
            Arc::clone(&self.world),
            self.plane.admin.clone(),
            Arc::clone(&self.follower),
            time,
        );
        let looked = Arc::clone(&meter);
        let metering = tokio::spawn(async move {
            loop {
                sleep(LOOK).await;
                // A controller that has ended is missed by others.
                let _ = looked.lock().unwrap_or_else(PoisonError::into_inner).look();
            }
        });
        let happening = tokio::spawn(playing);
        self.measuring = Some(Measuring { until, happening, metering, meter, counters, first });
        Ok(())
    }

    async fn observed(&mut self) -> Result<Observed, Failure> {
        let Measuring { until, happening, metering, meter, counters, first } =
            self.measuring.take().ok_or("nothing is measured")?;
        sleep_until(until).await;
        let last = self.used()?;
        metering.abort();
        let (counted, mut by_second) = self.stub.take_counts();
        let mut seen = self.follower.known()?.sightings.seen.clone();
        seen.end = now();
        let (received, sent) = {
            let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
            meter.look()?;
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

/// Whether requests can be those of a controller: others are of this program, or counted where they are answered.
fn is_of_controller(counted: &Counted) -> bool {
    let is_of_probes = counted.resource == "horizontalpodautoscalers.autoscaling"
        && matches!(counted.verb.as_str(), "create" | "patch" | "delete");
    !is_of_probes && !counted.resource.ends_with("metrics.k8s.io")
}

/// Lets a workload's happenings come to pass.
async fn play(
    workload: Workload,
    world: Arc<World>,
    api: Rest,
    follower: Arc<Follower>,
    time: Duration,
) -> Result<(), Failure> {
    let begin = Instant::now();
    let sightings = |with: &mut dyn FnMut(&mut Known)| follower.known().map(|mut known| with(&mut known));
    for (after, happening) in plan(&workload, time) {
        sleep_until(begin + after).await;
        match happening {
            Happening::Creation(number) => {
                sightings(&mut |it| it.sightings.await_first(world.key(number)))?;
                load::hpas(&api, &world, number..number + 1).await?;
            }
            Happening::SpecChange(number) => {
                let (key, Some(hpa)) = (world.key(number), world.hpa(number)) else { continue };
                let mut next = None;
                sightings(&mut |it| {
                    next = it.generation(&key).map(|generation| generation + 1);
                    if let Some(next) = next {
                        it.sightings.await_generation(&key, now(), next);
                    }
                })?;
                let next = next.ok_or_else(|| format!("the watch knows no HPA {key}"))?;
                // Another maximum with every generation.
                let change = json!({"spec": {"maxReplicas": 200 + next}});
                told(api.merge(&load::path(&hpa), &change).await)?;
            }
            Happening::Step => sightings(&mut |it| it.sightings.await_scales(world.step()))?,
        }
    }
    Ok(())
}
