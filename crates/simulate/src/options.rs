//! The command line of `concertina simulate`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::setting::{Setting, Sweep};
use ::cluster::kubeconfig::ClusterOptions;
use flags::CliError;
use terminal::options::{self as shared, Color, Output, cluster, color, option, positive_duration, switch};

/// The options of `simulate`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SimulateOptions {
    /// The source of the scenario.
    pub source: Source,
    /// `--compare`: other scenario files to run for comparison.
    pub compare: Vec<PathBuf>,
    /// `--set`: the changes of one variant, or of every variant of `--sweep`.
    pub set: Vec<Setting>,
    /// `--sweep`: the changes of several variants.
    pub sweep: Vec<Sweep>,
    /// `--seed`: the seed that replaces the scenarios' seeds.
    pub seed: Option<u64>,
    /// `--duration`: the duration that replaces the scenarios' durations.
    pub duration: Option<Duration>,
    /// The files for the results.
    pub outputs: Outputs,
    /// `--print-scenario`: print the scenario as a file, without a run.
    pub print_scenario: bool,
    /// `--decisions`: print every notable decision.
    pub decisions: bool,
    /// `--output`: a chart and a table of the scores, or a document with all results.
    pub output: Output,
    /// `--ascii`: draw the chart with ASCII characters only.
    pub ascii: bool,
    /// `--color`: the condition for colors.
    pub color: Color,
}

/// The source of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// `--schema`: print the JSON schema of scenario files. No scenario is read.
    Schema,
    /// A scenario file. `-` means standard input.
    File(PathBuf),
    /// `--hpa` and `--load`: manifests, each with the file of its load.
    Manifests(Vec<(PathBuf, PathBuf)>),
    /// `--from-cluster`: the connection to a cluster, and the name of an HPA.
    Cluster(Box<ClusterOptions>, String),
}

/// The files for the results. `-` means standard output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outputs {
    /// `--report`: an HTML page.
    pub report: Option<PathBuf>,
    /// `--csv`: the samples.
    pub csv: Option<PathBuf>,
    /// `--json`: all results.
    pub json: Option<PathBuf>,
}

impl Default for Source {
    fn default() -> Self {
        Self::Manifests(Vec::new())
    }
}

/// Creates the command line of `simulate`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    let path = |name, help| option(name, "file", help).value_parser(value_parser!(PathBuf));
    let output = |name, help| {
        path(name, help).help_heading("Results, each written to a file, or to standard output with -")
    };
    let command = Command::new("simulate")
        .no_binary_name(true)
        .bin_name(format!("{program} simulate"))
        .about("Simulates HPAs and a model of their workloads in virtual time, with the complete controller.")
        .override_usage(format!(
            "{program} simulate [OPTIONS] SCENARIO.yaml\n       \
             {program} simulate [OPTIONS] --hpa HPA.yaml --load LOAD.csv\n       \
             {program} simulate [OPTIONS] --from-cluster [-n NAMESPACE] HPA",
        ))
        .arg(
            Arg::new("scenario")
                .value_name("scenario")
                .help("Scenario file, or - for standard input, or with --from-cluster the name of the HPA"),
        )
        .arg(path("hpa", "Manifest with an HPA, instead of a scenario file; repeatable").action(ArgAction::Append))
        .arg(
            path("load", "CSV file of time and load, one per --hpa: total cores for cpu, otherwise units per second")
                .action(ArgAction::Append),
        )
        .arg(
            switch("from-cluster", "Read the HPA, the pods' requests and the current state from a cluster, with read-only requests"),
        )
        .arg(
            switch("print-scenario", "Print the scenario file instead of running it"),
        )
        .arg(
            switch("schema", "Print the JSON schema of scenario files and exit"),
        )
        .arg(
            option("set", "path=value", "Change a value of the HPA (spec...) or of the scenario; all --set flags form one variant, compared with the original")
                .action(ArgAction::Append)
                .value_parser(|text: &str| text.parse::<Setting>()),
        )
        .arg(
            option("sweep", "path=a,b,c", "Run one variant per value; several --sweep flags are combined")
                .action(ArgAction::Append)
                .value_parser(|text: &str| text.parse::<Sweep>()),
        )
        .arg(path("compare", "Run another scenario file alongside; repeatable").action(ArgAction::Append))
        .arg(
            option("seed", "number", "Random seed; default: the scenario's")
                .value_parser(value_parser!(u64)),
        )
        .arg(
            option("duration", "duration", "Duration of the simulation; default: the scenario's")
                .value_parser(positive_duration),
        )
        .arg(
            switch("decisions", "Print every notable decision"),
        )
        .arg(
            switch("ascii", "Draw the chart with ASCII characters only; default if the locale is not UTF-8"),
        )
        .arg(shared::output(&["text", "json", "yaml"]))
        .arg(color())
        .arg(output("report", "HTML page with charts and the explanation of every decision"))
        .arg(output("csv", "Samples"))
        .arg(output("json", "All results"));
    cluster::arguments(command)
}

/// Reads the options from the arguments.
pub fn options(matches: &ArgMatches) -> Result<SimulateOptions, CliError> {
    let paths =
        |name: &str| matches.get_many::<PathBuf>(name).into_iter().flatten().cloned().collect::<Vec<_>>();
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    let output = Output::from_matches(matches);
    let (hpas, loads, compare) = (paths("hpa"), paths("load"), paths("compare"));
    let source = source(matches, &hpas, &loads)?;
    let scenario = match &source {
        Source::File(path) => Some(path),
        Source::Schema | Source::Manifests(_) | Source::Cluster(..) => None,
    };
    if scenario.into_iter().chain(&hpas).chain(&compare).filter(|path| is_standard(path)).count() > 1 {
        return Err(CliError::Subcommand("standard input can be read only once".to_owned()));
    }
    if loads.iter().any(|path| is_standard(path)) {
        return Err(CliError::Subcommand("--load needs a file, not standard input".to_owned()));
    }
    Ok(SimulateOptions {
        output,
        source,
        compare,
        set: matches.get_many::<Setting>("set").into_iter().flatten().cloned().collect(),
        sweep: matches.get_many::<Sweep>("sweep").into_iter().flatten().cloned().collect(),
        seed: matches.get_one::<u64>("seed").copied(),
        duration: matches.get_one::<Duration>("duration").copied(),
        outputs: outputs(output, Outputs { report: path("report"), csv: path("csv"), json: path("json") })?,
        print_scenario: matches.get_flag("print-scenario"),
        decisions: matches.get_flag("decisions"),
        ascii: matches.get_flag("ascii"),
        color: Color::from_matches(matches),
    })
}

fn source(matches: &ArgMatches, hpas: &[PathBuf], loads: &[PathBuf]) -> Result<Source, CliError> {
    let wrong = |text: &str| CliError::Subcommand(text.to_owned());
    let name = matches.get_one::<String>("scenario").cloned();
    if matches.get_flag("schema") {
        return Ok(Source::Schema);
    }
    if matches.get_flag("from-cluster") {
        let name = name.ok_or_else(|| wrong("--from-cluster needs the name of an HPA"))?;
        if !hpas.is_empty() || !loads.is_empty() {
            return Err(wrong("--hpa and --load cannot be combined with --from-cluster"));
        }
        return Ok(Source::Cluster(Box::new(cluster::options(matches)), name));
    }
    match (name, hpas, loads) {
        (Some(name), [], []) => Ok(Source::File(name.into())),
        (Some(_), ..) => Err(wrong("a scenario file cannot be combined with --hpa and --load")),
        (None, [], []) => {
            Err(wrong("nothing to simulate: pass a scenario file, or --hpa with --load, or --from-cluster"))
        }
        (None, hpas, loads) if hpas.len() == loads.len() => {
            Ok(Source::Manifests(hpas.iter().cloned().zip(loads.iter().cloned()).collect()))
        }
        (None, ..) => Err(wrong("each --hpa needs one --load")),
    }
}

/// Returns whether a path means standard input or standard output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Checks that at most one result is written to standard output.
fn outputs(output: Output, outputs: Outputs) -> Result<Outputs, CliError> {
    let document = match output {
        Output::Text => None,
        Output::Json => Some("--output=json"),
        Output::Yaml => Some("--output=yaml"),
    };
    let all = [("--report", &outputs.report), ("--csv", &outputs.csv), ("--json", &outputs.json)];
    let to_stdout = |(name, path): &(&'static str, &Option<PathBuf>)| {
        path.as_deref().filter(|path| is_standard(path)).map(|_| *name)
    };
    let names: Vec<_> = document.into_iter().chain(all.iter().filter_map(to_stdout)).collect();
    if names.len() > 1 {
        let names = names.join(" and ");
        return Err(CliError::Subcommand(format!("only one of {names} can be written to standard output")));
    }
    Ok(outputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::options::parsed;

    fn read(words: &[&str]) -> Result<SimulateOptions, String> {
        parsed(command("concertina"), words, options)
    }

    #[test]
    fn scenario_is_read_from_a_file_manifests_or_a_cluster() {
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
    fn conflicting_arguments_are_refused() {
        for (words, expected) in [
            (&[][..], "nothing to simulate"),
            (&["--hpa=a.yaml"], "each --hpa needs one --load"),
            (&["a.yaml", "--load=a.csv"], "cannot be combined with --hpa and --load"),
            (&["--from-cluster"], "needs the name of an HPA"),
            (&["--from-cluster", "web", "--hpa=a.yaml"], "cannot be combined with --from-cluster"),
            (&["a.yaml", "--set", "spec.maxReplicas"], "expected PATH=VALUE"),
            (&["a.yaml", "--duration", "1d"], "--duration"),
            (
                &["a.yaml", "--report=-", "--csv=-"],
                "only one of --report and --csv can be written to standard output",
            ),
            (
                &["a.yaml", "-o", "json", "--csv=-"],
                "only one of --output=json and --csv can be written to standard output",
            ),
            (&["-", "--compare=-"], "standard input can be read only once"),
            (&["--hpa=-", "--load=-"], "--load needs a file"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn variants_and_results_are_collected() {
        let words = "a.yaml --set spec.maxReplicas=5 --set web:spec.minReplicas=2 --sweep seed=1,2 --compare b.yaml \
                     --seed 7 --duration 2h --report r.html --json - --color=never";
        let options = read(&words.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!((options.set.len(), options.sweep.len(), options.compare.len()), (2, 1, 1));
        assert_eq!((options.seed, options.duration), (Some(7), Some(Duration::from_hours(2))));
        assert_eq!(options.color, Color::Never);
        assert_eq!(options.outputs.json, Some("-".into()));
    }
}
