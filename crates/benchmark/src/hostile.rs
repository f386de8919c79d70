//! The cost of hostile tenants and clients for the controller and all other HPAs.
//!
//! Each attack has a separate cluster with 1,500 HPAs in 50 namespaces. A fifth of these HPAs have external metrics.
//! The controller runs with default flags. One controller process is measured first without and then with the attack,
//! so that the two parts are comparable on a busy machine.

mod flood;
pub(crate) mod tenant;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use tokio::time::{Instant, sleep};

use self::flood::Flood;
use crate::Failure;
use crate::controller::{CommandLine, Controller, Placeholders};
use crate::measure::{Run, Spread};
use crate::observations::{Micros, Observations, Usage};
use crate::run::{ServerUnderLoad as _, flag, switch, text};
use crate::simulated::{SERVER, Server};
use crate::workload::{ALL, Kind, Way, Workload};

/// The sampling interval of the controller's memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// The resident bytes at which the controller is killed, like a container at its memory limit. This limit exceeds the
/// limit of the shipped manifests, so that the table shows the peak.
const MEMORY_LIMIT: u64 = 3 << 30;
/// The pause before the controller is restarted.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// The options of the subcommand.
#[derive(Debug, Clone)]
pub(crate) struct Hostile {
    ways: Vec<(Way, &'static str)>,
    flags: Vec<String>,
    /// The number of HPAs without those of the tenant.
    hpas: usize,
    period: Duration,
    warm_up: Duration,
    /// The measured time without the attack.
    calm: Duration,
    /// The measured time with the attack.
    attacked: Duration,
    folder: PathBuf,
    /// Whether an attack with an effect on others is a failure.
    strict: bool,
}

pub(crate) fn command() -> Command {
    let names = ALL.map(|(name, ..)| name);
    Command::new("hostile")
        .about("Measures the effect of a hostile tenant or client on all other HPAs, with default flags")
        .arg(Arg::new("way").num_args(0..).value_parser(names).help("Attacks to run (default: all)"))
        .arg(
            Arg::new("hpas")
                .long("hpas")
                .value_parser(value_parser!(usize))
                .default_value("1500")
                .help("Number of other HPAs"),
        )
        .arg(text("period", "Sync period in seconds").default_value("15"))
        .arg(text("warm-up", "Seconds before the measurement").default_value("25"))
        .arg(text("calm", "Seconds measured without the tenant").default_value("18"))
        .arg(text("hostile", "Seconds measured with the tenant").default_value("45"))
        .arg(flag("Flag to append to the command line of the controller; repeatable"))
        .arg(text("out", "Folder for the table").default_value("target/scale"))
        .arg(switch("strict", "Fail if 0.1 % of the other syncs are late, or memory exceeds its bound"))
}

/// Reads the arguments of the subcommand.
pub(crate) fn read(matches: &ArgMatches) -> Result<Hostile, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let seconds =
        |name: &str| -> Result<Duration, Failure> { Ok(Duration::try_from_secs_f64(text(name).parse()?)?) };
    let named: Vec<_> = matches.get_many::<String>("way").into_iter().flatten().collect();
    let ways = ALL.iter().filter(|(name, ..)| named.is_empty() || named.iter().any(|it| it == name));
    Ok(Hostile {
        ways: ways.map(|(_, way, title)| (*way, *title)).collect(),
        flags: matches.get_many::<String>("flag").into_iter().flatten().cloned().collect(),
        hpas: matches.get_one::<usize>("hpas").copied().unwrap_or(0),
        period: seconds("period")?,
        warm_up: seconds("warm-up")?,
        calm: seconds("calm")?,
        attacked: seconds("hostile")?,
        folder: text("out").into(),
        strict: matches.get_flag("strict"),
    })
}

/// The arguments of the process that floods a port. Their values are the attack as JSON, the address of the port, the
/// duration in seconds, and the folder of the certificates.
pub(crate) const FLOOD_ARGUMENTS: [&str; 4] = ["way", "address", "seconds", "folder"];

/// Floods a port. The words are the values of [`FLOOD_ARGUMENTS`].
pub(crate) async fn flood(words: &[String; 4]) -> Result<(), Failure> {
    let [way, address, seconds, folder] = words;
    let time = Duration::try_from_secs_f64(seconds.parse()?)?;
    flood::run(serde_json::from_str(way)?, address.parse()?, time, Path::new(folder)).await
}

/// Measures the selected attacks one after the other. Stores the table after each attack, and prints the table at the
/// end.
pub(crate) async fn run(options: &Hostile) -> Result<(), Failure> {
    std::fs::create_dir_all(&options.folder)?;
    let folder = std::fs::canonicalize(&options.folder)?;
    let mut rows = Vec::new();
    for (way, title) in &options.ways {
        eprintln!("{title}");
        let row = measure(options, *way, title, &folder).await?;
        eprint!("{}", table(std::slice::from_ref(&row)));
        rows.push(row);
        std::fs::write(folder.join("hostile.txt"), table(&rows))?;
    }
    print!("{}", table(&rows));
    let harmful: Vec<_> = rows.iter().filter(|row| !row.is_within_bounds()).map(|row| &*row.title).collect();
    if options.strict && !harmful.is_empty() {
        return Err(
            format!("syncs of others are late, or memory exceeds its bound: {}", harmful.join(", ")).into()
        );
    }
    Ok(())
}

/// A controller that is restarted after it exits or exceeds [`MEMORY_LIMIT`].
struct Guarded<'a> {
    command: CommandLine,
    places: Placeholders<'a>,
    log: PathBuf,
    controller: Controller,
    /// CPU seconds of the previous controller processes.
    cpu: f64,
    /// The last sample of the current process.
    last: Usage,
    /// The number of restarts.
    exits: usize,
}

impl Guarded<'_> {
    /// Returns the CPU seconds of all controller processes, and the resident bytes of the current process. Restarts the
    /// controller if it has exited or exceeds [`MEMORY_LIMIT`].
    async fn sample(&mut self) -> Result<(f64, u64), Failure> {
        match self.controller.usage() {
            Ok(usage) if usage.resident < MEMORY_LIMIT => self.last = usage,
            usage => {
                self.last = usage.unwrap_or(self.last);
                let resident = self.last.resident;
                self.cpu += self.last.cpu;
                self.exits += 1;
                sleep(RESTART_INTERVAL).await;
                let controller = self.command.start(&self.places, &self.log)?;
                // The replaced process may have exited already.
                let _ = std::mem::replace(&mut self.controller, controller).kill().await;
                self.last = Usage::default();
                return Ok((self.cpu, resident));
            }
        }
        Ok((self.cpu + self.last.cpu, self.last.resident))
    }
}

async fn measure(options: &Hostile, way: Way, title: &str, folder: &Path) -> Result<Row, Failure> {
    let external = options.hpas / 5;
    let workload = Workload {
        name: "hostile".to_owned(),
        title: title.to_owned(),
        kind: Kind::External,
        hpas: external,
        others: options.hpas - external,
        pods: 3,
        namespaces: 50,
        queries: 50,
        slowness: Duration::from_millis(5),
        probes: 0,
        hostile: Some(way),
        ..Workload::named("W1").ok_or("no workload W1")?
    };
    let kubeconfig = folder.join(format!("{}.kubeconfig", std::process::id()));
    let mut server = Server::start(&workload, false, kubeconfig.clone()).await?;
    // Another process is unlikely to bind this free port before the controller.
    let address: SocketAddr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut command = CommandLine::own(vec!["--leader-elect=true".to_owned()]);
    if way.needs_policy_objects() {
        command.flags.push("--watch-scaling-policies=true".to_owned());
    }
    if way.floods_port() {
        flood::certificates(folder).await?;
        let file = |name: &str| folder.join(name).display().to_string();
        command.flags.extend([
            format!("--secure-port={}", address.port()),
            format!("--bind-address={}", address.ip()),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("authority.crt")),
            "--authentication-skip-lookup=true".to_owned(),
            "--authentication-kubeconfig={kubeconfig}".to_owned(),
            "--authorization-kubeconfig={kubeconfig}".to_owned(),
        ]);
    }
    command.flags.extend(options.flags.iter().cloned());
    let places = Placeholders { kubeconfig: &kubeconfig, folder, period: options.period };
    let log = folder.join(format!("hostile-{}.log", std::process::id()));
    let controller = command.start(&places, &log)?;
    let mut guarded =
        Guarded { command, places, log, controller, cpu: 0.0, last: Usage::default(), exits: 0 };
    sleep(options.warm_up).await;

    server.measure(options.calm, guarded.controller.pid).await?;
    let (calm, _) = part(options, &workload, &mut server, &mut guarded, options.calm).await?;
    let flood =
        if way.floods_port() { Some(Flood::start(way, address, options.attacked, folder)?) } else { None };
    server.attack(options.attacked).await?;
    let (mut hostile, actions) =
        part(options, &workload, &mut server, &mut guarded, options.attacked).await?;
    let restarted = if way.restarts() {
        let (standby, time) = restart(&mut guarded).await?;
        // The Lease of the killed leader must expire, and each HPA then needs its first sync.
        sleep(options.warm_up + 2 * options.period).await;
        server.measure(options.attacked, guarded.controller.pid).await?;
        hostile = part(options, &workload, &mut server, &mut guarded, options.attacked).await?.0;
        standby.stop().await?;
        Some(time)
    } else {
        None
    };
    let (made, answered) = match flood {
        Some(flood) => {
            let (begun, answered) = flood.end().await?;
            (begun, Some(answered as f64 / options.attacked.as_secs_f64()))
        }
        None => (actions, None),
    };
    guarded.controller.stop().await?;
    Ok(Row {
        title: title.to_owned(),
        wanted: way.rate(),
        made: made as f64 / options.attacked.as_secs_f64(),
        answered,
        calm,
        hostile,
        exits: guarded.exits,
        restarted,
    })
}

/// Kills the controller, and starts two replicas at once. Returns the standby, and the time until both are ready.
async fn restart(guarded: &mut Guarded<'_>) -> Result<(Controller, Duration), Failure> {
    let start = || guarded.command.start(&guarded.places, &guarded.log);
    let (first, second) = (start()?, start()?);
    std::mem::replace(&mut guarded.controller, first).kill().await?;
    guarded.cpu += guarded.last.cpu;
    guarded.last = Usage::default();
    let started = Instant::now();
    tokio::try_join!(guarded.controller.ready(READY_LIMIT), second.ready(READY_LIMIT))?;
    Ok((second, started.elapsed()))
}

/// Samples the controller during the measured time. Returns the figures and the number of the tenant's actions.
async fn part(
    options: &Hostile,
    workload: &Workload,
    server: &mut Server,
    guarded: &mut Guarded<'_>,
    time: Duration,
) -> Result<(Part, u64), Failure> {
    let (start, mut resident) = (Instant::now(), Vec::new());
    let (first, _) = guarded.sample().await?;
    while start.elapsed() + SAMPLE_INTERVAL < time {
        sleep(SAMPLE_INTERVAL).await;
        resident.push(guarded.sample().await?.1);
    }
    let observed = server.observed().await?;
    let (last, _) = guarded.sample().await?;
    let measured = (observed.end - observed.begin) as f64 / 1e6;
    let (lease, actions, server_cpu) = (longest_gap(&observed), observed.actions, observed.cpu);
    let peak = resident.iter().max().copied().unwrap_or(0);
    let report = Run {
        workload,
        label: String::new(),
        controller: String::new(),
        period: options.period.as_secs_f64(),
        started: guarded.controller.since,
        restarted: None,
        observed: &observed,
        cpu: last - first,
        instructions: None,
        resident,
        last: guarded.last,
        own_syncs: None,
        own_on_time: None,
    }
    .report(SERVER);
    let cores = |cpu: f64| cpu / measured;
    Ok((
        Part {
            on_time: report.on_time.unwrap_or(0.0),
            lateness: report.lateness,
            done: report.done,
            resident: report.resident,
            peak: peak as f64,
            controller: cores(last - first),
            server: cores(server_cpu),
            lease,
        },
        actions,
    ))
}

/// Returns the longest time without a write of the Lease within the measured time, in seconds.
pub(crate) fn longest_gap(observed: &Observations) -> f64 {
    let times = || observed.renewals.iter().copied();
    let starts = std::iter::once(observed.begin).chain(times());
    let gaps = starts.zip(times().chain([observed.end])).map(|(from, to): (Micros, Micros)| to - from);
    gaps.max().unwrap_or(0) as f64 / 1e6
}

/// The bound of the resident bytes during an attack: this multiple of the median before the attack, plus the summand.
const MEMORY_FACTOR: f64 = 1.3;
const MEMORY_SUMMAND: f64 = 64.0 * 1_048_576.0;

/// Maximum time from a start to the readiness of both replicas.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Minimum share of the syncs of other tenants that are on time.
const ON_TIME: f64 = 0.999;

/// The figures of the measured time without or with the attack.
#[derive(Debug, Clone)]
struct Part {
    /// The share of syncs that were at most a second late, without those of the tenant's HPAs.
    on_time: f64,
    lateness: Option<Spread>,
    /// The number of observed syncs divided by the expected number, one per period and HPA of other tenants.
    done: f64,
    /// The median of the controller's resident bytes.
    resident: f64,
    /// The maximum of the controller's resident bytes.
    peak: f64,
    /// CPU seconds per second of the controller.
    controller: f64,
    /// CPU seconds per second of the server process, which includes the tenant.
    server: f64,
    /// The longest time without a write of the Lease, in seconds.
    lease: f64,
}

/// The row of one attack.
#[derive(Debug, Clone)]
struct Row {
    title: String,
    /// Intended actions per second. 0 for a single action at the start.
    wanted: f64,
    /// Actual actions per second.
    made: f64,
    /// Actions per second that the controller answered. `None` if the attack does not flood a port.
    answered: Option<f64>,
    calm: Part,
    hostile: Part,
    /// The number of times that the controller exited or was killed at [`MEMORY_LIMIT`].
    exits: usize,
    /// The time until two replicas were ready after a restart.
    restarted: Option<Duration>,
}

impl Row {
    /// Returns the bound of the resident bytes during the attack.
    fn bound(&self) -> f64 {
        self.calm.resident * MEMORY_FACTOR + MEMORY_SUMMAND
    }

    /// Returns whether the attack stays without effect on others.
    fn is_within_bounds(&self) -> bool {
        self.hostile.on_time >= ON_TIME && self.hostile.peak <= self.bound() && self.exits == 0
    }
}

/// Renders the table as Markdown.
fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| | actions per second (actual of intended) | syncs on time without, with | lateness p99, max | syncs made / due without, with | \
         resident without, with, maximum; bound | cores of the controller without, with | cores of the server without, with | \
         longest time without renewal without, with | exits | ready after a restart |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let Row { title, wanted, made, answered, calm, hostile, exits, restarted } = row;
        let rate = match (wanted, answered) {
            (0.0, _) => "–".to_owned(),
            (_, None) => format!("{made:.0} of {wanted:.0}"),
            (_, Some(answered)) => format!("{made:.0} of {wanted:.0}, {answered:.0} answered"),
        };
        let late = hostile.lateness.map_or_else(
            || "–".to_owned(),
            |late| format!("{:.2} s, {:.2} s of {}", late.p99, late.max, late.count),
        );
        let megabytes = |bytes: f64| format!("{:.0}", bytes / 1_048_576.0);
        let bound = row.bound();
        let restarted =
            restarted.map_or_else(|| "–".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {title} | {rate} | {:.2} %, {:.2} % | {late} | {:.1} %, {:.1} % | {}, {}, {} MiB; {} MiB | {:.2}, {:.2} | {:.2}, {:.2} | \
             {:.1} s, {:.1} s | {exits} | {restarted} |",
            calm.on_time * 100.0,
            hostile.on_time * 100.0,
            calm.done * 100.0,
            hostile.done * 100.0,
            megabytes(calm.resident),
            megabytes(hostile.resident),
            megabytes(hostile.peak),
            megabytes(bound),
            calm.controller,
            hostile.controller,
            calm.server,
            hostile.server,
            calm.lease,
            hostile.lease,
        );
    }
    out
}
