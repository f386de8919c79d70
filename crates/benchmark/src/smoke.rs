//! One short run of everything, for `cargo test`. It checks that all figures exist, not their values.

use std::path::Path;
use std::time::Duration;

use crate::controller::CommandLine;
use crate::options::Options;
use crate::workload::Workload;
use crate::{Failure, chart, median, simulated, table};

/// Runs a few HPAs for a few short periods and checks that the report is complete.
pub(crate) async fn run(scratch: &Path) -> Result<(), Failure> {
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
    let report = median::combine(&reports)?;
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
    needs("lateness by the controller's own account", report.own_on_time.is_some());
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
