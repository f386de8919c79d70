//! Cost and punctuality of an HPA controller, measured per process: `cargo bench --bench scale -- --help`.
//!
//! A run starts a controller in its own process against an API server in another process. After a warm-up of two
//! periods, it measures ten periods. The figures are the lateness of syncs and the share of syncs on time, requests and
//! bytes per sync, CPU time and memory of both processes, and reaction times to changes. The server makes most
//! observations, so any HPA controller can be measured.
//!
//! - `simulated --workload W1`: the embedded API server over TCP and TLS on one machine.
//! - `real`: etcd and kube-apiserver, with several controllers one after the other. `--search` finds the maximum number
//!   of HPAs that each controller keeps on time.
//! - `hostile`: hostile tenants and clients in front of the embedded API server.
//! - `floor`: the cost of status writes for the API server.
//! - `lists`: the cost of compressed lists.
//! - `table REPORT...`, `chart REPORT...`: a comparison of stored reports, as text or as an SVG.
//!
//! Each run prints its table and stores it as text and JSON under `target/scale`. `cargo test --bench scale` makes one
//! short run.

mod controller;
mod gateway;
mod hostile;
mod measure;
mod observations;
mod real;
mod run;
mod scrape;
mod server;
mod simulated;
mod tables;
#[cfg(test)]
mod tests;
mod workload;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use self::controller::CommandLine;
use self::measure::Report;
use self::real::minimum_cost;
use self::real::requests::{self, Rounds};
use self::run::Options;
use self::workload::Workload;

/// Any failure of a run. No caller distinguishes failures.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the task that the command line of this process selects. `concertina` is the program that is measured by
/// default, and `scratch` is the folder for the files of a test. Exits on help requests and usage errors.
///
/// # Errors
/// Returns the failure of the run.
pub fn main(concertina: &Path, scratch: &Path) -> Result<(), Failure> {
    let matches = command().get_matches();
    controller::set_concertina(concertina);
    // The embedded server gets one thread and leaves the other cores to the controller.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let simulated = |matches: &ArgMatches| {
        let options = simulated::read(matches)?;
        let report = measure::median_report(&runtime.block_on(simulated::run(&options))?)?;
        print!("{}", tables::table(std::slice::from_ref(&report)));
        store(&report, &options.folder)
    };
    let word =
        |matches: &ArgMatches, name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    match matches.subcommand() {
        Some(("simulated", matches)) => simulated(matches),
        Some(("real", matches)) => {
            let reports = runtime.block_on(real::run(&real::read(matches)?))?;
            print!("{}", tables::table(&reports));
            Ok(())
        }
        Some(("hostile", matches)) => runtime.block_on(hostile::run(&hostile::read(matches)?)),
        Some(("flood", matches)) => {
            let words = hostile::FLOOD_ARGUMENTS.map(|name| word(matches, name));
            runtime.block_on(hostile::flood(&words))
        }
        Some(("floor", matches)) => runtime.block_on(minimum_cost::run(&minimum_cost::read(matches)?)),
        Some(("lists", matches)) => runtime.block_on(requests::run(&Rounds::read(matches)?)),
        Some(("server", matches)) => {
            let workload = serde_json::from_str(&word(matches, "workload"))?;
            runtime.block_on(server::run(&workload, Path::new(&word(matches, "kubeconfig"))))
        }
        Some(("table", matches)) => {
            print!("{}", tables::table(&reports(matches)?));
            Ok(())
        }
        Some(("chart", matches)) => {
            print!("{}", tables::chart(&reports(matches)?));
            Ok(())
        }
        // `cargo bench` without arguments runs the first workload. `cargo test` makes a short run.
        _ if matches.get_flag("bench") => simulated(&simulated::command().get_matches_from(["simulated"])),
        _ => runtime.block_on(smoke(scratch)),
    }
}

fn command() -> Command {
    let files = Arg::new("report").required(true).num_args(1..).value_parser(value_parser!(PathBuf));
    Command::new("scale")
        .about("Measures the cost and the punctuality of an HPA controller")
        .arg(Arg::new("bench").long("bench").action(ArgAction::SetTrue).hide(true).global(true))
        .subcommand(simulated::command())
        .subcommand(real::command())
        .subcommand(hostile::command())
        .subcommand(Command::new("flood").hide(true).args(hostile::FLOOD_ARGUMENTS.map(Arg::new)))
        .subcommand(minimum_cost::command())
        .subcommand(requests::command())
        .subcommand(Command::new("server").hide(true).args(["workload", "kubeconfig"].map(Arg::new)))
        .subcommand(Command::new("table").about("Prints stored reports as a table").arg(files.clone()))
        .subcommand(Command::new("chart").about("Prints stored reports as an SVG").arg(files))
}

/// Stores a report as JSON and as text in a folder, and prints the path of the JSON file.
fn store(report: &Report, folder: &Path) -> Result<(), Failure> {
    let text = tables::table(std::slice::from_ref(report));
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

/// Reads the stored reports that the arguments name.
fn reports(matches: &ArgMatches) -> Result<Vec<Report>, Failure> {
    let read = |file: &PathBuf| -> Result<Report, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()).into())
    };
    matches.get_many::<PathBuf>("report").into_iter().flatten().map(read).collect()
}

/// Makes a short run with few HPAs for `cargo test`. Checks that the report is complete, and does not check its values.
async fn smoke(scratch: &Path) -> Result<(), Failure> {
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
    let text = tables::table(&reports);
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
    needs("the chart", tables::chart(&reports).contains("smoke"));
    if missing.is_empty() { Ok(()) } else { Err(format!("missing: {}", missing.join(", ")).into()) }
}
