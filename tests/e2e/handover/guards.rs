//! Guards that break: each fault is seen within a minute, reported with its object and field, and contested. The
//! built-in controller scales until the guard is right again.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::log::{Log, first_write, judge};
use super::rig::{
    CONFIGURATION, PERIOD, Replica, SLACK, built_in, hpas, policies, replica, take, webhook, with_load,
};
use crate::assets::Keys;
use crate::election::now;
use crate::fixture::{Autoscaler, Fixture};
use crate::outcome::{Context as _, Outcome, ensure, eventually};
use crate::process::Process;
use crate::rest::Rest;
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);
/// The guard is checked every 5 s while it is broken. Two quiet periods follow.
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

/// One HPA that was handed over, and its guard.
struct Case<'a> {
    stage: &'a Fixture,
    world: &'a World,
    replica: &'a Replica,
    built_in: &'a Process,
}

impl Case<'_> {
    /// Waits until the fault is reported with the HPA contested, and the built-in controller writes.
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
