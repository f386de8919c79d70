//! Tests of servers with endless, very slow or deeply nested responses.

use std::future::ready;
use std::io;
use std::time::Duration;

use autoscaling::query::Query;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};
use tower::service_fn;

use super::*;
use crate::call::Call;
use crate::decode;
use crate::error::ApiError;
use crate::mapper::Mapper;
use crate::metrics::{ApiMetrics, Metrics, MetricsOptions};
use crate::scale::{ScaleObject, Scales};

/// A function that sends the response of a server after the head of a request.
type Script = fn(DuplexStream) -> BoxFuture<'static, io::Result<()>>;

/// Creates clients of a server that answers every request with `script`.
fn clients_to(script: Script) -> Clients {
    let connector = service_fn(move |_: Uri| {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(theirs.read_u8().await?);
            }
            script(theirs).await
        });
        ready(Ok::<_, io::Error>(TokioIo::new(ours)))
    });
    Clients::over(connector, &ClientOptions::default()).unwrap()
}

async fn read_scale(clients: &Clients) -> Result<ScaleObject, ApiError> {
    let scales = Scales::new(clients.scale.clone());
    scales.get(scales.turn("shop").await, &deployments(), "shop", "web").await
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
/// A chunk with one byte of a body.
const CHUNK: &str = "1\r\n \r\n";
const ERROR: &str = "HTTP/1.1 503 No\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";

/// Sends `start`, then sends `drop` once per second until a write fails.
async fn trickle(mut to: DuplexStream, start: &str, drop: &str) -> io::Result<()> {
    to.write_all(start.as_bytes()).await?;
    loop {
        to.write_all(drop.as_bytes()).await?;
        sleep(Duration::from_secs(1)).await;
    }
}

/// Sends `head`, then `piece` repeatedly without end, as fast as the client reads.
async fn flood(mut to: DuplexStream, head: &str, piece: String) -> io::Result<()> {
    to.write_all(head.as_bytes()).await?;
    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
    loop {
        to.write_all(chunk.as_bytes()).await?;
    }
}

fn metrics_of(clients: &Clients) -> ApiMetrics {
    let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
    let options = MetricsOptions {
        timeout: Duration::from_secs(7),
        max_response: 1 << 20,
        ..MetricsOptions::default()
    };
    ApiMetrics::new(clients, mapper, options)
}

fn usage() -> Query {
    Query::Resource { namespace: "shop".into(), selector: "".into() }
}

#[tokio::test(start_paused = true)]
async fn trickling_response_ends_at_the_requests_time_limit() {
    let scripts: [Script; 3] = [
        |to| trickle(to, HEAD, CHUNK).boxed(),
        |to| trickle(to, ERROR, CHUNK).boxed(),
        // The head of the response never ends.
        |to| trickle(to, "HTTP/1.1 200 OK\r\nx-", "y").boxed(),
    ];
    for (n, script) in scripts.into_iter().enumerate() {
        let clients = clients_to(script);
        let start = Instant::now();
        let error = metrics_of(&clients).fetch(usage()).await.unwrap_err();
        assert_eq!(start.elapsed(), Duration::from_secs(7), "{n}");
        assert!(error.message.ends_with("context deadline exceeded"), "{n}: {error}");
        let start = Instant::now();
        let scale = read_scale(&clients).await;
        assert!(matches!(scale, Err(ApiError::Timeout { .. })), "{n}: {scale:?}");
        assert_eq!(start.elapsed(), ClientOptions::default().request_timeout, "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn trickling_error_delays_a_watch_at_most_for_the_open_timeout() {
    let clients = clients_to(|to| trickle(to, ERROR, CHUNK).boxed());
    let call = Call::get(["api", "v1", "pods"]).query("watch", "true").within(Duration::from_secs(9));
    let start = Instant::now();
    assert!(matches!(clients.watch.open(&call).await, Err(ApiError::Timeout { .. })));
    assert_eq!(start.elapsed(), Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn endless_response_is_cut_off_at_its_limit() {
    let script: Script = |to| flood(to, HEAD, " ".repeat(4096)).boxed();
    let clients = clients_to(script);
    let error = metrics_of(&clients).fetch(usage()).await.unwrap_err();
    assert_eq!(&*error.message, "the response is larger than 1048576 bytes");
    let scale = read_scale(&clients).await;
    assert_eq!(scale.unwrap_err(), ApiError::TooLarge { limit: 4 << 20 });
    // The size of an item and the size of the envelope are limited separately.
    for (start, limit) in [("{\"items\":[{\"a\":\"", 16 << 20), ("{\"kind\":\"", 1 << 20)] {
        let mut scanner = crate::decode::ItemScanner::default();
        scanner.push(start.as_bytes(), |_| Ok(())).unwrap();
        let piece = vec![b'x'; 1 << 19];
        let pushed = (0..64).position(|_| scanner.push(&piece, |_| Ok(())).is_err()).unwrap();
        assert!((pushed + 1) * piece.len() <= limit + piece.len(), "{start}: {pushed}");
    }
}

#[tokio::test(start_paused = true)]
async fn first_bytes_of_an_endless_error_are_used() {
    let clients = clients_to(|to| flood(to, ERROR, "no ".repeat(1000)).boxed());
    let start = Instant::now();
    let error = metrics_of(&clients).fetch(usage()).await.unwrap_err();
    assert!(error.message.starts_with("the server is currently unable to handle the request"), "{error}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn endless_headers_are_an_error() {
    let scripts: [Script; 2] = [
        |mut to| {
            async move {
                to.write_all(b"HTTP/1.1 200 OK\r\n").await?;
                loop {
                    to.write_all(b"x-more: of the same\r\n").await?;
                }
            }
            .boxed()
        },
        |mut to| {
            async move {
                to.write_all(b"HTTP/1.1 200 OK\r\nx-long: ").await?;
                loop {
                    to.write_all(&[b'x'; 1024]).await?;
                }
            }
            .boxed()
        },
    ];
    for script in scripts {
        let start = Instant::now();
        let clients = clients_to(script);
        let error = clients.scale.bytes(&Call::get(["version"])).await.unwrap_err();
        assert!(matches!(error, ApiError::Transport { .. }), "{error:?}");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn endless_watch_line_is_an_error() {
    let clients = clients_to(|to| flood(to, HEAD, "x".repeat(1 << 15)).boxed());
    let answer = clients.watch.open(&Call::get(["api", "v1", "pods"])).await.unwrap();
    let mut lines = crate::body::Lines::new(answer.into_body(), 1 << 20);
    assert_eq!(lines.next().await.unwrap_err(), ApiError::TooLarge { limit: 1 << 20 });
}

/// The nesting depth of the test inputs, at which recursion overflows the stack.
const DEEP: usize = 30_000;

/// Returns nested arrays and nested objects.
fn nested() -> [String; 2] {
    let arrays = format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
    let objects = format!("{}1{}", "{\"a\":".repeat(DEEP), "}".repeat(DEEP));
    [arrays, objects]
}

#[test]
fn decoders_do_not_recurse_into_deep_nesting() {
    for deep in nested() {
        // Each decoder may skip the value, keep it unchanged, or fail.
        for template in [
            r#"{"metadata":{"name":"a","x":@}}"#,
            r#"{"metadata":{"name":"a","managedFields":@}}"#,
            r#"{"metadata":{"name":"a","managedFields":[{"fieldsV1":@}]}}"#,
            r#"{"metadata":{"name":"a","labels":@}}"#,
            r#"{"metadata":{"name":"a","annotations":{"b":@}}}"#,
            r#"{"metadata":{"name":"a"},"x":@}"#,
            r#"{"metadata":{"name":"a"},"spec":@,"status":@}"#,
            r#"{"metadata":{"name":"a"},"spec":{"x":@,"metrics":[@],"behavior":@},"status":{"conditions":@}}"#,
            r#"{"metadata":{"name":"a"},"spec":{"containers":[{"resources":@}]},"status":{"x":@}}"#,
            r#"{"type":"ADDED","object":@}"#,
            r#"{"object":@,"type":"ADDED"}"#,
            r#"{"x":@,"kind":"L","metadata":@,"status":@,"items":[@,{"x":@},{"value":@},{"usage":@}]}"#,
            "@",
        ] {
            let json = template.replace('@', &deep).into_bytes();
            drop(decode::hpa(&json));
            drop(decode::pod(&json));
            drop(decode::meta(&json));
            drop(
                decode::watch_event(&json)
                    .map(|event| (decode::hpa(event.object), decode::pod(event.object)).0),
            );
            let mut scanner = crate::decode::ItemScanner::default();
            let mut items = 0;
            let pushed = scanner.push(&json, |item| {
                items += 1;
                drop(serde_json::from_slice::<serde_json::Value>(item));
                Ok(())
            });
            assert!(pushed.is_err() || items <= 4);
            drop(scanner.finish());
        }
        // A value of any depth is kept completely.
        let hpa = decode::hpa(
            r#"{"metadata":{"name":"a","x":@},"spec":{"maxReplicas":1,
                "scaleTargetRef":{"kind":"K","name":"n"}}}"#
                .replace('@', &deep)
                .as_bytes(),
        );
        assert!(hpa.unwrap().metadata.get().len() > deep.len());
    }
}

#[tokio::test(start_paused = true)]
async fn deeply_nested_response_is_only_an_error() {
    let script: Script = |mut to| {
        async move {
            let body = format!(
                r#"{{"kind":"Scale","metadata":{{}},"spec":{},"items":[{}]}}"#,
                nested()[0],
                nested()[1]
            );
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            to.write_all(head.as_bytes()).await?;
            to.write_all(body.as_bytes()).await
        }
        .boxed()
    };
    let clients = clients_to(script);
    let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
    assert!(read_scale(&clients).await.is_err());
    assert!(mapper.mappings("apps", "Deployment").await.is_err());
    let options = MetricsOptions::default();
    let metrics = ApiMetrics::new(&clients, mapper, options);
    assert!(metrics.fetch(usage()).await.is_err());
    assert!(crate::status::read(&clients.core, "shop", "web").await.is_err());
}
