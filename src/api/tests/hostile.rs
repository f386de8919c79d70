//! Servers that answer without end, in drops, or with what no decoder should follow to its depth.

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
use crate::api::call::Call;
use crate::api::decode;
use crate::api::error::ApiError;
use crate::api::mapper::Mapper;
use crate::api::metrics::{ApiMetrics, Metrics, MetricsOptions};
use crate::api::scale::Scales;

/// How a server goes on once it has the head of a request.
type Script = fn(DuplexStream) -> BoxFuture<'static, io::Result<()>>;

/// Clients of a server that answers every request on a connection of its own with `script`.
fn clients_of(script: Script) -> Clients {
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

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
/// One byte of a body.
const CHUNK: &str = "1\r\n \r\n";
const ERROR: &str = "HTTP/1.1 503 No\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";

/// A beginning, and then these bytes every second, for ever.
async fn trickle(mut to: DuplexStream, beginning: &str, drop: &str) -> io::Result<()> {
    to.write_all(beginning.as_bytes()).await?;
    loop {
        to.write_all(drop.as_bytes()).await?;
        sleep(Duration::from_secs(1)).await;
    }
}

/// A piece of a body as fast as it is read, for ever.
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
async fn what_trickles_ends_with_the_time_of_its_request() {
    let scripts: [Script; 3] = [
        |to| trickle(to, HEAD, CHUNK).boxed(),
        |to| trickle(to, ERROR, CHUNK).boxed(),
        // Not even the head comes to its end.
        |to| trickle(to, "HTTP/1.1 200 OK\r\nx-", "y").boxed(),
    ];
    for (n, script) in scripts.into_iter().enumerate() {
        let clients = clients_of(script);
        let start = Instant::now();
        let error = metrics_of(&clients).fetch(usage()).await.unwrap_err();
        assert_eq!(start.elapsed(), Duration::from_secs(7), "{n}");
        assert!(error.message.ends_with("context deadline exceeded"), "{n}: {error}");
        let start = Instant::now();
        let scale = Scales::new(clients.scale.clone(), "m").get(&deployments(), "shop", "web").await;
        assert!(matches!(scale, Err(ApiError::Timeout { .. })), "{n}: {scale:?}");
        assert_eq!(start.elapsed(), ClientOptions::default().request_timeout, "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_answer_that_trickles_holds_up_a_watch_no_longer_than_its_beginning_may_take() {
    let clients = clients_of(|to| trickle(to, ERROR, CHUNK).boxed());
    let call = Call::get(["api", "v1", "pods"]).query("watch", "true").within(Duration::from_secs(9));
    let start = Instant::now();
    assert!(matches!(clients.watch.open(&call).await, Err(ApiError::Timeout { .. })));
    assert_eq!(start.elapsed(), Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_is_cut_off_at_its_bound() {
    let script: Script = |to| flood(to, HEAD, " ".repeat(4096)).boxed();
    let clients = clients_of(script);
    let error = metrics_of(&clients).fetch(usage()).await.unwrap_err();
    assert_eq!(&*error.message, "the answer is larger than 1048576 bytes");
    let scale = Scales::new(clients.scale.clone(), "m").get(&deployments(), "shop", "web").await;
    assert_eq!(scale.unwrap_err(), ApiError::TooLarge { limit: 4 << 20 });
    // An item, and what is around the items, have bounds of their own.
    for (beginning, limit) in [("{\"items\":[{\"a\":\"", 16 << 20), ("{\"kind\":\"", 1 << 20)] {
        let mut scanner = crate::api::items::ItemScanner::default();
        scanner.push(beginning.as_bytes(), |_| Ok(())).unwrap();
        let piece = vec![b'x'; 1 << 19];
        let pushed = (0..64).position(|_| scanner.push(&piece, |_| Ok(())).is_err()).unwrap();
        assert!((pushed + 1) * piece.len() <= limit + piece.len(), "{beginning}: {pushed}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_error_answer_without_end_the_beginning_is_read() {
    let clients = clients_of(|to| flood(to, ERROR, "no ".repeat(1000)).boxed());
    let start = Instant::now();
    let error = metrics_of(&clients).fetch(usage()).await.unwrap_err();
    assert!(error.message.starts_with("the server is currently unable to handle the request"), "{error}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn headers_without_end_are_an_error() {
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
        let clients = clients_of(script);
        let error = clients.scale.bytes(&Call::get(["version"])).await.unwrap_err();
        assert!(matches!(error, ApiError::Transport { .. }), "{error:?}");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_of_a_watch_without_end_is_an_error() {
    let clients = clients_of(|to| flood(to, HEAD, "x".repeat(1 << 15)).boxed());
    let answer = clients.watch.open(&Call::get(["api", "v1", "pods"])).await.unwrap();
    let mut lines = crate::api::body::Lines::new(answer.into_body(), 1 << 20);
    assert_eq!(lines.next().await.unwrap_err(), ApiError::TooLarge { limit: 1 << 20 });
}

/// How deep the texts below are nested: far more than a stack holds.
const DEEP: usize = 30_000;

/// Arrays, and objects, as deep.
fn nested() -> [String; 2] {
    let arrays = format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
    let objects = format!("{}1{}", "{\"a\":".repeat(DEEP), "}".repeat(DEEP));
    [arrays, objects]
}

#[test]
fn no_decoder_follows_nesting_to_its_depth() {
    for deep in nested() {
        // Where nothing is to be read, it is skipped, kept as received, or an error; which does not matter here.
        for place in [
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
            let json = place.replace('@', &deep).into_bytes();
            drop(decode::hpa(&json));
            drop(decode::pod(&json));
            drop(decode::meta(&json));
            drop(
                decode::watch_event(&json)
                    .map(|event| (decode::hpa(event.object), decode::pod(event.object)).0),
            );
            let mut scanner = crate::api::items::ItemScanner::default();
            let mut items = 0;
            let pushed = scanner.push(&json, |item| {
                items += 1;
                drop(serde_json::from_slice::<serde_json::Value>(item));
                Ok(())
            });
            assert!(pushed.is_err() || items <= 4);
            drop(scanner.finish());
        }
        // What is kept as received is kept whole, whatever its depth.
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
async fn no_answer_of_any_depth_is_more_than_an_error() {
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
    let clients = clients_of(script);
    let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
    assert!(Scales::new(clients.scale.clone(), "m").get(&deployments(), "shop", "web").await.is_err());
    assert!(mapper.mappings("apps", "Deployment").await.is_err());
    let options = MetricsOptions::default();
    let metrics = ApiMetrics::new(&clients, mapper, options);
    assert!(metrics.fetch(usage()).await.is_err());
    assert!(crate::api::status::read(&clients.core, "shop", "web").await.is_err());
}
