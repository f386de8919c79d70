//! The command line of `check`.

use clap::{ArgMatches, Command};

use ::cluster::kubeconfig::ClusterOptions;
use terminal::options::leader::{self, Leader};
use terminal::options::{Color, Logging, Output, cluster, color, logging, output, switch, verbosity};

/// The options of `check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOptions {
    /// `--pre`: check what an installation needs, instead of the installations.
    pub pre: bool,
    /// `--leader`: a Lease whose holder gets the user's credentials without a proof.
    pub leader: Option<Leader>,
    /// The connection to the cluster. `--namespace` is the namespace of the installation.
    pub cluster: ClusterOptions,
    /// `--output`: the format of the answer.
    pub output: Output,
    /// `--color`: the condition for colors.
    pub color: Color,
    /// `-v`: the verbosity of logs.
    pub logging: Logging,
}

/// Creates the command line of `check`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    let command = Command::new("check")
        .no_binary_name(true)
        .bin_name(format!("{program} check"))
        .about("Checks the installations of Concertina in a cluster, or whether a cluster is ready for one.")
        .long_about(
            "Checks each installation of Concertina: the Deployment and its version, the permissions of its\n\
             account, metrics APIs and sources, the leader and whether it acts, the guard, clocks and alerts.\n\
             √ is as intended, ‼ needs a look, and × is a problem. Nothing is written to the cluster. The\n\
             leader's state is read by port-forward, if its pod is proven to be a controller.",
        )
        .after_help(format!(
            "Examples:\n\
             \x20 # Before an installation\n\
             \x20 {program} check --pre\n\
             \x20 # After it\n\
             \x20 {program} check\n\n\
             Exit code: 0 without a problem, 3 with a problem (×), 1 if no answer is available, 2 for an\n\
             invalid command line.",
        ))
        .arg(switch("pre", "Check what an installation needs: version, permissions, no other installation"))
        .arg(leader::leader().help("Lease of a controller that you trust, if its pod cannot be proven to be one"))
        .arg(output(&["text", "json", "yaml"]))
        .arg(color())
        .arg(verbosity());
    let namespace = "Namespace of the installation; default: all, and concertina-system with --pre";
    cluster::arguments(command).mut_arg("namespace", |arg| arg.help(namespace))
}

/// Reads the options from the arguments.
pub fn options(matches: &ArgMatches) -> CheckOptions {
    CheckOptions {
        pre: matches.get_flag("pre"),
        leader: matches.get_one::<Leader>("leader").cloned(),
        cluster: cluster::options(matches),
        output: Output::from_matches(matches),
        color: Color::from_matches(matches),
        logging: logging(matches),
    }
}
