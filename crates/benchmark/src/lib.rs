//! Cost and punctuality of an HPA controller, measured per process: `cargo bench --bench scale --
//! --help`.
//!
//! A run starts a controller in its own process against an API server in another process, warms up for two periods, and
//! measures ten. It measures the lateness of syncs and the share of syncs on time, requests and bytes per sync, CPU
//! time and memory of both processes, and the time from a metric change to a scale write and from a new HPA to a
//! decision. Most observations are made by the server, so any HPA controller can be measured.
//!
//! - `simulated --workload W1`: the embedded API server over TCP and TLS on one machine.
//! - `real`: etcd and kube-apiserver, with several controllers one after the other. `--search` finds the
//!   maximum number of HPAs that each controller keeps on time.
//! - `hostile`: hostile tenants and clients in front of the embedded API server.
//! - `floor`: the cost of status writes for the API server.
//! - `lists`: the cost of compressed lists.
//! - `table REPORT...`, `chart REPORT...`: a comparison of stored reports, as text or as an SVG.
//!
//! Each run prints its table and stores it as text and JSON under `target/scale`. `cargo test --bench
//! scale` makes one short run.

mod chart;
mod command_line;
mod controller;
mod hostile;
mod measure;
mod observations;
mod options;
mod real;
mod run;
mod scrape;
mod server;
mod simulated;
mod table;
#[cfg(test)]
mod tests;
mod workload;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use self::command_line::Task;
use self::measure::Report;
use crate::controller::CommandLine;
use crate::options::Options;
use crate::workload::Workload;

/// Any failure of a run. No caller distinguishes failures.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the task that the command line of this process selects. `concertina` is the program that is measured by
/// default, and `scratch` is the folder for the files of a test.
///
/// # Errors
/// Returns the failure of the run.
pub fn main(concertina: &Path, scratch: &Path) -> Result<(), Failure> {
    let task = command_line::read()?;
    controller::set_concertina(concertina);
    // Each process has one thread, so the embedded server leaves the other cores to the controller.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match task {
        Task::Simulated(options) => {
            let reports = runtime.block_on(simulated::run(&options))?;
            let report = measure::median_report(&reports)?;
            print!("{}", table::render(std::slice::from_ref(&report)));
            store(&report, &options.folder)
        }
        Task::Real(real) => {
            let reports = runtime.block_on(real::run(&real))?;
            print!("{}", table::render(&reports));
            Ok(())
        }
        Task::Floor(floor) => runtime.block_on(real::minimum_cost::run(&floor)),
        Task::Lists(rounds) => runtime.block_on(real::lists::run(&rounds)),
        Task::Hostile(hostile) => runtime.block_on(hostile::run(&hostile)),
        Task::Flood(words) => runtime.block_on(hostile::flood(&words)),
        Task::Server(workload, kubeconfig) => {
            runtime.block_on(server::run(&serde_json::from_str(&workload)?, &kubeconfig))
        }
        Task::Table(files) => {
            print!("{}", table::render(&read(&files)?));
            Ok(())
        }
        Task::Chart(files) => {
            print!("{}", chart::render(&read(&files)?));
            Ok(())
        }
        Task::Smoke => runtime.block_on(smoke(scratch)),
    }
}

/// Stores a report as JSON and as text, and prints the path.
fn store(report: &Report, folder: &Path) -> Result<(), Failure> {
    let text = table::render(std::slice::from_ref(report));
    let plain = |text: &str| {
        let letters = text.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        letters.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
    };
    let Report { workload, label, server, .. } = report;
    let half = if server == simulated::SERVER { "" } else { "real" };
    let stem = plain(&format!("{half} {} {} {label}", workload.name, workload.all_hpas()));
    let path = folder.join(format!("{stem}.json"));
    std::fs::write(&path, serde_json::to_string_pretty(report)? + "\n")?;
    std::fs::write(folder.join(format!("{stem}.txt")), text)?;
    println!("{}", path.display());
    Ok(())
}

fn read(files: &[PathBuf]) -> Result<Vec<Report>, Failure> {
    let read = |file: &PathBuf| -> Result<Report, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()).into())
    };
    files.iter().map(read).collect()
}

/// Runs a few HPAs for a few short periods, for `cargo test`. Checks that the report is complete, not its values.
pub(crate) async fn smoke(scratch: &Path) -> Result<(), Failure> {
    let basis = Workload::named("W9").ok_or("no workload W9")?;
    let workload = Workload { hpas: 20, pods: 3, namespaces: 2, probes: 2, churn: 10, ..basis };
    let folder = scratch.join("scale");
    let options = Options {
        workload,
        controller: CommandLine::own(Vec::new()),
        label: "smoke".to_owned(),
        period: Duration::from_secs(1),
        warm_up: 3,
        periods: 6,
        runs: 1,
        folder,
    };
    let reports = simulated::run(&options).await?;
    let report = measure::median_report(&reports)?;
    let text = table::render(&reports);
    println!("{text}");
    let mut missing = Vec::new();
    let mut needs = |name: &'static str, is_there: bool| {
        if !is_there {
            missing.push(name);
        }
    };
    needs("syncs", report.syncs >= 20.0);
    needs("lateness", report.lateness.is_some_and(|it| it.count >= 20));
    needs("lateness reported by the controller", report.own_on_time.is_some());
    let puts = report.requests.iter().find(|it| it.verb == "update" && it.resource.ends_with("/status"));
    needs("status writes", puts.is_some_and(|it| it.requests > 0.5));
    needs("bytes", report.sent_per_sync.is_some_and(|it| it > 100.0));
    needs("resident memory", report.resident > 1e6 && report.resident_peak >= report.resident);
    needs("reactions to the step", report.reaction.is_some_and(|it| it.missing == 0));
    needs("first decisions", report.creation.is_some_and(|it| it.missing == 0));
    needs("decisions after a change", report.spec_change.is_some_and(|it| it.missing == 0));
    needs("all decided", report.all_decided.is_some() && report.all_decided_again.is_some());
    needs("the chart", chart::render(&reports).contains("smoke"));
    if missing.is_empty() { Ok(()) } else { Err(format!("missing: {}", missing.join(", ")).into()) }
}
