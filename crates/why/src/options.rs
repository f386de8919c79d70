//! The command line of `why`.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::findings::State;
use ::cluster::kubeconfig::ClusterOptions;
use autoscaling::duration::GoDuration;
use autoscaling::selector::Selector;
use flags::flag::Flag;
use flags::{CliError, DecisionFlags, FlagSet, decision};
use terminal::options::cluster::RecordSource;
use terminal::options::leader::{Leader, RECORD, leader, leaders, record};
use terminal::options::{
    Color, Logging, Output, cluster, color, logging, option, output, switch, token_file, utc, verbosity,
};

/// The options of `why`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyOptions {
    /// The name of the HPA. `None` selects every HPA of the namespace.
    pub name: Option<String>,
    /// `--selector`: the labels of the HPAs. `None` selects all.
    pub selector: Option<Selector>,
    /// `--all-namespaces`: select the HPAs of all namespaces.
    pub all_namespaces: bool,
    /// The connection to the cluster, with `--namespace`.
    pub cluster: ClusterOptions,
    /// `--watch`, with the interval from `--interval` or the controller's sync period.
    pub watch: Option<Interval>,
    /// `--output`: the format of the answer.
    pub output: Output,
    /// `--utc`: show times in UTC instead of local time.
    pub utc: bool,
    /// `--color`: the condition for colors.
    pub color: Color,
    /// `--from`: read a controller's record instead of the cluster.
    pub from: Option<RecordSource>,
    /// The Leases of controllers whose record is read in addition to the cluster, in the order of the search. They are
    /// the Lease of `--leader`, or the Leases of the default installations. Empty with `--record=off` and with
    /// `--from`.
    pub leaders: Vec<Leader>,
    /// The given flags of the controller.
    pub flags: DecisionFlags,
    /// `--state`: the states of the HPAs of a list to show. Empty shows all.
    pub states: Vec<State>,
    /// `-v`: the verbosity of logs. Level 1 also adds what the explanation assumes and remembers.
    pub logging: Logging,
}

/// The interval between two decisions of `--watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// The controller's sync period.
    Period,
    /// The interval that `--interval` sets.
    Of(Duration),
}

fn wrong(text: impl Into<String>) -> CliError {
    CliError::Subcommand(text.into())
}

const CONTROLLER: &str = "Flags of the controller, where they differ from the defaults";
/// Creates the command line of `why`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    let command = Command::new("why")
        .no_binary_name(true)
        .bin_name(format!("{program} why"))
        .about(
            "Explains the replica count of an HPA and its next decision: reads the HPA, its target's\n\
             scale, pods and metrics with your permissions, decides as the controller would now, and\n\
             explains every step. Nothing is written to the cluster.",
        )
        .after_help(format!(
            "Examples:\n\
             \x20 # Explain the HPA web of the current namespace\n\
             \x20 {program} why web\n\
             \x20 # Explain it in namespace shop, and follow its changes\n\
             \x20 {program} why -n shop hpa/web -w\n\
             \x20 # List every HPA of the cluster, one line each, HPAs with findings first\n\
             \x20 {program} why -A\n\
             \x20 # Only those with an error or a warning among their findings\n\
             \x20 {program} why -A --state=error,warning\n\
             \x20 # Follow all HPAs of one application\n\
             \x20 {program} why -l app=shop --watch\n\
             \x20 # Show the last decision of a Concertina controller, from its record\n\
             \x20 {program} why web -n shop --from http://127.0.0.1:10257\n\n\
             Exit code: 0 without findings, 3 with a warning or an error among the findings, 1 if no answer\n\
              is available, 2 for an invalid command line.",
        ));
    let command = cluster::arguments(own(command));
    let flag = |flag: &Flag| {
        Arg::new(flag.name)
            .long(flag.name)
            .value_name(flag.placeholder)
            .action(ArgAction::Append)
            .allow_hyphen_values(true)
            .help(flag.usage())
            .help_heading(CONTROLLER)
    };
    let all = FlagSet::controller();
    let named = |name| all.flags().find(|flag| flag.name == name);
    command.args(decision::NAMES.into_iter().filter_map(named).map(flag))
}

fn own(command: Command) -> Command {
    command
        .arg(Arg::new("name").value_name("NAME").help("Name of the HPA, as web or hpa/web; if omitted, every HPA of the namespace"))
        .arg(switch("all-namespaces", "List every HPA of the cluster").short('A').conflicts_with("name"))
        .arg(
            option("selector", "labels", "Explain only HPAs with these labels, as in kubectl: app=web,tier!=cache")
                .short('l')
                .value_parser(|text: &str| Selector::parse(text).map_err(|error| error.to_string()))
                .conflicts_with_all(["name", "from"]),
        )
        .arg(
            option("state", "states", "Show only the HPAs of a list in these states: error,warning,ok")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .value_parser(PossibleValuesParser::new(State::ALL.map(State::as_str)))
                .hide_possible_values(true)
                .conflicts_with("name"),
        )
        .arg(switch("watch", "Decide again every period and print changes").short('w'))
        .arg(
            option("interval", "duration", "Period of --watch; default: the controller's sync period")
                .allow_hyphen_values(true)
                .value_parser(interval)
                .requires("watch"),
        )
        .arg(output(&["text", "json", "yaml"]))
        .arg(utc())
        .arg(color())
        .arg(verbosity().help(
            "1 adds what the explanation assumes and remembers, and logs failures to standard error; 6 logs every request",
        ))
        .arg(record())
        .arg(leader().help_heading(RECORD))
        .arg(
            option("from", "URL", "Show the last decision of the record at this URL, such as https://127.0.0.1:10257, instead of reading the cluster")
                .help_heading(RECORD),
        )
        .arg(token_file().help_heading(RECORD))
}

/// Reads the options from the arguments.
pub fn options(matches: &ArgMatches) -> Result<WhyOptions, CliError> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let cluster = cluster::options(matches);
    let from = text("from").map(|url| cluster::record_source(matches, url, &cluster));
    let given = decision::NAMES.into_iter().flat_map(|name| {
        let values = matches.get_many::<String>(name).into_iter().flatten();
        values.map(move |value| (name, value.clone()))
    });
    let given: Vec<_> = given.collect();
    if let (Some(_), Some((name, _))) = (&from, given.first()) {
        return Err(wrong(format!(
            "--{name} cannot be used with --from: the record has the controller's flags"
        )));
    }
    let interval = matches.get_one::<Duration>("interval");
    Ok(WhyOptions {
        name: text("name").map(without_kind).transpose()?,
        selector: matches.get_one::<Selector>("selector").cloned(),
        all_namespaces: matches.get_flag("all-namespaces"),
        cluster,
        watch: matches
            .get_flag("watch")
            .then(|| interval.map_or(Interval::Period, |interval| Interval::Of(*interval))),
        output: Output::from_matches(matches),
        utc: matches.get_flag("utc"),
        color: Color::from_matches(matches),
        leaders: if from.is_none() { leaders(matches) } else { Vec::new() },
        from,
        flags: DecisionFlags::new(given)?,
        states: State::ALL
            .into_iter()
            .filter(|state| {
                matches.get_many::<String>("state").into_iter().flatten().any(|name| name == state.as_str())
            })
            .collect(),
        logging: logging(matches),
    })
}

/// Removes a prefix such as `hpa/` from the name of an HPA.
fn without_kind(name: &str) -> Result<String, CliError> {
    const KINDS: [&str; 4] = [
        "hpa",
        "horizontalpodautoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscalers.autoscaling",
    ];
    let (kind, name) = name.split_once('/').unwrap_or(("hpa", name));
    if !KINDS.iter().any(|name| kind.eq_ignore_ascii_case(name)) {
        return Err(wrong(format!("{kind}/{name} is not an HPA: pass its name, such as web or hpa/web")));
    }
    if name.is_empty() || name.contains('/') {
        return Err(wrong(format!("{name:?} is not the name of an HPA")));
    }
    Ok(name.to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<GoDuration>().map_err(|error| error.to_string())?;
    let enough = duration.unsigned().filter(|duration| *duration >= Duration::from_secs(1));
    enough.ok_or_else(|| "must be at least 1s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::options::parsed;

    fn read(words: &[&str]) -> Result<WhyOptions, String> {
        parsed(command("concertina"), words, options)
    }

    #[test]
    fn name_accepts_an_optional_kind() {
        for words in [&["web"][..], &["hpa/web"], &["horizontalpodautoscalers.autoscaling/web"], &["HPA/web"]]
        {
            assert_eq!(read(words).unwrap().name.as_deref(), Some("web"), "{words:?}");
        }
        assert_eq!(read(&[]).unwrap().name, None);
        assert!(read(&["deployment/web"]).unwrap_err().contains("deployment/web is not an HPA"));
        assert!(read(&["hpa/"]).unwrap_err().contains("not the name"));
        assert!(read(&["web", "-A"]).unwrap_err().contains("--all-namespaces"));
        assert!(read(&["web", "api"]).is_err());
    }

    #[test]
    fn output_color_and_zone_are_read() {
        let options = read(&["web", "-o", "yaml", "--color=never", "--utc", "-n", "shop"]).unwrap();
        assert_eq!((options.output, options.color, options.utc), (Output::Yaml, Color::Never, true));
        assert_eq!(options.cluster.namespace.as_deref(), Some("shop"));
        assert!(read(&["-o", "wide"]).unwrap_err().contains("wide"));
    }

    #[test]
    fn selector_excludes_a_name_and_a_record() {
        assert!(read(&["-l", "app=web,tier!=cache"]).unwrap().selector.is_some());
        assert!(read(&["--selector=app", "-A"]).unwrap().selector.is_some());
        assert_eq!(read(&[]).unwrap().selector, None);
        assert!(read(&["-l", "app in"]).unwrap_err().contains("--selector"));
        assert!(read(&["-l", "app=web", "web"]).unwrap_err().contains("cannot be used with"));
        assert!(read(&["-l", "app=web", "--from=http://a"]).unwrap_err().contains("cannot be used with"));
    }

    #[test]
    fn states_are_a_list() {
        assert_eq!(read(&["-A", "--state=warning,error"]).unwrap().states, [State::Error, State::Warning]);
        assert_eq!(read(&["--state=ok"]).unwrap().states, [State::Ok]);
        assert_eq!(read(&[]).unwrap().states, []);
        for wrong in [&["--state=bad"][..], &["web", "--state=ok"]] {
            assert!(read(wrong).unwrap_err().contains("--state"), "{wrong:?}");
        }
    }

    #[test]
    fn watch_runs_once_per_period_or_per_interval() {
        assert_eq!(read(&["-w"]).unwrap().watch, Some(Interval::Period));
        let often = Interval::Of(Duration::from_secs(5));
        assert_eq!(read(&["-w", "--interval=5s"]).unwrap().watch, Some(often));
        assert!(read(&["--interval=5s"]).unwrap_err().contains("--watch"));
        assert!(read(&["-w", "--interval=10ms"]).unwrap_err().contains("at least 1s"));
    }

    #[test]
    fn controller_flags_are_validated_by_the_controllers_rules() {
        let options =
            read(&["--horizontal-pod-autoscaler-tolerance", "0.2", "--feature-gates=HPAScaleToZero=false"]);
        assert_ne!(options.unwrap().flags, DecisionFlags::default());
        let error = read(&["--horizontal-pod-autoscaler-downscale-stabilization=5"]).unwrap_err();
        assert!(error.contains("missing unit in duration"), "{error}");
        let error = read(&["--from=http://a", "--emulated-version=1.36"]).unwrap_err();
        assert!(error.contains("--emulated-version cannot be used with --from"), "{error}");
    }

    #[test]
    fn from_reads_its_token_from_a_file_only() {
        let options = read(&["web", "--from=http://a", "--token-file=t", "--certificate-authority=ca"]);
        let from = options.unwrap().from.unwrap();
        assert_eq!(from.token_file, Some("t".into()));
        assert_eq!(from.certificate_authority, Some("ca".into()));
        assert!(!from.insecure_skip_tls_verify);
        let blind = read(&["web", "--from=https://a", "--insecure-skip-tls-verify"]).unwrap().from.unwrap();
        assert!(blind.insecure_skip_tls_verify);
        assert!(read(&["web", "--token-file=t"]).unwrap_err().contains("--from"));
    }

    #[test]
    fn leader_record_is_read_unless_record_is_off() {
        let leaders = |words: &[&str]| {
            let leaders = read(words).unwrap().leaders.into_iter();
            leaders.map(|leader| format!("{}/{}", leader.namespace, leader.lease)).collect::<Vec<_>>()
        };
        assert_eq!(leaders(&["web"]), ["concertina-system/concertina", "kube-system/concertina"]);
        assert_eq!(leaders(&["web", "--leader=scaling/canary"]), ["scaling/canary"]);
        assert!(leaders(&["web", "--record=off"]).is_empty());
        assert!(leaders(&["web", "--from=http://a"]).is_empty());
        for wrong in ["--leader=concertina", "--leader=a/b/c", "--leader=/b", "--record=on"] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn help_names_the_program_as_it_was_called() {
        let help = |program| parsed(command(program), &["--help"], options).unwrap_err();
        let text = help("concertina");
        assert!(text.contains("Usage: concertina why [OPTIONS] [NAME]"), "{text}");
        let text = help("kubectl concertina");
        assert!(text.contains("Usage: kubectl concertina why [OPTIONS] [NAME]"), "{text}");
        assert!(text.contains("\n  kubectl concertina why web\n"), "{text}");
    }
}
