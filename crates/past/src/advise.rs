//! `concertina advise`: which HPAs of a cluster are set wrongly, what they should be, what that saves, and how sure it
//! is. The past comes from Prometheus or from a record. Nothing is written to the cluster.
//!
//! | module | contents |
//! |---|---|
//! | [`options`] | the command line |
//! | [`source`] | the flags for the HPAs and for their past, which `forecast` shares |
//! | [`objects`] | the HPAs, from the cluster or from files |
//! | [`keda`] | the queries of the triggers of ScaledObjects |
//! | `history` | the queries to Prometheus |
//! | `record` | the saved answers of the decisions API |
//! | [`recording`] | the recorded values per minute, and the load that follows; pure |
//! | `model` | a fast model that orders settings; pure |
//! | [`rates`] | the rate policies of `behavior`; pure |
//! | [`search`] | replays with the controller's rules that choose and judge settings; pure |
//! | [`findings`] | what else a recording shows; pure |
//! | [`outcome`] | an advice, or the reason against one |
//! | `report`, `page` | the answer as text, document, patches and page |

pub mod findings;
pub(crate) mod history;
pub mod keda;
mod model;
pub mod objects;
pub mod options;
pub mod outcome;
mod page;
pub mod rates;
mod record;
pub mod recording;
mod report;
pub mod search;
pub mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::cluster::client::{ClientError, Clients};
use ::cluster::error::ApiError;
use ::cluster::kubeconfig::KubeconfigError;
use backtest::replay::ReplayError;
use clock::SharedClock;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use sources::{Dial, SourceError, TlsError};
use tokio_util::sync::CancellationToken;

use self::objects::{Hpa, Objects};
use self::options::AdviseOptions;
use self::outcome::Refusal;
use self::recording::{Column, Recording};
use self::report::{Report, Row, patches};
use self::source::{IN_FLIGHT, Past, PastError, Reader};
use crate::WriteError;
use terminal::ending::on_another_thread;
use terminal::options::EncodeError;
use terminal::progress::Progress;

/// The HPAs in a row without an answer after which Prometheus is not asked again: a query has a time limit of a minute.
const MOST_SILENT: usize = 4;

/// The charts of the page, by namespace and name.
pub(crate) type Charts = BTreeMap<(String, String), String>;

/// The reason why no answer is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the cluster cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The HPAs cannot be read.
    #[error("cannot read HPAs: {0}")]
    Unreadable(Box<ApiError>),
    /// A file cannot be read.
    #[error("cannot read {}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// There is no HPA.
    #[error("there is no HPA: pass another namespace, or files with -f")]
    NoHpa,
    /// Prometheus answered for no HPA.
    #[error("Prometheus at {url} has no answer (--prometheus): {error}")]
    Prometheus {
        /// Its URL.
        url: String,
        /// The error of the first HPA.
        error: String,
    },
    /// The authorities of Prometheus cannot be used.
    #[error("--prometheus-ca: {0}")]
    Tls(#[from] TlsError),
    /// A replay cannot start.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A patch or the page cannot be written.
    #[error(transparent)]
    Output(#[from] WriteError),
    /// The answer cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The answer cannot be written.
    #[error("failed to write the answer: {0}")]
    Write(#[from] std::io::Error),
    /// The command was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Advises on the HPAs of the user's cluster, and prints the answer to standard output.
///
/// # Errors
/// Returns an [`AdviseError`] if no answer is available or the answer cannot be written.
pub async fn run(
    options: &AdviseOptions,
    clock: SharedClock,
    stop: CancellationToken,
) -> Result<(), AdviseError> {
    let mut out = std::io::stdout();
    let progress = Progress::on_terminal();
    let work = async {
        let clients = options.source.connect()?.map(|(clients, _)| clients);
        let dial = options.source.network()?;
        answer(options, clients.as_ref(), dial, clock.now(), progress, &mut out).await
    };
    // Boxed, because the future is large.
    match stop.run_until_cancelled(Box::pin(work)).await.unwrap_or(Err(AdviseError::Interrupted)) {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(AdviseError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        answered => answered,
    }
}

/// Advises on the HPAs of a cluster, or of the files without one.
async fn answer(
    options: &AdviseOptions,
    clients: Option<&Clients>,
    dial: Arc<dyn Dial>,
    now: Timestamp,
    progress: Progress,
    out: &mut (dyn Write + Send),
) -> Result<(), AdviseError> {
    let AdviseOptions { source, .. } = options;
    let namespace = source.cluster.namespace.as_deref();
    let objects = source.objects(clients, namespace, progress).await?;
    let Objects { hpas, mut lacked, .. } = objects;
    if hpas.is_empty() {
        return Err(AdviseError::NoHpa);
    }
    let reader = source.reader(dial).await?;
    let end = reader.end(now);
    let (done, silent) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let draws = options.report.is_some();
    let advices = stream::iter(&hpas).map(async |hpa| {
        let advice = match silent.load(Ordering::Relaxed) {
            MOST_SILENT.. => {
                let error = "not asked, because it answered no query before".to_owned();
                Ok(unreadable(hpa, Refusal::Unreadable { error }))
            }
            _ => advise_on(&reader, hpa, end, source.days, draws, &silent).await,
        };
        done.fetch_add(1, Ordering::Relaxed);
        advice
    });
    let collecting = advices.buffered(IN_FLIGHT).collect::<Vec<_>>();
    let what = || format!("advising on {} HPAs, {} done", hpas.len(), done.load(Ordering::Relaxed));
    let advices = progress.during_steps(what, collecting).await;
    let (mut rows, mut charts) = (Vec::new(), Charts::new());
    let mut missing: BTreeMap<Column, usize> = BTreeMap::new();
    for advice in advices {
        let Advice { row, chart, missing: columns } = advice?;
        for column in columns {
            *missing.entry(column).or_default() += 1;
        }
        charts.extend(chart.map(|chart| ((row.namespace.clone(), row.name.clone()), chart)));
        rows.push(row);
    }
    let error_of = |row: &Row| match &row.refused {
        Some(Refusal::Unreadable { error }) => Some(error.clone()),
        _ => None,
    };
    let errors = rows.iter().map(error_of).collect::<Option<Vec<_>>>();
    match &source.past {
        Past::Prometheus { url, .. } => {
            if let Some(error) = errors.and_then(|errors| errors.into_iter().next()) {
                return Err(AdviseError::Prometheus { url: url.to_string(), error });
            }
            lacked.extend(missing.into_iter().map(|(column, hpas)| {
                format!("{} for {}", column.metric(), terminal::words::counted(hpas, "HPA"))
            }));
        }
        Past::Record(_) => {
            lacked.push(
                "rollouts and cpu requests: the record has none, so check that none changed".to_owned(),
            );
        }
    }
    let days = jiff::SignedDuration::from_hours(24 * i64::try_from(source.days).unwrap_or_default());
    let report = Report::new(end.saturating_sub(days).unwrap_or(end), end, lacked, rows);
    write_files(options, &report, &hpas, &charts)?;
    let text = options.output.encode(&report)?.unwrap_or_else(|| report.text());
    writeln!(out, "{}", text.trim_end())?;
    Ok(out.flush()?)
}

/// The answer for one HPA.
struct Advice {
    row: Row,
    chart: Option<String>,
    /// The columns without which checks were skipped.
    missing: Vec<Column>,
}

async fn advise_on(
    reader: &Reader,
    hpa: &Hpa,
    end: Timestamp,
    days: usize,
    draws: bool,
    silent: &AtomicUsize,
) -> Result<Advice, AdviseError> {
    if matches!(hpa.today, Err(Refusal::Invalid { .. })) {
        return evaluate(hpa, None, draws);
    }
    match reader.read(hpa, end, days).await {
        Ok(recording) => {
            silent.store(0, Ordering::Relaxed);
            let hpa = hpa.clone();
            on_another_thread(move || evaluate(&hpa, Some(&recording), draws)).await
        }
        Err(error) => {
            if matches!(error, PastError::Source(SourceError::Request(_))) {
                silent.fetch_add(1, Ordering::Relaxed);
            }
            Ok(unreadable(hpa, error.into()))
        }
    }
}

/// The row of an HPA whose past cannot be read.
fn unreadable(hpa: &Hpa, refusal: Refusal) -> Advice {
    let row = Row::new(hpa, Err(refusal), findings::findings_of_objects(hpa), None);
    Advice { row, chart: None, missing: Vec::new() }
}

/// Advises on an HPA from its recording.
fn evaluate(hpa: &Hpa, recording: Option<&Recording>, draws: bool) -> Result<Advice, AdviseError> {
    let load = recording.map(Recording::load);
    let mut hpa = hpa.clone();
    if let (Some(Ok(load)), Ok(today)) = (&load, &hpa.today) {
        hpa.today = Ok(today.clone().with_request(load.request));
    }
    let hpa = &hpa;
    let searched = match (&hpa.today, recording, &load) {
        (Ok(today), Some(recording), Some(Ok(load))) => Ok(search::search(today, recording, load)?),
        (Err(refusal), ..) | (_, _, Some(Err(refusal))) => Err(refusal.clone()),
        (Ok(_), ..) => Err(Refusal::NoUsage),
    };
    let load = load.and_then(Result::ok);
    let findings = recording.map_or_else(
        || findings::findings_of_objects(hpa),
        |recording| findings::findings(hpa, recording, load.as_ref()),
    );
    let chart = match (&searched, &load, &hpa.today) {
        (Ok(searched), Some(load), Ok(today)) if draws => {
            Some(page::chart(load, today.choice.target, searched))
        }
        _ => None,
    };
    let is_missing = |column: &Column| {
        let applies = !matches!(column, Column::ReplicaSets | Column::Age) || hpa.kind == "Deployment";
        recording.is_some_and(|recording| applies && !recording.has(*column))
    };
    // Without usage or requests, the HPA is refused for this reason.
    let optional = [
        Column::Replicas,
        Column::Ready,
        Column::ReplicaSets,
        Column::Min,
        Column::Max,
        Column::Target,
        Column::Age,
    ];
    let missing = optional.into_iter().filter(|_| searched.is_ok()).filter(is_missing).collect();
    let row = Row::new(hpa, searched.and_then(|searched| searched.outcome), findings, load.as_ref());
    Ok(Advice { row, chart, missing })
}

fn write_files(
    options: &AdviseOptions,
    report: &Report,
    hpas: &[Hpa],
    charts: &Charts,
) -> Result<(), AdviseError> {
    if let Some(folder) = &options.patches {
        std::fs::create_dir_all(folder).map_err(WriteError::of("--patch", folder))?;
        for (name, text) in patches(report, hpas) {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(WriteError::of("--patch", &path))?;
        }
    }
    if let Some(path) = &options.report {
        std::fs::write(path, page::page(report, charts)).map_err(WriteError::of("--report", path))?;
    }
    Ok(())
}
