//! An API server with the pod of a controller. It forwards requests to the embedded cluster, and port-forwards to a pod
//! that serves given documents over TLS.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fake_cluster::Cluster;
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const POD: &str = "concertina-7d9c5";

#[derive(Clone)]
pub(crate) struct ApiServer {
    cluster: Cluster,
    /// The documents of the pod, by path.
    documents: Arc<BTreeMap<String, Value>>,
    tls: TlsAcceptor,
}

impl ApiServer {
    /// Adds the Lease and the pod of a controller with the given documents to a cluster.
    pub(crate) fn new(cluster: &Cluster, documents: BTreeMap<String, Value>) -> Self {
        cluster.put_raw(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "concertina", "namespace": "kube-system"},
            "spec": {"holderIdentity": format!("{POD}_0f8e")},
        }));
        let ports = json!([{"name": "https", "containerPort": 10257}]);
        cluster.put_raw(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": "kube-system"},
            "spec": {"nodeName": "cp-1", "containers": [{"name": "concertina", "image": "c", "ports": ports}]},
            "status": {"phase": "Running"},
        }));
        let own = rcgen::generate_simple_self_signed(vec!["controller.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        Self { cluster: cluster.clone(), documents: Arc::new(documents), tls }
    }

    /// Serves until the task ends.
    pub(crate) async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let server = self.clone();
            tokio::spawn(async move {
                // Clients send tokens over TLS only.
                let Ok(stream) = server.tls.clone().accept(stream).await else { return };
                let service = service_fn(move |request| server.clone().answer(request));
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let _ = connection.with_upgrades().await;
            });
        }
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, hyper::Error>>, Infallible> {
        if request.uri().path().ends_with("/portforward") {
            let answer = self.forward(request);
            return Ok(answer.map(|text| Full::from(text).map_err(|never| match never {}).boxed_unsync()));
        }
        let io = TokioIo::new(self.cluster.dial());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        if let Ok(answer) = sender.send_request(request).await {
            return Ok(answer.map(BodyExt::boxed_unsync));
        }
        let empty = Full::default().map_err(|never: Infallible| match never {}).boxed_unsync();
        Ok(Response::builder().status(StatusCode::BAD_GATEWAY).body(empty).unwrap())
    }

    fn forward(self, request: Request<Incoming>) -> Response<String> {
        let key = request.headers().get(SEC_WEBSOCKET_KEY).unwrap().to_str().unwrap();
        let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let answer = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_ACCEPT, STANDARD.encode(hash))
            .header(SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io");
        tokio::spawn(async move {
            let io = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
            self.pump(WebSocketStream::from_raw_socket(io, Role::Server, None).await).await;
        });
        answer.body(String::new()).unwrap()
    }

    /// Forwards like a kubelet.
    async fn pump(self, mut socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>) {
        for channel in [0, 1] {
            let [low, high] = 10257_u16.to_le_bytes();
            socket.send(Message::binary(vec![channel, low, high])).await.unwrap();
        }
        let (near, far) = duplex(1 << 16);
        tokio::spawn(self.pod(far));
        let (mut from_pod, mut to_pod) = tokio::io::split(near);
        let (mut out, mut back) = socket.split();
        let up = async {
            while let Some(Ok(message)) = back.next().await {
                if message.is_close() || to_pod.write_all(&message.into_data()[1..]).await.is_err() {
                    break;
                }
            }
        };
        let down = async {
            let mut piece = vec![0; 8 << 10];
            while let Ok(length @ 1..) = from_pod.read(&mut piece).await {
                let message = [&[0], &piece[..length]].concat();
                if out.send(Message::binary(message)).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! { biased; () = up => {} () = down => {} }
    }

    /// Serves the documents over TLS.
    async fn pod(self, stream: DuplexStream) {
        let Ok(stream) = self.tls.accept(stream).await else { return };
        let service = service_fn(move |request: Request<Incoming>| {
            let found = self.documents.get(request.uri().path()).map(Value::to_string);
            let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
            let body = Full::<Bytes>::from(found.unwrap_or_else(|| "not found".to_owned()));
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap()))
        });
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}
