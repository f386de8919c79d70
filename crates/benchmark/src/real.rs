//! Runs several controllers one after the other against one etcd and kube-apiserver, with the same objects and metrics.
//!
//! The folder `KUBEBUILDER_ASSETS` contains the programs. kube-controller-manager runs only the HPA controller, so no
//! other controller changes the loaded Deployments and pods.

mod cluster;
mod control_plane;
mod counters;
mod hpa_watch;
mod metrics_server;
pub(crate) mod minimum_cost;
mod protobuf;
pub(crate) mod requests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{ArgMatches, Command, value_parser};

use self::cluster::RealCluster;
use self::control_plane::{ControlPlane, convert_error};
use crate::controller::{CommandLine, concertina};
use crate::measure::Report;
use crate::run::{Options, flag, measured, read_measured, switch, text};
use crate::{Failure, measure, run, store};

/// Measures every controller `runs` times, or searches for its maximum size. Returns one report per controller.
pub(crate) async fn run(real: &Real) -> Result<Vec<Report>, Failure> {
    let folder = &real.options.folder;
    std::fs::create_dir_all(folder)?;
    let folder = std::fs::canonicalize(folder)?;
    let mut cluster = RealCluster::start().await?;
    if !real.built_in_role {
        grant(&cluster.plane, &real.flags).await?;
    }
    if real.search {
        return search(real, &mut cluster, &folder).await;
    }
    cluster.load_workload(&real.options.workload).await?;
    cluster.measure_idle().await?;
    let mut reports = vec![Vec::new(); real.controllers.len()];
    for number in 1..=real.options.runs {
        for (controller, reports) in real.controllers.iter().zip(&mut reports) {
            eprintln!("{controller}, run {number} of {}", real.options.runs);
            cluster.reset().await?;
            cluster.kubeconfig = controller.kubeconfig(&cluster.plane, real.built_in_role).await?;
            reports.push(run::run(&real.options_for(*controller), &mut cluster, &folder).await?);
        }
    }
    cluster.reset().await?;
    let medians =
        reports.iter().map(|reports| measure::median_report(reports)).collect::<Result<Vec<_>, _>>()?;
    for report in &medians {
        store(report, &folder)?;
    }
    let late = medians.iter().find(|report| report.on_time.is_none_or(|on_time| on_time < ENOUGH));
    if let Some(Report { label, on_time, .. }) = late.filter(|_| real.strict) {
        return Err(format!(
            "{label}: only {:.2} % of the syncs are on time",
            on_time.unwrap_or(0.0) * 100.0
        )
        .into());
    }
    Ok(medians)
}

/// Runs of several controllers against one real cluster.
#[derive(Debug, Clone)]
pub(crate) struct Real {
    /// The workload and the times. [`Self::options_for`] adds the controller.
    pub(crate) options: Options,
    controllers: Vec<MeasuredController>,
    /// Additional flags of Concertina.
    flags: Vec<String>,
    /// Whether Concertina uses the account and the role of the built-in controller.
    built_in_role: bool,
    /// Whether late syncs are a failure.
    strict: bool,
    /// Whether to search for the maximum number of HPAs on time, instead of measuring one number.
    search: bool,
}

impl Real {
    fn options_for(&self, controller: MeasuredController) -> Options {
        let mut options = self.options.clone();
        let pin = options.controller.pin;
        options.controller = controller.command_line(&self.flags);
        options.controller.pin = pin;
        let words = if controller.is_ours() && !self.flags.is_empty() {
            format!(" {}", self.flags.join(" "))
        } else {
            String::new()
        };
        options.label = format!("{controller}{words}");
        if controller.is_ours() && self.built_in_role {
            options.label.push_str(", built-in role");
        }
        options
    }
}

pub(crate) fn command() -> Command {
    let controllers = "built-in-default,built-in-tuned,ours";
    Command::new("real")
        .about("Measures controllers one after the other in front of etcd and kube-apiserver")
        .args(measured())
        .arg(
            text("runs-of", "Controllers to measure: built-in-default, built-in-tuned, ours, ours-default")
                .default_value(controllers)
                .value_delimiter(',')
                .value_parser(value_parser!(MeasuredController)),
        )
        .arg(flag("Flag to add to Concertina's command line; repeatable"))
        .arg(
            text(
                "role",
                "Concertina's role: the roles that `concertina rbac` prints, or the built-in controller's",
            )
            .default_value("shipped")
            .value_parser(["shipped", "built-in"]),
        )
        .arg(switch("strict", "Fail if less than 99 % of the syncs of a controller are on time"))
        .arg(switch("search", "Search for the maximum number of HPAs with 99 % of the syncs on time"))
        .mut_arg("pods", |arg| arg.default_value("3"))
        .mut_arg("pin", |arg| arg.help("Bind the controller to the second core"))
}

/// Reads the arguments of the subcommand.
///
/// # Errors
/// Returns an error for a workload that needs the embedded server.
pub(crate) fn read(matches: &ArgMatches) -> Result<Real, Failure> {
    let flags: Vec<_> = matches.get_many::<String>("flag").into_iter().flatten().cloned().collect();
    let mut options = read_measured(matches)?;
    let search = matches.get_flag("search");
    if search {
        // Probes have the numbers after the last app. The next step of a search uses these numbers for apps.
        options.workload.probes = 0;
    }
    let workload = &options.workload;
    if workload.churn > 0 || workload.restart || workload.skewed || workload.policies > 0 {
        return Err(format!("workload {} is available with `simulated` only", workload.name).into());
    }
    Ok(Real {
        controllers: matches
            .get_many::<MeasuredController>("runs-of")
            .into_iter()
            .flatten()
            .copied()
            .collect(),
        flags,
        built_in_role: matches.get_one::<String>("role").is_some_and(|role| role == "built-in"),
        strict: matches.get_flag("strict"),
        search,
        options,
    })
}

/// Rate limits that never delay requests.
const UNLIMITED: [&str; 2] = ["--kube-api-qps=10000", "--kube-api-burst=10000"];
/// Twenty times the default number of workers.
const WORKERS: &str = "--concurrent-horizontal-pod-autoscaler-syncs=100";
/// The account of the built-in controller. Every cluster binds it to the role of this controller.
const BUILT_IN_ACCOUNT: (&str, &str) = ("kube-system", "horizontal-pod-autoscaler");
/// An account with exactly the roles that `concertina rbac` prints.
const OWN_ACCOUNT: (&str, &str) = ("kube-system", "concertina");

/// A measured controller: the built-in controller or Concertina, with default or tuned flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MeasuredController {
    BuiltInDefault,
    BuiltInTuned,
    OursDefault,
    Ours,
}

impl FromStr for MeasuredController {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "built-in-default" => Self::BuiltInDefault,
            "built-in-tuned" => Self::BuiltInTuned,
            "ours-default" => Self::OursDefault,
            "ours" => Self::Ours,
            _ => return Err("must be built-in-default, built-in-tuned, ours-default or ours".to_owned()),
        })
    }
}

impl fmt::Display for MeasuredController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BuiltInDefault => "built-in, default flags",
            Self::BuiltInTuned => "built-in, tuned",
            Self::OursDefault => "concertina, default flags",
            Self::Ours => "concertina",
        })
    }
}

impl MeasuredController {
    fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursDefault)
    }

    /// Returns the command line. Only Concertina gets the additional `flags`.
    fn command_line(self, flags: &[String]) -> CommandLine {
        let words = |words: &[&str]| words.iter().copied().map(str::to_owned).collect::<Vec<_>>();
        match self {
            Self::BuiltInDefault => CommandLine::built_in_for_real(Vec::new()),
            Self::BuiltInTuned => {
                CommandLine::built_in_for_real([words(&UNLIMITED), words(&[WORKERS])].concat())
            }
            Self::OursDefault => CommandLine::own(flags.to_vec()),
            Self::Ours => CommandLine::own([words(&UNLIMITED), flags.to_vec()].concat()),
        }
    }

    /// Creates the kubeconfig. With `built_in_role`, Concertina uses the account of the built-in controller.
    async fn kubeconfig(self, plane: &ControlPlane, built_in_role: bool) -> Result<PathBuf, Failure> {
        if !self.is_ours() {
            return convert_error(plane.manager_kubeconfig());
        }
        let (namespace, name) = if built_in_role { BUILT_IN_ACCOUNT } else { OWN_ACCOUNT };
        convert_error(plane.service_account(namespace, name).await)
    }
}

/// Grants Concertina's account the roles that `concertina rbac` prints for `flags`.
async fn grant(plane: &ControlPlane, flags: &[String]) -> Result<(), Failure> {
    let (namespace, name) = OWN_ACCOUNT;
    let output = std::process::Command::new(concertina())
        .args([
            "rbac",
            "--service-account",
            &format!("{namespace}/{name}"),
            "--takeover=off",
            "--leader-elect=false",
        ])
        .args(flags)
        .output()?;
    if !output.status.success() {
        return Err(format!("concertina rbac failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    convert_error(plane.admin.create_all(&String::from_utf8_lossy(&output.stdout)).await).map(drop)
}

/// The required share of syncs on time.
const ENOUGH: f64 = 0.99;
/// The maximum quotient of [`Bounds::fails`] and [`Bounds::holds`] at which the search ends.
const CLOSE: f64 = 1.125;
/// The minimum number of HPAs that the search tries.
const LEAST: usize = 10;

/// The known bounds of the number of HPAs that a controller keeps on time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bounds {
    /// The largest number of HPAs on time.
    holds: Option<usize>,
    /// The smallest number of HPAs not on time.
    fails: Option<usize>,
}

impl Bounds {
    fn add(&mut self, hpas: usize, on_time: bool) {
        *(if on_time { &mut self.holds } else { &mut self.fails }) = Some(hpas);
    }

    /// Returns the next number to try, by doubling and bisection. Returns `None` if the bounds are close enough, or if
    /// the next number is below [`LEAST`].
    fn next(self) -> Option<usize> {
        match (self.holds, self.fails) {
            (Some(holds), None) => Some(holds * 2),
            (None, Some(fails)) => Some(fails / 2).filter(|next| *next >= LEAST),
            (Some(holds), Some(fails)) => {
                (fails as f64 > holds as f64 * CLOSE).then(|| usize::midpoint(holds, fails))
            }
            (None, None) => None,
        }
    }
}

/// Searches for the maximum number of HPAs that each controller keeps on time. Returns the reports of these runs.
async fn search(real: &Real, cluster: &mut RealCluster, folder: &Path) -> Result<Vec<Report>, Failure> {
    let mut best = Vec::new();
    for controller in &real.controllers {
        let (mut bounds, mut report) = (Bounds::default(), None);
        let mut next = Some(real.options.workload.hpas);
        while let Some(hpas) = next {
            let mut options = real.options_for(*controller);
            options.workload.hpas = hpas;
            cluster.load_workload(&options.workload).await?;
            cluster.measure_idle().await?;
            cluster.reset().await?;
            cluster.kubeconfig = controller.kubeconfig(&cluster.plane, real.built_in_role).await?;
            let tried = run::run(&options, cluster, folder).await?;
            let on_time = tried
                .on_time
                .ok_or("without status writes, only the controller's metrics show which syncs are on time")?;
            let p99 = tried.lateness.map_or(0.0, |late| late.p99);
            println!("{controller}, {hpas} HPAs: {:.2} % on time, lateness p99 {p99:.2} s", on_time * 100.0);
            bounds.add(hpas, on_time >= ENOUGH);
            if on_time >= ENOUGH {
                report = Some(tried);
            }
            next = bounds.next();
        }
        if let Some(mut report) = report {
            report.label = format!("{}, at its maximum", report.label);
            store(&report, folder)?;
            best.push(report);
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_is_parsed() {
        let parse = |words: &str| read(&command().try_get_matches_from(words.split_whitespace()).unwrap());
        let real = parse(
            "real --workload W2 --hpas 300 --period 5 --repeat 3 --role built-in --unchanged \
             --runs-of ours,built-in-tuned --flag=--share-metrics=false",
        )
        .unwrap();
        let workload = &real.options.workload;
        assert_eq!(real.controllers, [MeasuredController::Ours, MeasuredController::BuiltInTuned]);
        assert_eq!((workload.hpas, workload.pods, workload.unchanged), (300, 3, true));
        assert_eq!((real.options.runs, real.built_in_role, real.search), (3, true, false));
        let label = real.options_for(MeasuredController::Ours).label;
        assert_eq!(label, "concertina --share-metrics=false, built-in role");
        assert!(parse("real --workload W7").is_err());
    }

    #[test]
    fn any_capacity_is_found() {
        for capacity in [30, 333, 1_000, 1_999, 20_000] {
            let (mut bounds, mut next) = (Bounds::default(), Some(1_000));
            while let Some(hpas) = next {
                bounds.add(hpas, hpas <= capacity);
                next = bounds.next();
            }
            let holds = bounds.holds.unwrap_or(0);
            assert!(holds <= capacity, "{holds} of {capacity}");
            assert!((holds as f64) * CLOSE * CLOSE >= capacity as f64, "{holds} of {capacity}");
        }
    }
}
