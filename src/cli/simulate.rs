//! The command line of `concertina simulate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::{CliError, cluster};
use crate::api::kubeconfig::ClusterOptions;
use crate::commands::simulate::{Setting, Sweep};
use crate::duration::GoDuration;

/// What the user asks of a simulation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SimulateOptions {
    /// Where the scenario comes from.
    pub source: Source,
    /// `--compare`: other scenario files to play beside it.
    pub compare: Vec<PathBuf>,
    /// `--set`: what one variant has different.
    pub set: Vec<Setting>,
    /// `--sweep`: what several variants have different.
    pub sweep: Vec<Sweep>,
    /// `--seed`, in place of the scenarios' own.
    pub seed: Option<u64>,
    /// `--duration`, in place of the scenarios' own.
    pub duration: Option<Duration>,
    /// Where the results go.
    pub outputs: Outputs,
    /// `--print-scenario`: print the scenario file instead of playing it.
    pub print_scenario: bool,
    /// `--decisions`: print each decision that is worth telling.
    pub decisions: bool,
    /// `--ascii`: draw the chart with ASCII alone.
    pub ascii: bool,
}

/// Where a scenario comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// `--schema`: from nowhere; the JSON schema of scenario files is printed.
    Schema,
    /// A scenario file.
    File(PathBuf),
    /// `--hpa` and `--load`: manifests, and the load on each.
    Manifests(Vec<(PathBuf, PathBuf)>),
    /// `--from-cluster`: an HPA in a cluster, with what is there now.
    Cluster(Box<ClusterOptions>, String),
}

/// Files for the results; `-` is standard output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outputs {
    /// `--report`: an HTML page.
    pub report: Option<PathBuf>,
    /// `--svg`: a chart.
    pub svg: Option<PathBuf>,
    /// `--csv`: the samples.
    pub csv: Option<PathBuf>,
    /// `--json`: everything.
    pub json: Option<PathBuf>,
}

impl Default for Source {
    fn default() -> Self {
        Self::Manifests(Vec::new())
    }
}

/// What came of the words: options, or a help text that was asked for.
pub(super) enum Parsed {
    Options(Box<SimulateOptions>),
    Help(String),
}

/// Reads the words after `simulate`.
pub(super) fn parse(words: impl Iterator<Item = String>) -> Result<Parsed, CliError> {
    match command().try_get_matches_from(words) {
        Ok(matches) => options(&matches).map(Box::new).map(Parsed::Options).map_err(CliError::Subcommand),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Parsed::Help(error.to_string())),
        Err(error) => {
            let text = error.to_string();
            Err(CliError::Subcommand(text.trim_start_matches("error: ").trim_end().to_owned()))
        }
    }
}

fn command() -> Command {
    let path = |name: &'static str| {
        Arg::new(name).long(name).value_name("file").value_parser(value_parser!(PathBuf))
    };
    let output =
        |name: &'static str| path(name).help_heading("Results, each to a file, or to standard output with -");
    let command = Command::new("concertina simulate")
        .no_binary_name(true)
        .about("Plays HPAs against a model of their workload, in virtual time, through the whole controller.")
        .override_usage(
            "concertina simulate SCENARIO.yaml [flags]\n       \
             concertina simulate --hpa HPA.yaml --load LOAD.csv [flags]\n       \
             concertina simulate --from-cluster [-n NAMESPACE] HPA [flags]",
        )
        .arg(
            Arg::new("scenario")
                .value_name("scenario")
                .help("The scenario file, or with --from-cluster the name of the HPA"),
        )
        .arg(path("hpa").action(ArgAction::Append).help("A manifest with an HPA, in place of a scenario file"))
        .arg(
            path("load")
                .action(ArgAction::Append)
                .help("A CSV of time and load, one for each --hpa: cores in all for cpu, else units per second"),
        )
        .arg(
            Arg::new("from-cluster")
                .long("from-cluster")
                .action(ArgAction::SetTrue)
                .help("Take HPA, requests and the present state from a cluster, with read-only requests"),
        )
        .arg(
            Arg::new("print-scenario")
                .long("print-scenario")
                .action(ArgAction::SetTrue)
                .help("Print the scenario file instead of playing it"),
        )
        .arg(
            Arg::new("schema")
                .long("schema")
                .action(ArgAction::SetTrue)
                .help("Print the JSON schema of scenario files and end"),
        )
        .arg(
            Arg::new("set")
                .long("set")
                .value_name("path=value")
                .action(ArgAction::Append)
                .value_parser(|text: &str| text.parse::<Setting>())
                .help("Change a value of the HPA (spec...), or of the scenario; all of them are one variant beside the scenario as it is"),
        )
        .arg(
            Arg::new("sweep")
                .long("sweep")
                .value_name("path=a,b,c")
                .action(ArgAction::Append)
                .value_parser(|text: &str| text.parse::<Sweep>())
                .help("Play one variant for each value; several are combined"),
        )
        .arg(path("compare").action(ArgAction::Append).help("Play another scenario beside it"))
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("number")
                .value_parser(value_parser!(u64))
                .help("The seed of all chance, in place of the scenario's"),
        )
        .arg(
            Arg::new("duration")
                .long("duration")
                .value_name("duration")
                .value_parser(positive_duration)
                .help("How long the scenario lasts, in place of its own duration"),
        )
        .arg(
            Arg::new("decisions")
                .long("decisions")
                .action(ArgAction::SetTrue)
                .help("Print every decision that is worth telling"),
        )
        .arg(
            Arg::new("ascii")
                .long("ascii")
                .action(ArgAction::SetTrue)
                .help("Draw the chart with ASCII alone, as where the locale is not UTF-8"),
        )
        .arg(output("report").help("An HTML page with charts and the explanation of every moment"))
        .arg(output("svg").help("A chart"))
        .arg(output("csv").help("The samples"))
        .arg(output("json").help("Everything"));
    cluster::arguments(command)
}

fn options(matches: &ArgMatches) -> Result<SimulateOptions, String> {
    let paths =
        |name: &str| matches.get_many::<PathBuf>(name).into_iter().flatten().cloned().collect::<Vec<_>>();
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    Ok(SimulateOptions {
        source: source(matches, &paths("hpa"), &paths("load"))?,
        compare: paths("compare"),
        set: matches.get_many::<Setting>("set").into_iter().flatten().cloned().collect(),
        sweep: matches.get_many::<Sweep>("sweep").into_iter().flatten().cloned().collect(),
        seed: matches.get_one::<u64>("seed").copied(),
        duration: matches.get_one::<Duration>("duration").copied(),
        outputs: outputs(Outputs {
            report: path("report"),
            svg: path("svg"),
            csv: path("csv"),
            json: path("json"),
        })?,
        print_scenario: matches.get_flag("print-scenario"),
        decisions: matches.get_flag("decisions"),
        ascii: matches.get_flag("ascii"),
    })
}

fn source(matches: &ArgMatches, hpas: &[PathBuf], loads: &[PathBuf]) -> Result<Source, String> {
    let name = matches.get_one::<String>("scenario").cloned();
    if matches.get_flag("schema") {
        return Ok(Source::Schema);
    }
    if matches.get_flag("from-cluster") {
        let name = name.ok_or("--from-cluster needs the name of an HPA")?;
        if !hpas.is_empty() || !loads.is_empty() {
            return Err("--hpa and --load do not go with --from-cluster".to_owned());
        }
        return Ok(Source::Cluster(Box::new(cluster::options(matches)), name));
    }
    match (name, hpas, loads) {
        (Some(name), [], []) => Ok(Source::File(name.into())),
        (Some(_), ..) => Err("a scenario file does not go with --hpa and --load: it has its own".to_owned()),
        (None, [], []) => {
            Err("there is nothing to simulate; give a scenario file, or --hpa with --load, or --from-cluster"
                .to_owned())
        }
        (None, hpas, loads) if hpas.len() == loads.len() => {
            Ok(Source::Manifests(hpas.iter().cloned().zip(loads.iter().cloned()).collect()))
        }
        (None, ..) => Err("there must be one --load for each --hpa".to_owned()),
    }
}

/// At most one result can be written to standard output.
fn outputs(outputs: Outputs) -> Result<Outputs, String> {
    let all = [
        ("--report", &outputs.report),
        ("--svg", &outputs.svg),
        ("--csv", &outputs.csv),
        ("--json", &outputs.json),
    ];
    let to_stdout =
        |(_, path): &&(&str, &Option<PathBuf>)| path.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let names: Vec<_> = all.iter().filter(to_stdout).map(|(name, _)| *name).collect();
    if names.len() > 1 {
        return Err(format!("only one of {} can go to standard output", names.join(" and ")));
    }
    Ok(outputs)
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<GoDuration>().map_err(|error| error.to_string())?;
    duration.unsigned().filter(|duration| !duration.is_zero()).ok_or_else(|| "must be above zero".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<SimulateOptions, String> {
        match parse(words.iter().map(ToString::to_string)) {
            Ok(Parsed::Options(options)) => Ok(*options),
            Ok(Parsed::Help(text)) => panic!("{text}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_scenario_comes_from_a_file_from_manifests_or_from_a_cluster() {
        assert_eq!(read(&["a.yaml"]).unwrap().source, Source::File("a.yaml".into()));
        assert_eq!(
            read(&["--hpa=a.yaml", "--load", "a.csv", "--hpa=b.yaml", "--load=b.csv"]).unwrap().source,
            Source::Manifests(vec![("a.yaml".into(), "a.csv".into()), ("b.yaml".into(), "b.csv".into())])
        );
        let Source::Cluster(options, name) = read(&["--from-cluster", "-n", "shop", "web"]).unwrap().source
        else {
            panic!()
        };
        assert_eq!((options.namespace.as_deref(), name.as_str()), (Some("shop"), "web"));
        assert_eq!(read(&["--schema"]).unwrap().source, Source::Schema);
    }

    #[test]
    fn what_does_not_go_together_is_told() {
        for (words, expected) in [
            (&[][..], "nothing to simulate"),
            (&["--hpa=a.yaml"], "one --load for each --hpa"),
            (&["a.yaml", "--load=a.csv"], "does not go with --hpa and --load"),
            (&["--from-cluster"], "needs the name of an HPA"),
            (&["--from-cluster", "web", "--hpa=a.yaml"], "do not go with --from-cluster"),
            (&["a.yaml", "--set", "spec.maxReplicas"], "expected PATH=VALUE"),
            (&["a.yaml", "--duration", "1d"], "--duration"),
            (&["a.yaml", "--svg=-", "--csv=-"], "only one of --svg and --csv can go to standard output"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn variants_and_results_are_collected() {
        let words = "a.yaml --set spec.maxReplicas=5 --set web:spec.minReplicas=2 --sweep seed=1,2 --compare b.yaml \
                     --seed 7 --duration 2h --report r.html --json -";
        let options = read(&words.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!((options.set.len(), options.sweep.len(), options.compare.len()), (2, 1, 1));
        assert_eq!((options.seed, options.duration), (Some(7), Some(Duration::from_hours(2))));
        assert_eq!(options.outputs.json, Some("-".into()));
    }
}
