//! Each kind of bad input causes an error for the HPA that reads it, and for no other HPA.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
            PageResponse::page("# filler\n".repeat(100 << 20 >> 3)),
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
            "the page has the type \"text/html\": it must be text/plain or application/openmetrics-text",
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
async fn timestamp_of_a_page_or_an_answer_does_not_change_the_age() {
    let rig = Rig::new(&format!("{MAIN}\n{PODS}"));
    rig.servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 3 99999999999999\n"));
    let reading = rig.read(WAITING, Form::PerPod, &[pod("web", 1)]).await.unwrap();
    assert_eq!((reading.values, reading.at), (Values::PerPod([("web".into(), 3.0)].into()), Instant::now()));
    let result = serde_json::json!([{"metric": {}, "value": [99_999_999_999.0, "4"]}]);
    let data = serde_json::json!({"resultType": "vector", "result": result});
    let answer = PageResponse::json(200, &serde_json::json!({"status": "success", "data": data}));
    rig.servers.serve("prometheus:9090", move |_| answer.clone());
    let metric = "{metric: a, maxAgeSeconds: 1, prometheus: {server: main, query: 'sum(up)'}}";
    let reading = rig.read(metric, Form::Single, &[]).await.unwrap();
    assert_eq!((reading.values, reading.at), (Values::Single(Some(4.0)), Instant::now()));
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
        let reading = sources.read(&rule(WAITING), Form::PerPod, &target).await.unwrap();
        // The data before the break is a valid page, but yields no number.
        assert_eq!(reading.values, Values::PerPod([("good".into(), 3.0)].into()));
        let (missing, error) = reading.missing.unwrap();
        assert_eq!(&*missing, "dying");
        assert!(error.to_string().starts_with("the request failed: "), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn query_that_takes_a_minute_is_an_error_and_delays_no_other_one() {
    let rig = Rig::new(
        "prometheus:\n- {name: main, url: 'http://prometheus:9090'}\n- {name: other, url: 'http://other:9090'}",
    );
    rig.servers.serve("prometheus:9090", |request| {
        let drip = Duration::from_secs(if request.query.contains("slow") { 60 } else { 0 });
        PageResponse { drip, ..PageResponse::vector(&[(&[], 1.0)]) }
    });
    let started = Instant::now();
    let slow: Vec<String> = (0..20)
        .map(|n| format!("{{metric: a, prometheus: {{server: main, query: 'sum(slow{{n=\"{n}\"}})'}}}}"))
        .collect();
    let slow = slow.iter().map(|metric| rig.read_in("hostile", metric, Form::Single, &[]));
    let quick = "{metric: a, prometheus: {server: main, query: 'sum(up)'}}";
    let (slow, quick) = futures::join!(futures::future::join_all(slow), async {
        sleep(Duration::from_millis(10)).await;
        let reading = rig.read(quick, Form::Single, &[]).await;
        (reading, started.elapsed())
    });
    assert_eq!(quick.0.unwrap().values, Values::Single(Some(1.0)));
    assert!(quick.1 < Duration::from_millis(100), "{:?}", quick.1);
    let timeout = "no complete response within 5s";
    let errors = slow
        .iter()
        .map(|result| result.as_ref().map_or_else(|failure| failure.error.to_string(), |_| String::new()));
    assert!(errors.clone().all(|error| !error.is_empty()) && errors.clone().any(|error| error == timeout));
}

#[tokio::test(start_paused = true)]
async fn oversized_query_sends_no_request() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 1.0)]));
    let mut rule = rule("{metric: a, prometheus: {server: main, query: 'sum(up)'}}");
    rule.origin = policies::spec::MetricOrigin::Prometheus {
        server: "main".into(),
        query: format!("sum({})", "a".repeat(1 << 20)).into(),
    };
    let namespace: Arc<str> = "shop".into();
    let target = Target { namespace: &namespace, name: "web", pods: &[], secrets: None };
    let failure = rig.sources.read(&rule, Form::Single, &target).await.unwrap_err();
    assert_eq!(failure.error.to_string(), "the query has 1048581 bytes: at most 16384 are allowed");
    assert!(failure.to_string().len() < 500, "{failure}");
    assert_eq!(rig.servers.requests(), []);
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
