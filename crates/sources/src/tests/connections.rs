//! Reuse of connections to pods.

use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

const PAGE: &str = "content-type: text/plain; version=0.0.4\r\ncontent-length: 10\r\n\r\nwaiting 3\n";

/// The behavior of a pod after its first response on a connection.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// Answers the next request.
    Continues,
    /// Closes the connection at once.
    Closes,
    /// Closes the connection when the next request arrives.
    ClosesOnRequest,
    /// Has announced that it closes the connection, but keeps it open.
    Announced,
    /// Sends a second response without a request.
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
        // Longer than the lifetime of an idle connection.
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
            let reading = sources.read(&rule(WAITING), Form::PerPod, &target).await.unwrap();
            assert_eq!(reading.values, Values::PerPod([("web".into(), 3.0)].into()), "{then:?}");
            advance(Duration::from_secs(seconds)).await;
        }
        assert_eq!(dialled.load(Ordering::Relaxed), connections, "{then:?}, each {seconds} s");
    }
}
