//! The server process: the embedded cluster with a world, over TCP and TLS on a loopback address, and the events of a
//! workload.
//!
//! The subcommand `server` starts this process. First the process prints `ready KUBECONFIG`. Then it reads commands
//! from standard input, one per line. On `measure SECONDS`, it runs the workload's events for that time and prints its
//! observations as one line of JSON. On `attack SECONDS`, it also runs the workload's hostile tenant. The process exits
//! at the end of its input.

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
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_util::io::{InspectReader, InspectWriter};

use crate::Failure;
use crate::gateway::Gateway;
use crate::hostile::tenant::Tenant;
use crate::observations::{Observations, Usage, now};
use crate::workload::{Way, Workload};
use crate::world::{World, change_policy};

/// The number of changes per resource type from which a watch can resume.
const HISTORY: usize = 2_000;
/// Like [`HISTORY`], for workloads in which a single object may have several megabytes.
const HISTORY_OF_LARGE: usize = 50;

/// Serves a workload until the end of the input. Writes its kubeconfig to the file `kubeconfig`.
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
            () = run_events(workload, &world, &cluster, &gateway, time) => {}
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

/// Creates a TLS acceptor for a loopback address, and the text of a kubeconfig that trusts its certificate.
fn identity(address: SocketAddr) -> Result<(TlsAcceptor, String), Failure> {
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

/// The numbers of bytes on all connections, with TLS.
#[derive(Debug, Default)]
struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

/// Wraps the stream of a connection, and counts its bytes in `traffic`.
fn metered<T: AsyncRead + AsyncWrite>(
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

/// The interval between two rounds of churn.
const ROUND: Duration = Duration::from_millis(100);
/// The number of changes of the ClusterScalingPolicy in the measured time.
const POLICY_CHANGES: u32 = 10;

/// An event of the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimedEvent {
    /// The HPA of the app with this number is created.
    Creation(usize),
    /// The spec of the HPA with this number changes.
    SpecChange(usize),
    /// The load of HPAs doubles.
    Step,
    /// The ClusterScalingPolicy changes. The number counts the changes from 0.
    PolicyChange(usize),
}

/// Runs a workload's events for `time`.
async fn run_events(
    workload: &Workload,
    world: &World,
    cluster: &Cluster,
    gateway: &Gateway,
    time: Duration,
) {
    let start = Instant::now();
    let churning = async {
        let mut replaced = 0;
        for round in 1.. {
            sleep_until(start + ROUND * round).await;
            // A prime factor spreads successive replacements over the apps.
            let due = f64::from(round) * ROUND.as_secs_f64() * workload.churn as f64;
            while f64::from(replaced) < due {
                replaced += 1;
                world.replace_pod(cluster, usize::try_from(replaced).unwrap_or(0) * 7_919);
            }
        }
    };
    let happening = async {
        for (after, happening) in plan(workload, time) {
            sleep_until(start + after).await;
            happen(happening, world, cluster, gateway);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = sleep_until(start + time) => {}
        () = happening => {}
        () = churning, if workload.churn > 0 => {}
    }
}

/// Returns the single events of a workload with their times after the start. Probes are spread evenly over the first
/// nine tenths of the time, so that the controller can react to each probe.
pub(crate) fn plan(workload: &Workload, time: Duration) -> Vec<(Duration, TimedEvent)> {
    let all = workload.all_hpas();
    let probes = u32::try_from(workload.probes).unwrap_or(0);
    let pause = time.mul_f64(0.9) / probes.max(1);
    let mut plan = Vec::new();
    for (index, probe) in (0..probes).zip(0_usize..) {
        plan.push((pause * index, TimedEvent::Creation(all + probe)));
        // Every 31st HPA changes, so that the changes are spread over the namespaces.
        plan.push((pause * index + pause / 2, TimedEvent::SpecChange((probe * 31 + 1) % all.max(1))));
    }
    if workload.step > 0 {
        plan.push((time / 4, TimedEvent::Step));
    }
    if workload.policies > 0 {
        let tenths = (0_u32..POLICY_CHANGES).zip(0_usize..);
        plan.extend(
            tenths.map(|(tenth, number)| (time * tenth / POLICY_CHANGES, TimedEvent::PolicyChange(number))),
        );
    }
    plan.sort();
    plan
}

fn happen(happening: TimedEvent, world: &World, cluster: &Cluster, gateway: &Gateway) {
    let key = |number: usize| world.key(number);
    match happening {
        TimedEvent::Creation(number) => {
            gateway.sightings(|it| it.await_first(key(number)));
            world.create(cluster, number);
        }
        TimedEvent::SpecChange(number) => {
            let since = now();
            if let Some(generation) = world.change_spec(cluster, number) {
                gateway.sightings(|it| it.await_generation(&key(number), since, generation));
            }
        }
        TimedEvent::PolicyChange(number) => change_policy(cluster, number),
        TimedEvent::Step => gateway.sightings(|it| it.await_scales(world.step())),
    }
}
