//! All flags of the controller as arguments of one command.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Command};

use crate::config::{Config, Draft};
use crate::flag::{Flag, HEADINGS, Purpose};
use crate::{FlagError, kcm, own};

/// A set of flags, by name.
#[derive(Debug)]
pub struct FlagSet(BTreeMap<&'static str, Flag>);

/// The identifier of positional arguments. No flag has such a name.
const ARGUMENTS: &str = "<arguments>";

impl FlagSet {
    /// Creates the set of all flags of the controller.
    pub fn controller() -> Self {
        let flags = kcm::flags().into_iter().chain(kcm::removed_flags()).chain(own::flags());
        Self(flags.map(|flag| (flag.name, flag)).collect())
    }

    /// Returns all flags, sorted by name.
    pub fn flags(&self) -> impl Iterator<Item = &Flag> {
        self.0.values()
    }

    /// Returns the flags that have an effect, sorted by name.
    pub fn effective(&self) -> impl Iterator<Item = &Flag> {
        self.flags().filter(|flag| matches!(flag.purpose, Purpose::Effective { .. }))
    }

    /// Adds all flags of this set to a command, in the order of their headings.
    pub fn add_to(&self, command: Command) -> Command {
        let rank = |flag: &Flag| match flag.purpose {
            Purpose::Effective { heading, .. } => HEADINGS.iter().position(|other| *other == heading),
            Purpose::Ignored { .. } => None,
        };
        let mut flags: Vec<_> = self.flags().collect();
        flags.sort_by_key(|flag| rank(flag));
        let ignored = flags.iter().filter(|flag| rank(flag).is_none()).count();
        command
            .no_binary_name(true)
            .disable_help_flag(true)
            .args_override_self(true)
            .next_line_help(true)
            .args(flags.into_iter().map(|flag| flag.arg.clone()))
            .arg(Arg::new(ARGUMENTS).num_args(0..).hide(true))
            .after_help(format!(
                "The other {ignored} flags of kube-controller-manager are accepted and ignored, so that its command line\n\
                 can be copied. Each that is not set to its default is logged as a warning at startup, with the\n\
                 reason."
            ))
    }

    /// Parses the arguments of a command from [`FlagSet::add_to`].
    ///
    /// # Errors
    /// Returns the first unknown flag, the first flag with a value of the wrong type, or the positional arguments.
    pub fn parse(
        &self,
        command: Command,
        words: impl IntoIterator<Item = String>,
    ) -> Result<ArgMatches, FlagError> {
        let words: Vec<_> = words.into_iter().map(|word| dashed(&command, word)).collect();
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
        let matches = command.try_get_matches_from(words)?;
        let arguments: Vec<String> = matches.get_many(ARGUMENTS).into_iter().flatten().cloned().collect();
        // Empty variables in scripts become empty arguments, which kube-controller-manager accepts, too.
        if arguments.iter().all(String::is_empty) {
            Ok(matches)
        } else {
            Err(FlagError::Arguments { command: name, words: arguments })
        }
    }

    /// Resolves and validates the parsed flags.
    ///
    /// # Errors
    /// Returns the first flag with a value that is not allowed.
    pub fn config(&self, matches: &ArgMatches) -> Result<Config, FlagError> {
        let mut draft = Draft::default();
        for flag in self.flags() {
            (flag.apply)(&mut draft, matches)?;
        }
        draft.finish(matches)
    }

    /// Parses and resolves a command line of the controller.
    ///
    /// # Errors
    /// Returns the first invalid flag.
    pub fn resolve(&self, words: impl IntoIterator<Item = String>) -> Result<Config, FlagError> {
        self.config(&self.parse(self.add_to(Command::new("concertina")), words)?)
    }
}

impl Config {
    /// Returns the value of every flag by name, from the command line or by default.
    pub fn flag_values(&self) -> BTreeMap<String, String> {
        let all = kcm::flags().into_iter().chain(own::flags());
        let mut flags: BTreeMap<_, _> =
            all.map(|flag| (flag.name.to_owned(), flag.default.to_owned())).collect();
        flags.extend(self.serving.given.iter().cloned());
        flags
    }
}

/// Replaces `_` by `-` in the name of a known flag.
fn dashed(command: &Command, word: String) -> String {
    let Some(long) = word.strip_prefix("--") else { return word };
    let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
    let name = name.replace('_', "-");
    if command.get_arguments().all(|arg| arg.get_long() != Some(&name)) {
        return word;
    }
    match value {
        Some(value) => format!("--{name}={value}"),
        None => format!("--{name}"),
    }
}

#[cfg(test)]
mod page;
#[cfg(test)]
mod pflag;

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(words: &[&str]) -> Result<ArgMatches, FlagError> {
        let flags = FlagSet::controller();
        flags.parse(flags.add_to(Command::new("concertina")), words.iter().map(ToString::to_string))
    }

    fn value<T: Clone + Send + Sync + 'static>(words: &[&str], name: &str) -> Option<T> {
        matches(words).unwrap().get_one::<T>(name).cloned()
    }

    fn error(words: &[&str]) -> String {
        matches(words).unwrap_err().to_string()
    }

    #[test]
    fn value_follows_an_equals_sign_or_is_the_next_argument() {
        for words in [
            &["--horizontal-pod-autoscaler-tolerance=0.5"][..],
            &["--horizontal-pod-autoscaler-tolerance", "0.5"],
            &["--horizontal_pod_autoscaler_tolerance=0.5"],
            &["--horizontal-pod_autoscaler_tolerance", "0.5"],
        ] {
            assert_eq!(value(words, "horizontal-pod-autoscaler-tolerance"), Some(0.5));
        }
        assert!(error(&["--kube-api-burst"]).contains("--kube-api-burst"));
    }

    #[test]
    fn boolean_takes_a_value_only_after_an_equals_sign() {
        assert_eq!(value(&["--dry-run"], "dry-run"), Some(true));
        assert_eq!(value(&["--dry-run=false"], "dry-run"), Some(false));
        assert_eq!(value(&["--dry_run=T"], "dry-run"), Some(true));
        assert_eq!(value(&["-h=0"], "help"), Some(false));
        assert_eq!(value::<bool>(&[], "dry-run"), None);
        assert!(error(&["--dry-run", "false"]).contains("[\"false\"]"));
        assert!(error(&["--dry-run="]).contains("--dry-run"));
    }

    #[test]
    fn shorthand_accepts_three_forms_of_value() {
        for words in
            [&["-v4"][..], &["-v=4"], &["-v", "4"], &["--v=4"], &["--v", "4"], &["-hv4"], &["-hv", "4"]]
        {
            assert_eq!(value(words, "v"), Some(4_u32), "{words:?}");
        }
        assert!(error(&["-v"]).contains("--v"));
        assert_eq!(error(&["-hx"]), "unknown flag: -x");
    }

    #[test]
    fn value_may_begin_with_a_dash() {
        assert_eq!(value(&["--kube-api-qps", "-1"], "kube-api-qps"), Some(-1.0));
        assert_eq!(error(&["--v", "-1"]), error(&["--v=-1"]));
        assert!(error(&["-v", "-1"]).starts_with("invalid argument \"-1\" for \"--v\" flag: "));
        for text in ["--dry-run", "--", "-h"] {
            assert_eq!(value(&["--kubeconfig", text], "kubeconfig"), Some(text.to_owned()));
        }
    }

    #[test]
    fn last_scalar_wins_and_lists_accumulate() {
        assert_eq!(value(&["-v1", "--v=2"], "v"), Some(2_u32));
        assert_eq!(value(&["--dry-run", "--dry-run=false"], "dry-run"), Some(false));
        let config = FlagSet::controller()
            .resolve(["--watch-namespaces=a,b", "--watch-namespaces", "c"].map(str::to_owned))
            .unwrap();
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(config.controller.watch_namespaces, Some(names.into()));
        assert_eq!(config.serving.given, [("watch-namespaces".to_owned(), "[a,b,c]".to_owned())]);
    }

    #[test]
    fn double_dash_ends_the_flags() {
        assert!(error(&["-", "--", "--dry-run"]).ends_with("got [\"-\" \"--dry-run\"]"));
    }

    #[test]
    fn error_names_the_flag_and_a_similar_one() {
        assert_eq!(error(&["--nope=1"]), "unknown flag: --nope");
        assert_eq!(
            error(&["--kube-api-qsp=1"]),
            "unknown flag: --kube-api-qsp; did you mean --kube-api-qps?"
        );
        assert_eq!(error(&["---v"]), "unknown flag: ---v");
        assert_eq!(
            error(&["--kube-api-qps=x"]),
            "invalid argument \"x\" for \"--kube-api-qps\" flag: strconv.ParseFloat: parsing \"x\": invalid syntax"
        );
        assert_eq!(
            error(&["-vx"]),
            "invalid argument \"x\" for \"--v\" flag: strconv.ParseUint: parsing \"x\": invalid syntax"
        );
    }
}
