//! Sources against servers in memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bad_input;
mod connections;
mod past;
mod scraper;
mod servers;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fake_cluster::pages::{PageResponse, PageServers};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use parking_lot::Mutex;
use policies::spec::{Level, MetricRule, parse};
use tokio::time::{Instant, advance, sleep};
use tokio_rustls::TlsAcceptor;

use crate::{
    Dial, Failure, Form, InMemory, Io, PodAddress, PodTarget, Reading, SourceError, SourceObserver, Sources,
    Target, Values,
};

mod transport;

/// Connections to servers in memory. With an acceptor, all servers serve TLS.
fn in_memory(servers: &PageServers, acceptor: Option<TlsAcceptor>) -> Arc<dyn Dial> {
    let servers = servers.clone();
    Arc::new(InMemory::new(move |address: &str| {
        let Some(acceptor) = acceptor.clone() else { return servers.dial(address) };
        let (client, server) = tokio::io::duplex(64 << 10);
        let (servers, address) = (servers.clone(), address.to_owned());
        tokio::spawn(async move {
            // A client that refuses the certificate ends the handshake.
            if let Ok(mut tls) = acceptor.accept(server).await {
                let mut inside = servers.dial(&address).unwrap();
                let _ = tokio::io::copy_bidirectional(&mut tls, &mut inside).await;
            }
        });
        Ok(client)
    }))
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
        self.sources.read(&rule(metric), form, &target).await
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

/// The states of servers, in the order of their reports.
type States = Vec<(&'static str, Option<bool>)>;

/// The reports of a run of sources.
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
async fn vector_is_matched_to_the_pods_of_the_target() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| {
        PageResponse::vector(&[(&[("pod", "web-1")], 2.5), (&[("pod", "web-9")], 7.0)])
    });
    let pods = [pod("web-1", 1), pod("web-2", 2)];
    assert_eq!(rig.per_pod(REQUESTS, &pods).await, named(&[("web-1", 2.5)]));
    let request = &rig.servers.requests()[0];
    assert_eq!(request.path, "/api/v1/query");
    assert_eq!(request.query, r#"sum by (pod) (requests{namespace="shop",pod=~"web-1|web-2"})"#);
}

#[tokio::test(start_paused = true)]
async fn query_of_another_namespace_is_restricted_to_the_own_one() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[]));
    let metric = r#"{metric: a, prometheus: {server: main, query: 'sum(up{namespace="bank"})'}}"#;
    let reading = rig.read(metric, Form::Single, &[]).await.unwrap();
    assert_eq!(reading.values, Values::Single(None));
    assert_eq!(rig.servers.requests()[0].query, r#"sum(up{namespace="bank",namespace="shop"})"#);
}

#[tokio::test(start_paused = true)]
async fn equal_queries_share_an_answer_for_an_interval() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 4.0)]));
    let metric = "{metric: a, prometheus: {server: main, query: 'sum(up)'}}";
    for hpa in 0..10 {
        let reading = rig.read(metric, Form::Single, &[]).await.unwrap();
        assert_eq!(reading.values, Values::Single(Some(4.0)), "{hpa}");
        advance(Duration::from_millis(90)).await;
    }
    assert_eq!(rig.servers.requests().len(), 1);
    advance(Duration::from_millis(200)).await;
    rig.read(metric, Form::Single, &[]).await.unwrap();
    assert_eq!(rig.servers.requests().len(), 2);
    // Another namespace sends its own query.
    rig.read_in("bank", metric, Form::Single, &[]).await.unwrap();
    assert_eq!(rig.servers.requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn query_without_a_usable_answer_fails_with_its_cause() {
    let rig = Rig::new(MAIN);
    let metric = "{metric: a, prometheus: {server: main, query: 'sum(up)'}}";
    let data = serde_json::json!({"resultType": "vector", "result": [{"metric": {}, "value": [0, "NaN"]}]});
    let answers = [
        (
            PageResponse::json(200, &serde_json::json!({"status": "success", "data": data})),
            "the query returns NaN for {}: it must return finite numbers",
        ),
        (
            PageResponse::json(
                200,
                &serde_json::json!({"status": "success", "warnings": ["store down"],
                "data": {"resultType": "vector", "result": []}}),
            ),
            "the answer may be incomplete: store down",
        ),
        (
            PageResponse::json(
                400,
                &serde_json::json!({"status": "error", "errorType": "bad_data", "error": "no"}),
            ),
            "the server refused the query: bad_data: no",
        ),
        (
            PageResponse { status: 401, ..PageResponse::page("Unauthorized") },
            "the server answers 401 Unauthorized",
        ),
        (
            PageResponse { status: 302, location: "http://10.0.0.9/".to_owned(), ..PageResponse::page("") },
            "the server answers 302 Found: redirects are not followed",
        ),
        (PageResponse::page("x".repeat(5 << 20)), "the response has more than 4194304 bytes"),
    ];
    for (answer, expected) in answers {
        rig.servers.serve("prometheus:9090", move |_| answer.clone());
        advance(Duration::from_secs(2)).await;
        let failure = rig.read(metric, Form::Single, &[]).await.unwrap_err();
        assert_eq!(failure.to_string(), format!("prometheus \"main\", query \"sum(up)\": {expected}"));
    }
    rig.servers.remove("prometheus:9090");
    let unknown = "{metric: a, prometheus: {server: other, query: 'sum(up)'}}";
    let failure = rig.read(unknown, Form::Single, &[]).await.unwrap_err();
    assert_eq!(failure.error, SourceError::UnknownServer);
}

#[tokio::test(start_paused = true)]
async fn slow_answer_is_a_timeout() {
    let rig = Rig::new(MAIN);
    let drip = Duration::from_secs(1);
    rig.servers
        .serve("prometheus:9090", move |_| PageResponse { drip, ..PageResponse::page("{\"status\":") });
    let metric = "{metric: a, prometheus: {server: main, query: 'sum(up)'}}";
    let started = Instant::now();
    let failure = rig.read(metric, Form::Single, &[]).await.unwrap_err();
    assert_eq!(failure.error.to_string(), "no complete response within 5s");
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn namespace_outside_of_the_list_may_not_use_a_server() {
    let rig = Rig::new("prometheus: [{name: main, url: 'http://prometheus:9090', namespaces: [bank]}]");
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 1.0)]));
    let metric = "{metric: a, prometheus: {server: main, query: 'sum(up)'}}";
    let failure = rig.read(metric, Form::Single, &[]).await.unwrap_err();
    assert_eq!(failure.error, SourceError::Namespace);
    assert_eq!(rig.servers.requests(), []);
    assert!(rig.read_in("bank", metric, Form::Single, &[]).await.is_ok());
    assert_eq!(failure.error.reason(), "NotAllowed");
}

#[tokio::test(start_paused = true)]
async fn pods_are_scraped_once_per_interval_for_all_metrics() {
    let rig = Rig::new(PODS);
    rig.servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 3\nrunning 5\n"));
    rig.servers.serve("10.0.0.2:8080", |_| PageResponse::page("waiting{a=\"1\"} 1\nwaiting{a=\"2\"} 1.5\n"));
    let pods = [pod("web-1", 1), pod("web-2", 2), pod("web-3", 3)];
    // The third pod refuses connections, so it is missing.
    for _ in 0..5 {
        assert_eq!(rig.per_pod(WAITING, &pods).await, named(&[("web-1", 3.0), ("web-2", 2.5)]));
    }
    assert_eq!(rig.servers.requests().len(), 2);
    let running = "{metric: running, pods: {port: 8080, series: running, intervalSeconds: 1}}";
    assert_eq!(rig.per_pod(running, &pods).await, named(&[("web-1", 5.0)]));
    // Both metrics come from one page from now on.
    advance(Duration::from_secs(2)).await;
    let before = rig.servers.requests().len();
    assert_eq!(rig.per_pod(running, &pods).await, named(&[("web-1", 5.0)]));
    assert_eq!(rig.per_pod(WAITING, &pods).await, named(&[("web-1", 3.0), ("web-2", 2.5)]));
    assert_eq!(rig.servers.requests().len(), before + 2);
}

#[tokio::test(start_paused = true)]
async fn only_running_pods_at_declared_ports_are_scraped() {
    let rig = Rig::new(PODS);
    for last in 1..9 {
        rig.servers.serve(format!("10.0.0.{last}:8080"), |_| PageResponse::page("waiting 1\n"));
        rig.servers.serve(format!("10.0.0.{last}:10250"), |_| PageResponse::page("waiting 1\n"));
    }
    for address in ["127.0.0.1:8080", "169.254.169.254:8080", "0.0.0.0:8080"] {
        rig.servers.serve(address, |_| PageResponse::page("waiting 1\n"));
    }
    let stopped = PodTarget { running: false, ..pod("stopped", 1) };
    assert_eq!(rig.per_pod(WAITING, &[stopped]).await, named(&[]));
    let undeclared = "{metric: waiting, pods: {port: 10250, series: waiting}}";
    let failed = rig.per_pod(undeclared, &[pod("web", 2)]).await.unwrap_err();
    assert_eq!(failed, "none of 1 pods has a number; web: the pod declares no such port");
    let pending = PodTarget { address: None, ..pod("web", 3) };
    let failed = rig.per_pod(WAITING, &[pending]).await.unwrap_err();
    assert_eq!(failed, "none of 1 pods has a number; web: the pod has no address yet");
    for ip in ["127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "::ffff:169.254.169.254"] {
        let address = PodAddress {
            ip: ip.parse().unwrap(),
            is_of_node: false,
            node: None,
            ports: [(None, 8080)].into(),
        };
        let target = PodTarget { name: "web".into(), running: true, address: Some(Arc::new(address)) };
        let metric = "{metric: waiting, pods: {port: 8080, series: waiting}}";
        let failed = rig.per_pod(metric, &[target]).await.unwrap_err();
        assert!(failed.ends_with("or an address outside of pod networks"), "{ip}: {failed}");
    }
    let mut node = pod("web", 4);
    let address = node.address.as_deref().unwrap().clone();
    node.address = Some(Arc::new(PodAddress { is_of_node: true, ..address }));
    assert!(rig.per_pod(WAITING, &[node]).await.is_err());
    assert_eq!(rig.servers.connections(), 0);
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

#[tokio::test(start_paused = true)]
async fn rate_of_a_counter_comes_from_scrapes_between_syncs() {
    let rig = Rig::new(PODS);
    let start = Instant::now();
    rig.servers.serve("10.0.0.1:8080", move |_| {
        // Ten per second, and a restart after 20 s.
        let seconds = start.elapsed().as_secs_f64();
        let value = if seconds < 20.0 { seconds } else { seconds - 20.0 } * 10.0;
        PageResponse::page(format!("requests_total {value}\n"))
    });
    let metric =
        "{metric: a, pods: {port: http, series: requests_total, rateSeconds: 10, intervalSeconds: 1}}";
    let running = tokio::spawn(Arc::clone(&rig.sources).run(Reports::default()));
    let pods = [pod("web", 1)];
    assert_eq!(rig.per_pod(metric, &pods).await, named(&[]), "a rate needs two scrapes");
    for second in 0..4 {
        sleep(Duration::from_secs(15)).await;
        let rates = rig.per_pod(metric, &pods).await.unwrap();
        // The increments between the last scrape before the restart and the restart are lost.
        assert!((8.9..=10.1).contains(&rates[0].1), "{second}: {rates:?}");
    }
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn page_that_no_hpa_asks_for_is_not_scraped_any_more() {
    let rig = Rig::new(PODS);
    rig.servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 3\n"));
    let running = tokio::spawn(Arc::clone(&rig.sources).run(Reports::default()));
    rig.per_pod(WAITING, &[pod("web", 1)]).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert!((9..=12).contains(&rig.servers.requests().len()));
    sleep(Duration::from_secs(200)).await;
    let requests = rig.servers.requests().len();
    assert_eq!(rig.sources.pages(), 0);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(rig.servers.requests().len(), requests);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_namespace_are_bounded() {
    let rig = Rig::new("pods: {enabled: true, maxPagesPerNamespace: 2}");
    for last in 1..=4 {
        rig.servers.serve(format!("10.0.0.{last}:8080"), |_| PageResponse::page("waiting 3\n"));
    }
    let pods = [pod("a", 1), pod("b", 2), pod("c", 3)];
    assert_eq!(rig.per_pod(WAITING, &pods).await, named(&[("a", 3.0), ("b", 3.0)]));
    let reading = rig.read(WAITING, Form::PerPod, &pods).await.unwrap();
    let missing = Some(("c".into(), SourceError::TooManyPages(2)));
    assert_eq!(reading.missing, missing);
    // Another namespace has its own bound.
    assert!(rig.read_in("bank", WAITING, Form::PerPod, &[pod("d", 4)]).await.unwrap().missing.is_none());
}

#[tokio::test(start_paused = true)]
async fn slow_pods_of_a_tenant_leave_scrapes_for_others() {
    let rig = Rig::new("pods: {enabled: true, concurrency: 4}");
    let drip = Duration::from_secs(5);
    let slow: Vec<PodTarget> = (1..=50).map(|last| pod(&format!("slow-{last}"), last)).collect();
    for last in 1..=50 {
        let page = PageResponse { drip, ..PageResponse::page("waiting 3\n") };
        rig.servers.serve(format!("10.0.0.{last}:8080"), move |_| page.clone());
    }
    rig.servers.serve("10.0.0.200:8080", |_| PageResponse::page("waiting 3\n"));
    let started = Instant::now();
    let good = [pod("good", 200)];
    let (_, reading) = futures::join!(rig.read_in("hostile", WAITING, Form::PerPod, &slow), async {
        sleep(Duration::from_millis(10)).await;
        let reading = rig.read_in("shop", WAITING, Form::PerPod, &good).await;
        (reading, started.elapsed())
    });
    assert!(reading.0.is_ok());
    assert!(reading.1 < Duration::from_millis(100), "{:?}", reading.1);
}

#[tokio::test(start_paused = true)]
async fn number_older_than_allowed_is_an_error() {
    let rig = Rig::new("prometheus: [{name: main, url: 'http://prometheus:9090', interval: 1m}]");
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 1.0)]));
    let metric = "{metric: a, maxAgeSeconds: 10, prometheus: {server: main, query: 'sum(up)'}}";
    assert!(rig.read(metric, Form::Single, &[]).await.is_ok());
    advance(Duration::from_secs(11)).await;
    let failure = rig.read(metric, Form::Single, &[]).await.unwrap_err();
    assert_eq!(failure.error, SourceError::TooOld(11, 10));
}

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
