//! The types of flag values. Parsing and error texts follow pflag and Go.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};

use autoscaling::duration::GoDuration;
use autoscaling::failure;
use autoscaling::quantity::Quantity;
use clap::{Arg, ArgAction, ArgMatches};

use super::csv::{self, CsvError};
use crate::serving::NamedCertificate;

/// The reason why a text is not a value of a type, with the text of Go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValueError {
    /// The text does not have the syntax of a number or a boolean.
    #[error("strconv.{function}: parsing {}: invalid syntax", failure::quote(.text))]
    Syntax { function: &'static str, text: String },
    /// The number does not fit the type.
    #[error("strconv.{function}: parsing {}: value out of range", failure::quote(.text))]
    Range { function: &'static str, text: String },
    /// The text is not one record of comma-separated values.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// The text is not an IP address.
    #[error("failed to parse IP: {}", failure::quote(.0))]
    Ip(String),
    /// An item has no `=`.
    #[error("{0} must be formatted as key=value")]
    Pair(String),
    /// An item is not a pattern and a level.
    #[error("{} does not have the pattern=N format", failure::quote(.0))]
    Pattern(String),
    /// The level of an item is invalid.
    #[error("parsing verbosity in {}: {error}", failure::quote(.item))]
    Verbosity { item: String, error: Box<Self> },
    /// The parser of another type refuses the text. Contains its error text.
    #[error("{0}")]
    Other(String),
}

/// A type of flag values.
#[derive(Debug)]
pub struct Type<T> {
    /// The placeholder for a value in help texts.
    pub(super) placeholder: &'static str,
    form: Form,
    /// Parses the value of one occurrence. The error continues the text `invalid argument "x" for "--flag" flag: `.
    parse: fn(&str) -> Result<T, ValueError>,
    read: fn(&ArgMatches, &str) -> Option<T>,
    print: Print<T>,
}

/// The source of the printed value of a flag.
#[derive(Debug)]
enum Print<T> {
    /// The last text on the command line.
    LastText,
    /// The parsed value, which the function formats.
    Value(fn(&T) -> String),
}

/// The form of a flag on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A value is required, and the last value takes effect.
    Scalar,
    /// A flag without a value means true. The last occurrence takes effect.
    Switch,
    /// A value is required, and all values accumulate.
    List,
}

/// A boolean in Go's spellings.
pub(super) const BOOL: Type<bool> =
    Type { form: Form::Switch, print: Print::Value(bool::to_string), ..scalar("bool", parse_bool) };
/// A value of [`BOOL`], or `raw`.
pub(super) const VERSION: Type<VersionOutput> =
    Type { form: Form::Switch, ..scalar("bool", VersionOutput::parse) };
/// A 64-bit integer in decimal, hexadecimal, octal or binary form.
pub(super) const INT: Type<i64> =
    Type { print: Print::Value(i64::to_string), ..scalar("int", |text| parse_int(text, 64)) };
/// A 32-bit integer in decimal, hexadecimal, octal or binary form.
pub(super) const INT32: Type<i64> =
    Type { print: Print::Value(i64::to_string), ..scalar("int", |text| parse_int(text, 32)) };
/// A number in the range of a 32-bit float.
pub(super) const FLOAT32: Type<f64> = scalar("float", |text| parse_float(text, f64::from(f32::MAX)));
/// A 64-bit float.
pub(super) const FLOAT64: Type<f64> = scalar("float", |text| parse_float(text, f64::MAX));
/// A Go duration.
pub(super) const DURATION: Type<GoDuration> = Type {
    print: Print::Value(GoDuration::to_string),
    ..scalar("duration", |text| text.parse().map_err(other))
};
/// Any text.
pub(super) const TEXT: Type<String> = scalar("string", |text| Ok(text.to_owned()));
/// Comma-separated texts.
pub(super) const STRINGS: Type<Vec<String>> = list(
    "strings",
    |text| if text.is_empty() { Ok(Vec::new()) } else { csv::read(text).map_err(ValueError::from) },
    |items| format!("[{}]", csv::write(items.iter().map(String::as_str))),
);
/// Comma-separated 32-bit integers.
pub(super) const INT32S: Type<Vec<i64>> = list(
    "ints",
    |text| text.split(',').map(|item| parse_int(item, 32)).collect(),
    |numbers| format!("[{}]", numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
);
/// Comma-separated `key=value` pairs. A text with exactly one `=` is a single pair, even if it contains commas.
pub(super) const STRING_MAP: Type<BTreeMap<String, String>> = Type {
    placeholder: "key=value,...",
    form: Form::List,
    parse: parse_pairs,
    read: |matches, name| {
        let maps = matches.get_many::<BTreeMap<String, String>>(name)?;
        Some(maps.flatten().map(|(key, value)| (key.clone(), value.clone())).collect())
    },
    print: Print::Value(|pairs| {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("[{}]", csv::write(pairs.iter().map(String::as_str)).trim())
    }),
};
/// An IP address. pflag ignores an empty text, so the result is 0.0.0.0, the default of the only flag of this type.
pub(super) const IP: Type<IpAddr> = Type {
    print: Print::Value(|address| address.to_canonical().to_string()),
    ..scalar("ip", |text| match text {
        "" => Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        _ => text.trim().parse().map_err(|_| ValueError::Ip(text.to_owned())),
    })
};
/// A `resource.Quantity`.
pub(super) const QUANTITY: Type<Quantity> = scalar("quantity", |text| text.parse().map_err(other));
/// A pair of files `certificate,key`, optionally followed by `:domains`.
pub(super) const CERT_KEY: Type<Vec<NamedCertificate>> = list(
    "cert,key",
    |text| Ok(vec![NamedCertificate::parse(text).map_err(other)?]),
    |certificates| {
        let printed: Vec<_> = certificates.iter().map(ToString::to_string).collect();
        format!("[{}]", printed.join(";"))
    },
);
/// A log level, in digits only.
pub(super) const LEVEL: Type<u32> =
    Type { print: Print::Value(u32::to_string), ..scalar("int", parse_level) };
/// Comma-separated `pattern=N` pairs.
pub(super) const MODULE_LEVELS: Type<Vec<String>> =
    list("pattern=N,...", parse_module_levels, |items| items.join(","));
/// Comma-separated `component:Gate=bool` items. Each parsed item contains the colon, even if the component is omitted.
pub(super) const FEATURE_GATES: Type<Vec<String>> = list(
    "Gate=bool,...",
    |text| {
        let gates = text.split(',').filter(|gate| !gate.is_empty());
        let split = gates.map(|gate| gate.split_once(':').unwrap_or(("", gate)));
        Ok(split.map(|(component, gate)| format!("{}:{}", component.trim(), gate.trim())).collect())
    },
    |items| {
        let mut sorted = items.clone();
        sorted.sort_by(|a, b| a.split(':').next().cmp(&b.split(':').next()));
        sorted.join(",")
    },
);

const fn scalar<T: Clone + Send + Sync + 'static>(
    placeholder: &'static str,
    parse: fn(&str) -> Result<T, ValueError>,
) -> Type<T> {
    let read = |matches: &ArgMatches, name: &str| matches.get_one(name).cloned();
    Type { placeholder, form: Form::Scalar, parse, read, print: Print::LastText }
}

/// Creates a type with accumulating occurrences. `print` formats all items.
const fn list<T: Clone + Send + Sync + 'static>(
    placeholder: &'static str,
    parse: fn(&str) -> Result<Vec<T>, ValueError>,
    print: fn(&Vec<T>) -> String,
) -> Type<Vec<T>> {
    Type { placeholder, form: Form::List, parse, read: concatenated, print: Print::Value(print) }
}

/// Returns the concatenated values of all occurrences.
fn concatenated<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Option<Vec<T>> {
    Some(matches.get_many::<Vec<T>>(name)?.flatten().cloned().collect())
}

impl<T: Clone + Send + Sync + 'static> Type<T> {
    /// Creates the clap argument of a flag.
    pub(super) fn arg(&self, name: &'static str) -> Arg {
        let arg = Arg::new(name).long(name).value_name(self.placeholder).value_parser(self.parse);
        match self.form {
            Form::Scalar => arg.allow_hyphen_values(true),
            Form::Switch => arg.require_equals(true).num_args(0..=1).default_missing_value("true"),
            Form::List => arg.allow_hyphen_values(true).action(ArgAction::Append),
        }
    }

    /// Returns the value of a flag, or `None` if the command line does not contain the flag.
    pub(super) fn read(&self, matches: &ArgMatches, name: &str) -> Option<T> {
        (self.read)(matches, name)
    }

    /// Returns the value of a flag in pflag's output format.
    pub(super) fn printed(&self, value: &T, matches: &ArgMatches, name: &str) -> String {
        match self.print {
            Print::LastText => last_text(matches, name).to_owned(),
            Print::Value(print) => print(value),
        }
    }

    /// Parses a default in pflag's output format. An empty text means the zero value, and lists are in brackets.
    pub(super) fn parse_default(&self, text: &str) -> Result<T, ValueError>
    where
        T: Default,
    {
        let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if text.is_empty() { Ok(T::default()) } else { (self.parse)(text) }
    }
}

/// Returns the last value of a flag as on the command line. Empty if the command line does not contain the flag.
pub(super) fn last_text<'a>(matches: &'a ArgMatches, name: &str) -> &'a str {
    matches.get_raw(name).and_then(Iterator::last).and_then(|text| text.to_str()).unwrap_or_default()
}

/// The output that `--version` requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionOutput {
    /// No output: the controller runs.
    Off,
    /// The human-readable version.
    Readable,
    /// The version as a Go value, like kube-controller-manager's output.
    Raw,
}

impl VersionOutput {
    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "raw" => Ok(Self::Raw),
            _ => parse_bool(text).map(|on| if on { Self::Readable } else { Self::Off }),
        }
    }
}

/// Parses a boolean like `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Result<bool, ValueError> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(syntax("ParseBool", text)),
    }
}

fn syntax(function: &'static str, text: &str) -> ValueError {
    ValueError::Syntax { function, text: text.to_owned() }
}

fn other(error: impl Display) -> ValueError {
    ValueError::Other(error.to_string())
}

fn range(function: &'static str, text: &str) -> ValueError {
    ValueError::Range { function, text: text.to_owned() }
}

/// Parses an integer like `strconv.ParseInt` with base 0: a prefix selects the base, and `_` may separate digits.
fn parse_int(text: &str, bits: u32) -> Result<i64, ValueError> {
    let invalid = || syntax("ParseInt", text);
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = unsigned.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)),
        [b'0', b'o', ..] => (8, lower.get(2..)),
        [b'0', b'b', ..] => (2, lower.get(2..)),
        [b'0', _, ..] => (8, lower.get(1..)),
        _ => (10, Some(lower.as_str())),
    };
    let digits = digits.unwrap_or_default();
    // An underscore must be between two digits, or between a base prefix and a digit.
    let separated = digits.split('_').skip(usize::from(base != 10)).all(|group| !group.is_empty());
    let plain = digits.replace('_', "");
    if plain.is_empty()
        || !separated
        || digits.ends_with('_')
        || !plain.chars().all(|digit| digit.is_digit(base))
    {
        return Err(invalid());
    }
    let limit = 1_i128 << (bits - 1);
    i128::from_str_radix(&plain, base)
        .ok()
        .map(|magnitude| if negative { -magnitude } else { magnitude })
        .filter(|number| (-limit..limit).contains(number))
        .and_then(|number| i64::try_from(number).ok())
        .ok_or_else(|| range("ParseInt", text))
}

/// Parses a log level like `strconv.ParseUint` with base 10 and 31 bits.
fn parse_level(text: &str) -> Result<u32, ValueError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax("ParseUint", text));
    }
    let level = text.parse().ok().filter(|level| i32::try_from(*level).is_ok());
    level.ok_or_else(|| range("ParseUint", text))
}

/// Parses a float like `strconv.ParseFloat`, but without the hexadecimal form. `_` may separate digits.
fn parse_float(text: &str, max: f64) -> Result<f64, ValueError> {
    let invalid = || syntax("ParseFloat", text);
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let separates = |at: usize| is_digit(bytes.get(at.wrapping_sub(1))) && is_digit(bytes.get(at + 1));
    if !text.match_indices('_').all(|(at, _)| separates(at)) {
        return Err(invalid());
    }
    let number: f64 = text.replace('_', "").parse().map_err(|_| invalid())?;
    if number.is_nan() && text.starts_with(['+', '-']) {
        return Err(invalid());
    }
    let is_infinity = text.to_ascii_lowercase().contains("inf");
    if number.abs() > max && !is_infinity {
        return Err(range("ParseFloat", text));
    }
    Ok(number)
}

fn parse_pairs(text: &str) -> Result<BTreeMap<String, String>, ValueError> {
    let items = match text.matches('=').count() {
        0 => vec![text.to_owned()],
        1 => vec![text.trim_matches('"').to_owned()],
        _ => csv::read(text)?,
    };
    let pairs = items.into_iter().map(|item| match item.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(ValueError::Pair(item)),
    });
    pairs.collect()
}

fn parse_module_levels(text: &str) -> Result<Vec<String>, ValueError> {
    let items = text.split(',').filter(|item| !item.is_empty()).map(|item| {
        let (pattern, level) = item
            .split_once('=')
            .filter(|(pattern, level)| !pattern.is_empty() && !level.is_empty() && !level.contains('='))
            .ok_or_else(|| ValueError::Pattern(item.to_owned()))?;
        let level = parse_level(level)
            .map_err(|error| ValueError::Verbosity { item: item.to_owned(), error: Box::new(error) })?;
        Ok(format!("{pattern}={level}"))
    });
    items.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<T>(of: &Type<T>, text: &str) -> Result<T, ValueError> {
        (of.parse)(text)
    }

    #[test]
    fn integers_are_parsed_in_every_base_of_go() {
        let int = |text| parsed(&INT32, text);
        for (text, expected) in [
            ("5", 5),
            ("-5", -5),
            ("+5", 5),
            ("0x1F", 31),
            ("0b11", 3),
            ("0o17", 15),
            ("017", 15),
            ("1_000", 1000),
            ("0x_1f", 31),
        ] {
            assert_eq!(int(text), Ok(expected), "{text}");
        }
        for text in ["", "x", "5 ", "08", "_1", "1_", "1__0", "--5", "0x", "0x+1"] {
            assert_eq!(int(text), Err(syntax("ParseInt", text)), "{text}");
        }
        assert_eq!(int("2147483648"), Err(range("ParseInt", "2147483648")));
        assert_eq!(int("-2147483648"), Ok(-2_147_483_648));
    }

    #[test]
    fn floats_are_limited_to_their_width() {
        assert_eq!(parsed(&FLOAT32, "1e39"), Err(range("ParseFloat", "1e39")));
        assert_eq!(parsed(&FLOAT64, "1e39"), Ok(1e39));
        assert_eq!(parsed(&FLOAT64, "-inf"), Ok(f64::NEG_INFINITY));
        assert_eq!(parsed(&FLOAT64, ".5"), Ok(0.5));
        assert_eq!(parsed(&FLOAT64, "0,5"), Err(syntax("ParseFloat", "0,5")));
    }

    #[test]
    fn every_other_type_reports_the_go_error() {
        fn error<T: std::fmt::Debug>(of: &Type<T>, text: &str) -> String {
            parsed(of, text).unwrap_err().to_string()
        }
        assert_eq!(error(&BOOL, "yes"), "strconv.ParseBool: parsing \"yes\": invalid syntax");
        assert_eq!(error(&DURATION, "15"), "time: missing unit in duration \"15\"");
        assert_eq!(error(&IP, "10.0.0"), "failed to parse IP: \"10.0.0\"");
        assert_eq!(error(&STRING_MAP, "a"), "a must be formatted as key=value");
        assert_eq!(error(&QUANTITY, "64mm"), "unable to parse quantity's suffix");
        assert_eq!(error(&CERT_KEY, "a.crt"), "expected comma separated certificate and key file paths");
        assert_eq!(error(&MODULE_LEVELS, "a"), "\"a\" does not have the pattern=N format");
        assert_eq!(error(&INT32S, "1,x"), "strconv.ParseInt: parsing \"x\": invalid syntax");
        assert_eq!(error(&LEVEL, "-1"), "strconv.ParseUint: parsing \"-1\": invalid syntax");
    }
}
