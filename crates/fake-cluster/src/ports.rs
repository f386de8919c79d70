//! Port-forwards to pods through a WebSocket, in the protocol `v4.channel.k8s.io`. Each message starts with the number
//! of its channel: 0 for data, 1 for the reason why the port cannot be reached.

use std::io;

use futures::{SinkExt as _, StreamExt as _};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::Cluster;
use super::registry::ResourceType;
use super::requests::{Answer, Whole};
use super::route::{Call, Query, ResourcePath, Route};
use super::status::Status;
use super::write;

/// Connects to a port of a pod. The text of an error becomes the reason of the refused port-forward.
pub(crate) type PodPorts = dyn Fn(&Value, u16) -> io::Result<DuplexStream> + Send + Sync;

const PROTOCOL: &str = "v4.channel.k8s.io";
const DATA: u8 = 0;
const ERROR: u8 = 1;
/// The maximum number of bytes from a pod in one message.
const PIECE: usize = 8 * 1024;

/// Allows a port-forward to a pod that exists. The code 101 lets the server switch protocols.
pub(crate) fn allow(cluster: &Cluster, call: &Call, path: &ResourcePath) -> Result<Answer, Status> {
    if call.route.verb != "get" {
        return Err(Status::method_not_allowed());
    }
    pod(cluster, path)?;
    let (content_type, body) = ("text/plain; charset=utf-8", bytes::Bytes::new());
    Ok(Answer::Whole(Whole { code: 101, content_type, retry_after: None, body }))
}

fn pod(cluster: &Cluster, path: &ResourcePath) -> Result<Value, Status> {
    let (namespace, name) = path.names();
    let ty = ResourceType::named("pods").ok_or_else(Status::unknown_resource)?;
    Ok(write::existing(&cluster.lock(), ty, namespace, name)?.value())
}

/// The request for a port-forward through a WebSocket.
#[derive(Debug)]
pub(crate) struct Handshake {
    path: ResourcePath,
    port: u16,
    key: HeaderValue,
    upgrade: OnUpgrade,
}

impl Handshake {
    /// Returns `None` for any other request, such as that of `kubectl port-forward`, which uses SPDY.
    pub(crate) fn of(request: &mut Request<Incoming>, route: &Route, query: &Query) -> Option<Self> {
        let path = route.resource.clone()?;
        let headers = request.headers();
        let mut protocols = headers.get(SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?.split(',');
        protocols.find(|protocol| protocol.trim() == PROTOCOL)?;
        let (port, key) = (query.get("ports").parse().ok()?, headers.get(SEC_WEBSOCKET_KEY)?.clone());
        Some(Self { path, port, key, upgrade: hyper::upgrade::on(request) })
    }

    /// Switches protocols, and forwards the port until either side closes the connection.
    pub(crate) fn accept<B: Default>(self, cluster: &Cluster) -> Result<Response<B>, Status> {
        let (pod, ports) = (pod(cluster, &self.path)?, cluster.pod_ports());
        let accept = HeaderValue::try_from(derive_accept_key(self.key.as_bytes()));
        let accept = accept.map_err(|error| Status::bad_request(error.to_string()))?;
        let (upgrade, port) = (self.upgrade, self.port);
        tokio::spawn(async move {
            let Ok(upgraded) = upgrade.await else { return };
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
            let refused = || Err(io::ErrorKind::ConnectionRefused.into());
            let stream = ports.map_or_else(refused, |ports| ports(&pod, port));
            // An error means that the client has closed the connection.
            let _ = forward(socket, port, stream).await;
        });
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        Ok(response)
    }
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

async fn forward(
    mut socket: Socket,
    port: u16,
    stream: io::Result<DuplexStream>,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    let [low, high] = port.to_le_bytes();
    for channel in [DATA, ERROR] {
        socket.send(Message::binary(vec![channel, low, high])).await?;
    }
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => {
            let reason = error.to_string();
            socket.send(Message::binary([&[ERROR], reason.as_bytes()].concat())).await?;
            socket.close(None).await?;
            // The client reads the reason before it closes the connection, too.
            while socket.next().await.transpose()?.is_some() {}
            return Ok(());
        }
    };
    let (mut from_pod, mut to_pod) = tokio::io::split(stream);
    let (mut out, mut back) = socket.split();
    let up = async {
        while let Some(message) = back.next().await.transpose()? {
            let data = message.into_data();
            if let Some((&DATA, data)) = data.split_first() {
                to_pod.write_all(data).await?;
            }
        }
        Ok(())
    };
    let down = async {
        let mut piece = vec![DATA; PIECE];
        loop {
            // The first byte is the channel.
            let Some(rest) = piece.get_mut(1..) else { return Ok(()) };
            let length = from_pod.read(rest).await?;
            if length == 0 {
                return out.close().await;
            }
            out.send(Message::binary(piece.get(..=length).unwrap_or_default().to_vec())).await?;
        }
    };
    tokio::select! { biased; ended = up => ended, ended = down => ended }
}
