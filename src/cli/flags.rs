//! Command-line parsing by pflag's rules: arguments become typed values, which [`super::config`] interprets.
//!
//! - `--flag=value` and `--flag value` are equal. A boolean takes no second argument: `--flag`,
//!   `--flag=false`.
//! - `-v4`, `-v=4` and `-v 4` are equal. Several shorthands may share one dash.
//! - `_` equals `-` in a name.
//! - The last value of a scalar flag wins. The values of a list flag accumulate.
//! - `--` ends the flags. Every argument that is not a flag is a positional argument.
//!
//! clap does not parse the controller's command line. pflag accepts both separators in names and takes the
//! value of a boolean only after `=`. Scripts may compare error texts with kube-controller-manager's, which
//! are pflag's.

use std::collections::BTreeMap;

use autoscaling::go;

use super::values::{Kind, Value};

/// A flag: its syntax and its purpose.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// The name, without the leading dashes.
    pub name: &'static str,
    /// The one-letter shorthand.
    pub shorthand: Option<char>,
    /// The type of its value.
    pub kind: Kind,
    /// The default as pflag prints it. Empty for the zero value.
    pub default: &'static str,
    /// The effect of the flag in Concertina, if it has one.
    pub purpose: Purpose,
}

/// The effect of a flag in Concertina.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// The flag has an effect.
    Here {
        /// The heading under which help lists the flag.
        group: Group,
        /// The help text.
        usage: &'static str,
    },
    /// The flag has no effect. It is accepted so that a copied command line starts.
    Ignored {
        /// The reason, which continues the text `--flag has no effect: `.
        reason: &'static str,
    },
}

/// The headings of the help text, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Flags that affect scaling decisions.
    Autoscaling,
    /// Connection to the API server.
    Cluster,
    /// Requests to the metrics APIs.
    Metrics,
    /// Leader election.
    Election,
    /// The HTTPS server and its access control.
    Serving,
    /// Logs, records and version.
    Operation,
    /// The subjects of the `rbac` manifest.
    Rbac,
}

impl Group {
    /// All groups, in order.
    pub const ALL: [Self; 7] = [
        Self::Rbac,
        Self::Autoscaling,
        Self::Cluster,
        Self::Metrics,
        Self::Election,
        Self::Serving,
        Self::Operation,
    ];

    /// Returns the text of the heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Autoscaling => "Autoscaling",
            Self::Cluster => "Cluster",
            Self::Metrics => "Metrics APIs",
            Self::Election => "Leader election",
            Self::Serving => "Secure serving",
            Self::Operation => "Operation",
            Self::Rbac => "Roles",
        }
    }
}

/// An error of the command line, with pflag's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// The command line contains an unknown flag.
    #[error("unknown flag: --{0}")]
    Unknown(String),
    /// The command line contains an unknown shorthand.
    #[error("unknown shorthand flag: {} in -{word}", quote_letter(*.letter))]
    UnknownShorthand {
        /// The unknown shorthand.
        letter: char,
        /// The rest of the argument, from the unknown shorthand on.
        word: String,
    },
    /// The last argument is a flag that requires a value.
    #[error("flag needs an argument: {0}")]
    NeedsArgument(String),
    /// An argument consists of dashes without a name.
    #[error("bad flag syntax: {0}")]
    BadSyntax(String),
    /// The value has the wrong type or is not allowed.
    #[error("invalid argument {} for {} flag: {reason}", go::quote(.value), go::quote(.flag))]
    Invalid {
        /// The value.
        value: String,
        /// The flag with its dashes.
        flag: String,
        /// The reason.
        reason: String,
    },
    /// The command line contains positional arguments.
    #[error("\"concertina\" does not take any arguments, got [{}]", quote_all(.0))]
    Arguments(Vec<String>),
}

fn quote_letter(letter: char) -> String {
    format!("'{}'", go::quote(&letter.to_string()).trim_matches('"'))
}

fn quote_all(words: &[String]) -> String {
    words.iter().map(|word| go::quote(word)).collect::<Vec<_>>().join(" ")
}

impl Flag {
    /// Returns the flag as pflag prints it in errors.
    pub fn printed(&self) -> String {
        match self.shorthand {
            Some(letter) => format!("-{letter}, --{}", self.name),
            None => format!("--{}", self.name),
        }
    }

    /// Creates the error for a value that is not allowed.
    pub fn invalid(&self, value: &str, reason: impl Into<String>) -> FlagError {
        FlagError::Invalid { value: value.to_owned(), flag: self.printed(), reason: reason.into() }
    }
}

/// The given flags with their values, and the positional arguments.
#[derive(Debug, Default)]
pub struct Raw {
    /// The accumulated value and the last text of each given flag, by name.
    given: BTreeMap<&'static str, Given>,
    /// Positional arguments.
    pub arguments: Vec<String>,
}

#[derive(Debug)]
struct Given {
    value: Value,
    text: String,
}

impl Raw {
    /// Parses the arguments of a command line.
    ///
    /// # Errors
    /// Returns the error for the first invalid argument, with pflag's text.
    pub fn parse(words: impl IntoIterator<Item = String>, table: &Table) -> Result<Self, FlagError> {
        let mut raw = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                raw.arguments.extend(words.by_ref());
            } else if let Some(long) = word.strip_prefix("--") {
                raw.take_long(long, &word, &mut words, table)?;
            } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                raw.take_short(letters, &mut words, table)?;
            } else {
                raw.arguments.push(word);
            }
        }
        Ok(raw)
    }

    fn take_long(
        &mut self,
        long: &str,
        word: &str,
        words: &mut impl Iterator<Item = String>,
        table: &Table,
    ) -> Result<(), FlagError> {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(FlagError::BadSyntax(word.to_owned()));
        }
        let flag = table.named(name).ok_or_else(|| FlagError::Unknown(name.to_owned()))?;
        let value = value
            .or_else(|| flag.kind.bare().map(str::to_owned))
            .or_else(|| words.next())
            .ok_or_else(|| FlagError::NeedsArgument(format!("--{name}")))?;
        self.set(flag, value)
    }

    fn take_short(
        &mut self,
        letters: &str,
        words: &mut impl Iterator<Item = String>,
        table: &Table,
    ) -> Result<(), FlagError> {
        let mut rest = letters;
        while let Some(letter) = rest.chars().next() {
            let shorthands = rest;
            rest = rest.strip_prefix(letter).unwrap_or_default();
            let flag = table
                .lettered(letter)
                .ok_or_else(|| FlagError::UnknownShorthand { letter, word: shorthands.to_owned() })?;
            let value = if let Some(value) = rest.strip_prefix('=').filter(|value| !value.is_empty()) {
                rest = "";
                Some(value.to_owned())
            } else if let Some(bare) = flag.kind.bare() {
                Some(bare.to_owned())
            } else if rest.is_empty() {
                words.next()
            } else {
                Some(std::mem::take(&mut rest).to_owned())
            };
            let value = value.ok_or_else(|| {
                FlagError::NeedsArgument(format!("{} in -{shorthands}", quote_letter(letter)))
            })?;
            self.set(flag, value)?;
        }
        Ok(())
    }

    fn set(&mut self, flag: &'static Flag, text: String) -> Result<(), FlagError> {
        let value = flag.kind.parse(&text).map_err(|reason| flag.invalid(&text, reason))?;
        match self.given.get_mut(flag.name) {
            Some(given) => {
                given.value.accumulate(value);
                given.text = text;
            }
            None => {
                self.given.insert(flag.name, Given { value, text });
            }
        }
        Ok(())
    }

    /// Returns the value of a given flag.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.given.get(name).map(|given| &given.value)
    }

    /// Returns the last text given for a flag, as typed. Empty if the flag was not given.
    pub fn text(&self, name: &str) -> &str {
        self.given.get(name).map_or("", |given| &given.text)
    }

    /// Returns the names of the given flags, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.given.keys().copied()
    }
}

/// The flags that a command line may contain.
#[derive(Debug, Default)]
pub struct Table {
    flags: BTreeMap<&'static str, &'static Flag>,
}

impl Table {
    /// Creates a table from several lists of flags. Names must be distinct.
    pub fn new(lists: &[&'static [Flag]]) -> Self {
        Self { flags: lists.iter().copied().flatten().map(|flag| (flag.name, flag)).collect() }
    }

    /// Finds a flag by its name, in which `_` equals `-`.
    pub fn named(&self, name: &str) -> Option<&'static Flag> {
        match self.flags.get(name) {
            Some(flag) => Some(flag),
            None => self.flags.get(name.replace('_', "-").as_str()).copied(),
        }
    }

    fn lettered(&self, letter: char) -> Option<&'static Flag> {
        self.flags.values().find(|flag| flag.shorthand == Some(letter)).copied()
    }

    /// Returns all flags, sorted by name.
    pub fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.flags.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Purpose = Purpose::Here { group: Group::Operation, usage: "" };

    static FLAGS: &[Flag] = &[
        Flag { name: "v", shorthand: Some('v'), kind: Kind::Level, default: "", purpose: HERE },
        Flag { name: "help", shorthand: Some('h'), kind: Kind::Bool, default: "false", purpose: HERE },
        Flag { name: "dry-run", shorthand: None, kind: Kind::Bool, default: "false", purpose: HERE },
        Flag { name: "list", shorthand: None, kind: Kind::Strings, default: "", purpose: HERE },
        Flag {
            name: "horizontal-tolerance",
            shorthand: None,
            kind: Kind::Float64,
            default: "0.1",
            purpose: HERE,
        },
    ];

    fn parse(words: &[&str]) -> Result<Raw, String> {
        Raw::parse(words.iter().map(ToString::to_string), &Table::new(&[FLAGS]))
            .map_err(|error| error.to_string())
    }

    fn value(words: &[&str], name: &str) -> Value {
        parse(words).unwrap().value(name).unwrap().clone()
    }

    #[test]
    fn value_follows_an_equals_sign_or_is_the_next_argument() {
        for words in [
            &["--horizontal-tolerance=0.5"][..],
            &["--horizontal-tolerance", "0.5"],
            &["--horizontal_tolerance=0.5"],
        ] {
            assert_eq!(value(words, "horizontal-tolerance"), Value::Float(0.5));
        }
        assert_eq!(
            parse(&["--horizontal-tolerance"]).unwrap_err(),
            "flag needs an argument: --horizontal-tolerance"
        );
    }

    #[test]
    fn boolean_takes_a_value_only_after_an_equals_sign() {
        assert_eq!(value(&["--dry-run"], "dry-run"), Value::Bool(true));
        assert_eq!(value(&["--dry-run=false"], "dry-run"), Value::Bool(false));
        assert_eq!(value(&["--dry_run=T"], "dry-run"), Value::Bool(true));
        let raw = parse(&["--dry-run", "false"]).unwrap();
        assert_eq!(raw.value("dry-run"), Some(&Value::Bool(true)));
        assert_eq!(raw.arguments, ["false"]);
    }

    #[test]
    fn shorthand_accepts_three_forms_of_value() {
        for words in
            [&["-v4"][..], &["-v=4"], &["-v", "4"], &["--v=4"], &["--v", "4"], &["-hv4"], &["-hv", "4"]]
        {
            assert_eq!(value(words, "v"), Value::Int(4), "{words:?}");
        }
        assert_eq!(parse(&["-v"]).unwrap_err(), "flag needs an argument: 'v' in -v");
        assert_eq!(parse(&["-hx"]).unwrap_err(), "unknown shorthand flag: 'x' in -x");
    }

    #[test]
    fn last_scalar_wins_and_lists_accumulate() {
        assert_eq!(value(&["-v1", "--v=2"], "v"), Value::Int(2));
        let list = value(&["--list=a,b", "--list", "c"], "list");
        assert_eq!(list, Value::List(["a", "b", "c"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn double_dash_ends_the_flags() {
        let raw = parse(&["-", "--", "--dry-run"]).unwrap();
        assert_eq!(raw.arguments, ["-", "--dry-run"]);
        assert_eq!(raw.value("dry-run"), None);
    }

    #[test]
    fn errors_have_pflags_text() {
        assert_eq!(parse(&["--nope=1"]).unwrap_err(), "unknown flag: --nope");
        assert_eq!(parse(&["---v"]).unwrap_err(), "bad flag syntax: ---v");
        assert_eq!(parse(&["--=v"]).unwrap_err(), "bad flag syntax: --=v");
        assert_eq!(
            parse(&["--horizontal-tolerance=x"]).unwrap_err(),
            "invalid argument \"x\" for \"--horizontal-tolerance\" flag: strconv.ParseFloat: parsing \"x\": invalid syntax"
        );
        assert_eq!(
            parse(&["-vx"]).unwrap_err(),
            "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"x\": invalid syntax"
        );
    }
}
