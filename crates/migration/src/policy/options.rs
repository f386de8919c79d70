//! The command lines of `policy` and `sources`.

use std::path::PathBuf;

use clap::{ArgMatches, Command, value_parser};

use ::cluster::kubeconfig::ClusterOptions;
use flags::CliError;
use terminal::options::{
    self as shared, Color, Logging, Output, cluster, color, logging, option, output, switch, utc, verbosity,
};

/// The options of `policy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyOptions {
    /// Validate policies, and show which HPAs they match.
    Check(Box<CheckOptions>),
    /// Convert objects of other autoscalers.
    Import {
        /// `-f`: the files. `-` means standard input.
        files: Vec<PathBuf>,
    },
    /// `sources import`: convert a configuration of prometheus-adapter to a file of sources and policies.
    ImportSources {
        /// `-f`: the files. `-` means standard input.
        files: Vec<PathBuf>,
        /// `--sources`: the file for the sources. With `None`, the sources are printed before the policies.
        sources: Option<PathBuf>,
    },
    /// `sources check`: validate files of metric sources.
    CheckSources {
        /// The files. `-` means standard input.
        files: Vec<PathBuf>,
    },
}

/// The options of `policy check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOptions {
    /// The files. `-` means standard input.
    pub files: Vec<PathBuf>,
    /// `--offline`: validate only.
    pub offline: bool,
    /// The connection to the cluster, with `--namespace`.
    pub cluster: ClusterOptions,
    /// `--output`: the format of the answer.
    pub output: Output,
    /// `--utc`: show times in UTC instead of local time.
    pub utc: bool,
    /// `--color`: the condition for colors.
    pub color: Color,
    /// `-v`: the verbosity of logs.
    pub logging: Logging,
}

/// Creates the command line of `sources`. Help texts name `program`.
pub fn sources_command(program: &str) -> Command {
    Command::new("sources")
        .no_binary_name(true)
        .bin_name(format!("{program} sources"))
        .about("Checks the file of metric sources, and converts the configuration of prometheus-adapter to it.")
        .after_help(format!(
            "Examples:\n\
             \x20 # Before a restart, which an invalid file prevents\n\
             \x20 {program} sources check sources.yaml\n\
             \x20 helm template ./my-chart | {program} sources check -\n\
             \x20 # From prometheus-adapter\n\
             \x20 kubectl get configmap,deployment -n monitoring -o yaml > adapter.yaml\n\
             \x20 kubectl get hpa -A -o yaml > hpas.yaml\n\
             \x20 {program} sources import -f adapter.yaml -f hpas.yaml --sources sources.yaml > policies.yaml",
        ))
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands([sources_check(), sources_import()])
}

/// Returns the subcommand `sources check`.
fn sources_check() -> Command {
    Command::new("check")
        .about("Validates the file of metric sources as the controller does")
        .long_about(
            "Validates the file of --metric-sources with the parser of the controller, and names the invalid\n\
             field. Also reads a ConfigMap with the file, among other objects. No cluster is\n\
             read, and no source is contacted.",
        )
        .after_help(
            "Exit code: 0 if every file is valid, 3 if one is not, 1 if a file cannot be read or is no file of\n\
             sources, 2 for an invalid command line.",
        )
        .args(shared::files())
}

/// Returns the subcommand `sources import` with its flags.
pub(crate) fn sources_import() -> Command {
    Command::new("import")
        .about("Converts the configuration of prometheus-adapter to sources and scaling policies")
        .long_about(
            "Converts the rules of prometheus-adapter, as a file or in its ConfigMap, for the HPAs that use its\n\
             metrics. Prints the file of --metric-sources, whose server is that of the adapter's Deployment, and\n\
             ScalingPolicies, and to standard error what happens to each other field. Other objects are ignored.\n\
             No cluster is read or written.",
        )
        .after_help(
            "Exit code: 0 if every field is imported or stays in effect, 3 if a field is not imported or must be\n\
             added, 1 if a file cannot be read or has no configuration, 2 for an invalid command line.",
        )
        .args(shared::files())
        .arg(
            option("sources", "file", "File to write the sources to; default: standard output, before the policies")
                .value_parser(value_parser!(PathBuf)),
        )
}

/// Creates the command line of `policy`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    Command::new("policy")
        .no_binary_name(true)
        .bin_name(format!("{program} policy"))
        .about("Checks scaling policies, and converts objects of other autoscalers to scaling policies.")
        .after_help(format!(
            "Examples:\n\
             \x20 # Validate policies, and show which HPAs they match and their bounds now\n\
             \x20 {program} policy check policies.yaml\n\
             \x20 # Validate the policies of a chart without a cluster\n\
             \x20 helm template ./chart | {program} policy check --offline -\n\
             \x20 # Convert the ScaledObjects of KEDA\n\
             \x20 kubectl get scaledobjects -A -o yaml | {program} policy import -f - > policies.yaml\n\n\
             Exit code: 0 if every field has an effect or is imported, 3 if one is not, 1 if no answer is\n\
             available, 2 for an invalid command line.",
        ))
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(commands())
}

/// Returns the subcommands `check` and `import` with their flags.
pub(crate) fn commands() -> [Command; 2] {
    let check = Command::new("check")
        .about("Validates policies, and shows which HPAs they match")
        .long_about(
            "Validates ScalingPolicies, ClusterScalingPolicies, documents for the annotation\n\
             concertina.dev/policy, objects with this annotation, and files of --metric-sources. Other objects are\n\
             ignored. With a cluster, shows each HPA that a policy matches, with the mode, the bounds and the next\n\
             change of all its policies. Nothing is written to the cluster.",
        )
        .after_help(
            "Exit code: 0 if every field has an effect, 3 if a field has none, 1 if no answer is available,\n\
             2 for an invalid command line.",
        )
        .args(shared::files())
        .arg(switch("offline", "Validate only, without a cluster"))
        .arg(output(&["text", "json", "yaml"]))
        .arg(utc())
        .arg(color())
        .arg(verbosity());
    let import = Command::new("import")
        .about("Converts objects of other autoscalers to ScalingPolicies")
        .long_about(
            "Converts ScaledObjects of KEDA, and the configuration of prometheus-adapter, as a file or in its\n\
             ConfigMap, with the HPAs that use its metrics. Prints ScalingPolicies to standard output, and to\n\
             standard error what happens to each other field. Other objects are ignored. No cluster is read or\n\
             written.",
        )
        .after_help(
            "Exit code: 0 if every field is imported or stays in effect, 3 if a field is not imported, 1 if a\n\
             file cannot be read or has nothing to import, 2 for an invalid command line.",
        )
        .args(shared::files());
    [cluster::arguments(check), import]
}

/// Reads the options from the arguments.
pub fn sources_options(matches: &ArgMatches) -> Result<PolicyOptions, CliError> {
    match matches.subcommand() {
        Some(("check", matches)) => Ok(PolicyOptions::CheckSources { files: shared::given_files(matches)? }),
        Some((_, matches)) => Ok(PolicyOptions::ImportSources {
            files: shared::given_files(matches)?,
            sources: matches.get_one::<PathBuf>("sources").cloned(),
        }),
        None => Err(CliError::Subcommand("a subcommand of sources is missing".to_owned())),
    }
}

/// Reads the options from the arguments.
pub fn options(matches: &ArgMatches) -> Result<PolicyOptions, CliError> {
    match matches.subcommand() {
        Some(("check", matches)) => Ok(PolicyOptions::Check(Box::new(CheckOptions {
            files: shared::given_files(matches)?,
            offline: matches.get_flag("offline"),
            cluster: cluster::options(matches),
            output: Output::from_matches(matches),
            utc: matches.get_flag("utc"),
            color: Color::from_matches(matches),
            logging: logging(matches),
        }))),
        Some((_, matches)) => Ok(PolicyOptions::Import { files: shared::given_files(matches)? }),
        None => Err(CliError::Subcommand("a subcommand of policy is missing".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::options::parsed;

    fn read(words: &[&str]) -> Result<PolicyOptions, String> {
        parsed(command("concertina"), words, options)
    }

    #[test]
    fn subcommands_take_files_and_standard_input() {
        let files = |words: &[&str]| match read(words).unwrap() {
            PolicyOptions::Check(options) => (options.files, Some(options.offline)),
            PolicyOptions::Import { files }
            | PolicyOptions::ImportSources { files, .. }
            | PolicyOptions::CheckSources { files } => (files, None),
        };
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(files(&["check", "a.yaml"]), (paths(&["a.yaml"]), Some(false)));
        assert_eq!(files(&["check", "--offline", "a.yaml", "-"]), (paths(&["a.yaml", "-"]), Some(true)));
        assert_eq!(files(&["import", "-f", "a.yaml", "-f-"]), (paths(&["a.yaml", "-"]), None));
        assert_eq!(files(&["import", "--filename=a.yaml"]), (paths(&["a.yaml"]), None));
        assert_eq!(files(&["import", "a.yaml"]), (paths(&["a.yaml"]), None));
        assert_eq!(files(&["check", "-f", "a.yaml", "b.yaml"]), (paths(&["b.yaml", "a.yaml"]), Some(false)));
        for wrong in [&[][..], &["check"], &["import"], &["import", "-fa", "-n", "shop"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        for twice in [&["check", "-", "-"][..], &["import", "-f-", "-f-"], &["check", "-f-", "-"]] {
            assert_eq!(read(twice).unwrap_err(), "standard input can be read only once");
        }
    }

    #[test]
    fn sources_import_takes_files_and_an_output() {
        let read = |words: &[&str]| parsed(sources_command("concertina"), words, sources_options);
        let options = |sources: Option<&str>| PolicyOptions::ImportSources {
            files: vec!["a.yaml".into()],
            sources: sources.map(Into::into),
        };
        assert_eq!(read(&["import", "-f", "a.yaml"]), Ok(options(None)));
        assert_eq!(read(&["import", "-fa.yaml", "--sources=b.yaml"]), Ok(options(Some("b.yaml"))));
        let files = vec!["a.yaml".into(), "-".into()];
        assert_eq!(read(&["check", "a.yaml", "-"]), Ok(PolicyOptions::CheckSources { files }));
        for wrong in [&[][..], &["import"], &["check"], &["check", "-", "-"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn check_has_the_flags_of_other_answers() {
        let Ok(PolicyOptions::Check(options)) =
            read(&["check", "a", "-o", "yaml", "--utc", "-n", "shop", "--color=never", "-v1"])
        else {
            panic!("no options")
        };
        assert_eq!((options.output, options.utc, options.color), (Output::Yaml, true, Color::Never));
        assert_eq!((options.cluster.namespace.as_deref(), options.logging.verbosity), (Some("shop"), 1));
        let Ok(PolicyOptions::Check(options)) = read(&["check", "a"]) else { panic!("no options") };
        assert_eq!(options.output, Output::Text);
        assert!(read(&["import", "--help"]).unwrap_err().contains("concertina policy import"));
        assert!(read(&["--help"]).unwrap_err().contains("kubectl get scaledobjects"));
    }
}
