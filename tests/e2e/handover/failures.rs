//! Replicas that shut down, die and return, and an API server that is unavailable for 30 s. Also broken guards: each
//! fault is reported with its object and field within a minute, and the HPA is contested. The built-in controller then
//! scales until the guard is repaired.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::log::{Log, Writer, first_write, judge};
use super::rig::{
    CONFIGURATION, LEASE, PERIOD, Replica, SLACK, Service, built_in, hpas, policies, replica, take, webhook,
    with_load,
};
use crate::controlplane::Keys;
use crate::election::now;
use crate::outcome::{Context as _, Failure, Outcome, Process, ensure, eventually};
use crate::rest::Rest;
use crate::world::{Autoscaler, Fixture, SOON, World};

const NAMESPACE: &str = "failures";
const WEB: (&str, &str) = (NAMESPACE, "web");
/// A standby acquires an expired Lease within this time.
const ACQUIRE: Duration = Duration::from_secs(2);

pub(crate) async fn replicas_end_die_and_return(stage: &mut Fixture) -> Outcome {
    let service = webhook(stage).await?;
    let world = World::make(stage, NAMESPACE, Autoscaler::Concertina).await?;
    hpas(&world, &["web"]).await?;
    let built_in = built_in(stage).await?;
    let run = async {
        let replicas = start(stage, &service, ["a", "b"]).await?;
        first_write(stage, false, WEB, now()).await.context(built_in.tail(20))?;
        take(stage, &world, "web").await.context(built_in.tail(20))?;
        let replicas = rolling_update(stage, &service, replicas).await?;
        let replicas = failover(stage, &service, replicas).await?;
        death_of_all(stage, &service, &world, replicas, &built_in).await
    };
    with_load(&world, &["web"], run).await
}

/// Starts two replicas behind the Service.
async fn start(stage: &Fixture, service: &Service, names: [&str; 2]) -> Outcome<Vec<Replica>> {
    let mut replicas = Vec::new();
    for name in names {
        replicas.push(replica(stage, name, &[]).await?);
        // The first replica needs the Service to prove the guard, after it has written caBundle.
        expose(service, &replicas);
    }
    for replica in &replicas {
        replica.ready().await?;
    }
    Ok(replicas)
}

fn expose(service: &Service, replicas: &[Replica]) {
    service.set(&replicas.iter().map(|replica| replica.webhook).collect::<Vec<_>>());
}

/// Replaces both replicas as the Deployment does: a new replica is ready before an old replica stops.
async fn rolling_update(
    stage: &Fixture,
    service: &Service,
    mut replicas: Vec<Replica>,
) -> Outcome<Vec<Replica>> {
    let from = now();
    for name in ["c", "d"] {
        let new = replica(stage, name, &[]).await?;
        new.ready().await?;
        replicas.push(new);
        let mut old = replicas.remove(0);
        expose(service, &replicas);
        old.process.signal("TERM")?;
        let code = old.process.wait_for_exit(SOON).await?;
        ensure(code == Some(0), || format!("a replica exited with {code:?}\n{}", old.process.tail(20)))?;
        sleep(PERIOD * 2).await;
    }
    let log = Log::read(stage, NAMESPACE, "web")?;
    let changes = log.changes_of_the_replica(from);
    ensure(changes <= 2, || format!("{changes} changes of the writing replica in one rolling update"))?;
    judge(&log.figures("rolling update", true, from, now()), PERIOD * 2 + SLACK)?;
    Ok(replicas)
}

/// Kills the leader while the standby serves the webhook.
async fn failover(stage: &Fixture, service: &Service, mut replicas: Vec<Replica>) -> Outcome<Vec<Replica>> {
    let log = Log::read(stage, NAMESPACE, "web")?;
    let Some(Writer::Replica(leader)) = log.last() else {
        return Err(Failure("the last write is not by a replica".to_owned()));
    };
    let name = format!("concertina-{leader}");
    let index = replicas.iter().position(|replica| replica.process.name() == name);
    let index = index.ok_or_else(|| Failure(format!("no process {name}")))?;
    let from = now();
    let dead = replicas.remove(index);
    dead.process.signal("KILL")?;
    expose(service, &replicas);
    let standby = replicas.first().ok_or_else(|| Failure("no standby".to_owned()))?;
    let next = standby.process.name().trim_start_matches("concertina-").to_owned();
    eventually(SOON, "the standby writes", async || {
        let log = Log::read(stage, NAMESPACE, "web")?;
        let is_next = log.last() == Some(&Writer::Replica(next.clone()));
        ensure(is_next, || format!("the last writer is {:?}", log.last()))
    })
    .await
    .context(standby.process.tail(20))?;
    sleep(PERIOD * 2).await;
    let log = Log::read(stage, NAMESPACE, "web")?;
    judge(&log.figures("failover", true, from, now()), PERIOD * 2 + LEASE + ACQUIRE + SLACK)?;
    replicas.push(replica(stage, "e", &[]).await?);
    expose(service, &replicas);
    Ok(replicas)
}

/// Kills all replicas. The built-in controller acts until new replicas have started.
async fn death_of_all(
    stage: &Fixture,
    service: &Service,
    world: &World,
    replicas: Vec<Replica>,
    built_in: &Process,
) -> Outcome {
    let killed = now();
    for replica in &replicas {
        replica.process.signal("KILL")?;
    }
    drop(replicas);
    let back = first_write(stage, false, WEB, killed).await.context(built_in.tail(20))?;
    let took = back.duration_since(killed).unsigned_abs();
    eprintln!("    kill -9 of all replicas: the built-in controller wrote after {:.1} s", took.as_secs_f32());
    ensure(took <= PERIOD + Duration::from_secs(1) + SLACK, || format!("too late: {took:?}"))?;
    // Wait until the Lease has expired.
    sleep(LEASE).await;
    let log = Log::read(stage, NAMESPACE, "web")?;
    judge(&log.figures("without replicas", false, killed + SLACK, now()), PERIOD * 2 + SLACK)?;

    let returned = now();
    let replicas = start(stage, service, ["f", "g"]).await?;
    let first = first_write(stage, true, WEB, returned).await?;
    let took = first.duration_since(returned).unsigned_abs();
    eprintln!("    return: first own write {:.1} s after the start of the processes", took.as_secs_f32());
    let settled = first + PERIOD;
    world.replicas_stay(&world.deployments("web"), 2, PERIOD * 5).await?;
    let log = Log::read(stage, NAMESPACE, "web")?;
    judge(&log.figures("from the return on", true, settled, now()), PERIOD * 2 + SLACK)?;
    let between = log.figures("return", false, returned, settled).longest_gap;
    eprintln!("    return: at most {:.1} s without a writer", between.as_secs_f32());
    ensure(between <= PERIOD * 2 + LEASE + ACQUIRE + SLACK, || format!("{between:?} without a writer"))?;
    drop(replicas);
    Ok(())
}

/// The API server is unavailable for 30 s. The leader loses its Lease, and replicas that exit are restarted.
pub(crate) async fn api_server_is_away(stage: &mut Fixture) -> Outcome {
    let service = webhook(stage).await?;
    let world = World::make(stage, NAMESPACE, Autoscaler::Concertina).await?;
    hpas(&world, &["web"]).await?;
    let built_in = built_in(stage).await?;
    let run = async {
        let mut replicas = start(stage, &service, ["a", "b"]).await?;
        take(stage, &world, "web").await.context(built_in.tail(20))?;
        stage.plane.stop_apiserver();
        sleep(Duration::from_secs(30)).await;
        stage.plane.restart_apiserver().await?;
        let back = now();
        // A replica that lost the Lease exits, and the kubelet restarts it.
        for (index, name) in [(0, "a"), (1, "b")] {
            let Some(old) = replicas.get_mut(index) else { continue };
            if old.process.still_runs().is_err() {
                *old = replica(stage, name, &[]).await?;
            }
        }
        expose(&service, &replicas);
        let first = first_write(stage, true, WEB, back).await.context(built_in.tail(20))?;
        let took = first.duration_since(back).unsigned_abs();
        eprintln!(
            "    API server away for 30 s: first own write {:.1} s after its return",
            took.as_secs_f32()
        );
        sleep(PERIOD * 6).await;
        let log = Log::read(stage, NAMESPACE, "web")?;
        let next = log.writes.iter().find(|(at, _)| *at > back).map_or(first, |(at, _)| *at);
        let gap = next.duration_since(back).unsigned_abs();
        let by_built_in = log.figures("", true, back, first).double_writes;
        eprintln!(
            "    until then {by_built_in} writes of the built-in controller, and {:.1} s without a writer",
            gap.as_secs_f32()
        );
        ensure(gap <= PERIOD * 2 + LEASE + ACQUIRE + SLACK, || format!("{gap:?} without a writer"))?;
        judge(&log.figures("after the return", true, first + PERIOD, now()), PERIOD * 2 + SLACK)?;
        world.replicas_stay(&world.deployments("web"), 2, PERIOD).await
    };
    with_load(&world, &["web"], run).await
}

const MINUTE: Duration = Duration::from_mins(1);
/// The maximum time from a repair to the next write. A broken guard is checked every 5 s, and two quiet periods follow.
const REPAIR: Duration = Duration::from_secs(30);

pub(crate) async fn broken_webhook(stage: &Fixture) -> Outcome {
    let service = webhook(stage).await?;
    let world = World::make(stage, "guards", Autoscaler::Concertina).await?;
    hpas(&world, &["web"]).await?;
    let built_in = built_in(stage).await?;
    let api = &stage.plane.admin;
    let run = async {
        let replica = replica(stage, "a", &[]).await?;
        service.set(&[replica.webhook]);
        replica.ready().await?;
        first_write(stage, false, ("guards", "web"), now() - SLACK * 4).await?;
        take(stage, &world, "web").await?;
        let right = api.get(CONFIGURATION).await?;
        let case = Case { stage, world: &world, replica: &replica, built_in: &built_in };

        let selector = json!({"matchLabels": {"team": "another"}});
        let edit = |change: &dyn Fn(&mut Value)| {
            let mut wrong = right.clone();
            change(&mut wrong["webhooks"][0]);
            wrong["webhooks"].clone()
        };
        let wrong = edit(&|webhook| webhook["namespaceSelector"] = selector.clone());
        replace(api, &wrong).await?;
        case.is_reported("wrong selector", "webhooks[0].namespaceSelector").await?;
        replace(api, &right["webhooks"]).await?;
        case.is_repaired("wrong selector").await?;

        let wrong = edit(&|webhook| webhook["failurePolicy"] = json!("Fail"));
        replace(api, &wrong).await?;
        case.is_reported("failure policy", "webhooks[0].failurePolicy").await?;
        replace(api, &right["webhooks"]).await?;
        case.is_repaired("failure policy").await?;

        api.delete(CONFIGURATION).await?;
        case.is_reported("deleted configuration", "does not exist").await?;
        let fresh = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "concertina-handover"}, "webhooks": right["webhooks"],
        });
        let collection = CONFIGURATION.rsplit_once('/').map_or(CONFIGURATION, |(collection, _)| collection);
        api.create(collection, &fresh).await?;
        case.is_repaired("deleted configuration").await?;

        let other = BASE64.encode(Keys::generate()?.authority_pem);
        let wrong = edit(&|webhook| webhook["clientConfig"]["caBundle"] = json!(other));
        wrong_authority(&case, &wrong, &other).await
    };
    with_load(&world, &["web"], run).await.context(built_in.tail(20))
}

/// The leader repairs `caBundle` itself. Until then the API server does not reach the webhook.
async fn wrong_authority(case: &Case<'_>, wrong: &Value, other: &str) -> Outcome {
    let from = now();
    replace(&case.stage.plane.admin, wrong).await?;
    eventually(MINUTE, "the leader writes caBundle", async || {
        let configuration = case.stage.plane.admin.get(CONFIGURATION).await?;
        let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
        ensure(bundle != other, || "another authority".to_owned())
    })
    .await?;
    let took = now().duration_since(from).unsigned_abs();
    eprintln!("    wrong CA: repaired by the leader after {:.1} s", took.as_secs_f32());
    case.is_in_charge("wrong CA").await
}

pub(crate) async fn deleted_binding(stage: &Fixture) -> Outcome {
    policies(stage).await?;
    let world = World::make(stage, "guards", Autoscaler::Concertina).await?;
    hpas(&world, &["web"]).await?;
    let built_in = built_in(stage).await?;
    let api = &stage.plane.admin;
    let run = async {
        let replica = replica(stage, "a", &["--handover-guard=policy"]).await?;
        replica.ready().await?;
        first_write(stage, false, ("guards", "web"), now() - SLACK * 4).await?;
        take(stage, &world, "web").await?;
        let case = Case { stage, world: &world, replica: &replica, built_in: &built_in };
        let collection = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
        let path = format!("{collection}/concertina-handover-status");
        let right = api.get(&path).await?;
        api.delete(&path).await?;
        case.is_reported("deleted binding", "concertina-handover-status does not exist").await?;
        let fresh = json!({"metadata": {"name": "concertina-handover-status"}, "spec": right["spec"]});
        api.create(collection, &fresh).await?;
        case.is_repaired("deleted binding").await
    };
    with_load(&world, &["web"], run).await.context(built_in.tail(20))
}

/// An HPA that was handed over, with both of its controllers.
struct Case<'a> {
    stage: &'a Fixture,
    world: &'a World,
    replica: &'a Replica,
    built_in: &'a Process,
}

impl Case<'_> {
    /// Waits until the replica reports the fault, the HPA is contested, and the built-in controller writes.
    async fn is_reported(&self, fault: &str, expected: &str) -> Outcome {
        let from = now();
        let status = eventually(MINUTE, fault, async || {
            let status = self.replica.status(self.stage, "guards").await?;
            let reason = status["guard"]["reason"].as_str().unwrap_or_default();
            let is_contested = status["hpas"][0]["state"] == "contested";
            ensure(is_contested && reason.contains(expected), || status.to_string())?;
            Ok(status)
        });
        let status = status.await.context(self.replica.process.tail(20))?;
        let seen = now();
        ensure(status["guard"]["state"] == "broken", || status.to_string())?;
        first_write(self.stage, false, ("guards", "web"), from).await.context(self.built_in.tail(20))?;
        sleep(PERIOD * 3).await;
        let log = Log::read(self.stage, "guards", "web")?;
        let took = seen.duration_since(from).unsigned_abs();
        eprintln!("    {fault}: reported and contested after {:.1} s", took.as_secs_f32());
        judge(&log.figures(fault, false, seen + SLACK, now()), PERIOD * 2 + SLACK)
    }

    /// Waits until Concertina is in charge again.
    async fn is_repaired(&self, fault: &str) -> Outcome {
        let from = now();
        let first = first_write(self.stage, true, ("guards", "web"), from).await;
        let first = first.context(self.replica.process.tail(20))?;
        let took = first.duration_since(from).unsigned_abs();
        eprintln!("    {fault}: in charge {:.1} s after the repair", took.as_secs_f32());
        ensure(took <= REPAIR, || format!("in charge only after {took:?}"))?;
        self.is_in_charge(fault).await
    }

    async fn is_in_charge(&self, fault: &str) -> Outcome {
        self.replica.all_are(self.stage, "guards", "in_charge", 1).await?;
        let from = now();
        sleep(PERIOD * 3).await;
        let log = Log::read(self.stage, "guards", "web")?;
        judge(&log.figures(&format!("{fault}, repaired"), true, from, now()), PERIOD * 2 + SLACK)?;
        self.world.replicas_stay(&self.world.deployments("web"), 2, PERIOD).await
    }
}

async fn replace(api: &Rest, webhooks: &Value) -> Outcome {
    api.merge(CONFIGURATION, &json!({ "webhooks": webhooks })).await.map(drop)
}
