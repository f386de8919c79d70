//! What connects processes with each other: streams within this process, with real HTTP on them, in virtual time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use concertina::history::replica::link::{Fingerprint, Link, LinkError, Peer, Served};
use concertina::serve::{Endpoints, serve_connection};
use futures::future::BoxFuture;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;

/// A network of processes. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Network(Arc<Mutex<BTreeMap<SocketAddr, Site>>>);

/// A place in a network.
#[derive(Debug)]
struct Site {
    certificate: Fingerprint,
    endpoints: Option<Endpoints>,
    /// When it breaks, nothing comes or goes any more.
    cable: CancellationToken,
}

/// One process in a network.
#[derive(Debug)]
struct Place {
    network: Network,
    here: Peer,
    cable: CancellationToken,
}

impl Network {
    /// The next process, until its `cable` breaks.
    pub(crate) fn join(&self, cable: &CancellationToken) -> Arc<dyn Link> {
        let mut sites = self.sites();
        // Who is gone serves nothing any more, and holds nothing of what it served.
        for site in sites.values_mut().filter(|site| site.cable.is_cancelled()) {
            site.endpoints = None;
        }
        let address = SocketAddr::from(([10, 0, 0, u8::try_from(sites.len() + 1).unwrap()], 10257));
        let certificate = Fingerprint::of(address.to_string().as_bytes());
        sites.insert(address, Site { certificate, endpoints: None, cable: cable.clone() });
        let here = Peer { address, certificate };
        Arc::new(Place { network: self.clone(), here, cable: cable.clone() })
    }

    /// Nobody is there any more, and nothing of what was served is held.
    #[allow(dead_code, reason = "for who plays many clusters in one process")]
    pub(crate) fn close(&self) {
        self.sites().clear();
    }

    /// From now on the process at this address shows another certificate than it says.
    pub(crate) fn forge(&self, address: SocketAddr) {
        self.sites().get_mut(&address).unwrap().certificate = Fingerprint::of(b"forged");
    }

    /// Status and body of a page, as somebody who may see everything.
    pub(crate) async fn page(&self, address: SocketAddr, path: &str) -> Result<Bytes, LinkError> {
        let peer = Peer { address, certificate: self.sites()[&address].certificate };
        self.ask(&peer, path).await
    }

    async fn ask(&self, peer: &Peer, path: &str) -> Result<Bytes, LinkError> {
        let unreachable =
            |reason: &str| LinkError::Unreachable { peer: peer.address, reason: reason.to_owned() };
        let (endpoints, cable) = {
            let sites = self.sites();
            let site = sites.get(&peer.address).filter(|site| !site.cable.is_cancelled());
            let site = site.ok_or_else(|| unreachable("nobody is there"))?;
            if site.certificate != peer.certificate {
                let (shown, pinned) = (site.certificate, peer.certificate);
                return Err(LinkError::Certificate { peer: peer.address, shown, pinned });
            }
            let endpoints = site.endpoints.clone().ok_or_else(|| unreachable("nothing is served yet"))?;
            (endpoints, site.cable.clone())
        };
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(cable.clone().run_until_cancelled_owned(serve_connection(far, endpoints, cable)));
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
            return Err(LinkError::Refused { peer: peer.address, code, message });
        }
        Ok(body)
    }

    fn sites(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Site>> {
        self.0.lock().unwrap()
    }
}

impl Link for Place {
    fn serves(&self, served: Served) {
        self.network.sites().get_mut(&self.here.address).unwrap().endpoints = Some(served.endpoints);
    }

    fn here(&self) -> Option<Peer> {
        Some(self.here)
    }

    fn ask<'a>(&'a self, peer: &'a Peer, path: &'a str) -> BoxFuture<'a, Result<Bytes, LinkError>> {
        Box::pin(async move {
            let asking = self.network.ask(peer, path);
            let cut = || LinkError::Unreachable { peer: peer.address, reason: "cut off".to_owned() };
            self.cable.run_until_cancelled(asking).await.unwrap_or_else(|| Err(cut()))
        })
    }
}
