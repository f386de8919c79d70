//! The minimum cost of a status write: CPU time of the API server and etcd without other load.
//!
//! A loader writes statuses like those of a controller, evenly at a given rate or sixteen at a time. Each status
//! differs slightly from the previous status. The CPU time of the idle server is subtracted. As with a controller, one
//! watch of all HPAs is open.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use clap::{ArgMatches, Command};
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::cluster::{RealCluster, Share, path};
use super::control_plane::convert_error;
use super::protobuf::{self, Edit, MANAGED_FIELDS, METADATA, SPEC, UTILIZATION};
use super::requests::{Connection, Http, Rounds, Server, median, with_rounds};
use crate::Failure;
use crate::measure::percentile;
use crate::observations::now;
use crate::run::{switch, text};
use crate::workload::Workload;
use crate::world::World;

/// The maximum number of requests in flight.
const AT_ONCE: usize = 16;
const JSON: &str = "application/json";

/// A form of status writes.
#[derive(Debug, Clone, Copy)]
struct Variant {
    title: &'static str,
    protobuf: bool,
    /// Whether the write omits `metadata.managedFields`. The server then keeps the stored `managedFields`.
    without_managed_fields: bool,
    /// Whether the write omits the spec. The server then keeps the stored spec.
    without_spec: bool,
    http: Http,
}

const PLAIN: Variant = Variant::new("JSON", false);
const PROTOBUF: Variant = Variant::new("protobuf", true);

const VARIANTS: [Variant; 8] = [
    PLAIN,
    PLAIN.without_managed_fields("JSON without managedFields"),
    PLAIN.without_managed_fields("JSON without managedFields and spec").without_spec(),
    Variant { title: "JSON, HTTP/2", http: Http::Two, ..PLAIN },
    PROTOBUF,
    PROTOBUF.without_managed_fields("protobuf without managedFields"),
    PROTOBUF.without_managed_fields("protobuf without managedFields and spec").without_spec(),
    Variant { title: "protobuf, HTTP/2", http: Http::Two, ..PROTOBUF },
];

/// The options of the subcommand.
#[derive(Debug, Clone)]
pub(crate) struct Floor {
    hpas: usize,
    /// Writes per second.
    rate: f64,
    /// Whether the loader writes [`AT_ONCE`] statuses at once and then pauses.
    together: bool,
    rounds: Rounds,
}

/// The cost of one variant in one round.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// The actual writes per second.
    rate: f64,
    /// CPU seconds of each process per write.
    share: Share,
    /// Percentiles of the response time in seconds.
    p50: f64,
    p99: f64,
    /// Mean bytes of a request body and of a response body.
    sent: f64,
    received: f64,
}

pub(crate) fn command() -> Command {
    let command = Command::new("floor")
        .about("Measures the cost of status writes for the API server, as JSON and as protobuf")
        .arg(text("hpas", "Number of HPAs with status writes in turn").default_value("500"))
        .arg(text("rate", "Writes per second").default_value("200"))
        .arg(switch("together", "Write sixteen at a time, like a controller with simultaneous syncs"));
    with_rounds(command, "3")
}

/// Reads the arguments of the subcommand.
pub(crate) fn read(matches: &ArgMatches) -> Result<Floor, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    Ok(Floor {
        hpas: text("hpas").parse()?,
        rate: text("rate").parse()?,
        together: matches.get_flag("together"),
        rounds: Rounds::read(matches)?,
    })
}

/// Measures every variant in each round, and prints the medians of the costs.
pub(crate) async fn run(floor: &Floor) -> Result<(), Failure> {
    let mut cluster = RealCluster::start().await?;
    let workload = Workload::named("W1").ok_or("no workload W1")?;
    let workload = Workload { hpas: floor.hpas, pods: 1, probes: 0, ..workload };
    cluster.load_workload(&workload).await?;
    let world = World::new(&workload);
    let kubeconfig =
        convert_error(cluster.plane.service_account("kube-system", "horizontal-pod-autoscaler").await)?;
    let config: Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig)?)?;
    let token = config
        .pointer("/users/0/user/token")
        .and_then(Value::as_str)
        .ok_or("the kubeconfig has no token")?
        .to_owned();
    let server = Server { address: cluster.plane.url.trim_start_matches("https://").to_owned(), token };
    let paths: Vec<_> =
        (0..floor.hpas).filter_map(|number| world.hpa(number)).map(|hpa| path(&hpa)).collect();
    first_statuses(&server, &paths).await?;

    let (idle, mut costs) = (cluster.measure_idle().await?, vec![Vec::new(); VARIANTS.len()]);
    for round in 1..=floor.rounds.count {
        eprintln!("round {round} of {}", floor.rounds.count);
        for (variant, costs) in VARIANTS.iter().zip(&mut costs) {
            costs.push(variant.measure(floor, &cluster, &server, &paths, &idle).await?);
        }
    }
    check_objects_intact(&server, &paths).await?;
    floor.rounds.publish("floor.txt", &table(floor, &idle, &costs))
}

/// Writes a first status to each HPA, like a controller.
async fn first_statuses(server: &Server, paths: &[String]) -> Result<(), Failure> {
    let mut connections = server.connect(Http::One, 1).await?;
    let connection = connections.first_mut().ok_or("no connection")?;
    for path in paths {
        let body = get(server, connection, PLAIN, path).await?;
        let mut hpa: Value = serde_json::from_slice(&body)?;
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": "True", "reason": reason, "message": message,
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let status = json!({
            "observedGeneration": 1, "lastScaleTime": "2026-01-01T00:00:00Z",
            "currentReplicas": 3, "desiredReplicas": 3,
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {
                "averageUtilization": 50, "averageValue": "250m"}}}],
            "conditions": [
                condition("AbleToScale", "ReadyForNewScale", "recommended size matches current size"),
                condition("ScalingActive", "ValidMetricFound",
                          "the HPA was able to successfully calculate a replica count from cpu resource utilization"),
                condition("ScalingLimited", "DesiredWithinRange", "the desired count is within the acceptable range"),
            ],
        });
        hpa.as_object_mut().ok_or("the HPA is not a JSON object")?.insert("status".to_owned(), status);
        let request = server.request(
            Http::One,
            Method::PUT,
            &format!("{path}/status"),
            JSON,
            hpa.to_string().into(),
        )?;
        connection.send(request).await?;
    }
    Ok(())
}

/// Checks that the server has kept the parts that status writes omit.
async fn check_objects_intact(server: &Server, paths: &[String]) -> Result<(), Failure> {
    let mut connections = server.connect(Http::One, 1).await?;
    let connection = connections.first_mut().ok_or("no connection")?;
    for path in paths {
        let hpa: Value = serde_json::from_slice(&get(server, connection, PLAIN, path).await?)?;
        let managers = hpa.pointer("/metadata/managedFields").and_then(Value::as_array).map_or(0, Vec::len);
        if hpa.pointer("/spec/maxReplicas").and_then(Value::as_i64) != Some(200) || managers < 2 {
            return Err(
                format!("a status write changed the spec or the managedFields of an HPA: {hpa}").into()
            );
        }
    }
    Ok(())
}

async fn get(
    server: &Server,
    connection: &mut Connection,
    variant: Variant,
    path: &str,
) -> Result<Bytes, Failure> {
    connection.send(server.request(variant.http, Method::GET, path, variant.media(), Vec::new())?).await
}

impl Variant {
    const fn new(title: &'static str, protobuf: bool) -> Self {
        Self { title, protobuf, without_managed_fields: false, without_spec: false, http: Http::One }
    }

    const fn without_managed_fields(self, title: &'static str) -> Self {
        Self { title, without_managed_fields: true, ..self }
    }

    const fn without_spec(self) -> Self {
        Self { without_spec: true, ..self }
    }

    fn media(self) -> &'static str {
        if self.protobuf { protobuf::MEDIA } else { JSON }
    }

    async fn measure(
        self,
        floor: &Floor,
        cluster: &RealCluster,
        server: &Server,
        paths: &[String],
        idle: &Share,
    ) -> Result<Cost, Failure> {
        let mut connections = server.connect(self.http, AT_ONCE).await?;
        let first = connections.first_mut().ok_or("no connection")?;
        let mut objects = Vec::new();
        for path in paths {
            objects.push((path.as_str(), get(server, first, self, path).await?));
        }
        let mut batches: Vec<Vec<_>> = vec![Vec::new(); AT_ONCE];
        for (index, object) in objects.into_iter().enumerate() {
            batches.get_mut(index % AT_ONCE).ok_or("no turn")?.push(object);
        }
        let (before, start) = (cluster.used()?, Instant::now());
        let writers =
            connections.into_iter().zip(batches).enumerate().map(|(index, (connection, objects))| {
                let mut writer = Writer {
                    variant: self,
                    server,
                    connection,
                    objects,
                    latencies: Vec::new(),
                    bytes: (0, 0),
                };
                async move {
                    let pause = Duration::from_secs_f64(AT_ONCE as f64 / floor.rate);
                    let part = if floor.together { 0.0 } else { index as f64 / AT_ONCE as f64 };
                    writer.write(start + pause.mul_f64(part), pause, start + floor.rounds.time).await?;
                    Ok::<_, Failure>(writer)
                }
            });
        let writers = try_join_all(writers).await?;
        let (after, time) = (cluster.used()?, start.elapsed().as_secs_f64());
        let mut latencies: Vec<_> =
            writers.iter().flat_map(|writer| writer.latencies.iter().copied()).collect();
        latencies.sort_by(f64::total_cmp);
        let count = (latencies.len() as f64).max(1.0);
        let sum = |of: fn(&Writer<'_>) -> usize| writers.iter().map(of).sum::<usize>() as f64 / count;
        Ok(Cost {
            rate: count / time,
            share: before.until(&after, time).less(idle).per(count / time),
            p50: percentile(&latencies, 0.5),
            p99: percentile(&latencies, 0.99),
            sent: sum(|writer| writer.bytes.0),
            received: sum(|writer| writer.bytes.1),
        })
    }

    /// Returns the body of the next write: the object of the last response with another utilization.
    fn next(self, answer: &[u8], utilization: u32) -> Result<Vec<u8>, Failure> {
        if self.protobuf {
            let not_protobuf = "the response is not a protobuf message";
            let change = Edit::Varint(utilization.into());
            let mut object =
                protobuf::edit(protobuf::object(answer)?, &UTILIZATION, &change).ok_or(not_protobuf)?;
            for (is_left_out, path) in [
                (self.without_managed_fields, [METADATA, MANAGED_FIELDS].as_slice()),
                (self.without_spec, [SPEC].as_slice()),
            ] {
                if is_left_out {
                    object = protobuf::edit(&object, path, &Edit::Absent).ok_or(not_protobuf)?;
                }
            }
            return protobuf::envelope(answer, &object);
        }
        let mut object: Value = serde_json::from_slice(answer)?;
        let index = "/status/currentMetrics/0/resource/current/averageUtilization";
        *object.pointer_mut(index).ok_or("the status has no metric")? = utilization.into();
        if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut)
            && self.without_managed_fields
        {
            metadata.remove("managedFields");
        }
        if let Some(fields) = object.as_object_mut()
            && self.without_spec
        {
            fields.remove("spec");
        }
        Ok(object.to_string().into())
    }
}

/// Writes the statuses of some HPAs in turn, over one connection.
struct Writer<'a> {
    variant: Variant,
    server: &'a Server,
    connection: Connection,
    /// The path of each HPA, and the body of the last response for it.
    objects: Vec<(&'a str, Bytes)>,
    latencies: Vec<f64>,
    /// Bytes of all request bodies and of all response bodies.
    bytes: (usize, usize),
}

impl Writer<'_> {
    async fn write(&mut self, first: Instant, pause: Duration, end: Instant) -> Result<(), Failure> {
        let (mut due, count) = (first, self.objects.len().max(1));
        for turn in 0_u32.. {
            if due >= end {
                break;
            }
            sleep_until(due).await;
            due += pause;
            let index = usize::try_from(turn)? % count;
            let Some((path, answer)) = self.objects.get_mut(index) else { break };
            // The utilization changes with every write, because the server does not store an unchanged status.
            let utilization = u32::try_from(now().div_euclid(100_000).rem_euclid(10_000))?;
            let body = self.variant.next(answer, utilization)?;
            self.bytes.0 += body.len();
            let path = format!("{path}/status");
            let request =
                self.server.request(self.variant.http, Method::PUT, &path, self.variant.media(), body)?;
            let sent = Instant::now();
            *answer = self.connection.send(request).await?;
            self.latencies.push(sent.elapsed().as_secs_f64());
            self.bytes.1 += answer.len();
        }
        Ok(())
    }
}

fn table(floor: &Floor, idle: &Share, costs: &[Vec<Cost>]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{} HPAs, {} writes per second{} for {} s, medians of {} rounds; idle: API server {:.1} % of a core, etcd {:.1} %\n",
        floor.hpas,
        floor.rate,
        if floor.together { ", sixteen at a time," } else { "" },
        floor.rounds.time.as_secs(),
        floor.rounds.count,
        idle.api_server * 100.0,
        idle.etcd * 100.0
    );
    out.push_str("| status write as | per second | API server ms | etcd ms | loader ms | p50 ms | p99 ms | sent B | answer B |\n");
    out.push_str("|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for (variant, costs) in VARIANTS.iter().zip(costs) {
        let of = |of: fn(&Cost) -> f64| median(costs, of);
        let _ = writeln!(
            out,
            "| {} | {:.0} | {:.3} | {:.3} | {:.3} | {:.2} | {:.2} | {:.0} | {:.0} |",
            variant.title,
            of(|it| it.rate),
            of(|it| it.share.api_server) * 1e3,
            of(|it| it.share.etcd) * 1e3,
            of(|it| it.share.own) * 1e3,
            of(|it| it.p50) * 1e3,
            of(|it| it.p99) * 1e3,
            of(|it| it.sent),
            of(|it| it.received)
        );
    }
    out
}
