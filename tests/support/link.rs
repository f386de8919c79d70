//! Clients of an embedded cluster, over connections within the process.

use concertina::api::client::{ClientOptions, Clients};
use concertina::embedded::Cluster;
use hyper_util::rt::TokioIo;

/// Clients whose every connection is a pipe to `cluster`, with real HTTP on it.
pub(crate) fn clients(cluster: &Cluster, options: &ClientOptions) -> Clients {
    let server = cluster.clone();
    let connector = tower::service_fn(move |_: http::Uri| {
        let stream = TokioIo::new(server.dial());
        async move { Ok::<_, std::io::Error>(stream) }
    });
    Clients::over(connector, options).unwrap()
}
