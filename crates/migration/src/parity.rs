//! `concertina parity`: reports the comparison of a dry run with the built-in controller.
//!
//! The comparison comes from the pod of the dry run, from an address or from a file. [`summary`] aggregates the
//! comparison. [`render`] renders the summary as terminal text, and [`page`] renders it as a page.

pub mod options;
pub mod page;
pub mod summary;

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use autoscaling::settings::Settings;
use tokio_util::sync::CancellationToken;

use self::summary::Answer;
pub use self::summary::Summary;
use crate::parity::options::ParityOptions;
use crate::parity::options::{Output, Source};
use ::cluster::call::Call;
use ::cluster::client::ClientError;
use ::cluster::error::ApiError;
use ::cluster::kubeconfig::{self, ClusterOptions, KubeconfigError};
use coexist::shadow::wire::{Change, Counts, InconclusiveReason, SHADOW_REPORT, ShadowReport, Verdict};
use journal::record::wire::{API_VERSION, ControllerInfo};
use terminal::address::{AddressError, connect};
use terminal::ending::on_another_thread;
use terminal::explain::{Line, Role, Style, Zone};
use terminal::flag_use::{FlagOrigin, uses};
use terminal::forward::{self, ForwardError, Which};
use terminal::options::cluster;
use terminal::progress::Progress;
use terminal::words;

/// Maximum size of a response, in bytes.
const LARGEST: usize = 64 << 20;

/// The reason why no report is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum ParityError {
    /// The comparison cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The report cannot be written.
    #[error("failed to write the report: {0}")]
    Write(#[from] io::Error),
    /// The command was interrupted before it had a report.
    #[error("interrupted")]
    Interrupted,
}

/// The reason why the comparison cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the cluster cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The pod of the dry run cannot be found or reached, or it refused the request.
    #[error("{0}; select the pod of the dry run with --shadow, or its address with --from")]
    Forward(#[from] ForwardError),
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The controller at the address does not respond with a comparison.
    #[error("failed to read the comparison from {url}: {error}")]
    Unreadable {
        /// The URL of the controller.
        url: String,
        /// The error of the controller or the connection.
        error: Box<ApiError>,
    },
    /// A file cannot be read.
    #[error("cannot read {} (--from): {error}", path.display())]
    File {
        /// The path of the file, or `-`.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The content is not a comparison.
    #[error("not a response of /parity of a dry run: {0}")]
    Form(String),
}

/// Writes the report to standard output. Returns whether there are differences.
///
/// # Errors
/// Returns a [`ParityError`] if the comparison cannot be read, the report cannot be written, or `stop` is
/// cancelled first.
pub async fn run(options: &ParityOptions, stop: CancellationToken) -> Result<bool, ParityError> {
    let reading = Progress::on_terminal().during("reading the comparison", read(&options.source));
    let reading = Box::pin(stop.run_until_cancelled(reading)).await;
    let report = reading.ok_or(ParityError::Interrupted)??;
    let mut out = io::stdout();
    let is_terminal = out.is_terminal();
    match show(&report, options, is_terminal, &mut out) {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        shown => Ok(shown?),
    }
}

/// Writes the report in the format of `options`. Returns whether there are differences.
///
/// # Errors
/// Returns an error if the report cannot be encoded or written to `out`.
pub fn show(
    report: &ShadowReport,
    options: &ParityOptions,
    is_terminal: bool,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let summary = Summary::new(report, options.since, options.namespace.as_deref());
    let colours = options.color.applies(is_terminal);
    let zone = Zone::local(options.utc);
    let text = match options.output {
        Output::Text => render(&summary, Style { colours, width: None }, &zone),
        Output::Html => page::render(&summary, &zone),
        Output::Json => serde_json::to_string_pretty(&summary)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&summary).map_err(io::Error::other)?,
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(summary.counts.differences() > 0)
}

/// Reads the comparison of a dry run.
async fn read(source: &Source) -> Result<ShadowReport, ReadError> {
    match source {
        Source::Pod { cluster, namespace, instance } => pod(cluster, namespace, instance).await,
        Source::Address(address) => {
            let (clients, url) = connect(address).await?;
            let call = Call::get(["parity"]).at_most(LARGEST);
            let read = clients.watch.json(&call).await;
            checked(read.map_err(|error| ReadError::Unreadable { url, error: Box::new(error) })?)
        }
        Source::File(path) => {
            let path = path.clone();
            on_another_thread(move || file(&path)).await
        }
    }
}

async fn pod(options: &ClusterOptions, namespace: &str, instance: &str) -> Result<ShadowReport, ReadError> {
    let user = kubeconfig::load_for_user(options)?;
    let clients = cluster::clients(&user, cluster::reads_only())?;
    let selector = format!("app.kubernetes.io/name=concertina,app.kubernetes.io/instance={instance}");
    let which = Which::Labelled { namespace: namespace.to_owned(), selector };
    let answer = forward::fetch(&clients, &which, "/parity").await?;
    parse(&answer)
}

fn file(path: &Path) -> Result<ShadowReport, ReadError> {
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    parse(&read.map_err(|error| ReadError::File { path: path.to_owned(), error })?)
}

fn parse(bytes: &[u8]) -> Result<ShadowReport, ReadError> {
    checked(serde_json::from_slice(bytes).map_err(|error| ReadError::Form(error.to_string()))?)
}

fn checked(report: ShadowReport) -> Result<ShadowReport, ReadError> {
    let (version, kind) = (&report.api_version, &report.kind);
    if version != API_VERSION || kind != SHADOW_REPORT {
        let what = format!("it is a {kind} of {version}, not a {SHADOW_REPORT} of {API_VERSION}");
        return Err(ReadError::Form(what));
    }
    Ok(report)
}

/// Maximum number of differences to list.
const MOST: usize = 50;

/// Renders the report as text.
pub fn render(summary: &Summary, style: Style, zone: &Zone) -> String {
    let mut text = String::new();
    let mut put = |line: Line, indent: usize| {
        text.push_str(&style.line(&line, indent));
        text.push('\n');
    };
    let role = match summary.verdict {
        Answer::Same => Role::Good,
        Answer::Different => Role::Bad,
        Answer::Nothing => Role::Warn,
    };
    put(Line::new("").with(role, summary.sentence.clone()), 0);
    put(Line::new("").dim(facts(summary, zone)), 0);
    if summary.is_by_hours {
        put(Line::new("").dim("There were more changes than are kept: counts cover whole hours"), 0);
    }
    if !summary.differences.is_empty() {
        put(Line::new(""), 0);
        put(Line::new("").strong("Differences"), 0);
        for change in summary.differences.iter().take(MOST) {
            for (indent, line) in lines(change, summary, zone) {
                put(line, indent);
            }
        }
        more(summary.counts.differences(), summary.differences.len().min(MOST), &mut put);
        put(Line::new("").dim(hint(summary)), 2);
    }
    if summary.counts.unknown > 0 {
        put(Line::new(""), 0);
        put(Line::new("").strong("Not judged"), 0);
        for (doubt, count) in &summary.doubts {
            put(Line::new("").plain(format!("{count} × {}", doubt.as_str())), 2);
            if *doubt == InconclusiveReason::NoSign {
                put(Line::new("").dim("is the built-in controller enabled?"), 4);
            }
        }
    }
    if !summary.namespaces.is_empty() {
        text.push('\n');
        table(summary, style, &mut text);
    }
    text
}

fn facts(summary: &Summary, zone: &Zone) -> String {
    let scope = summary.namespace.as_ref().map(|name| format!(", namespace {name}")).unwrap_or_default();
    let mut text = format!(
        "{} to {}, {} HPAs{scope}, Concertina {}",
        zone.full(summary.from),
        zone.full(summary.until),
        summary.hpas,
        summary.controller.version,
    );
    if summary.is_younger {
        // Writing to a string cannot fail.
        let _ = write!(text, "; running for {} only", summary.span());
    }
    text
}

/// Returns the hint that both controllers must run with the same flags.
fn hint(summary: &Summary) -> String {
    let flags = flags(&summary.controller);
    let flags: Vec<_> = flags.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!(
        "both controllers must run with the same --horizontal-pod-autoscaler-… flags; the dry run has {}",
        flags.join(" ")
    )
}

fn lines(change: &Change, summary: &Summary, zone: &Zone) -> Vec<(usize, Line)> {
    let [builtin, ours] = summary::counts(change);
    let mut lines = vec![(
        2,
        Line::new("")
            .dim(zone.time(change.at, summary.until))
            .plain(" ")
            .strong(format!("{}/{}", change.namespace, change.name))
            .plain(" ")
            .bad(what(change.result)),
    )];
    let nothing = || "changed nothing".to_owned();
    let mut reasons = summary::builtin_reasons(change).join("; ");
    if !reasons.is_empty() {
        reasons.insert_str(0, ": ");
    }
    lines.push((4, Line::new("built-in").plain(builtin.unwrap_or_else(nothing)).dim(reasons)));
    let sentence = change.ours.as_ref().map_or("", |ours| ours.sentence.as_str());
    // The sentence of a decision already contains the counts.
    let ours = if sentence.is_empty() { ours.unwrap_or_else(nothing) } else { sentence.to_owned() };
    lines.push((4, Line::new("dry run").plain(ours)));
    lines
}

/// Describes the result of a change.
fn what(result: Verdict) -> &'static str {
    match result {
        Verdict::Same => "the same",
        Verdict::Different => "another count",
        Verdict::OnlyConcertina => "a change by the dry run only",
        Verdict::OnlyBuiltin => "a change by the built-in controller only",
        Verdict::Unknown => "not judged",
    }
}

fn more(all: u64, listed: usize, put: &mut impl FnMut(Line, usize)) {
    let rest = all.saturating_sub(u64::try_from(listed).unwrap_or(u64::MAX));
    if rest > 0 {
        put(Line::new("").dim(format!("and {rest} more")), 2);
    }
}

fn table(summary: &Summary, style: Style, text: &mut String) {
    let mut rows = vec![["NAMESPACE", "HPA", "SAME", "DIFFERENT", "NOT JUDGED"].map(str::to_owned)];
    let row = |namespace: &str, hpa: &str, counts: &Counts| {
        let hpa = if hpa.is_empty() { "(others)" } else { hpa };
        let count = |count: u64| if count == 0 { "-".to_owned() } else { count.to_string() };
        let counts = [counts.same, counts.differences(), counts.unknown].map(count);
        let [same, different, unknown] = counts;
        [namespace.to_owned(), hpa.to_owned(), same, different, unknown]
    };
    for namespace in &summary.namespaces {
        // HPAs with the most differences come first.
        let mut hpas: Vec<_> = namespace.hpas.iter().collect();
        hpas.sort_by_key(|hpa| std::cmp::Reverse(hpa.counts.differences()));
        rows.extend(hpas.into_iter().map(|hpa| row(&namespace.name, &hpa.name, &hpa.counts)));
    }
    let mut widths = [0; 5];
    for cells in &rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    for (index, cells) in rows.iter().enumerate() {
        let mut line = Line::new("");
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let padded = if column < 2 { format!("{cell:width$}  ") } else { format!("{cell:>width$}  ") };
            let role = match (index, column, cell.as_str()) {
                (0, ..) | (_, _, "-") => Role::Dim,
                (_, 3, _) => Role::Bad,
                _ => Role::Plain,
            };
            line = line.with(role, padded);
        }
        text.push_str(style.cut(&line).trim_end());
        text.push('\n');
    }
}

/// Returns the flags of the dry run that the built-in controller must share, without the common prefix, and their
/// values.
fn flags(controller: &ControllerInfo) -> Vec<(&'static str, String)> {
    let settings = Settings::from(controller.settings.clone());
    let uses = uses(&settings, |_| FlagOrigin::Record).into_iter();
    let uses =
        uses.filter_map(|flag| Some((flag.name.strip_prefix("horizontal-pod-autoscaler-")?, flag.value)));
    [("sync-period", words::duration(controller.sync_period))].into_iter().chain(uses).collect()
}
