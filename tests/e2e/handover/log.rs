//! The writes of one HPA or its target in the audit log, by writer. Also measures the load of refused writes of the
//! built-in controller on the API server: the requests and the CPU time per HPA and sync.

use std::time::Duration;
use std::{fmt, fs};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::rig::{LABEL, PERIOD, built_in, replica, webhook};
use crate::audit::{AUTOSCALER, entries};
use crate::election::now;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::world::{Autoscaler, Fixture, SOON, World, external};

/// The prefix of the user names of the replicas.
const REPLICAS: &str = "system:serviceaccount:replicas:";

/// The writer of a status or a scale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Writer {
    BuiltIn,
    /// The name of the replica's account.
    Replica(String),
}

impl Writer {
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Replica(_))
    }
}

/// The successful and the refused writes, by time.
pub(crate) struct Log {
    pub(crate) writes: Vec<(Timestamp, Writer)>,
    /// Refused writes of the built-in controller.
    pub(crate) refused: Vec<Timestamp>,
    /// Refused events of the built-in controller about the HPA.
    pub(crate) refused_events: usize,
}

/// The figures of a period in which only one side may write.
pub(crate) struct Figures {
    pub(crate) title: String,
    /// Number of writes by the side that may not write.
    pub(crate) double_writes: usize,
    /// The longest time between two successive writes by any writer.
    pub(crate) longest_gap: Duration,
    /// Number of writes by both sides.
    pub(crate) writes: usize,
    pub(crate) refused: usize,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, double_writes, longest_gap, writes, refused } = self;
        let gap = longest_gap.as_secs_f32();
        write!(
            f,
            "    {title}: {double_writes} double writes, at most {gap:.1} s without a writer \
             ({writes} writes, {refused} refused)"
        )
    }
}

impl Log {
    /// Reads the writes of the status or the scale of `name` in `namespace`.
    pub(crate) fn read(stage: &Fixture, namespace: &str, name: &str) -> Outcome<Self> {
        let mut log = Self { writes: Vec::new(), refused: Vec::new(), refused_events: 0 };
        for entry in entries(&stage.plane.audit_log()?) {
            let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let is_about = text("/objectRef/namespace") == namespace && text("/objectRef/name") == name;
            let is_event = text("/objectRef/namespace") == namespace
                && text("/objectRef/resource") == "events"
                && text("/objectRef/name").split_once('.').is_some_and(|(about, _)| about == name);
            let is_refused = entry.pointer("/responseStatus/code").and_then(Value::as_i64) == Some(403);
            if is_event && is_refused && text("/user/username") == AUTOSCALER {
                log.refused_events += 1;
            }
            let is_autoscaling = matches!(text("/objectRef/subresource"), "status" | "scale");
            if !is_about || text("/verb") != "update" || !is_autoscaling {
                continue;
            }
            let writer = match text("/user/username") {
                AUTOSCALER => Writer::BuiltIn,
                user => match user.strip_prefix(REPLICAS) {
                    Some(replica) => Writer::Replica(replica.to_owned()),
                    None => continue,
                },
            };
            let at = text("/requestReceivedTimestamp").parse()?;
            match entry.pointer("/responseStatus/code").and_then(Value::as_i64) {
                Some(200..=299) => log.writes.push((at, writer)),
                Some(403) if writer == Writer::BuiltIn => log.refused.push(at),
                _ => {}
            }
        }
        log.writes.sort_by_key(|(at, _)| *at);
        log.refused.sort();
        Ok(log)
    }

    /// The writes of one side after a time.
    pub(crate) fn by(&self, ours: bool, after: Timestamp) -> Vec<Timestamp> {
        let same = self.writes.iter().filter(|(at, writer)| *at > after && writer.is_ours() == ours);
        same.map(|(at, _)| *at).collect()
    }

    pub(crate) fn last(&self) -> Option<&Writer> {
        self.writes.last().map(|(_, writer)| writer)
    }

    /// The figures of the period from `from` to `to`, in which `ours` selects the side that may write. The first gap
    /// starts at the last write before `from`.
    pub(crate) fn figures(&self, title: &str, ours: bool, from: Timestamp, to: Timestamp) -> Figures {
        let within: Vec<_> = self.writes.iter().filter(|(at, _)| *at >= from && *at <= to).collect();
        let before = self.writes.iter().rev().find(|(at, _)| *at < from).map_or(from, |(at, _)| *at);
        let mut last = before;
        let mut longest_gap = Duration::ZERO;
        for at in within.iter().map(|(at, _)| *at).chain([to]) {
            longest_gap = longest_gap.max(at.duration_since(last).unsigned_abs());
            last = at;
        }
        Figures {
            title: title.to_owned(),
            double_writes: within.iter().filter(|(_, writer)| writer.is_ours() != ours).count(),
            longest_gap,
            writes: within.len(),
            refused: self.refused.iter().filter(|at| **at >= from && **at <= to).count(),
        }
    }

    /// Counts the changes from one writing replica to another.
    pub(crate) fn changes_of_the_replica(&self, from: Timestamp) -> usize {
        let replicas: Vec<_> =
            self.writes.iter().filter(|(at, writer)| *at >= from && writer.is_ours()).collect();
        replicas.windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
    }
}

/// Waits for the first write of one side after a time.
pub(crate) async fn first_write(
    stage: &Fixture,
    ours: bool,
    (namespace, name): (&str, &str),
    after: Timestamp,
) -> Outcome<Timestamp> {
    let side = if ours { "Concertina" } else { "the built-in controller" };
    eventually(SOON, &format!("{side} writes {name}"), async || {
        let writes = Log::read(stage, namespace, name)?.by(ours, after);
        writes.first().copied().ok_or_else(|| Failure("no write".to_owned()))
    })
    .await
}

/// Fails on a double write or on a gap longer than `longest_gap`.
pub(crate) fn judge(figures: &Figures, longest_gap: Duration) -> Outcome {
    eprintln!("{figures}");
    ensure(figures.double_writes == 0 && figures.longest_gap <= longest_gap, || {
        format!("{figures}; allowed: 0 double writes, {longest_gap:?} without a writer")
    })
}

const HPAS: u32 = 100;
const NAMESPACE: &str = "cost";
const PHASE: Duration = Duration::from_secs(40);

/// Requests of the built-in controller in one phase.
#[derive(Debug, Default)]
struct Requests {
    reads: u32,
    writes: u32,
    refused: u32,
    /// Conflicts with writes of Concertina, and patches of events whose creation was refused.
    failed: u32,
}

/// Measures three phases: the built-in controller alone, both controllers, and Concertina alone. Every sync has a
/// status to write.
pub(crate) async fn refused_loop(stage: &Fixture) -> Outcome {
    let service = webhook(stage).await?;
    let world = World::make(stage, NAMESPACE, Autoscaler::Concertina).await?;
    for index in 0..HPAS {
        widget(&world, &format!("hpa-{index}")).await?;
    }
    tokio::select! {
        biased;
        outcome = phases(stage, &world, &service) => outcome,
        failure = change_queue(&world) => Err(failure),
    }
}

/// Creates a target without pods, and its HPA.
pub(crate) async fn widget(world: &World, name: &str) -> Outcome {
    let body = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"replicas": 2},
    });
    world.api.create(world.widgets("").trim_end_matches('/'), &body).await?;
    let status = json!({"status": {"replicas": 2, "selector": format!("app={name}")}});
    world.api.merge(&format!("{}/status", world.widgets(name)), &status).await?;
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 9, "metrics": [external("queue", "AverageValue", "100")],
    });
    world.hpa(name, ("example.com/v1", "Widget", name), spec).await
}

/// Changes the metric of all targets constantly, within the tolerance of two replicas.
pub(crate) async fn change_queue(world: &World) -> Failure {
    for step in 0_i64.. {
        world.external("queue", &[&(190 + step % 20).to_string()]);
        sleep(Duration::from_millis(700)).await;
    }
    Failure("the load ended".to_owned())
}

async fn phases(stage: &Fixture, world: &World, service: &super::rig::Service) -> Outcome {
    let built_in = built_in(stage).await?;
    sleep(PERIOD * 5).await;
    let (before, cpu_before) = phase(stage, "built-in controller alone").await?;

    let replica = replica(stage, "a", &[]).await?;
    service.set(&[replica.webhook]);
    replica.ready().await?;
    let patch = json!({"metadata": {"labels": {LABEL: "concertina"}}});
    world.api.merge(&format!("/api/v1/namespaces/{NAMESPACE}"), &patch).await?;
    replica.all_are(stage, NAMESPACE, "in_charge", usize::try_from(HPAS)?).await?;
    sleep(PERIOD * 5).await;
    let (refused, cpu_both) = phase(stage, "built-in controller refused, next to Concertina").await?;
    drop(built_in);
    sleep(PERIOD * 3).await;
    let (_, cpu_ours) = phase(stage, "Concertina alone").await?;

    let syncs = f64::from(HPAS) * PHASE.as_secs_f64() / PERIOD.as_secs_f64();
    let per_sync = |count: u32| f64::from(count) / syncs;
    let cpu = |seconds: f64| seconds / syncs * 1e3;
    eprintln!(
        "    per HPA and sync of the built-in controller: {:.2} reads, {:.2} writes and {:.2} ms of API server CPU \
         before; {:.2} reads, {:.2} refused and {:.2} failed writes and {:.2} ms refused",
        per_sync(before.reads),
        per_sync(before.writes),
        cpu(cpu_before),
        per_sync(refused.reads),
        per_sync(refused.refused),
        per_sync(refused.failed),
        cpu(cpu_both - cpu_ours),
    );
    ensure(refused.writes == 0, || format!("{} writes were not refused", refused.writes))
        .context(replica.process.tail(20))
}

/// Counts the requests of the built-in controller, and the CPU seconds of the API server.
async fn phase(stage: &Fixture, title: &str) -> Outcome<(Requests, f64)> {
    let (from, cpu) = (now(), cpu_seconds(stage)?);
    sleep(PHASE).await;
    let (to, cpu) = (now(), cpu_seconds(stage)? - cpu);
    let requests = Requests::read(stage, from, to)?;
    eprintln!("    {title}: {requests:?} in {PHASE:?}, {cpu:.2} s of the API server's CPU");
    Ok((requests, cpu))
}

/// User and system time of the API server so far.
fn cpu_seconds(stage: &Fixture) -> Outcome<f64> {
    /// Clock ticks per second on Linux.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{}/stat", stage.plane.process_id("kube-apiserver")?))?;
    // The name of the program, in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks = fields.skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS)
}

impl Requests {
    fn read(stage: &Fixture, from: Timestamp, to: Timestamp) -> Outcome<Self> {
        let mut requests = Self::default();
        for entry in entries(&stage.plane.audit_log()?) {
            let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let at: Timestamp = text("/requestReceivedTimestamp").parse()?;
            if text("/user/username") != AUTOSCALER || at < from || at > to {
                continue;
            }
            let code = entry.pointer("/responseStatus/code").and_then(Value::as_i64).unwrap_or_default();
            match text("/verb") {
                "get" | "list" => requests.reads += 1,
                "create" | "update" | "patch" => match code {
                    403 => requests.refused += 1,
                    200..=299 => requests.writes += 1,
                    _ => requests.failed += 1,
                },
                _ => {}
            }
        }
        Ok(requests)
    }
}
