//! Replicas of this controller, the built-in controller, and a model of the guard between the built-in controller and
//! the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::ShiftedClock;
use cluster::client::{ClientOptions, Clients};
use cluster::events::{EventOptions, Recorder};
use cluster::gate::Gate;
use cluster::status::Statuses;
use coexist::handover::charges::{Charges, Counts, GuardProof};
use coexist::handover::scope::Scope;
use concertina::app::client_options;
use controller::assembly::{Assembly, Parts, Phase};
use controller::page::page;
use engine::reconcile::{ApiClients, Controller, Guests, Runtime};
use engine::store::Key;
use engine::telemetry::metrics::Metrics;
use fake_cluster::{Answer, Exchange, Link, LoggedRequest, Server};
use flags::Config;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::objects::{SHOP, hpa};
use crate::support::{Fixture, copy};

/// The user agent and the field manager of the built-in controller.
pub(crate) const OTHER: &str = "kube-controller-manager";
pub(crate) const LABEL: &str = "concertina.dev/controller";
/// Time by which the clock of the built-in controller is ahead. Names of events contain the time, so equal clocks would
/// give equal names.
const AHEAD: SignedDuration = SignedDuration::from_micros(7);

/// One replica of this controller, without the election: the test selects the leader.
pub(crate) struct Replica {
    assembly: Assembly,
    pub(crate) telemetry: Metrics,
    stop: CancellationToken,
    pub(crate) gate: Arc<Gate>,
}

impl Replica {
    pub(crate) fn start(stage: &Fixture) -> Self {
        Self::with(stage, |_| {})
    }

    pub(crate) fn with(stage: &Fixture, change: impl FnOnce(&mut Config)) -> Self {
        Self::behind(stage, None, change)
    }

    /// Like [`Self::with`], but requests to the cluster pass through `link`, unless it is `None`.
    pub(crate) fn behind(
        stage: &Fixture,
        link: Option<Arc<dyn Link>>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = Config::default();
        config.controller.scope = Scope::Labelled;
        change(&mut config);
        let telemetry = Metrics::new();
        let options = client_options(&config, &telemetry);
        let gate = Arc::clone(&options.gate);
        let clients = clients(stage, link, &options);
        let stop = CancellationToken::new();
        let parts = Parts {
            clients: &clients,
            options: &config.controller,
            clock: Arc::clone(&stage.clock),
            telemetry: telemetry.clone(),
            observers: Vec::new(),
            seed: 0,
            phase: Phase::FirstSync,
        };
        let assembly = Assembly::start(parts, &stop);
        let handover = Arc::clone(assembly.handover.as_ref().unwrap());
        let options = EventOptions { component: "concertina".to_owned(), ..EventOptions::default() };
        let (notices, sender) = Recorder::new(clients.notices.clone(), Arc::clone(&stage.clock), options);
        tokio::spawn(stop.clone().run_until_cancelled_owned(sender));
        let (synced, stopped) = (assembly.synced(), stop.clone());
        tokio::spawn(async move {
            synced.await;
            handover.charges().set_synced();
            stopped.run_until_cancelled(handover.run(clients.watch.clone(), notices)).await;
        });
        Self { assembly, telemetry, stop, gate }
    }

    pub(crate) fn charges(&self) -> &Arc<Charges> {
        self.assembly.handover.as_ref().unwrap().charges()
    }

    /// Whether the store has an HPA of the namespace `shop`.
    pub(crate) fn has_stored(&self, name: &str) -> bool {
        self.assembly.controller.stores.hpas.get(&Key::new(SHOP, name)).is_some()
    }

    /// Reports that the guard's objects are correct.
    pub(crate) fn prove(&self) {
        self.charges().guard(GuardProof::Proven { since: jiff::Timestamp::UNIX_EPOCH });
    }

    pub(crate) fn disprove(&self) {
        self.charges().guard(GuardProof::Broken { reason: "no webhook configuration".to_owned() });
    }

    /// Starts to lead once the caches are synced. `after` is the time since another replica led, if any did.
    pub(crate) fn lead(&self, after: Option<Duration>) {
        let (synced, stop) = (self.assembly.synced(), self.stop.clone());
        let handover = Arc::clone(self.assembly.handover.as_ref().unwrap());
        let controller = Arc::clone(&self.assembly.controller);
        tokio::spawn(async move {
            synced.await;
            handover.leads(after, Duration::from_secs(15));
            controller.stores.histories.start_restore();
            controller.run(stop).await;
        });
    }

    /// Number of HPAs by state, such as `outside 2 in_charge 1`.
    pub(crate) fn counts(&self) -> String {
        let Counts { outside, claiming, in_charge, contested } = self.charges().counts();
        let all = [
            ("outside", outside),
            ("claiming", claiming),
            ("in_charge", in_charge),
            ("contested", contested),
        ];
        let some = all.iter().filter(|(_, count)| *count > 0);
        some.map(|(state, count)| format!("{state} {count}")).collect::<Vec<_>>().join(" ")
    }

    /// The state of an HPA of the namespace `shop`.
    pub(crate) fn state(&self, name: &str) -> &'static str {
        self.charges().state(&Key::new(SHOP, name)).map_or("outside", |state| state.as_str())
    }

    /// The page `/handover`.
    pub(crate) fn page(&self) -> Value {
        let answer = page(Some(Arc::clone(self.charges())), "webhook")(None);
        serde_json::from_slice(&answer.json).unwrap()
    }

    /// The page `/parity`.
    pub(crate) fn parity(&self) -> Value {
        serde_json::to_value(self.assembly.parity.as_ref().unwrap().report()).unwrap()
    }

    /// The row of an HPA in the page.
    pub(crate) fn row(&self, name: &str) -> Value {
        let page = self.page();
        page["hpas"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned().unwrap()
    }

    /// The value of a series in the text of `/metrics`, or 0 if it is missing.
    pub(crate) fn series(&self, series: &str) -> f64 {
        let text = self.telemetry.render();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0.0)
    }

    /// Number of keys that the queue has received.
    pub(crate) fn syncs(&self) -> f64 {
        self.series("workqueue_adds_total{name=\"horizontalpodautoscaler\"}")
    }

    /// Stops the replica at once, without another write.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.gate.leads_until(Instant::now());
        self.stop.cancel();
    }
}

/// The built-in controller, active until it is dropped.
pub(crate) struct BuiltIn {
    stop: CancellationToken,
    pub(crate) guard: Option<Arc<Guarded>>,
}

impl BuiltIn {
    pub(crate) fn start(stage: &Fixture, guard: Option<Arc<Guarded>>) -> Self {
        let mut built_in = Self::behind(stage, guard.clone().map(|guard| guard as Arc<dyn Link>));
        built_in.guard = guard;
        built_in
    }

    /// Starts the built-in controller. Its requests to the cluster pass through `link`, unless it is `None`.
    pub(crate) fn behind(stage: &Fixture, link: Option<Arc<dyn Link>>) -> Self {
        let config = Config::default();
        let options =
            ClientOptions { user_agent: OTHER.to_owned(), gate: Gate::open(), ..Default::default() };
        let clients = clients(stage, link, &options);
        let stop = CancellationToken::new();
        let parts = Parts {
            clients: &clients,
            options: &config.controller,
            clock: Arc::new(ShiftedClock { clock: Arc::clone(&stage.clock), ahead: AHEAD }),
            telemetry: Metrics::new(),
            observers: Vec::new(),
            seed: 1,
            phase: Phase::FirstSync,
        };
        let assembly = Assembly::start(parts, &stop);
        let copied = copy(&assembly.controller);
        let statuses = Statuses::new(clients.core.clone(), OTHER);
        let controller = Arc::new(Controller {
            guests: Guests::default(),
            clients: ApiClients { statuses, ..copied.clients.clone() },
            runtime: Runtime { decisions_end: CancellationToken::new(), ..copied.runtime.clone() },
            ..copied
        });
        let stopped = stop.clone();
        tokio::spawn(async move {
            assembly.synced().await;
            controller.run(stopped).await;
        });
        Self { stop, guard: None }
    }
}

impl Drop for BuiltIn {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn clients(stage: &Fixture, link: Option<Arc<dyn Link>>, options: &ClientOptions) -> Clients {
    let Some(link) = link else { return Clients::over(stage.cluster.connector(), options).unwrap() };
    let cluster = stage.cluster.clone();
    let connector = tower::service_fn(move |_: http::Uri| {
        let stream = cluster.dial_through(Arc::clone(&link));
        async move { Ok::<_, std::io::Error>(TokioIo::new(stream)) }
    });
    Clients::over(connector, options).unwrap()
}

/// A model of the webhook. It refuses writes about HPAs that are in scope for the replica that answers.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// The replica that answers. `None` if the API server reaches no replica.
    charges: Mutex<Option<Arc<Charges>>>,
    /// Whether a replica holds the Lease.
    is_led: AtomicBool,
    unguarded: Mutex<BTreeSet<String>>,
}

impl Guarded {
    /// A guard that a replica serves, with a live leader.
    pub(crate) fn by(replica: &Replica) -> Arc<Self> {
        Arc::new(Self {
            charges: Mutex::new(Some(Arc::clone(replica.charges()))),
            is_led: AtomicBool::new(true),
            unguarded: Mutex::default(),
        })
    }

    /// The same guard, but without protection of one HPA.
    pub(crate) fn except(self: Arc<Self>, name: &str) -> Arc<Self> {
        self.unguarded.lock().insert(name.to_owned());
        self
    }

    pub(crate) fn guard(&self, name: &str) {
        self.unguarded.lock().remove(name);
    }

    /// Changes the replica that answers.
    pub(crate) fn serve(&self, replica: Option<&Replica>) {
        *self.charges.lock() = replica.map(|replica| Arc::clone(replica.charges()));
    }

    pub(crate) fn lead(&self, is_led: bool) {
        self.is_led.store(is_led, Ordering::Relaxed);
    }

    /// The HPA that a refused request is about. `None` if the request is allowed.
    fn refused(&self, exchange: &Exchange) -> Option<String> {
        let charges = self.charges.lock().clone().filter(|charges| charges.is_synced())?;
        if matches!(exchange.verb, "get" | "list" | "watch") || !self.is_led.load(Ordering::Relaxed) {
            return None;
        }
        let segments: Vec<_> = exchange.path.trim_matches('/').split('/').collect();
        let hpa = match segments.as_slice() {
            [.., "horizontalpodautoscalers", name, "status"] => (*name).to_owned(),
            [.., _, name, "scale"] => charges.targets(SHOP, name).first()?.hpa.to_string(),
            [.., "events"] | [.., "events", _] => {
                let body: Value = serde_json::from_slice(&exchange.body).ok()?;
                let by_name =
                    segments.last().and_then(|name| name.split_once('.')).map(|(name, _)| name.to_owned());
                body["involvedObject"]["name"].as_str().map(str::to_owned).or(by_name)?
            }
            _ => return None,
        };
        (charges.is_in_scope(SHOP, &hpa) && !self.unguarded.lock().contains(&hpa)).then(|| {
            charges.write_refused(SHOP, &hpa);
            hpa
        })
    }
}

impl Link for Guarded {
    fn carry(self: Arc<Self>, exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            match self.refused(&exchange) {
                None => server.answer(exchange).await,
                Some(hpa) => Answer::json(
                    403,
                    json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                        "message": format!("admission webhook denied the request: {hpa} is scaled by concertina"),
                        "code": 403,
                    })
                    .to_string(),
                ),
            }
        })
    }
}

/// An HPA whose label has `value`.
pub(crate) fn labelled(name: &str, metrics: &[Value], value: &str) -> Value {
    let mut object = hpa(name, metrics);
    object["metadata"]["labels"] = json!({ LABEL: value });
    object
}

/// Sets or removes the label of an HPA.
pub(crate) fn label(stage: &Fixture, name: &str, value: Option<&str>) {
    stage.edit(name, |hpa| set(hpa, value));
}

/// Sets or removes the label of the namespace `shop`.
pub(crate) fn namespace_label(stage: &Fixture, value: Option<&str>) {
    let mut namespace = stage.cluster.get("namespaces", "", SHOP).unwrap();
    set(&mut namespace, value);
    stage.cluster.update(namespace).unwrap();
}

fn set(object: &mut Value, value: Option<&str>) {
    match value {
        Some(value) => object["metadata"]["labels"][LABEL] = json!(value),
        None => {
            if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
                labels.remove(LABEL);
            }
        }
    }
}

/// Times of the successful Scale and status writes of this controller about an HPA and its target.
pub(crate) fn ours(stage: &Fixture, name: &str) -> Vec<Duration> {
    writes(stage, name, "concertina")
}

/// Like [`ours`], but for the built-in controller.
pub(crate) fn theirs(stage: &Fixture, name: &str) -> Vec<Duration> {
    writes(stage, name, OTHER)
}

fn writes(stage: &Fixture, name: &str, user_agent: &str) -> Vec<Duration> {
    let (scale, status) = (format!("/{name}/scale"), format!("/{name}/status"));
    stage.times(|request: &LoggedRequest| {
        request.verb == "update"
            && request.code == Some(200)
            && (request.path.ends_with(&scale) || request.path.ends_with(&status))
            && request.user_agent.starts_with(user_agent)
    })
}
