//! Reads a controller's metrics over HTTP, and the resource usage of a process from `/proc` (Linux only).

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme};

use crate::Failure;

/// Time limit of a scrape.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The metrics endpoint of a process on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    address: SocketAddr,
    path: String,
    secure: bool,
}

impl Page {
    /// Parses `http[s]://ADDRESS/PATH`. Returns `None` for an empty text.
    pub(crate) fn parse(url: &str) -> Result<Option<Self>, Failure> {
        if url.is_empty() {
            return Ok(None);
        }
        let invalid_url = || format!("{url:?} is not http://ADDRESS/PATH or https://ADDRESS/PATH");
        let (scheme, rest) = url.split_once("://").ok_or_else(invalid_url)?;
        let (address, path) = rest.split_once('/').ok_or_else(invalid_url)?;
        let secure = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(invalid_url().into()),
        };
        Ok(Some(Self { address: address.parse()?, path: format!("/{path}"), secure }))
    }

    /// Scrapes the page. Returns the sum over the series of each metric, by name. The key of a bucket is the name and
    /// the upper bound, such as `NAME 1`.
    pub(crate) async fn read(&self) -> Result<BTreeMap<String, f64>, Failure> {
        let reading = async {
            let stream = TcpStream::connect(self.address).await?;
            if !self.secure {
                return self.request(stream).await;
            }
            let config = trusting()?.with_no_client_auth();
            let name = ServerName::IpAddress(self.address.ip().into());
            self.request(TlsConnector::from(Arc::new(config)).connect(name, stream).await?).await
        };
        Ok(sums(&timeout(TIMEOUT, reading).await??))
    }

    async fn request(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<String, Failure> {
        let request = format!("GET {} HTTP/1.0\r\nHost: {}\r\n\r\n", self.path, self.address);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // An error only means that the server closed the connection without a TLS close message.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer)?;
        let (head, page) =
            answer.split_once("\r\n\r\n").ok_or("the metrics response of the controller has no header")?;
        if head.split_ascii_whitespace().nth(1) != Some("200") {
            return Err(format!(
                "failed to read the metrics of the controller: {}",
                head.lines().next().unwrap_or("")
            )
            .into());
        }
        Ok(page.to_owned())
    }
}

/// Starts a TLS configuration that accepts any server certificate. The caller adds the client certificate, if any.
pub(crate) fn trusting() -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Failure> {
    Ok(ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OwnProcess)))
}

fn sums(page: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let bound = labels.split("le=\"").nth(1).and_then(|rest| rest.split('"').next());
        let bound = bound.map(|bound| bound.strip_suffix(".0").unwrap_or(bound));
        let name = bound.map_or_else(|| name.to_owned(), |bound| format!("{name} {bound}"));
        *sums.entry(name).or_insert(0.0) += value;
    }
    sums
}

/// Accepts any certificate, because this program has started the server and sends no secrets to it.
#[derive(Debug)]
struct OwnProcess;

impl ServerCertVerifier for OwnProcess {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Clock ticks per second in `/proc/PID/stat`. The value is the same on every Linux target of Rust.
const TICKS: f64 = 100.0;

/// The resource usage of a process since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// CPU seconds of all threads in user and kernel mode.
    pub(crate) cpu: f64,
    /// The current resident bytes.
    pub(crate) resident: u64,
    /// The maximum resident bytes since the start.
    pub(crate) peak: u64,
}

impl Usage {
    pub(crate) fn own() -> Result<Self, Failure> {
        Self::read("self")
    }

    pub(crate) fn of_process(pid: u32) -> Result<Self, Failure> {
        Self::read(&pid.to_string())
    }

    fn read(process: &str) -> Result<Self, Failure> {
        let stat = read_to_string(format!("/proc/{process}/stat"))?;
        // The process name in parentheses may contain any character. The 12th and 13th fields after it are utime and
        // stime.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        let status = read_to_string(format!("/proc/{process}/status"))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            kilobytes
                .map(|kilobytes| kilobytes * 1024)
                .ok_or_else(|| format!("no {name} in /proc/{process}/status"))
        };
        Ok(Self { cpu: ticks / TICKS, resident: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
    }
}
