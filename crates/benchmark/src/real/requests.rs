//! Requests to the API server without a controller: rounds, connections, and the cost of compressed lists.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::{ArgMatches, Command};
use flate2::read::GzDecoder;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::cluster::{RealCluster, Share};
use super::control_plane::ADMIN_TOKEN;
use crate::Failure;
use crate::controller::trusting;
use crate::measure::percentile;
use crate::run::text;
use crate::workload::Workload;

/// The rounds of a measurement. Every round measures all variants, and the figures are medians over the rounds. Other
/// work on the machine therefore affects all variants equally.
#[derive(Debug, Clone)]
pub(crate) struct Rounds {
    /// The measured time of one variant in one round.
    pub(super) time: Duration,
    pub(super) count: usize,
    /// The folder for the table.
    folder: PathBuf,
}

/// Adds the arguments that [`Rounds::read`] reads. `seconds` is the default time per variant and round.
pub(super) fn with_rounds(command: Command, seconds: &'static str) -> Command {
    command
        .arg(text("seconds", "Seconds per variant and round").default_value(seconds))
        .arg(
            text("runs", "Number of rounds; the table has the medians")
                .visible_alias("repeat")
                .default_value("15"),
        )
        .arg(text("out", "Folder for the table").default_value("target/scale"))
}

impl Rounds {
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
        Ok(Self {
            time: Duration::try_from_secs_f64(text("seconds").parse()?)?,
            count: text("runs").parse()?,
            folder: text("out").into(),
        })
    }

    /// Prints a table, and stores it as the file `name`.
    pub(super) fn publish(&self, name: &str, table: &str) -> Result<(), Failure> {
        print!("{table}");
        std::fs::create_dir_all(&self.folder)?;
        Ok(std::fs::write(self.folder.join(name), table)?)
    }
}

/// Returns the median of the figure that `of` reads.
pub(super) fn median<T: Copy>(costs: &[T], of: fn(&T) -> f64) -> f64 {
    let mut values: Vec<_> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    percentile(&values, 0.5)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http {
    /// One connection for each request in flight.
    One,
    /// One connection for all requests.
    Two,
}

/// The address of the API server, and a token for it.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// `127.0.0.1:PORT`.
    pub(super) address: String,
    pub(super) token: String,
}

/// A sender of requests, one at a time.
pub(super) enum Connection {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Server {
    /// Opens `count` senders. With HTTP/2, they share one connection.
    pub(super) async fn connect(&self, http: Http, count: usize) -> Result<Vec<Connection>, Failure> {
        let mut connections = Vec::new();
        for _ in 0..count {
            if let Some(Connection::Two(sender)) = connections.first() {
                let sender = sender.clone();
                connections.push(Connection::Two(sender));
                continue;
            }
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let mut config = trusting()?.with_no_client_auth();
            config.alpn_protocols = match http {
                Http::One => Vec::new(),
                Http::Two => vec![b"h2".to_vec()],
            };
            let name = ServerName::try_from("localhost")?;
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
            let stream = TokioIo::new(stream);
            connections.push(match http {
                Http::One => {
                    let (sender, connection) = http1::handshake(stream).await?;
                    tokio::spawn(connection);
                    Connection::One(sender)
                }
                Http::Two => {
                    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                    tokio::spawn(connection);
                    Connection::Two(sender)
                }
            });
        }
        Ok(connections)
    }

    /// Builds a request. `media` is the media type of the request body and of the response body.
    pub(super) fn request(
        &self,
        http: Http,
        method: Method,
        path: &str,
        media: &str,
        body: Vec<u8>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let request = Request::builder()
            .method(method)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(ACCEPT, media)
            .header(CONTENT_TYPE, media);
        let request = match http {
            Http::One => request.uri(path).header(HOST, &self.address),
            Http::Two => {
                let uri = Uri::builder().scheme("https").authority(&*self.address).path_and_query(path);
                request.uri(uri.build()?).version(Version::HTTP_2)
            }
        };
        Ok(request.body(Full::new(body.into()))?)
    }
}

impl Connection {
    /// Sends a request. Returns the body of the response, or an error unless the status is 2xx.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
        let response = match self {
            Self::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(body)
    }
}

/// The measured lists, with the page size of a controller's watches.
const LISTS: [(&str, &str); 2] = [
    ("500 pods", "/api/v1/pods?limit=500"),
    ("500 HPAs", "/apis/autoscaling/v2/horizontalpodautoscalers?limit=500"),
];
/// The title of each encoding, and its name in the header Accept-Encoding.
const ENCODINGS: [(&str, &str); 2] = [("uncompressed", "identity"), ("gzip", "gzip")];

/// The cost of one list.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// CPU seconds of each process.
    share: Share,
    /// Seconds from the request to the decompressed response.
    duration: f64,
    /// Bytes of the response body.
    received: f64,
}

pub(crate) fn command() -> Command {
    with_rounds(Command::new("lists").about("Measures the cost of uncompressed and compressed lists"), "1")
}

/// Measures every list with every encoding, and prints the costs for the API server and the reader.
///
/// The API server compresses responses of more than 128 KiB for clients that accept compression. The costs show why
/// Concertina does not accept compression.
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
        // These bytes are the magic number of gzip. JSON starts with a brace.
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
