//! The time from a step in the load of an HPA to the write of its Scale, on five paths of the metric:
//!
//! - kubelet and metrics-server to the built-in controller
//! - kubelet and metrics-server to Concertina
//! - kubelet to Concertina
//! - Prometheus to Concertina
//! - metrics pages of the pods to Concertina
//!
//! All paths are measured at the same time, with equal HPAs and equal steps.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::audit::entries;
use crate::handover::rig::{LABEL, replica, webhook};
use crate::metrics::{ADDRESS, NODE, NODE_ADDRESS};
use crate::outcome::{Outcome, ensure};
use crate::reaction_sources::{
    Chain, HPAS, LAST, Load, MILLICORES, Node, Pages, Prometheus, STEP, STEPS, name, path,
};
use crate::world::{Autoscaler, Fixture, World};

/// The default period of both controllers.
const PERIOD_FLAG: &str = "--horizontal-pod-autoscaler-sync-period=15s";

/// A path of the metric from a pod to the controller.
struct Way {
    source: Source,
    namespace: &'static str,
    title: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The metrics API, to the built-in controller.
    BuiltIn,
    /// The metrics API, to Concertina.
    Chain,
    /// The kubelet, to Concertina.
    Kubelet,
    Prometheus,
    Pods,
}

const BUILT_IN: Way =
    Way { source: Source::BuiltIn, namespace: "built-in", title: "built-in controller, metrics-server" };
const SAME: Way =
    Way { source: Source::Chain, namespace: "same-chain", title: "Concertina each second, metrics-server" };
const KUBELET: Way =
    Way { source: Source::Kubelet, namespace: "kubelet", title: "Concertina each second, kubelet" };
const PROMETHEUS: Way =
    Way { source: Source::Prometheus, namespace: "prometheus", title: "Concertina each second, Prometheus" };
const PODS: Way = Way { source: Source::Pods, namespace: "pods", title: "Concertina each second, pods" };
const WAYS: [Way; 5] = [BUILT_IN, SAME, KUBELET, PROMETHEUS, PODS];

/// Seconds from each step to the write of the Scale, sorted.
struct Delays(Vec<f64>);

impl Delays {
    fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(rank).copied().unwrap_or(f64::NAN)
    }
}

/// Measures the delays of all steps, prints their percentiles, and draws them into the file that `CONCERTINA_CHART`
/// names.
pub(crate) async fn to_steps_in_load(stage: &Fixture) -> Outcome {
    let pages = Pages::start().await?;
    let node = Node::start(pages.address.ip(), KUBELET.namespace).await?;
    let service = webhook(stage).await?;
    let sources = stage.plane.folder().join("sources.yaml");
    let prometheus = Prometheus::start(stage, pages.address)?;
    let server = format!("{{name: main, url: 'http://127.0.0.1:{}'}}", prometheus.port);
    let token = stage.plane.folder().join("kubelet-token");
    std::fs::write(&token, "of-the-kubelet")?;
    let kubelet = format!(
        "{{enabled: true, insecureSkipVerify: true, bearerTokenFile: {}, port: {}, interval: 1s}}",
        token.display(),
        node.port()
    );
    let file = format!("prometheus: [{server}]\npods: {{enabled: true}}\nkubelet: {kubelet}\n");
    std::fs::write(&sources, file)?;
    let sources = format!("--metric-sources={}", sources.display());
    let replica = replica(stage, "a", &[PERIOD_FLAG, &sources]).await?;
    service.set(&[replica.webhook]);
    replica.ready().await?;
    let mut worlds = Vec::new();
    for way in WAYS {
        let world = World::make(stage, way.namespace, Autoscaler::Concertina).await?;
        if way.source != Source::BuiltIn {
            let labels = json!({"metadata": {"labels": {LABEL: "concertina"}}});
            world.api.merge(&format!("/api/v1/namespaces/{}", way.namespace), &labels).await?;
        }
        for index in 0..HPAS {
            create(&world, &way, index, &pages).await?;
        }
        worlds.push(world);
    }
    let built_in = stage.autoscaler_with(Autoscaler::BuiltIn, &[PERIOD_FLAG]).await?;
    for way in [SAME, KUBELET, PROMETHEUS, PODS] {
        replica.all_are(stage, way.namespace, "in_charge", HPAS).await?;
    }
    // Leave time for the first syncs of all HPAs.
    let load = Load::starting_in(Duration::from_secs(40));
    pages.show(load);
    node.show(load);
    let _chain = Chain::start(load, vec![worlds.remove(0), worlds.remove(0)]);
    sleep(LAST + Duration::from_secs(40)).await;
    drop((replica, built_in, prometheus));

    let mut delays = Vec::new();
    for way in WAYS {
        delays.push((way.title, delays_of(stage, &way, load)?));
    }
    let median = delays.first().map_or(f64::NAN, |(_, delays)| delays.percentile(50));
    for (title, delays) in &delays {
        let (p50, p99) = (delays.percentile(50), delays.percentile(99));
        let count = delays.0.len();
        eprintln!(
            "    {title}: p50 {p50:.2} s, p99 {p99:.2} s, {:.3} of the first, {count} steps",
            p50 / median
        );
    }
    if let Some(path) = std::env::var_os("CONCERTINA_CHART") {
        std::fs::write(path, draw(&delays))?;
    }
    Ok(())
}

/// Creates an HPA with its target and one pod. One unit of load needs one replica.
async fn create(world: &World, way: &Way, index: usize, pages: &Pages) -> Outcome {
    let (name, namespace) = (name(index), way.namespace);
    let target = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"replicas": 1},
    });
    world.api.create(world.widgets("").trim_end_matches('/'), &target).await?;
    let status = json!({"status": {"replicas": 1, "selector": format!("app={name}")}});
    world.api.merge(&format!("{}/status", world.widgets(&name)), &status).await?;
    // The address of a pod must differ from that of its node.
    let address = if way.source == Source::Kubelet { NODE_ADDRESS } else { ADDRESS };
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": name}, "annotations": {address: pages.address.ip().to_string()}},
        "spec": {"nodeName": NODE, "containers": [{
            "name": "app", "image": "example.com/app", "resources": {"requests": {"cpu": "100m"}},
            "ports": [{"containerPort": pages.address.port()}],
        }]},
    });
    world.api.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).await?;
    world.cpu(&name, MILLICORES);
    let cpu = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "AverageValue", "averageValue": format!("{}m", MILLICORES)},
    }});
    let load = json!({"type": "Pods", "pods": {
        "metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "1"},
    }});
    let page = json!({
        "port": pages.address.port(), "path": path(index), "series": "load", "intervalSeconds": 1,
    });
    let query = json!({"server": "main", "query": r#"load{pod=~"$pods"}"#});
    let (metric, policy) = match way.source {
        Source::BuiltIn => (cpu, None),
        Source::Chain => (cpu, Some(json!({"syncPeriodSeconds": 1}))),
        Source::Kubelet => (cpu, Some(each_second(&json!({"metric": "cpu", "kubelet": {}})))),
        Source::Prometheus => (load, Some(each_second(&json!({"metric": "load", "prometheus": query})))),
        Source::Pods => (load, Some(each_second(&json!({"metric": "load", "pods": page})))),
    };
    let spec = json!({"minReplicas": 1, "maxReplicas": 2 * STEPS, "metrics": [metric]});
    world.hpa(&name, ("example.com/v1", "Widget", &name), spec).await?;
    let Some(policy) = policy else { return Ok(()) };
    let policy = json!({"metadata": {"annotations": {"concertina.dev/policy": policy.to_string()}}});
    world.api.merge(&world.hpas(&name), &policy).await.map(drop)
}

/// The policy of an HPA that reads a metric and syncs each second.
fn each_second(metric: &Value) -> Value {
    json!({"syncPeriodSeconds": 1, "metrics": [metric]})
}

/// The time from each step to the first write of the Scale after it, in the audit log of the API server.
fn delays_of(stage: &Fixture, way: &Way, load: Load) -> Outcome<Delays> {
    let mut writes = BTreeMap::<String, Vec<Timestamp>>::new();
    for entry in entries(&stage.plane.audit_log()?) {
        let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let is_write = text("/verb") == "update" && text("/objectRef/subresource") == "scale";
        let code = entry.pointer("/responseStatus/code").and_then(Value::as_i64);
        if is_write && text("/objectRef/namespace") == way.namespace && code == Some(200) {
            writes
                .entry(text("/objectRef/name").to_owned())
                .or_default()
                .push(text("/requestReceivedTimestamp").parse()?);
        }
    }
    let mut delays = Vec::new();
    for index in 0..HPAS {
        let writes = writes.remove(&name(index)).unwrap_or_default();
        for step in 0..STEPS {
            let at = load.time_of(index, step);
            let first = writes.iter().find(|write| **write >= at && **write < at + STEP);
            let write = first.ok_or_else(|| {
                format!("{}: no write of {} within {STEP:?} of step {step}", way.title, name(index))
            })?;
            delays.push(write.duration_since(at).as_secs_f64());
        }
    }
    ensure(delays.len() == HPAS * STEPS, || format!("{} delays", delays.len()))?;
    delays.sort_by(f64::total_cmp);
    Ok(Delays(delays))
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 20.0;
/// The end of the time axis, in seconds.
const SECONDS: u32 = 45;
/// Colours that also differ in brightness.
const COLOURS: [&str; 5] = ["#7f1d1d", "#c2410c", "#15803d", "#6d28d9", "#0369a1"];

/// Draws the share of answered steps over time, as SVG.
fn draw(delays: &[(&str, Delays)]) -> String {
    let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
    let x = |seconds: f64| LEFT + WIDTH * (seconds / f64::from(SECONDS)).min(1.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>Share of steps in load that are answered after a time</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        right + 20.0,
        bottom + 40.0 + 20.0 * 5.0,
    );
    for percent in [0, 25, 50, 75, 100] {
        let y = bottom - HEIGHT * f64::from(percent) / 100.0;
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{percent} %</text>",
            LEFT - 6.0,
            y + 4.0,
        );
    }
    for seconds in (0..=SECONDS).step_by(5) {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{seconds} s</text>",
            x(seconds.into()),
            bottom + 18.0,
        );
    }
    for (index, ((title, delays), colour)) in delays.iter().zip(COLOURS).enumerate() {
        let mut line = format!("M{LEFT} {bottom}");
        let mut answered = 0.0;
        let share = HEIGHT / f64::from(u32::try_from(delays.0.len().max(1)).unwrap_or(u32::MAX));
        for delay in &delays.0 {
            answered += share;
            let _ = write!(line, "H{:.1}V{:.1}", x(*delay), bottom - answered);
        }
        let y = bottom + 40.0 + 20.0 * f64::from(u32::try_from(index).unwrap_or_default());
        let _ = writeln!(
            svg,
            "<path d=\"{line}H{right}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <path d=\"M{LEFT} {}h24\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"{}\" y=\"{y}\">{title}: half of the steps within {:.1} s, 99 % within {:.1} s</text>",
            y - 4.0,
            LEFT + 32.0,
            delays.percentile(50),
            delays.percentile(99),
        );
    }
    svg.push_str("</svg>\n");
    svg
}
