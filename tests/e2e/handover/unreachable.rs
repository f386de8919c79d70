//! A webhook behind dropped packets: the cost for the HPAs out of scope, with one webhook for all writes and with the
//! shipped webhooks.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::log::{change_queue, widget};
use super::rig::{CONFIGURATION, LABEL, path_of, shipped};
use crate::audit::{AUTOSCALER, entries};
use crate::controlplane::free_port;
use crate::election::now;
use crate::outcome::{Failure, Outcome, ensure};
use crate::rest::Rest;
use crate::world::{Autoscaler, Fixture, World};

const NAMESPACE: &str = "unreachable";
const IN_SCOPE: &str = "hpa-0";
/// The HPAs out of scope. With the default sync period of 15 s, they need 20 status writes per second.
const OUTSIDE: u32 = 300;
const PHASE: Duration = Duration::from_secs(45);
/// The time until the queue has the depth of a phase.
const SETTLE: Duration = Duration::from_secs(20);

/// The figures of a phase.
struct Figures {
    /// Status writes of HPAs out of scope.
    outside: u32,
    /// Status writes of the HPA in scope.
    inside: u32,
}

pub(crate) async fn webhook(stage: &Fixture) -> Outcome {
    let hole = BlackHole::open().await?;
    let world = World::make(stage, NAMESPACE, Autoscaler::BuiltIn).await?;
    for index in 0..=OUTSIDE {
        widget(&world, &format!("hpa-{index}")).await?;
    }
    world.api.merge(&world.hpas(IN_SCOPE), &json!({"metadata": {"labels": {LABEL: "concertina"}}})).await?;
    tokio::select! {
        biased;
        outcome = phases(stage, &hole) => outcome,
        failure = change_queue(&world) => Err(failure),
    }
}

async fn phases(stage: &Fixture, hole: &BlackHole) -> Outcome {
    let port = free_port()?;
    let built_in = stage.plane.controllers(
        "built-in",
        "horizontal-pod-autoscaler-controller",
        &[
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", stage.plane.folder().join("manager").display()),
            "--authorization-always-allow-paths=/metrics".to_owned(),
        ],
    )?;
    let metrics = Rest::new(&format!("https://127.0.0.1:{port}"), "")?;
    let mut parts = shipped("webhook/webhook.yaml")?.remove(0);
    for webhook in parts["webhooks"].as_array_mut().into_iter().flatten() {
        webhook["clientConfig"] = json!({"url": hole.url});
    }
    let mut figures = Vec::new();
    for (title, configuration) in [
        ("without a webhook", None),
        ("one webhook for all writes, packets dropped", Some(whole(&parts))),
        ("shipped webhooks, packets dropped", Some(parts)),
    ] {
        if let Some(configuration) = &configuration {
            stage.plane.admin.create(&path_of(configuration), configuration).await?;
        }
        sleep(SETTLE).await;
        figures.push(
            phase(stage, &metrics, title)
                .await
                .map_err(|Failure(reason)| Failure(format!("{title}: {reason}\n{}", built_in.tail(20))))?,
        );
        if configuration.is_some() {
            stage.plane.admin.delete(CONFIGURATION).await?;
        }
    }
    let [none, whole, parts] = &figures[..] else { return Err(Failure("not three phases".to_owned())) };
    ensure(parts.inside > 0, || "the webhook does not fail open".to_owned())?;
    ensure(whole.outside * 2 < none.outside, || {
        format!("packets are not dropped: {} writes after {}", whole.outside, none.outside)
    })?;
    ensure(parts.outside * 4 > none.outside * 3, || {
        format!("{} writes out of scope, {} without a webhook", parts.outside, none.outside)
    })
}

/// The rules of all webhooks in one webhook, without selectors.
fn whole(parts: &Value) -> Value {
    let mut whole = parts.clone();
    let all = parts["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut one = all.first().cloned().unwrap_or_default();
    one["rules"] = all.iter().filter_map(|webhook| webhook["rules"].as_array()).flatten().cloned().collect();
    if let Some(fields) = one.as_object_mut() {
        fields.remove("objectSelector");
    }
    whole["webhooks"] = json!([one]);
    whole
}

async fn phase(stage: &Fixture, metrics: &Rest, title: &str) -> Outcome<Figures> {
    let from = now();
    let mut depths = Vec::new();
    while now().duration_since(from).unsigned_abs() < PHASE {
        depths.push(depth(metrics).await?);
        sleep(Duration::from_secs(1)).await;
    }
    let to = now();
    let (mut outside, mut inside) = (0, 0);
    for entry in entries(&stage.plane.audit_log()?) {
        let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let at: Timestamp = text("/stageTimestamp").parse()?;
        let is_status = text("/objectRef/subresource") == "status" && text("/verb") == "update";
        if text("/user/username") != AUTOSCALER || !is_status || at < from || at > to {
            continue;
        }
        if text("/objectRef/name") == IN_SCOPE { inside += 1 } else { outside += 1 }
    }
    let seconds = to.duration_since(from).as_secs_f64();
    let mean = depths.iter().sum::<f64>() / f64::from(u32::try_from(depths.len())?);
    let most = depths.iter().copied().fold(0.0, f64::max);
    eprintln!(
        "    {title}: {:.1} status writes per second of {OUTSIDE} HPAs out of scope, {inside} of the HPA in scope in \
         {seconds:.0} s, depth of the queue {mean:.0} on average and {most:.0} at most",
        f64::from(outside) / seconds
    );
    Ok(Figures { outside, inside })
}

/// The number of HPAs that wait for a worker of the built-in controller.
async fn depth(metrics: &Rest) -> Outcome<f64> {
    let text = metrics.send(http::Method::GET, "/metrics", &[], None).await?.text;
    let series = "workqueue_depth{name=\"horizontalpodautoscaler\"} ";
    let value = text.lines().find_map(|line| line.strip_prefix(series));
    Ok(value.ok_or_else(|| Failure(format!("no {series}")))?.parse()?)
}

/// A port whose queue of connections is full, so the system drops the packets of every further client.
struct BlackHole {
    url: String,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl BlackHole {
    async fn open() -> Outcome<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, 1], 0).into())?;
        let listener = socket.listen(1)?;
        let address = listener.local_addr()?;
        let mut queue = Vec::new();
        while let Ok(connected) = timeout(Duration::from_secs(2), TcpStream::connect(address)).await {
            queue.push(connected?);
            ensure(queue.len() < 100, || "the queue of connections has no limit".to_owned())?;
        }
        Ok(Self { url: format!("https://{address}/handover"), _listener: listener, _queue: queue })
    }
}
