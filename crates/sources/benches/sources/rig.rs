//! Sources whose pods all connect to one server, the process with that server, and the resource usage of this process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use policies::spec::{MetricOrigin, MetricRule, PodPort, PodSeries, Reduction};
use sources::{
    Dial, Failure as SourceFailure, Form, Io, PodAddress, PodTarget, Reading, SourceObserver, Sources, Target,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::Failure;

/// A [`Dial`] that connects to one server for every address, because the scraper refuses loopback addresses.
#[derive(Debug)]
struct OneServer(SocketAddr);

impl Dial for OneServer {
    fn dial(&self, _: Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let address = self.0;
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}

/// An observer that ignores all reports, because the sources have no servers.
pub(crate) struct Ignored;

impl SourceObserver for Ignored {
    fn reloaded(&self, _: bool) {}

    fn down(&self, _: &str, _: Option<bool>) {}
}

/// Creates sources that scrape only pods.
pub(crate) fn sources(server: SocketAddr) -> Result<Arc<Sources>, Failure> {
    let path = std::env::temp_dir().join(format!("sources-bench-{}.yaml", std::process::id()));
    std::fs::write(&path, "pods: {enabled: true, maxPagesPerNamespace: 100000}")?;
    let sources = Sources::new(path.clone(), Some(Arc::new(OneServer(server))));
    // `Sources::run` reloads the file, and keeps the sources if the file is absent.
    std::fs::remove_file(path)?;
    Ok(Arc::new(sources?))
}

/// Returns a rule that reduces the counters of a page to one rate.
pub(crate) fn rule(size: usize, parameter: u32) -> MetricRule {
    let series = PodSeries {
        port: PodPort::Number(8080),
        path: format!("/{size}?{parameter}").into(),
        transport: None,
        series: "requests_total".into(),
        labels: [].into(),
        reduce: Reduction::Sum,
        rate_seconds: Some(10),
        interval_seconds: 1,
    };
    let origin = MetricOrigin::Pods(Arc::new(series));
    MetricRule { metric: "requests".into(), max_age_seconds: None, origin }
}

/// Creates the pods with the numbers in `range`.
pub(crate) fn pods(range: std::ops::Range<usize>) -> Result<Vec<PodTarget>, Failure> {
    let pod = |number: usize| {
        let ip = Ipv4Addr::from_bits((10 << 24) + u32::try_from(number)?);
        let address =
            PodAddress { ip: ip.into(), is_of_node: false, node: None, ports: [(None, 8080)].into() };
        Ok(PodTarget {
            name: format!("pod-{number}").into(),
            running: true,
            address: Some(Arc::new(address)),
        })
    };
    range.map(pod).collect()
}

pub(crate) struct Hpa {
    pub(crate) namespace: Arc<str>,
    pub(crate) pods: Vec<PodTarget>,
    pub(crate) rule: MetricRule,
}

impl Hpa {
    pub(crate) async fn read(&self, sources: &Sources) -> Result<Reading, SourceFailure> {
        let target = Target { namespace: &self.namespace, name: "web", pods: &self.pods, secrets: None };
        sources.read(&self.rule, Form::PerPod, &target, jiff::Timestamp::UNIX_EPOCH).await
    }
}

/// A stopwatch for the CPU time of this thread and the elapsed time.
pub(crate) struct Stopwatch {
    cpu: Duration,
    started: Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Result<Self, Failure> {
        Ok(Self { cpu: cpu_time()?, started: Instant::now() })
    }

    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        Ok(cpu_time()?.saturating_sub(self.cpu))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

fn cpu_time() -> Result<Duration, Failure> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().ok_or("/proc/thread-self/schedstat is empty")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// Returns the current or peak resident memory of this process in bytes.
pub(crate) fn resident(peak: bool) -> Result<u64, Failure> {
    let field = if peak { "VmHWM:" } else { "VmRSS:" };
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value =
        status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no memory in /proc/self/status")?;
    Ok(value.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Creates a runtime on this thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Divides a total duration by a count. Returns microseconds.
pub(crate) fn micros_each(all: Duration, count: u64) -> f64 {
    all.as_secs_f64() * 1e6 / (count.max(1) as f64)
}

/// Converts bytes to kilobytes of 1,000 bytes.
pub(crate) fn kilobytes(bytes: u64) -> f64 {
    bytes as f64 / 1e3
}

/// Environment variable that makes the process serve the pages of pods.
pub(crate) const SERVER: &str = "SOURCES_BENCH_SERVER";
/// Number of series that a scrape reads from each page.
pub(crate) const SERIES: usize = 20;
/// The sizes of pages in bytes.
const SIZES: [usize; 6] = [2 << 10, 4 << 10, 20 << 10, 64 << 10, 1 << 20, 4_000_000];

/// Serves pages until standard input ends.
pub(crate) fn serve_pages() -> Result<(), Failure> {
    #[expect(clippy::disallowed_methods, reason = "the end of a child process")]
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let pages: Arc<BTreeMap<usize, Vec<u8>>> =
            Arc::new(SIZES.iter().map(|size| (*size, response(&page(*size)))).collect());
        let served = Arc::new(AtomicU64::new(0));
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve(stream, Arc::clone(&pages), Arc::clone(&served)));
        }
    })
}

/// Answers the requests of a connection: `/SIZE` with a page, and any other path with the number of served pages.
async fn serve(
    mut stream: TcpStream,
    pages: Arc<BTreeMap<usize, Vec<u8>>>,
    served: Arc<AtomicU64>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::with_capacity(1 << 10);
    loop {
        request.clear();
        while !request.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let path = request.strip_prefix(b"GET /").unwrap_or_default();
        let digits: Vec<u8> = path.iter().copied().take_while(u8::is_ascii_digit).collect();
        let size = String::from_utf8(digits).ok().and_then(|digits| digits.parse::<usize>().ok());
        if let Some(page) = size.and_then(|size| pages.get(&size)) {
            stream.write_all(page).await?;
            served.fetch_add(1, Ordering::Relaxed);
        } else {
            let served = served.load(Ordering::Relaxed).to_string();
            stream.write_all(&response(&served)).await?;
        }
    }
}

fn response(page: &str) -> Vec<u8> {
    let length = page.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\ncontent-length: {length}\r\n\r\n{page}"
    )
    .into_bytes()
}

/// Returns a page of at least `size` bytes: counters that scrapes read, and histograms that they skip.
fn page(size: usize) -> String {
    let mut page = "# HELP requests_total Requests by path.\n# TYPE requests_total counter\n".to_owned();
    for path in 0..SERIES {
        // Writing to a String cannot fail.
        let _ =
            writeln!(page, "requests_total{{method=\"GET\",path=\"/api/v1/items/{path}\"}} {}", path * 17);
    }
    for family in 0.. {
        let name = format!("handler_{family}_duration_seconds");
        let _ = writeln!(page, "# HELP {name} Latency of handler {family} in seconds.");
        let _ = writeln!(page, "# TYPE {name} histogram");
        for code in ["200", "404", "500"] {
            for bound in ["0.005", "0.01", "0.05", "0.1", "0.5", "1", "5", "+Inf"] {
                if page.len() >= size {
                    return page;
                }
                let _ = writeln!(
                    page,
                    "{name}_bucket{{code=\"{code}\",handler=\"/api/v1/{family}\",le=\"{bound}\"}} 1027"
                );
            }
            let _ = writeln!(page, "{name}_sum{{code=\"{code}\",handler=\"/api/v1/{family}\"}} 113.72519");
            let _ = writeln!(page, "{name}_count{{code=\"{code}\",handler=\"/api/v1/{family}\"}} 1027");
        }
    }
    page
}

/// The process that serves the pages of pods. Dropping this value stops the process.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(SERVER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()? })
    }

    /// Returns the number of pages that were served.
    pub(crate) fn served(&self) -> Result<u64, Failure> {
        let mut stream = std::net::TcpStream::connect(self.address)?;
        stream.write_all(b"GET /served HTTP/1.1\r\n\r\n")?;
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(String::from_utf8(body)?.parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
