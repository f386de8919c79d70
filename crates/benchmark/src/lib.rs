//! Cost and punctuality of an HPA controller, measured per process: `cargo bench --bench scale -- --help`.
//!
//! A run starts a controller in its own process against an API server in another process. After a warm-up of two
//! periods, it measures ten periods. The figures are the lateness of syncs, the share of syncs on time, and reaction
//! times to changes. Further figures are requests and bytes per sync, and CPU time and memory of both processes. The
//! server makes most observations, so any HPA controller can be measured.
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
mod server;
mod simulated;
mod tables;
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;

    use crate::hostile::longest_gap;
    use crate::measure::{self, Report, Run};
    use crate::observations::{HpaObservations, Observations, PendingReaction, RequestCount, Usage};
    use crate::workload::Workload;

    const SECOND: i64 = 1_000_000;

    /// Returns an HPA with status writes at `seconds`.
    fn hpa(seconds: &[i64]) -> HpaObservations {
        HpaObservations {
            statuses: seconds.iter().map(|second| second * SECOND).collect(),
            ..HpaObservations::default()
        }
    }

    /// Returns the report of one measured minute from second 100, with a sync period of 15 s.
    fn report(hpas: &[HpaObservations], change: impl FnOnce(&mut Observations)) -> Report {
        let names = (0..).map(|number| format!("shop/web-{number}"));
        let hpas: BTreeMap<_, _> = names.zip(hpas.iter().cloned()).collect();
        let mut observed =
            Observations { begin: 100 * SECOND, end: 160 * SECOND, hpas, ..Observations::default() };
        change(&mut observed);
        let run = Run {
            workload: &Workload::named("w1").unwrap(),
            label: String::new(),
            controller: String::new(),
            period: 15.0,
            started: 80 * SECOND,
            restarted: None,
            observed: &observed,
            cpu: 0.008,
            instructions: Some(2_000_000.0),
            resident: vec![30, 10, 20],
            last: Usage { cpu: 1.0, resident: 10, peak: 40 },
            own_syncs: None,
            own_on_time: None,
        };
        run.report("simulated")
    }

    #[test]
    fn sync_is_due_one_period_after_the_previous_one() {
        let report = report(&[hpa(&[90, 105, 120, 140, 155])], |_| {});
        // Syncs are due at 105, 120, 135 and 155. The sync that is due at 170 is after the measured minute.
        assert_eq!(report.on_time, Some(0.75));
        let lateness = report.lateness.unwrap();
        assert_eq!((lateness.count, lateness.p50, lateness.max), (4, 0.0, 5.0));
        assert_eq!((report.syncs, report.done), (4.0, 1.0));
    }

    #[test]
    fn missing_sync_is_late_unless_due_in_the_last_second() {
        let late = report(&[hpa(&[95, 110])], |_| {});
        assert_eq!((late.on_time, late.lateness.unwrap().max), (Some(0.5), 35.0));
        let judged = report(&[hpa(&[100, 115, 130, 145]), hpa(&[114, 129, 144, 159])], |_| {});
        assert_eq!(judged.lateness.unwrap().count, 3 + 1 + 3);
        assert_eq!(report(&[hpa(&[])], |_| {}).on_time, Some(0.0));
    }

    #[test]
    fn server_delay_is_not_lateness() {
        let slow = HpaObservations { held_up: 2 * SECOND, ..hpa(&[92, 109, 126, 144]) };
        let lateness = report(&[slow], |_| {}).lateness.unwrap();
        assert_eq!((lateness.count, lateness.p50, lateness.max), (3, 0.0, 1.0));
    }

    #[test]
    fn changed_hpas_do_not_count_for_lateness() {
        let special = HpaObservations { special: true, ..hpa(&[90]) };
        let report = report(&[hpa(&[90, 105, 120, 135, 150]), special], |_| {});
        assert_eq!((report.on_time, report.all_decided), (Some(1.0), Some(10.0)));
    }

    #[test]
    fn requests_per_sync_include_all_clients() {
        let counted = |agent: &str, count| RequestCount {
            agent: agent.to_owned(),
            verb: "update".to_owned(),
            resource: "deployments.apps/scale".to_owned(),
            count,
            failed: 0,
            received: 100 * count,
            sent: 0,
        };
        let report = report(&[hpa(&[90, 105, 120, 135, 150])], |observed| {
            observed.requests = vec![counted("one", 6), counted("other", 2)];
            observed.seconds = vec![1, 3, 2, 2];
        });
        assert_eq!((report.requests_per_sync, report.requests.len()), (2.0, 1));
        assert_eq!((report.requests[0].received, report.burst), (200.0, 1.5));
        assert_eq!((report.controller_cpu, report.received_per_sync), (2.0, None));
        assert_eq!(report.instructions_per_sync, Some(500_000.0));
        assert_eq!((report.resident, report.resident_peak), (20.0, 40.0));
    }

    #[test]
    fn missing_reactions_are_counted() {
        let awaited = |until: Option<i64>| PendingReaction {
            hpa: String::new(),
            since: 110 * SECOND,
            until: until.map(|second| second * SECOND),
        };
        let report = report(&[hpa(&[90])], |observed| {
            observed.reactions = vec![awaited(Some(112)), awaited(None), awaited(Some(111))];
        });
        let reaction = report.reaction.unwrap();
        assert_eq!((reaction.count, reaction.missing, reaction.p50, reaction.max), (2, 1, 1.0, 2.0));
        assert_eq!(report.creation, None);
    }

    #[test]
    fn every_figure_of_several_runs_is_the_median() {
        let run = |count: u64, lateness: &[i64]| {
            report(&[hpa(&[90, 105, 120, 135, 150]), hpa(lateness)], |observed| {
                observed.requests = vec![RequestCount {
                    agent: "one".to_owned(),
                    verb: if count > 9 { "list" } else { "get" }.to_owned(),
                    resource: "pods".to_owned(),
                    count,
                    failed: 0,
                    received: 0,
                    sent: 0,
                }];
            })
        };
        let all = [run(8, &[95, 111]), run(80, &[95, 113]), run(4, &[95, 112])];
        let median = measure::median_report(&all).unwrap();
        assert_eq!((median.runs, median.requests_per_sync), (3, all[0].requests_per_sync));
        assert_eq!(median.requests.len(), 2);
        assert_eq!((median.requests[0].verb.as_str(), median.requests[1].requests), ("get", 0.0));
        assert_eq!(median.on_time, all[2].on_time);
    }

    #[test]
    fn time_without_renewal_includes_both_ends() {
        let gap = |renewals: &[i64]| {
            let renewals = renewals.iter().map(|second| second * SECOND).collect();
            longest_gap(&Observations {
                begin: 100 * SECOND,
                end: 110 * SECOND,
                renewals,
                ..Observations::default()
            })
        };
        assert_eq!(
            [gap(&[]), gap(&[102, 104]), gap(&[107, 109]), gap(&[101, 106, 108])],
            [10.0, 6.0, 7.0, 5.0]
        );
    }
}
