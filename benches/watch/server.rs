//! An HTTP server for lists and watches of prepared objects, with blocking sockets.

#![allow(clippy::disallowed_methods, reason = "the server runs in real time and is not the measured process")]

use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Arrival, Failure, Resource, Run, objects};

/// The number of pods per HPA.
const PODS: usize = 10;
/// The interval between spaced events.
const SPACE: Duration = Duration::from_micros(200);
/// The resourceVersion of the list. Events have greater resourceVersions with the same number of digits.
const LIST_VERSION: usize = 5_000_000;

/// The server of the lists and watches, on a port of the loopback address.
pub(super) struct Server {
    pub(super) port: u16,
    state: Arc<State>,
}

struct State {
    pods: Vec<Object>,
    hpas: Vec<Object>,
    /// The run of the current or next client.
    run: Mutex<Option<Run>>,
    /// Bytes sent in this run.
    sent: AtomicU64,
}

/// The JSON of an object, in two parts around its resourceVersion.
struct Object(String, String);

impl Object {
    fn new(json: &str) -> Result<Self, Failure> {
        let (start, rest) = json.split_once("\"resourceVersion\":\"").ok_or("no resourceVersion")?;
        let (_, end) = rest.split_once('"').ok_or("no end of resourceVersion")?;
        Ok(Self(format!("{start}\"resourceVersion\":\""), format!("\"{end}")))
    }

    fn at(&self, version: usize) -> String {
        format!("{}{version}{}", self.0, self.1)
    }
}

impl Server {
    /// Starts a server with `count` objects of each resource.
    pub(super) fn start(count: usize) -> Result<Self, Failure> {
        let status = objects::status(PODS);
        let pods = (0..count).map(|number| Object::new(&objects::pod(number / PODS, number % PODS)));
        let hpas = (0..count).map(|number| Object::new(&objects::hpa(number, LIST_VERSION, &status)));
        let state = Arc::new(State {
            pods: pods.collect::<Result<_, _>>()?,
            hpas: hpas.collect::<Result<_, _>>()?,
            run: Mutex::default(),
            sent: AtomicU64::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // At the end of a run, the client closes its connections, so an error is ignored.
                thread::spawn(move || state.serve(stream).unwrap_or_default());
            }
        });
        Ok(Self { port, state })
    }

    /// Sets the run of the next client, and resets the number of sent bytes.
    pub(super) fn prepare(&self, run: Run) {
        *self.state.run.lock() = Some(run);
        self.state.sent.store(0, Ordering::Relaxed);
    }

    /// Returns the number of bytes sent since [`Self::prepare`].
    pub(super) fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }
}

impl State {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut requests = BufReader::new(stream.try_clone()?);
        let mut output = Counted(stream, &self.sent);
        loop {
            let (mut head, mut line) = (String::new(), String::new());
            while requests.read_line(&mut line)? > 2 {
                if head.is_empty() {
                    head.clone_from(&line);
                }
                line.clear();
            }
            let run = *self.run.lock();
            let Some(run) = run.filter(|_| !head.is_empty()) else {
                return Ok(());
            };
            let objects = if run.resource == Resource::Pods { &self.pods } else { &self.hpas };
            if head.contains("watch=true") {
                watch(&mut output, objects, run, head.contains("sendInitialEvents=true"))?;
                // The watch remains open until the client closes the connection.
                return requests.read_to_end(&mut Vec::new()).map(drop);
            }
            list(&mut output, objects, head.contains("continue=half"))?;
        }
    }
}

/// Sends the first or the second page of a list.
fn list(output: &mut impl Write, objects: &[Object], second: bool) -> io::Result<()> {
    let (first_half, second_half) = objects.split_at(objects.len() / 2);
    let (half, next) = if second { (second_half, "") } else { (first_half, "half") };
    let items: Vec<_> = half.iter().map(|object| object.at(LIST_VERSION)).collect();
    let body = format!(
        r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{LIST_VERSION}","continue":"{next}"}},"items":[{}]}}"#,
        items.join(",")
    );
    let length = body.len();
    write!(
        output,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Sends the initial events of a streaming list if `initial` is set, and then the events of the run.
fn watch(output: &mut impl Write, objects: &[Object], run: Run, initial: bool) -> io::Result<()> {
    let mut output = BufWriter::with_capacity(64 << 10, output);
    output.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    if initial {
        for object in objects {
            event(&mut output, "ADDED", &object.at(LIST_VERSION))?;
        }
        let (kind, version) = if run.resource == Resource::Pods {
            ("Pod", "v1")
        } else {
            ("HorizontalPodAutoscaler", "autoscaling/v2")
        };
        let end = format!(
            r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{{"resourceVersion":"{LIST_VERSION}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
        );
        event(&mut output, "BOOKMARK", &end)?;
    }
    for (number, object) in objects.iter().cycle().take(run.events).enumerate() {
        event(&mut output, "MODIFIED", &object.at(LIST_VERSION + 1 + number))?;
        if run.arrival == Arrival::Spaced {
            output.flush()?;
            thread::sleep(SPACE);
        }
    }
    output.flush()
}

/// Sends an event as an HTTP chunk, like an API server.
fn event(output: &mut impl Write, kind: &str, object: &str) -> io::Result<()> {
    let line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    write!(output, "{:x}\r\n{line}\r\n", line.len())
}

/// A writer that counts its bytes.
struct Counted<'a>(TcpStream, &'a AtomicU64);

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.1.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
