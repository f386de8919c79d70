//! Lists as they are and compressed: what the API server, and who reads them, pay for fewer bytes.
//!
//! The server compresses answers of more than 128 KiB for whoever accepts that. Concertina does not; this says why.

use std::fmt::Write as _;
use std::io::Read as _;
use std::time::Duration;

use clap::Command;
use flate2::read::GzDecoder;
use http::Method;
use http::header::{ACCEPT_ENCODING, HeaderValue};
use tokio::time::Instant;

use super::cluster::{RealCluster, Share};
use super::connection::{Connection, Http, Server};
use super::plane::ADMIN_TOKEN;
use super::rounds::{Rounds, median, with_rounds};
use crate::Failure;
use crate::workload::Workload;

/// What is read, and where: pages of the size that the watches of a controller ask for.
const LISTS: [(&str, &str); 2] = [
    ("500 pods", "/api/v1/pods?limit=500"),
    ("500 HPAs", "/apis/autoscaling/v2/horizontalpodautoscalers?limit=500"),
];
/// What a request accepts.
const WAYS: [(&str, &str); 2] = [("as it is", "identity"), ("gzip", "gzip")];

/// What one list cost.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// CPU seconds of each process.
    share: Share,
    /// Seconds until all of it was there, as it is without compression.
    duration: f64,
    /// Bytes of the answer.
    received: f64,
}

/// The subcommand.
pub(crate) fn command() -> Command {
    with_rounds(Command::new("lists").about("What lists cost as they are, and compressed"), "1")
}

/// Measures every list in every way, round by round, and prints what each cost.
pub(crate) async fn run(rounds: &Rounds) -> Result<(), Failure> {
    let mut cluster = RealCluster::start().await?;
    let workload = Workload::named("W1").ok_or("no workload W1")?;
    cluster.hold(&Workload { hpas: 500, pods: 1, probes: 0, ..workload }).await?;
    let address = cluster.plane.url.trim_start_matches("https://").to_owned();
    let server = Server { address, token: ADMIN_TOKEN.to_owned() };
    let idle = cluster.listen().await?;
    let mut connections = server.connect(Http::One, 1).await?;
    let connection = connections.first_mut().ok_or("no connection")?;
    let mut out = format!("medians of {} rounds of {} s\n\n", rounds.count, rounds.time.as_secs_f64());
    out.push_str("| a list of | | API server ms | reader ms | until it is there ms | kB |\n|---|---|--:|--:|--:|--:|\n");
    for (what, path) in LISTS {
        let mut costs = vec![Vec::new(); WAYS.len()];
        for _ in 0..rounds.count {
            for ((_, accepted), costs) in WAYS.into_iter().zip(&mut costs) {
                costs.push(
                    measure(rounds.time, &cluster, &server, connection, (path, accepted), &idle).await?,
                );
            }
        }
        for ((way, _), costs) in WAYS.into_iter().zip(&costs) {
            let of = |of: fn(&Cost) -> f64| median(costs, of);
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "| {what} | {way} | {:.2} | {:.2} | {:.2} | {:.0} |",
                of(|it| it.share.api_server) * 1e3,
                of(|it| it.share.own) * 1e3,
                of(|it| it.duration) * 1e3,
                of(|it| it.received) / 1e3
            );
        }
    }
    rounds.tell("lists.txt", &out)
}

async fn measure(
    time: Duration,
    cluster: &RealCluster,
    server: &Server,
    connection: &mut Connection,
    (path, accepted): (&str, &'static str),
    idle: &Share,
) -> Result<Cost, Failure> {
    let (before, begin) = (cluster.used()?, Instant::now());
    let (mut count, mut received) = (0.0_f64, 0);
    while begin.elapsed() < time {
        let mut request = server.request(Http::One, Method::GET, path, "application/json", Vec::new())?;
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
        let body = connection.send(request).await?;
        received += body.len();
        // What is not compressed begins with a brace.
        if body.starts_with(&[0x1f, 0x8b]) {
            let mut plain = Vec::new();
            GzDecoder::new(&*body).read_to_end(&mut plain)?;
        } else if accepted == "gzip" {
            return Err(format!("{path}: the answer is not compressed").into());
        }
        count += 1.0;
    }
    let (after, time) = (cluster.used()?, begin.elapsed().as_secs_f64());
    Ok(Cost {
        share: before.until(&after, time).less(idle).per(count / time),
        duration: time / count,
        received: received as f64 / count,
    })
}
