//! The times of scrapes, and the buffer of a request.

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

#[tokio::test(start_paused = true)]
async fn page_that_waits_for_its_turn_is_queued_once() {
    let rig = Rig::new(PODS);
    for last in 1..=2 {
        rig.servers.serve(format!("10.0.0.{last}:8080"), |_| PageResponse::page("waiting 3\n"));
    }
    rig.per_pod(WAITING, &[pod("a", 1), pod("b", 2)]).await.unwrap();
    let scraper = Arc::clone(&rig.sources.current().scraper);
    advance(Duration::from_secs(1)).await;
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
    advance(Duration::from_secs(1)).await;
    let abandoned = scraper.due();
    assert_eq!(abandoned.len(), 2);
    drop(abandoned);
    advance(Duration::from_secs(1)).await;
    assert_eq!(scraper.due().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn page_is_scraped_once_per_interval() {
    let rig = Rig::new(PODS);
    // Requests take a part of the time between two ticks.
    let drip = Duration::from_millis(7);
    rig.servers.serve("10.0.0.1:8080", move |_| PageResponse { drip, ..PageResponse::page("waiting 3\n") });
    let running = tokio::spawn(Arc::clone(&rig.sources).run(Reports::default()));
    rig.per_pod(WAITING, &[pod("web", 1)]).await.unwrap();
    sleep(Duration::from_mins(1)).await;
    let requests = rig.servers.requests().len();
    assert!((60..=62).contains(&requests), "{requests}");
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

/// Servers in memory, and the largest buffer of a read.
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
    let page = PageResponse::page(format!("{}waiting 3\n", "# filler\n".repeat(400_000)));
    rig.servers.serve("10.0.0.1:8080", move |_| page.clone());
    let largest = Arc::default();
    let dial = Arc::new(Measured(in_memory(&rig.servers, None), Arc::clone(&largest)));
    let sources = Arc::new(Sources::new(rig.file.clone(), Some(dial)).unwrap());
    let namespace: Arc<str> = "shop".into();
    let pods = [pod("web", 1)];
    let target = Target { namespace: &namespace, name: "web", pods: &pods, secrets: None };
    for _ in 0..5 {
        let reading = sources.read(&rule(WAITING), Form::PerPod, &target).await.unwrap();
        assert_eq!(reading.values, Values::PerPod([("web".into(), 3.0)].into()));
        advance(Duration::from_secs(1)).await;
    }
    // All requests share one connection.
    assert_eq!(rig.servers.connections(), 1);
    let largest = largest.load(Ordering::Relaxed);
    assert!(largest <= 32 << 10, "{largest}");
}
