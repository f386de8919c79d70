//! Scrapes of pods: their times, their limits, and their connections.

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use super::*;

/// The address of a pod that closes the connection within a response.
const DYING: &str = "10.0.0.66:8080";

/// Servers in memory. The server at [`DYING`] sends the given bytes and closes the connection.
#[derive(Debug)]
struct DyingServer(Arc<dyn Dial>, &'static str);

impl Dial for DyingServer {
    fn dial(&self, to: Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        if to.authority().is_none_or(|authority| authority.as_str() != DYING) {
            return self.0.dial(to);
        }
        let response = self.1;
        let (client, mut server) = tokio::io::duplex(1 << 10);
        tokio::spawn(async move {
            let mut request = [0; 1 << 10];
            let _ = server.read(&mut request).await;
            let _ = server.write_all(response.as_bytes()).await;
        });
        futures::future::ready(Ok(Box::new(client) as Box<dyn Io>)).boxed()
    }
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
    // From now on, one scrape of a page serves both metrics.
    advance(Duration::from_secs(2)).await;
    let before = rig.servers.requests().len();
    assert_eq!(rig.per_pod(running, &pods).await, named(&[("web-1", 5.0)]));
    assert_eq!(rig.per_pod(WAITING, &pods).await, named(&[("web-1", 3.0), ("web-2", 2.5)]));
    assert_eq!(rig.servers.requests().len(), before + 2);
}

#[tokio::test(start_paused = true)]
async fn timestamps_of_a_page_count_for_the_age() {
    let limited = "{metric: waiting, maxAgeSeconds: 60, pods: {port: 8080, series: waiting}}";
    for (ages, expected) in [
        (&[0][..], Ok(Some(3.0))),
        (&[59], Ok(Some(3.0))),
        (&[61], Err("the number is 61 s old, at most 60 s are allowed")),
        (&[0, 86_400], Err("the number is 86400 s old, at most 60 s are allowed")),
        (&[-599], Ok(Some(3.0))),
        (&[-601], Ok(None)),
        (&[-601, 5], Ok(Some(3.0))),
    ] {
        let rig = Rig::new(PODS);
        let line = |(index, age): (usize, &i64)| {
            format!("waiting{{a=\"{index}\"}} 3 {}\n", now().as_millisecond() - age * 1000)
        };
        let page: String = ages.iter().enumerate().map(line).collect();
        rig.servers.serve("10.0.0.1:8080", move |_| PageResponse::page(page.clone()));
        let expected = match expected {
            Ok(Some(value)) => named(&[("web", value)]),
            Ok(None) => named(&[]),
            Err(error) => Err(error.to_owned()),
        };
        assert_eq!(rig.per_pod(limited, &[pod("web", 1)]).await, expected, "{ages:?}");
        // Without a maximum, the value counts.
        assert!(rig.per_pod(WAITING, &[pod("web", 1)]).await.is_ok());
    }
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
async fn rate_of_a_counter_comes_from_scrapes_between_syncs() {
    let rig = Rig::new(PODS);
    let start = Instant::now();
    rig.servers.serve("10.0.0.1:8080", move |_| {
        // The counter grows by ten per second and restarts after 20 s.
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
    // Another namespace has a separate limit.
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

/// The pause between two scrapes of a page with an interval of 1 s, without a sync.
const PAUSE: Duration = Duration::from_millis(1_050);

#[tokio::test(start_paused = true)]
async fn page_that_waits_for_its_turn_is_queued_once() {
    let rig = Rig::new(PODS);
    for last in 1..=2 {
        rig.servers.serve(format!("10.0.0.{last}:8080"), |_| PageResponse::page("waiting 3\n"));
    }
    rig.per_pod(WAITING, &[pod("a", 1), pod("b", 2)]).await.unwrap();
    let scraper = Arc::clone(&rig.sources.current().scraper);
    advance(PAUSE).await;
    let waiting = scraper.due();
    assert_eq!(waiting.len(), 2);
    for second in 0..10 {
        advance(Duration::from_secs(1)).await;
        assert_eq!(scraper.due().len(), 0, "{second}");
    }
    futures::future::join_all(waiting).await;
    // Both pages are late, and each is scraped once immediately, not once for each missed interval.
    futures::future::join_all(scraper.due()).await;
    assert_eq!(scraper.due().len(), 0);
    // A dropped scrape no longer counts as queued.
    advance(PAUSE).await;
    let abandoned = scraper.due();
    assert_eq!(abandoned.len(), 2);
    drop(abandoned);
    advance(PAUSE).await;
    assert_eq!(scraper.due().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn page_is_scraped_once_per_interval() {
    let rig = Rig::new(PODS);
    // A request takes a fraction of a tick.
    let drip = Duration::from_millis(7);
    rig.servers.serve("10.0.0.1:8080", move |_| PageResponse { drip, ..PageResponse::page("waiting 3\n") });
    let running = tokio::spawn(Arc::clone(&rig.sources).run(Reports::default()));
    rig.per_pod(WAITING, &[pod("web", 1)]).await.unwrap();
    sleep(Duration::from_mins(1)).await;
    let requests = rig.servers.requests().len();
    // One minute has 57 pauses.
    assert!((57..=59).contains(&requests), "{requests}");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn metric_with_too_many_series_leaves_others_of_its_page() {
    let rig = Rig::new(PODS);
    let many = (0..1_001).map(|n| format!("many{{n=\"{n}\"}} 1\n")).collect::<Vec<_>>().concat();
    rig.servers.serve("10.0.0.1:8080", move |_| PageResponse::page(format!("{many}waiting 3\n")));
    let many = "{metric: many, pods: {port: http, series: many, intervalSeconds: 1}}";
    let pods = [pod("web", 1)];
    let (many, waiting) = futures::join!(rig.per_pod(many, &pods), rig.per_pod(WAITING, &pods));
    assert!(many.unwrap_err().ends_with("more than 1000 series match: select fewer by their labels"));
    assert_eq!(waiting, named(&[("web", 3.0)]));
}

#[tokio::test(start_paused = true)]
async fn counters_of_a_namespace_are_bounded_with_their_series() {
    let rig = Rig::new("pods: {enabled: true, maxSeries: 100000}");
    // One page may have half of the counters.
    let many = (0..40_000).map(|n| format!("many{{n=\"{n}\"}} 1\n")).collect::<Vec<_>>().concat();
    for address in ["10.0.0.1:8080", "10.0.0.2:8080"] {
        let many = many.clone();
        rig.servers.serve(address, move |_| PageResponse::page(many.clone()));
    }
    let many = "{metric: many, pods: {port: http, series: many, rateSeconds: 2, intervalSeconds: 1}}";
    rig.per_pod(many, &[pod("web", 1)]).await.unwrap();
    let refused = rig.per_pod(many, &[pod("api", 2)]).await.unwrap_err();
    assert!(refused.contains("too many counters are kept for this namespace"), "{refused}");
}

/// Servers in memory, with a record of the largest read buffer.
#[derive(Debug)]
struct Measured(Arc<dyn Dial>, Arc<AtomicUsize>);

struct MeasuredStream(Box<dyn Io>, Arc<AtomicUsize>);

impl Dial for Measured {
    fn dial(&self, to: Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let (dialled, largest) = (self.0.dial(to), Arc::clone(&self.1));
        async move { Ok(Box::new(MeasuredStream(dialled.await?, largest)) as Box<dyn Io>) }.boxed()
    }
}

impl AsyncRead for MeasuredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.1.fetch_max(buffer.remaining(), Ordering::Relaxed);
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for MeasuredStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn request_to_a_pod_has_a_small_buffer() {
    let rig = Rig::new(PODS);
    let page = PageResponse::page(format!("{}waiting 3\n", format!("# {:126}\n", "filler").repeat(28_000)));
    rig.servers.serve("10.0.0.1:8080", move |_| page.clone());
    let largest = Arc::default();
    let dial = Arc::new(Measured(in_memory(&rig.servers, None), Arc::clone(&largest)));
    let sources = Arc::new(Sources::new(rig.file.clone(), Some(dial)).unwrap());
    let namespace: Arc<str> = "shop".into();
    let pods = [pod("web", 1)];
    let target = Target { namespace: &namespace, name: "web", pods: &pods, secrets: None };
    for _ in 0..5 {
        let reading = sources.read(&rule(WAITING), Form::PerPod, &target, now()).await.unwrap();
        assert_eq!(reading.values, Values::PerPod([("web".into(), 3.0)].into()));
        advance(Duration::from_secs(1)).await;
    }
    // All requests share one connection.
    assert_eq!(rig.servers.connections(), 1);
    let largest = largest.load(Ordering::Relaxed);
    assert!(largest <= 32 << 10, "{largest}");
}

const PAGE: &str = "content-type: text/plain; version=0.0.4\r\ncontent-length: 10\r\n\r\nwaiting 3\n";

/// The behavior of a pod after its first response on a connection.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// The pod answers the next request.
    Continues,
    /// The pod closes the connection immediately.
    Closes,
    /// The pod closes the connection when the next request arrives.
    ClosesOnRequest,
    /// The response announces that the pod closes the connection, but the pod keeps it open.
    Announced,
    /// The pod sends a second response without a request.
    SendsMore,
}

/// A network of one pod that counts its connections.
#[derive(Debug)]
struct OnePod(Then, Arc<AtomicUsize>);

impl Dial for OnePod {
    fn dial(&self, _: Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let (client, server) = tokio::io::duplex(64 << 10);
        tokio::spawn(serve(server, self.0));
        async move { Ok(Box::new(client) as Box<dyn Io>) }.boxed()
    }
}

async fn serve(mut io: DuplexStream, then: Then) -> io::Result<()> {
    loop {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            if io.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let close = if matches!(then, Then::Announced) { "connection: close\r\n" } else { "" };
        io.write_all(format!("HTTP/1.1 200 OK\r\n{close}{PAGE}").as_bytes()).await?;
        match then {
            Then::Continues => {}
            Then::Closes => return Ok(()),
            Then::ClosesOnRequest => {
                io.read_u8().await?;
                return Ok(());
            }
            Then::Announced => std::future::pending().await,
            Then::SendsMore => io.write_all(format!("HTTP/1.1 200 OK\r\n{PAGE}").as_bytes()).await?,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connection_is_used_again_if_the_pod_keeps_it() {
    for (then, seconds, connections) in [
        (Then::Continues, 1, 1),
        // 40 s exceed the lifetime of an idle connection.
        (Then::Continues, 40, 4),
        (Then::Closes, 1, 4),
        (Then::ClosesOnRequest, 1, 4),
        (Then::Announced, 1, 4),
        (Then::SendsMore, 1, 4),
    ] {
        let rig = Rig::new(PODS);
        let dialled = Arc::default();
        let dial = Arc::new(OnePod(then, Arc::clone(&dialled)));
        let sources = Arc::new(Sources::new(rig.file.clone(), Some(dial)).unwrap());
        let (namespace, pods) = ("shop".into(), [pod("web", 1)]);
        let target = Target { namespace: &namespace, name: "web", pods: &pods, secrets: None };
        for _ in 0..4 {
            let reading = sources.read(&rule(WAITING), Form::PerPod, &target, now()).await.unwrap();
            assert_eq!(reading.values, Values::PerPod([("web".into(), 3.0)].into()), "{then:?}");
            advance(Duration::from_secs(seconds)).await;
        }
        assert_eq!(dialled.load(Ordering::Relaxed), connections, "{then:?}, each {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn pod_that_dies_within_its_page_is_missing() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n";
    for body in
        ["content-length: 20\r\n\r\nwaiting 1\n", "transfer-encoding: chunked\r\n\r\na\r\nwaiting 1\n\r\n"]
    {
        let rig = Rig::new(PODS);
        rig.servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 3\n"));
        let response: &'static str = format!("{head}{body}").leak();
        let dial = Arc::new(DyingServer(in_memory(&rig.servers, None), response));
        let sources = Arc::new(Sources::new(rig.file.clone(), Some(dial)).unwrap());
        let pods = [pod("dying", 66), pod("good", 1)];
        let namespace: Arc<str> = "shop".into();
        let target = Target { namespace: &namespace, name: "web", pods: &pods, secrets: None };
        let reading = sources.read(&rule(WAITING), Form::PerPod, &target, now()).await.unwrap();
        // The data before the break is a valid page, but yields no number.
        assert_eq!(reading.values, Values::PerPod([("good".into(), 3.0)].into()));
        let (missing, error) = reading.missing.unwrap();
        assert_eq!(&*missing, "dying");
        assert!(error.to_string().starts_with("the request failed: "), "{error}");
    }
}
