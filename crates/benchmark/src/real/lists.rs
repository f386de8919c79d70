//! The cost of compressed lists for the API server and the reader.
//!
//! The server compresses responses of more than 128 KiB for clients that accept compression. Concertina does not accept
//! compression, and this measurement shows the reason.

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
use super::control_plane::ADMIN_TOKEN;
use super::options::{Rounds, median, with_rounds};
use crate::Failure;
use crate::workload::Workload;

/// The lists, with pages of the size that the watches of a controller request.
const LISTS: [(&str, &str); 2] = [
    ("500 pods", "/api/v1/pods?limit=500"),
    ("500 HPAs", "/apis/autoscaling/v2/horizontalpodautoscalers?limit=500"),
];
/// The encodings that a request accepts.
const ENCODINGS: [(&str, &str); 2] = [("uncompressed", "identity"), ("gzip", "gzip")];

/// The cost of one list.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// CPU seconds of each process.
    share: Share,
    /// Seconds until the response was complete and decompressed.
    duration: f64,
    /// Bytes of the response.
    received: f64,
}

pub(crate) fn command() -> Command {
    with_rounds(Command::new("lists").about("Measures the cost of uncompressed and compressed lists"), "1")
}

/// Measures every list with every encoding, round by round, and prints the costs.
pub(crate) async fn run(rounds: &Rounds) -> Result<(), Failure> {
    let mut cluster = RealCluster::start().await?;
    let workload = Workload::named("W1").ok_or("no workload W1")?;
    cluster.load_workload(&Workload { hpas: 500, pods: 1, probes: 0, ..workload }).await?;
    let address = cluster.plane.url.trim_start_matches("https://").to_owned();
    let server = Server { address, token: ADMIN_TOKEN.to_owned() };
    let idle = cluster.measure_idle().await?;
    let mut connections = server.connect(Http::One, 1).await?;
    let connection = connections.first_mut().ok_or("no connection")?;
    let mut out = format!("medians of {} rounds of {} s\n\n", rounds.count, rounds.time.as_secs_f64());
    out.push_str(
        "| a list of | | API server ms | reader ms | until arrival ms | kB |\n|---|---|--:|--:|--:|--:|\n",
    );
    for (title, path) in LISTS {
        let mut costs = vec![Vec::new(); ENCODINGS.len()];
        for _ in 0..rounds.count {
            for ((_, accepted), costs) in ENCODINGS.into_iter().zip(&mut costs) {
                costs.push(
                    measure(rounds.time, &cluster, &server, connection, (path, accepted), &idle).await?,
                );
            }
        }
        for ((encoding, _), costs) in ENCODINGS.into_iter().zip(&costs) {
            let of = |of: fn(&Cost) -> f64| median(costs, of);
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "| {title} | {encoding} | {:.2} | {:.2} | {:.2} | {:.0} |",
                of(|it| it.share.api_server) * 1e3,
                of(|it| it.share.own) * 1e3,
                of(|it| it.duration) * 1e3,
                of(|it| it.received) / 1e3
            );
        }
    }
    rounds.publish("lists.txt", &out)
}

async fn measure(
    time: Duration,
    cluster: &RealCluster,
    server: &Server,
    connection: &mut Connection,
    (path, accepted): (&str, &'static str),
    idle: &Share,
) -> Result<Cost, Failure> {
    let (before, start) = (cluster.used()?, Instant::now());
    let (mut count, mut received) = (0.0_f64, 0);
    while start.elapsed() < time {
        let mut request = server.request(Http::One, Method::GET, path, "application/json", Vec::new())?;
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
        let body = connection.send(request).await?;
        received += body.len();
        // Compressed data starts with the magic number of gzip, uncompressed JSON with a brace.
        if body.starts_with(&[0x1f, 0x8b]) {
            let mut plain = Vec::new();
            GzDecoder::new(&*body).read_to_end(&mut plain)?;
        } else if accepted == "gzip" {
            return Err(format!("{path}: the response is not compressed").into());
        }
        count += 1.0;
    }
    let (after, time) = (cluster.used()?, start.elapsed().as_secs_f64());
    Ok(Cost {
        share: before.until(&after, time).less(idle).per(count / time),
        duration: time / count,
        received: received as f64 / count,
    })
}
