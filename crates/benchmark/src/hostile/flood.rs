//! The hostile clients of the secure port, in a separate process with low priority.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use crate::Failure;
use crate::controller::trusting;
use crate::workload::Way;

/// The number of simultaneous connections for each attack.
const HANDSHAKE_CONNECTIONS: u64 = 512;
const TOKEN_CONNECTIONS: u64 = 64;
/// Time limit of the response to a ClientHello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(200);
const WHOLE_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a failed connection.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);
/// The clients complete one in [`COMPLETED`] handshakes with a certificate. A completed handshake is expensive for the
/// client, because it also requires a signature with the client's 4,096-bit key.
const COMPLETED: u64 = 250;
/// The source address of the clients. All other local clients of the port have another address.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The counters of all connections.
#[derive(Debug, Default)]
struct Counters {
    /// The number of the next action.
    turns: AtomicU64,
    /// The number of started actions.
    begun: AtomicU64,
    answered: AtomicU64,
}

/// The process of the hostile clients.
#[derive(Debug)]
pub(crate) struct Flood(Child);

impl Flood {
    /// Starts the process, which floods `address` for `time`.
    pub(crate) fn start(
        way: Way,
        address: SocketAddr,
        time: Duration,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let child = Command::new("nice")
            .args(["-n", "10"])
            .arg(std::env::current_exe()?)
            .args(["flood", &serde_json::to_string(&way)?, &address.to_string()])
            .arg(time.as_secs_f64().to_string())
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self(child))
    }

    /// Waits until the process has exited. Returns the numbers of started and answered actions.
    pub(crate) async fn end(self) -> Result<(u64, u64), Failure> {
        let output = self.0.wait_with_output().await?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Creates the keys and certificates of an authority, a server and a client in a folder, unless they exist.
pub(crate) async fn certificates(folder: &Path) -> Result<(), Failure> {
    let name = |file: &str| folder.join(file).display().to_string();
    for (subject, issuer) in
        [("authority", None), ("server", Some("authority")), ("client", Some("authority"))]
    {
        let (key, certificate) = (name(&format!("{subject}.key")), name(&format!("{subject}.crt")));
        if Path::new(&certificate).exists() {
            continue;
        }
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "rsa:4096", "-nodes", "-days", "365", "-keyout", &key]);
        command.args(["-out", &certificate, "-subj", &format!("/CN={subject}")]);
        if let Some(issuer) = issuer {
            command.args(["-CA", &name(&format!("{issuer}.crt")), "-CAkey", &name(&format!("{issuer}.key"))]);
            command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
            command.args(["-addext", "subjectAltName=IP:127.0.0.1"]);
        }
        let status = command.stderr(Stdio::null()).status().await;
        let status = status.map_err(|error| format!("failed to start openssl, install it: {error}"))?;
        if !status.success() {
            return Err(format!("openssl failed to create {certificate}: {status}").into());
        }
    }
    Ok(())
}

/// Floods an address for `time`, and prints the numbers of started and answered actions.
pub(crate) async fn run(way: Way, address: SocketAddr, time: Duration, folder: &Path) -> Result<(), Failure> {
    let counters = Arc::new(Counters::default());
    let connector = connector(way, folder)?;
    let (start, mut clients) = (Instant::now(), JoinSet::new());
    let connections = if way == Way::Tokens { TOKEN_CONNECTIONS } else { HANDSHAKE_CONNECTIONS };
    let hello = Arc::new(hello()?);
    for _ in 0..connections {
        let (counters, connector, hello) = (Arc::clone(&counters), connector.clone(), Arc::clone(&hello));
        clients.spawn(async move {
            loop {
                let done = match way {
                    Way::Tokens => tokens(address, &connector, &counters, start).await,
                    _ => handshake(address, &connector, &hello, &counters, start).await,
                };
                if done.is_err() {
                    sleep(RECONNECT_INTERVAL).await;
                }
            }
        });
    }
    sleep(time).await;
    clients.shutdown().await;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!("{}", serde_json::to_string(&(count(&counters.begun), count(&counters.answered)))?);
    Ok(())
}

/// Waits until the next action is due. All connections share the rate of the attack. Returns the number of the action.
async fn turn(way: Way, counters: &Counters, start: Instant) -> u64 {
    let turn = counters.turns.fetch_add(1, Ordering::Relaxed);
    sleep_until(start + Duration::from_secs_f64(turn as f64 / way.rate())).await;
    turn
}

/// Starts a handshake, and completes one in [`COMPLETED`] handshakes. All other handshakes stop at the server's
/// response to the ClientHello, for which the server has computed a signature.
async fn handshake(
    address: SocketAddr,
    connector: &TlsConnector,
    hello: &[u8],
    counters: &Counters,
    start: Instant,
) -> Result<(), Failure> {
    let turn = turn(Way::Handshakes, counters, start).await;
    let mut stream = connect(address).await?;
    counters.begun.fetch_add(1, Ordering::Relaxed);
    if turn.is_multiple_of(COMPLETED) {
        let name = ServerName::IpAddress(address.ip().into());
        timeout(WHOLE_HANDSHAKE_TIMEOUT, connector.connect(name, stream)).await??;
    } else {
        let mut first = [0; 1];
        let answer = async {
            stream.write_all(hello).await?;
            stream.read_exact(&mut first).await
        };
        timeout(HANDSHAKE_TIMEOUT, answer).await??;
    }
    counters.answered.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Sends requests with made-up tokens over one connection until the server closes the connection.
async fn tokens(
    address: SocketAddr,
    connector: &TlsConnector,
    counters: &Counters,
    start: Instant,
) -> Result<(), Failure> {
    let name = ServerName::IpAddress(address.ip().into());
    let deadline = Instant::now() + RESPONSE_TIMEOUT;
    let mut stream = timeout_at(deadline, connector.connect(name, connect(address).await?)).await??;
    let mut answer = vec![0; 64 << 10];
    loop {
        let number = turn(Way::Tokens, counters, start).await;
        counters.begun.fetch_add(1, Ordering::Relaxed);
        let head = format!(
            "GET /metrics HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer made-up-{number}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        // Every response is an error, which fits into one read.
        if timeout(RESPONSE_TIMEOUT, stream.read(&mut answer)).await?? == 0 {
            return Err("the server has closed the connection".into());
        }
        counters.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Opens a connection. A drop resets the connection, which frees the local port at once.
async fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((SOURCE, 0).into())?;
    let stream = timeout(RESPONSE_TIMEOUT, socket.connect(address)).await??;
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    Ok(stream)
}

/// Creates a connector that accepts any server certificate. A client with tokens presents no certificate, because the
/// server would ignore the token.
fn connector(way: Way, folder: &Path) -> Result<TlsConnector, Failure> {
    if way == Way::Tokens {
        return Ok(TlsConnector::from(Arc::new(trusting()?.with_no_client_auth())));
    }
    let certificate = CertificateDer::from_pem_file(folder.join("client.crt"))?;
    let key = PrivateKeyDer::from_pem_file(folder.join("client.key"))?;
    let config = trusting()?.with_client_auth_cert(vec![certificate], key)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Creates a ClientHello, the first message of a handshake. The server accepts the same ClientHello on many
/// connections.
fn hello() -> Result<Vec<u8>, Failure> {
    let config: ClientConfig = trusting()?.with_no_client_auth();
    let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
    let mut hello = Vec::new();
    ClientConnection::new(Arc::new(config), name)?.write_tls(&mut hello)?;
    Ok(hello)
}
