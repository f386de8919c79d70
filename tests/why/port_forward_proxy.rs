//! A controller with a Lease and a pod in the embedded cluster. Port-forwards lead to a port of the pod, where the
//! controller serves its record over TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use concertina::serve::{Endpoints, Health, serve_connection};
use fake_cluster::{Cluster, FaultAction, FaultRule, Status};
use flags::Config;
use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

pub(crate) const TOKEN: &str = "token-of-the-user";
/// The pod of the controller.
pub(crate) const POD: &str = "concertina-7d9c5";

#[derive(Clone)]
pub(crate) struct PortForwardProxy {
    cluster: Cluster,
    endpoints: Endpoints,
    pod: &'static str,
    port: u16,
    tls: TlsAcceptor,
    /// Whether the next port-forward is refused.
    forbids: bool,
    /// The status line and the body of a response that replaces the record.
    answer: Option<(&'static str, Arc<str>)>,
    received: Arc<Mutex<ReceivedRequest>>,
}

#[derive(Default)]
struct ReceivedRequest {
    forwards: usize,
    heads: Vec<String>,
    certificates: Vec<Vec<u8>>,
}

impl PortForwardProxy {
    /// Creates a proxy to the rig's controller on `port` of `pod`.
    pub(crate) fn new(rig: &Harness, pod: &'static str, port: u16) -> Self {
        let endpoints = Endpoints::new(Health::new(), rig.telemetry.clone(), rig.assembly.decisions.clone());
        let own = rcgen::generate_simple_self_signed(vec!["controller.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(AnyClient))
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let (cluster, received) = (rig.cluster.clone(), Arc::default());
        Self { cluster, endpoints, pod, port, tls, forbids: false, answer: None, received }
    }

    pub(crate) fn forbidding(&self) -> Self {
        Self { forbids: true, ..self.clone() }
    }

    pub(crate) fn answering(&self, answer: &'static str) -> Self {
        Self { answer: Some((answer, "foo\n".into())), ..self.clone() }
    }

    /// Returns this proxy with another record of the controller.
    pub(crate) fn recording(&self, record: &serde_json::Value) -> Self {
        Self { answer: Some(("200 OK", record.to_string().into())), ..self.clone() }
    }

    /// Returns the number of forwarded ports.
    pub(crate) fn forwards(&self) -> usize {
        self.received.lock().forwards
    }

    /// Returns the request heads that the controller received.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.received.lock().heads.clone()
    }

    /// Returns the client certificates that the controller received.
    pub(crate) fn certificates(&self) -> Vec<Vec<u8>> {
        self.received.lock().certificates.clone()
    }

    /// Returns a connector to the cluster. From now on, its port-forwards lead to this controller.
    pub(crate) fn connector(
        &self,
    ) -> impl Service<Uri, Response = TokioIo<DuplexStream>, Error = io::Error, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static {
        let front = self.clone();
        self.cluster.set_pod_ports(move |pod, port| {
            assert_eq!((&pod["metadata"]["name"], port), (&json!(front.pod), 10257));
            if port != front.port {
                return Err(io::Error::other(format!("nothing listens on port {port}")));
            }
            front.received.lock().forwards += 1;
            let (near, far) = duplex(1 << 16);
            tokio::spawn(front.clone().serve(far));
            Ok(near)
        });
        if self.forbids {
            let action = FaultAction::Status(Status::new(403, "Forbidden", "no"));
            self.cluster.faults().add(FaultRule::new(action).subresource("portforward").times(1));
        }
        self.cluster.connector()
    }

    /// Serves TLS like the controller, and records request heads and client certificates.
    async fn serve(self, stream: DuplexStream) {
        let Ok(stream) = self.tls.accept(stream).await else { return };
        if let Some(certificate) = stream.get_ref().1.peer_certificates().and_then(<[_]>::first) {
            self.received.lock().certificates.push(certificate.to_vec());
        }
        let (near, far) = duplex(1 << 16);
        tokio::spawn(serve_connection(far, self.endpoints.clone(), CancellationToken::new()));
        let (mut from_user, mut to_user) = tokio::io::split(stream);
        let (mut from_server, mut to_server) = tokio::io::split(near);
        let up = async {
            let mut piece = vec![0; 8 << 10];
            while let Ok(length @ 1..) = from_user.read(&mut piece).await {
                self.received.lock().heads.push(String::from_utf8_lossy(&piece[..length]).into_owned());
                let _ = to_server.write_all(&piece[..length]).await;
            }
        };
        let down = async {
            if let Some((answer, body)) = self.answer {
                let _ = from_server.read_u8().await;
                let length = body.len();
                let text = format!(
                    "HTTP/1.1 {answer}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
                );
                let _ = to_user.write_all(text.as_bytes()).await;
                let _ = to_user.flush().await;
                return std::future::pending().await;
            }
            let _ = tokio::io::copy(&mut from_server, &mut to_user).await;
        };
        tokio::select! { biased; () = up => {} () = down => {} }
    }
}

/// Returns the client configuration of a user with `token`.
pub(crate) fn user(token: &str) -> kube::Config {
    let mut config = kube::Config::new("https://embedded".parse().unwrap());
    config.auth_info.token = Some(token.to_owned().into());
    config
}

/// Creates a rig with non-default flags. Its controller holds the Lease and has a pod.
pub(crate) fn rig() -> Harness {
    let stage = Fixture::new();
    for (name, replicas) in [("web", 4), ("api", 2)] {
        stage.target(name, replicas);
        stage.create(hpa(name, &[external("queue", "10")]));
    }
    stage.external("queue", "40");
    let mut config = Config::default();
    config.controller.settings.downscale_stabilization = Duration::from_secs(90);
    config.controller.sync_period = Duration::from_secs(10);
    let rig = Harness::with(stage, &config);
    lease(&rig, &format!("{POD}_0f8e"));
    pod(&rig, "Running");
    may_write_statuses(&rig, None);
    rig
}

/// Lets the ServiceAccount of the pod write the statuses of HPAs, in one namespace or in all.
pub(crate) fn may_write_statuses(rig: &Harness, namespace: Option<&str>) {
    let account = "system:serviceaccount:kube-system:concertina";
    rig.cluster.reviews().allow_resource(
        account,
        "update",
        "horizontalpodautoscalers.autoscaling/status",
        namespace,
    );
}

pub(crate) fn lease(rig: &Harness, holder: &str) {
    rig.cluster.put_raw(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "concertina", "namespace": "kube-system"},
        "spec": {"holderIdentity": holder},
    }));
}

pub(crate) fn pod(rig: &Harness, phase: &str) {
    let ports = json!([{"name": "https", "containerPort": 10257}]);
    rig.cluster.put_raw(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": POD, "namespace": "kube-system"},
        "spec": {"nodeName": "cp-1", "serviceAccountName": "concertina",
            "containers": [{"name": "concertina", "image": "c", "ports": ports}]},
        "status": {"phase": phase},
    }));
}

/// Accepts any client certificate, or none.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
