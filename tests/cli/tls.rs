//! A TLS server with a self-signed certificate, for tests of the program's certificate errors.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A server that completes TLS handshakes and sends nothing else. Dropping it stops its runtime.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The certificate that a client must trust, as PEM.
    pub(crate) certificate: String,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Starts a server. With `refuses_clients`, it requires a client certificate that no client has.
    pub(crate) fn start(refuses_clients: bool) -> Self {
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if refuses_clients {
            let mut roots = RootCertStore::empty();
            roots.add(cert.der().clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let config = builder.with_single_cert(vec![cert.der().clone()], key).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        std::future::pending::<()>().await;
                        drop(stream);
                    }
                });
            }
        });
        Self { address, certificate: cert.pem(), _runtime: runtime }
    }
}
