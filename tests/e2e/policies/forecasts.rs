//! A floor from the past of a real Prometheus, next to the built-in controller, which scales an equal workload by the
//! same load.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::sleep;

use super::ANNOTATION;
use crate::election::now;
use crate::handover::rig::{LABEL, replica, webhook};
use crate::outcome::{Outcome, ensure, eventually};
use crate::reaction_sources::Prometheus;
use crate::world::{APP, Autoscaler, Fixture, SOON, World, external};

/// The time from the start of the test to the load of each day. The pods start within three minutes, so the floor comes
/// two minutes earlier.
const AHEAD: SignedDuration = SignedDuration::from_mins(6);
/// The minutes of the load.
const LENGTH: i64 = 10;
/// The sync period of both controllers.
const PERIOD: &str = "--horizontal-pod-autoscaler-sync-period=5s";

/// The jobs of 14 days, one sample a minute: 30, and 300 for ten minutes from the time of day of `load`.
fn past(load: Timestamp) -> String {
    let mut text = "# TYPE jobs gauge\n".to_owned();
    let first = now() - SignedDuration::from_hours(14 * 24);
    for minute in 0..14 * 1440 {
        let at = first + SignedDuration::from_mins(minute);
        let since = at.duration_since(load).as_mins().rem_euclid(1440);
        let jobs = if since < LENGTH { 300 } else { 30 };
        let _ = writeln!(text, "jobs {jobs} {}", at.as_second());
    }
    text + "# EOF\n"
}

pub(crate) async fn come_from_prometheus(stage: &Fixture) -> Outcome {
    let load = now() + AHEAD;
    Prometheus::fill(stage, &past(load))?;
    let prometheus = Prometheus::start(stage, SocketAddr::from((Ipv4Addr::LOCALHOST, 9)))?;
    let sources = stage.plane.folder().join("sources.yaml");
    std::fs::write(
        &sources,
        format!("prometheus: [{{name: main, url: 'http://127.0.0.1:{}'}}]", prometheus.port),
    )?;
    let service = webhook(stage).await?;
    let replica = replica(stage, "a", &[PERIOD, &format!("--metric-sources={}", sources.display())]).await?;
    service.set(&[replica.webhook]);
    replica.ready().await?;
    let (ours, theirs) = (
        World::make(stage, "with-past", Autoscaler::Concertina).await?,
        World::make(stage, "without-past", Autoscaler::BuiltIn).await?,
    );
    let labels = json!({"metadata": {"labels": {LABEL: "concertina"}}});
    ours.api.merge("/api/v1/namespaces/with-past", &labels).await?;
    for world in [&ours, &theirs] {
        world.deployment("web", 3, APP).await?;
        world.external("queue", &["30"]);
        let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [external("queue", "AverageValue", "10")]});
        world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    }
    let forecast = json!({"forecast": {
        "mode": "Floor", "horizonSeconds": 180, "budget": "20%", "history": {"server": "main", "query": "jobs"},
    }});
    let policy = json!({"metadata": {"annotations": {ANNOTATION: forecast.to_string()}}});
    ours.api.merge(&ours.hpas("web"), &policy).await?;
    let built_in = stage.autoscaler_with(Autoscaler::BuiltIn, &[PERIOD]).await?;
    replica.all_are(stage, "with-past", "in_charge", 1).await?;

    let (web, plain) = (ours.deployments("web"), theirs.deployments("web"));
    let left = Duration::try_from(load.duration_since(now())).unwrap_or_default();
    eventually(left, "the floor comes before the load", async || {
        let replicas = ours.replicas(&web).await?;
        ensure(replicas == 8, || format!("{replicas} replicas, {}", prometheus.port))
    })
    .await?;
    let early = load.duration_since(now()).as_secs();
    eventually(SOON, "the condition names the forecast", async || {
        let text = ours.api.get(&ours.hpas("web")).await?["status"]["conditions"].to_string();
        ensure(text.contains("\"ForecastFloor\""), || text)
    })
    .await?;
    sleep(Duration::try_from(load.duration_since(now())).unwrap_or_default()).await;
    let counts = [ours.replicas(&web).await?, theirs.replicas(&plain).await?];
    ensure(counts == [8, 3], || format!("{counts:?} at the time of the load"))?;
    for world in [&ours, &theirs] {
        world.external("queue", &["300"]);
    }
    let started = now();
    // The metric decides as without a floor.
    ours.replicas_become(&web, 10).await?;
    let delays = [now().duration_since(started), {
        theirs.replicas_become(&plain, 10).await?;
        now().duration_since(started)
    }];
    eprintln!("    the floor comes {early} s before the load; at 10 replicas after {delays:?}");
    drop((replica, built_in, prometheus));
    Ok(())
}
