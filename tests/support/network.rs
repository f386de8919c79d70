//! A network between the processes of a test: in-process streams that carry real HTTP, in virtual time.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use cluster::user::Fingerprint;
use controller::election::Peer;
use controller::history::replica::peers::{Connect, PeerTransport, ServedPages, TransportError};
use futures::future::BoxFuture;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A network of processes. Clones share the same network.
#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<BTreeMap<SocketAddr, Site>>>);

/// The server side of one process.
struct Site {
    certificate: Fingerprint,
    connect: Option<Arc<Connect>>,
    /// Cancelled when the connection of the process breaks.
    cable: CancellationToken,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("sites", &self.0.lock().keys()).finish()
    }
}

/// The client side of one process.
#[derive(Debug)]
struct Connected {
    network: Network,
    here: Peer,
    cable: CancellationToken,
}

impl Network {
    /// Adds a process to the network until `cable` is cancelled.
    pub(crate) fn join(&self, cable: &CancellationToken) -> Arc<dyn PeerTransport> {
        let mut sites = self.0.lock();
        // A disconnected process serves nothing, so the state behind its pages is dropped.
        for site in sites.values_mut().filter(|site| site.cable.is_cancelled()) {
            site.connect = None;
        }
        let address = SocketAddr::from(([10, 0, 0, u8::try_from(sites.len() + 1).unwrap()], 10257));
        let certificate = Fingerprint::from_der(address.to_string().as_bytes());
        sites.insert(address, Site { certificate, connect: None, cable: cable.clone() });
        let here = Peer { address, certificate };
        Arc::new(Connected { network: self.clone(), here, cable: cable.clone() })
    }

    /// Removes all processes and drops their state.
    #[allow(dead_code, reason = "only tests with many clusters in one process need it")]
    pub(crate) fn close(&self) {
        self.0.lock().clear();
    }

    /// Makes the process at `address` present a certificate that differs from the announced certificate.
    pub(crate) fn forge(&self, address: SocketAddr) {
        self.0.lock().get_mut(&address).unwrap().certificate = Fingerprint::from_der(b"forged");
    }

    /// Fetches a page with all permissions and returns its body.
    pub(crate) async fn page(&self, address: SocketAddr, path: &str) -> Result<Bytes, TransportError> {
        let peer = Peer { address, certificate: self.0.lock()[&address].certificate };
        self.fetch(&peer, path).await
    }

    async fn fetch(&self, peer: &Peer, path: &str) -> Result<Bytes, TransportError> {
        let unreachable =
            |reason: &str| TransportError::Unreachable { peer: peer.address, reason: reason.to_owned() };
        let (connect, cable) = {
            let sites = self.0.lock();
            let site = sites.get(&peer.address).filter(|site| !site.cable.is_cancelled());
            let site = site.ok_or_else(|| unreachable("connection refused"))?;
            if site.certificate != peer.certificate {
                let (shown, pinned) = (site.certificate, peer.certificate);
                return Err(TransportError::Certificate { peer: peer.address, shown, pinned });
            }
            let connect = site.connect.clone().ok_or_else(|| unreachable("nothing is served yet"))?;
            (connect, site.cable.clone())
        };
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(cable.clone().run_until_cancelled_owned(connect(far, cable)));
        let broken = |error: hyper::Error| unreachable(&error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(near)).await.map_err(broken)?;
        tokio::spawn(connection);
        let request = Request::get(path).header("host", "replica").body(Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.map_err(broken)?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(broken)?.to_bytes();
        if code != 200 {
            let message = String::from_utf8_lossy(&body).into_owned();
            return Err(TransportError::Refused { peer: peer.address, code, message });
        }
        Ok(body)
    }
}

impl PeerTransport for Connected {
    fn register(&self, served: ServedPages) {
        self.network.0.lock().get_mut(&self.here.address).unwrap().connect = Some(served.connect);
    }

    fn advertised(&self) -> Option<Peer> {
        Some(self.here)
    }

    fn get<'a>(&'a self, peer: &'a Peer, path: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>> {
        Box::pin(async move {
            let response = self.network.fetch(peer, path);
            let cut = || TransportError::Unreachable { peer: peer.address, reason: "cut off".to_owned() };
            self.cable.run_until_cancelled(response).await.unwrap_or_else(|| Err(cut()))
        })
    }
}
