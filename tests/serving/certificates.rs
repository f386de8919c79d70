//! Selection and reload of the serving certificate, and the supported versions of TLS and HTTP.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use concertina::serve::Server;
use concertina::serve::options::{CertificateFiles, NamedCertificate, Serving};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ProtocolVersion, version};

use crate::harness::{Harness, ask, client, connect};

/// A temporary folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-serving-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a new key pair and returns its certificate.
    fn pair(&self, name: &str, dns: &str) -> (CertificateFiles, CertificateDer<'static>) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([dns.to_owned()]).unwrap();
        let files = CertificateFiles {
            certificate: self.0.join(format!("{name}.crt")),
            key: self.0.join(format!("{name}.key")),
        };
        fs::write(&files.certificate, cert.pem()).unwrap();
        fs::write(&files.key, signing_key.serialize_pem()).unwrap();
        (files, cert.der().clone())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn served_certificate(rig: &Harness, name: &'static str) -> CertificateDer<'static> {
    let stream = connect(rig.address, name, client(None)).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

#[tokio::test(start_paused = true)]
async fn changed_certificate_is_reloaded_and_a_broken_one_is_ignored() {
    let folder = Folder::new("reload");
    let (files, first) = folder.pair("tls", "localhost");
    let rig = Harness::with(|serving| serving.certificate = Some(files.clone()), |_| {});
    assert_eq!(served_certificate(&rig, "localhost").await, first);

    fs::write(&files.certificate, "half a certifi").unwrap();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(served_certificate(&rig, "localhost").await, first);

    let (_, second) = folder.pair("tls", "localhost");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(served_certificate(&rig, "localhost").await, second);

    // A certificate without its key, as between two writes.
    let CertifiedKey { cert, .. } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&files.certificate, cert.pem()).unwrap();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(served_certificate(&rig, "localhost").await, second);
    fs::remove_file(&files.key).unwrap();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(served_certificate(&rig, "localhost").await, second);
    rig.shut_down().await;
}

#[tokio::test]
async fn sni_selects_the_certificate() {
    let folder = Folder::new("names");
    let (default, default_certificate) = folder.pair("kube-controller-manager", "localhost");
    let (named, named_certificate) = folder.pair("named", "metrics.example.com");
    let (wild, wildcard_certificate) = folder.pair("wild", "x");
    let rig = Harness::with(
        |serving| {
            serving.certificate_dir = default.certificate.parent().map(PathBuf::from);
            serving.sni = vec![
                NamedCertificate { files: named, names: Vec::new() },
                NamedCertificate { files: wild, names: vec!["*.example.org".to_owned()] },
            ];
        },
        |_| {},
    );
    assert_eq!(served_certificate(&rig, "localhost").await, default_certificate);
    assert_eq!(served_certificate(&rig, "metrics.example.com").await, named_certificate);
    assert_eq!(served_certificate(&rig, "METRICS.example.com").await, named_certificate);
    assert_eq!(served_certificate(&rig, "a.example.org").await, wildcard_certificate);
    assert_eq!(served_certificate(&rig, "a.b.example.org").await, default_certificate);
    rig.shut_down().await;
}

#[tokio::test]
async fn bind_fails_and_names_unusable_certificate_files() {
    let folder = Folder::new("useless");
    let (files, _) = folder.pair("tls", "localhost");
    let bind = |files: &CertificateFiles| {
        let serving = Serving { certificate: Some(files.clone()), ..Serving::default() };
        Server::bind(&serving).unwrap_err().to_string()
    };
    let (other, _) = folder.pair("other", "localhost");
    let mixed = CertificateFiles { key: other.key, ..files.clone() };
    assert!(bind(&mixed).contains("tls.crt (--tls-cert-file, --tls-private-key-file): "));
    fs::write(&files.certificate, "").unwrap();
    assert!(bind(&files).contains("no certificate found"), "{}", bind(&files));
    fs::remove_file(&files.certificate).unwrap();
    assert!(bind(&files).starts_with("cannot read "), "{}", bind(&files));
}

#[tokio::test]
async fn server_supports_tls_1_2_and_1_3_with_http_1() {
    let rig = Harness::start();
    for (offered, expected) in
        [(&version::TLS12, ProtocolVersion::TLSv1_2), (&version::TLS13, ProtocolVersion::TLSv1_3)]
    {
        let builder = tokio_rustls::rustls::ClientConfig::builder_with_provider(std::sync::Arc::clone(
            client(None).crypto_provider(),
        ));
        let mut config = builder
            .with_protocol_versions(&[offered])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(std::sync::Arc::new(crate::harness::AnyServer))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut stream = rig.connect(config).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(expected));
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(ask(&mut stream, "GET", "/livez", "").await.0, 200);
    }
    rig.shut_down().await;
}
