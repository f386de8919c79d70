//! Sources against servers in memory. Each kind of bad input causes an error for the HPA that reads it, and for no other
//! HPA.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod pods;
mod prometheus;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fake_cluster::pages::{PageResponse, PageServers};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::spec::{Level, MetricOrigin, MetricRule, parse};
use tokio::time::{Instant, advance, sleep};
use tokio_rustls::TlsAcceptor;

use crate::{
    Dial, Failure, Form, InMemory, Io, PodAddress, PodTarget, Reading, SourceError, SourceFile,
    SourceObserver, Sources, Target, Values, name_of,
};

/// Returns connections to servers in memory. With an acceptor, all servers serve TLS.
fn in_memory(servers: &PageServers, acceptor: Option<TlsAcceptor>) -> Arc<dyn Dial> {
    let servers = servers.clone();
    Arc::new(InMemory::new(move |address: &str| {
        let Some(acceptor) = acceptor.clone() else { return servers.dial(address) };
        let (client, server) = tokio::io::duplex(64 << 10);
        let (servers, address) = (servers.clone(), address.to_owned());
        tokio::spawn(async move {
            // The handshake fails if the client refuses the certificate.
            if let Ok(mut tls) = acceptor.accept(server).await {
                let mut inside = servers.dial(&address).unwrap();
                let _ = tokio::io::copy_bidirectional(&mut tls, &mut inside).await;
            }
        });
        Ok(client)
    }))
}

/// The time of day of all reads.
fn now() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().unwrap()
}

struct Rig {
    servers: PageServers,
    sources: Arc<Sources>,
    file: PathBuf,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

impl Rig {
    fn new(file: &str) -> Self {
        Self::with_tls(file, None)
    }

    fn with_tls(file: &str, acceptor: Option<TlsAcceptor>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sources-{}-{number}.yaml", std::process::id()));
        std::fs::write(&path, file).unwrap();
        let servers = PageServers::default();
        let dial = in_memory(&servers, acceptor);
        let sources = Sources::new(path.clone(), Some(dial)).unwrap();
        Self { servers, sources: Arc::new(sources), file: path }
    }

    async fn read(&self, metric: &str, form: Form, pods: &[PodTarget]) -> Result<Reading, Failure> {
        self.read_in("shop", metric, form, pods).await
    }

    async fn read_in(
        &self,
        namespace: &str,
        metric: &str,
        form: Form,
        pods: &[PodTarget],
    ) -> Result<Reading, Failure> {
        let namespace: Arc<str> = namespace.into();
        let target = Target { namespace: &namespace, name: "web", pods, secrets: None };
        self.sources.read(&rule(metric), form, &target, now()).await
    }

    async fn per_pod(&self, metric: &str, pods: &[PodTarget]) -> Result<Vec<(String, f64)>, String> {
        match self.read(metric, Form::PerPod, pods).await {
            Ok(Reading { values: Values::PerPod(values), .. }) => {
                Ok(values.into_iter().map(|(pod, value)| (pod.to_string(), value)).collect())
            }
            Ok(other) => panic!("{other:?}"),
            Err(failure) => Err(failure.error.to_string()),
        }
    }
}

/// The reported states of servers, in order.
type States = Vec<(&'static str, Option<bool>)>;

/// The reports of running sources.
#[derive(Clone, Default)]
struct Reports {
    reloads: Arc<Mutex<Vec<bool>>>,
    states: Arc<Mutex<States>>,
}

impl Reports {
    fn states(&self) -> States {
        self.states.lock().clone()
    }
}

impl SourceObserver for Reports {
    fn reloaded(&self, usable: bool) {
        self.reloads.lock().push(usable);
    }

    fn down(&self, server: &str, down: Option<bool>) {
        assert_eq!(server, "main");
        self.states.lock().push(("main", down));
    }
}

fn rule(metric: &str) -> MetricRule {
    let parsed = parse(&format!("metrics: [{metric}]"), Level::Annotation);
    assert_eq!(parsed.problems, []);
    parsed.spec.metrics.unwrap()[0].clone()
}

fn pod(name: &str, last: u8) -> PodTarget {
    let address = PodAddress {
        ip: [10, 0, 0, last].into(),
        is_of_node: false,
        node: Some([192, 168, 0, 1].into()),
        ports: [(Some("http".into()), 8080)].into(),
    };
    PodTarget { name: name.into(), running: true, address: Some(Arc::new(address)) }
}

#[allow(clippy::unnecessary_wraps, reason = "compared with results")]
fn named(expected: &[(&str, f64)]) -> Result<Vec<(String, f64)>, String> {
    Ok(expected.iter().map(|(pod, value)| ((*pod).to_owned(), *value)).collect())
}

const MAIN: &str =
    "prometheus: [{name: main, url: 'http://prometheus:9090', enforceNamespaceLabel: namespace}]";
const PODS: &str = "pods: {enabled: true}";
const WAITING: &str = "{metric: waiting, pods: {port: http, series: waiting, intervalSeconds: 1}}";
const REQUESTS: &str =
    r#"{metric: requests, prometheus: {server: main, query: 'sum(requests{pod=~"$pods"}) by (pod)'}}"#;

#[tokio::test(start_paused = true)]
async fn unusable_file_keeps_the_previous_sources() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 1.0)]));
    rig.servers.serve("thanos:9090", |_| PageResponse::vector(&[(&[], 2.0)]));
    let metric = "{metric: a, prometheus: {server: main, query: 'sum(up)'}}";
    let reports = Reports::default();
    let running = tokio::spawn(Arc::clone(&rig.sources).run(reports.clone()));
    let single = async || rig.read(metric, Form::Single, &[]).await.unwrap().values;
    assert_eq!(single().await, Values::Single(Some(1.0)));
    std::fs::write(&rig.file, "prometheus: [{name: main}]").unwrap();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(single().await, Values::Single(Some(1.0)));
    assert_eq!(*reports.reloads.lock(), [false]);
    std::fs::write(&rig.file, "prometheus: [{name: main, url: 'http://thanos:9090'}]").unwrap();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(single().await, Values::Single(Some(2.0)));
    assert_eq!(*reports.reloads.lock(), [false, true]);
    assert_eq!(reports.states(), [("main", Some(false))]);
    std::fs::write(&rig.file, "").unwrap();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(reports.states(), [("main", Some(false)), ("main", None)]);
    running.abort();
}

/// Returns the path of `examples/metric-sources`.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/metric-sources")
}

#[test]
fn examples_are_valid_and_name_sources_of_the_file() {
    let path = folder().join("sources.yaml");
    let file = SourceFile::read(&path).unwrap();
    assert!(file.pods.enabled && file.kubelet.enabled);
    let mut names: BTreeSet<String> = BTreeSet::from(["sources.yaml".to_owned()]);
    let all = [
        ("prometheus", "main"),
        ("pods", "pods"),
        ("kubelet", "kubelet"),
        ("api-group", "external.metrics.example.com"),
    ];
    for (name, source) in all {
        let file_name = format!("{name}.yaml");
        let text = std::fs::read_to_string(folder().join(&file_name)).unwrap();
        let parsed = parse(&text, Level::Annotation);
        assert_eq!(parsed.problems, [], "{name}");
        assert_eq!(parsed.spec.burst.is_some(), name == "pods");
        let metrics = parsed.spec.metrics.unwrap();
        assert_eq!(metrics.len(), 1, "{name}");
        let origin = &metrics.first().unwrap().origin;
        assert_eq!(name_of(origin), source);
        match origin {
            MetricOrigin::Prometheus { server, .. } => assert!(file.prometheus.contains_key(server)),
            MetricOrigin::ApiGroup(group) => assert!(file.adapters.contains_key(group)),
            MetricOrigin::Pods(_) | MetricOrigin::Kubelet => {}
        }
        let command = format!("concertina.dev/policy=\"$(cat examples/metric-sources/{file_name})\"");
        assert!(text.contains(&command), "{name} does not show how to set it");
        names.insert(file_name);
    }
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, names);
}

fn gauges(count: usize) -> String {
    (0..count).map(|n| format!("waiting{{n=\"{n}\"}} 1\n")).collect::<Vec<_>>().concat()
}

#[tokio::test(start_paused = true)]
async fn bad_page_is_an_error_of_its_pod_alone() {
    let timeout = "no complete response within 1s";
    let slow = |drip: u64, text: &str| PageResponse {
        drip: Duration::from_millis(drip),
        ..PageResponse::page(text.to_owned())
    };
    let moved = PageResponse {
        status: 302,
        location: "http://10.0.0.1:8080/".to_owned(),
        ..PageResponse::page("waiting 1\n")
    };
    let cases = [
        (
            "100 MB",
            PageResponse::page(format!("# {:126}\n", "filler").repeat(100 << 20 >> 7)),
            "the page is invalid: the page has more than 4194304 bytes: raise maxBytes, or expose fewer series at this path",
        ),
        ("slow drip", slow(300, "waiting 1\nwaiting"), timeout),
        ("first byte after a minute", slow(60_000, "waiting 1\n"), timeout),
        (
            "half a line",
            PageResponse::page("waiting 1\nwaiting{a=\"b"),
            "the page is invalid: line 2 is invalid: expected a quoted label value, at \"waiting{a=\\\"b\"",
        ),
        (
            "line without an end",
            PageResponse::page(format!("waiting{{a=\"{}", "b".repeat(2 << 20))),
            "the page is invalid: line 1 has more than 65536 bytes",
        ),
        (
            "1,001 label sets",
            PageResponse::page(gauges(1_001)),
            "the page is invalid: more than 1000 series match: select fewer by their labels",
        ),
        (
            "1,000,000 label sets",
            PageResponse::page(gauges(1_000_000)),
            "the page is invalid: more than 1000 series match: select fewer by their labels",
        ),
        (
            "type",
            PageResponse { content_type: "text/html".to_owned(), ..PageResponse::page("waiting 1\n") },
            "the page has the type \"text/html\": it must be text/plain, the text format of Prometheus",
        ),
        (
            "duplicate series",
            PageResponse::page("waiting 1\nwaiting 2\n"),
            "the page is invalid: line 2 repeats a series of this page",
        ),
        ("redirect", moved, "the server answers 302 Found: redirects are not followed"),
        (
            "401",
            PageResponse { status: 401, ..PageResponse::page("waiting 1\n") },
            "the server answers 401 Unauthorized",
        ),
    ];
    let rig = Rig::new(PODS);
    rig.servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 3\n"));
    let mut expected = BTreeMap::new();
    let mut pods = vec![];
    for (last, (name, page, error)) in (2..).zip(cases) {
        rig.servers.serve(format!("10.0.0.{last}:8080"), move |_| page.clone());
        pods.push((name, pod(name, last)));
        expected.insert(name, format!("none of 1 pods has a number; {name}: {error}"));
    }
    // One HPA for each bad pod and one HPA for the good pod read concurrently.
    let started = Instant::now();
    let reads = pods.iter().map(|(name, pod)| {
        let (rig, pods) = (&rig, std::slice::from_ref(pod));
        async move { (*name, rig.per_pod(WAITING, pods).await) }
    });
    let good = [pod("good", 1)];
    let (results, (good, elapsed)) = futures::join!(futures::future::join_all(reads), async {
        let result = rig.per_pod(WAITING, &good).await;
        (result, started.elapsed())
    });
    assert_eq!(good, named(&[("good", 3.0)]));
    assert!(elapsed < Duration::from_millis(100), "{elapsed:?}");
    let errors: BTreeMap<_, _> =
        results.into_iter().map(|(name, result)| (name, result.unwrap_err())).collect();
    assert_eq!(errors, expected);
    assert!(started.elapsed() <= Duration::from_secs(1));
    // The redirect was not followed.
    let to_good = rig.servers.requests().iter().filter(|request| request.address == "10.0.0.1:8080").count();
    assert_eq!(to_good, 1);
}

#[tokio::test(start_paused = true)]
async fn hostile_page_makes_its_pod_missing() {
    let rig = Rig::new(PODS);
    let drip = Duration::from_millis(300);
    let pages = [
        PageResponse { status: 302, location: "http://10.0.0.1:8080/".to_owned(), ..PageResponse::page("") },
        PageResponse { status: 401, ..PageResponse::page("waiting 1\n") },
        PageResponse { content_type: "text/html".to_owned(), ..PageResponse::page("waiting 1\n") },
        PageResponse { drip, ..PageResponse::page("waiting 1\nwaiting") },
        PageResponse::page("waiting 1\nwaiting 2\n"),
        PageResponse::page("waiting NaN\n"),
        PageResponse::page("waiting 1\nhalf of a li"),
        PageResponse::page("# filler\n".repeat(1 << 20)),
        PageResponse::page(
            (0..2_000).map(|n| format!("waiting{{n=\"{n}\"}} 1\n")).collect::<Vec<_>>().concat(),
        ),
    ];
    rig.servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 3\n"));
    let mut pods = vec![pod("good", 1)];
    for (last, page) in (2..).zip(pages) {
        rig.servers.serve(format!("10.0.0.{last}:8080"), move |_| page.clone());
        pods.push(pod(&format!("bad-{last}"), last));
    }
    let started = Instant::now();
    assert_eq!(rig.per_pod(WAITING, &pods).await, named(&[("good", 3.0)]));
    assert!(started.elapsed() <= Duration::from_secs(1));
    // The redirect was not followed.
    let to_good = rig.servers.requests().iter().filter(|request| request.address == "10.0.0.1:8080").count();
    assert_eq!(to_good, 1);
}
