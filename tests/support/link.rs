//! Clients of an embedded cluster, over connections within the process.

use concertina::api::client::{ClientOptions, Clients};
use concertina::embedded::Cluster;
use hyper_util::rt::TokioIo;
use tokio::io::{copy_bidirectional, duplex};
use tokio_util::sync::CancellationToken;

/// Clients whose every connection is a pipe to `cluster`, with real HTTP on it.
pub(crate) fn clients(cluster: &Cluster, options: &ClientOptions) -> Clients {
    let server = cluster.clone();
    let connector = tower::service_fn(move |_: http::Uri| {
        let stream = TokioIo::new(server.dial());
        async move { Ok::<_, std::io::Error>(stream) }
    });
    Clients::over(connector, options).unwrap()
}

/// The same until `cut`: then every connection breaks, and none can be made any more.
pub(crate) fn clients_until(cluster: &Cluster, options: &ClientOptions, cut: &CancellationToken) -> Clients {
    let (server, cut) = (cluster.clone(), cut.clone());
    let connector = tower::service_fn(move |_: http::Uri| {
        let (near, mut far) = duplex(64 * 1024);
        let (mut server, cut) = (server.dial(), cut.clone());
        let answer = if cut.is_cancelled() {
            Err(std::io::ErrorKind::ConnectionRefused.into())
        } else {
            tokio::spawn(async move {
                cut.run_until_cancelled(copy_bidirectional(&mut far, &mut server)).await;
            });
            Ok::<_, std::io::Error>(TokioIo::new(near))
        };
        async move { answer }
    });
    Clients::over(connector, options).unwrap()
}
