//! The server process: the embedded cluster with a world, over TCP and TLS on a loopback address.
//!
//! The server process is this program, started with `server` and a workload. It reads commands from
//! standard input and responds on standard output, line by line. First it prints `ready KUBECONFIG`. On
//! `measure SECONDS`, it runs the workload's events for that time and prints its observations as one line of
//! JSON. `attack SECONDS` does the same and also runs the workload's hostile tenant. The process exits at the
//! end of its input.

pub(crate) mod events;
mod gateway;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clock::SystemClock;
use fake_cluster::Cluster;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_util::io::{InspectReader, InspectWriter};

use self::gateway::Gateway;
use crate::Failure;
use crate::hostile::tenant::Tenant;
use crate::hostile::way::Way;
use crate::observations::Observations;
use crate::scrape::Usage;
use crate::workload::Workload;
use crate::world::World;

/// The number of changes per resource type from which a watch can resume.
const HISTORY: usize = 2_000;
/// The number of such changes if a single change can have megabytes.
const HISTORY_OF_LARGE: usize = 50;

/// Writes the file `kubeconfig` and serves a workload until the input ends.
pub(crate) async fn run(workload: &Workload, kubeconfig: &Path) -> Result<(), Failure> {
    let cluster = Cluster::new(Arc::new(SystemClock));
    cluster.requests().keep(0);
    cluster.keep_history(if matches!(workload.hostile, Some(Way::Large(..))) {
        HISTORY_OF_LARGE
    } else {
        HISTORY
    });
    let world = Arc::new(World::new(workload));
    world.build(&cluster);
    let tenant = Tenant::from_workload(workload, &cluster, &world);
    if let Some(tenant) = &tenant {
        tenant.prepare(workload);
    }
    cluster.compact();
    cluster.set_metrics(world.clone());
    let gateway = Arc::new(Gateway::new(workload, Arc::clone(&world)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (acceptor, text) = identity(listener.local_addr()?)?;
    std::fs::write(kubeconfig, text)?;
    let traffic = Arc::new(Traffic::default());
    let (served, gateway_of_connection, counted) =
        (cluster.clone(), Arc::clone(&gateway), Arc::clone(&traffic));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, served, gateway_of_connection) =
                (acceptor.clone(), served.clone(), Arc::clone(&gateway_of_connection));
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                let stream = acceptor.accept(metered(stream, counted)).await?;
                served.serve_stream(stream, Some(gateway_of_connection)).await;
                Ok::<_, std::io::Error>(())
            });
        }
    });
    println!("ready {}", kubeconfig.display());

    while let Some(line) = spawn_blocking(|| std::io::stdin().lines().next().transpose()).await?? {
        let (command, seconds) = line.split_once(' ').ok_or_else(|| format!("unknown command {line:?}"))?;
        let (attacked, seconds) = (command == "attack", seconds.parse()?);
        let (before, received, sent) =
            (Usage::own()?, traffic.received.load(Ordering::Relaxed), traffic.sent.load(Ordering::Relaxed));
        gateway.start_measuring();
        let actions = AtomicU64::new(0);
        let attack = async {
            match &tenant {
                Some(tenant) if attacked => tenant.attack(&actions).await,
                _ => std::future::pending().await,
            }
        };
        let time = Duration::from_secs_f64(seconds);
        tokio::select! {
            biased;
            () = events::run(workload, &world, &cluster, &gateway, time) => {}
            () = attack => {}
        }
        let after = Usage::own()?;
        let seen = Observations {
            cpu: after.cpu - before.cpu,
            resident: after.resident,
            received: traffic.received.load(Ordering::Relaxed) - received,
            sent: traffic.sent.load(Ordering::Relaxed) - sent,
            actions: actions.into_inner(),
            ..gateway.finish()
        };
        println!("{}", serde_json::to_string(&seen)?);
    }
    Ok(())
}

/// A TLS acceptor for a loopback address, and the kubeconfig that trusts it.
pub(crate) fn identity(address: SocketAddr) -> Result<(TlsAcceptor, String), Failure> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([address.ip().to_string()])?;
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let authority = STANDARD.encode(cert.pem());
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: scale\n\
         clusters: [{{name: scale, cluster: {{server: 'https://{address}', certificate-authority-data: {authority}}}}}]\n\
         users: [{{name: scale, user: {{token: scale}}}}]\n\
         contexts: [{{name: scale, context: {{cluster: scale, user: scale}}}}]\n"
    );
    Ok((TlsAcceptor::from(Arc::new(config)), kubeconfig))
}

/// Bytes received and sent over all connections.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

/// Counts the bytes of a connection.
pub(crate) fn metered<T: AsyncRead + AsyncWrite>(
    stream: T,
    traffic: Arc<Traffic>,
) -> impl AsyncRead + AsyncWrite + use<T> {
    let received = Arc::clone(&traffic);
    let reader = InspectReader::new(stream, move |bytes: &[u8]| count(&received.received, bytes.len()));
    InspectWriter::new(reader, move |bytes: &[u8]| count(&traffic.sent, bytes.len()))
}

fn count(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}
