//! The command line of `real`, and of the measurements without a controller.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command, value_parser};

use super::controllers::MeasuredController;
use crate::Failure;
use crate::measure::percentile;
use crate::options::{Options, flag, measured, read_measured, switch, text};

/// Runs of several controllers against one real cluster.
#[derive(Debug, Clone)]
pub(crate) struct Real {
    /// The workload and the times. The controller depends on the contestant.
    pub(crate) options: Options,
    pub(super) contestants: Vec<MeasuredController>,
    /// Flags that are added to Concertina's command line.
    pub(super) flags: Vec<String>,
    /// Whether Concertina has only the built-in controller's role.
    pub(super) built_in_role: bool,
    /// Whether to search for the maximum size that is on time, instead of measuring one size.
    pub(super) search: bool,
}

impl Real {
    /// The options for a run of one contestant.
    pub(super) fn options_for(&self, contestant: MeasuredController) -> Options {
        let mut options = self.options.clone();
        let pin = options.controller.pin;
        options.controller = contestant.command_line(&self.flags);
        options.controller.pin = pin;
        let words = if contestant.is_ours() && !self.flags.is_empty() {
            format!(" {}", self.flags.join(" "))
        } else {
            String::new()
        };
        options.label = format!("{contestant}{words}");
        if contestant.is_ours() && self.built_in_role {
            options.label.push_str(", built-in role");
        }
        options
    }
}

pub(crate) fn command() -> Command {
    let contestants = "built-in-default,built-in-tuned,ours";
    Command::new("real")
        .about("Measures controllers one after the other in front of etcd and kube-apiserver")
        .args(measured())
        .arg(
            text("runs-of", "Controllers to measure: built-in-default, built-in-tuned, ours, ours-default")
                .default_value(contestants)
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
        .arg(switch("search", "Search for the maximum number of HPAs with 99 % of the syncs on time"))
        .mut_arg("pods", |arg| arg.default_value("3"))
        .mut_arg("pin", |arg| arg.help("Bind the controller to the second core"))
}

/// Reads the arguments of the subcommand.
pub(crate) fn read(matches: &ArgMatches) -> Result<Real, Failure> {
    let flags: Vec<_> = matches.get_many::<String>("flag").into_iter().flatten().cloned().collect();
    let mut options = read_measured(matches)?;
    let search = matches.get_flag("search");
    if search {
        // A search has no probes: they are numbered after the last app, and a larger step of the search would use the
        // same numbers for apps.
        options.workload.probes = 0;
    }
    let workload = &options.workload;
    if workload.churn > 0 || workload.restart || workload.skewed || workload.policies > 0 {
        return Err(format!("workload {} is available with `simulated` only", workload.name).into());
    }
    Ok(Real {
        contestants: matches
            .get_many::<MeasuredController>("runs-of")
            .into_iter()
            .flatten()
            .copied()
            .collect(),
        flags,
        built_in_role: matches.get_one::<String>("role").is_some_and(|role| role == "built-in"),
        search,
        options,
    })
}

/// The number and duration of rounds, and the folder for the table. All variants take turns in each round, and the
/// figures are medians over the rounds, so that other work on the machine affects all variants equally.
#[derive(Debug, Clone)]
pub(crate) struct Rounds {
    /// The duration of one variant in one round.
    pub(super) time: Duration,
    pub(super) count: usize,
    folder: PathBuf,
}

/// Adds the arguments for rounds.
pub(super) fn with_rounds(command: Command, seconds: &'static str) -> Command {
    command
        .arg(text("seconds", "Seconds per variant and round").default_value(seconds))
        .arg(
            text("runs", "Number of rounds; the table has the medians")
                .visible_alias("repeat")
                .default_value("15"),
        )
        .arg(text("out", "Folder for the table").default_value("target/scale"))
}

impl Rounds {
    /// Reads the arguments for rounds.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
        Ok(Self {
            time: Duration::try_from_secs_f64(text("seconds").parse()?)?,
            count: text("runs").parse()?,
            folder: text("out").into(),
        })
    }

    /// Prints a table and stores it in the folder.
    pub(super) fn publish(&self, name: &str, table: &str) -> Result<(), Failure> {
        print!("{table}");
        std::fs::create_dir_all(&self.folder)?;
        Ok(std::fs::write(self.folder.join(name), table)?)
    }
}

/// The median of one figure.
pub(super) fn median<T: Copy>(costs: &[T], of: fn(&T) -> f64) -> f64 {
    let mut values: Vec<_> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    percentile(&values, 0.5)
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
        assert_eq!(real.contestants, [MeasuredController::Ours, MeasuredController::BuiltInTuned]);
        assert_eq!((workload.hpas, workload.pods, workload.unchanged), (300, 3, true));
        assert_eq!((real.options.runs, real.built_in_role, real.search), (3, true, false));
        let label = real.options_for(MeasuredController::Ours).label;
        assert_eq!(label, "concertina --share-metrics=false, built-in role");
        assert!(parse("real --workload W7").is_err());
    }
}
