//! Tests of connections to the secure port: certificates, versions of TLS and HTTP, and misbehaving clients.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use concertina::serve::Server;
use flags::serving::{CertificateFiles, NamedCertificate, Serving};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{Instant, timeout};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ProtocolVersion, version};

use crate::harness::{Harness, SOON, ask, bearer, client, connect};

/// A temporary folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-serving-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a certificate with a new key. Returns the paths of both files, and the certificate.
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

    // The certificate is replaced before its key, so the files do not match.
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

fn with_scraper() -> Harness {
    let rig = Harness::start();
    rig.reviews().add_token("token", "scraper", &[]);
    rig.reviews().allow_path("scraper", "get", "/metrics");
    rig
}

/// Sends `bytes` over TCP. Returns everything that the server sends until it closes the connection.
async fn answer(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A reset also closes the connection, so an error is accepted.
    let _ = timeout(SOON, stream.read_to_end(&mut answer))
        .await
        .expect("the server does not close the connection");
    answer
}

#[tokio::test]
async fn tls_versions_before_1_2_are_refused() {
    let rig = Harness::start();
    // A ClientHello of TLS 1.1 with one cipher suite and without a session or extensions.
    let mut hello = vec![22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    let alert = answer(rig.address, &hello).await;
    assert!(alert.len() == 7 && alert[0] == 21 && alert[5] == 2, "a fatal alert: {alert:?}");
    for (version, accepted) in [("-tls1_1", false), ("-tls1_2", true)] {
        let received = Command::new("openssl")
            .args([
                "s_client",
                version,
                "-cipher",
                "DEFAULT@SECLEVEL=0",
                "-connect",
                &rig.address.to_string(),
            ])
            .stdin(Stdio::null())
            .output()
            .await;
        // If openssl is not installed, only the handcrafted ClientHello is tested.
        let Ok(received) = received else { continue };
        let text = String::from_utf8_lossy(&received.stdout).into_owned();
        assert_eq!(text.contains("Cipher is ECDHE"), accepted, "{version}: {text}");
    }
    rig.shut_down().await;
}

#[tokio::test]
async fn garbage_closes_only_its_own_connection() {
    let rig = with_scraper();
    let noise: Vec<u8> =
        (0..4096_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for bytes in [&b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"[..], &noise, &[22, 3, 1, 0xff, 0xff], &[0; 64]]
    {
        let received = answer(rig.address, bytes).await;
        assert!(!received.starts_with(b"HTTP/1.1 200"), "{received:?}");
    }
    let mut stream = rig.connect(client(None)).await.unwrap();
    stream.write_all(b"\x00\x01\x02 not HTTP\r\n\r\n").await.unwrap();
    let mut received = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut received)).await.unwrap();
    assert!(
        received.is_empty() || received.starts_with(b"HTTP/1.1 400"),
        "{:?}",
        String::from_utf8_lossy(&received)
    );
    let long = format!("X-Long: {}\r\n", "x".repeat(64 * 1024));
    let mut stream = rig.connect(client(None)).await.unwrap();
    let _ = stream.write_all(format!("GET /livez HTTP/1.1\r\n{long}\r\n").as_bytes()).await;
    let mut received = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut received)).await.unwrap();
    assert!(
        received.is_empty() || received.starts_with(b"HTTP/1.1 431"),
        "{:?}",
        String::from_utf8_lossy(&received)
    );
    assert_eq!(rig.get("/metrics", "token").await.0, 200);
    rig.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn idle_and_slow_clients_are_disconnected() {
    let rig = Harness::start();
    let start = Instant::now();
    let mut silent = TcpStream::connect(rig.address).await.unwrap();
    let mut half = TcpStream::connect(rig.address).await.unwrap();
    half.write_all(&[22, 3, 1, 0, 200, 1]).await.unwrap();
    for stream in [&mut silent, &mut half] {
        let _ = stream.read_to_end(&mut Vec::new()).await;
        assert_eq!(start.elapsed().as_secs(), 10);
    }
    let mut slow = rig.connect(client(None)).await.unwrap();
    let start = Instant::now();
    slow.write_all(b"GET /livez HTTP/1.1\r\nHo").await.unwrap();
    let _ = slow.read_to_end(&mut Vec::new()).await;
    assert_eq!(start.elapsed().as_secs(), 75);
    rig.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_idle_connections_do_not_block_a_scrape() {
    let rig = with_scraper();
    let mut before = rig.connect(client(None)).await.unwrap();
    assert_eq!(ask(&mut before, "GET", "/metrics", &bearer("token")).await.0, 200);
    let mut idle = Vec::new();
    for number in 0..1000 {
        let stream = TcpStream::connect(rig.address).await.unwrap();
        idle.push(stream);
        if number % 100 == 99 {
            let (status, _) = timeout(SOON, rig.get("/metrics", "token")).await.unwrap();
            assert_eq!(status, 200, "{number}");
        }
    }
    // With too many connections, the server closes unauthenticated connections first. The scraper keeps its connection.
    let (status, _) = timeout(SOON, ask(&mut before, "GET", "/metrics", &bearer("token"))).await.unwrap();
    assert_eq!(status, 200);
    let start = Instant::now();
    assert_eq!(rig.get("/livez", "").await.0, 200);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    rig.shut_down().await;
}

#[tokio::test]
async fn unspecified_addresses_serve_ipv4_and_ipv6() {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        // This machine has no IPv6.
        return;
    }
    for all in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let rig = Harness::with(|serving| serving.address = all, |_| {});
        for local in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let address = SocketAddr::new(local, rig.address.port());
            let mut stream = connect(address, "localhost", client(None)).await.unwrap();
            assert_eq!(ask(&mut stream, "GET", "/livez", "").await.0, 200, "{all} {local}");
        }
        rig.shut_down().await;
    }
    let rig = Harness::with(|serving| serving.address = IpAddr::V6(Ipv6Addr::LOCALHOST), |_| {});
    assert_eq!(rig.ask("GET", "/livez", "").await.0, 200);
    let other = SocketAddr::from((Ipv4Addr::LOCALHOST, rig.address.port()));
    assert!(TcpStream::connect(other).await.is_err());
    rig.shut_down().await;
}
