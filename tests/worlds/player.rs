//! Plays worlds on a control plane under one controller.

use std::process::Command;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::adapter::Adapter;
use crate::controlplane::ControlPlane;
use crate::extensions::define_widgets;
use crate::gate::Gate;
use crate::outcome::{Context as _, Failure, Outcome, Process, ensure};
use crate::plan::{Call, Plan, Step};
use crate::rest::{Rest, media};
use crate::servers::{self, Backend, Proxy, Things, redirect};
use crate::trace;
use crate::{extensions, metrics};

/// The sync period. Two syncs are more than half a period apart, and the retries within a sync take less time.
const PERIOD: &str = "3s";
/// The time from the delivery of a change to its effect in the controller.
const TAKES_EFFECT: Duration = Duration::from_millis(150);

/// A world that takes longer than this is logged.
const SLOW: Duration = Duration::from_secs(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    BuiltIn,
    Concertina,
}

/// A control plane with one controller behind a proxy.
pub(crate) struct Stage {
    plane: ControlPlane,
    gate: Gate,
    backend: Backend,
    things: Things,
    proxy: Proxy,
    controller: Process,
    _adapter: Adapter,
}

impl Stage {
    pub(crate) async fn start(which: Controller) -> Outcome<Self> {
        let plane = ControlPlane::start_with_audit_policy(Some(&trace::audit_policy())).await?;
        let backend = Backend::default();
        let things = Things::default();
        let answers = (backend.clone(), things.clone());
        let adapter = Adapter::start(move |request| {
            match answers.1.answer(request.method.as_str(), &request.path, &request.body) {
                Some((code, body)) => (code, "application/json", body.to_string()),
                None => answers.0.answer(&request.path, &request.query),
            }
        })
        .await?;
        adapter.register(&plane.admin).await?;
        extensions::register(&plane.admin, adapter.port, servers::GROUP, servers::VERSION).await?;
        extensions::available(&plane.admin, servers::GROUP, servers::VERSION).await?;
        define_widgets(&plane.admin).await?;
        let gate = Gate::default();
        let proxy = Proxy::start(&plane, gate.clone()).await?;
        let controller = match which {
            Controller::BuiltIn => built_in(&plane, &proxy)?,
            Controller::Concertina => concertina(&plane, &proxy).await?,
        };
        Ok(Self { plane, gate, backend, things, proxy, controller, _adapter: adapter })
    }

    /// Plays all worlds at the same time and returns their traces.
    pub(crate) async fn play(&mut self, plans: &[Plan]) -> Outcome<trace::Traces> {
        let from = self.plane.audit_log()?.len();
        let started = Instant::now();
        let players: Vec<_> = plans
            .iter()
            .map(|plan| {
                let player = Player {
                    api: self.plane.admin.clone(),
                    gate: self.gate.clone(),
                    backend: self.backend.clone(),
                    plan: plan.clone(),
                };
                tokio::spawn(player.play())
            })
            .collect();
        let mut failures = Vec::new();
        for (plan, player) in plans.iter().zip(players) {
            if let Err(Failure(reason)) = player.await? {
                failures.push(format!("{}: {reason}", plan.namespace));
            }
        }
        self.controller.still_runs()?;
        ensure(failures.is_empty(), || format!("{}\n{}", failures.join("\n"), self.controller.tail(20)))?;
        eprintln!("    played {} worlds in {:.1} s", plans.len(), started.elapsed().as_secs_f32());
        let log = self.plane.audit_log()?;
        let mut traces = trace::read(log.get(from..).unwrap_or_default(), plans, &self.proxy.url);
        // The audit log has no bodies of requests to aggregated APIs.
        for plan in plans {
            for hpa in &plan.hpas {
                let writes = hpa.scale.as_ref().map(|scale| self.things.writes(scale)).unwrap_or_default();
                if let Some(trace) = traces.get_mut(&(plan.namespace.clone(), hpa.name.clone())) {
                    trace.writes.extend(writes);
                }
            }
        }
        Ok(traces)
    }
}

fn built_in(plane: &ControlPlane, proxy: &Proxy) -> Outcome<Process> {
    let kubeconfig = redirect(&plane.manager_kubeconfig()?, proxy)?;
    let flags = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--horizontal-pod-autoscaler-sync-period={PERIOD}"),
        // Blocked syncs occupy workers.
        "--concurrent-horizontal-pod-autoscaler-syncs=1000".to_owned(),
    ];
    plane.controllers("built-in", "horizontal-pod-autoscaler-controller", &flags)
}

async fn concertina(plane: &ControlPlane, proxy: &Proxy) -> Outcome<Process> {
    let kubeconfig = plane.service_account("kube-system", "horizontal-pod-autoscaler").await?;
    let binary = std::env::var_os("CONCERTINA_BIN")
        .map_or_else(|| env!("CARGO_BIN_EXE_concertina").into(), std::path::PathBuf::from);
    let mut command = Command::new(binary);
    command.arg("--kubeconfig").arg(redirect(&kubeconfig, proxy)?);
    command.args(["--kube-api-qps=500", "--kube-api-burst=1000", "--secure-port=0"]);
    command.args(["--leader-elect=false", "--takeover=off"]);
    // A sync then sends the requests of the built-in controller.
    command.arg("--share-metrics=false");
    command.arg("--concurrent-horizontal-pod-autoscaler-syncs=1000");
    command.arg(format!("--horizontal-pod-autoscaler-sync-period={PERIOD}"));
    Process::start("concertina", command, plane.folder())
}

/// Plays one world.
struct Player {
    api: Rest,
    gate: Gate,
    backend: Backend,
    plan: Plan,
}

impl Player {
    async fn play(self) -> Outcome {
        let namespace = &self.plan.namespace;
        self.gate.open_room(namespace);
        self.api.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
        let started = Instant::now();
        for (number, step) in self.plan.steps.iter().enumerate() {
            self.step(number, step).await.context(format!("step {number}"))?;
            if started.elapsed() > SLOW {
                let seconds = started.elapsed().as_secs();
                eprintln!("    {namespace}: step {number} ended after {seconds} s");
            }
        }
        self.gate.events_sent(namespace).await?;
        self.close().await
    }

    /// Marks the end of the trace and deletes the HPAs. Their next syncs remain blocked.
    async fn close(&self) -> Outcome {
        let namespace = &self.plan.namespace;
        let end = json!({"metadata": {"name": trace::END}});
        self.api.create(&format!("/api/v1/namespaces/{namespace}/configmaps"), &end).await?;
        for hpa in &self.plan.hpas {
            let path =
                format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{}", hpa.name);
            self.api.delete_now(&path).await?;
        }
        Ok(())
    }

    async fn step(&self, number: usize, step: &Step) -> Outcome {
        let namespace = &self.plan.namespace;
        let mut expected = Vec::new();
        for call in &step.hpa_changes {
            self.before_change(number, call).await?;
            let mut call = call.clone();
            let marker = if call.method == Method::DELETE {
                let hpa = self.api.get(&call.path).await?;
                hpa["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
            } else {
                let marker = format!("{namespace}/{number}/{}", expected.len());
                call.body["metadata"]["annotations"] = json!({"example.com/step": marker});
                marker
            };
            self.gate.expect(&marker);
            self.send(&call).await?;
            expected.push(marker);
        }
        for call in &step.changes {
            self.send(call).await?;
        }
        self.backend.set(namespace, step.readings.clone());
        // The watch of pods delivers in order, so the last pod follows all changes.
        let marker = format!("marker-{namespace}-{number}");
        self.gate.expect(&marker);
        let pod =
            json!({"metadata": {"name": marker}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
        self.api.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).await?;
        expected.push(marker);
        for marker in expected {
            self.gate.delivered(&marker).await?;
        }
        tokio::time::sleep(TAKES_EFFECT).await;
        let present = self.plan.hpas.iter().enumerate().filter(|(index, _)| !step.absent.contains(index));
        let scales: Vec<_> = present.filter_map(|(_, hpa)| hpa.scale.clone()).collect();
        self.gate.set_faults(namespace, &step.faults);
        // Allow the syncs one after another, so that two HPAs of the same pods always sync in the same order.
        let edits_follow = self.plan.steps.get(number + 1).is_some_and(|step| !step.hpa_changes.is_empty());
        for sync in 1..=step.syncs {
            for scale in &scales {
                self.gate.allow(namespace, scale);
                if scales.len() > 1 {
                    self.gate.finished(namespace).await?;
                }
            }
            if edits_follow && sync == step.syncs {
                // The edits of the next step must come between two syncs.
                self.gate.finished(namespace).await?;
            } else {
                self.gate.next_held(namespace, &scales).await?;
            }
        }
        Ok(())
    }

    /// Waits until the HPA of a change is between two syncs.
    async fn before_change(&self, number: usize, call: &Call) -> Outcome {
        if number == 0 || call.method == Method::POST {
            return Ok(());
        }
        let name = call.path.rsplit('/').next();
        let hpa = self.plan.hpas.iter().find(|hpa| Some(hpa.name.as_str()) == name);
        let Some(scale) = hpa.and_then(|hpa| hpa.scale.as_ref()) else { return Ok(()) };
        let extra = self.gate.idle(&self.plan.namespace, scale).await?;
        if extra > 0 {
            eprintln!("    {}: {extra} more syncs before step {number}", self.plan.namespace);
        }
        Ok(())
    }

    async fn send(&self, call: &Call) -> Outcome {
        let Call { method, path, body } = call;
        let media = if method == Method::PATCH { media::MERGE } else { media::JSON };
        let body = with_times(body);
        let answer = self.api.send(method.clone(), path, &[("content-type", media)], Some(&body)).await?;
        ensure(answer.code < 300, || format!("{method} {path}: {} {}\n{body}", answer.code, answer.text))
    }
}

/// Replaces texts of the form `@-60` by the time 60 s ago.
fn with_times(value: &Value) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix("@-").and_then(|age| age.parse().ok()) {
            Some(age) => Value::String(metrics::before_now(age)),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(with_times).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, field)| (name.clone(), with_times(field))).collect())
        }
        _ => value.clone(),
    }
}
