//! The metrics pages of the pods, which all have the address of this machine.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

use super::load::{HPAS, Load, name};
use crate::election::now;
use crate::outcome::{Context as _, Outcome};

pub(crate) struct Pages {
    pub(crate) address: SocketAddr,
    load: Arc<Mutex<Option<Load>>>,
    task: JoinHandle<()>,
}

/// The path of the page with the loads of all pods, for Prometheus.
pub(crate) const ALL: &str = "/metrics/all";

/// The path of the page of an HPA's pod.
pub(crate) fn path(index: usize) -> String {
    format!("/metrics/{index}")
}

/// The address of this machine in a network. Concertina requests no page at a loopback address.
pub(crate) async fn own_address() -> Outcome<IpAddr> {
    // A UDP socket that is connected to a network has the address of this machine there, and sends nothing.
    let socket = UdpSocket::bind(("0.0.0.0", 0)).await?;
    socket.connect(("198.51.100.1", 9)).await.context("this machine needs a route to other networks")?;
    Ok(socket.local_addr()?.ip())
}

impl Pages {
    /// Serves pages with one unit of load.
    pub(crate) async fn start() -> Outcome<Self> {
        let listener = TcpListener::bind((own_address().await?, 0)).await?;
        let address = listener.local_addr()?;
        let load = Arc::<Mutex<Option<Load>>>::default();
        let shown = Arc::clone(&load);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shown = Arc::clone(&shown);
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let page = page(&request, *shown.lock());
                        async move { Ok::<_, Infallible>(page) }
                    });
                    // Clients close idle connections, which is not an error.
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, load, task })
    }

    /// From now on shows a load.
    pub(crate) fn show(&self, load: Load) {
        *self.load.lock() = Some(load);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn page(request: &Request<Incoming>, load: Option<Load>) -> Response<Full<Bytes>> {
    let at = now();
    let units = |index| load.map_or(1, |load| load.units(index, at));
    let mut text = "# TYPE load gauge\n".to_owned();
    let path = request.uri().path();
    if path == ALL {
        for index in 0..HPAS {
            let _ = writeln!(text, "load{{pod=\"{}\"}} {}", name(index), units(index));
        }
    } else if let Some(index) = path.rsplit('/').next().and_then(|index| index.parse().ok()) {
        let _ = writeln!(text, "load {}", units(index));
    }
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let media = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}
