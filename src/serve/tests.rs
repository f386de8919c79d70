use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connections::{MAX_WAITING, network};
use super::*;
use clock::{SharedClock, SystemClock};
use cluster::client::{ClientOptions, Clients};
use cluster::permission::Action;
use engine::telemetry::metrics::Metrics;
use fake_cluster::Cluster;
use flags::Config;

fn endpoints() -> Endpoints {
    Endpoints::new(Health::new(), Metrics::new(), None)
}

/// Sends one request on a new connection. Returns the status code, the headers in lower case, and the body.
async fn ask(endpoints: &Endpoints, request_line: &str) -> (u16, String, String) {
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let server = tokio::spawn(serve_connection(server, endpoints.clone(), CancellationToken::new()));
    let request = format!("{request_line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    server.await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
}

#[tokio::test]
async fn process_is_live_before_it_is_ready() {
    let endpoints = endpoints();
    let synced = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&synced);
    endpoints.health.add("hpa-informer", Scope::Ready, move || {
        state.load(Ordering::Relaxed).then_some(()).ok_or_else(|| NotReady("no list yet".to_owned()))
    });
    for path in ["/healthz", "/livez"] {
        let (status, _, body) = ask(&endpoints, &format!("GET {path}")).await;
        assert_eq!((status, body.as_str()), (200, "ok"));
    }
    let (status, _, body) = ask(&endpoints, "GET /readyz").await;
    assert_eq!(status, 500);
    assert_eq!(body, "[+]ping ok\n[-]hpa-informer failed: no list yet\nreadyz check failed\n");

    synced.store(true, Ordering::Relaxed);
    let (status, head, body) = ask(&endpoints, "GET /readyz").await;
    assert_eq!((status, body.as_str()), (200, "ok"));
    assert!(head.contains("content-type: text/plain; charset=utf-8"), "{head}");

    synced.store(false, Ordering::Relaxed);
    assert_eq!(ask(&endpoints, "GET /readyz").await.0, 500);
}

#[tokio::test]
async fn process_with_a_failed_live_check_is_not_ready() {
    let endpoints = endpoints();
    endpoints.health.add("workers", Scope::Live, || Err(NotReady("stuck".to_owned())));
    assert_eq!(ask(&endpoints, "GET /livez").await.0, 500);
    let (status, _, body) = ask(&endpoints, "GET /readyz?verbose").await;
    assert_eq!((status, body.as_str()), (500, "[+]ping ok\n[-]workers failed: stuck\nreadyz check failed\n"));
}

#[tokio::test]
async fn passing_check_may_show_a_detail() {
    let endpoints = endpoints();
    endpoints.health.note("takeover", Scope::Ready, || Ok("holding: another one writes".to_owned()));
    let (status, _, body) = ask(&endpoints, "GET /readyz?verbose").await;
    let expected = "[+]ping ok\n[+]takeover ok: holding: another one writes\nreadyz check passed\n";
    assert_eq!((status, body.as_str()), (200, expected));
    assert_eq!(ask(&endpoints, "GET /readyz/takeover").await.2, "ok");
}

#[tokio::test]
async fn checks_can_be_listed_excluded_and_read_one_by_one() {
    let endpoints = endpoints();
    endpoints.health.add("permissions", Scope::Ready, || Err(NotReady("cannot list pods".to_owned())));
    let (status, _, body) = ask(&endpoints, "GET /readyz?verbose&exclude=permissions&exclude=x").await;
    assert_eq!(status, 200);
    let expected = "[+]ping ok\n[+]permissions excluded: ok\n\
                    warn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n";
    assert_eq!(body, expected);
    assert_eq!(ask(&endpoints, "GET /livez?verbose").await.2, "[+]ping ok\nlivez check passed\n");
    assert_eq!(ask(&endpoints, "GET /readyz/ping").await.2, "ok");
    let (status, _, body) = ask(&endpoints, "GET /readyz/permissions").await;
    assert_eq!((status, body.as_str()), (500, "internal server error: cannot list pods\n"));
    assert_eq!(ask(&endpoints, "GET /livez/permissions").await.0, 404);
}

#[tokio::test]
async fn metrics_are_served_in_the_text_format() {
    let (status, head, body) = ask(&endpoints(), "GET /metrics").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(body.contains("# TYPE concertina_build_info gauge\n"), "{body}");
}

#[tokio::test]
async fn unknown_paths_methods_and_long_headers_are_refused() {
    let endpoints = endpoints();
    for path in ["/", "/metric", "/metrics/x", "/readyzz", "/debug/pprof"] {
        assert_eq!(ask(&endpoints, &format!("GET {path}")).await.0, 404, "{path}");
    }
    let (status, head, _) = ask(&endpoints, "POST /metrics").await;
    assert!(status == 405 && head.contains("allow: get, head"), "{head}");
    let (status, _, body) = ask(&endpoints, "HEAD /livez").await;
    assert_eq!((status, body.as_str()), (200, ""));
    let long = format!("GET /livez?{}", "x".repeat(16 * 1024));
    assert!(matches!(ask(&endpoints, &long).await.0, 414 | 431));
}

#[tokio::test(start_paused = true)]
async fn client_that_never_finishes_its_header_is_disconnected() {
    let (mut client, server) = tokio::io::duplex(1024);
    let server = tokio::spawn(serve_connection(server, endpoints(), CancellationToken::new()));
    client.write_all(b"GET /livez HTTP/1.1\r\nHo").await.unwrap();
    let start = tokio::time::Instant::now();
    server.await.unwrap();
    assert_eq!(start.elapsed(), HEADER_TIMEOUT);
}

/// Creates pages with a large page at `/large`. The flag shows whether the last response of the large page is in
/// memory.
fn with_large_page() -> (Endpoints, Arc<AtomicBool>) {
    struct Large(Arc<AtomicBool>);
    impl AsRef<[u8]> for Large {
        fn as_ref(&self) -> &[u8] {
            static BYTES: [u8; 1 << 20] = [b'x'; 1 << 20];
            &BYTES
        }
    }
    impl Drop for Large {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }
    let in_memory = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&in_memory);
    let page = move |_: Option<&str>| {
        flag.store(true, Ordering::Relaxed);
        Answer { status: http::StatusCode::OK, json: Bytes::from_owner(Large(Arc::clone(&flag))) }
    };
    (endpoints().with_json("/large", Arc::new(page)), in_memory)
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_read_a_response_is_disconnected() {
    let (endpoints, in_memory) = with_large_page();
    let (mut client, server) = tokio::io::duplex(1024);
    let server = tokio::spawn(serve_connection(server, endpoints, CancellationToken::new()));
    client.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let start = tokio::time::Instant::now();
    // Slow reads of single bytes do not extend the time limit.
    while !server.is_finished() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(in_memory.load(Ordering::Relaxed), !server.is_finished());
        client.read_u8().await.unwrap();
        assert!(start.elapsed() <= READ_LIMIT + Duration::from_secs(1), "the client is still connected");
    }
    assert!(start.elapsed() >= READ_LIMIT);
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_its_responses_stays_connected() {
    let (endpoints, in_memory) = with_large_page();
    let (mut client, server) = tokio::io::duplex(1024);
    let server = tokio::spawn(serve_connection(server, endpoints, CancellationToken::new()));
    for _ in 0..10 {
        client.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        assert!(String::from_utf8(head).unwrap().contains("content-length: 1048576\r\n"));
        tokio::time::sleep(READ_LIMIT / 2).await;
        client.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
        tokio::time::sleep(READ_LIMIT).await;
        assert!(!in_memory.load(Ordering::Relaxed) && !server.is_finished());
    }
}

#[tokio::test]
async fn port_is_served_until_the_stop_and_then_released() {
    let plain = "127.0.0.1:0".parse().ok();
    let config = Config { serving: Serving { port: 0, plain, ..Serving::default() }, ..Config::default() };
    let ports = Server::bind(&config.serving).unwrap();
    let address = ports.plain_address().unwrap();
    assert_eq!(ports.secure_address(), None);
    let clock: SharedClock = Arc::new(SystemClock);
    let cluster = Cluster::new(Arc::clone(&clock));
    let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
    let access =
        Access::new(&config.serving, config.own_kubeconfig(), &clients, &ClientOptions::default(), clock)
            .unwrap();
    let stop = CancellationToken::new();
    let server = tokio::spawn(ports.run(endpoints(), access, stop.clone()));
    // The idle connection does not delay the stop.
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 15];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    stop.cancel();
    server.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[test]
fn parity_and_handover_need_permission_to_list_all_hpas() {
    let action = |uri: &str| pages::action(&http::Method::GET, &uri.parse().unwrap());
    let Some(Action::ResourceAttributes(of)) = action("/parity?x") else { panic!() };
    assert_eq!((of.verb, of.resource), ("list", "horizontalpodautoscalers"));
    assert_eq!((of.namespace.as_str(), of.name.as_str()), ("", ""));
    assert!(matches!(action("/parityx"), Some(Action::NonResourceAttributes { .. })));
    assert_eq!(action("/handover"), action("/parity"));
}

const KUBELET: &str = "10.0.0.1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Adds 1,000 connections from three addresses, numbered from 1,000.
fn flood(admission: &mut Admission<usize>) {
    for number in 0..1_000 {
        admission.add(ip(&format!("10.0.1.{}", number % 3)), 1_000 + number);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_wait_once_the_burst_is_used_up() {
    let mut admission = Admission::limited();
    let start = Instant::now();
    for number in 0..150 {
        admission.add(ip(KUBELET), number);
    }
    for number in 0..150 {
        assert_eq!(admission.next().await, number);
    }
    let elapsed = start.elapsed();
    assert!((1_999..2_050).contains(&elapsed.as_millis()), "{elapsed:?}");
    assert!(timeout(Duration::from_mins(1), admission.next()).await.is_err(), "nothing waits");
}

#[tokio::test(start_paused = true)]
async fn other_addresses_have_their_turn_in_a_flood() {
    let mut admission = Admission::limited();
    flood(&mut admission);
    for _ in 0..200 {
        admission.next().await;
        flood(&mut admission);
    }
    admission.add(ip(KUBELET), 1);
    let start = Instant::now();
    let mut before = 0;
    while admission.next().await != 1 {
        before += 1;
        assert!(before <= 3, "more than one connection of each other address came first");
        flood(&mut admission);
    }
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn abandoned_wait_loses_no_connection_and_no_token() {
    let mut admission = Admission::limited();
    for number in 0..51 {
        admission.add(ip(KUBELET), number);
    }
    for number in 0..50 {
        assert_eq!(admission.next().await, number);
    }
    let start = Instant::now();
    for _ in 0..10 {
        assert!(timeout(Duration::from_millis(1), admission.next()).await.is_err());
    }
    assert_eq!(admission.next().await, 50);
    assert!(start.elapsed() < Duration::from_millis(25), "{:?}", start.elapsed());
}

#[test]
fn waiting_connections_are_bounded_and_the_flood_loses_its_own() {
    let mut admission = Admission::unlimited();
    admission.add(ip(KUBELET), 1);
    for _ in 0..3 {
        flood(&mut admission);
    }
    assert_eq!(admission.count, MAX_WAITING);
    assert_eq!(admission.waiting.values().map(VecDeque::len).sum::<usize>(), MAX_WAITING);
    assert_eq!(admission.waiting[&ip(KUBELET)], [1]);
    assert_eq!(admission.turns.len(), 4);
}

#[test]
fn addresses_of_one_host_share_a_turn() {
    for (one, other, same) in [
        ("2001:db8::1", "2001:db8::ffff:1", true),
        ("2001:db8::1", "2001:db8:0:1::1", false),
        ("::ffff:10.0.0.1", "10.0.0.1", true),
        ("10.0.0.1", "10.0.0.2", false),
    ] {
        assert_eq!(network(ip(one)) == network(ip(other)), same, "{one} {other}");
    }
}
