//! The controller under test: any program with a command line template. Its metrics are read over HTTP.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme};

use crate::Failure;
use crate::observations::{Micros, Usage, now};

/// Time limit of a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval between two requests of the page that shows whether the process is ready.
const READY_INTERVAL: Duration = Duration::from_millis(50);

/// The command line of Concertina, with only the flags that a run needs.
const OWN: &str = "{concertina} --kubeconfig={kubeconfig} --secure-port=0 --health-address=127.0.0.1:{port} \
                   --leader-elect=false --takeover=off --horizontal-pod-autoscaler-sync-period={period}";
const OWN_METRICS: &str = "http://127.0.0.1:{port}/metrics";

/// The command line of kube-controller-manager with only the HPA controller.
const BUILT_IN: &str = "{built-in} --kubeconfig={kubeconfig} --controllers=horizontal-pod-autoscaler-controller \
                        --secure-port={port} --bind-address=127.0.0.1 --cert-dir={folder} \
                        --authentication-skip-lookup --authorization-always-allow-paths=/metrics \
                        --leader-elect=false \
                        --horizontal-pod-autoscaler-sync-period={period}";
/// The embedded API server supports only JSON, and no tokens of ServiceAccounts.
const FOR_EMBEDDED: &str = " --kube-api-content-type=application/json";
const FOR_REAL: &str = " --use-service-account-credentials=true";
const BUILT_IN_METRICS: &str = "https://127.0.0.1:{port}/metrics";

/// The command line of a controller, with options for the run.
#[derive(Debug, Clone)]
pub(crate) struct CommandLine {
    /// The command line with placeholders:
    /// - `{kubeconfig}`: the path of the kubeconfig
    /// - `{port}`: a free port for the metrics
    /// - `{period}`: the sync period
    /// - `{folder}`: the folder for files that the controller writes
    /// - `{concertina}`: the Concertina program
    /// - `{built-in}`: kube-controller-manager in the folder `KUBEBUILDER_ASSETS`
    pub(crate) template: String,
    /// Flags that are appended to the template.
    pub(crate) flags: Vec<String>,
    /// The URL of the controller's metrics with the placeholder `{port}`. Empty if the controller has no metrics.
    pub(crate) metrics: String,
    /// Whether valgrind counts the instructions of the process.
    pub(crate) instructions: bool,
    /// Whether the server is bound to the first core and the controller to the second.
    pub(crate) pin: bool,
}

/// The prefix of a command line that counts instructions. The count is exact even on a busy machine, but the program
/// runs many times slower. [`Controller::count`] starts the count.
const COUNTING_PREFIX: &str =
    "valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file={folder}/callgrind.out";

/// A process that can be bound to its own core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    Server,
    Controller,
}

/// Returns the prefix of a command line that binds the process to its core. Empty without `pin`.
pub(crate) fn pinned(pin: bool, core: Core) -> &'static [&'static str] {
    match (pin, core) {
        (false, _) => &[],
        (true, Core::Server) => &["taskset", "--cpu-list", "0"],
        (true, Core::Controller) => &["taskset", "--cpu-list", "1"],
    }
}

/// The values of the placeholders.
#[derive(Debug)]
pub(crate) struct Placeholders<'a> {
    pub(crate) kubeconfig: &'a Path,
    pub(crate) folder: &'a Path,
    pub(crate) period: Duration,
}

/// A running controller. A drop kills the process.
#[derive(Debug)]
pub(crate) struct Controller {
    child: Child,
    pub(crate) pid: u32,
    page: Option<Page>,
    /// The start time of the process.
    pub(crate) since: Micros,
    /// The command line with its placeholders, without the prefixes.
    pub(crate) called: String,
}

impl CommandLine {
    /// Returns the command line of Concertina with additional flags.
    pub(crate) fn own(flags: Vec<String>) -> Self {
        Self {
            template: OWN.to_owned(),
            flags,
            metrics: OWN_METRICS.to_owned(),
            instructions: false,
            pin: false,
        }
    }

    /// Returns the command line of kube-controller-manager for the embedded API server, with additional flags.
    pub(crate) fn built_in(flags: Vec<String>) -> Self {
        Self::built_in_with(FOR_EMBEDDED, flags)
    }

    /// Returns the command line of kube-controller-manager for a real API server, with additional flags.
    pub(crate) fn built_in_for_real(flags: Vec<String>) -> Self {
        Self::built_in_with(FOR_REAL, flags)
    }

    fn built_in_with(words: &str, flags: Vec<String>) -> Self {
        Self {
            template: BUILT_IN.to_owned() + words,
            flags,
            metrics: BUILT_IN_METRICS.to_owned(),
            instructions: false,
            pin: false,
        }
    }

    /// Starts the controller, and appends its output to the file `log`.
    pub(crate) fn start(&self, places: &Placeholders<'_>, log: &Path) -> Result<Controller, Failure> {
        // Another process is unlikely to bind this free port before the controller.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let called: Vec<_> =
            self.template.split_whitespace().chain(self.flags.iter().map(String::as_str)).collect();
        let mut words = Vec::new();
        let before = if self.instructions { COUNTING_PREFIX } else { "" };
        let pinned = pinned(self.pin, Core::Controller);
        for word in pinned.iter().copied().chain(before.split_whitespace()).chain(called.iter().copied()) {
            words.push(
                word.replace("{concertina}", &concertina().display().to_string())
                    .replace(
                        "{built-in}",
                        &if word.contains("{built-in}") { built_in()? } else { String::new() },
                    )
                    .replace("{kubeconfig}", &places.kubeconfig.display().to_string())
                    .replace("{folder}", &places.folder.display().to_string())
                    .replace("{port}", &port)
                    .replace("{period}", &format!("{}ms", places.period.as_millis())),
            );
        }
        let (program, rest) = words.split_first().ok_or("the command line of the controller is empty")?;
        let output = File::options().create(true).append(true).open(log)?;
        let child = Command::new(program)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("failed to start {program}: {error}"))?;
        let pid = child.id().ok_or("the controller exited immediately")?;
        let page = Page::parse(&self.metrics.replace("{port}", &port))?;
        Ok(Controller { child, pid, page, since: now(), called: called.join(" ") })
    }
}

/// The Concertina program that the bench target names.
static CONCERTINA: OnceLock<PathBuf> = OnceLock::new();

/// Sets the Concertina program. Later calls have no effect.
pub(crate) fn set_concertina(program: &Path) {
    CONCERTINA.get_or_init(|| program.to_owned());
}

/// Returns the Concertina program. The environment variable `CONCERTINA_BIN` overrides [`set_concertina`].
pub(crate) fn concertina() -> PathBuf {
    let set = || CONCERTINA.get().cloned().unwrap_or_else(|| "concertina".into());
    std::env::var_os("CONCERTINA_BIN").map_or_else(set, PathBuf::from)
}

fn built_in() -> Result<String, Failure> {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS").ok_or(
        "KUBEBUILDER_ASSETS is not set; set it to the folder with kube-controller-manager that tests/controlplane/build.sh prints",
    )?;
    Ok(PathBuf::from(folder).join("kube-controller-manager").display().to_string())
}

impl Controller {
    /// Returns the resource usage of the process. Returns an error if the process has exited.
    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        Usage::of_process(self.pid)
            .map_err(|error| format!("the controller has exited, see its log ({error})").into())
    }

    /// Scrapes the controller's metrics. The result is empty if the controller has no metrics.
    pub(crate) async fn metrics(&self) -> Result<BTreeMap<String, f64>, Failure> {
        match &self.page {
            Some(page) => page.read().await,
            None => Ok(BTreeMap::new()),
        }
    }

    /// Waits until the process is ready. Fails after `limit`.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), Failure> {
        let page = self.page.clone().ok_or("the controller has no page that shows whether it is ready")?;
        let page = Page { path: "/readyz".to_owned(), ..page };
        let ready = async {
            while page.read().await.is_err() {
                sleep(READY_INTERVAL).await;
            }
        };
        timeout(limit, ready).await.map_err(|_| format!("the controller is not ready after {limit:?}").into())
    }

    /// Starts or stops the count of the controller's instructions.
    pub(crate) async fn count(&self, on: bool) -> Result<(), Failure> {
        let word = if on { "on" } else { "off" };
        let status = Command::new("callgrind_control")
            .args(["-i", word, &self.pid.to_string()])
            .stdout(Stdio::null())
            .status()
            .await
            .map_err(|error| format!("failed to start callgrind_control, install valgrind: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("callgrind_control -i {word}: {status}").into()) }
    }

    /// Kills the controller without a graceful shutdown, like the failure of a node.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// Sends SIGTERM, and SIGKILL after [`SHUTDOWN_TIMEOUT`].
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        Command::new("kill").arg(self.pid.to_string()).status().await?;
        if timeout(SHUTDOWN_TIMEOUT, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

/// Reads the number of counted instructions. The process must have exited.
pub(crate) fn instructions(folder: &Path) -> Result<f64, Failure> {
    let path = folder.join("callgrind.out");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    Ok(totals.ok_or_else(|| format!("no totals in {}", path.display()))?.trim().parse()?)
}

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
