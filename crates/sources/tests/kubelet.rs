//! The scraper of kubelets against servers in memory.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fake_cluster::pages::{PageResponse, PageServers};
use jiff::{SignedDuration, Timestamp};
use sources::{Dial, InMemory, PodAddress, PodTarget, SourceError, SourceObserver, Sources, Target, Usage};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

fn in_memory(servers: &PageServers) -> Arc<dyn Dial> {
    let servers = servers.clone();
    Arc::new(InMemory::new(move |address: &str| servers.dial(address)))
}

struct Silent;

impl SourceObserver for Silent {
    fn reloaded(&self, _: bool) {}

    fn down(&self, _: &str, _: Option<bool>) {}
}

/// The start of every test, in seconds since the Unix epoch.
const EPOCH: i64 = 1_893_456_000;

struct Rig {
    servers: PageServers,
    sources: Arc<Sources>,
    folder: PathBuf,
    start: Instant,
    running: JoinHandle<()>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.running.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Rig {
    /// Runs sources with the given settings of `kubelet`.
    fn new(settings: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("sources-kubelet-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, token) = (folder.join("sources.yaml"), folder.join("token"));
        std::fs::write(&token, "secret\n").unwrap();
        let text = format!(
            "kubelet: {{insecureSkipVerify: true, bearerTokenFile: {}, {settings}}}",
            token.display()
        );
        std::fs::write(&file, text).unwrap();
        let servers = PageServers::default();
        let sources = Sources::new(file, Some(in_memory(&servers))).unwrap();
        let sources = Arc::new(sources);
        let running = tokio::spawn(Arc::clone(&sources).run(Silent));
        Self { servers, sources, folder, start: Instant::now(), running }
    }

    /// Serves the page of a kubelet that measures every ten seconds. Its pods use `millicores` and 64 MiB.
    fn serve(&self, node: u8, pods: &'static [&str], millicores: f64) {
        let start = self.start;
        self.servers.serve(address(node), move |_| PageResponse::page(page(start, pods, millicores)));
    }

    async fn usage(&self, pods: &[PodTarget]) -> Result<Usage, SourceError> {
        self.usage_in("shop", None, pods).await
    }

    async fn usage_in(
        &self,
        namespace: &str,
        max_age_seconds: Option<u32>,
        pods: &[PodTarget],
    ) -> Result<Usage, SourceError> {
        let namespace: Arc<str> = namespace.into();
        let target = Target { namespace: &namespace, name: "web", pods, secrets: None };
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap();
        let now = Timestamp::from_second(EPOCH).unwrap() + elapsed;
        self.sources.usage(max_age_seconds, &target, now).await
    }

    /// Returns the name and the millicores of each pod after two measurements.
    async fn measured(&self, pods: &[PodTarget]) -> Vec<(String, i64)> {
        let _ = self.usage(pods).await;
        sleep(Duration::from_secs(16)).await;
        let usage = self.usage(pods).await.unwrap();
        let millicores = |pod: &autoscaling::query::PodUsage| {
            pod.containers.iter().map(|one| one.usage.get("cpu").unwrap().milli_value()).sum()
        };
        usage.pods.iter().map(|pod| (pod.pod.to_string(), millicores(pod))).collect()
    }
}

fn address(node: u8) -> String {
    format!("192.168.0.{node}:10250")
}

fn page(start: Instant, pods: &[&str], millicores: f64) -> String {
    let at = (start.elapsed().as_secs_f64() / 10.0).floor() * 10.0;
    let millis = (EPOCH as f64 + at) * 1e3;
    let lines = pods.iter().map(|pod| {
        let labels = format!("{{container=\"app\",namespace=\"shop\",pod=\"{pod}\"}}");
        format!(
            "container_cpu_usage_seconds_total{labels} {} {millis}\n\
             container_memory_working_set_bytes{labels} 67108864 {millis}\n\
             container_start_time_seconds{labels} {}\n",
            (at + 1000.0) * millicores / 1000.0,
            EPOCH - 1000
        )
    });
    lines.collect()
}

fn pod(name: &str, node: u8) -> PodTarget {
    on(name, &format!("192.168.0.{node}"))
}

fn on(name: &str, node: &str) -> PodTarget {
    let address = PodAddress {
        ip: [10, 0, 0, 1].into(),
        is_of_node: false,
        node: Some(node.parse().unwrap()),
        ports: [].into(),
    };
    PodTarget { name: name.into(), running: true, address: Some(Arc::new(address)) }
}

#[tokio::test(start_paused = true)]
async fn usage_comes_from_two_measurements_with_their_time_and_window() {
    let rig = Rig::new("enabled: true");
    rig.serve(1, &["web-1", "other"], 250.0);
    let pods = [pod("web-1", 1)];
    let first = rig.usage(&pods).await.unwrap();
    assert_eq!((first.pods.as_slice(), first.missing), (&[][..], None), "one measurement is no usage");
    sleep(Duration::from_secs(16)).await;
    let usage = rig.usage(&pods).await.unwrap();
    assert_eq!(usage.pods.len(), 1, "of the target only: {:?}", usage.pods);
    let web = &usage.pods[0];
    assert_eq!((&*web.pod, web.window_nanos), ("web-1", 10_000_000_000));
    assert_eq!(web.timestamp, Timestamp::from_second(EPOCH + 10).ok());
    assert_eq!(&*web.containers[0].name, "app");
    assert_eq!(web.containers[0].usage.get("cpu").unwrap().milli_value(), 250);
    assert_eq!(web.containers[0].usage.get("memory").unwrap().value(), 67_108_864);
    let request = &rig.servers.requests()[0];
    assert_eq!((&*request.path, &*request.authorization), ("/metrics/resource", "Bearer secret"));
    // The next measurement comes at 20 s. The age starts at the first page with the current measurement.
    assert!((1..=6).contains(&usage.oldest.elapsed().as_secs()), "{:?}", usage.oldest.elapsed());
    assert!(usage.scraped.elapsed() < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn node_is_scraped_once_per_interval_for_all_hpas() {
    let rig = Rig::new("enabled: true");
    rig.serve(1, &["web-1"], 100.0);
    let pods = [pod("web-1", 1)];
    for _ in 0..60 {
        let reads = (0..100).map(|_| rig.usage(&pods));
        assert!(futures::future::join_all(reads).await.iter().all(Result::is_ok));
        sleep(Duration::from_secs(1)).await;
    }
    let requests = rig.servers.requests().len();
    assert!((12..=14).contains(&requests), "{requests}");
    assert_eq!(rig.servers.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn node_without_a_usable_page_makes_its_pods_missing() {
    let rig = Rig::new("enabled: true, maxBytes: 64Ki");
    rig.serve(1, &["good"], 100.0);
    let drip = Duration::from_millis(300);
    let good = page(rig.start, &["bad"], 100.0);
    let pages = [
        (PageResponse { status: 401, ..PageResponse::page("") }, "the server answers 401 Unauthorized"),
        (
            PageResponse {
                status: 302,
                location: "https://192.168.0.1/".to_owned(),
                ..PageResponse::page("")
            },
            "the server answers 302 Found: redirects are not followed",
        ),
        (PageResponse { drip, ..PageResponse::page(good.clone()) }, "no complete response within 3s"),
        (PageResponse::page("# filler\n".repeat(12 << 20)), "the page is invalid: "),
        (PageResponse::page(format!("{good}half of a li")), "the page is invalid: "),
        (
            PageResponse::page("container_memory_working_set_bytes{pod=\"bad\"} 1 1\n"),
            "the page is invalid: line 1 lacks one of the labels container, pod and namespace",
        ),
        (
            PageResponse { content_type: "text/html".to_owned(), ..PageResponse::page(good) },
            "the page has the type \"text/html\"",
        ),
    ];
    for (bad, (page, expected)) in (2..).zip(pages) {
        rig.servers.serve(address(bad), move |_| page.clone());
        let pods = [pod("good", 1), pod("bad", bad)];
        assert_eq!(rig.measured(&pods).await, [("good".to_owned(), 100)], "{expected}");
        let usage = rig.usage(&pods).await.unwrap();
        let (missing, error) = usage.missing.unwrap();
        let expected = format!("node 192.168.0.{bad}: {expected}");
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert_eq!(&*missing, "bad");
        // A sync waits for a slow page for at most one second.
        for _ in 0..10 {
            let started = Instant::now();
            rig.usage(&pods).await.unwrap();
            assert!(started.elapsed() <= Duration::from_secs(1), "{:?}", started.elapsed());
            sleep(Duration::from_millis(700)).await;
        }
        let failed = rig.usage(&pods[1..]).await.unwrap_err().to_string();
        assert!(failed.starts_with(&format!("none of 1 pods has a number; bad: {expected}")), "{failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_answers_again_has_usage_at_once() {
    let rig = Rig::new("enabled: true");
    rig.serve(1, &["web-1"], 100.0);
    let pods = [pod("web-1", 1)];
    assert_eq!(rig.measured(&pods).await.len(), 1);
    rig.servers.remove(&address(1));
    sleep(Duration::from_secs(20)).await;
    assert!(rig.usage(&pods).await.is_err());
    rig.serve(1, &["web-1"], 100.0);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(rig.usage(&pods).await.unwrap().pods.len(), 1);
    // After a minute without a page, an average over the whole span would hide the current usage.
    rig.servers.remove(&address(1));
    sleep(Duration::from_secs(90)).await;
    assert!(rig.usage(&pods).await.is_err());
    rig.serve(1, &["web-1"], 100.0);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(rig.usage(&pods).await.unwrap().pods, []);
}

#[tokio::test(start_paused = true)]
async fn container_that_was_measured_once_is_no_usage() {
    let rig = Rig::new("enabled: true");
    let start = rig.start;
    // A second container appears at 20 s. The kubelet returns the container's first counters twice.
    rig.servers.serve(address(1), move |_| {
        let mut text = page(start, &["web-1"], 100.0);
        if start.elapsed() >= Duration::from_secs(20) {
            let at = (start.elapsed().as_secs() / 10).min(3) * 10;
            let millis = (EPOCH as u64 + at) * 1000;
            let labels = "{container=\"new\",namespace=\"shop\",pod=\"web-1\"}";
            let _ = write!(
                text,
                "container_cpu_usage_seconds_total{labels} {} {millis}\n\
                 container_memory_working_set_bytes{labels} 67108864 {millis}\n\
                 container_start_time_seconds{labels} {}\n",
                at as f64 * 0.1,
                EPOCH + 19
            );
        }
        PageResponse::page(text)
    });
    let pods = [pod("web-1", 1)];
    assert_eq!(rig.measured(&pods).await, [("web-1".to_owned(), 100)]);
    sleep(Duration::from_secs(12)).await;
    assert_eq!(rig.usage(&pods).await.unwrap().pods, [], "at 28 s");
    sleep(Duration::from_secs(8)).await;
    assert_eq!(rig.usage(&pods).await.unwrap().pods[0].containers.len(), 2, "at 36 s");
}

#[tokio::test(start_paused = true)]
async fn node_that_no_hpa_asks_for_is_not_scraped_any_more() {
    let rig = Rig::new("enabled: true");
    rig.serve(1, &["web-1"], 100.0);
    rig.usage(&[pod("web-1", 1)]).await.unwrap();
    sleep(Duration::from_secs(200)).await;
    let requests = rig.servers.requests().len();
    assert!((30..=40).contains(&requests), "{requests}");
    assert_eq!(rig.sources.nodes(), 0);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(rig.servers.requests().len(), requests);
}

#[tokio::test(start_paused = true)]
async fn only_addresses_of_nodes_are_scraped_and_only_where_the_file_allows_it() {
    let rig = Rig::new("enabled: true, namespaces: [shop]");
    for ip in [
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "fe80::1",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
        "fd20:ce::254",
    ] {
        let failed = rig.usage(&[on("web", ip)]).await.unwrap_err();
        let expected = "none of 1 pods has a number; web: the node of the pod has no address, or an address outside of node networks";
        assert_eq!(failed.to_string(), expected, "{ip}");
    }
    rig.serve(1, &["web"], 100.0);
    let ended = PodTarget { running: false, ..pod("web", 1) };
    assert_eq!(rig.usage(&[ended]).await.unwrap().pods, []);
    let foreign = rig.usage_in("bank", None, &[pod("web", 1)]).await.unwrap_err();
    assert_eq!(foreign, SourceError::Namespace);
    let off = Rig::new("enabled: false");
    off.serve(1, &["web"], 100.0);
    assert_eq!(off.usage(&[pod("web", 1)]).await.unwrap_err(), SourceError::KubeletDisabled);
    assert_eq!(rig.servers.connections() + off.servers.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn usage_of_a_namespace_is_its_own() {
    let rig = Rig::new("enabled: true");
    rig.serve(1, &["web-1"], 100.0);
    // Both namespaces have a pod of this name on the same node.
    let pods = [pod("web-1", 1)];
    assert_eq!(rig.measured(&pods).await.len(), 1);
    assert_eq!(rig.usage_in("bank", None, &pods).await.unwrap().pods, []);
}

#[tokio::test(start_paused = true)]
async fn counters_that_do_not_change_become_too_old() {
    let rig = Rig::new("enabled: true");
    rig.serve(1, &["web-1"], 100.0);
    let pods = [pod("web-1", 1)];
    assert_eq!(rig.measured(&pods).await.len(), 1);
    assert!(rig.usage_in("shop", Some(15), &pods).await.is_ok());
    let last = page(rig.start, &["web-1"], 100.0);
    rig.servers.serve(address(1), move |_| PageResponse::page(last.clone()));
    sleep(Duration::from_secs(30)).await;
    let failed = rig.usage_in("shop", Some(15), &pods).await.unwrap_err();
    assert!(matches!(failed, SourceError::TooOld(20.., 15)), "{failed}");
}
