//! Sources whose pods all connect to one server, and the resource usage of this thread and process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use policies::spec::{MetricOrigin, MetricRule, PodPort, PodSeries, Reduction};
use sources::{
    Dial, Failure as SourceFailure, Form, Io, PodAddress, PodTarget, Reading, SourceObserver, Sources, Target,
};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::Failure;

/// Connects to one server for every address, because the scraper refuses loopback addresses.
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

/// Ignores all reports, because the sources have no servers.
pub(crate) struct Ignored;

impl SourceObserver for Ignored {
    fn reloaded(&self, _: bool) {}

    fn down(&self, _: &str, _: Option<bool>) {}
}

/// Sources with pods only.
pub(crate) fn sources(server: SocketAddr) -> Result<Arc<Sources>, Failure> {
    let path = std::env::temp_dir().join(format!("sources-bench-{}.yaml", std::process::id()));
    std::fs::write(&path, "pods: {enabled: true, maxPagesPerNamespace: 100000}")?;
    let sources = Sources::new(path.clone(), Some(Arc::new(OneServer(server))));
    // A run reads the file again, and keeps the sources if the file is absent.
    std::fs::remove_file(path)?;
    Ok(Arc::new(sources?))
}

/// The counters of a page as one rate.
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

/// Pods with the numbers `range`.
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
        sources.read(&self.rule, Form::PerPod, &target).await
    }
}

/// CPU time of this thread, and elapsed time.
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

/// The resident memory of this process in bytes, now or at its peak.
pub(crate) fn resident(peak: bool) -> Result<u64, Failure> {
    let field = if peak { "VmHWM:" } else { "VmRSS:" };
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value =
        status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no memory in /proc/self/status")?;
    Ok(value.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// A runtime on this thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A total duration divided by a count, in microseconds.
pub(crate) fn micros_each(all: Duration, count: u64) -> f64 {
    all.as_secs_f64() * 1e6 / (count.max(1) as f64)
}

/// Bytes as kilobytes of 1,000.
pub(crate) fn kilobytes(bytes: u64) -> f64 {
    bytes as f64 / 1e3
}
