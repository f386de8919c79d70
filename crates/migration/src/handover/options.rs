//! The command lines of `handover`.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};

use ::cluster::kubeconfig::ClusterOptions;
use coexist::handover::objects::BUILT_IN_USERS;
use coexist::handover::scope::ControllerName;
use flags::CliError;
use terminal::options::cluster::RecordSource;
use terminal::options::leader::{self, Leader};
use terminal::options::{
    Color, Logging, Output, cluster, color, logging, option, output, positive_duration, switch, token_file,
    utc, verbosity,
};

/// The options of `handover`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoverOptions {
    /// The subcommand.
    pub action: Action,
    /// The connection to the cluster, with `--namespace`.
    pub cluster: ClusterOptions,
    /// `--controller-name`. `None` selects the name on the leader's page, or else the default.
    pub controller_name: Option<ControllerName>,
    /// `--leader`: the leader's Lease. `None` searches the Leases of the default installations.
    pub leader: Option<Leader>,
    /// `--from`: read the page of the controller at this address.
    pub from: Option<RecordSource>,
    /// `--output`: the format of the answer.
    pub output: Output,
    /// `--utc`: show times in UTC instead of local time.
    pub utc: bool,
    /// `--color`: the condition for colors.
    pub color: Color,
    /// `-v`: the verbosity of logs.
    pub logging: Logging,
}

/// A subcommand of `handover`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Choose a guard and print its manifests.
    Plan {
        /// `--guard`. `None` selects the guard that fits the cluster.
        guard: Option<Guard>,
    },
    /// Try the writes of the built-in controller as dry runs.
    Check {
        /// `--built-in-users`: the users that the check impersonates.
        built_in_users: Vec<String>,
    },
    /// Label a namespace or an HPA, and wait until the instance is in charge of each HPA.
    Enable(Change),
    /// Remove the label or set it to `built-in`, and wait until the built-in controller has written each HPA.
    Disable(Change),
    /// List the HPAs in scope.
    Status,
}

/// The target and the options of `enable` or `disable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The namespace.
    pub namespace: String,
    /// The HPA. `None` selects the namespace with all its HPAs.
    pub name: Option<String>,
    /// `--dry-run`: send the change as a dry run, and do not wait.
    pub dry_run: bool,
    /// `--timeout`: the maximum time to wait. Zero means no wait.
    pub timeout: Duration,
}

/// The mechanism that keeps the built-in controller from writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// A ValidatingWebhookConfiguration. Every replica serves the webhook.
    Webhook,
    /// ValidatingAdmissionPolicies.
    Policy,
    /// A ClusterRoleBinding without subjects.
    Rbac,
    /// kube-controller-manager without its HPA controller.
    Flag,
}

impl Guard {
    /// Returns the value of `--guard`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Policy => "policy",
            Self::Rbac => "rbac",
            Self::Flag => "flag",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Webhook, Self::Policy, Self::Rbac, Self::Flag].into_iter().find(|guard| guard.as_str() == text)
    }
}

const EXIT_CODES: &str = "Exit code: 0 if all is as intended, 3 if an HPA or the guard needs attention, 1 if no answer is\n\
                          available, 2 for an invalid command line.";

/// Creates the command line of `handover`. Help texts name `program`.
pub fn command(program: &str) -> Command {
    Command::new("handover")
        .no_binary_name(true)
        .bin_name(format!("{program} handover"))
        .about(
            "Hands HPAs over from the built-in HPA controller to Concertina and back, on clusters where the\n\
             built-in controller keeps running.",
        )
        .after_help(format!(
            "Examples:\n\
             \x20 # Print the guard that fits this cluster\n\
             \x20 {program} handover plan\n\
             \x20 # Hand over the HPA web of namespace shop, then the whole namespace\n\
             \x20 {program} handover enable shop/web\n\
             \x20 {program} handover enable shop\n\
             \x20 # Try the writes of the built-in controller as dry runs\n\
             \x20 {program} handover check\n\
             \x20 # Back to the built-in controller\n\
             \x20 {program} handover disable shop\n\n{EXIT_CODES}",
        ))
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(commands().map(shared))
}

/// Returns the subcommands without the flags that [`shared`] adds.
pub(crate) fn commands() -> [Command; 5] {
    let target = || {
        Arg::new("target")
            .value_name("NAMESPACE[/NAME]")
            .required(true)
            .value_parser(target)
            .help("Namespace with all its HPAs, or one HPA")
    };
    let change = |command: Command| {
        command.arg(target()).arg(switch("dry-run", "Send the change as a dry run, and do not wait")).arg(
            option("timeout", "duration", "Maximum time to wait; 0s does not wait")
                .value_parser(timeout)
                .allow_hyphen_values(true)
                .default_value("2m"),
        )
    };
    let plan = Command::new("plan")
        .about("Selects the guard that fits the cluster, and prints its manifests")
        .long_about(
            "Shows which identity writes the status of HPAs in this cluster, selects the guard that fits, and\n\
             prints its manifests. Nothing is written to the cluster.",
        )
        .arg(
            option("guard", "kind", "Guard to print; default: the guard that fits the cluster")
                .value_parser(PossibleValuesParser::new(["webhook", "policy", "rbac", "flag"])),
        );
    let check = Command::new("check")
        .about("Tries the writes of the built-in controller as dry runs")
        .long_about(
            "Tries the scale and status writes of the built-in controller, by impersonation and as dry runs:\n\
             they must be refused for every HPA in scope, and pass for an HPA out of scope. Nothing is stored.",
        )
        .arg(
            option("built-in-users", "users", "Comma-separated users of the built-in controller")
                .value_delimiter(',')
                .default_values(BUILT_IN_USERS),
        );
    let enable = change(Command::new("enable").about("Labels a namespace or an HPA").long_about(
        "Labels a namespace or an HPA, and waits until Concertina is in charge of each HPA or states the\n\
         reason why not.",
    ));
    let disable = change(Command::new("disable").about("Removes the label").long_about(
        "Removes the label from a namespace and its HPAs, or from one HPA, and waits until the built-in\n\
         controller has written each HPA. An HPA in a labelled namespace gets the label value built-in.",
    ));
    let status = Command::new("status")
        .about("Lists the HPAs in scope")
        .long_about("Lists the HPAs in scope. Nothing is written to the cluster.");
    [plan, check, enable, disable, status]
}

/// Adds the flags that all subcommands share.
pub(crate) fn shared(command: Command) -> Command {
    let command = command
        .arg(
            option(
                "controller-name",
                "name",
                "Name of the instance; default: the name on the leader's page, or concertina",
            )
            .value_parser(|text: &str| ControllerName::new(text).map_err(|error| error.to_string())),
        )
        .arg(leader::leader())
        .arg(option(
            "from",
            "URL",
            "Read the state from the controller at this URL, instead of by port-forward to the leader",
        ))
        .arg(token_file())
        .arg(output(&["text", "json", "yaml"]))
        .arg(utc())
        .arg(color())
        .arg(verbosity())
        .after_help(EXIT_CODES);
    cluster::arguments(command)
}

/// Reads the options from the arguments.
pub fn options(matches: &ArgMatches) -> Result<HandoverOptions, CliError> {
    let Some((name, matches)) = matches.subcommand() else {
        return Err(CliError::Subcommand("a subcommand of handover is missing".to_owned()));
    };
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let change = || {
        let (namespace, name) =
            matches.get_one::<(String, Option<String>)>("target").cloned().unwrap_or_default();
        Change {
            namespace,
            name,
            dry_run: matches.get_flag("dry-run"),
            timeout: matches.get_one::<Duration>("timeout").copied().unwrap_or_default(),
        }
    };
    let action = match name {
        "plan" => Action::Plan { guard: text("guard").and_then(Guard::parse) },
        "check" => Action::Check {
            built_in_users: matches
                .get_many::<String>("built-in-users")
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
        },
        "enable" => Action::Enable(change()),
        "disable" => Action::Disable(change()),
        _ => Action::Status,
    };
    let cluster = cluster::options(matches);
    if let (Action::Enable(change) | Action::Disable(change), Some(namespace)) = (&action, &cluster.namespace)
        && change.namespace != *namespace
    {
        let text =
            format!("--namespace={namespace} contradicts {}: pass the namespace once", change.namespace);
        return Err(CliError::Subcommand(text));
    }
    Ok(HandoverOptions {
        action,
        controller_name: matches.get_one::<ControllerName>("controller-name").cloned(),
        leader: matches.get_one::<Leader>("leader").cloned(),
        from: text("from").map(|url| cluster::record_source(matches, url, &cluster)),
        output: Output::from_matches(matches),
        utc: matches.get_flag("utc"),
        color: Color::from_matches(matches),
        logging: logging(matches),
        cluster,
    })
}

/// Parses `NAMESPACE` or `NAMESPACE/NAME`.
fn target(text: &str) -> Result<(String, Option<String>), String> {
    let is_name = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !name.is_empty() && name.len() <= 253 && name.bytes().all(allowed)
    };
    match text.split_once('/') {
        None if is_name(text) => Ok((text.to_owned(), None)),
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok((namespace.to_owned(), Some(name.to_owned())))
        }
        _ => Err("must be NAMESPACE or NAMESPACE/NAME of an HPA, such as shop or shop/web".to_owned()),
    }
}

/// Parses a duration of at least 0.
fn timeout(text: &str) -> Result<Duration, String> {
    if text == "0" || text == "0s" {
        return Ok(Duration::ZERO);
    }
    positive_duration(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terminal::options::parsed;

    fn read(words: &[&str]) -> Result<HandoverOptions, String> {
        parsed(command("concertina"), words, options)
    }

    #[test]
    fn target_is_a_namespace_or_an_hpa() {
        let change = |words: &[&str]| match read(words).unwrap().action {
            Action::Enable(change) | Action::Disable(change) => change,
            other => panic!("{other:?}"),
        };
        let whole = change(&["enable", "shop", "--timeout=0"]);
        assert_eq!((whole.namespace.as_str(), whole.name, whole.timeout), ("shop", None, Duration::ZERO));
        let one = change(&["disable", "shop/web", "--dry-run"]);
        assert_eq!(
            (one.name.as_deref(), one.dry_run, one.timeout),
            (Some("web"), true, Duration::from_mins(2))
        );
        for wrong in [&["enable"][..], &["enable", "shop/"], &["enable", "a/b/c"], &["enable", "Shop"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        assert!(read(&["enable", "shop", "-n", "other"]).unwrap_err().contains("--namespace=other"));
        assert!(read(&["enable", "shop", "--timeout=-1s"]).unwrap_err().contains("above zero"));
    }

    #[test]
    fn subcommands_have_their_own_flags() {
        let Action::Check { built_in_users } = read(&["check"]).unwrap().action else { panic!("no check") };
        assert_eq!(built_in_users, BUILT_IN_USERS);
        let Action::Check { built_in_users } = read(&["check", "--built-in-users=a,b"]).unwrap().action
        else {
            panic!("no check")
        };
        assert_eq!(built_in_users, ["a", "b"]);
        assert_eq!(read(&["plan"]).unwrap().action, Action::Plan { guard: None });
        let plan = read(&["plan", "--guard=policy"]).unwrap();
        assert_eq!(plan.action, Action::Plan { guard: Some(Guard::Policy) });
        let status = read(&["status", "-o", "yaml", "--controller-name=blue", "--leader=a/b"]).unwrap();
        assert_eq!((status.action, status.output), (Action::Status, Output::Yaml));
        assert_eq!(status.controller_name.unwrap().as_str(), "blue");
        assert!(read(&["status", "--controller-name=built-in"]).unwrap_err().contains("built-in"));
        assert!(read(&["status", "--guard=policy"]).is_err());
        assert_eq!(
            read(&[]).unwrap_err(),
            "a command is missing for \"concertina handover\": plan, check, enable, disable, status"
        );
        assert!(read(&["enable", "--help"]).unwrap_err().contains("concertina handover enable"));
    }
}
