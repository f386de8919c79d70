//! What an HPA controller costs and whether it is on time, by the process: `cargo bench --bench scale -- --help`.
//!
//! A run puts a controller, as a process of its own, in front of an API server in another process, lets it come into its
//! rhythm for two periods, and measures ten: which syncs were on time and how late the others, requests and bytes per sync,
//! CPU time and memory of both processes, how soon a change of a metric becomes a scale write and a new HPA a decision.
//! What can be seen from the server is measured there, so that any HPA controller can stand in the place of ours.
//!
//! - `simulated --workload W1`: the embedded API server over TCP and TLS, by itself, on one machine.
//! - `real`: etcd and kube-apiserver, and several controllers one after the other. With `--search`: how many HPAs each can keep on time.
//! - `floor`: what status writes alone cost the API server.
//! - `lists`: what compressed lists would cost.
//! - `table REPORT...`, `chart REPORT...`: stored reports side by side, as text or as an SVG.
//!
//! Each run prints its table and stores it as text and JSON under `target/scale`. `cargo test --bench scale` makes one
//! short run.

mod chart;
mod controller;
mod measure;
mod median;
mod observed;
mod options;
mod process;
mod real;
mod run;
mod scrape;
mod server;
mod sightings;
mod simulated;
mod smoke;
mod table;
mod workload;
mod world;

use std::path::{Path, PathBuf};

use self::measure::Report;
use self::options::Task;

/// Whatever ends a run: this program has nobody who would tell one failure from another.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let task = options::read()?;
    // The server has one thread, as the controller is to have a core for itself.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match task {
        Task::Simulated(options) => {
            let reports = runtime.block_on(simulated::run(&options))?;
            let report = median::of(&reports)?;
            print!("{}", table::render(std::slice::from_ref(&report)));
            store(&report, &options.folder)
        }
        Task::Real(real) => {
            let reports = runtime.block_on(real::run(&real))?;
            print!("{}", table::render(&reports));
            Ok(())
        }
        Task::Floor(floor) => runtime.block_on(real::floor::run(&floor)),
        Task::Lists(rounds) => runtime.block_on(real::lists::run(&rounds)),
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
        Task::Smoke => {
            real::check()?;
            runtime.block_on(smoke::run())
        }
    }
}

/// Puts a report beside those of other runs, as JSON and as text, and says where.
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
