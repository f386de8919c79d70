//! `concertina forecast backtest`: replays a recorded load with an HPA alone, with the floors of a forecast, with a
//! lower target, and with an oracle, side by side.

pub mod options;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::cluster::client::Clients;
use clock::SharedClock;
use jiff::Timestamp;
use serde::Serialize;
use sources::Dial;
use tokio_util::sync::CancellationToken;

use self::options::{BacktestOptions, Origin};
use crate::WriteError;
use crate::advise::AdviseError;
use crate::advise::outcome::Refusal;
use crate::advise::search::Today;
use crate::advise::source::PastSource;
use ::backtest::contest::{Backtest, Contestant, backtest};
use ::backtest::page;
use ::backtest::replay::{ReplayError, World};
use ::backtest::series::{Series, SeriesError, read};
use ::forecast::Candidate;
use terminal::ending::on_another_thread;
use terminal::options::EncodeError;
use terminal::progress::Progress;
use terminal::words::{number, percent};

/// The reason why no result is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum ForecastError {
    /// The file of the load cannot be read.
    #[error(transparent)]
    Series(#[from] SeriesError),
    /// The HPA or its past cannot be read.
    #[error(transparent)]
    Past(#[from] AdviseError),
    /// There is no such HPA.
    #[error("there is no HPA {0}: pass its namespace with -n")]
    NoHpa(String),
    /// The past of the HPA cannot be replayed.
    #[error("HPA {hpa}: {refusal}")]
    Refused {
        /// Its name.
        hpa: String,
        /// The reason.
        refusal: Refusal,
    },
    /// The replay cannot start.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A file of the result cannot be written.
    #[error(transparent)]
    File(#[from] WriteError),
    /// The result cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The result cannot be written.
    #[error("failed to write the result: {0}")]
    Write(#[from] io::Error),
}

/// The result as a document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    runs: Vec<DocumentRun>,
    choice: DocumentChoice,
    band: DocumentBand,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DocumentRun {
    name: &'static str,
    #[serde(skip)]
    title: &'static str,
    unserved_ppm: f64,
    pod_hours: f64,
    rescales: u32,
    minutes_above80: u32,
}

/// The choice at the end of the load.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DocumentChoice {
    /// `Floor`, or `Preview` without a forecast that pays.
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    quantile: Option<f32>,
    slope: bool,
    /// The first minute that counts. Minutes before only teach.
    judged_from: jiff::Timestamp,
    /// The share of judged minutes with a floor.
    active: f64,
    reason: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DocumentBand {
    coverage: f64,
    /// `null` if the load never rose steeply.
    coverage_rising: Option<f64>,
}

/// A load, with the HPA and the workload that it is replayed with.
pub(crate) struct Played {
    name: String,
    pub(crate) series: Series,
    world: World,
}

/// Runs a backtest, and writes the result to standard output.
///
/// # Errors
/// Returns a [`ForecastError`] if the load cannot be read, or a result cannot be written.
pub async fn run(
    options: &BacktestOptions,
    clock: SharedClock,
    stop: CancellationToken,
) -> Result<(), ForecastError> {
    let work = async {
        let played = match &options.origin {
            Origin::Csv(_) => None,
            Origin::Hpa { name, source } => {
                let clients = source.connect()?;
                let clients = clients.as_ref().map(|(clients, namespace)| (clients, namespace.as_str()));
                let dial = source.network().map_err(AdviseError::from)?;
                Some(past_of(options, name, source, clients, dial, clock.now()).await?)
            }
        };
        let options = options.clone();
        // The replay and a read of standard input block their thread.
        on_another_thread(move || run_to_end(&options, played, &mut io::stdout())).await
    };
    // Boxed, because the future is large.
    match stop.run_until_cancelled(Box::pin(work)).await.unwrap_or(Ok(())) {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(ForecastError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Reads the past of an HPA. `clients` has the namespace of the user.
pub(crate) async fn past_of(
    options: &BacktestOptions,
    name: &str,
    source: &PastSource,
    clients: Option<(&Clients, &str)>,
    dial: Arc<dyn Dial>,
    now: Timestamp,
) -> Result<Played, ForecastError> {
    let progress = Progress::on_terminal();
    let namespace = source.cluster.namespace.as_deref().or_else(|| clients.map(|(_, namespace)| namespace));
    let objects = source.objects(clients.map(|(clients, _)| clients), namespace, progress).await?;
    let hpa = objects.hpas.into_iter().find(|hpa| hpa.name == name);
    let Some(hpa) = hpa else {
        let of = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        return Err(ForecastError::NoHpa(format!("{of}{name}")));
    };
    let name = format!("{}/{}", hpa.namespace, hpa.name);
    let refused = |refusal| ForecastError::Refused { hpa: name.clone(), refusal };
    let today = hpa.today.clone().and_then(Today::known_as_load).map_err(refused)?;
    let reader = source.reader(dial).await?;
    let reading = reader.read(&hpa, reader.end(now), source.days);
    let recording = progress.during("reading the past", reading).await;
    let recording = recording.map_err(|error| refused(error.into()))?;
    let load = recording.load().map_err(refused)?;
    let today = today.with_request(load.request);
    let world = options.world_of(today.world(&load, today.choice));
    Ok(Played { name, series: load.series, world })
}

pub(crate) fn run_to_end(
    options: &BacktestOptions,
    played: Option<Played>,
    out: &mut dyn Write,
) -> Result<(), ForecastError> {
    let Played { name, series, world } = match (played, &options.origin) {
        (None, Origin::Csv(path)) => {
            let series = series(path)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Played { name, world: options.world(&series), series }
        }
        (Some(played), _) => played,
        (None, Origin::Hpa { name, .. }) => return Err(ForecastError::NoHpa(name.clone())),
    };
    let history = options.history(series.loads.len());
    let others = [Contestant::LowerTarget, Contestant::Oracle];
    let found = backtest(&series, &world, &options.settings, history, &others)?;
    if let Some(path) = &options.floors {
        write_floors(path, &series, &found).map_err(WriteError::of("--floors", path))?;
    }
    if let Some(path) = &options.report {
        std::fs::write(path, page::render(&name, &series, &found))
            .map_err(WriteError::of("--report", path))?;
    }
    let document = document(&found, history);
    let text = match options.output.encode(&document)? {
        Some(text) => text.trim_end().to_owned() + "\n",
        None => text(&document),
    };
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn series(path: &Path) -> Result<Series, SeriesError> {
    if path.as_os_str() == "-" {
        return read(path, io::stdin().lock());
    }
    let file = File::open(path).map(BufReader::new);
    let mut input =
        file.map_err(|error| SeriesError { path: path.to_owned(), line: None, problem: error.into() })?;
    read(path, &mut input as &mut dyn BufRead)
}

/// Writes the floor of each minute. 0 is no floor.
fn write_floors(path: &PathBuf, series: &Series, found: &Backtest) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "minute,floor")?;
    for (minute, floor) in found.floors.floors.iter().enumerate() {
        writeln!(file, "{},{floor}", series.time(minute))?;
    }
    file.flush()
}

fn document(found: &Backtest, history: usize) -> Document {
    let rounded = |value: f64, places: f64| (value * places).round() / places;
    let floors = &found.floors;
    let judged = floors.floors.get(history..).unwrap_or_default();
    let active = judged.iter().filter(|floor| **floor > 0).count() as f64 / judged.len().max(1) as f64;
    let Candidate { quantile, slope } =
        floors.last.candidate.unwrap_or(Candidate { quantile: None, slope: false });
    Document {
        runs: found
            .runs
            .iter()
            .map(|(contestant, run)| DocumentRun {
                name: contestant.name(),
                title: contestant.title(),
                unserved_ppm: rounded(run.score.unserved_ppm(), 10.0),
                pod_hours: rounded(run.score.pod_hours(), 100.0),
                rescales: run.score.rescales,
                minutes_above80: run.score.minutes_above_80,
            })
            .collect(),
        choice: DocumentChoice {
            mode: if floors.last.reason.pays() { "Floor" } else { "Preview" },
            quantile,
            slope,
            judged_from: found.judged_from,
            active: rounded(active, 1000.0),
            reason: floors.last.reason.sentence(floors.last.proposed.unwrap_or_default()),
        },
        band: DocumentBand {
            coverage: rounded(floors.coverage, 10_000.0),
            coverage_rising: floors.coverage_rising.map(|share| rounded(share, 10_000.0)),
        },
    }
}

fn text(document: &Document) -> String {
    let mut text = format!(
        "{:<34} {:>13} {:>10} {:>9} {:>13}\n",
        "", "unserved load", "pod-hours", "rescales", "min. > 80 %"
    );
    for run in &document.runs {
        let DocumentRun { title, unserved_ppm, pod_hours, rescales, minutes_above80, .. } = run;
        let unserved = format!("{} ppm", number(*unserved_ppm));
        let _ = writeln!(
            text,
            "{title:<34} {unserved:>13} {pod_hours:>10.1} {rescales:>9} {minutes_above80:>13}"
        );
    }
    let DocumentBand { coverage, coverage_rising } = &document.band;
    let rising = coverage_rising.map(|share| format!(", and {} of rising minutes", percent(share)));
    let _ = writeln!(
        text,
        "\nJudged from {}. A floor applied in {} of these minutes. The band covers {} of them{}.\n\nAt the end: {}",
        document.choice.judged_from,
        percent(document.choice.active),
        percent(*coverage),
        rising.unwrap_or_default(),
        document.choice.reason,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::options::parsed;

    /// Ten days with a peak of 20 pods at 9:00, which is far above what an HPA can follow.
    fn csv(folder: &std::path::Path) -> PathBuf {
        let mut text = "minute,load\n2026-11-02T00:00:00Z,2\n".to_owned();
        for minute in 1..10 * 1440 {
            let is_peak = (540..560).contains(&(minute % 1440));
            let _ = writeln!(text, ",{}", if is_peak { 20 } else { 2 });
        }
        let path = folder.join("load.csv");
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn floor_serves_a_daily_peak() {
        let folder = std::env::temp_dir().join(format!("concertina-backtest-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (csv, floors, report) = (csv(&folder), folder.join("floors.csv"), folder.join("report.html"));
        let words = [
            "backtest",
            "--csv",
            csv.to_str().unwrap(),
            "-o",
            "json",
            "--budget=10%",
            "--floors",
            floors.to_str().unwrap(),
            "--report",
            report.to_str().unwrap(),
        ];
        let options = parsed(options::command("concertina"), &words, options::options).unwrap();
        let mut out = Vec::new();
        run_to_end(&options, None, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let ppm = |name: &str| {
            let (_, rest) = text.split_once(&format!("\"name\": \"{name}\"")).unwrap();
            let (_, rest) = rest.split_once("\"unservedPpm\": ").unwrap();
            rest.split_once(',').unwrap().0.parse::<f64>().unwrap()
        };
        assert!(ppm("alone") > 40_000.0 && ppm("floor") < ppm("alone") / 20.0, "{text}");
        assert!(text.contains("\"mode\": \"Floor\"") && text.contains("\"coverageRising\""), "{text}");
        let floors = std::fs::read_to_string(floors).unwrap();
        assert!(floors.starts_with("minute,floor\n2026-11-02T00:00:00Z,0\n"));
        assert!(floors.contains("2026-11-11T08:58:00Z,23\n"));
        assert_eq!(floors.lines().count(), 10 * 1440 + 1);
        assert!(std::fs::read_to_string(report).unwrap().contains("<title>Backtest of load.csv</title>"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
