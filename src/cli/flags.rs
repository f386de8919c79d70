//! Command lines by pflag's rules: what the user typed, checked for type, not yet understood.
//!
//! - `--flag=value`, `--flag value`; a boolean takes no second word: `--flag`, `--flag=false`;
//! - `-v4`, `-v=4`, `-v 4`; several shorthands may share one dash;
//! - `_` stands for `-` in a name; of a scalar flag the last value wins, of a list all are kept;
//! - `--` ends the flags; whatever is not a flag is an argument.
//!
//! This is not clap's job: it knows neither names with either separator nor a boolean that takes a value only behind
//! `=`, and the texts of errors, which scripts and people compare with kube-controller-manager's, are pflag's.

use std::collections::BTreeMap;

use autoscaling::go;

use super::values::{Kind, Value};

/// A flag: how it is read, and what it is for.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// Its one letter, if it has one.
    pub shorthand: Option<char>,
    /// The type of its value.
    pub kind: Kind,
    /// Its default as pflag prints it; empty for the zero value.
    pub default: &'static str,
    /// What it is for.
    pub purpose: Purpose,
}

/// Whether a flag does anything here.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// It does.
    Here {
        /// Under which heading help lists it.
        group: Group,
        /// What help says about it.
        usage: &'static str,
    },
    /// It is accepted so that a copied command line starts, and has no effect.
    Ignored {
        /// Why; continues `--flag has no effect: `.
        reason: &'static str,
    },
}

/// The headings of the help text, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// What decides a replica count.
    Autoscaling,
    /// The way to the API server.
    Cluster,
    /// The way to the metrics APIs.
    Metrics,
    /// Which replica acts.
    Election,
    /// What is served, and to whom.
    Serving,
    /// Logs, health, metrics of our own.
    Operation,
    /// Whom a manifest of roles is for.
    Rbac,
}

impl Group {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::Rbac,
        Self::Autoscaling,
        Self::Cluster,
        Self::Metrics,
        Self::Election,
        Self::Serving,
        Self::Operation,
    ];

    /// The heading.
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

/// Why a command line cannot be read, in the words of pflag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No flag has this name.
    #[error("unknown flag: --{0}")]
    Unknown(String),
    /// No flag has this letter.
    #[error("unknown shorthand flag: {} in -{word}", quote_letter(*.letter))]
    UnknownShorthand {
        /// The letter.
        letter: char,
        /// The letters in which it stands.
        word: String,
    },
    /// The last word is a flag that needs a value.
    #[error("flag needs an argument: {0}")]
    NeedsArgument(String),
    /// Dashes without a name.
    #[error("bad flag syntax: {0}")]
    BadSyntax(String),
    /// The value is not of the flag's type, or not allowed.
    #[error("invalid argument {} for {} flag: {reason}", go::quote(.value), go::quote(.flag))]
    Invalid {
        /// The value.
        value: String,
        /// The flag with its dashes.
        flag: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Words that are not flags.
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
    /// As pflag names it in errors.
    pub fn printed(&self) -> String {
        match self.shorthand {
            Some(letter) => format!("-{letter}, --{}", self.name),
            None => format!("--{}", self.name),
        }
    }

    /// The error that a value is not allowed.
    pub fn invalid(&self, value: &str, reason: impl Into<String>) -> FlagError {
        FlagError::Invalid { value: value.to_owned(), flag: self.printed(), reason: reason.into() }
    }
}

/// The flags that were given, with their values, and the words that are not flags.
#[derive(Debug, Default)]
pub struct Raw {
    /// By name: the flag, its value so far, and the last text that was given.
    given: BTreeMap<&'static str, Given>,
    /// Words that are not flags.
    pub arguments: Vec<String>,
}

#[derive(Debug)]
struct Given {
    value: Value,
    text: String,
}

impl Raw {
    /// Reads the words of a command line.
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

    /// The value of a flag that was given.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.given.get(name).map(|given| &given.value)
    }

    /// The last text that was given for a flag, as typed.
    pub fn text(&self, name: &str) -> &str {
        self.given.get(name).map_or("", |given| &given.text)
    }

    /// The names of the flags that were given, by name.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.given.keys().copied()
    }
}

/// The flags that a command line may hold.
#[derive(Debug, Default)]
pub struct Table {
    flags: BTreeMap<&'static str, &'static Flag>,
}

impl Table {
    /// Of lists of flags; names must be distinct.
    pub fn new(lists: &[&'static [Flag]]) -> Self {
        Self { flags: lists.iter().copied().flatten().map(|flag| (flag.name, flag)).collect() }
    }

    /// The flag of a name, in which `_` may stand for `-`.
    pub fn named(&self, name: &str) -> Option<&'static Flag> {
        match self.flags.get(name) {
            Some(flag) => Some(flag),
            None => self.flags.get(name.replace('_', "-").as_str()).copied(),
        }
    }

    fn lettered(&self, letter: char) -> Option<&'static Flag> {
        self.flags.values().find(|flag| flag.shorthand == Some(letter)).copied()
    }

    /// All flags, by name.
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
    fn a_value_follows_behind_an_equals_sign_or_as_the_next_word() {
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
    fn a_boolean_takes_a_value_only_behind_an_equals_sign() {
        assert_eq!(value(&["--dry-run"], "dry-run"), Value::Bool(true));
        assert_eq!(value(&["--dry-run=false"], "dry-run"), Value::Bool(false));
        assert_eq!(value(&["--dry_run=T"], "dry-run"), Value::Bool(true));
        let raw = parse(&["--dry-run", "false"]).unwrap();
        assert_eq!(raw.value("dry-run"), Some(&Value::Bool(true)));
        assert_eq!(raw.arguments, ["false"]);
    }

    #[test]
    fn a_shorthand_takes_its_value_in_three_ways() {
        for words in
            [&["-v4"][..], &["-v=4"], &["-v", "4"], &["--v=4"], &["--v", "4"], &["-hv4"], &["-hv", "4"]]
        {
            assert_eq!(value(words, "v"), Value::Int(4), "{words:?}");
        }
        assert_eq!(parse(&["-v"]).unwrap_err(), "flag needs an argument: 'v' in -v");
        assert_eq!(parse(&["-hx"]).unwrap_err(), "unknown shorthand flag: 'x' in -x");
    }

    #[test]
    fn the_last_scalar_wins_and_lists_add_up() {
        assert_eq!(value(&["-v1", "--v=2"], "v"), Value::Int(2));
        let list = value(&["--list=a,b", "--list", "c"], "list");
        assert_eq!(list, Value::List(["a", "b", "c"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn two_dashes_end_the_flags() {
        let raw = parse(&["-", "--", "--dry-run"]).unwrap();
        assert_eq!(raw.arguments, ["-", "--dry-run"]);
        assert_eq!(raw.value("dry-run"), None);
    }

    #[test]
    fn errors_are_those_of_pflag() {
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
